"""Times mean the same nanosecond to the client as they mean to falaj."""

from datetime import datetime
from typing import Any

import pytest

from falaj import _time
from falaj_client._times import to_ns
from falaj_client.errors import InvalidArgument

pandas = pytest.importorskip("pandas")

TIMES = [
    "2026-11-20T08:00:00Z",
    "2026-11-20T08:00:00.000000001Z",
    "2026-11-20T08:00:00.1234567891+02:00",
    "2026-11-20T08:00:00,123456789Z",
    "20261120T080000.1234567Z",
    "2262-04-11T23:47:16.854775807Z",
    "1969-12-31T23:59:59.999999999Z",
    datetime.fromisoformat("2026-11-20T08:00:00.000001+01:00"),
    pandas.Timestamp("2026-01-01T00:00:00.000000123Z"),
]


@pytest.mark.parametrize("time", TIMES, ids=str)
def test_a_time_is_one_nanosecond_in_both(time: Any) -> None:
    assert to_ns(time) == _time.to_ns(time)


@pytest.mark.parametrize(
    "wrong",
    [pandas.NaT, "yesterday", "2026-11-20T08:00:00", datetime(2026, 1, 1), "2263-01-01T00:00:00Z"],  # noqa: DTZ001
    ids=str,
)
def test_what_is_no_time_of_a_record_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument):
        to_ns(wrong)
