"""`make` says what a machine lacks before anything fails half-way.

Each test gives tools/check-tools a PATH of its own, with only the programs that it needs.
"""

import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import mutants
import rooms
import wheels
from house import ROOT

NEEDED_BY_THE_CHECK_ITSELF = (
    "awk cut df dirname getconf head mktemp rm sed sh sort uname".split()  # noqa: SIM905
)
GIB = 1024 * 1024  # in KiB, the unit of df -k


class Machine:
    """A PATH with some programs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in NEEDED_BY_THE_CHECK_ITSELF:
            real = shutil.which(name)
            assert real, name
            (folder / name).symlink_to(real)

    def has(self, name: str, script: str) -> None:
        program = self.folder / name
        program.unlink(missing_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def has_everything(self) -> None:
        self.has("cargo", "echo cargo 1.99.0-nightly")
        self.has("cc", "exit 0")
        self.has("git", "exit 0")
        self.has("python", f'exec "{sys.executable}" "$@"')
        self.has_free(100 * GIB)

    def has_free(self, kib: int) -> None:
        self.has("df", f"echo Filesystem; echo /dev/a 1 1 {kib} 1% /")

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, env={"PATH": str(self.folder)}, capture_output=True, text=True
        )

    def lacks(self, *targets: str) -> list[str]:
        """Run the check; return its sentences."""
        done = self.run(str(ROOT / "tools/check-tools"), "python", *targets)
        sentences = done.stderr.splitlines()
        assert done.returncode == (1 if sentences else 0), done
        return sentences


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_that_has_everything_passes(machine: Machine) -> None:
    machine.has_everything()
    assert machine.lacks() == []


def test_everything_that_is_missing_is_reported_at_once(machine: Machine) -> None:
    machine.has_free(GIB // 2)
    sentences = machine.lacks()
    for what in ("Python 3.11", "no cargo", "no C compiler", "no git", "free and this takes"):
        assert sum(what in sentence for sentence in sentences) == 1, (what, sentences)
    assert len(sentences) == 5
    assert all(line.startswith("missing: ") and line.endswith(".") for line in sentences)


@pytest.mark.parametrize(
    ("name", "script", "expected"),
    [
        ("cargo", "echo cargo 1.84.1", "cargo is 1.84.1 and falaj needs 1.85 or newer"),
        ("cargo", "echo cargo 1.9.0", "cargo is 1.9.0 and falaj needs 1.85 or newer"),
        ("cargo", '[ "$1" = --version ] && echo cargo 1.85.0', "cargo has no 'clippy'"),
        ("cc", "exit 1", "no C compiler that links"),
        ("python", "exit 127", "no working Python 3.11 or newer (python is none)"),
        ("python", 'case "$2" in *venv*) exit 1;; esac', "python has no venv module"),
        ("uname", "echo Darwin", "falaj runs on 64-bit Linux and this is Darwin"),
    ],
)
def test_a_program_that_does_not_do_is_as_good_as_missing(
    machine: Machine, name: str, script: str, expected: str
) -> None:
    machine.has_everything()
    machine.has(name, script)
    assert expected in machine.lacks()[0]


def test_what_only_tests_and_lints_use_is_asked_for_where_they_are_made(machine: Machine) -> None:
    machine.has_everything()
    machine.has("cargo", '[ "$1" = --version ] && echo cargo 1.99.0')
    (machine.folder / "git").unlink()
    assert machine.lacks("demo") == machine.lacks("build", "wheel") == []
    for target in ("check", "check-tools", "test", "test-rust", "lint", "format"):
        lacks = "\n".join(machine.lacks("build", target))
        assert all(what in lacks for what in ("'clippy'", "'fmt'", "no git")), target


def test_the_static_server_needs_the_library_of_its_target(
    machine: Machine, tmp_path: Path
) -> None:
    machine.has_everything()
    machine.has("rustc", f"echo {tmp_path}/rust")
    machine.has("uname", '[ "$1" = -m ] && echo riscv64 || echo Linux')
    (sentence,) = machine.lacks("build-server-static")
    assert "rustup target add riscv64-unknown-linux-musl" in sentence
    assert machine.lacks("check-image") == [sentence]
    assert machine.lacks("build-server") == []
    (tmp_path / "rust/lib/rustlib/riscv64-unknown-linux-musl/lib").mkdir(parents=True)
    assert machine.lacks("check-image") == []


def test_more_room_is_asked_for_where_more_is_made(machine: Machine) -> None:
    machine.has_everything()
    # For a clone that has a .venv already; a fresh one takes 2 GiB more.
    for gib, targets in ((1, ["build"]), (1, ["demo"]), (3, ["test"]), (5, ["build", "check"])):
        there = 0 if (ROOT / ".venv").is_dir() else 2
        machine.has_free((gib + there) * GIB)
        assert machine.lacks(*targets) == []
        machine.has_free((gib + there) * GIB - 1)
        (sentence,) = machine.lacks(*targets)
        assert f"takes {gib + there} GiB" in sentence


def test_the_python_that_is_found_is_one_that_runs(machine: Machine) -> None:
    find = str(ROOT / "tools/find-python")
    assert machine.run(find).stdout == ""
    machine.has("python3.13", "echo a shim without its interpreter >&2; exit 127")
    machine.has("python3", f'exec "{sys.executable}" "$@"')
    assert machine.run(find).stdout == "python3\n"


def listed(text: str, *places: int) -> list[dict[str, Any]]:
    """Mutants of `<` that cargo-mutants would list in a file of one function, by line."""
    end = len(text.splitlines())
    start = next(i for i, line in enumerate(text.splitlines(), 1) if line.startswith("fn"))
    span = {"start": {"line": start, "column": 1}, "end": {"line": end, "column": 2}}
    found: list[dict[str, Any]] = []
    for line in places:
        name = f"a.rs:{line}:9: replace < with > in f"
        found.append({"file": "a.rs", "name": name, "function": {"span": span}, "span": span})
    return found


def test_a_mutant_is_known_again_wherever_its_function_stands_and_no_longer_when_that_changed(
    tmp_path: Path,
) -> None:
    text = "fn f() {\n    a < b;\n    b < c;\n}\n"
    moved = "use x;\n\nfn f() {\n    // why\n    a\n  < b;\n    b < c;\n}\n"
    changed = text.replace("c;", "d;")
    before = mutants.named(listed(text, 2, 3), lambda _: text)
    then = mutants.named(listed(moved, 6, 7), lambda _: moved)
    other = mutants.named(listed(changed, 2, 3), lambda _: changed)
    assert [m.key for m in then] == [m.key for m in before]
    assert len({m.key for m in [*before, *other]}) == 4
    assert [m.lot for m in other] == [m.lot for m in then] == [m.lot for m in before]

    state, ledger = tmp_path / "state", tmp_path / "ledger/room.txt"
    mutants.Verdicts(state, ledger).begin(before)
    (state / "mutants.out").mkdir()
    (state / "mutants.out/caught.txt").write_text(f"{before[0].name}\n")
    # As a run after an interruption, when the code has changed.
    verdicts = mutants.Verdicts(state, ledger)
    assert verdicts.to_try(then, too_long=False) == then[1:]
    assert verdicts.to_try(other, too_long=False) == other

    # As a run in another clone: it has only the ledger.
    verdicts = mutants.Verdicts(tmp_path / "another", ledger)
    assert verdicts.to_try(then, too_long=False) == then[1:]
    verdicts.forget_all_but(other)
    assert mutants.Verdicts(tmp_path / "another", ledger).to_try(then, too_long=False) == then
    assert ledger.read_text().splitlines()[-1].startswith("#")


def test_a_mutant_that_took_too_long_is_tried_again_when_that_is_asked(tmp_path: Path) -> None:
    found = mutants.named(listed("fn f() {\n    a < b;\n    b < c;\n}\n", 2, 3), lambda _: "fn f")
    verdicts = mutants.Verdicts(tmp_path / "state", tmp_path / "room.txt")
    verdicts.begin(found)
    for kind, mutant in zip(("timeout", "missed"), found, strict=True):
        (tmp_path / "state/mutants.out").mkdir(exist_ok=True)
        (tmp_path / f"state/mutants.out/{kind}.txt").write_text(f"{mutant.name}\n")
    verdicts.collect(last_round=True)
    assert [verdicts.of(mutant) for mutant in found] == ["timeout", "missed"]
    assert verdicts.to_try(found, too_long=False) == found[1:]
    assert verdicts.to_try(found, too_long=True) == found


def test_mutants_that_were_interrupted_keep_what_they_know_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = mutants.named(listed("fn f() {\n    a < b;\n    b < c;\n}\n", 2, 3), lambda _: "fn f")
    out = tmp_path / "state/lock/mutants.out"

    def interrupted(*_: object, **__: object) -> None:
        out.mkdir()
        (out / "caught.txt").write_text(f"{found[0].name}\n")
        raise KeyboardInterrupt

    monkeypatch.setattr(
        sys, "argv", ["mutants.py", "--room", "lock", "--state", f"{tmp_path}/state"]
    )
    monkeypatch.setattr(mutants, "install", lambda _: None)
    monkeypatch.setattr(mutants, "all_of", lambda _: found)
    monkeypatch.setattr(mutants, "read", lambda _: "fn f() {\n    a < b;\n    b < c;\n}\n")
    monkeypatch.setattr(mutants, "LEDGER", tmp_path / "ledger")
    monkeypatch.setattr(subprocess, "run", interrupted)
    assert mutants.main() == 130
    assert capsys.readouterr().err == "lock: interrupted; the same command resumes here\n"
    verdicts = (tmp_path / "ledger/lock.txt").read_text().splitlines()
    assert [line for line in verdicts if not line.startswith("#")] == [f"{found[0].mark} caught"]


def test_a_run_is_limited_to_the_lines_of_the_mutants_that_it_tries(tmp_path: Path) -> None:
    text = "fn f() {\n    a < b;\n    c();\n    b < c;\n}\n"
    found = mutants.named(listed(text, 2, 4), lambda _: text)
    path = tmp_path / found[0].path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("    a < b;\n", "").replace("    b < c;\n", ""))
    diff = mutants.diff_of(found, lambda _: text)
    subprocess.run(
        ["git", "apply", "--unidiff-zero"], cwd=tmp_path, input=diff, text=True, check=True
    )
    assert path.read_text() == text


def test_a_sample_of_mutants_is_the_same_for_a_seed_and_of_so_many() -> None:
    text = "fn f() {\n" + "    a < b;\n" * 40 + "}\n"
    found = mutants.named(listed(text, *range(2, 42)), lambda _: text)
    of_rooms = {"one": found[:25], "two": found[25:]}
    drawn = mutants.sample(of_rooms, 12, 22)
    assert sum(map(len, drawn.values())) == 12
    assert mutants.sample(of_rooms, 12, 22) == drawn
    assert mutants.sample(of_rooms, 12, 23) != drawn
    assert mutants.sample(of_rooms, 1000, 22) == of_rooms
    assert mutants.sample(of_rooms, 0, 22) == {"one": [], "two": []}

    # If a function changes, the draw elsewhere stays the same.
    changed = mutants.named(listed(text, *range(2, 42)), lambda _: text.replace("a <", "b <"))
    again = mutants.sample({"one": changed[:25], "two": changed[25:]}, 12, 22)
    assert [m.name for m in again["one"]] == [m.name for m in drawn["one"]]


@pytest.mark.parametrize("room", [*rooms.ROOMS, *rooms.SAMPLED])
def test_what_a_changed_room_is_tried_with_are_tests_that_there_are(room: str) -> None:
    tried = {**rooms.ROOMS, **rooms.SAMPLED}[room]
    assert tried.paths()
    for tests in tried.rounds:
        targets, _, only = tests.partition(":")
        words = only.split()
        # A test that is skipped is named by a part of its path.
        modules = [
            w for before, w in zip(["", *words], words, strict=False) if "--skip" not in {before, w}
        ]
        for target, module in product(targets.split(), modules):
            below = ROOT / "rust/log" / ("src" if target == "lib" else f"tests/{target}")
            path = below / module.replace("::", "/").rstrip("/")
            files = [path.with_suffix(".rs"), *path.rglob("*.rs")]
            # The tests of a file may be beside it.
            files.append(path.with_name(f"{path.name}_tests.rs"))
            assert any(f.exists() and "#[test]" in f.read_text() for f in files), (tests, module)


def test_an_extra_that_names_another_brings_what_that_one_asks_for() -> None:
    requirements = runpy.run_path(os.fspath(ROOT / "tools/extras.py"))["requirements"]
    extras = {"cli": ["rich>=13"], "dev": ["falaj[cli]", "ruff", "rich>=13"]}
    assert requirements(extras, ["dev"]) == ["rich>=13", "ruff"]


def test_a_path_of_the_building_machine_is_found_in_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("falaj/_core.abi3.so", b"\x7fELF\0/home/ann/.cargo/registry/x.rs\0")
        files.writestr("falaj/__init__.py", "import os\n")
    inside = [("falaj/_core.abi3.so", "/home/ann/.cargo")]
    assert wheels.paths_inside(wheel, ["/home/bob", "/home/ann/.cargo"]) == inside


@pytest.mark.parametrize(
    ("needs", "more"),
    [
        ("manylinux_2_17_x86_64", False),
        ("manylinux_2_28_x86_64", False),
        ("manylinux_2_34_x86_64", True),
        ("manylinux_3_1_x86_64", True),
        ("manylinux_2_17_aarch64", True),
        ("musllinux_1_2_x86_64", True),
        ("linux_x86_64", True),
    ],
)
def test_a_wheel_that_needs_more_than_its_name_says_is_refused(needs: str, more: bool) -> None:
    assert wheels.needs_more(needs, "manylinux_2_28_x86_64") is more


def test_a_wheel_for_glibc_that_brings_its_own_unwinder_is_refused(tmp_path: Path) -> None:
    def wheel(policy: str, needed: bytes) -> Path:
        made = tmp_path / f"falaj-{policy}_x86_64.whl"
        with zipfile.ZipFile(made, "w") as files:
            files.writestr("falaj/_core.abi3.so", b"\x7fELF\0" + needed + b"\0libc.so.6\0")
        return made

    assert wheels.unwinds_by_itself(wheel("manylinux_2_28", b"libm.so.6"))
    assert not wheels.unwinds_by_itself(wheel("manylinux_2_28", b"libgcc_s.so.1"))
    assert not wheels.unwinds_by_itself(wheel("musllinux_1_2", b"libm.so.6"))
