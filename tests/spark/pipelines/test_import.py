"""Imports append what files hold, in order, each file once, whatever the files are and who dies."""

from __future__ import annotations

import io
import json
import os
import zipfile
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest

import falaj
from falaj.demo import flights as data
from falaj.errors import CorruptData, InvalidArgument, LockTimeout
from falaj.pipeline import ExportConfig, ImportConfig, export, import_files
from falaj.pipeline.importing import run as importing
from falaj.pipeline.importing.ledgers import TOKEN, Ledger
from spark.pipelines.conftest import JANUARY, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from falaj.pipeline import ImportResult
    from spark.pipelines.conftest import Flown, Told

    Do = Callable[..., ImportResult]

FLIGHT = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour STRING"
)
SALES = "shop STRING, n INT"


@pytest.fixture
def do(spark: SparkSession, tmp_path: Path) -> Do:
    """Import `in/` into `sales`."""
    (tmp_path / "in").mkdir()

    def run(**changed: Any) -> ImportResult:
        given = {"store": tmp_path / "s", "into": "sales", "source": tmp_path / "in", **changed}
        return import_files(spark, ImportConfig(**given))

    return run


def values(folder: Path, topic: str = "sales") -> list[Any]:
    with (
        falaj.open(folder / "s", read_only=True) as store,
        store.topic(topic, codec="raw") as opened,
    ):
        return [json.loads(record.to_bytes()) for record in opened]


def put(folder: Path, name: str, text: str) -> Path:
    (folder / "in" / name).write_text(text)
    return folder / "in" / name


def test_csv_files_of_the_flights_are_in_the_topic_row_by_row(
    do: Do, tmp_path: Path, january_flights: list[data.Flight], told: Told, spark: SparkSession
) -> None:
    with (
        zipfile.ZipFile(data.folder() / "flights.csv.zip") as archive,
        archive.open("flights.csv") as packed,
    ):
        lines = io.TextIOWrapper(packed, "utf-8")
        heading, *rows = [next(lines) for _ in range(JANUARY + 1)]
    for number, begin in enumerate(range(0, JANUARY, 9_002)):
        put(tmp_path, f"{number}.csv", heading + "".join(rows[begin : begin + 9_002]))
    config = ImportConfig(
        store=tmp_path / "s",
        into="flights",
        source=tmp_path / "in",
        schema=FLIGHT,
        options={"nullValue": "NA"},
        key="tailnum",
        time="time_hour",
        partitions=3,
    )
    result = import_files(spark, config, progress=told)
    assert (result.records, result.files, result.bad) == (JANUARY, 3, {})
    assert sum(end - first for first, end in result.offsets.values()) == JANUARY
    assert told.said == ["looking at 3 files", "importing 3 files"]
    assert told.done >= told.totals[-1] > 0
    where = {}
    for number, flight in enumerate(january_flights):
        where[json.dumps(flight)] = number
    with falaj.open(tmp_path / "s", read_only=True) as store, store.any_topic("flights") as topic:
        for partition in topic.partitions:
            numbers = []
            for record in topic.partition(partition):
                flight = json.loads(record.to_bytes())
                numbers.append(where.pop(json.dumps(flight)))
                assert record.key == (flight["tailnum"].encode() if flight["tailnum"] else None)
                assert record.timestamp.isoformat()[:19] + "Z" == flight["time_hour"]
            assert numbers == sorted(numbers), "the order of the files"
    assert not where


def test_each_file_is_imported_once_however_often_it_is_asked_for(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", '{"shop": "x", "n": 1}\n{"shop": "y", "n": 2}\n')
    assert do(schema=SALES).records == 2
    again = do(schema=SALES, source=(str(tmp_path / "in/*.json"), str(tmp_path / "in/a.json")))
    assert (again.records, again.files, again.known) == (0, 0, 1)
    put(tmp_path, "b.json", '{"shop": "z", "n": 3}\n')
    put(tmp_path, "_half.json", "not yet")
    later = do(schema=SALES)
    assert (later.records, later.files, later.known) == (1, 1, 1)
    assert [row["n"] for row in values(tmp_path)] == [1, 2, 3]


def test_a_file_that_changed_is_refused_or_passed_over_and_reported(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", '{"shop": "x", "n": 1}\n')
    do(schema=SALES)
    put(tmp_path, "a.json", '{"shop": "x", "n": 1}\n{"shop": "x", "n": 2}\n')
    put(tmp_path, "b.json", '{"shop": "z", "n": 3}\n')
    with pytest.raises(
        InvalidArgument, match=r"1 file\(s\) changed since they were imported.*a\.json"
    ):
        do(schema=SALES)
    result = do(schema=SALES, on_changed="skip")
    assert (result.files, result.known, len(result.notes)) == (1, 0, 1)
    assert [row["n"] for row in values(tmp_path)] == [1, 3]


def test_records_are_ordered_as_asked_over_all_files(do: Do, tmp_path: Path) -> None:
    for place, name in enumerate(("b", "a")):
        rows = [f'{{"shop": "{n % 3}", "n": {n // 2}, "at": {n}}}' for n in range(place, 40, 2)]
        wide = " " * 500 if name == "b" else ""  # Spark reads large files first
        put(tmp_path, f"{name}.json", "\n".join(row + wide for row in rows[::-1]))
    do(schema="shop STRING, n INT, at INT", order_by="n", key="shop", partitions=2)
    with falaj.open(tmp_path / "s", read_only=True) as store, store.any_topic("sales") as topic:
        for number in topic.partitions:
            found = [json.loads(record.to_bytes()) for record in topic.partition(number)]
            assert [row["n"] for row in found] == sorted(row["n"] for row in found)
            for one, two in pairwise(found):
                assert one["n"] < two["n"] or one["at"] % 2, "file a before file b"


BAD_CSV = "shop,n\nx,1\ny,two\nz,3,4\nw,5\n"


def test_malformed_rows_fail_the_import_with_files_and_counts(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.csv", BAD_CSV)
    put(tmp_path, "b.csv", "shop,n\nv,6\n")
    with pytest.raises(
        InvalidArgument, match=r"2 malformed row\(s\).*a\.csv: 2 malformed, as 'y,two'"
    ):
        do(schema=SALES)
    assert values(tmp_path) == []


def test_malformed_rows_are_skipped_and_counted(do: Do, tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", BAD_CSV)
    result = do(schema=SALES, on_bad="skip")
    assert result.bad == {str(path): 2}
    assert (result.records, len(result.notes)) == (2, 1)
    assert [row["n"] for row in values(tmp_path)] == [1, 5]


def test_malformed_rows_go_to_a_topic_once_also_where_an_import_dies_in_between(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "a.json", '{"shop": "x", "n": 1}\n{"shop": \n{"shop": "y", "n": "no"}\n')
    with monkeypatch.context() as patch:
        patch.setattr(importing._Run, "_commit_bad", interrupt)
        with pytest.raises(KeyboardInterrupt):
            do(schema=SALES, on_bad="rejected")
    assert rejected(tmp_path) == []
    for _ in range(2):
        assert do(schema=SALES, on_bad="rejected").records == 0
        assert [value for _, value in rejected(tmp_path)] == [
            '{"shop": ',
            '{"shop": "y", "n": "no"}',
        ]
    assert {key for key, _ in rejected(tmp_path)} == {str(path)}
    assert [row["n"] for row in values(tmp_path)] == [1]


def rejected(folder: Path) -> list[tuple[str, str]]:
    with falaj.open(folder / "s", read_only=True) as store, store.any_topic("rejected") as topic:
        return [((record.key or b"").decode(), record.to_bytes().decode()) for record in topic]


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_time_that_is_none_is_a_malformed_row(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", '{"n": 1, "at": "2026-11-20T08:00:00Z"}\n{"n": 2, "at": "soon"}\n')
    result = do(schema="n INT, at STRING", time="at", on_bad="skip")
    assert (result.records, sum(result.bad.values())) == (1, 1)


@pytest.mark.parametrize("moment", ["begin", "_commit"])
@pytest.mark.parametrize("behind", [False, True])
def test_an_import_that_dies_is_done_by_the_next_once(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, behind: bool
) -> None:
    put(tmp_path, "a.json", '{"shop": "x", "n": 1}\n')
    owner = Ledger if moment == "begin" else importing._Run
    doing = getattr(owner, moment)

    def die(*given: Any) -> None:
        if behind:
            doing(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, moment, die)
        with pytest.raises(KeyboardInterrupt):
            do(schema=SALES)
    other = put(tmp_path, "b.json", '{"shop": "y", "n": 2}\n')
    done = moment == "_commit" and behind
    assert do(schema=SALES, source=other).files == 1
    assert do(schema=SALES).files == (0 if done else 1)
    assert do(schema=SALES).known == 2
    assert [row["n"] for row in values(tmp_path)] == ([1, 2] if done else [2, 1])


def test_a_file_that_changes_while_it_is_read_is_not_imported(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "a.json", '{"shop": "x", "n": 1}\n')
    staging = importing._Run._stage

    def stage_and_change(*given: Any) -> Any:
        staged = staging(*given)
        path.write_text('{"shop": "x", "n": 1}\n{"shop": "x", "n": 2}\n')
        return staged

    with monkeypatch.context() as patch:
        patch.setattr(importing._Run, "_stage", stage_and_change)
        with pytest.raises(InvalidArgument, match="changed while it was read"):
            do(schema=SALES)
    assert values(tmp_path) == []
    assert do(schema=SALES).records == 2


def test_what_a_failing_import_staged_is_removed(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.json", '{"shop": "x", "n": 1}\n{"shop": \n')
    staged: list[Path] = []

    def collect(*given: Any) -> Any:
        monkeypatch.undo()
        importing.collect(*given)
        staged.extend((tmp_path / "s").rglob("*.part"))
        raise OSError("the test's own")

    monkeypatch.setattr(importing, "collect", collect)
    with pytest.raises(OSError, match="the test's own"):
        do(schema=SALES, on_bad="rejected")
    assert len(staged) == 2
    assert not list((tmp_path / "s").rglob("*.part"))


def test_two_imports_into_a_topic_exclude_each_other(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", '{"shop": "x", "n": 1}\n')
    with falaj.open(tmp_path / "s") as store:
        store.topic("sales")
        with Ledger.opened(store, "sales"), pytest.raises(LockTimeout):
            do(schema=SALES)
    assert do(schema=SALES).records == 1


def test_a_ledger_that_was_deleted_is_noticed(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", '{"shop": "x", "n": 1}\n')
    do(schema=SALES)
    with falaj.open(tmp_path / "s") as store:
        store.delete_topic("sales.imports")
    with pytest.raises(CorruptData, match="does not tell which files that was"):
        do(schema=SALES)
    with falaj.open(tmp_path / "s") as store:
        assert store.any_topic("sales").forget_idempotency_key(TOKEN)
    assert do(schema=SALES).records == 1


def test_a_topic_that_was_made_anew_gets_all_files_again(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", '{"shop": "x", "n": 1}\n')
    do(schema=SALES)
    with falaj.open(tmp_path / "s") as store:
        store.delete_topic("sales")
    assert do(schema=SALES).records == 1
    assert [row["n"] for row in values(tmp_path)] == [1]


def test_an_export_that_is_imported_is_the_topic_again(
    spark: SparkSession, january: Flown, tmp_path: Path
) -> None:
    with falaj.open(tmp_path / "s") as store, store.partitioned_topic("t", partitions=3) as topic:
        with topic.bulk_load("tombstone") as job:
            job.tombstone(b"gone", partition=2, timestamp_ns=1 * 10**9)
        topic.append(
            b"\xff\x00", headers=[("a", b"1"), ("a", None)], partition=1, timestamp_ns=2 * 10**9
        )
    with falaj.open(january.store, read_only=True) as store, store.any_topic(TOPIC) as flights:
        few = [
            (record.to_bytes(), record.key, number, record.timestamp)
            for number in flights.partitions
            for record in flights.partition(number).last(700)
        ]
    with (
        falaj.open(tmp_path / "s") as store,
        store.any_topic("t") as few_of,
        few_of.bulk_load("few") as job,
    ):
        for value, key, number, when in few:
            job.append(value, key=key, partition=number, timestamp=when)
    export(spark, ExportConfig(store=tmp_path / "s", topic="t", into=tmp_path / "lake"))
    back = ImportConfig(
        store=tmp_path / "s",
        into="back",
        source=tmp_path / "lake",
        partitions=3,
        value="value",
        key="key",
        headers="headers",
        time="timestamp",
        partition="partition",
        order_by=("partition", "offset"),
    )
    assert import_files(spark, back).records == 2_102
    with falaj.open(tmp_path / "s", read_only=True) as store:
        one, two = store.any_topic("t"), store.any_topic("back")
        for number in range(3):
            assert told_of(one.partition(number)) == told_of(two.partition(number))


def told_of(part: falaj.Topic[Any]) -> list[Any]:
    return [
        (r.offset, None if r.value is None else r.to_bytes(), r.key, r.headers, r.timestamp)
        for r in part
    ]


def test_formats_are_told_by_names_and_odd_names_are_fine(do: Do, tmp_path: Path) -> None:
    odd = tmp_path / "in" / "day=1" / "a [1] é%20{b}.parquet"
    odd.parent.mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"n": [1], "payload": [b"\xff"]}), odd)
    assert do(value="payload").records == 1
    with falaj.open(tmp_path / "s", read_only=True) as store:
        assert [record.to_bytes() for record in store.any_topic("sales")] == [b"\xff"]
    assert do(into="rows", columns=("n", "day")).records == 1
    assert values(tmp_path, "rows") == [{"n": 1, "day": 1}]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"source": "nowhere"}, "there is no file nowhere"),
        ({"key": "shp"}, "the files have no column 'shp': they have shop, n"),
        ({"order_by": "x"}, "the files have no column 'x'"),
        ({"value": "n"}, "value='n' is int, and is written as it is only where"),
        ({"time": "n"}, "the column n is int, which is no time"),
        ({"partition": "shop", "on_bad": "sales"}, "on_bad is a topic of its own"),
        ({"into": "x.imports"}, "into is x.imports, and topics whose names end with .imports are"),
        ({"into": "x.dedupe"}, "names end with .dedupe are ledgers of dedupe"),
        ({"on_bad": "sales.imports"}, "on_bad is sales.imports, and topics whose names end"),
        ({"into": "x" * 242}, r"x is too long: x+\.imports has 250 characters"),
        ({"schema": "shop WHAT"}, "schema is written as"),
        ({"value": "shop", "columns": ("n",)}, "columns are those of a row as JSON"),
    ],
)
def test_what_cannot_be_imported_is_refused(
    do: Do, tmp_path: Path, given: dict[str, Any], sentence: str
) -> None:
    put(tmp_path, "a.json", '{"shop": "x", "n": 1}\n')
    with pytest.raises(InvalidArgument, match=sentence):
        do(**{"schema": SALES, **given})


def test_files_of_which_the_format_is_not_known_are_refused(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "x\n")
    with pytest.raises(InvalidArgument, match=r"a\.txt: is no Parquet, CSV or JSON by its name"):
        do()
    put(tmp_path, "b.json", "{}\n")
    os.rename(tmp_path / "in/a.txt", tmp_path / "in/a.csv")
    with pytest.raises(InvalidArgument, match="the files are csv and json"):
        do()
