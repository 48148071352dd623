"""Exports of the flights hold what the topic holds, date by date, each record once."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow.parquet
import pytest
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

import falaj
from falaj.errors import (
    CorruptData,
    InvalidArgument,
    LockTimeout,
    LogTruncated,
    NoSpace,
    OffsetOutOfRange,
    SettingsMismatch,
    TopicDeleted,
    UnknownTopic,
)
from falaj.pipeline import ExportConfig, export, exported_files, read_exported
from falaj.pipeline.base.steps import told
from falaj.pipeline.exporting import merging
from falaj.pipeline.exporting import run as exporting
from falaj.pipeline.exporting.folders import Folder
from falaj.spark.streaming.stream import FalajStreamReader
from spark.pipelines.conftest import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from falaj.demo.flights import Flight
    from falaj.pipeline import ExportResult
    from spark.pipelines.conftest import Flown, Told

    Small = Callable[..., ExportResult]

DAY = 86_400
BEGIN = 1_795_132_800  # 2026-11-20T00:00:00Z


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, january: Flown, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, ExportResult]:
    """January's flights, exported by Spark."""
    into = tmp_path_factory.mktemp("lake") / "flights"
    config = ExportConfig(store=january.store, topic=TOPIC, into=into, file_records=5_000)
    return into, export(spark, config)


def test_all_flights_are_exported_on_their_dates(
    lake: tuple[Path, ExportResult], january_flights: list[Flight]
) -> None:
    into, result = lake
    dates = Counter(flight["time_hour"][:10] for flight in january_flights)
    found = Counter[str]()
    for path in exported_files(into):
        found[path.parent.name.removeprefix("date=")] += pyarrow.parquet.read_metadata(
            path
        ).num_rows
    assert found == dates
    assert result.records == len(january_flights)
    assert result.dates == (min(dates), max(dates))
    assert result.bytes == sum(path.stat().st_size for path in exported_files(into))
    assert sum(end - first for first, end in result.partitions.values()) == result.records


def test_columns_are_those_of_the_records(lake: tuple[Path, ExportResult], january: Flown) -> None:
    rows = [row for path in exported_files(lake[0]) for row in rows_of(path)]
    rows.sort(key=lambda row: (row["partition"], row["offset"]))
    with falaj.open(january.store, read_only=True) as store, store.any_topic(TOPIC) as topic:
        expected = [
            {
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": record.key,
                "value": record.to_bytes(),
                "headers": None,
            }
            for number in topic.partitions
            for record in topic.partition(number)
        ]
    assert rows == expected


def test_spark_reads_the_folder_as_a_table_and_sums_it_up_as_python_does(
    spark: SparkSession, lake: tuple[Path, ExportResult], january_flights: list[Flight]
) -> None:
    expected: Counter[tuple[date, str]] = Counter()
    for flight in january_flights:
        if flight["dep_delay"] is not None:
            day = date.fromisoformat(flight["time_hour"][:10])
            expected[day, flight["carrier"]] += flight["dep_delay"]
    for frame in (spark.read.parquet(str(lake[0])), read_exported(spark, lake[0])):
        flown = frame.select(
            "date",
            F.from_json(F.col("value").cast("string"), "carrier STRING, dep_delay INT").alias("f"),
        )
        sums = flown.where("f.dep_delay IS NOT NULL").groupBy("date", "f.carrier")
        found = {(row[0], row[1]): row[2] for row in sums.agg(F.sum("f.dep_delay")).collect()}
        assert found == expected


def test_json_is_exported_as_columns_and_dated_by_a_member(
    spark: SparkSession, january: Flown, tmp_path: Path, told: Told, january_flights: list[Flight]
) -> None:
    config = ExportConfig(
        store=january.store,
        topic=TOPIC,
        into=tmp_path / "l[ak]e{a,b}*",  # no pattern
        columns=("offset", "value"),
        values="json",
        schema="origin STRING, time_hour TIMESTAMP, distance INT",
        date_of="value.time_hour",
        zone="America/New_York",
        end="2013-01-03T00:00:00Z",
    )
    result = export(spark, config, progress=told)
    until = datetime(2013, 1, 3, tzinfo=UTC)
    taken: list[Flight] = []
    ended: set[str] = set()
    for flight in january_flights:  # of each airport up to the first flight of then or later
        if datetime.fromisoformat(flight["time_hour"]) >= until:
            ended.add(flight["origin"])
        if flight["origin"] not in ended:
            taken.append(flight)
    york = ZoneInfo("America/New_York")
    expected: Counter[tuple[date, str]] = Counter()
    for flight in taken:
        there = datetime.fromisoformat(flight["time_hour"]).astimezone(york)
        expected[there.date(), flight["origin"]] += flight["distance"]
    sums = read_exported(spark, config.into).groupBy("date", "value.origin")
    found = {(row[0], row[1]): row[2] for row in sums.agg(F.sum("value.distance")).collect()}
    assert found == expected
    assert result.records == len(taken)
    assert told.said == [
        f"exporting up to {len(taken):,} records",
        f"merging small files into {result.files}",
    ]
    assert told.done == sum(told.totals), told.totals


# --- Without Spark: what runs of an export do to one another -------------------------------------


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    """Export `t` of a small store to `lake`, with tasks that this process does."""
    monkeypatch.setattr(exporting, "run_tasks", in_this_process)
    monkeypatch.setattr(exporting, "cores", lambda _: 1)
    monkeypatch.setattr(merging, "in_spark", merge_in_this_process)
    fill(tmp_path, 20)

    def run(**changed: Any) -> ExportResult:
        given = {"store": tmp_path / "s", "topic": "t", "into": tmp_path / "lake", **changed}
        return export(None, ExportConfig(**given))  # type: ignore[arg-type]

    return run


def in_this_process(_spark: object, work: Any, tasks: list[int], _progress: object) -> None:
    for task in tasks:
        work.do(task)


def merge_in_this_process(
    _spark: object, work: Any, todo: list[list[Any]], _progress: object
) -> list[Any]:
    return [work.do(group) for group in todo]


def fill(folder: Path, count: int, topic: str = "t", start: int = 0) -> None:
    """Append records to two partitions, one a quarter of a day."""
    with falaj.open(folder / "s") as store, store.partitioned_topic(topic, partitions=2) as opened:
        for n in range(start, start + count):
            opened.append(b"%d" % n, timestamp_ns=(BEGIN + n * DAY // 4) * 10**9, partition=n % 2)


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.parquet.ParquetFile(path).read().to_pylist()
    return rows


def seen(into: Path) -> list[int]:
    """The records that lie among the dates, whatever the commits say."""
    return sorted(int(row["value"]) for path in into.glob("date=*/*") for row in rows_of(path))


def committed(into: Path) -> list[int]:
    return sorted(int(row["value"]) for path in exported_files(into) for row in rows_of(path))


def test_a_later_run_exports_what_is_new_and_only_that(small: Small, tmp_path: Path) -> None:
    assert (small().number, small().number) == (1, 1)
    fill(tmp_path, 5, start=20)
    later = small()
    assert (later.records, later.number, later.partitions) == (5, 2, {0: (10, 13), 1: (10, 12)})
    assert later.dates == ("2026-11-25", "2026-11-26")
    assert committed(tmp_path / "lake") == seen(tmp_path / "lake") == list(range(25))


def test_what_began_at_the_latest_goes_on_from_there(small: Small, tmp_path: Path) -> None:
    assert small(start="latest").records == 0
    fill(tmp_path, 3, start=20)
    assert small(start="latest").records == 3
    assert committed(tmp_path / "lake") == [20, 21, 22]


def test_a_run_ends_where_it_is_told_to(small: Small, tmp_path: Path) -> None:
    noon = datetime.fromtimestamp(BEGIN + DAY // 2, UTC)
    assert small(end=noon).records == 2
    assert small(end=noon - timedelta(hours=6)).records == 0
    assert small(end=4).records == 6
    assert small(start=5).records == 12
    assert committed(tmp_path / "lake") == list(range(20))


def test_a_first_run_begins_where_it_is_told_to(small: Small, tmp_path: Path) -> None:
    small(start="2026-11-24T00:00:00Z")
    assert committed(tmp_path / "lake") == [16, 17, 18, 19]


@pytest.mark.parametrize(
    ("zone", "first"), [("UTC", "2026-11-20"), ("America/New_York", "2026-11-19")]
)
def test_dates_are_those_of_the_zone(small: Small, zone: str, first: str) -> None:
    dates = small(zone=zone).dates
    assert dates is not None
    assert dates[0] == first


def test_dates_of_the_run_are_the_day_it_was_planned(small: Small, tmp_path: Path) -> None:
    before = datetime.now(UTC).date().isoformat()
    dates = small(date_of="run").dates
    assert dates is not None
    assert before <= dates[0] == dates[1] <= datetime.now(UTC).date().isoformat()


def test_files_have_no_more_records_than_asked_for(small: Small, tmp_path: Path) -> None:
    small(file_records=3, columns=("value",))
    sizes = [pyarrow.parquet.read_metadata(p).num_rows for p in exported_files(tmp_path / "lake")]
    assert max(sizes) <= 3
    assert committed(tmp_path / "lake") == list(range(20))


def test_a_run_writes_one_file_a_date_whatever_its_tasks_were(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert small().files == 5
    files = exported_files(tmp_path / "lake")
    assert [path.parent.name for path in files] == [f"date=2026-11-2{n}" for n in range(5)]
    assert [int(row["value"]) for row in rows_of(files[0])] == [0, 2, 1, 3]  # by partition
    assert committed(tmp_path / "lake") == seen(tmp_path / "lake") == list(range(20))
    fill(tmp_path, 4, start=20)
    monkeypatch.setattr(merging, "MERGED_BYTES", 1)
    assert small().files == 2  # both are too large to become one
    assert committed(tmp_path / "lake") == list(range(24))


def test_more_dates_than_open_files_are_exported_whole(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("falaj.pipeline.exporting.pieces._OPEN_FILES", 2)
    monkeypatch.setattr("falaj.pipeline.exporting.pieces._WAITING_BYTES", 1)
    monkeypatch.setattr("falaj.spark.reading.columns.BATCH_ROWS_MAX", 1)
    with falaj.open(tmp_path / "s") as store, store.any_topic("t") as topic:
        for n in range(20, 40):  # back and forth between the same days
            topic.append(b"%d" % n, timestamp_ns=(BEGIN + n % 5 * DAY) * 10**9, partition=0)
    assert small().records == 40
    assert committed(tmp_path / "lake") == list(range(40))


def test_records_without_a_date_are_where_hive_expects_them(
    small: Small, tmp_path: Path, spark: SparkSession
) -> None:
    with falaj.open(tmp_path / "s") as store, store.topic("j", codec="json") as topic:
        topic.append({"day": "2026-11-20"})
        topic.append({"day": None})
        topic.append(None)
    small(topic="j", values="json", schema="day DATE", date_of="value.day")
    found = read_exported(spark, tmp_path / "lake").orderBy("offset").select("date").collect()
    assert [row.date for row in found] == [date(2026, 11, 20), None, None]


# --- What is not as it was -----------------------------------------------------------------------


def trim(folder: Path) -> None:
    with falaj.open(folder / "s") as store, store.any_topic("t") as topic:
        topic.partition(0).trim(before_offset=12)


def make_anew(folder: Path) -> None:
    with falaj.open(folder / "s") as store:
        store.any_topic("t").delete()
    fill(folder, 30, start=100)


@pytest.mark.parametrize(
    ("change", "error", "said", "left"),
    [
        (trim, OffsetOutOfRange, "records 10 to 12 were trimmed", [24, *range(21, 26, 2)]),
        (make_anew, TopicDeleted, "deleted and created again", [*range(100, 130)]),
    ],
)
def test_records_that_are_gone_fail_the_run_or_are_reported(
    small: Small,
    tmp_path: Path,
    change: Callable[[Path], None],
    error: type[Exception],
    said: str,
    left: list[int],
) -> None:
    small()
    fill(tmp_path, 6, start=20)
    change(tmp_path)
    with pytest.raises(error, match=f"{said}.*on_loss='continue'"):
        small()
    assert committed(tmp_path / "lake") == seen(tmp_path / "lake") == list(range(20))
    result = small(on_loss="continue")
    assert any(said in note for note in result.notes)
    assert committed(tmp_path / "lake") == sorted([*range(20), *left])
    assert small().notes == ()


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_an_end_in_a_topic_that_was_made_anew_is_one_of_that(
    small: Small, tmp_path: Path, partitions: int
) -> None:
    small()
    with falaj.open(tmp_path / "s") as store:
        store.any_topic("t").delete()
        with store.partitioned_topic("t", partitions=partitions) as topic:
            for n in range(12 * partitions):
                topic.append(
                    b"%d" % (100 + n), timestamp_ns=BEGIN * 10**9, partition=n % partitions
                )
    with pytest.raises(TopicDeleted, match=r"created again.*on_loss='continue'"):
        small(end=50)
    with pytest.raises(OffsetOutOfRange, match=r"0 to 11: end=50 .* leave it away"):
        small(end=50, on_loss="continue")
    assert committed(tmp_path / "lake") == seen(tmp_path / "lake") == list(range(20))
    # It is before what was exported of the old one, whose offsets count no more.
    result = small(end=4, on_loss="continue")
    assert result.partitions == dict.fromkeys(range(partitions), (0, 4))
    assert small(end=2).records == 0
    assert small().records == 8 * partitions
    assert committed(tmp_path / "lake")[20:] == [*range(100, 100 + 12 * partitions)]


def test_a_topic_that_is_made_anew_while_a_run_is_planned_is_a_loss(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small()
    latest = FalajStreamReader.latestOffset

    def meanwhile(*arguments: Any) -> dict[str, Any]:
        found = latest(*arguments)
        with falaj.open(tmp_path / "s") as store:
            store.any_topic("t").delete()
            store.partitioned_topic("t", partitions=5).close()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(FalajStreamReader, "latestOffset", meanwhile)
        with pytest.raises(TopicDeleted, match="created again"):
            small(end=4)
    assert committed(tmp_path / "lake") == list(range(20))


def test_a_log_that_lost_its_end_is_noticed(small: Small, tmp_path: Path) -> None:
    with falaj.open(tmp_path / "s") as store:
        store.backup(tmp_path / "copy")
    fill(tmp_path, 6, start=20)
    small()
    os.rename(tmp_path / "s", tmp_path / "lost")
    os.rename(tmp_path / "copy", tmp_path / "s")
    fill(tmp_path, 8, start=50)
    with pytest.raises(LogTruncated, match="other records before offset 13"):
        small()
    assert small(on_loss="continue").records == 2
    assert committed(tmp_path / "lake") == [*range(26), 56, 57]


def test_records_that_go_while_a_run_lies_dead_are_a_loss_too(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "run_tasks", die)
        with pytest.raises(KeyboardInterrupt):
            small()
    with falaj.open(tmp_path / "s") as store, store.any_topic("t") as topic:
        topic.partition(0).trim(before_offset=4)
    with pytest.raises(OffsetOutOfRange, match="records 0 to 4 were trimmed"):
        small()
    result = small(on_loss="continue")
    assert (result.records, result.resumed) == (16, False)
    assert committed(tmp_path / "lake") == sorted([*range(1, 8, 2), *range(8, 20)])


def test_a_folder_is_exported_to_with_the_settings_of_the_first_run(
    small: Small, tmp_path: Path
) -> None:
    small()
    with pytest.raises(SettingsMismatch, match="was exported with zone = 'UTC', not 'Asia/Muscat'"):
        small(zone="Asia/Muscat")
    fill(tmp_path, 1, topic="other")
    with pytest.raises(SettingsMismatch, match="was exported with topic = 't', not 'other'"):
        small(topic="other")


def test_a_folder_with_something_else_in_it_is_left_alone(small: Small, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake/mine.txt").write_text("mine")
    with pytest.raises(InvalidArgument, match="holds something that is no export"):
        small()
    assert os.listdir(tmp_path / "lake") == ["mine.txt"]


def test_two_runs_to_a_folder_exclude_each_other(small: Small, tmp_path: Path) -> None:
    small()
    with Folder(tmp_path / "lake").locked(), pytest.raises(LockTimeout, match="process"):
        small()
    assert small().records == 0


def test_a_lock_file_that_is_replaced_meanwhile_does_not_let_two_in(
    small: Small, tmp_path: Path
) -> None:
    small()
    folder, lock = Folder(tmp_path / "lake"), fcntl.flock
    with ExitStack() as other, pytest.MonkeyPatch.context() as patch:

        def late(descriptor: int, how: int) -> None:
            patch.undo()
            (folder.control / "lock").unlink()
            other.enter_context(Folder(folder.path).locked())
            lock(descriptor, how)

        patch.setattr(fcntl, "flock", late)
        with pytest.raises(LockTimeout):
            other.enter_context(folder.locked())


def test_a_topic_that_is_not_there_leaves_no_folder_behind(small: Small, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopic):
        small(topic="nothing", into=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_values_that_are_not_what_was_said_fail_or_are_reported(
    small: Small, tmp_path: Path
) -> None:
    with falaj.open(tmp_path / "s") as store, store.topic("b") as topic:
        topic.extend([b"fine", b"\xff", b"too"])
    with pytest.raises(InvalidArgument, match="the value at offset 1 is not UTF-8"):
        small(topic="b", values="string")
    result = small(topic="b", values="string", on_corrupt="skip")
    assert (result.records, result.resumed) == (2, True)
    assert any("offsets 1" in note for note in result.notes)


def test_a_state_that_is_damaged_is_named(small: Small, tmp_path: Path) -> None:
    small()
    fill(tmp_path, 2, start=20)
    small()
    state = tmp_path / "lake/_falaj/commits"
    first = state / f"{1:020}.json"
    kept = first.read_text()
    first.write_text(kept[:-9])
    with pytest.raises(CorruptData, match=r"0001\.json is no JSON"):
        exported_files(tmp_path / "lake")
    first.unlink()
    with pytest.raises(CorruptData, match=r"0001\.json is missing"):
        small()
    first.write_text(kept)
    gone = exported_files(tmp_path / "lake")[0]
    gone.unlink()
    with pytest.raises(CorruptData, match="was exported and is gone"):
        exported_files(tmp_path / "lake")


def test_reading_what_is_no_export_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="is no folder that falaj exported to"):
        exported_files(tmp_path)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"columns": ("valu",)}, "a topic has no column 'valu'"),
        ({"columns": ("value", "value")}, "columns names value twice"),
        ({"origin": "4f2a"}, "origin chooses among the stores that were shipped to a place"),
        ({"columns": ()}, "columns names none"),
        ({"values": "json"}, "schema goes with values='json'"),
        ({"schema": "id INT"}, "schema goes with values='json'"),
        ({"date_of": "offset"}, "date_of is 'timestamp', 'run' or a member"),
        ({"zone": "Mars/Olympus"}, "there is no time zone 'Mars/Olympus'"),
        ({"file_records": 0}, "file_records is from 1 up"),
        ({"start": 5, "end": 2}, "start=5 lies behind end=2, so nothing would be read"),
        ({"format": "delta", "table": "a.b"}, "table goes with format='iceberg': a table"),
        ({"catalog": "prod"}, "catalog goes with format='iceberg'"),
        ({"format": "iceberg"}, "needs the table's name .* table='sales.orders', not None"),
        ({"format": "iceberg", "table": "orders"}, "as table='sales.orders', not 'orders'"),
        ({"format": "delta", "into": "/lake/100%"}, "take % in a path for something else"),
    ],
)
def test_a_config_that_cannot_be_right_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        ExportConfig(**{"store": "s", "topic": "t", "into": "lake", **given})


@pytest.mark.parametrize("there", [False, True])
def test_a_run_that_is_refused_leaves_a_folder_as_it_was(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "lake"
    if there:
        path.mkdir()
    with pytest.raises(RuntimeError), Folder(path).locked():
        raise RuntimeError
    assert path.exists() == there
    with Folder(path).locked():
        (path / "_falaj" / "settings").touch()
    with pytest.raises(RuntimeError), Folder(path).locked():
        raise RuntimeError
    assert (path / "_falaj" / "settings").exists()


def test_a_date_has_to_be_a_member_that_is_a_time(small: Small, spark: SparkSession) -> None:
    with pytest.raises(InvalidArgument, match=r"'value\.day' is no member"):
        small(values="json", schema="id INT", date_of="value.day")
    with pytest.raises(InvalidArgument, match=r"'value\.day' is string: declare it as TIMESTAMP"):
        small(values="json", schema="day STRING", date_of="value.day")
    with pytest.raises(InvalidArgument, match="schema is written as"):
        small(values="json", schema="day WHAT")


def test_the_result_tells_programs_and_people(small: Small, tmp_path: Path) -> None:
    result = small()
    assert json.loads(json.dumps(result.to_dict()))["partitions"] == {"0": [0, 10], "1": [0, 10]}
    assert ("dates", "2026-11-20 to 2026-11-24") in result.rows()


@pytest.mark.parametrize(
    ("refused", "helps"),
    [
        (errno.ENOSPC, "; free some space and run it again"),
        (errno.EDQUOT, "; free some of this user's quota"),
        (errno.EFBIG, "; raise the limit on the size of files, `ulimit -f`, and run it again"),
    ],
)
def test_what_keeps_a_file_from_being_written_is_told_with_what_helps(
    tmp_path: Path, refused: int, helps: str
) -> None:
    with pytest.raises(NoSpace, match=helps), told(tmp_path):
        raise OSError(refused, os.strerror(refused), tmp_path)
