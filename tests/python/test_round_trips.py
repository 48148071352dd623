"""A value that a codec takes comes back equal; a value that it cannot give back is refused."""

import math
import sys
from array import array
from collections import Counter, OrderedDict, UserList, defaultdict, namedtuple
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from msgpack import ExtType, Timestamp

import falaj
from falaj.errors import Error, InvalidArgument

CODECS = ("json", "msgpack", "str", "bytes")


def nested(depth: int) -> list[Any]:
    """Nest so many lists."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


class Same(str):
    """Text that equals only itself, so that a dict may have two of one spelling."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Lying(dict[Any, Any]):
    """A dict that lies about its items."""

    def items(self) -> Any:
        return [(1, 2)]


class Shows(UserList[Any], list[Any]):  # type: ignore[misc]
    """A list that keeps its items beside it, as Django's lists of errors do."""


class Short(dict[str, Any]):
    """A dict that says it has fewer items."""

    def __len__(self) -> int:
        return 0


class Doubled(tuple[int, ...]):
    """A tuple that gives other items than it has."""

    __slots__ = ()

    def __iter__(self) -> Any:
        return (2 * each for each in tuple.__iter__(self))


class Sorted(dict[str, Any]):
    """A dict that shows what it holds, in another order."""

    def items(self) -> Any:
        return sorted(super().items())


class Stack(list[Any]):
    """A list with an iteration of its own that gives its items."""

    def __iter__(self) -> Any:
        return (self[n] for n in range(len(self)))


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


Pair = namedtuple("Pair", "a b")  # as libraries return rows

SELF: list[Any] = []
SELF.append(SELF)
LAUGHS: list[Any] = []
for _ in range(100):
    LAUGHS = [LAUGHS, LAUGHS]

OTHERWISE: dict[str, Any] = {
    "a list that shows what it does not hold": Shows([{1: 2}]),
    "and far inside": {"a": [Shows([1])]},
    "an empty one that shows something": Shows([1]),
    "a dict that is longer than it says": Short(a=1),
    "a tuple that shows other items": Doubled([1]),
}

REFUSED: dict[str, dict[str, Any]] = {
    "json": {
        "an int as key": {12: "ann"},
        "a key far inside": {"a": [{"b": ({"c": {4: 5}},)}]},
        "a key twice as text": {1: "x", "1": "y"},
        "True as key": {True: 1},
        "None as key": {None: 1},
        "a float as key": {0.5: 1},
        "a tuple as key": {(1, 2): 3},
        "bytes as key": {b"a": 1},
        "a key of a defaultdict": defaultdict(int, {4: 5}),
        "items that a subclass makes up": Lying(a=1),
        "two keys of one spelling": {Same("a"): 1, Same("a"): 2},
        "nan": [math.nan],
        "infinity": {"a": -math.inf},
        "half a character": "\ud800",
        "half a character in a key": {"\udc00": 1},
        "a whole number of 4301 digits": 10**4300,
        "129 lists in one another": nested(129),
        "itself": SELF,
        "bytes": b"x",
        "a set": {1, 2},
        "a number of NumPy": np.int64(5),
        **OTHERWISE,
    },
    "msgpack": {
        "an int as key": {12: "ann"},
        "a key far inside": {"a": [{"b": ({"c": {4: 5}},)}]},
        "True as key": {True: 1},
        "None as key": {None: 1},
        "a float as key": {0.5: 1},
        "a tuple as key": {(1, 2): 3},
        "a memoryview as key": {memoryview(b"a"): 1},
        "a key of a defaultdict": defaultdict(int, {4: 5}),
        "items that a subclass makes up": Lying(a=1),
        "two keys of one spelling": {Same("a"): 1, Same("a"): 2},
        "half a character": ["\ud800"],
        "a whole number of 65 bits": 2**64,
        "a negative one": -(2**63) - 1,
        "129 lists in one another": nested(129),
        "itself": SELF,
        "memory that is no bytes": [memoryview(array("i", [1]))],
        "a set": {1, 2},
        "a number of NumPy": np.int64(5),
        **OTHERWISE,
    },
    "str": {"half a character": "\ud800", "bytes": b"x", "a number": 5, "a list": ["a"]},
    "bytes": {"text": "x", "a number": 5, "a list of numbers": [1, 2], "a set": {1}},
}


@pytest.mark.parametrize(("codec", "what"), [(c, what) for c in REFUSED for what in REFUSED[c]])
def test_what_a_codec_cannot_give_back_is_refused_wherever_it_is_appended(
    store: falaj.Store, codec: str, what: str
) -> None:
    topic: Any = store.topic("values", codec=codec)
    value = REFUSED[codec][what]
    with pytest.raises((TypeError, Error)) as refused:
        topic.append(value)
    assert "\ud800" not in repr(str(refused.value))
    with pytest.raises((TypeError, Error)):
        topic.extend([falaj.NewRecord(value)])
    with pytest.raises((TypeError, Error)):
        topic.extend([("key", value)])
    with store.transaction() as tx:
        with pytest.raises((TypeError, Error)):
            tx.append(topic, value)
        with pytest.raises((TypeError, Error)):
            tx.extend(topic, [falaj.NewRecord(value)])
    with topic.stage("job", "0") as part, pytest.raises((TypeError, Error)):
        part.append(value)
    with pytest.raises((TypeError, Error)):
        store.queue("jobs", topic).put(value)
    assert len(topic) == 0


KEPT: dict[str, list[Any]] = {
    "json": [-0.0, 1e308, 5e-324, 2**64, -(10**4298), "\0", {"": ""}, Colour.RED, Level.HIGH],
    "msgpack": [-0.0, math.inf, 2**64 - 1, -(2**63), {b"a": 1, "a": 2}, ExtType(5, b"x"), b""],
    "str": ["", "\0", "\ufeffa", Colour.RED, np.str_("ab")],
    "bytes": [b"", bytearray(b"ab"), memoryview(b"abcd")[::2], np.bytes_(b"ab")],
}
KEPT["json"] += [nested(128), OrderedDict(b=1, a=2), Counter("abc"), defaultdict(int, {"a": 1})]
KEPT["json"] += [{Colour.RED: 1}, np.float64(0.1), np.str_("ab"), {np.str_("k"): True}]
KEPT["json"] += [Stack([1, Stack([])]), {"a": Sorted(a=1, b=Stack("a"))}]
KEPT["msgpack"] += [*KEPT["json"][-10:], Timestamp(5, 7), bytearray(b"ab"), memoryview(b"ab")]


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_codec_takes_is_read_back_equal_and_of_the_same_kind(
    store: falaj.Store, codec: str
) -> None:
    topic: Any = store.topic("values", codec=codec)
    for value in KEPT[codec]:
        read = topic[topic.append(value)].value
        assert read == value
        if isinstance(value, dict):
            assert list(read) == list(value)
        if isinstance(value, float):
            assert math.copysign(1, read) == math.copysign(1, value)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_tuples_return_as_lists(store: falaj.Store, codec: str) -> None:
    topic: Any = store.topic("values", codec=codec)
    topic.append((1, ("a", Pair(b=2, a=1)), {"t": ()}))
    assert topic[0].value == [1, ["a", [1, 2]], {"t": []}]


def test_msgpack_keeps_nan(store: falaj.Store) -> None:
    topic: Any = store.topic("values", codec="msgpack")
    topic.append([math.nan])
    assert math.isnan(topic[0].value[0])


def test_a_process_that_writes_longer_numbers_than_others_read_is_refused(
    store: falaj.Store,
) -> None:
    topic: Any = store.topic("values", codec="json")
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        for value in (10**5000, {"a": [10**5000]}):
            with pytest.raises(InvalidArgument, match="4300 digits"):
                topic.append(value)
        topic.append(["x" * 5000, 10**4000])
    finally:
        sys.set_int_max_str_digits(limit)
    assert topic[0].value == ["x" * 5000, 10**4000]


def test_what_is_as_deep_as_it_may_be_is_read_from_deep_in_a_program(store: falaj.Store) -> None:
    def deep(calls: int) -> Any:
        return topic[0].value if calls == 0 else deep(calls - 1)

    topic: Any = store.topic("values", codec="json")
    topic.append(nested(128))
    assert deep(600) == nested(128)


KEYS = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.binary(), st.floats())
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**62, max_value=2**70),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=())),
    st.binary(),
)
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=8
)


def test_any_value_is_read_back_equal_or_refused(store: falaj.Store) -> None:
    topics: list[Any] = [store.topic(codec, codec=codec) for codec in CODECS]

    @settings(max_examples=500, deadline=None)
    @given(value=ANY)
    def check(value: Any) -> None:
        for topic in topics:
            before = topic.end_offset
            try:
                offset = topic.append(value)
            except (TypeError, Error):
                assert topic.end_offset == before
            else:
                assert topic[offset].value == value

    check()


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_value_that_holds_more_lists_than_any_memory_is_refused(
    store: falaj.Store, codec: str
) -> None:
    topic: Any = store.topic("values", codec=codec)
    with pytest.raises(InvalidArgument, match="in all"):
        topic.append(LAUGHS)


# --- Between topics of different codecs ----------------------------------------------------------

#: A value of each codec, and its value in a topic of another codec; None if that is refused.
COPIES: dict[tuple[str, str], Any] = {
    ("json", "msgpack"): {"a": [1, None]},
    ("json", "str"): None,
    ("json", "bytes"): b'{"a":[1,null]}',
    ("msgpack", "json"): {"a": [1, None]},
    ("msgpack", "str"): None,
    ("msgpack", "bytes"): b"\x81\xa1a\x92\x01\xc0",
    ("str", "json"): "text",
    ("str", "msgpack"): "text",
    ("str", "bytes"): b"text",
    ("bytes", "json"): None,
    ("bytes", "msgpack"): b"\xff",
    ("bytes", "str"): None,
}
SOURCES = {"json": {"a": [1, None]}, "msgpack": {"a": [1, None]}, "str": "text", "bytes": b"\xff"}


@pytest.mark.parametrize(("source", "target"), list(COPIES))
def test_records_that_are_copied_to_a_topic_of_another_codec_are_encoded_by_it_or_refused(
    store: falaj.Store, source: str, target: str
) -> None:
    ours: Any = store.topic("ours", codec=source, log="shared")
    theirs: Any = store.topic("theirs", codec=target, log="shared")
    ours.extend([falaj.NewRecord(SOURCES[source], "k", headers={"h": "1"}, timestamp_ns=5 * 10**9)])
    want = COPIES[source, target]

    def through(copy: Any) -> None:
        before = theirs.end_offset
        if want is None:
            names = f'"ours" \\(codec {source}\\).* "theirs" \\(codec {target}\\)'
            with pytest.raises(InvalidArgument, match=names):
                copy()
            assert theirs.end_offset == before
            return
        copy()
        assert theirs.end_offset == before + 1
        record = theirs[before]
        assert record.value == want
        assert (record.key, record.headers, record.timestamp_ns) == (
            b"k",
            (("h", b"1"),),
            5 * 10**9,
        )

    def in_a_transaction() -> None:
        with store.transaction() as tx:
            tx.extend(theirs, ours)

    through(lambda: theirs.extend(ours))
    through(lambda: theirs.extend([ours[0]]))
    through(lambda: theirs.extend(ours[0:1]))
    through(lambda: theirs.extend(ours.last()))
    through(lambda: theirs.extend(ours.follow(timeout=0)))
    through(lambda: theirs.extend(next(ours.batches())))
    through(lambda: theirs.partition(0).extend(ours.partition(0)))
    through(in_a_transaction)


def test_records_that_are_copied_to_a_topic_of_the_same_codec_keep_their_bytes(
    store: falaj.Store,
) -> None:
    texts: Any = store.topic("raw")
    texts.append(b' {"a" : 1.0e0}')
    lines: Any = store._open_topic(
        "lines", codec="json", resolve=lambda _: (None, None), log=None, partitions=None,
        segment_bytes=None, sync_interval_ms=None, sync=None, verify=None,
    )  # fmt: skip
    falaj.Topic(lines, store).extend(texts)  # as programs in other languages do
    ours: Any = store.topic("lines")
    theirs: Any = store.topic("theirs", codec="json")
    theirs.extend(ours)
    assert theirs[0].to_bytes() == b' {"a" : 1.0e0}'
    assert theirs[0].value == {"a": 1.0}


def test_a_tombstone_is_copied_to_a_topic_of_any_codec(store: falaj.Store) -> None:
    prices: Any = store.topic("prices", codec="json")
    prices.tombstone("tea")
    for codec in ("str", "msgpack", "bytes", "pickle"):
        other: Any = store.topic(codec, codec=codec)
        other.extend(prices)
        assert (other[0].raw, other[0].value, other[0].key) == (None, None, b"tea")


def test_a_record_that_cannot_be_read_is_not_copied_to_another_codec_and_the_error_says_which(
    store: falaj.Store,
) -> None:
    broken: Any = store.topic("broken", codec=falaj.Codec("broken", bytes, lambda _: 1 // 0))
    broken.extend([b"x", b"y"])
    target: Any = store.topic("target", codec="json")
    with pytest.raises(
        InvalidArgument, match=r'record 1 of topic "broken" \(codec broken\)'
    ) as refused:
        target.extend([broken[1]])
    assert isinstance(refused.value.__cause__, ZeroDivisionError)
    assert len(target) == 0


def test_a_record_of_a_partition_that_cannot_be_read_is_not_copied_and_both_are_named(
    store: falaj.Store,
) -> None:
    broken: Any = store.partitioned_topic("broken", partitions=3, codec="json")
    store.partitioned_topic("broken", codec=falaj.RAW).append(b"{", partition=2)
    target: Any = store.topic("target", codec="msgpack")
    said = r'record 0 of topic "broken", partition 2 .*: it cannot be read \(JSONDecodeError: Expec'
    with pytest.raises(InvalidArgument, match=said):
        target.extend(broken)


def test_a_record_is_no_value_and_append_says_how_to_copy_it(store: falaj.Store) -> None:
    topic: Any = store.topic("values")
    topic.append(b"x", key="k")
    for record in (topic[0], falaj.NewRecord(b"x")):
        with pytest.raises(TypeError, match=r"extend\(\[record\]\)"):
            topic.append(record)
        with pytest.raises(TypeError, match=r"\[record\]"):
            topic.extend(record)
        with pytest.raises(TypeError):
            topic.append(b"y", key=record)
    assert len(topic) == 1


def test_dead_letters_of_another_codec_are_refused_when_the_queue_is_opened(
    store: falaj.Store,
) -> None:
    jobs: Any = store.topic("jobs", codec="json")
    texts: Any = store.topic("texts", codec="str")
    for where in (texts, "texts"):
        with pytest.raises(
            InvalidArgument, match=r"'texts' of codec str cannot read .* of codec json"
        ):
            store.queue("jobs", jobs, max_attempts=1, dead_letter=where)
    queue = store.queue("jobs", jobs, max_attempts=1, dead_letter=store.topic("any"))
    queue.put({"id": 7})
    queue.take()[0].nack()
    assert queue.take(timeout=0) == []
    assert store.topic("any")[0].to_bytes() == b'{"id":7}'


def test_dead_letters_of_pickles_go_to_a_topic_that_is_there_already(path: Path) -> None:
    for n in range(2):
        with falaj.open(path) as store:
            jobs: Any = store.topic("jobs", codec="pickle")
            queue = store.queue("jobs", jobs, max_attempts=1)
            queue.put({n})
            queue.take()[0].nack()
            assert queue.take(timeout=0) == []
            assert isinstance(queue.dead, falaj.Topic)
            assert queue.dead[n].value == {n}
