"""`make test`, `test-proof` and `check` run some parts at a time, fail with any, and hide nothing.

`make` is a script here that plays the parts.
"""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parts import APART, BEHIND, FIGURES, LESS, SERVICES, SUITES, TIMED, Suite
from soak.harnesses import ROOT

MAKE = """#!/bin/sh
shift
echo "$1 begins"
case $1 in
proof-explore)  # ends only when another runs beside it
    until [ -e beside ]; do sleep 0.05; done  # sleep: for the other one
    echo 'explore: 2034567 different states in 200 s; and so on';;
proof-storm)
    touch beside
    echo '{"acknowledged":5000001,"complete":true,"kills":512,"points":{}}';;
proof-power) echo '*** NOT RUN: power cuts: only root may mount ***';;
proof-canaries)
    echo 'canary      | caught by | judged | seconds | noticed'
    echo 'none        | explorer  | 1 | 1 | nothing'
    echo 'no-crc      | explorer  | 1 | 1 | it did'
    echo 'mark-early  | explorer  | 1 | 1 | NOT GOOD: nothing'
    exit 1;;
test-rust) echo 'test result: ok. 1200 passed; 0 failed; 3 ignored; finished in 2.00s';;
proof-models)
    echo 'test result: FAILED. 20 passed; 2 failed; 0 ignored; finished in 2.00s'
    exit 1;;
test-python) echo '===== 1034 passed, 2 skipped in 61.02s (0:01:01) =====';;
proof-outside)
    echo '===== 34 passed, 1 error in 61.02s (0:01:01) ====='
    echo '===== 30 passed, 3 deselected in 1.02s ====='
    exit 2;;
esac
"""


def make(
    folder: Path, suite: str, *parts: str, script: str = MAKE
) -> "subprocess.CompletedProcess[str]":
    played = folder / "make"
    played.write_text(script.replace("beside", str(folder / "beside")))
    played.chmod(0o755)
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/parts.py"), suite, str(folder / "words"), *parts],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def proof(tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    parts = ["proof-explore", "proof-storm", "proof-power", "proof-canaries"]
    return make(tmp_path, "proof", *parts)


def test_one_part_that_fails_fails_the_proof_and_is_shown(
    proof: "subprocess.CompletedProcess[str]",
) -> None:
    assert proof.returncode == 1
    assert "proof-canaries begins\n" in proof.stdout
    assert "proof: proof-canaries FAILED" in proof.stdout


def test_the_table_says_what_ran_how_much_and_what_was_not_run(
    proof: "subprocess.CompletedProcess[str]",
) -> None:
    _, _, table = proof.stdout.rpartition("part ")
    rows = {line.split()[0]: " ".join(line.split()) for line in table.splitlines() if line}
    assert "2,034,567 different states" in rows["proof-explore"]
    assert rows["proof-explore"].endswith("nothing")
    assert "512 kills, 5,000,001 acknowledged records" in rows["proof-storm"]
    assert "2 planted bugs, 1 noticed" in rows["proof-canaries"]
    assert rows["proof-canaries"].endswith("FAILED (1)")
    assert "not run, see below" in rows["proof-power"]
    assert rows["proof-power:"] == ("proof-power: *** NOT RUN: power cuts: only root may mount ***")


def test_a_check_makes_every_part_of_all_suites_in_one_table_and_adds_up_their_tests(
    tmp_path: Path,
) -> None:
    check = make(tmp_path, "all")
    assert check.returncode == 1
    _, _, table = check.stdout.rpartition("part ")
    rows = {line.split()[0] for line in table.splitlines()[1:] if line}
    assert {*SUITES["test"].parts, *SUITES["lint"].parts, *SUITES["proof"].parts} - LESS <= rows
    assert set(FIGURES) - LESS - set(SERVICES) == rows & set(FIGURES)
    # A part that fails without a failed test: the canaries.
    assert (
        check.stdout.splitlines()[-1] == f"{1200 + 20 + 1034 + 34 + 30} passed, {2 + 1 + 1} failed"
    )


@pytest.mark.parametrize(("suite", "told"), [("all", 1), ("test", 0), ("proof", 0)])
def test_only_beside_the_proof_a_part_is_told_to_leave_out_what_that_does(
    suite: str, told: int, tmp_path: Path
) -> None:
    script = '#!/bin/sh\necho "test result: ok. ${BESIDE_PROOF:-0} passed; 0 failed"'
    part = "proof-models" if suite == "proof" else "test-rust"
    made = make(tmp_path, suite, part, script=script)
    assert made.stdout.splitlines()[-1] == f"{told} passed, 0 failed"


@pytest.mark.parametrize("beside", ["1", ""])
def test_what_is_left_out_of_tests_is_in_what_the_proof_runs(beside: str) -> None:
    words = subprocess.run(
        [
            *("make", "-n", "test-rust", "test-python", "proof-outside", "proof-together"),
            f"BESIDE_PROOF={beside}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    skips = re.findall(r"--skip (\S+)::", words)
    assert bool(skips) == (beside == "1")
    for room in skips:
        files = [path for path in ROOT.glob("rust/*/**/*.rs") if f"mod {room} " in path.read_text()]
        assert {path.relative_to(ROOT).parts[1] for path in files} == {"sim", "hostile"}
    outside = [line for line in words.splitlines() if "--proof" in line]
    ignored = set(re.findall(r"--ignore (\S+)", words)) - {
        "tests/spark",
        "tests/server",
        "tests/ship",
    }
    assert all(any(path in line.split() for line in outside) for path in ignored)
    assert bool(ignored) == (beside == "1")
    assert ("proof or spark" in words) == (beside == "1")


def test_what_passed_is_not_counted_as_failed(tmp_path: Path) -> None:
    green = make(tmp_path, "test", "test-rust", "test-python", "test-shuttle")
    assert green.returncode == 0
    assert green.stdout.splitlines()[-1] == "2234 passed, 0 failed"


@pytest.mark.parametrize("suite", SUITES)
def test_whatever_takes_how_long_each_part_comes_once_behind_what_it_needs_and_apart(
    suite: str,
) -> None:
    chosen = SUITES[suite]
    for seed in range(50):
        chance = random.Random(seed)
        waiting, working, done = list(chosen.parts), list[str](), list[str]()
        while waiting or working:
            while name := chosen.next(waiting, working):
                needed = set(BEHIND.get(name, ())) & set(chosen.parts)
                assert needed <= set(done), (seed, name)
                waiting.remove(name)
                working.append(name)
                assert all(len(group.intersection(working)) <= 1 for group in APART), (
                    seed,
                    working,
                )
            fillers = [name for name in working if name in chosen.patient]
            timed = [name for name in working if name in TIMED]
            in_lanes = len(working) - len(fillers) - len(timed)
            assert working, (seed, waiting)
            assert in_lanes <= chosen.lanes, (seed, working)
            assert len(timed) <= 1, (seed, working)
            assert len(fillers) <= 1 or not in_lanes, (seed, working)
            done.append(working.pop(chance.randrange(len(working))))
        assert sorted(done) == sorted(chosen.parts), seed


def test_of_those_that_end_when_their_time_is_over_one_goes_on_beside_the_lanes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("parts.TIMED", {"one", "other"})
    suite = Suite(("one", "other", "part", "next"), 1, ())
    assert suite.next(["one", "other", "part", "next"], []) == "one"
    assert suite.next(["other", "part", "next"], ["one"]) == "part"
    assert suite.next(["other", "next"], ["one", "part"]) is None
    assert suite.next(["other", "next"], ["part"]) == "other"


def test_what_only_fills_gaps_begins_when_it_can_though_all_lanes_are_taken() -> None:
    check = SUITES["all"]
    lanes = ["build", "test-rust", "proof-models"]
    waiting = [name for name in check.parts if name not in (*lanes, "venv", "proof-programs")]
    working = list(lanes)
    for filler in ("proof-hostile", "proof-explore"):
        assert check.next(waiting, working) == filler
        waiting.remove(filler)
        working.append(filler)
    assert check.next(waiting, working) is None
    order = ("proof-explore", "proof-hostile", "test-rust", "proof-outside")
    ways = [check.nice(name) for name in order]
    assert ways == sorted(set(ways), reverse=True)
    assert ways[-1] == 0
