"""Times: what is taken, what is refused, and that nothing is lost on the way."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj import _time
from falaj.errors import InvalidArgument

LIMIT_S = 2**63 // 10**9


@pytest.mark.parametrize(
    ("time", "ns"),
    [
        (0, 0),
        (-1, -1_000_000_000),
        (1.5, 1_500_000_000),
        (1.0000001, 1_000_000_100),
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T02:00:00.000001+02:00", 1_000),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1_000),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (LIMIT_S, LIMIT_S * 10**9),
    ],
)
def test_a_time_becomes_nanoseconds(time: Any, ns: int) -> None:
    assert _time.to_ns(time) == ns


@pytest.mark.parametrize(
    "time", ["yesterday", "", "2026-11-20T08:00:00", LIMIT_S + 1, float("nan"), float("inf"), 1e300]
)
def test_what_is_no_time_is_refused(time: Any) -> None:
    with pytest.raises(InvalidArgument):
        _time.to_ns(time)


@pytest.mark.parametrize("time", [None, True, b"2026", [], timedelta(1)])
def test_what_cannot_be_a_time_is_a_type_error(time: Any) -> None:
    with pytest.raises(TypeError, match="datetime"):
        _time.to_ns(time)


@given(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001  # hypothesis asks for naive bounds
def test_a_datetime_comes_back_as_it_was(moment: datetime) -> None:
    assert _time.from_ns(_time.to_ns(moment)) == moment
    assert _time.to_ns(moment.isoformat()) == _time.to_ns(moment)
