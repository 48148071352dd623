"""A value that a codec does not take: the error names the topic, and says what to do."""

import pickle
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import falaj
from falaj.errors import EncodeFailed, InvalidArgument
from falaj.outbox import Outbox


@dataclass
class Order:
    count: int


def half(value: int) -> bytes:
    if value % 2:
        raise ArithmeticError(f"{value} is odd")
    return b"%d" % (value // 2)


class Unwilling:
    def __reduce__(self) -> str:
        raise LookupError("it stays here")


MINE: falaj.Codec[Any] = falaj.Codec("half", half, int)
TEXTS: falaj.Codec[Any] = falaj.Codec("texts", str, str)  # type: ignore[arg-type]
DATES = falaj.JSON(default=date.isoformat)
ENDLESS = falaj.JSON(default=lambda value: value)
SELF: list[Any] = []
SELF.append([SELF])

# A codec, a value, and what the error says of it, with the remedy.
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "a set in JSON": (
        "json",
        {1},
        r'"json"\) does not take this set value: JSON has no set: make it t',
    ),
    "bytes in a dict": (
        "json",
        {"a": b"x"},
        r"this dict value: JSON has no bytes: make it text, a numb",
    ),
    "no number in JSON": ("json", [float("nan")], r"this list value: JSON has no NaN: give None"),
    "a key in JSON": (
        "json",
        {5: 1},
        r"this dict value: .* keys of a dict are text, not int.*make it",
    ),
    "no date": (DATES, {"a": {1}}, r"this dict value: .*isoformat"),
    "NumPy's True": (
        "json",
        [np.bool_(True)],
        r"this list value: JSON has no numpy\.bool_?: make it",
    ),
    "a default without end": (ENDLESS, {1}, r"this set value: set has no end: .* let it return"),
    "a list without end": (DATES, SELF, r"this list value: the value holds itself"),
    "a set in msgpack": (
        "msgpack",
        {1},
        r"this set value: msgpack has text, .*make it one of them",
    ),
    "a number in msgpack": ("msgpack", 2**64, r"this int value: .*give it as text"),
    "a lock": (
        "pickle",
        threading.Lock(),
        r"this lock value: lock cannot be pickled, so append plain",
    ),
    "what raises": ("pickle", Unwilling(), r"this Unwilling value: LookupError: it stays here"),
    "bytes as text": (
        "str",
        b"x",
        r'"str"\) does not take this bytes value: a topic of str takes str',
    ),
    "half a character": ("str", "\ud800", r"this str value: .* no half characters: replace"),
    "text as bytes": (
        "bytes",
        "x",
        r"this str value: a value is bytes, not str: call \.encode\(\)",
    ),
    "a dict": (
        "raw",
        {},
        r'topic "values" does not take this dict value: .* open the topic with a cod',
    ),
    "no order": (Order, {"count": 1}, r"this dict value: a topic of Order takes Order, not dict"),
    "an order that is none": (Order, Order("x"), r"this Order value: .*count"),  # type: ignore[arg-type]
    "an odd number": (MINE, 7, r"this int value \(ArithmeticError: 7 is odd\): give what `encode`"),
    "a codec that makes text": (
        TEXTS,
        7,
        r"this int value \(TypeError: what the codec makes .*is byte",
    ),
}


def expect(call: Callable[[], object], said: str, topic: str = "values") -> EncodeFailed:
    with pytest.raises(EncodeFailed, match=said) as refused:
        call()
    assert str(refused.value).startswith(f'topic "{topic}"')
    assert refused.value.topic == topic
    assert isinstance(refused.value.__cause__, Exception)
    return refused.value


@pytest.mark.parametrize("kind", REFUSED)
def test_a_refused_value_names_the_topic_and_the_remedy_wherever_it_is_appended(
    store: falaj.Store, kind: str
) -> None:
    codec, value, said = REFUSED[kind]
    topic: Any = store.topic("values", codec=codec)
    queue: Any = store.queue("jobs", topic)
    calls: list[Callable[[], object]] = [
        lambda: topic.append(value),
        lambda: topic.append(value, key="k", sync="durable"),
        lambda: topic.extend([("k", value)]),
        lambda: topic.extend(iter([falaj.NewRecord(value)])),
        lambda: queue.put(value),
        lambda: queue.put_many([falaj.NewRecord(value)]),
    ]
    for call in calls:
        assert expect(call, said).partition == 0
    with store.transaction() as tx:
        expect(lambda: tx.append(topic, value), said)
        expect(lambda: tx.extend(topic, [falaj.NewRecord(value)]), said)
    with topic.stage("job", "0") as part:
        expect(lambda: part.append(value), said)
    assert len(topic) == 0


def test_it_is_what_python_users_expect_and_crosses_processes(store: falaj.Store) -> None:
    refused = expect(lambda: store.topic("values", codec="json").append({1}), "a list or a dict")
    for kind in (falaj.Error, InvalidArgument, TypeError, ValueError):
        assert isinstance(refused, kind)
    again = pickle.loads(pickle.dumps(refused))
    assert (str(again), again.topic, again.partition) == (str(refused), "values", 0)


def test_the_partition_is_named_where_it_is_known(store: falaj.Store) -> None:
    wide: Any = store.partitioned_topic("wide", partitions=3, codec="json")
    known: list[Callable[[], object]] = [
        lambda: wide.append({1}, partition=2),
        lambda: wide.extend([{1}], partition=2),
        lambda: wide.partition(2).append({1}),
        lambda: wide.partition(2).extend([{1}]),
    ]
    with store.transaction() as tx:
        known += [lambda: tx.append("wide", {1}, partition=2)]
        known += [lambda: tx.extend(wide.partition(2), [{1}])]
        for call in known:
            assert expect(call, r'topic "wide", partition 2 \(codec', "wide").partition == 2
        for call in (lambda: wide.append({1}), lambda: wide.extend([{1}])):
            assert expect(call, r'topic "wide" \(codec', "wide").partition is None


def test_a_row_of_an_outbox_is_refused_with_the_topic_and_the_remedy(
    store: falaj.Store, tmp_path: Path
) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key, value)")
        database.execute("INSERT INTO outbox (value) VALUES (7)")
    with (
        Outbox(path, store.topic("values", codec="str")) as outbox,
        pytest.raises(InvalidArgument, match=r'row 1 .*: topic "values" \(codec "str"\)') as told,
    ):
        outbox.relay()
    assert isinstance(told.value.__cause__, EncodeFailed)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_interrupts_a_codec_is_no_error_of_the_value(
    store: falaj.Store, error: type[BaseException]
) -> None:
    def interrupt(_: Any) -> bytes:
        raise error

    topic: Any = store.topic("slow", codec=falaj.Codec("slow", interrupt, bytes))
    calls: list[Callable[[], object]] = [lambda: topic.append(1), lambda: topic.extend([1])]
    for call in calls:
        with pytest.raises(error):
            call()
