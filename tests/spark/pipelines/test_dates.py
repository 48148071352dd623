"""Dates of times are those that `zoneinfo` tells, whatever the year."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from falaj.pipeline.exporting.dates import local_dates
from falaj.pipeline.exporting.pieces import NO_DATE, by_date

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = sorted(available_timezones())
# Any year, and the years behind which tables of transitions end.
moments = st.datetimes(timezones=st.just(UTC)) | st.integers(2**31, 2**33).map(
    lambda seconds: EPOCH + timedelta(seconds=seconds)
)


def column(times: list[datetime | None]) -> pyarrow.Array:
    return pyarrow.array(times, pyarrow.timestamp("us", tz="UTC"))


def expected(when: datetime | None, zone: str) -> date | None:
    try:
        return None if when is None else when.astimezone(ZoneInfo(zone)).date()
    except OverflowError:
        return None


@settings(deadline=None)
@given(st.lists(st.none() | moments, max_size=30), st.sampled_from(ZONES))
@example([datetime(2038, 7, 1, 22, 30, tzinfo=UTC)], "Europe/Paris")
@example([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)], "Europe/Paris")
@example([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)], "America/New_York")
def test_dates_are_those_of_zoneinfo_in_every_year(times: list[datetime | None], zone: str) -> None:
    wanted = [expected(when, zone) for when in times]
    assert local_dates(column(times), ZoneInfo(zone)).to_pylist() == wanted


@pytest.mark.parametrize(
    "zone", ["Europe/Paris", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Gaza"]
)
@pytest.mark.parametrize("year", [1891, 1911, 1969, 2011, 2026, 2037, 2038, 2050, 2087, 2100, 9998])
def test_each_hour_of_a_year_has_its_date_also_when_clocks_change(zone: str, year: int) -> None:
    times: list[datetime | None] = [
        datetime(year, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * n) for n in range(2 * 8784)
    ]
    wanted = [expected(when, zone) for when in times]
    assert local_dates(column(times), ZoneInfo(zone)).to_pylist() == wanted


def test_rows_are_divided_by_the_date_of_the_zone_and_those_without_one_stand_apart() -> None:
    times: list[datetime | None] = [
        datetime(2050, 6, 30, 22, 30, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        None,
    ]
    batch = pyarrow.record_batch({"at": column(times), "n": [0, 1, 2]})
    found = {day: rows["n"].to_pylist() for day, rows in by_date(batch, "at", "Europe/Paris")}
    assert found == {"2050-07-01": [0], NO_DATE: [1, 2]}


def test_times_beyond_all_dates_have_none() -> None:
    ends = pyarrow.array([-(2**63), 2**63 - 1], pyarrow.int64())
    found = local_dates(ends.cast(pyarrow.timestamp("us", tz="UTC")), ZoneInfo("Asia/Muscat"))
    assert found.to_pylist() == [None, None]
