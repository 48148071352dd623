"""The wheel of the server, made of the program that is tested, in an environment of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from house import ROOT
from server.doors import PROGRAM, Server

MATURIN = Path(sys.executable).parent / "maturin"
# Another build than cargo's own would take minutes, so this test is of that one alone.
BUILT_HERE = PROGRAM.parent.name == "debug" and shutil.which("cargo") is not None


@pytest.mark.skipif(not BUILT_HERE, reason="NOT TESTED: the wheel, for want of a debug build")
@pytest.mark.timeout(600)
def test_the_wheel_puts_the_program_where_falaj_serve_finds_it(tmp_path: Path) -> None:
    target = {"CARGO_TARGET_DIR": os.fspath(PROGRAM.parent.parent)}
    manifest = f"--manifest-path={ROOT / 'rust/server/Cargo.toml'}"
    words = [str(MATURIN), "build", manifest, "--locked", "--compatibility=linux"]
    subprocess.run([*words, f"--out={tmp_path}"], check=True, env={**os.environ, **target})
    (wheel,) = tmp_path.glob("falaj_server-*-py3-none-*.whl")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin/python"
    pip = [sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet"]
    subprocess.run([*pip, "--no-index", wheel], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "tree.pth").write_text(f"{ROOT / 'python'}\n")
    command = [os.fspath(python), "-m", "falaj", "serve"]
    alone = {"PATH": os.fspath(tmp_path)}  # nothing but what is beside that Python
    with Server(tmp_path / "events", env=alone, before=command, program=None) as server:
        assert Path(f"/proc/{server.process.pid}/exe").resolve() == venv / "bin/falaj-server"
        assert server.post("/v1/topics/orders/records", b"one").status == 201
