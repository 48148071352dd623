"""Times: accepted forms, refused forms, and no loss on the way."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy
import pandas
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


@pytest.mark.parametrize(
    "given",
    [
        numpy.float32(1.5),
        numpy.float16(1.5),
        numpy.float64(1.5),
        Decimal("1.5"),
        Fraction(3, 2),
        timedelta(milliseconds=1500),
        "1.5s",
    ],
)
def test_any_real_number_is_seconds(store: falaj.Store, given: Any) -> None:
    assert _time.seconds(given) == 1.5
    queue = store.queue("jobs", backoff=(given, given))
    queue.put(b"x", delay=given)
    assert queue.take(lease=given, timeout=0) == []
    for whole in (numpy.int64(2), numpy.uint8(2), Decimal(2), 2):
        assert _time.seconds(whole) == 2  # type: ignore[arg-type]


NO_DURATIONS: list[Any] = [
    True,
    numpy.bool_(True),
    numpy.array(1),
    numpy.array(1.0),
    numpy.array([1.0]),
    pandas.Series([1.0]),
    numpy.timedelta64(1, "s"),
    1j,
    b"5",
    [1],
]


@pytest.mark.parametrize("wrong", NO_DURATIONS, ids=lambda wrong: type(wrong).__name__)
def test_no_bool_and_no_array_is_a_duration_of_a_queue(store: falaj.Store, wrong: Any) -> None:
    """Whether the queue is empty, or has a job to dead-letter."""
    with pytest.raises(TypeError, match="seconds"):
        _time.seconds(wrong)
    queue = store.queue("jobs", max_attempts=1)
    for has_worn_job in (False, True):
        if has_worn_job:
            queue.put(b"x")
            job = queue.take(timeout=0)[0]
            job.extend(0.001)
            time.sleep(0.005)  # sleep: the lease ends meanwhile, in its last attempt
        for call in durations_of(queue, wrong):
            with pytest.raises(TypeError, match="seconds"):
                call()
    assert queue.dead is not None
    assert len(queue.dead) == 0


def durations_of(queue: falaj.Queue[Any], wrong: Any) -> list[Callable[[], object]]:
    """Make the calls of a queue that take one."""

    async def taken(**given: Any) -> None:
        await queue.atake(**given)

    return [
        lambda: queue.take(timeout=wrong),
        lambda: queue.take(lease=wrong, timeout=0),
        lambda: queue.jobs(timeout=wrong),
        lambda: queue.jobs(lease=wrong),
        lambda: queue.ajobs(timeout=wrong),
        lambda: queue.ajobs(lease=wrong),
        lambda: asyncio.run(taken(timeout=wrong)),
        lambda: asyncio.run(taken(lease=wrong, timeout=0)),
        lambda: queue.work(print, timeout=wrong),
        lambda: queue.work(print, lease=wrong, timeout=0),
        lambda: queue.put(b"x", delay=wrong),
        lambda: queue.put_many([b"x"], delay=wrong),
    ]


@pytest.mark.parametrize(
    "wrong",
    [-1, -0.5, float("nan"), Decimal("NaN"), Decimal("sNaN"), Decimal("inf"), 10**5000],
    ids=lambda wrong: type(wrong).__name__,
)
def test_a_duration_below_zero_or_without_end_is_refused_by_a_queue(
    store: falaj.Store, wrong: Any
) -> None:
    queue = store.queue("jobs")
    for call in durations_of(queue, wrong):
        with pytest.raises(InvalidArgument, match="seconds"):
            call()
    assert len(queue.topic) == 0


NS = 1_795_000_000_123_456_789


@pytest.mark.parametrize(
    ("time", "ns"),
    [
        ("2026-11-18T11:06:40.123456789Z", NS),
        ("2026-11-18T12:06:40,123456789+01:00", NS),
        ("20261118T110640.123456789Z", NS),
        ("2026-11-18T11:06:40.1234567Z", NS - 89),
        ("2026-11-18T11:06:40.123456789000Z", NS),
        ("2026-11-18T11:06:40.1234567881Z", NS),
        ("2026-11-18T11:06:39.9999999999Z", NS - 123_456_789),
        ("1969-12-31T23:59:59.999999999Z", -1),
        (f"2026-11-18T11:06:40.{'1' * 5000}Z", NS - 12_345_677),
        (pandas.Timestamp(NS, tz="UTC"), NS),
        (pandas.Timestamp(NS, tz="Asia/Muscat"), NS),
        (pandas.Timestamp("1960-01-01T00:00:00.123456789Z"), -315_619_199_876_543_211),
    ],
    ids=lambda given: str(given)[:40],
)
def test_nanoseconds_of_a_time_are_kept_and_finer_ones_round_up(time: Any, ns: int) -> None:
    assert _time.to_ns(time) == ns


def test_a_time_that_pandas_alone_can_keep_is_refused() -> None:
    for beyond in (pandas.Timestamp("2300-01-01", tz="UTC"), pandas.NaT):
        with pytest.raises(InvalidArgument):
            _time.to_ns(beyond)


@pytest.mark.parametrize(
    "time", ["2026-11-18T11:06:40.123456789Z", pandas.Timestamp(NS, tz="UTC")], ids=["text", "pd"]
)
def test_no_call_finds_a_record_a_nanosecond_before_its_time(
    store: falaj.Store, topic: falaj.Topic[Any], time: Any
) -> None:
    for ns in (NS - 1, NS, NS + 1):
        topic.append(b"x", timestamp_ns=ns)
    found = topic.at(time)
    assert found is not None
    assert (found.offset, topic.offset_at(time)) == (1, 1)
    assert [record.offset for record in topic.range(time)] == [1, 2]
    assert [record.offset for record in topic.range(None, time)] == [0]
    assert [record.offset for record in topic.follow(time, timeout=0)] == [1, 2]
    assert (topic.to_arrow(time).num_rows, topic.to_arrow(end=time).num_rows) == (2, 1)
    assert store.consumer("c", "orders", start=time).poll(timeout=0)[0].offset == 1
    topic.append(b"x", timestamp=time)
    topic.extend([falaj.NewRecord(b"x", timestamp=time)])
    assert [topic[at].timestamp_ns for at in (3, 4)] == [NS, NS]
    topic.trim(before_time=time)
    assert topic.start_offset == 1
