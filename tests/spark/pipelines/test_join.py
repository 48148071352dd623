"""Real flights enriched from real tables, against plain Python, also when jobs stop anywhere."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.demo import check
from falaj.demo import flights as data
from falaj.errors import InvalidArgument
from falaj.pipeline.streaming import lookup
from falaj.pipeline.streaming.joining import JoinConfig, join
from falaj.pipeline.streaming.lookup import Lookup, Source
from falaj.pipeline.streaming.outputs import Outputs
from spark.conftest import needs_limits
from spark.pipelines.conftest import TOPIC, Flown, Told, fill
from spark.pipelines.test_aggregate import forget_the_last_commit, unlucky

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "carrier STRING, hour INT, dep_delay INT, origin STRING, time_hour STRING"


def job(flown: Flown, folder: Path, **given: Any) -> JoinConfig:
    name = folder.name.replace("[", "-").replace("]", "")
    options: dict[str, Any] = {
        "store": flown.store,
        "topic": TOPIC,
        "checkpoint": folder / "checkpoint",
        "schema": SCHEMA,
        "into": f"joined-{name}",
        "parquet": folder / "parquet",
    }
    return JoinConfig(**options | given)


def in_topic(config: JoinConfig) -> list[dict[str, Any]]:
    assert config.into is not None
    with falaj.open(config.store, read_only=True) as store:
        return [record.value for record in store.any_topic(config.into)]


def in_folder(config: JoinConfig) -> list[dict[str, Any]]:
    """Read the folder as anybody does: without Spark."""
    import pyarrow.dataset

    assert config.parquet is not None
    return list(pyarrow.dataset.dataset(config.parquet).to_table().to_pylist())


def same(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> bool:
    """Compare rows, each as often as it is there."""
    one, other = (
        Counter(json.dumps(row, sort_keys=True) for row in rows) for rows in (left, right)
    )
    return one == other


def without_record(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name != "record"} for row in rows]


def test_flights_and_their_weather_are_those_of_plain_python(
    spark: SparkSession, january_flights: list[data.Flight], tmp_path: Path, told: Told
) -> None:
    flown = fill(tmp_path / "store", flights := january_flights[:3_000])
    config = job(
        flown,
        tmp_path,
        table=data.folder() / "weather.csv",
        table_columns=("origin", "time_hour", "CAST(precip AS DOUBLE) AS precip"),
        null="NA",
        on=("origin", "time_hour"),
    )
    result = join(spark, config, progress=told)
    known = {(origin, hour) for origin, hour in _weather_hours()}
    alone = sum((f["origin"], f["time_hour"]) not in known for f in flights)
    assert result.unmatched == alone > 0
    assert result.records == result.rows_written == told.done == flown.records
    rows = in_folder(config)
    # The sums of the demo, of its own reference; the rain is that of the join.
    assert check.tally(rows, _rain(rows)) == check.tally(flights, data.weather())
    assert same(in_topic(config), without_record(rows))
    places = Counter((row["record"]["partition"], row["record"]["offset"]) for row in rows)
    assert max(places.values()) == 1
    with falaj.open(flown.store, read_only=True) as store:
        source, copy = store.any_topic(TOPIC), store.any_topic(str(config.into))
        moved = [(record.key, record.timestamp) for record in copy]
        assert Counter(moved) == Counter((record.key, record.timestamp) for record in source)


def _weather_hours() -> set[tuple[str, str]]:
    import csv

    with (data.folder() / "weather.csv").open(newline="") as file:
        return {(row["origin"], row["time_hour"]) for row in csv.DictReader(file)}


def _rain(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    return {(r["origin"], r["time_hour"]): r["precip"] for r in rows if r["precip"] is not None}


@pytest.fixture
def shop(path: Path) -> Flown:
    """A store with `sales`, of items a to e in turn, and `items`, which is a table of a to c."""
    with falaj.open(path) as store:
        items = store.partitioned_topic("items", codec="json", partitions=2)
        for name in ("old", "new"):
            for item in "abc":
                items.append({"name": f"{name} {item}"}, key=item.encode())
        items.append({"name": "gone"}, key=b"d")
        items.append(None, key=b"d")
        items.append({"name": "gone, too"}, key=b"e")
        items.tombstone(b"e")
        items.append({"name": "nobody's"})
        items.flush()
    sell(path, range(20))
    return Flown(path, 20)


def sell(path: Path, numbers: range) -> None:
    with (
        falaj.open(path) as store,
        store.partitioned_topic("sales", codec="json", partitions=2) as sales,
    ):
        for n in numbers:
            sales.append({"n": n, "item": "abcde"[n % 5]}, key=b"%d" % (n % 3))
        sales.flush()


def sold(flown: Flown, folder: Path, **given: Any) -> JoinConfig:
    options: dict[str, Any] = {
        "topic": "sales",
        "schema": "n INT, item STRING",
        "table_topic": "items",
        "table_schema": "name STRING",
        "table_columns": ("CAST(record.key AS STRING) AS item", "name"),
        "on": ("item",),
    }
    return job(flown, folder, **options | given)


def named(n: int, name: str = "new") -> dict[str, Any]:
    item = "abcde"[n % 5]
    return {"n": n, "item": item, "name": f"{name} {item}" if item in "abc" else None}


@pytest.mark.proof
def test_one_batch_of_a_topic_that_was_made_anew_is_all_of_it(
    spark: SparkSession, shop: Flown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = sold(shop, tmp_path, trigger="batch", on_loss="continue", parquet=None)

    def fails(*_: Any) -> None:
        raise OSError("the test's own")

    with monkeypatch.context() as patch:
        patch.setattr(Outputs, "_append", fails)
        with pytest.raises(OSError, match="the test's own"):
            join(spark, config)
    with falaj.open(shop.store) as store:
        store.delete_topic("sales")
        sales = store.partitioned_topic("sales", codec="json", partitions=3)
        sales.extend([(b"%d" % n, {"n": n, "item": "a"}) for n in range(7)])
    assert join(spark, config).records == 7
    assert sorted(row["n"] for row in in_topic(config)) == list(range(7))


@pytest.mark.proof
def test_a_topic_is_a_table_of_last_values_which_is_read_anew_when_it_changed(
    spark: SparkSession, shop: Flown, tmp_path: Path
) -> None:
    config = sold(shop, tmp_path, reload=True, how="inner", parquet=None)
    assert join(spark, config).unmatched == 8
    wanted = [named(n) for n in range(20) if n % 5 < 3]
    assert same(in_topic(config), wanted)
    with falaj.open(shop.store) as store:
        store.any_topic("items").append({"name": "late d"}, key=b"d")
    sell(shop.store, range(20, 30))
    result = join(spark, config)
    assert (result.unmatched, result.loads, result.rows_written) == (2, 1, 8)
    late = [{"n": n, "item": "d", "name": "late d"} for n in (23, 28)]
    assert same(in_topic(config), wanted + late + [named(n) for n in range(20, 30) if n % 5 < 3])
    with falaj.open(shop.store, read_only=True) as store:
        for key in (b"0", b"1", b"2"):
            numbers = [r.value["n"] for r in store.any_topic(str(config.into)) if r.key == key]
            assert numbers == sorted(numbers)


@pytest.mark.proof
@needs_limits
def test_a_job_that_stops_where_its_table_changes_writes_each_once_and_both_places_agree(
    spark: SparkSession, shop: Flown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = sold(shop, tmp_path, reload=True, batch=5)
    happened = unlucky(monkeypatch)
    for when in ("before", "after"):
        with pytest.raises(Exception, match=f"the test's own, {when}"):  # Spark's
            join(spark, config)
        # Were a batch made again, it would be another one.
        with falaj.open(shop.store) as store:
            store.any_topic("items").append({"name": f"{when} a"}, key=b"a")
    result = join(spark, config)
    assert happened == ["before", "after"]
    forget_the_last_commit(tmp_path / "checkpoint")
    with falaj.open(shop.store) as store:
        store.any_topic("items").append({"name": "last a"}, key=b"a")
    join(spark, config)
    rows = in_topic(config)
    assert same(rows, without_record(in_folder(config)))
    assert sorted(row["n"] for row in rows) == list(range(20))
    assert not any(row["name"] == "last a" for row in rows)
    assert (result.unmatched, result.rows_written) == (4, 10)


def test_one_batch_up_to_an_end_is_written_once_however_often_it_runs(
    spark: SparkSession, shop: Flown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = sold(shop, tmp_path, trigger="batch", start=1, end=4, broadcast=False)
    append = Outputs._append

    def fails(*_: Any) -> None:
        raise OSError("the test's own")

    monkeypatch.setattr(Outputs, "_append", fails)
    with pytest.raises(OSError, match="the test's own"):
        join(spark, config)
    with falaj.open(shop.store) as store:
        for item in "abc":
            store.any_topic("items").append({"name": f"later {item}"}, key=item.encode())
    monkeypatch.setattr(Outputs, "_append", append)
    with falaj.open(shop.store, read_only=True) as store:
        sales = [r.value["n"] for n in (0, 1) for r in store.any_topic("sales").partition(n)[1:4]]
    assert join(spark, config).records == len(sales) > 0
    assert join(spark, config).records == 0
    rows = in_topic(config)
    assert sorted(row["n"] for row in rows) == sorted(sales)
    assert same(rows, without_record(in_folder(config)))
    named = {row["name"] for row in rows} - {None}
    assert named
    assert not any(name.startswith("later") for name in named)


@pytest.mark.proof
def test_tables_of_files_are_parquet_csv_and_json_and_only_of_one_kind(
    spark: SparkSession, shop: Flown, tmp_path: Path
) -> None:
    files = tmp_path / "tables"
    files.mkdir()
    names = {item: f"{item}!" for item in "abcd"}
    frame = spark.createDataFrame(list(names.items()), "id STRING, name STRING")
    frame.write.parquet(str(files / "parquet"))
    (files / "items.csv").write_text("id,name\n" + "".join(f"{a},{b}\n" for a, b in names.items()))
    lines = [json.dumps({"id": a, "name": b}) + "\n" for a, b in names.items()]
    (files / "items.jsonl").write_text("".join(lines))
    for kind in ("parquet", "items.csv", "items.jsonl"):
        found = lookup.files(spark, files / kind, ("id", "name")).collect()
        assert {row.id: row.name for row in found} == names
    config = JoinConfig(
        store=shop.store,
        topic="sales",
        checkpoint=tmp_path / "checkpoint",
        schema="n INT, item STRING",
        into="labelled",
        table=files / "items.csv",
        on=("item = id",),
        select=("n", "table.name AS label"),
        key="label",
    )
    assert join(spark, config).unmatched == 4
    assert same(in_topic(config), [{"n": n, "label": names.get("abcde"[n % 5])} for n in range(20)])
    with falaj.open(shop.store, read_only=True) as store:
        for record in store.any_topic("labelled"):
            assert (record.key or b"").decode() == (record.value["label"] or "")
    (files / "mixed").mkdir()
    for name in ("items.csv", "items.jsonl"):
        os.link(files / name, files / "mixed" / name)
    for path, sentence in (("mixed", "several kinds, csv, json"), ("nothing", "is no table")):
        with pytest.raises(InvalidArgument, match=sentence):
            lookup.files(spark, files / path)


@pytest.mark.parametrize("kind", ["file", "topic"])
def test_a_table_that_changed_is_read_anew_only_where_that_is_asked_for(
    spark: SparkSession, shop: Flown, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "items.csv"

    def change(name: str) -> None:
        (tmp_path / "new").write_text(f"item,name\na,{name}\n")
        (tmp_path / "new").rename(file)
        with falaj.open(shop.store) as store:
            store.any_topic("items").append({"name": name}, key=b"a")

    change("one")
    columns = ("CAST(record.key AS STRING) AS item", "name")
    topic = Source(store=shop.store, topic="items", schema="name STRING", columns=columns)
    source = Source(path=file) if kind == "file" else topic
    following, keeping = (Lookup(spark, source, reload) for reload in (True, False))
    for name in ("one", "two"):
        change(name)
        for table, wanted in ((following, name), (keeping, "one")):
            found = table.now().where("item = 'a'").first()
            assert found is not None
            assert found["name"] == wanted
    assert following.now() is following.now()
    assert (following.loads, keeping.loads) == (2, 1)
    for table in (following, keeping):
        table.close()


def _file(path: Path) -> dict[str, Any]:
    return {"table": path, "table_topic": None, "table_schema": None, "table_columns": ()}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"table_topic": None}, "give one of table, a file or a folder, and table_topic, a topic"),
        ({"table": "x"}, "give one of table"),
        ({"on": ()}, "on is missing"),
        ({"end": 5}, 'end is for trigger="batch"'),
        ({"table_topic": "sales"}, "the table is read from sales: choose another topic"),
        (_file("items.csv") | {"table_schema": "a INT"}, "table_schema is that of a topic's"),  # type: ignore[arg-type]
        ({"how": "right"}, 'how is "left" or "inner"'),
    ],
)
def test_a_config_that_cannot_be_right_says_what_would_be(
    given: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        sold(Flown(tmp_path / "store", 0), tmp_path, **given)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"on": ("nothing",)}, "Spark does not take on or select"),
        ({"on": ("n = name", "item = item"), "select": ("other",)}, "Spark does not take on or"),
        ({"table_columns": ("nothing",)}, "does not take the columns of the table items"),
        ({"on": ("n = length(name)",)}, "two columns are called item: choose with select"),
        ({"schema": "table INT"}, "the schema has a field 'table'"),
    ],
)
def test_a_config_that_does_not_fit_says_so_and_makes_nothing(
    spark: SparkSession, shop: Flown, tmp_path: Path, given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        join(spark, sold(shop, tmp_path, **given))
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("items.csv", "", "is empty: give it a heading, which names its columns"),
        ("items.json", "", "is empty: give it a row, which names its columns"),
        ("it:ems.csv", "item\na\n", "has a colon in its name, and Spark reads no such file"),
        ("items.csv", "item,N\na,1\n", "two columns are called n: choose with select"),
    ],
)
def test_a_table_that_does_not_do_says_why_and_nothing_is_made(
    spark: SparkSession, shop: Flown, tmp_path: Path, name: str, content: str, sentence: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidArgument, match=sentence):
        join(spark, sold(shop, tmp_path, **_file(tmp_path / name)))
    assert not (tmp_path / "checkpoint").exists()
