"""Metrics have the values of `info`, as a dict, and as text that Prometheus' own parser reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from children import child
from prometheus_client.parser import text_string_to_metric_families

import falaj
from falaj.metrics import Metrics, exposition

Samples = dict[str, dict[tuple[str, ...], float]]


def parsed(text: str) -> Any:
    return list(text_string_to_metric_families(text))


def samples(text: str) -> Samples:
    """Values by the sample's name and by labels except the store's, as the parser finds them."""
    found: Samples = {}
    for family in parsed(text):
        for sample in family.samples:
            labels = tuple(value for name, value in sample.labels.items() if name != "store")
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def some_topic(path: Path) -> falaj.PartitionedTopic[Any]:
    """A topic whose last record is not durable while it is open, in a store with another topic."""
    store = falaj.open(path, sync="none")
    orders = store.partitioned_topic(
        "orders", partitions=2, segment_bytes=1 << 16, sync_interval_ms=3_600_000
    )
    for _ in range(300):
        orders.append(b"x" * 1000, partition=0)
    orders.append(b"x", partition=1, sync="durable")
    orders.append(b"x", partition=1)
    store.topic("empty")
    return orders


def test_metrics_are_what_info_tells(path: Path) -> None:
    topic = some_topic(path)
    with topic.store as store:
        metrics, info = store.metrics(), store.info()
    assert metrics["topics"]["orders"]["partitions"] == [
        {"partition": 0, "first": 0, "end": 300, "committed": 300, "durable": 300},
        {"partition": 1, "first": 0, "end": 2, "committed": 2, "durable": 1},
    ]
    (log,) = (log for log in info["logs"] if log["name"] == "orders")
    told = metrics["logs"]["orders"]
    assert told["segments"] == len(log["segments"]) > 1
    assert (told["live_bytes"], told["disk_bytes"]) == (log["live"], log["reserved"])
    assert (metrics["incarnation"], metrics["writers"]) == (info["incarnation"], 1)
    assert json.loads(json.dumps(metrics)) == metrics


def test_the_text_says_the_same_to_its_readers(path: Path) -> None:
    topic = some_topic(path)
    with topic.store as store:
        metrics = store.metrics()
        found = samples(exposition(metrics))
    assert found["falaj_topic_committed_records_total"] == {
        ("empty", "0"): 0,
        ("orders", "0"): 300,
        ("orders", "1"): 2,
    }
    assert found["falaj_topic_durable_offset"]["orders", "1"] == 1
    assert found["falaj_topic_first_offset"]["orders", "0"] == 0
    assert found["falaj_log_disk_bytes"]["orders",] == metrics["logs"]["orders"]["disk_bytes"]
    assert found["falaj_log_latched"] == {("empty",): 0, ("orders",): 0}
    assert found["falaj_store_writers"] == {(): 1}
    told = (metrics["id"], str(metrics["format"]), metrics["incarnation"] or "")
    assert found["falaj_store_info"] == {told: 1}


def test_each_family_says_once_what_it_is_before_its_samples(path: Path) -> None:
    topic = some_topic(path)
    with topic.store as store:
        text = exposition(store.metrics())
    assert text.endswith("\n")
    names: list[str] = []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            names.append(line.split()[2])
            assert line.removeprefix(f"# HELP {names[-1]} ")
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == names[-1]
            assert kind == ("counter" if name.endswith("_total") else "gauge")
        else:
            assert line.startswith(names[-1] + "{")
    assert len(names) == len(set(names)) == len(parsed(text))
    assert all(family.type in ("counter", "gauge") for family in parsed(text))


@pytest.mark.parametrize("name", ['a"b', "back\\slash", "line\nend", "\\n", "ünï", "x,y={}"])
def test_whatever_the_path_is_it_comes_out_as_it_was(tmp_path: Path, name: str) -> None:
    with falaj.open(tmp_path / name) as store:
        store.topic("orders")
        families = parsed(exposition(store.metrics()))
    paths = {sample.labels["store"] for family in families for sample in family.samples}
    assert paths == {str(tmp_path / name)}


def test_a_path_that_is_no_text_breaks_nothing() -> None:
    nothing: Metrics = {
        "path": "/a\udcff",
        "id": "",
        "format": 1,
        "incarnation": None,
        "writers": 0,
        "topics": {},
        "logs": {},
        "groups": {},
        "queues": {},
    }
    text = exposition(nothing)
    assert text.encode().decode() == text
    assert samples(text)["falaj_store_info"] == {("", "1", ""): 1}


def test_a_process_that_only_reads_gets_the_same(path: Path) -> None:
    topic = some_topic(path)
    with topic.store as store:
        here = store.metrics()
        program = "import json; say(json.dumps(falaj.open(path, read_only=True).metrics()))"
        with child(path, program) as reader:
            assert json.loads(reader.hear()) == here
        with child(path, "store = falaj.open(path); say('open'); hear()") as writer:
            assert writer.hear() == "open"
            assert store.metrics()["writers"] == 2
    assert falaj.open(path, read_only=True).metrics()["writers"] == 0


def test_what_is_damaged_is_not_readable_and_hides_nothing_else(path: Path) -> None:
    some_topic(path).store.close()
    segments = sorted(path.glob("logs/orders@*/*.log"))
    for segment in segments:
        segment.write_bytes(b"\xff" * 8192)
    found = samples(exposition(falaj.open(path, read_only=True).metrics()))
    assert found["falaj_topic_readable"] == {("empty",): 1, ("orders",): 0}
    assert ("empty", "0") in found["falaj_topic_committed_records_total"]


def test_consumers_are_told_with_their_lag(path: Path) -> None:
    with falaj.open(path) as store:
        store.topic("orders").extend([b"a", b"b", b"c"])
        with store.consumer("billing", "orders") as billing:
            billing.commit(1)
            found = samples(exposition(store.metrics()))
    assert list(found["falaj_group_members"].values()) == [1]
    assert list(found["falaj_group_committed_offset"].values()) == [1]
    assert list(found["falaj_group_lag_records"].values()) == [2]


HOLDS = """
queue = falaj.open(path).queue("work", topic="jobs")
queue.take(2)
say("has two")
hear()
"""


def test_queues_are_told_by_who_only_reads_with_what_waits_is_out_back_done_and_dead(
    path: Path,
) -> None:
    with falaj.open(path) as store:
        queue = store.queue("work", topic="jobs", max_attempts=1)
        queue.topic.extend([b"%d" % i for i in range(9)])
        queue.take()[0].nack()
        queue.take(3).ack()
        with child(path, HOLDS) as holder:
            assert holder.hear() == "has two"
            reader = falaj.open(path, read_only=True)
            [told] = reader.info()["queues"]
            assert told == queue.info()
            assert list(told["holders"].values()) == [2]
            holder.kill()
        [dead] = reader.info()["queues"]
        assert (dead["in_flight"], dead["ready"], dead["holders"]) == (
            0,
            (told["ready"] or 0) + 2,
            {},
        )
    found = samples(exposition(reader.metrics()))
    states = ("ready_jobs", "delayed_jobs", "done_jobs_total", "dead_jobs_total", "in_flight_jobs")
    counts = [found["falaj_queue_" + state][("work", "jobs")] for state in states]
    assert counts == [5, 0, 4, 1, 0]


def test_queues_that_nobody_has_open_or_whose_topic_or_file_is_gone_are_told_too(
    path: Path,
) -> None:
    with falaj.open(path) as store:
        for name in ("whole", "gone", "torn"):
            queue = store.queue(name, topic=name)
            queue.topic.extend([b"a", b"b", b"c", b"d"])
            jobs = queue.take(3)
            jobs[1].ack()
        store.delete_topic("gone")
    state = path / "queues/torn"
    state.write_bytes(b"\xff" * 600 + state.read_bytes()[600:])
    # As after a restart of the machine: derived values are of another time.
    whole = bytearray((path / "queues/whole").read_bytes())
    whole[2112:2120] = bytes(8)
    (path / "queues/whole").write_bytes(whole)
    found = {queue["name"]: queue for queue in falaj.open(path, read_only=True).info()["queues"]}
    expected = {"ready": 3, "in_flight": 0, "delayed": 0, "done": 1, "floor": 0, "error": None}
    assert {name: dict(found["whole"])[name] for name in expected} == expected
    assert (found["gone"]["ready"], found["gone"]["topic"]) == (None, "gone")
    assert "not the state of a queue" in str(found["torn"]["error"])
    readable = samples(exposition(falaj.open(path, read_only=True).metrics()))[
        "falaj_queue_readable"
    ]
    assert readable == {("gone",): 1, ("torn",): 0, ("whole",): 1}
