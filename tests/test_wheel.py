"""The wheel, the source package, the crate: a user's packages, without Rust, and README."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import papers
import wheels
from house import ROOT, tracked_files

BUILD_S, INSTALL_S = 600, 300
VERSION = wheels.VERSION
# All programs that README's blocks call besides Python and falaj; no cargo, no compiler.
PROGRAMS = ["bash", "sh", "cat", "cut", "env", "grep", "head", "seq", "sort"]
PACKAGED = {"falaj", "pyspark_falaj", f"falaj-{VERSION}.dist-info"}

pytestmark = [
    pytest.mark.skipif(
        shutil.which("cargo") is None,
        reason="NOT TESTED: the wheel and the source package, for want of cargo",
    ),
    # The first test of a fresh clone may have to build.
    pytest.mark.timeout(BUILD_S + INSTALL_S),
]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source package; `make build` has compiled them already."""
    folder = tmp_path_factory.mktemp("dist")
    # Without the variables of a make that runs this test.
    environment = {k: v for k, v in os.environ.items() if not re.match("MAKE|MFLAGS|DIST", k)}
    made = subprocess.run(
        ["make", "wheel", f"DIST={folder}", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source package, unpacked."""
    (found,) = dist.glob("*.tar.gz")
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(found) as archive:
        archive.extraction_filter = papers.DATA_FILTER
        archive.extractall(folder)
    return folder / f"falaj-{VERSION}"


class Clean:
    """A user's machine: Python, a shell, and no Rust."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.path = folder / "bin"
        self.path.mkdir(parents=True)
        for name in PROGRAMS:
            real = shutil.which(name)
            assert real, name
            (self.path / name).symlink_to(real)
        venv = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=INSTALL_S)
        self.python = venv / "bin/python"
        # "falaj" means the wheel that was just built, whatever a registry has under that name.
        self.constraints = folder / "constraints.txt"
        self.constraints.write_text(f"falaj @ {wheel.as_uri()}\n")
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CARGO", "RUST"))
        }
        self.environment = {
            **kept,
            "PATH": os.pathsep.join([os.fspath(venv / "bin"), os.fspath(self.path)]),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
        }

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
        )

    def shell(self, line: str) -> "subprocess.CompletedProcess[str]":
        return self.run("bash", "-c", line)


def install_line() -> str:
    """The line with which README installs falaj."""
    blocks = papers.blocks("README.md", (ROOT / "README.md").read_text())
    (found,) = (line for block in blocks if block.installs for line in block.text.splitlines())
    assert found.split("#")[0].strip() == "pip install falaj"
    return found


def readme_blocks(*languages: str) -> list[papers.Block]:
    blocks = papers.blocks("README.md", (ROOT / "README.md").read_text())
    return [
        block
        for block in blocks
        if block.runs and block.language in languages and "spark" not in block.text
    ]


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Clean:
    """Such a machine, after README's line of installing."""
    machine = Clean(tmp_path_factory.mktemp("clean"), wheel)
    machine.environment["PIP_CONSTRAINT"] = os.fspath(machine.constraints)
    done = machine.shell(install_line())
    assert done.returncode == 0, done.stdout + done.stderr
    return machine


def test_the_wheel_installs_without_rust_and_brings_nothing_else(clean: Clean) -> None:
    assert clean.shell("command -v cargo rustc cc").returncode != 0
    listed = clean.run(os.fspath(clean.python), "-m", "pip", "list", "--format=freeze")
    where = clean.run(os.fspath(clean.python), "-c", "import falaj; print(falaj.__file__)").stdout
    assert Path(where).is_relative_to(clean.folder)
    names = {line.split("=")[0].split(" ")[0] for line in listed.stdout.splitlines()}
    assert names - {"pip", "setuptools", "wheel"} == {"falaj"}


def test_the_readmes_python_runs_in_a_clean_environment(clean: Clean, tmp_path: Path) -> None:
    python = readme_blocks("python")
    assert len(python) >= 2
    papers.run(python, tmp_path, os.fspath(clean.python), os.fspath(clean.path))


def test_the_program_does_what_the_readme_says(clean: Clean, tmp_path: Path) -> None:
    assert VERSION in clean.shell("falaj --version").stdout
    both = readme_blocks("python", "console")
    assert {block.language for block in both} == {"python", "console"}
    papers.run(both, tmp_path, os.fspath(clean.python), os.fspath(clean.path))


def test_the_wheel_holds_the_package_its_types_and_its_licences(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names} == PACKAGED
    source = {
        path.removeprefix("python/") for path in tracked_files() if path.startswith("python/")
    }
    info = f"falaj-{VERSION}.dist-info"
    assert names >= source | {"falaj/_core.abi3.so", "falaj/py.typed"}
    assert names >= {f"{info}/licenses/LICENSE-MIT", f"{info}/licenses/LICENSE-APACHE"}
    assert not [name for name in names if name.endswith((".pyc", ".rs"))]


def test_one_wheel_serves_every_python_from_the_first(wheel: Path) -> None:
    assert re.fullmatch(rf"falaj-{re.escape(VERSION)}-cp311-abi3-\w+\.whl", wheel.name)


def test_no_path_of_the_machine_that_built_it_is_in_the_wheel(wheel: Path) -> None:
    assert wheels.paths_inside(wheel, wheels.paths_of_this_machine()) == []


def test_the_source_package_holds_all_that_a_build_needs(unpacked: Path) -> None:
    files = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*")}
    wanted = {
        path
        for path in tracked_files()
        if path.startswith(("python/", "rust/log/src/", "rust/log/examples/", "rust/py/"))
    }
    wanted |= {"Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md"}
    wanted |= {"LICENSE-MIT", "LICENSE-APACHE", "PKG-INFO"}
    assert wanted - files == set()
    assert not [path for path in files if path.endswith((".so", ".pyc"))]


def test_the_source_package_resolves_with_its_own_lock_file(unpacked: Path) -> None:
    # Not compiled a second time: the wheel shows that the same sources build.
    command = ["cargo", "metadata", "--offline", "--locked", "--format-version=1"]
    done = subprocess.run(command, cwd=unpacked, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert '"name":"falaj-py"' in done.stdout


def test_the_package_of_the_crate_holds_its_sources_alone_and_resolves(tmp_path: Path) -> None:
    # Not compiled either, and without a registry.
    command = ["cargo", "package", "-p", "falaj", "--offline", "--no-verify", "--allow-dirty"]
    command += ["--target-dir", os.fspath(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / f"package/falaj-{VERSION}.crate") as archive:
        archive.extraction_filter = papers.DATA_FILTER
        archive.extractall(tmp_path)
    crate = tmp_path / f"falaj-{VERSION}"
    files = {p.relative_to(crate).as_posix() for p in crate.rglob("*") if p.is_file()}
    own = {
        path.removeprefix("rust/log/") for path in tracked_files() if path.startswith("rust/log/")
    }
    wanted = {path for path in own if path.startswith(("src/", "examples/"))}
    wanted |= {"README.md", "LICENSE-MIT", "LICENSE-APACHE"}
    assert wanted - files == set()
    made = {"Cargo.toml", "Cargo.toml.orig", "Cargo.lock", ".cargo_vcs_info.json"}
    assert files - wanted <= made
    command = ["cargo", "metadata", "--offline", "--locked", "--format-version=1"]
    done = subprocess.run(command, cwd=crate, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
