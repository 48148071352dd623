"""An error about an argument names it, and says what it may be."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import falaj
from falaj.errors import InvalidArgument, UnknownQueue

START = (
    'start is "earliest", "latest", an offset, an aware datetime or ISO text such as '
    '"2026-11-20T08:00:00Z", not '
)
NO_FLOAT = "an aware datetime or ISO text, not float: write datetime.fromtimestamp(seconds, UTC)"

# Calls with a wrong argument, and the text that their error must have.
SAID: dict[str, tuple[Callable[[Any, Any], object], type[Exception], str]] = {
    "follow": (lambda _, topic: topic.follow("newest"), InvalidArgument, START + "'newest'"),
    "follow a float": (lambda _, topic: topic.follow(1.5), TypeError, NO_FLOAT),
    "start": (
        lambda store, topic: store.consumer("c", [topic], start="newest"),
        InvalidArgument,
        START + "'newest'",
    ),
    "to": (
        lambda store, _: store.seek_group("c", "orders", "newest"),
        InvalidArgument,
        "to is" + START.removeprefix("start is") + "'newest'",
    ),
    "topic": (lambda store, _: store.topic(5), TypeError, "name of a topic is text, not int"),
    "wait": (
        lambda store, _: store.wait_for_topic(5, timeout=0),
        TypeError,
        "name of a topic is text, not int",
    ),
    "delete": (lambda store, _: store.delete_topic(b"t"), TypeError, "a topic is text, not bytes"),
    "group": (lambda store, topic: store.consumer(5, topic), TypeError, "group is text, not int"),
    "topics": (
        lambda store, _: store.consumer("c", 5),
        TypeError,
        "topics is a topic or several, or their names, not int",
    ),
    "cursor_in": (
        lambda store, topic: store.consumer("c", topic, cursor_in=5),
        TypeError,
        "cursor_in is a topic, or the name of a log, not int",
    ),
    "queue": (lambda store, _: store.queue(5), TypeError, "name of a queue is text, not int"),
    "deleted": (
        lambda store, _: store.delete_queue("jbos"),
        UnknownQueue,
        'no queue "jbos" in',
    ),
    "timeout": (
        lambda _, topic: topic.follow(timeout="5"),
        InvalidArgument,
        "a timeout is seconds, a timedelta or text such as 7d, 1h30m, 5m or 90s, not '5'",
    ),
    "age": (
        lambda store, _: store.topic("new", retention_age="7 years"),
        InvalidArgument,
        "retention_age is seconds, a timedelta or text such as 7d, 1h30m, 5m or 90s, not '7 years'",
    ),
    "expect": (
        lambda _, topic: topic.append(b"x", expect="0"),
        TypeError,
        "expect is a whole number, not '0'",
    ),
    "last": (
        lambda _, topic: topic.last(-1),
        InvalidArgument,
        "n is how many records to read, from 0 on, not -1",
    ),
    "take": (
        lambda store, topic: store.queue("q", topic).take(0),
        InvalidArgument,
        "n is how many jobs to take, from 1 on, not 0",
    ),
    "lease": (
        lambda store, topic: store.queue("q", topic).take(lease=10**30),
        InvalidArgument,
        "a lease is below 2**64 seconds, not 1000",
    ),
    "auto_commit": (
        lambda store, topic: store.consumer("c", topic, auto_commit="x"),
        InvalidArgument,
        "auto_commit is seconds, a timedelta or text such as",
    ),
    "negative auto_commit": (
        lambda store, topic: store.consumer("c", topic, auto_commit=-1),
        InvalidArgument,
        "auto_commit is a number of seconds from 0 on, not -1",
    ),
    "fields": (
        lambda _, topic: topic.scan(fields={5: "int64"}),
        TypeError,
        "the name of a field is text, not 5",
    ),
}


@pytest.mark.parametrize("what", SAID)
def test_an_error_names_the_argument_and_what_it_may_be(
    store: falaj.Store, topic: falaj.Topic[str], what: str
) -> None:
    call, error, sentence = SAID[what]
    with pytest.raises(error) as raised:
        call(store, topic)
    assert sentence in str(raised.value)


ARRAYS: list[Callable[[Any], Any]] = [np.array, pd.Series, pd.Index, pl.Series, list, tuple]
"""Makers of an array of a list: comparisons of most of them have no truth."""


@pytest.mark.parametrize("array", ARRAYS)
def test_names_of_topics_in_an_array_are_names_as_those_in_a_list(
    store: falaj.Store, array: Callable[[Any], Any]
) -> None:
    for name in ("a", "b"):
        store.topic(name).append(name.encode())
    consumer = store.consumer("readers", array(["a", "b"]))
    assert consumer.topics == ["a", "b"]
    assert sorted(record.to_bytes() for record in consumer) == [b"a", b"b"]


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("given", [["earliest", "latest"], [1, 2], ["raw"]])
def test_an_array_is_neither_a_place_nor_a_codec_and_is_refused_in_the_usual_sentence(
    store: falaj.Store, array: Callable[[Any], Any], given: list[Any]
) -> None:
    topic, wrong = store.topic("orders"), array(given)
    topic.append(b"one")
    kind = type(wrong).__name__
    place = f"an offset, an aware datetime or ISO text, not {kind}"
    codec = rf"codec is a name, a class of your own or a falaj.Codec\(.*\), not {kind}"
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: topic.follow(wrong), f"start is .*{place}"),
        (lambda: topic.scan(start=wrong), f"start is .*{place}"),
        (lambda: topic.scan(end=wrong), f"end is {place}"),
        (lambda: store.consumer("readers", topic, start=wrong), f"start is .*{place}"),
        (lambda: store.seek_group("readers", "orders", wrong), f"to is .*{place}"),
        (lambda: store.topic("new", codec=wrong), codec),
        (lambda: store.any_topic("orders", codec=wrong), codec),
        (lambda: store.consumer("readers", array([1.5, 2.5])), "reads topics, or names of topics"),
    ]
    for call, said in calls:
        with pytest.raises(TypeError, match=said):
            call()
    assert list(store.topics) == ["orders"]
