"""The programs in examples/ do what they claim, as real processes, and are short enough to read."""

import subprocess
import sys
from pathlib import Path

import falaj
from house import ROOT

EXAMPLES = ROOT / "examples"
LINES_MAX = 60
DEADLINE_S = 60


def run(*arguments: object) -> str:
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_examples_are_short_and_each_is_linked_and_run_here() -> None:
    programs = sorted(path.name for path in EXAMPLES.iterdir() if path.suffix == ".py")
    assert len(programs) >= 4
    pages = [ROOT / "README.md", *(ROOT / "docs/guide").glob("*.md")]
    linked = "".join(page.read_text() for page in pages)
    here = Path(__file__).read_text()
    for name in programs:
        assert len((EXAMPLES / name).read_text().splitlines()) <= LINES_MAX, name
        assert f"examples/{name})" in linked, name
        assert f'"{name}"' in here, name


def test_of_a_service_whose_worker_is_killed_every_line_is_there(tmp_path: Path) -> None:
    printed = run(EXAMPLES / "logging_service.py", tmp_path / "store")
    assert printed == "worker.0 251\nworker.1 500\nworker.2 500\nworker.3 500\n"


def test_the_follower_prints_what_another_process_appends(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with falaj.open(path) as store:
        topic = store.topic("orders", sync="none", sync_interval_ms=3_600_000)
        topic.append(b"old", sync="durable")
        command = [sys.executable, str(EXAMPLES / "follow.py"), str(path), "orders"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == "0 old\n"
            topic.extend([b"tea", b"cake"], sync="durable")
            assert [follower.stdout.readline() for _ in range(2)] == ["1 tea\n", "2 cake\n"]
            topic.delete()  # ends it
            follower.wait(DEADLINE_S)
    with falaj.open(path) as store:
        store.topic("orders").append(b"new", sync="durable")
    assert run(EXAMPLES / "follow.py", path, "orders", 0.1) == "0 new\n"


def test_workers_divide_the_records_and_the_next_goes_on_behind_them(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with falaj.open(path) as store:
        topic = store.partitioned_topic("orders", partitions=4)
        topic.extend([(b"%d" % n, b"%d" % n) for n in range(100)])
        printed = run(EXAMPLES / "worker.py", path, "orders", 0.1)
        assert sorted(int(line.split()[2]) for line in printed.splitlines()) == list(range(100))
        assert run(EXAMPLES / "worker.py", path, "orders", 0.1) == ""


def test_the_tests_with_the_fixture_pass(tmp_path: Path) -> None:
    # Without a folder of its own, pytest would first remove those of all earlier runs.
    options = ("-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'of the tests'}")
    printed = run("-m", "pytest", *options, EXAMPLES / "test_orders.py")
    assert "2 passed" in printed


def test_a_flight_recorder_holds_the_newest_within_its_room(tmp_path: Path) -> None:
    told = run(EXAMPLES / "flight_recorder.py", tmp_path / "store").splitlines()
    assert told == [
        "written 40000 records",
        "the oldest have expired: True",
        "within its limit: True",
        "without a gap: True",
    ]


def test_of_a_relay_that_is_killed_each_sale_comes_once(tmp_path: Path) -> None:
    printed = run(EXAMPLES / "outbox.py", tmp_path)
    assert printed == "relays ended with [-9, 0]\n300 sales, 300 different\n"


def test_of_workers_that_are_killed_each_number_is_added_once(tmp_path: Path) -> None:
    printed = run(EXAMPLES / "exactly_once.py", tmp_path)
    assert printed == "500 sums, the last is 124750 as expected\nsome workers died\n"


def test_jobs_of_a_worker_that_is_killed_are_done_by_the_others(tmp_path: Path) -> None:
    printed = run(EXAMPLES / "queue_workers.py", tmp_path / "store")
    assert printed == "1 worker killed, 200 of 200 jobs done\n200 acked, 0 in flight\n"
