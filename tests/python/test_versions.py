"""The one compiled module runs in every promised CPython that is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import falaj

PROMISED = ["3.11", "3.12", "3.13"]
PROGRAM = """
import asyncio, os, sys, falaj
store = falaj.open(sys.argv[1])
topic = store.topic("orders", codec="json")
assert topic.append({"a": 1}, key=b"k", headers={"h": b"1"}, timestamp="2026-11-20T08:00:00Z") == 0
assert topic.extend(range(1000)) == range(1, 1001)
assert [r.value for r in topic][1:] == list(range(1000))
views = [v for b in topic.batches() for v in b.raw_values]
assert topic[5].value == 4 and len(topic[3:7]) == 4 and topic[0].timestamp.year == 2026
assert len(list(topic.follow(timeout=0))) == 1001
async def read():
    return [r.offset async for r in topic.afollow(-2, timeout=0.1)]
assert asyncio.run(read()) == [999, 1000]
try:
    topic[2000]
except IndexError as error:
    assert error.end == 1001
child = os.fork()
if child == 0:
    os._exit(topic.append("from the child") == 1001)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
topic.delete()
store.close()
assert bytes(views[1]) == b"0"
print("good", *sys.version_info[:2])
"""


def interpreter(version: str) -> str | None:
    """Find a CPython that runs: on PATH, or among pyenv's."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = shutil.which(f"python{version}")
    candidates = [os.fspath(python) for python in kept.glob(f"{version}.*/bin/python")]
    for candidate in [found, *candidates] if found else candidates:
        test = "import sys; print(*sys.version_info[:2], sep='.')"
        done = subprocess.run([candidate, "-c", test], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == version:
            return candidate
    return None


@pytest.mark.parametrize("version", PROMISED)
def test_the_module_runs_in_cpython(version: str, path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"NOT TESTED in CPython {version}: it is not installed here")
    package = Path(falaj.__file__).parent.parent
    done = subprocess.run(
        [python, "-W", "error::DeprecationWarning:falaj", "-c", PROGRAM, os.fspath(path)],
        env={**os.environ, "PYTHONPATH": os.fspath(package)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, f"good {version.replace('.', ' ')}\n"), done.stderr
    assert sys.version_info >= (3, 11)
