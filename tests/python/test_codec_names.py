"""The codec of a topic that was created without one: named once, before the first record."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import NotWritable, SettingsMismatch


def test_a_worker_that_opens_a_queue_before_its_producer_reads_the_producers_values(
    path: Path,
) -> None:
    program = """
store = falaj.open(path)
queue = store.queue("jobs", max_attempts=3)
say("waits")
for job in queue.take(1, timeout=60):
    with job:
        say(job.value["size"], queue.topic.codec)
"""
    with child(path, program) as worker:
        assert worker.hear() == "waits"
        with falaj.open(path) as store:
            queue = store.queue("jobs", store.topic("jobs", codec="json"))
            queue.put({"size": 7})
            assert worker.hear() == "7 json"


def test_a_queue_opens_its_topic_with_the_codec_that_is_asked_for(store: falaj.Store) -> None:
    queue = store.queue("jobs", codec="json")
    queue.put({"size": 7})
    with queue.take()[0] as job:
        assert job.value == {"size": 7}
    with pytest.raises(SettingsMismatch, match="codec = json, not str"):
        store.queue("jobs", codec="str")
    with pytest.raises(TypeError, match="the given topic is open with its own"):
        store.queue("others", store.topic("jobs"), codec="json")  # type: ignore[call-overload]
    assert "others" not in store.queues


def test_a_mismatch_names_the_codec_that_was_asked_for(store: falaj.Store) -> None:
    store.topic("orders", codec="str")
    for codec in ("raw", "bytes"):
        with pytest.raises(SettingsMismatch, match=f"has codec = str, not {codec};") as raised:
            store.topic("orders", codec=codec)
        assert (raised.value.stored, raised.value.asked) == ("str", codec)


def test_reports_give_no_codec_before_one_is_named(store: falaj.Store) -> None:
    orders = store.topic("orders")
    assert store.topics["orders"]["codec"] is None
    orders.append(b"1")
    assert store.topics["orders"]["codec"] == "bytes"


def test_an_explicit_codec_replaces_an_unnamed_one_only_while_the_topic_is_empty(
    store: falaj.Store,
) -> None:
    store.topic("orders")
    assert store.topic("orders", codec="json").append({"n": 1}) == 0
    with pytest.raises(SettingsMismatch, match="codec = json, not str"):
        store.topic("orders", codec="str")
    store.topic("raw").append(b"1")
    for codec in ("json", "str"):
        with pytest.raises(SettingsMismatch, match=f"codec = bytes, not {codec}"):
            store.topic("raw", codec=codec)
    assert bytes(store.topic("raw")[0].value) == b"1"
    store.topic("raw").trim(before_offset=1)
    with pytest.raises(SettingsMismatch, match="codec = bytes, not json"):
        store.topic("raw", codec="json")


def test_handles_that_were_open_before_a_codec_was_named_use_it(store: falaj.Store) -> None:
    early: falaj.Topic[Any] = store.topic("orders")
    view = early.partition(0)
    whole = store.topic("orders", codec=falaj.RAW)
    assert early.codec == "bytes"
    follower = early.follow(start=0, timeout=0)
    store.topic("orders", codec="json").append({"n": 1})
    assert early.codec == "json"
    assert early[0].value == view[0].value == next(follower).value == {"n": 1}
    assert next(early.batches()).values == [{"n": 1}]
    assert bytes(whole[0].value) == b'{"n":1}'
    assert early.append({"n": 2}) == 1
    with store.transaction() as tx:
        tx.append(early, {"n": 3})
        tx.extend(early, [{"n": 4}])
    assert [record.value["n"] for record in early] == [1, 2, 3, 4]


def test_an_append_that_was_refused_names_no_codec(store: falaj.Store) -> None:
    orders: falaj.Topic[Any] = store.topic("orders")
    for refused in (
        lambda: orders.append({"n": 1}),
        lambda: orders.extend([{"n": 1}]),
        lambda: store.transaction().append(orders, {"n": 1}),
    ):
        with pytest.raises(TypeError, match='codec="json"'):
            refused()
    assert store.topic("orders", codec="json").append({"n": 1}) == 0


@pytest.mark.parametrize(
    "way",
    ["append", "key", "extend", "tombstone", "transaction", "bulk", "expect", "partitioned", "put"],
)
def test_every_way_to_append_names_the_codec(store: falaj.Store, way: str) -> None:
    if way == "partitioned":
        store.partitioned_topic("orders", partitions=3).append(b"x", key="a")
    else:
        orders = store.topic("orders")
        match way:
            case "append":
                orders.append(b"x")
            case "key":
                orders.append(b"x", key="a", sync="durable")
            case "extend":
                orders.extend([b"x"])
            case "tombstone":
                orders.tombstone("a")
            case "transaction":
                with store.transaction() as tx:
                    tx.append(orders, b"x")
            case "bulk":
                with orders.bulk_load("load") as load:
                    load.append(b"x")
            case "expect":
                orders.append(b"x", expect=0)
            case "put":
                store.queue("jobs", orders).put(b"x")
    with pytest.raises(SettingsMismatch, match="codec = bytes, not json"):
        store.any_topic("orders", codec="json")


PARTY = """
from falaj.errors import SettingsMismatch
store, codec, value = falaj.open(path), {codec!r}, {value!r}
say("ready")
while name := hear():
    early = store.topic(name) if codec is None else None
    say("open")
    hear()
    try:
        topic = early if codec is None else store.topic(name, codec=codec)
        say("appended", topic.append(value))
    except (SettingsMismatch, TypeError) as error:
        say("refused", error)
"""


def test_of_processes_that_name_different_codecs_at_once_exactly_one_appends(path: Path) -> None:
    values: dict[str | None, Any] = {"json": {"n": 1}, "str": "one", None: b"\xff"}
    winners = set()
    with ExitStack() as stack:
        store = stack.enter_context(falaj.open(path))
        programs = [PARTY.format(codec=codec, value=value) for codec, value in values.items()]
        parties = [stack.enter_context(child(path, program)) for program in programs]
        for party in parties:
            assert party.hear() == "ready"
        for turn in range(60):
            name = f"topic-{turn}"
            store.topic(name).close()
            for party in parties:
                party.tell(name)
            for party in parties:
                assert party.hear() == "open"
            for party in parties[turn % 3 :] + parties[: turn % 3]:
                party.tell()
            said = [party.hear() for party in parties]
            (winner,) = [at for at, line in enumerate(said) if line == "appended 0"]
            codec = list(values)[winner]
            (record,) = store.topic(name)
            assert store.topics[name]["codec"] == (codec or "bytes")
            assert record.value == values[codec], said
            for line in said[:winner] + said[winner + 1 :]:
                assert line.startswith("refused"), said
            winners.add(winner)
    assert len(winners) > 1, winners


def test_a_codec_that_was_named_stays_where_the_process_is_killed_before_it_appends(
    path: Path,
) -> None:
    with falaj.open(path) as store:
        store.topic("orders")
    program = 'store = falaj.open(path); store.topic("orders", codec="json"); say("named"); hear()'
    with child(path, program) as named:
        assert named.hear() == "named"
        named.kill()
    for read_only in (True, False):
        with falaj.open(path, read_only=read_only) as store:
            assert len(store.topic("orders")) == 0
            assert store.topic("orders").codec == "json"
            with pytest.raises(SettingsMismatch, match="codec = json, not str"):
                store.topic("orders", codec="str")
    with falaj.open(path) as store:
        store.topic("orders").append({"n": 1})
        assert store.topic("orders")[0].value == {"n": 1}


def test_a_store_open_for_reading_names_no_codec_and_reads_by_no_other(path: Path) -> None:
    with falaj.open(path) as store, falaj.open(path, read_only=True) as reader:
        store.topic("orders")
        plain, text = reader.topic("orders"), reader.topic("orders", codec="str")
        assert (plain.codec, text.codec) == ("bytes", "str")
        with pytest.raises(NotWritable):
            plain.append(b"x")
        store.topic("orders", codec="json").append({"n": 1})
        assert plain[0].value == {"n": 1}
        for read in (lambda: text[0].value, lambda: list(next(text.batches()).values)):
            with pytest.raises(SettingsMismatch, match="codec = json, not str"):
                read()
        assert json.loads(text[0].to_bytes()) == {"n": 1}


def test_dead_letters_have_the_codec_of_their_jobs(store: falaj.Store) -> None:
    worker = store.queue("jobs", max_attempts=1, dead_letter="failed")
    dead = worker.dead
    assert dead is not None
    store.queue("jobs", store.topic("jobs", codec="json")).put({"n": 1})
    with pytest.raises(ValueError, match="bad"), worker.take(1)[0]:
        raise ValueError("bad")
    assert store.topic("failed").codec == "json"
    assert [record.value for record in dead] == [{"n": 1}]


def test_a_copy_of_a_store_keeps_codecs_unnamed_or_named(
    store: falaj.Store, tmp_path: Path
) -> None:
    store.topic("empty")
    store.topic("orders")
    store.topic("orders", codec="json").append({"n": 1})
    store.backup(tmp_path / "copy")
    with falaj.open(tmp_path / "copy") as copy:
        assert copy.topic("orders")[0].value == {"n": 1}
        assert copy.topic("empty", codec="str").append("x") == 0


def test_retention_that_was_changed_in_code_is_refused_and_configure_is_named(
    store: falaj.Store,
) -> None:
    store.topic("orders", retention_age="1d")
    for change in ({"retention_age": "2d"}, {"retention_records": 5}, {"compacted": True}):
        with pytest.raises(SettingsMismatch, match=r"change the setting with configure\(\)"):
            store.topic("orders", **change)
    orders = store.topic("orders")
    orders.configure(retention_age="2d")
    assert store.topic("orders", retention_age="2d").append(b"x") == 0
