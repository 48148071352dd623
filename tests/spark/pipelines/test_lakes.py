"""Delta and Iceberg tables have what an export has committed: each record once, whatever dies."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import polars
import pyarrow
import pytest
from deltalake.exceptions import TableNotFoundError
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import catalog as catalogs
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Transaction
from pyiceberg.utils.config import Config as IcebergConfig

import falaj
from falaj.errors import CorruptData, MissingExtra, SettingsMismatch, SystemCallFailed
from falaj.pipeline import ExportConfig, export, read_exported
from falaj.pipeline.exporting import merging
from falaj.pipeline.exporting import run as exporting
from falaj.pipeline.exporting.folders import Folder
from falaj.pipeline.exporting.lakes import delta, iceberg, lake
from spark.pipelines.conftest import TOPIC
from spark.pipelines.test_export import committed, fill, in_this_process, merge_in_this_process
from spark.pipelines.test_export_deaths import Deaths, Died

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from falaj.demo.flights import Flight
    from falaj.pipeline import ExportResult
    from spark.pipelines.conftest import Flown

FORMATS = ("delta", "iceberg")
only_delta = pytest.mark.parametrize("made", ["delta"], indirect=True)
only_iceberg = pytest.mark.parametrize("made", ["iceberg"], indirect=True)
RECORDS = 8
STRIDE = 6
"""So far apart are the moments at which a run dies; to try all takes minutes."""


@dataclass(frozen=True)
class Made:
    """An export as a table of one of the formats."""

    format: Any
    folder: Path
    into: Path

    def config(self, **changed: Any) -> ExportConfig:
        table = {"table": f"lake.{self.into.name}"} if self.format == "iceberg" else {}
        own: dict[str, Any] = {
            "store": self.folder / "s",
            "topic": "t",
            "into": self.into,
            "file_records": 4,
        }
        return ExportConfig(**own | {"format": self.format} | table | changed)

    def run(self, **changed: Any) -> ExportResult:
        """Export without Spark, in this process."""
        return export(None, self.config(**changed))  # type: ignore[arg-type]

    def rows(self) -> pyarrow.Table:
        """All that the table has, read as its package reads it."""
        if self.format == "delta":
            return deltalake.DeltaTable(self.into).to_pyarrow_table()
        return self.table().scan().to_arrow()

    def table(self) -> Any:
        return catalogs.load_catalog().load_table(f"lake.{self.into.name}")

    def lazy(self) -> polars.LazyFrame:
        """The same for Polars."""
        if self.format == "delta":
            return polars.scan_delta(str(self.into))
        return polars.scan_iceberg(self.table())

    def numbers(self) -> list[int]:
        """The records, which are numbers."""
        return sorted(int(value) for value in self.rows()["value"].to_pylist())

    def forget(self) -> None:
        """Take the table away, and leave the files."""
        if self.format == "delta":
            for entry in (self.into / "_delta_log").iterdir():
                entry.unlink()
            (self.into / "_delta_log").rmdir()
        else:
            catalogs.load_catalog().drop_table(f"lake.{self.into.name}")


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog of Iceberg tables, the one that is asked where none is named."""
    home = tmp_path / "catalog"
    home.mkdir()
    for name, value in {
        "TYPE": "sql",
        "URI": f"sqlite:///{home}/catalog.db",
        "WAREHOUSE": f"file://{home}",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__DEFAULT__{name}", value)
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    # It has read the environment when it was imported.
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", IcebergConfig())
    return home


@pytest.fixture(params=FORMATS)
def made(
    request: pytest.FixtureRequest, tmp_path: Path, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> Made:
    """An export that is not made yet, of a small topic; this process does its tasks."""
    monkeypatch.setattr(exporting, "run_tasks", in_this_process)
    monkeypatch.setattr(exporting, "cores", lambda _: 1)
    monkeypatch.setattr(merging, "in_spark", merge_in_this_process)
    fill(tmp_path, RECORDS)
    return Made(request.param, tmp_path, tmp_path / "lake")


# --- What is in a table --------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_the_flights_are_in_the_table_and_sum_up_as_in_python(
    form: str,
    spark: SparkSession,
    january: Flown,
    january_flights: list[Flight],
    tmp_path: Path,
    catalog: Path,
) -> None:
    each = Made(form, tmp_path, tmp_path / "flights")
    config = each.config(
        store=january.store,
        topic=TOPIC,
        values="json",
        schema="origin STRING, distance INT, time_hour TIMESTAMP",
        file_records=9_000,
    )
    result = export(spark, config)
    assert result.table is not None
    assert str(tmp_path if form == "delta" else "lake.flights") in result.table
    expected: Counter[tuple[date, str]] = Counter()
    for flight in january_flights:
        day = datetime.fromisoformat(flight["time_hour"]).astimezone(UTC).date()
        expected[day, flight["origin"]] += flight["distance"]
    origin = polars.col("value").struct.field("origin").alias("origin")
    distance = polars.col("value").struct.field("distance")
    sums = each.lazy().group_by("date", origin).agg(distance.sum()).collect()
    assert {(row[0], row[1]): row[2] for row in sums.iter_rows()} == expected
    assert each.rows().num_rows == result.records == len(january_flights)
    assert read_exported(spark, each.into).count() == len(january_flights)


def test_a_later_run_adds_what_is_new_and_only_that(made: Made) -> None:
    made.run(end=1)
    assert made.numbers() == [0, 1]
    made.run()
    assert made.numbers() == list(range(RECORDS))
    made.run()
    fill(made.folder, 3, start=RECORDS)
    assert made.run().records == 3
    assert made.numbers() == committed(made.into) == list(range(RECORDS + 3))


def test_what_is_there_already_is_no_part_of_a_table_that_begins_at_the_latest(made: Made) -> None:
    assert made.run(start="latest").records == 0
    assert made.rows().num_rows == 0
    fill(made.folder, 2, start=RECORDS)
    made.run(start="latest")
    assert made.numbers() == [8, 9]


@pytest.mark.usefixtures("spark")
def test_records_have_their_date_or_none(made: Made) -> None:
    with falaj.open(made.folder / "s") as store, store.topic("j", codec="json") as topic:
        topic.extend([{"day": "2026-11-20"}, {"day": None}, None, {"day": "1969-12-31"}])
    made.run(topic="j", values="json", schema="day DATE", date_of="value.day")
    dates = [date(2026, 11, 20), None, None, date(1969, 12, 31)]
    rows = made.rows().sort_by("offset")
    assert rows["date"].to_pylist() == dates
    found = made.lazy().filter(polars.col("date") == date(2026, 11, 20)).collect()
    assert found["offset"].to_list() == [0]


@pytest.mark.usefixtures("spark")
def test_values_of_all_types_are_columns(made: Made) -> None:
    schema = """b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, f FLOAT, d DOUBLE,
        s STRING, day DATE, at TIMESTAMP, l ARRAY<INT>, inner STRUCT<x: INT, y: STRING>"""
    value = {"b": True, "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f": 0.5, "d": 0.25, "s": "ä"}
    value |= {"l": [1, None], "inner": {"x": 1, "y": "z"}}
    day, at = date(2026, 11, 20), datetime(2026, 11, 20, 8, tzinfo=UTC)
    times = {"day": day.isoformat(), "at": at.isoformat()}
    with falaj.open(made.folder / "s") as store, store.topic("j", codec="json") as topic:
        topic.extend([value | times, None])
    made.run(topic="j", values="json", schema=schema)
    first, second = made.rows().sort_by("offset")["value"].to_pylist()
    assert first == value | {"day": day, "at": at}
    assert second is None or set(second.values()) <= {None}


def test_a_folder_with_a_space_in_its_name_is_one_like_others(made: Made) -> None:
    spaced = Made(made.format, made.folder, made.folder / "my lake")
    table = {"table": "lake.spaced"} if made.format == "iceberg" else {}
    spaced.run(**table)
    if made.format == "delta":
        assert spaced.numbers() == list(range(RECORDS))
    else:
        found = catalogs.load_catalog().load_table("lake.spaced").scan().to_arrow()
        assert found.num_rows == RECORDS


# --- What dies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
def test_a_run_that_dies_at_any_step_leaves_a_table_that_the_next_completes(
    made: Made,
    first: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deaths = Deaths(monkeypatch)
    monkeypatch.setattr(lake, "add", deaths.watched(lake.add))

    def begun(name: str) -> Made:
        each = Made(made.format, made.folder, made.folder / name)
        deaths.at(-1)
        if not first:
            each.run(end=RECORDS // 4)
        return each

    whole = begun("whole")
    deaths.at(-1)
    whole.run()
    moments = deaths.taken
    assert moments > 40
    seen = set()
    for moment in sorted({*range(0, moments, STRIDE), moments - 1}):
        each = begun(f"at{moment}")
        deaths.at(moment)
        with pytest.raises(Died):
            each.run()
        deaths.at(-1)
        left = has(each)
        seen.add(left)
        assert left in (None, 0, RECORDS // 2, RECORDS), moment
        each.run()
        assert each.numbers() == committed(each.into) == list(range(RECORDS)), moment
    assert RECORDS in seen
    assert len(seen) >= 2


def has(each: Made) -> int | None:
    """Count what is in a table; None where it is not there."""
    try:
        return len(each.rows())
    except (TableNotFoundError, NoSuchTableError):
        return None


def test_a_table_that_could_not_be_reached_gets_what_it_lacks_from_the_next_run(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.run(end=1)
    kind, name = {
        "delta": (deltalake.DeltaTable, "create_write_transaction"),
        "iceberg": (Transaction, "add_files"),
    }[made.format]

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("the network\nis gone")

    with monkeypatch.context() as patch:
        patch.setattr(kind, name, refuse)
        with pytest.raises(
            SystemCallFailed, match=r"cannot add to the .* table .*network is gone; "
        ):
            made.run()
    assert (made.numbers(), committed(made.into)) == ([0, 1], list(range(RECORDS)))
    assert made.run().records == 0
    assert made.numbers() == list(range(RECORDS))


@only_delta
def test_what_delta_writes_to_its_log_is_put_on_the_medium(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    kept = os.fsync

    def watched(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        kept(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    log = made.into / "_delta_log"
    made.run(end=1)
    assert {*log.iterdir(), log, made.into} <= synced
    last = max(log.glob("*.json"))
    synced.clear()
    made.run(end=2)
    new = max(log.glob("*.json"))
    assert new != last
    # The one before, too: its writer may have died before it came to that.
    assert {last, new, log} <= synced


# --- Whose a table is ----------------------------------------------------------------------------


@only_delta
def test_files_that_were_exported_before_are_in_a_delta_table_that_comes_later(
    made: Made,
) -> None:
    made.run(format="parquet", end=1)
    made.run(format="parquet", end=2)
    made.run()
    assert made.numbers() == list(range(RECORDS))
    assert deltalake.DeltaTable(made.into).version() == 3


@only_iceberg
def test_files_that_were_exported_before_are_in_no_iceberg_table_which_is_said(made: Made) -> None:
    made.run(format="parquet", table=None)
    with pytest.raises(SettingsMismatch, match=r"was exported with table = None, .*lake\.lake"):
        made.run()


def test_a_table_that_was_dropped_is_made_anew(made: Made) -> None:
    made.run(end=1)
    made.run()
    made.forget()
    assert made.run().records == 0
    assert made.numbers() == list(range(RECORDS))


def test_a_file_that_is_gone_before_its_table_had_it_is_told(made: Made) -> None:
    made.run()
    made.forget()
    gone = next(made.into.glob("date=*/*"))
    gone.unlink()
    with pytest.raises(CorruptData, match=f"{gone} was exported and is gone before") as told:
        made.run()
    assert told.value.path == str(gone)


def test_a_table_that_has_more_than_the_folder_is_told(made: Made) -> None:
    made.run(end=1)
    made.run()
    newest = Folder(made.into).last()
    assert newest is not None
    (made.into / f"_falaj/commits/{newest.number:020}.json").unlink()
    with pytest.raises(
        SettingsMismatch, match=r"has commit 2 of the export .*, which has 1: is the"
    ):
        made.run()


def test_a_table_of_somebody_else_is_left_alone(made: Made) -> None:
    schema = pyarrow.schema([("value", pyarrow.binary())])
    if made.format == "delta":
        made.run(format="parquet")
        deltalake.DeltaTable.create(made.into, schema)
    else:
        home = catalogs.load_catalog()
        home.create_namespace("lake")
        home.create_table("lake.lake", schema)
    with pytest.raises(SettingsMismatch, match="was not made by this export"):
        made.run()
    assert made.rows().num_rows == 0


@only_iceberg
def test_another_table_or_none_is_refused_by_a_folder_that_has_one(made: Made) -> None:
    made.run()
    for other in ({"table": "lake.other"}, {"format": "parquet", "table": None}):
        with pytest.raises(SettingsMismatch, match=r"was exported with table = .*lake\.lake"):
            made.run(**other)


def test_who_adds_at_the_same_time_loses_nothing(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.run(end=1)
    strange = made.rows().slice(0, 1)
    module: Any = {"delta": delta.Delta, "iceberg": iceberg.Iceberg}[made.format]
    name = {"delta": "_opened", "iceberg": "_loaded"}[made.format]
    plain, left = getattr(module, name), [3]

    def overtaken(self: Any) -> Any:
        """Open it, and let somebody else be faster with what comes then."""
        opened = plain(self)
        if left[0]:
            left[0] -= 1
            if made.format == "delta":
                deltalake.write_deltalake(made.into, strange, mode="append")
            else:
                made.table().append(strange)
        return opened

    monkeypatch.setattr(module, name, overtaken)
    made.run()
    assert left == [0]
    assert made.numbers() == sorted([0, 0, 0, *range(RECORDS)])


# --- What cannot be ------------------------------------------------------------------------------


def test_a_package_that_is_missing_is_named(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=rf"pip install 'falaj\[{made.format}\]'"):
        made.config()


@only_iceberg
def test_a_catalog_that_cannot_be_reached_is_told_before_anything_is_exported(made: Made) -> None:
    with pytest.raises(
        SystemCallFailed, match=r"cannot open the Iceberg table lake\.lake of .* nowhere: "
    ):
        made.run(catalog="nowhere")
    assert not list(made.into.glob("date=*"))


@only_delta
def test_a_torn_log_is_told_and_an_empty_end_of_it_is_written_again(made: Made) -> None:
    made.run()
    torn = made.into / "_delta_log" / f"{1:020}.json"
    torn.write_bytes(torn.read_bytes()[:40])
    with pytest.raises(
        SystemCallFailed, match=r"the Delta table .*; nothing that is exported is lost"
    ):
        made.run()
    torn.write_bytes(b"")  # as a power failure leaves what was not on the disk yet
    made.run()
    assert made.numbers() == list(range(RECORDS))


# --- The statistics of files ------------------------------------------------------------------


@given(st.datetimes(datetime(1677, 9, 22), datetime(2262, 4, 11), timezones=st.just(UTC)))  # noqa: DTZ001
def test_bounds_of_times_enclose_them_within_a_millisecond(time: datetime) -> None:
    low, high = (datetime.fromisoformat(str(delta._rounded(time, up=up))) for up in (False, True))
    assert low <= time <= high
    assert max(time - low, high - time) < timedelta(milliseconds=1)


def test_bounds_of_numbers_are_the_numbers() -> None:
    assert (delta._rounded(7, up=False), delta._rounded(7, up=True)) == (7, 7)


@only_delta
def test_a_delta_reader_is_told_what_is_in_each_file(made: Made) -> None:
    made.run()
    entries = (made.into / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    added = [json.loads(entry)["add"] for entry in entries if '"add"' in entry]
    rows = made.rows().to_pylist()
    for one in added:
        told = json.loads(one["stats"])
        low, high = told["minValues"], told["maxValues"]
        # A run writes one file a date, with records of all partitions.
        inside = [row for row in rows if str(row["date"]) == one["partitionValues"]["date"]]
        assert len(inside) == told["numRecords"] > 0
        times = [row["timestamp"] for row in inside]
        assert datetime.fromisoformat(low["timestamp"]) == min(times)
        assert datetime.fromisoformat(high["timestamp"]) == max(times)
        for column in ("partition", "offset"):
            found = [row[column] for row in inside]
            assert (low[column], high[column]) == (min(found), max(found))
    assert sum(json.loads(one["stats"])["numRecords"] for one in added) == RECORDS
