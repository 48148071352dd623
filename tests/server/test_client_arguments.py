"""Arguments of the client: the same are taken and refused as by a native store, in sentences."""

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import falaj
import falaj_client
from falaj.errors import (
    AppendTooLarge,
    EncodeFailed,
    InvalidArgument,
    InvalidName,
    OffsetOutOfRange,
)
from falaj_client import _groups, _queues, _starts, _times, _topics, codecs, records
from falaj_client.errors import of_problem
from falaj_client.protocols import StoreLike
from server.doors import Server
from server.test_client import connect

Row = namedtuple("Row", ["a", "b"])  # as pandas and csv make them
HUGE = 10**30


@pytest.fixture(params=["native", "client"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLike]:
    """A store of each kind."""
    if request.param == "native":
        with falaj.open(tmp_path / "events") as native:
            yield native
        return
    with Server(tmp_path / "events") as server, connect(server) as client:
        yield client


# --- Without a server -----------------------------------------------------------------------------

NO_BYTES: list[Any] = [
    np.uint8(5),
    np.bool_(True),
    np.datetime64(1, "s"),
    np.array([True]),
    np.zeros((2, 2), "u1"),
    np.zeros(2, [("a", "u1"), ("b", "u1")]),
    np.array(["a"]),
    memoryview(b"abcd").cast("I"),
    falaj.NewRecord(b"x"),
    falaj_client.NewRecord(b"x"),
    5,
    [1],
]


@pytest.mark.parametrize("given", NO_BYTES, ids=lambda given: type(given).__name__)
def test_memory_that_is_no_row_of_bytes_is_no_value_no_key_and_no_header(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^a value is bytes, not "):
        codecs.resolve("bytes", None).encode(given)
    with pytest.raises(TypeError, match=r"^a key is text or bytes, not "):
        records.NewRecord(1, given)
    with pytest.raises(TypeError, match=r"^the key of a tombstone is text or bytes, not "):
        records.NewRecord.tombstone(given)
    with pytest.raises(TypeError, match=r"^the value of a header is text or bytes, not "):
        records.NewRecord(1, headers={"a": given})
    mine = falaj_client.Codec("mine", lambda _: given, bytes)
    with pytest.raises(EncodeFailed, match="what the codec makes of a value is bytes"):
        records.line_of(records.NewRecord(1), mine, "t")


@pytest.mark.parametrize(
    "given",
    [
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        np.bytes_(b"abcd"),
        np.frombuffer(b"abcd", "u1"),
        np.frombuffer(b"abcd", "i1"),
        np.frombuffer(b"a-b-c-d-", "u1")[::2],
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_row_of_bytes_is_a_value_and_a_key(given: Any) -> None:
    assert codecs.resolve("bytes", None).encode(given) == b"abcd"
    assert records.NewRecord(1, given).key == b"abcd"


def test_a_memoryview_in_a_value_of_msgpack_is_single_bytes() -> None:
    msgpack = codecs.resolve("msgpack", None)
    assert msgpack.decode(msgpack.encode({"m": memoryview(b"abcd")})) == {"m": b"abcd"}
    for value in ({"m": memoryview(b"abcd").cast("I")}, [memoryview(b"abcd").cast("B", (2, 2))]):
        with pytest.raises(TypeError, match=r"^a memoryview in a value is bytes"):
            msgpack.encode(value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([(None, 5)], "a pair"),
        ([Row("k", 5)], "a named tuple"),
        ([(1, 2, 3)], "a pair"),
        ([("k",)], "a pair"),
        ([(5, 5)], "the first of a pair is its key"),
        (pd.DataFrame({"a": [1]}), "not DataFrame; give the rows"),
        ({"k": 1}, "not dict; append"),
        (OrderedDict(k=1), "not OrderedDict; append"),
        ("text", "not str; append"),
        (memoryview(b"x"), "not memoryview; append"),
        (falaj_client.NewRecord(1), r"not NewRecord; give \[record\]"),
        (falaj.NewRecord(1), r"not NewRecord; give \[record\]"),
        (5, r"not int; give \[value\]"),
        (None, r"not NoneType; give \[value\]"),
    ],
)
def test_what_would_lose_columns_or_keys_is_not_extended(given: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        list(records.new_records(given))


def test_numbers_of_numpy_are_places_and_bools_are_none() -> None:
    assert _starts.start_query(np.int64(5)) == {"from": 5}
    assert _starts.start_query(np.int8(-5)) == {"last": 5}
    assert records.NewRecord(1, timestamp_ns=np.int64(5)).timestamp_ns == 5  # type: ignore[arg-type]
    for given in (True, np.bool_(True), 1.5, np.float64(1.0)):
        with pytest.raises(TypeError):
            _starts.start_query(given)


@pytest.mark.parametrize("url", ["http://\0:80", "http://a\x7f", "http://\ud800", "http://xn--é"])
def test_a_url_that_no_request_could_have_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="is no URL of a server"):
        falaj_client.connect(url)


def test_a_refusal_of_what_is_too_large_is_told_as_that_whatever_its_kind() -> None:
    assert isinstance(of_problem(413, {"detail": "too large"}), AppendTooLarge)


@pytest.mark.parametrize("array", [np.array, pd.Series, pd.Index])
def test_an_array_is_no_word_no_name_and_no_codec_and_nothing_is_asked_for_it(
    array: Callable[[Any], Any],
) -> None:
    patience: Any = None  # no request is made
    wrong = array(["durable", "key"])
    member = _groups.Member[Any](patience, "g", {}, {})
    member.assigned = [("orders", 0)]

    def opened(**given: Any) -> Any:
        asked: dict[str, Any] = {"codec": None, "create": True, **given}
        return _topics.open_topic(patience, "orders", settings={}, single=None, **asked)

    operations: list[tuple[Any, str]] = [
        (opened(visibility=wrong), "visibility is one of"),
        (opened(codec=wrong), "codec is a name"),
        (opened(create=wrong), "create is True or False"),
        (_queues.hire(patience, "q", None, {}, create=True, order=wrong), 'order is "key" or None'),
        (_groups.join(patience, "g", None, wrong, 0, 1.0, None), "pattern is text"),
        (member.commit(5, wrong), "topic is the name of a topic"),
        (member.commit(5, "orders", wrong), "partition is a whole number"),
        (member.commit(5, sync=wrong), "sync is one of"),
    ]
    for operation, said in operations:
        with pytest.raises((TypeError, InvalidArgument), match=said):
            next(operation)
    with pytest.raises(TypeError, match="a timeout is seconds, a timedelta or text"):
        _times.seconds(array([5]), "a timeout")


# --- What both have -------------------------------------------------------------------------------


def _any(store: object) -> Any:
    """Hide the types, which say what is right."""
    return store


def test_numbers_of_numpy_count_everywhere_alike(both: StoreLike) -> None:
    n, store = np.int64, _any(both)
    topic = store.topic("orders", codec="str", segment_bytes=n(1 << 20))
    assert topic.append("0", timestamp_ns=n(5), expect=n(0), partition=n(0)) == 0
    assert topic.append("1", producer="p", sequence=n(0)) == 1
    assert (topic[n(0)].value, topic[n(-1)].value, topic[0].timestamp_ns) == ("0", "1", 5)
    assert [each.value for each in topic[n(1) :: n(1)]] == ["1"]
    assert [each.offset for each in topic.read(n(0), n(2))] == [0, 1]
    assert [each.offset for each in topic.last(n(1))] == [1]
    assert [each.offset for each in topic.range(n(0), n(1))] == [0]
    assert next(topic.follow(n(1), timeout=n(0))).offset == 1
    assert topic.partition(n(0))[0].value == "0"
    assert topic.configure(retention_records=n(9))["records"] == 9
    with store.transaction() as tx:
        tx.append(topic, "2", partition=n(0), expect=n(2))
    parts = store.partitioned_topic("parts", partitions=n(2), codec="str")
    parts.append("x", partition=n(1))
    assert parts[n(1), n(0)].value == "x"
    member = store.consumer("billing", "orders")
    assert len(member.poll(n(2), timeout=n(0))) == 2
    member.seek(n(1))
    member.commit(n(1))
    member.close()
    assert store.seek_group("billing", "orders", n(2), partition=0) == {0: 2}
    source: Any = topic if isinstance(both, falaj.Store) else "orders"
    queue = store.queue("jobs", source, max_attempts=n(3))
    assert len(queue.take(n(1), timeout=n(0))) == 1
    assert (queue.redrive(n(0)), queue.redrive(n(3))) == (0, 0)  # no job was given up yet
    assert topic.trim(before_offset=n(1))["firsts"] == {0: 1}


def test_a_bool_is_no_number_anywhere(both: StoreLike) -> None:
    store = _any(both)
    topic = store.topic("orders", codec="str")
    topic.append("x")
    member = store.consumer("billing", "orders")
    queue = store.queue("jobs", topic if isinstance(both, falaj.Store) else "orders")
    calls: list[Callable[[], object]] = [
        lambda: topic[True],
        lambda: topic.read(True, 1),
        lambda: topic.read(0, True),
        lambda: topic.last(True),
        lambda: topic[True:],
        lambda: topic[::True],
        lambda: next(topic.follow(True)),
        lambda: topic.partition(False),
        lambda: topic.append("x", partition=False),
        lambda: topic.append("x", expect=True),
        lambda: topic.append("x", producer="p", sequence=True),
        lambda: topic.append("x", timestamp_ns=True),
        lambda: topic.trim(before_offset=True),
        lambda: topic.configure(retention_records=True),
        lambda: store.topic("more", segment_bytes=True),
        lambda: store.partitioned_topic("more", partitions=True),
        lambda: store.queue("more", max_attempts=True),
        lambda: member.poll(True),
        lambda: member.commit(True),
        lambda: member.seek(True),
        lambda: queue.take(True),
    ]
    for place, call in enumerate(calls):
        try:
            call()
        except TypeError:
            continue
        pytest.fail(f"call {place} took a bool")
    assert len(topic) == 1


def test_places_far_away_are_told_alike(both: StoreLike) -> None:
    topic: Any = both.topic("orders", codec="str")
    topic.extend(["0", "1"])
    calls: list[Callable[[], object]] = [
        lambda: topic[HUGE],
        lambda: topic[-HUGE],
        lambda: topic.read(HUGE, 1),
        lambda: topic.read(-HUGE, 1),
        lambda: next(topic.follow(HUGE)),
        lambda: topic.trim(before_offset=HUGE),
    ]
    for call in calls:
        with pytest.raises(OffsetOutOfRange, match=str(HUGE)):
            call()
    assert [each.value for each in topic.last(HUGE)] == ["0", "1"]
    assert [each.value for each in topic.read(0, HUGE)] == ["0", "1"]
    assert list(topic[HUGE:]) == []
    assert next(topic.follow(-HUGE)).offset == 0
    for wrong in (-1, HUGE):
        with pytest.raises(InvalidArgument, match=f"^expect is a number from 0 .* not {wrong}"):
            topic.append("x", expect=wrong)
    member: Any = both.consumer("billing", "orders")
    member.poll(timeout=0)
    with pytest.raises(InvalidArgument, match=f"{HUGE}"):
        member.commit(HUGE)


def test_a_partitioned_topic_takes_positions_and_says_so(both: StoreLike) -> None:
    parts: Any = both.partitioned_topic("parts", partitions=2)
    for given in (0, (0,), (0, 0, 0), ("0", 0), (0, True), "00", None, [0, 0][:1]):
        with pytest.raises(TypeError, match=r"takes a position \(partition, offset\), not "):
            parts[given]
    with pytest.raises(OffsetOutOfRange):
        parts[falaj.Position(0, 0)]


@pytest.mark.parametrize("name", ["\ud800", "a b", "", "..", "a/b"])
def test_what_no_topic_group_or_queue_can_be_called_is_told_alike(
    both: StoreLike, name: str
) -> None:
    both.topic("orders")
    for call in (
        lambda: both.topic(name),
        lambda: both.delete_topic(name),
        lambda: both.delete_group(name),
        lambda: both.delete_queue(name),
        lambda: both.consumer(name, "orders").poll(timeout=0),
        lambda: both.queue(name).take(timeout=0),
    ):
        with pytest.raises(InvalidName):
            call()


def test_jobs_are_values_and_pairs_and_never_rows(both: StoreLike) -> None:
    queue: Any = both.queue("jobs", codec="json")
    mine = falaj_client.NewRecord(3, headers={"a": "1"})
    given: list[Any] = [1, ("k", 2)] if isinstance(both, falaj.Store) else [1, ("k", 2), mine]
    queue.put_many(given, headers={"b": "2"})
    assert mine.headers == [("a", b"1")]
    jobs = queue.take(len(given), timeout=0)
    assert [(job.value, job.key) for job in jobs] == [(1, None), (2, b"k"), (3, None)][: len(given)]
    for wrong in ([(None, 5)], [Row("k", 5)], {"k": 1}, pd.DataFrame({"a": [1]}), [("k", 1, 2)]):
        with pytest.raises(TypeError):
            queue.put_many(wrong)


def test_names_of_producers_that_no_header_can_have_are_refused(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, connect(server) as store:
        topic = store.topic("orders", codec="json")
        for name in ("é", "\ud800", "a\nb", " a", ""):
            with pytest.raises(InvalidArgument, match="the name of a producer is printable ASCII"):
                topic.append(1, producer=name, sequence=1)
        assert topic.append(1, producer="a b", sequence=1) == 0


def test_a_timeout_beyond_all_clocks_waits_as_long_as_it_takes(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, connect(server, timeout=1e300) as store:
        assert list(store.topics) == []
        topic = store.topic("orders", codec="str")
        topic.append("x")
        assert topic[0].value == "x"


@pytest.mark.parametrize("timeout", ["\u0665m", "\u0665", "1h\u0663\u0660m"])
def test_digits_of_other_scripts_are_no_duration(timeout: str) -> None:
    with pytest.raises(InvalidArgument, match="timeout is seconds, a timedelta or text such as"):
        falaj_client.connect("http://127.0.0.1:1", timeout=timeout)
