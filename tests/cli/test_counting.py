"""In a compacted topic, every command counts the records that exist."""

import json

import pytest

import falaj as library
from cli.shell import Shell

THERE = [0, 1, 2, 5002]


@pytest.fixture
def shell(falaj: Shell) -> Shell:
    with library.open(falaj.folder / "s") as store:
        topic = store.topic("t", compacted=True, segment_bytes=1 << 16, sync="none")
        topic.extend([(b"a", b"0"), (b"b", b"1"), (b"c", b"2")])
        for _ in range(50):
            topic.extend([(b"d", b"5002")] * 100)
        topic.compact(seal=True)
        store.queue("work", topic)
        with store.consumer("billing", [topic], start="earliest") as billing:
            billing.commit(1)
    return falaj


def lines(values: list[int]) -> str:
    return "".join(f"{value}\n" for value in values)


@pytest.mark.parametrize("n", [1, 2, 4, 99])
def test_cat_and_tail_begin_with_as_many_records(shell: Shell, n: int) -> None:
    assert shell.ok("cat", "-s", "s", "t", "--from", f"-{n}") == lines(THERE[-n:])
    assert shell.ok("tail", "-s", "s", "t", "--from", f"-{n}") == lines(THERE[-n:])
    assert shell.ok("tail", "-s", "s", "t", "-n", str(n)) == lines(THERE[-n:])


def test_cat_leaves_out_as_many_records_at_the_end(shell: Shell) -> None:
    assert shell.ok("cat", "-s", "s", "t", "--to", "-1") == lines(THERE[:3])
    assert shell.ok("cat", "-s", "s", "t", "--to", "-99") == ""
    assert shell.ok("cat", "-s", "s", "t", "--from", "-3", "--to", "-1") == lines(THERE[1:3])


def test_trim_keeps_as_many_records(shell: Shell) -> None:
    shell.ok("topic", "trim", "-s", "s", "t", "--before", "-1000")
    assert shell.ok("cat", "-s", "s", "t") == lines(THERE)
    shell.ok("topic", "trim", "-s", "s", "t", "--before", "-2")
    assert shell.ok("cat", "-s", "s", "t") == lines(THERE[2:])


def test_maintain_keeps_as_many_records_and_tells_what_stays_for_consumers(shell: Shell) -> None:
    shell.ok("topic", "config", "-s", "s", "t", "--retention-records", "1000")
    shell.ok("maintain", "-s", "s")
    assert shell.ok("cat", "-s", "s", "t") == lines(THERE)
    shell.ok("topic", "config", "-s", "s", "t", "--retention-records", "1", "--retention-waits")
    assert shell.ok("maintain", "-s", "s", "--dry-run") == "t\t0\t0\t0\trecords\t3\n"


def test_seek_goes_back_as_many_records(shell: Shell) -> None:
    shell.ok("group", "seek", "-s", "s", "billing", "t", "--to", "-3")
    assert (
        json.loads(shell.ok("group", "list", "-s", "s", "--json"))["partitions"][0]["committed"]
        == 1
    )
    shell.ok("group", "seek", "-s", "s", "billing", "t", "--to", "-1")
    assert (
        json.loads(shell.ok("group", "list", "-s", "s", "--json"))["partitions"][0]["committed"]
        == 5002
    )


def test_topics_consumers_queues_and_metrics_count_records(shell: Shell) -> None:
    assert json.loads(shell.ok("topic", "list", "-s", "s", "--json"))["records"] == 4
    told = [
        json.loads(line) for line in shell.ok("group", "list", "-s", "s", "--json").splitlines()
    ]
    assert [cursor["lag"] for each in told for cursor in each.get("partitions", [each])] == [3]
    assert json.loads(shell.ok("queue", "list", "-s", "s", "--json"))["ready"] == 4
    metrics = shell.ok("metrics", "-s", "s")
    assert 'topic="t",partition="0"} 3\n' in metrics
    assert "falaj_queue_ready_jobs{" in metrics
    waiting = next(line for line in metrics.splitlines() if "queue_ready_jobs{" in line)
    assert waiting.endswith(" 4")
