"""Which sources a soak is of: those that its harnesses are made from, and no others.

Owns the list, a mark that differs when one of these files does, and copies of what is run of them.
A soak goes on for as long as the mark is the same. So files that no harness can touch (tests of
other modules, pages, the Spark package) must not be in it. A change that is not committed counts
like one that is. For people there is the version.
"""

import hashlib
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

RUST = ("arrow", "hostile", "log", "log/fuzz", "py", "sim", "storm")
"""Crates below `rust`; of each the manifest, what stands below `src`, and the fuzzer's targets."""
SCHEDULES = ("rust/log/tests/loom", "rust/log/tests/shuttle")
"""Models; long schedules of them are drawn."""
PYTHON = "python/falaj"
NO_PYTHON = ("demo", "pipeline", "spark")
"""Packages of it that no harness imports."""
TESTS = (
    *("tests/proof", "tests/hostile", "tests/together", "tests/cli/shell.py", "tests/cli/warm.py"),
    *("tests/python/children.py", "tests/storm_worker.py", "tests/notes.py"),
    *("conftest.py", "tools/guest.py"),
    *("tests/ship/storm", "tests/ship/replies", "tests/ship/fake.py", "tests/ship/faults.py"),
)
BESIDE = ("tests/cli/__init__.py", "tests/ship/__init__.py", "pyproject.toml")
"""Files that those need to be run, and that decide nothing."""


def _below(folder: Path) -> Iterator[Path]:
    """List the files of a folder, or the one file; what Python or a build puts there is none."""
    if folder.is_file():
        yield folder
    for path in folder.rglob("*"):
        if path.is_file() and not {"__pycache__", "target"} & set(path.relative_to(folder).parts):
            yield path


def files(root: Path) -> list[Path]:
    """List the sources, in one order."""
    found = [root / "Cargo.toml", root / "Cargo.lock"]
    for crate in RUST:
        found.append(root / "rust" / crate / "Cargo.toml")
        for folder in ("src", "fuzz_targets"):
            found += _below(root / "rust" / crate / folder)
    # Tests of a crate are no part of its programs.
    found = [path for path in found if not path.name.endswith("tests.rs")]
    for name in SCHEDULES:
        found += _below(root / name)
    python = root / PYTHON
    found += [
        path
        for path in _below(python)
        if path.suffix == ".py" and path.relative_to(python).parts[0] not in NO_PYTHON
    ]
    for name in TESTS:
        found += _below(root / name)
    return sorted(path for path in set(found) if path.is_file())


def mark(root: Path) -> str:
    """Say what the sources are, to tell them from others."""
    whole = hashlib.sha256()
    for path in files(root):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(root)} {content}\n".encode())
    return whole.hexdigest()[:16]


def copy(root: Path, target: Path) -> None:
    """Copy what is in Python, with the compiled module, to a place of its own."""
    for name in ("python", *TESTS, *BESIDE):
        for path in _below(root / name):
            place = target / path.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)


def version(root: Path) -> str:
    """Say it for people: the version, and the last commit that changed one of them."""
    manifest = tomllib.loads((root / "Cargo.toml").read_text())
    number = manifest["workspace"]["package"]["version"]
    names = [str(path.relative_to(root)) for path in files(root)]
    commit = _git(root, "log", "-1", "--format=%h", "--", *names) or "no commit"
    changed = _git(root, "status", "--porcelain", "--untracked-files=all", "--", *names)
    return f"{number}, {commit}{'+' if changed else ''}"


def _git(root: Path, *words: str) -> str:
    """Ask git about the sources; without git there is no answer."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()
