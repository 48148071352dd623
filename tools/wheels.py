#!/usr/bin/env python3
"""Build the wheels and the source package, look into each, and use each where it runs.

Two wheels for each system: the package, and the program `falaj-server`.

    wheels.py DIST [--python PYTHON]… [--only TEXT] [--keep]

It builds every wheel for which Rust has a standard library on this machine. zig links them. So
one machine builds for both processors and both C libraries.

--python   an interpreter in which to use a wheel; it may be a script that starts an emulator
           (default: each version of Python on this machine)
--only     build only the targets whose names have this text
--keep     build nothing; take the files of DIST as they are
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
OLDEST = (3, 11)
SERVER = "falaj_server"
TEST_TOOLS = ["pytest>=8.3", "pytest-timeout>=2.3", "pytest-benchmark>=5.1"]
UNWINDER = "libgcc_s.so.1"
UNWINDING = (
    *("Backtrace", "DeleteException", "FindEnclosingFunction", "GetCFA", "GetDataRelBase", "GetGR"),
    *("GetIP", "GetIPInfo", "GetLanguageSpecificData", "GetRegionStart", "GetTextRelBase"),
    *("RaiseException", "Resume", "SetGR", "SetIP"),
)
PLATFORM = re.compile(r"(manylinux|musllinux)_(\d+)_(\d+)_(\w+)")


class Target(NamedTuple):
    """A processor and a C library for which a wheel is built."""

    triple: str
    policy: str

    @property
    def wheel(self) -> str:
        """Name the file of the package: one for every Python from the oldest on."""
        return f"falaj-{VERSION}-cp{OLDEST[0]}{OLDEST[1]}-abi3-{self._platform}.whl"

    @property
    def server(self) -> str:
        """Name the file of the server, which is a program and needs no certain Python."""
        return f"{SERVER}-{VERSION}-py3-none-{self._platform}.whl"

    @property
    def _platform(self) -> str:
        return f"{self.policy}_{self.triple.split('-')[0]}"


TARGETS = [
    Target("x86_64-unknown-linux-gnu", "manylinux_2_28"),
    Target("x86_64-unknown-linux-musl", "musllinux_1_2"),
    Target("aarch64-unknown-linux-gnu", "manylinux_2_28"),
    Target("aarch64-unknown-linux-musl", "musllinux_1_2"),
]


def run(*command: str | Path) -> str:
    """Run a program to its end; return what it prints, and show its complaints."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    # maturin looks for zig by the `python3` on the path.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nfailed: {' '.join(map(str, command))}")
    return done.stdout


def tool(name: str) -> Path:
    """Find a program that pip has put beside the Python that runs this."""
    return Path(sys.executable).parent / name


# --- Building ------------------------------------------------------------------------------------


def has_standard_library(target: Target) -> bool:
    """Say whether rustc can compile for a target."""
    libraries = Path(run("rustc", "--print=target-libdir", f"--target={target.triple}").strip())
    return any(libraries.glob("libstd-*"))


def unwinder(target: Target, folder: Path) -> list[str]:
    """Make rustc's arguments that link the unwinder of the system, if its C library needs that.

    Before 3.14 Python ends daemon threads by `pthread_exit`, and glibc unwinds their stacks with
    libgcc. A module with an unwinder of its own, as zig links it, crashes then. musl does not
    unwind. The library itself need not be here: the linker asks for its name and functions alone.
    """
    if not target.policy.startswith("manylinux"):
        return []
    library, source = folder / UNWINDER, folder / "unwinder.c"
    source.write_text("".join(f"void _Unwind_{name}(void) {{}}\n" for name in UNWINDING))
    zig = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        f"--target={target.triple.replace('-unknown', '')}",
    ]
    run(*zig, "-shared", "-nostdlib", f"-Wl,-soname,{UNWINDER}", "-o", library, source)
    return ["--", f"-Clink-arg={library}"]


def build(dist: Path, only: str) -> Iterator[str]:
    """Build what can be built; yield a sentence for each target that cannot."""
    shutil.rmtree(dist, ignore_errors=True)
    for target in (target for target in TARGETS if only in target.triple):
        if not has_standard_library(target):
            yield f"{target.wheel}: get a standard library with 'rustup target add {target.triple}'"
            continue
        how = ["--release", "--locked", "--zig", f"--out={dist}"]
        how += [f"--target={target.triple}", f"--compatibility={target.policy}"]
        with tempfile.TemporaryDirectory() as scratch:
            run(tool("maturin"), "build", *how, *unwinder(target, Path(scratch)))
        run(tool("maturin"), "build", "--manifest-path=rust/server/Cargo.toml", *how)
    run(tool("maturin"), "sdist", f"--out={dist}")


# --- Looking into a wheel ------------------------------------------------------------------------


def look_into(wheel: Path) -> list[str]:
    """List what is wrong with a wheel, a sentence each."""
    wrong = []
    if wheel.name not in {name for target in TARGETS for name in (target.wheel, target.server)}:
        wrong.append("its name is the name of no target")
    inside = paths_inside(wheel, paths_of_this_machine())
    wrong += [f"{name} holds the path {path}" for name, path in inside]
    says = wheel.stem.split("-")[-1]
    if needs_more(needed_by(wheel), says):
        wrong.append(f"it needs more than {says} has: ask 'auditwheel show'")
    if wheel.name.startswith(SERVER):
        return wrong
    if unwinds_by_itself(wheel):
        wrong.append(f"it does not link {UNWINDER}, so threads that end with Python crash")
    run(tool("abi3audit"), "--strict", wheel)
    return wrong


def paths_inside(wheel: Path, paths: Iterable[str]) -> list[tuple[str, str]]:
    """List which files of a wheel hold which of these paths or names."""
    with zipfile.ZipFile(wheel) as files:
        contents = {name: files.read(name) for name in files.namelist()}
    return [(name, path) for path in paths for name in contents if path.encode() in contents[name]]


def unwinds_by_itself(wheel: Path) -> bool:
    """Say whether a wheel for glibc has an unwinder of its own, see `unwinder`."""
    return "manylinux" in wheel.name and not paths_inside(wheel, [UNWINDER])


def paths_of_this_machine() -> list[str]:
    """Name the folders that a build reads or writes."""
    cargo = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    rustup = os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))
    return [str(ROOT), target, cargo, rustup, str(Path.home() / ".cache")]


def needed_by(wheel: Path) -> str:
    """Name the oldest platform that has the libraries and symbols of a wheel."""
    # Not compared with this machine's libraries, which are of one C library and one processor.
    shown = json.loads(run(tool("auditwheel"), "show", "--json", f"--ldpaths={os.devnull}", wheel))
    if shown["unsupported_isa"]:
        return "a newer processor"
    # musl takes this name for itself; auditwheel knows only the name that Alpine gives to it.
    only_musl = set(shown["external_libs"]) == {"libc.so"}
    needed: str = shown["sym_tag" if only_musl else "overall_tag"]
    return needed


def needs_more(needs: str, says: str) -> bool:
    """Compare the platform that a library needs with the one in the name of its wheel."""
    needed, said = PLATFORM.fullmatch(needs), PLATFORM.fullmatch(says)
    if not needed or not said or (needed[1], needed[4]) != (said[1], said[4]):
        return True
    return (int(needed[2]), int(needed[3])) > (int(said[2]), int(said[3]))


# --- Using a wheel -------------------------------------------------------------------------------


def interpreters() -> list[Path]:
    """Find the Pythons of this machine, one of each version."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    names = (shutil.which(f"python3.{minor}") for minor in range(OLDEST[1], 30))
    found = dict[tuple[int, ...], Path]()
    for python in [*versions.glob("3.*/bin/python3"), *(Path(name) for name in names if name)]:
        ask = "import sys, venv; print(*sys.version_info[:2])"
        command: list[str | Path] = [python, "-c", ask]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        found.setdefault(tuple(map(int, asked.stdout.split())), python)
    return [found[version] for version in sorted(found) if version >= OLDEST]


class Environment:
    """A folder in which an interpreter has nothing but what is installed here."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.folder = folder
        run(python, "-m", "venv", "--without-pip", folder / "venv")
        self.python = folder / "venv/bin/python"

    def install(self, *what: str) -> None:
        """Have this machine's pip choose as one of that interpreter does."""
        run(sys.executable, "-m", "pip", f"--python={self.python}", "install", "--quiet", *what)

    def smoke(self, *options: str) -> str:
        """Use what is installed; return what came of it."""
        printed = run(self.python, ROOT / "tools/smoke.py", self.folder, *options)
        return "; ".join(line for line in printed.splitlines() if re.search("passed|works", line))


def use(dist: Path, pythons: list[Path], scratch: Path) -> Iterator[str]:
    """Use the wheel that each interpreter takes, and the source package; yield what came of it."""
    pip = [sys.executable, "-m", "pip"]
    run(*pip, "download", "--quiet", "--only-binary=:all:", f"--dest={scratch}", *TEST_TOOLS)
    for number, python in enumerate(pythons):
        clean = Environment(python, scratch / str(number))
        clean.install(
            "--no-index", "--only-binary=:all:", f"--find-links={dist}", f"falaj[server]=={VERSION}"
        )
        clean.install("--no-index", f"--find-links={scratch}", *TEST_TOOLS)
        yield clean.smoke("--tests", "--server")
    clean = Environment(Path(sys.executable), scratch / "source")
    clean.install(str(dist / f"falaj-{VERSION}.tar.gz"))
    yield f"from the source package: {clean.smoke()}"


def main() -> None:
    """Go through it; say what was built, used and left out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dist", type=lambda given: Path(given).resolve())
    parser.add_argument("--python", type=Path, action="append")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    dist: Path = asked.dist
    left_out = [] if asked.keep else list(build(dist, asked.only))
    wheels = sorted(dist.glob("*.whl"))
    if wrong := [f"{wheel.name}: {fault}" for wheel in wheels for fault in look_into(wheel)]:
        raise SystemExit("\n".join(wrong))
    files = [*wheels, *dist.glob("*.tar.gz")]
    run(tool("twine"), "check", "--strict", *files)
    for file in files:
        print(f"{file.stat().st_size / 1e6:6.2f} MB  {file.name}", flush=True)
    with tempfile.TemporaryDirectory(prefix="wheels-") as scratch:
        for outcome in use(dist, asked.python or interpreters(), Path(scratch)):
            print(outcome, flush=True)
    for sentence in left_out:
        print(f"NOT BUILT: {sentence}")


if __name__ == "__main__":
    main()
