"""A soak survives its own interruptions, reports its findings, and writes one row.

The harnesses here (`small.py`) only count; the driver, the keeper and the files are the real ones.
"""

import datetime
import fcntl
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from soak import counts, harnesses, ledger, sketch, sources
from soak.__main__ import PAGE, SKETCH, enter, programs_in, which
from soak.harnesses import ROOT, VARIANTS, Turn, everything
from soak.keeper import descendants, die_with_parent
from soak.state import Job, State

SMALL = Path(__file__).with_name("small.py")
SECOND = 1 / 3600
PATIENCE_S = 30.0


def start(home: Path, seconds: float, *behaviours: str) -> "subprocess.Popen[str]":
    """Start a driver, which does not outlive this test either."""
    return subprocess.Popen(
        [sys.executable, str(SMALL), str(home), str(seconds * SECOND), *behaviours],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )


def run(home: Path, seconds: float, *behaviours: str) -> tuple[int, str]:
    process = start(home, seconds, *behaviours)
    said, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


def wait_until(what: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)  # sleep: for another process


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def state_of(home: Path) -> Any:
    return json.loads((home / "state.json").read_text())


def wait_for_its_processes(home: Path) -> None:
    with (home / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_soak_goes_on_where_it_was_and_what_it_ran_ends_with_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    driver = start(tmp_path, 600, "counts", "leaves")
    wait_until(
        lambda: (tmp_path / "state.json").exists() and any((tmp_path / "counts").glob("*.json"))
    )
    wait_until(lambda: len(descendants(driver.pid)) >= 5)
    below = descendants(driver.pid)
    driver.send_signal(number)
    driver.communicate(timeout=PATIENCE_S)
    wait_for_its_processes(tmp_path)
    # The lock is free a moment before its last holder has ended.
    wait_until(lambda: not any(map(alive, below)))

    before = state_of(tmp_path)
    assert 0 < before["left"] < 600
    counted = json.loads(next((tmp_path / "counts").glob("*.json")).read_text())
    assert counted["asked to end"]
    (tmp_path / "state.json").write_text(json.dumps({**before, "left": 1.0}))
    code, said = run(tmp_path, 600, "counts", "leaves")
    after = json.loads(said.splitlines()[-1])
    assert code == 0
    assert after["left"] == 0
    assert after["done"]["counts"] > counted["counted"] > 0
    assert state_of(tmp_path)["seconds"] > before["seconds"]
    assert state_of(tmp_path)["seed"] == before["seed"]
    assert not (tmp_path / "scratch").exists()


def test_a_finding_is_told_and_kept_and_the_others_go_on(tmp_path: Path) -> None:
    code, said = run(tmp_path, 6, "finds", "counts")
    assert code == 1
    assert "FOUND by finds: it ended with 1" in said
    assert "what was acknowledged is gone" in said
    assert "finds gets no more time: 3 findings are enough" in said
    kept = [Path(where) for where in state_of(tmp_path)["found"]]
    assert len(kept) == 3
    for where in kept:
        assert "--harness finds" in (where / "README.txt").read_text()
        assert "round 7" in (where / "said.txt").read_text()
        assert (where / "scratch/store").stat().st_size == 100
    assert state_of(tmp_path)["jobs"]["counts"]["pieces"] >= 2
    # After each finding it continues with another seed.
    assert len(list((tmp_path / "finds").glob("*.json"))) == 3


@pytest.mark.parametrize(
    ("behaviour", "what"),
    [
        ("explores", "group 4 is gone (at mapped/sync/9/all)"),
        ("flips", "case 12: another value"),
    ],
)
def test_what_was_found_by_who_is_interrupted_is_told_and_kept_once(
    tmp_path: Path, behaviour: str, what: str
) -> None:
    driver = start(tmp_path, 600, behaviour)
    wait_until(lambda: any((tmp_path / behaviour).glob("*.json")))
    driver.send_signal(signal.SIGINT)
    said, _ = driver.communicate(timeout=PATIENCE_S)
    assert f"FOUND by {behaviour}: {what}" in said
    (where,) = map(Path, state_of(tmp_path)["found"])
    assert what in (where / "README.txt").read_text()
    (kept,) = where.glob("*.json")
    assert what.split(" (")[0] in kept.read_text()
    # Others have found nothing, and do not repeat findings in the files.
    after = [json.loads(path.read_text()) for path in (tmp_path / behaviour).glob("*.json")]
    assert [k.get("violations", k.get("findings")) for k in after] == [[]]
    assert state_of(tmp_path)["jobs"][behaviour]["turn"] == 1


def test_what_this_machine_cannot_do_is_told_and_tried_once_in_each_call(tmp_path: Path) -> None:
    code, said = run(tmp_path, 1, "cannot", "counts")
    assert code == 0
    assert "cannot: NOT RUN: NOT RUN: for want of a disk" in said
    assert state_of(tmp_path)["jobs"]["cannot"]["pieces"] == 1
    run(tmp_path, 1, "cannot")
    assert state_of(tmp_path)["jobs"]["cannot"]["pieces"] == 2


def test_a_code_that_other_programs_end_with_too_hides_no_finding(tmp_path: Path) -> None:
    code, said = run(tmp_path, 3, "dies")
    assert code == 1
    assert "FOUND by dies: it ended with 77" in said
    assert "libFuzzer: deadly signal" in said


def test_of_jobs_that_follow_each_other_one_ends_before_the_next_begins(tmp_path: Path) -> None:
    code, _ = run(tmp_path, 3, "ends>ends-too", "counts")
    jobs = state_of(tmp_path)["jobs"]
    assert code == 0
    assert [jobs[name]["ended"] for name in ("ends", "ends-too")] == ["done", "done"]
    assert [jobs[name]["pieces"] for name in ("ends", "ends-too")] == [1, 1]
    assert jobs["counts"]["pieces"] >= 1
    logs = sorted((tmp_path / "ends").glob("*.log"), key=lambda log: log.stat().st_mtime_ns)
    assert [log.name.rpartition("-0-")[0] for log in logs[:2]] == ["ends", "ends-too"]


def test_who_forgets_between_its_pieces_gets_longer_ones_and_no_more_time(tmp_path: Path) -> None:
    code, _ = run(tmp_path, 6, "forgets", "counts")
    jobs = state_of(tmp_path)["jobs"]
    assert code == 0
    assert 2 * jobs["forgets"]["pieces"] < jobs["counts"]["pieces"]
    # Both have a lane of their own.
    assert math.isclose(jobs["forgets"]["seconds"], jobs["counts"]["seconds"], rel_tol=0.4)


def test_a_soak_does_not_begin_without_room(tmp_path: Path) -> None:
    source = SMALL.read_text().replace("scratch_bytes_min=0", "scratch_bytes_min=1 << 60")
    program = tmp_path / "greedy.py"
    program.write_text(source)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "home"), "1", "counts"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "GiB, a soak needs" in done.stdout
    assert not list((tmp_path / "home/counts").iterdir())


def a_state() -> State:
    jobs = {"kill": Job(found=1), "power": Job(ended="NOT RUN: only root may mount")}
    return State(77, "0.1.0, abc", "abc", seconds=3 * 3600 + 125, jobs=jobs)


def test_a_soak_has_one_row_which_grows_and_the_newest_stands_on_top() -> None:
    page = (ROOT / "docs/RELIABILITY.md").read_text()
    today = datetime.date(2026, 11, 22)
    done = Counter({"states": 1234567, "flips": 9, "whole variants": 1, "faults": 1})
    done.update({"faults in all": 2, "schedules": 7, "together": 8, "cuts in guests": 35})
    done.update({"faulty replies": 9})
    one = ledger.row(a_state(), done, today)
    assert one == (
        "| 2026-11-22 | 0.1.0, abc | 3 h 2 min | 1,234,567 | 0, 0 at points | 0 "
        "| 0 (not run); 35 in guests | 9; 1 of 4 variants whole | 1 of 2 | 0; with ASan 0 "
        "| 7; 8 rounds of sharing "
        "| 0 tests; 0 lists of moves | 0 kills, 0 at points, 0 numbers; 9 faulty replies "
        "| 77 | 1 by kill |"
    )
    assert len(one.split(" | ")) == len(ledger.HEADS)
    entered = ledger.enter(page, one, 5)
    lines = entered.splitlines()
    top = lines.index(ledger.HEAD)
    assert lines[top + 1 : top + 3] == [ledger.RULE, one]
    assert apart_from_sums([line for line in lines if line != one]) == apart_from_sums(
        page.splitlines()
    )

    other = ledger.row(State(78, "0.2.0, def", "def"), Counter(), today)
    grown = ledger.row(a_state(), Counter(states=7654321), today)
    entered = ledger.enter(ledger.enter(entered, other, 5), grown, 5)
    lines = entered.splitlines()
    assert lines[top + 2 : top + 4] == [other, grown]
    assert one not in lines


def apart_from_sums(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith(f"| {ledger.ALL} |")]


def test_below_the_soaks_stands_what_all_of_them_did() -> None:
    today = datetime.date(2026, 11, 22)
    page = f"{ledger.HEAD}\n{ledger.RULE}\n\nMore.\n"
    done = {"states": 1_234_567, "kills": 1_000, "records": 5, "cuts": 10, "cuts ext4": 9}
    done |= {"flips": 900, "whole variants": 1, "faults": 7, "faults in all": 7, "fuzzed": 40}
    done |= {"kills in shipping": 1_100, "their points": 500, "numbers": 3, "faulty replies": 7}
    # The first has not run power cuts; it is entered twice, and counts once.
    for state, did in ((a_state(), {}), (a_state(), done), (State(78, "0.2.0", "x", 3480), done)):
        page = ledger.enter(page, ledger.row(state, Counter(did), today), 1_600_000)
    assert page.splitlines()[4:] == [
        "| all of them |  | 4 h 0 min | 1,600,000 different of 2,469,134 | 2,000 | 10 | 10 "
        "| 1,800; 2 times a whole variant | at most 7 in one | 80 |  |  "
        "| 2,200 kills, 1,000 at points, 6 numbers, 14 faulty replies |  |  |",
        "",
        "More.",
    ]


def sketches_of(hashes: int) -> list[bytes]:
    """The states that two soaks saw of so many: a third by both, of the rest each a half."""
    draw = random.Random(3)
    halves = [bytearray(65536), bytearray(65536)]
    for n in range(hashes):
        hashed = draw.getrandbits(64)
        rest = (hashed << 16) & (2**64 - 1) | 1 << 15
        rank = 64 - rest.bit_length() + 1
        for half in halves if n % 3 == 0 else [halves[n % 2]]:
            half[hashed >> 48] = max(half[hashed >> 48], rank)
    return [bytes(half) for half in halves]


def test_sketches_count_what_they_saw_together_once() -> None:
    halves = sketches_of(300_000)
    assert [sketch.count(half) for half in halves] == [pytest.approx(200_000, rel=0.02)] * 2
    assert sketch.count(sketch.union(halves)) == pytest.approx(300_000, rel=0.02)
    assert sketch.union([]) == b""
    assert sketch.count(b"") == 0


def empty_ledger(root: Path) -> Path:
    """Make a tree with a ledger without rows and a place for the sketch; return the ledger."""
    page = root / PAGE
    page.parent.mkdir()
    (root / SKETCH).parent.mkdir(parents=True)
    page.write_text(f"{ledger.HEAD}\n{ledger.RULE}\n")
    return page


def test_of_all_soaks_each_state_counts_once(tmp_path: Path) -> None:
    page, home = empty_ledger(tmp_path), tmp_path / "home"
    (home / "explore").mkdir(parents=True)
    counted: list[Any] = []
    # The second soak sees the states of the first too; the third is the second, resumed.
    for seed, half in zip((1, 2, 2), [*sketches_of(30_000), sketches_of(30_000)[0]], strict=True):
        kept = {"sketch": half.hex(), "counts": {"first": 1, "second": 0, "deaths": 0}}
        (home / "explore/explore-0-1.json").write_text(json.dumps(kept))
        state = State(seed, "0.1.0", "abc", seconds=60.0)
        enter(state, counts.done_in(home), home, tmp_path)
        *rows, total = page.read_text().splitlines()[2:]
        counted.append((len(rows), ledger.figure(ledger.cells_of(total)["states"], 0)))
    assert counted[0] == (1, pytest.approx(20_000, rel=0.02))
    assert counted[1] == (2, pytest.approx(30_000, rel=0.02))
    assert counted[2] == counted[1]


def test_a_file_of_sketches_that_was_harmed_is_told_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "states.txt"
    sketch.take_in(path, sketches_of(100))
    for harmed in (path.read_text()[:-20], "", "<<<<<<<\n" + path.read_text()):
        path.write_text(harmed)
        with pytest.raises(
            ValueError, match=r"states\.txt holds no sketch .*restore an older version"
        ):
            sketch.take_in(path, sketches_of(100))


def test_the_ledger_counts_what_the_file_of_sketches_tells() -> None:
    page = (ROOT / "docs/RELIABILITY.md").read_text()
    total = next(line for line in page.splitlines() if line.startswith(f"| {ledger.ALL} |"))
    told = ledger.figure(ledger.cells_of(total)["states"], 0)
    assert told == sketch.count(sketch.read(ROOT / SKETCH))


def test_what_the_harnesses_keep_is_what_is_counted(tmp_path: Path) -> None:
    batch = re.search(
        r"pub const BATCH: u64 = (\d+)", (ROOT / "rust/hostile/src/bytes/decoders.rs").read_text()
    )
    assert batch is not None
    assert int(batch[1]) == counts.BATCH
    assert "|".join(VARIANTS) in (ROOT / "rust/hostile/src/main.rs").read_text()
    (tmp_path / "a.log").write_bytes(b"#5\tINITED\n#90\tNEW\n#123\tDONE\n3 passed in 1 s\n")
    (tmp_path / "b.log").write_bytes(b"#7\tpulse\n")
    runs = b"test long::a ... 5 schedules, S=1\nok\ntest long::b ... 6 schedules, S=1\nok\n"
    broken = b"test long::broken_c - should panic ... 7 schedules, S=1\nok\n"
    (tmp_path / "c.log").write_bytes(runs + broken + b"test result: ok. 3\n")
    (tmp_path / "d.log").write_bytes(runs + b"killed\n")
    assert counts.schedules(tmp_path)["schedules"] == 11
    (tmp_path / "e.log").write_bytes(b"share: 5 rounds of a shared queue\nshare: 4 rounds of\n")
    assert counts.together(tmp_path)["together"] == 9
    assert counts.sanitized(tmp_path)["sanitized"] == 130
    assert counts.outside(tmp_path)["outside"] == 3
    (tmp_path / "g.log").write_bytes(b"combined: 20 lists of moves\ncombined: 40 lists of moves\n")
    assert counts.combined(tmp_path)["combined"] == 40
    (tmp_path / "f.log").write_bytes(b'a round\n\n{"acknowledged":77,"cuts":35,"cuts_ext4":6}\n')
    assert counts.guest(tmp_path)["cuts in guests"] == 35
    (tmp_path / "a.json").write_text('{"cases": 9, "next": 9, "to": 9}')
    (tmp_path / "b.json").write_text('{"cases": 4, "next": 4, "to": 9}')
    assert counts.flips(tmp_path) == Counter({"flips": 13, "whole variants": 1})
    assert counts.sanitized(tmp_path)["sanitized"] == 143
    ship = tmp_path / "ship"
    ship.mkdir()
    (ship / "a.json").write_text('{"rounds": 2, "kills": 7, "kills_at_points": 4, "numbers": 5}')
    (ship / "b.json").write_text('{"worlds": 2, "kills": 70, "faults": 800, "restored": 6}')
    told = {"kills in shipping": 7, "their points": 4, "numbers": 11, "faulty replies": 800}
    assert counts.ship(ship) == Counter(told)
    decoders = (ROOT / "rust/hostile/src/bytes/decoders.rs").read_text()
    assert decoders.count("    Target { name:") + 2 == harnesses.TARGETS_OF_BYTES


def test_every_job_has_a_command_with_a_seed_of_its_own(tmp_path: Path) -> None:
    sources.copy(ROOT, tmp_path)
    jobs = everything(tmp_path).jobs
    turn = Turn(4321, 3, 60.0, tmp_path / "kept", tmp_path)
    for job in jobs:
        command = " ".join(job.command(turn))
        assert not job.seeded or "432" in command, command
        assert str(tmp_path) in command
        assert str(ROOT) not in command.replace(sys.executable, ""), "insulated from builds"
    assert [job.name for job in jobs if job.missing] == ["sanitized", "asan-stores", "schedules"]


def test_the_time_of_a_soak_can_be_given_to_some_harnesses_and_all_still_count(
    tmp_path: Path,
) -> None:
    all_of_them = everything(tmp_path)
    some = all_of_them.only(["explore", "flips"])
    assert {job.kind for job in some.jobs} == {"explore", "flips"}
    assert [job.name for job in some.jobs if job.kind == "flips"] == [
        f"flips-{variant}" for variant in VARIANTS
    ]
    assert (some.readers, some.targets) == (all_of_them.readers, all_of_them.targets)
    assert all_of_them.only(None) is all_of_them


def test_the_fuzzers_corpus_begins_anew_when_it_is_large_and_only_between_its_pieces(
    tmp_path: Path,
) -> None:
    sources.copy(ROOT, tmp_path)
    jobs = {job.name: job for job in everything(tmp_path).jobs}
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for bytes_in_it, other, left in (
        (1 << 20, "sanitized", 1),
        (300 << 20, "asan-stores", 1),
        (0, "sanitized", 0),
    ):
        if bytes_in_it:
            with (corpus / "case").open("wb") as file:
                file.truncate(bytes_in_it)
        jobs[other].command(Turn(1, 0, 60.0, tmp_path / "kept", tmp_path))
        assert len(list(corpus.iterdir())) == left, other


def test_a_soak_is_over_when_something_that_it_runs_changes_and_not_before(tmp_path: Path) -> None:
    for name in ("rust/log/src/a.rs", "rust/log/tests/b.rs", "python/falaj/c.py", "Cargo.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    before = sources.mark(tmp_path)

    def changed(name: str) -> bool:
        nonlocal before
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"something else in {name}")
        was, before = before, sources.mark(tmp_path)
        return was != before

    runs = ["rust/log/src/a.rs", "rust/storm/src/new.rs", "rust/log/fuzz/fuzz_targets/f.rs"]
    runs += ["python/falaj/c.py", "python/falaj/cli/new.py", "tests/proof/test_new.py"]
    runs += ["tests/storm_worker.py", "rust/log/tests/shuttle/main.rs", "Cargo.lock"]
    assert [name for name in runs if not changed(name)] == []
    others = ["rust/log/tests/b.rs", "rust/log/src/log_tests.rs", "python/falaj/spark/new.py"]
    others += ["tests/spark/new.py", "docs/PAGE.md", "benches/core/src/new.rs", "Makefile"]
    others += ["python/falaj/__pycache__/c.py", "tools/soak/driver.py", "README.md"]
    assert [name for name in others if changed(name)] == []


def test_another_soak_begins_aloud(tmp_path: Path) -> None:
    said: list[str] = []
    first = which(tmp_path, False, None, said.append)
    first.left = 90.0
    first.save(tmp_path / "state.json")
    (tmp_path / "explore").mkdir()
    assert which(tmp_path, False, None, said.append) == first
    assert said == []
    (tmp_path / "state.json").write_text(json.dumps({**asdict(first), "source": "others"}))
    assert which(tmp_path, False, None, said.append).seed != first.seed
    assert re.search(
        r"sources changed: another soak .* is over, 0:01:30 of it were left", " ".join(said)
    )
    assert not (tmp_path / "explore").exists()


def test_what_a_soak_did_that_was_killed_is_entered_before_it_is_forgotten(
    tmp_path: Path,
) -> None:
    page, home = empty_ledger(tmp_path), tmp_path / "home"
    (home / "kill").mkdir(parents=True)
    (home / "kill/kill-1.json").write_text(
        '{"kills": 12, "acknowledged": 3456, "kills_at_points": 7}'
    )
    killed = State(77, "0.1.0, abc", "others", seconds=120.0)
    killed.save(home / "state.json")
    said: list[str] = []
    assert which(home, False, None, said.append, tmp_path).seed != 77
    row = ledger.cells_of(page.read_text().splitlines()[2])
    assert (row["seed"], row["records"], row["time"]) == ("77", "3,456", "0 h 2 min")
    assert "3,456" in " ".join(said)

    # A row that is there is not entered again: people have written into it.
    page.write_text(page.read_text().replace("nothing", "nothing, says who looked"))
    known = State(77, "0.1.0, abc", "others", seconds=120.0, entered=120.0)
    known.save(home / "state.json")
    which(home, False, None, said.append, tmp_path)
    assert "says who looked" in page.read_text()


def test_what_was_built_takes_the_place_of_what_a_soak_ran(tmp_path: Path) -> None:
    for name in ("built/falaj-sim", "programs/falaj-sim", "programs/old"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    programs = programs_in(tmp_path)
    assert (programs / "falaj-sim").read_text() == "built/falaj-sim"
    assert not (programs / "old").exists()
    inside = "import falaj, falaj._core as core; print(falaj.__file__, core.__file__)"
    done = subprocess.run(
        [*harnesses._with(programs), sys.executable, "-c", inside], capture_output=True, text=True
    )
    found = done.stdout.split()
    assert [Path(path).parent for path in found] == [programs / "python/falaj"] * 2
