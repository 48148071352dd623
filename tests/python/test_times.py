"""Times: accepted forms, refused forms, and no loss on the way."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import falaj
from falaj import _time
from falaj.errors import InvalidArgument, OffsetOutOfRange


@pytest.mark.parametrize(
    ("time", "ns"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T02:00:00.000001+02:00", 1_000),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1_000),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
    ],
)
def test_a_time_becomes_nanoseconds(time: Any, ns: int) -> None:
    assert _time.to_ns(time) == ns


@pytest.mark.parametrize(
    "time", ["yesterday", "", "2026-11-20T08:00:00", "2300-01-01T00:00:00Z", "1600-01-01T00:00:00Z"]
)
def test_what_is_no_time_is_refused(time: Any) -> None:
    with pytest.raises(InvalidArgument):
        _time.to_ns(time)


@pytest.mark.parametrize("time", [None, True, b"2026", [], timedelta(1)])
def test_what_cannot_be_a_time_is_a_type_error(time: Any) -> None:
    with pytest.raises(TypeError, match="datetime"):
        _time.to_ns(time)


#: Calls that take a time.
CALLS: dict[str, Callable[[falaj.Store, falaj.Topic[Any], Any], Any]] = {
    "append": lambda _, topic, time: topic.append(b"x", timestamp=time),
    "tombstone": lambda _, topic, time: topic.tombstone(b"k", timestamp=time),
    "a new record": lambda _, topic, time: topic.extend([falaj.NewRecord(b"x", timestamp=time)]),
    "at": lambda _, topic, time: topic.at(time),
    "offset_at": lambda _, topic, time: topic.offset_at(time),
    "range": lambda _, topic, time: topic.range(time),
    "follow": lambda _, topic, time: topic.follow(time, timeout=0),
    "trim": lambda _, topic, time: topic.trim(before_time=time),
    "to_arrow": lambda _, topic, time: topic.to_arrow(time),
    "to_arrow up to": lambda _, topic, time: topic.to_arrow("earliest", time),
    "scan": lambda _, topic, time: topic.scan(time),
    "a consumer's start": lambda store, _, time: store.consumer("c", "orders", start=time),
}


@pytest.mark.parametrize("call", CALLS)
def test_seconds_as_a_float_are_no_time_and_the_error_says_what_to_give(
    store: falaj.Store, topic: falaj.Topic[Any], call: str
) -> None:
    topic.append(b"x")
    with pytest.raises(TypeError, match=r"write datetime\.fromtimestamp\(seconds, UTC\)"):
        CALLS[call](store, topic, 1.5)
    assert len(topic) == 1


def test_nanoseconds_are_kept_and_only_whole_ones_are_taken(topic: falaj.Topic[Any]) -> None:
    topic.append(b"x", timestamp_ns=1_795_161_600_123_456_789)
    assert topic[0].timestamp_ns == 1_795_161_600_123_456_789
    assert topic.offset_at(time_ns=1_795_161_600_123_456_789) == 0
    assert topic.offset_at(time_ns=1_795_161_600_123_456_790) is None
    for wrong in (1.5, True, "2026-11-20T08:00:00Z", datetime.now(UTC)):
        with pytest.raises(TypeError, match="whole number of nanoseconds"):
            topic.append(b"x", timestamp_ns=wrong)  # type: ignore[arg-type]
    for beyond in (2**63, -(2**63), 10**5000):
        with pytest.raises(InvalidArgument, match="1677 to 2262"):
            topic.append(b"x", timestamp_ns=beyond)
    with pytest.raises(InvalidArgument, match="give one of them"):
        topic.append(b"x", timestamp="2026-11-20T08:00:00Z", timestamp_ns=1)
    assert len(topic) == 1


def test_a_range_of_times_has_the_records_between_them(topic: falaj.Topic[Any]) -> None:
    for hour in range(6):
        topic.append(b"%d" % hour, timestamp=f"2026-11-20T{hour:02}:00:00Z")
    noon = datetime(2026, 11, 20, 2, tzinfo=UTC)
    assert [r.offset for r in topic.range(noon, "2026-11-20T04:00:00Z")] == [2, 3]
    assert [r.offset for r in topic.range(noon)] == [2, 3, 4, 5]
    assert [r.offset for r in topic.range(end=noon)] == [0, 1]
    assert [r.offset for r in topic.range(1, noon)] == [1]
    assert [r.offset for r in topic.range(-2)] == [4, 5]
    assert list(topic.range("2026-11-21T00:00:00Z")) == []
    topic.trim(before_time=noon)
    assert [r.offset for r in topic.range("2026-11-20T00:00:00Z", "2026-11-20T03:00:00Z")] == [2]
    with pytest.raises(OffsetOutOfRange):
        topic.range(1)


def test_trim_takes_exactly_one_place(topic: falaj.Topic[Any]) -> None:
    topic.append(b"x", timestamp="2026-11-20T00:00:00Z")
    for places in ({}, {"before_offset": 1, "before_time": "2026-11-21T00:00:00Z"}):
        with pytest.raises(InvalidArgument, match="exactly one"):
            topic.trim(**places)  # type: ignore[arg-type]
    assert topic.start_offset == 0


@given(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001  # hypothesis asks for naive bounds
def test_a_datetime_comes_back_as_it_was(moment: datetime) -> None:
    assert _time.from_ns(_time.to_ns(moment)) == moment
    assert _time.to_ns(moment.isoformat()) == _time.to_ns(moment)


@pytest.mark.parametrize("given", [300, 300.0, timedelta(minutes=5), "5m", "300s", "0h5m"])
def test_a_duration_is_seconds_a_timedelta_or_text(store: falaj.Store, given: Any) -> None:
    assert _time.seconds(given) == 300
    topic = store.topic("timed", compacted=True)
    assert topic.configure(retention_age=given)["age_ms"] == 300_000
    assert topic.compact(delete_retention=given)["removed"] == 0
    assert topic.sweep_bulk_loads(older_than=given) == 0
    topic.append(b"x")
    assert topic.wait_durable(0, timeout=given)
    assert next(topic.follow(timeout=given)).offset == 0


@pytest.mark.parametrize("wrong", ["5", "", "soon", "m", "5 m"])
def test_text_that_is_no_duration_is_refused(topic: falaj.Topic[Any], wrong: str) -> None:
    for call in (
        lambda: topic.follow(timeout=wrong),
        lambda: topic.wait_durable(timeout=wrong),
        lambda: topic.configure(retention_age=wrong),
        lambda: topic.compact(delete_retention=wrong),
    ):
        with pytest.raises(InvalidArgument):
            call()
    with pytest.raises(InvalidArgument, match="7d, 1h30m, 5m or 90s"):
        topic.follow(timeout=wrong)
