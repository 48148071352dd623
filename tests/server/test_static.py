"""The static program: it runs where there is nothing but itself and a folder, as in its image."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import falaj
from server.doors import Server
from server.test_deploy import manifest

STATIC = os.environ.get("STATIC_SERVER")

pytestmark = [
    pytest.mark.skipif(STATIC is None, reason="NOT RUN: `make check-image` builds the program"),
    pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root changes the root folder"),
]


def test_the_program_needs_no_library() -> None:
    assert STATIC is not None
    done = subprocess.run(["ldd", STATIC], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "not a dynamic executable" in said or "statically linked" in said, said


def test_the_program_serves_in_an_empty_root_beside_a_native_process() -> None:
    assert STATIC is not None
    user = manifest()["StatefulSet"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        state = root / "var/lib/falaj"
        for folder in (root / "usr/bin", state):
            folder.mkdir(parents=True)
        shutil.copy(STATIC, root / "usr/bin/falaj-server")
        os.chown(state, user, user)
        jail = ("chroot", f"--userspec={user}:{user}", name)
        program = Path("/usr/bin/falaj-server")
        with Server(Path("/var/lib/falaj/events"), before=jail, program=program) as server:
            server.token = (state / "events/server/token").read_text()
            assert server.post("/v1/topics/a/records", b"from outside").status == 201
            with falaj.open(state / "events") as store:
                store.topic("a").append(b"from a native process")
            read = server.get("/v1/topics/a/records?from=0").json["records"]
            assert [record["value"] for record in read] == ["from outside", "from a native process"]
