"""`falaj queue`: jobs listed, put, taken and redriven; queues created and reset."""

import json
import subprocess
from pathlib import Path

import pytest

import falaj as library
from cli.shell import PROGRAM, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    with library.open(tmp_path / "s") as store:
        queue = store.queue("work", topic="jobs", max_attempts=1)
        queue.topic.extend([b"%d" % i for i in range(9)])
        queue.take()[0].nack()
        queue.take(2).ack()
        store.queue("work", topic="jobs").take()[0].nack(delay=3600)
    return Shell(tmp_path)


def test_queues_are_listed_with_their_jobs_in_each_state(shell: Shell) -> None:
    assert shell.ok("queue", "list", "-s", "s") == "work\tjobs\t5\t1\t0\t3\t1\t0\t\n"
    told = json.loads(shell.ok("queue", "list", "-s", "s", "--json"))
    assert told == {
        "queue": "work", "topic": "jobs", "ready": 5, "delayed": 1, "in_flight": 0, "done": 3,
        "dead": 1, "trimmed": 0, "holders": {}, "order": None,
    }  # fmt: skip
    assert shell.ok("cat", "-s", "s", "jobs.dead").strip() == "0"


def test_a_queue_is_forgotten_only_by_who_means_it(shell: Shell) -> None:
    refused = shell("queue", "reset", "-s", "s", "work")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert shell("queue", "reset", "-s", "s", "other", "--yes").code == 2
    shell.ok("queue", "reset", "-s", "s", "work", "--yes")
    assert shell.ok("queue", "list", "-s", "s") == ""


def test_damage_to_one_queue_does_not_hide_the_others(shell: Shell) -> None:
    state = shell.folder / "s/queues/work"
    broken = bytearray(state.read_bytes())
    broken[20] ^= 1
    (shell.folder / "s/queues/broken").write_bytes(broken)
    ended = shell("queue", "list", "-s", "s")
    assert (ended.code, ended.out.startswith("work\tjobs")) == (1, True)
    assert "broken" in ended.err


def test_queues_are_listed_by_who_may_only_read_with_who_has_what_and_stand_in_info(
    shell: Shell,
) -> None:
    with library.open(shell.folder / "s") as store:
        jobs = store.queue("work", topic="jobs").take(2)
        row = shell.ok("queue", "list", "-s", "s")
        assert row.startswith("work\tjobs\t3\t1\t2\t3\t1\t0\tprocess ")
        assert row.endswith("): 2\n")
        assert "queue\t" + row in shell.ok("info", "-s", "s")
        assert "queue\t" not in shell.ok("topic", "describe", "-s", "s", "jobs.dead")
        jobs.ack()
    for path in (shell.folder / "s").rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert shell.ok("queue", "list", "-s", "s").startswith("work\tjobs\t3\t1\t0\t5\t1\t0")


# --- Putting, taking, redriving ------------------------------------------------------------------


@pytest.fixture
def work(falaj: Shell) -> Shell:
    falaj.ok("queue", "create", "-s", "s", "work")
    falaj.ok("queue", "put", "-s", "s", "work", "--header", "by=x", given=b"one\ntwo\nthree\n")
    return falaj


def counts(shell: Shell) -> tuple[int, int, int, int]:
    told = json.loads(shell.ok("queue", "list", "-s", "s", "--json"))
    return told["ready"], told["in_flight"], told["done"], told["dead"]


def test_a_queue_is_created_over_a_topic_that_is_there_or_a_new_one(falaj: Shell) -> None:
    falaj.ok("queue", "create", "-s", "s", "one")
    falaj.ok("append", "-s", "s", "jobs", given=b"x\n")
    falaj.ok("queue", "create", "-s", "s", "two", "--topic", "jobs", "--order", "key")
    told = map(json.loads, falaj.ok("queue", "list", "-s", "s", "--json").splitlines())
    assert [(q["queue"], q["topic"], q["ready"], q["order"]) for q in told] == [
        ("one", "one", 0, None),
        ("two", "jobs", 1, "key"),
    ]
    for words in (["create", "x", "--topic", "job"], ["put", "ones"], ["take", "ones"]):
        ended = falaj("queue", *words, "-s", "s")
        assert (ended.code, "; it has " in ended.sentence()) == (2, True)


def test_a_queue_that_is_there_is_created_again_over_its_own_topic(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "jobs", given=b"x\n")
    falaj.ok("queue", "create", "-s", "s", "work", "--topic", "jobs")
    falaj.ok("queue", "create", "-s", "s", "work")
    assert [row.split()[0] for row in falaj.ok("topic", "list", "-s", "s").splitlines()] == ["jobs"]


def test_a_queue_without_an_order_gets_none_later(falaj: Shell) -> None:
    falaj.ok("queue", "create", "-s", "s", "work")
    ended = falaj("queue", "create", "-s", "s", "work", "--order", "key")
    assert ended.code == 2
    assert ended.sentence() == (
        "queue work exists already, and delivers its jobs in no order: leave out --order, or "
        "create another queue"
    )
    falaj.ok("queue", "create", "-s", "s", "ordered", "--order", "key")
    falaj.ok("queue", "create", "-s", "s", "ordered")


def test_jobs_that_are_printed_are_done(work: Shell) -> None:
    assert work.ok("queue", "take", "-s", "s", "work") == "one\n"
    assert counts(work) == (2, 0, 1, 0)
    told = work.ok("queue", "take", "-s", "s", "work", "-n", "5", "--format", "%h:%v\n")
    assert told == "by=x:two\nby=x:three\n"
    ended = work("queue", "take", "-s", "s", "work", "--timeout", "0")
    assert (ended.code, ended.out) == (4, "")
    assert ended.sentence() == "queue work has no job that is ready"


def test_a_job_whose_output_cannot_be_written_is_ready_again(work: Shell) -> None:
    script = f'"{PROGRAM}" queue take -s s work > /dev/full; echo $?'
    done = subprocess.run(
        ["bash", "-c", script], cwd=work.folder, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "3\n"
    assert counts(work) == (3, 0, 0, 0)
    told = work.ok("queue", "take", "-s", "s", "work", "-n", "3")
    assert sorted(told.split()) == ["one", "three", "two"]


def test_a_job_is_done_when_its_command_ends_well_and_else_delivered_again(work: Shell) -> None:
    command = (
        'read v; echo "$FALAJ_OFFSET $FALAJ_ATTEMPT $v"; test $v != two || test $FALAJ_ATTEMPT = 2'
    )
    ended = work("queue", "take", "-s", "s", "work", "-n", "3", "--run", command)
    assert (ended.code, ended.sentence()) == (4, "the command failed for 1 of 3 jobs")
    assert ended.out == "0 1 one\n1 1 two\n1 2 two\n"
    assert work.ok("queue", "take", "-s", "s", "work", "--run", command) == "2 1 three\n"
    assert counts(work) == (0, 0, 3, 0)


def test_a_delayed_job_is_not_delivered_before_its_time(falaj: Shell) -> None:
    falaj.ok("queue", "create", "-s", "s", "work")
    falaj.ok("queue", "put", "-s", "s", "work", "--delay", "1h", "--key", "k", given=b"later\n")
    assert falaj("queue", "take", "-s", "s", "work", "--timeout", "0").code == 4
    with library.open(falaj.folder / "s", read_only=True) as store:
        (record,) = store.topic("work")
        assert (record.key, record.headers[0][0]) == (b"k", "falaj-not-before")


def test_dead_letters_are_put_back_once_without_what_killed_them(work: Shell) -> None:
    fail = ("queue", "take", "-s", "s", "work", "--run", "false", "--max-attempts", "1")
    assert work("queue", "redrive", "-s", "s", "work").out == "work\t0\n"
    work(*fail, "-n", "3")
    work(*fail, "--timeout", "0")
    assert counts(work) == (0, 0, 3, 3)
    assert work.ok("queue", "redrive", "-s", "s", "work", "--dry-run") == "work\t3\n"
    assert work.ok("queue", "redrive", "-s", "s", "work", "-n", "2") == "work\t2\n"
    assert work.ok("queue", "redrive", "-s", "s", "work") == "work\t1\n"
    assert work.ok("queue", "redrive", "-s", "s", "work") == "work\t0\n"
    told = work.ok("queue", "take", "-s", "s", "work", "-n", "9", "--format", "%h:%v\n")
    assert sorted(told.splitlines()) == ["by=x:one", "by=x:three", "by=x:two"]


def test_cat_prints_dead_letters_with_how_the_command_of_each_ended(work: Shell) -> None:
    fail = ("queue", "take", "-s", "s", "work", "--max-attempts", "1", "--run")
    work(*fail, "exit 3")
    work(*fail, "kill -9 $$")
    told = work.ok("cat", "-s", "s", "work.dead", "--format", "%v %h\n").splitlines()
    reasons = ("the command ended with 3", "signal 9 ended the command")
    assert [line.split()[0] for line in told] == ["one", "two"]
    assert [f"falaj-reason={why}" in line for line, why in zip(told, reasons, strict=True)] == [
        True,
        True,
    ]


def test_dead_letters_of_a_topic_that_was_made_again_are_put_back_too(work: Shell) -> None:
    fail = ("queue", "take", "-s", "s", "work", "--run", "false", "--max-attempts", "1")
    for given in (b"", b"four\n"):
        work.ok("queue", "put", "-s", "s", "work", given=given)
        work(*fail, "-n", "1")
        work(*fail, "--timeout", "0")
        assert work.ok("queue", "redrive", "-s", "s", "work", "-n", "1") == "work\t1\n"
        first = work.ok("cat", "-s", "s", "work.dead", "-n", "1")
        assert work.ok("tail", "-s", "s", "work", "-n", "1") == first
        work.ok("topic", "delete", "-s", "s", "work.dead", "--yes")
