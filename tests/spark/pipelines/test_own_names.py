"""Fields of the user keep their content, whatever they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.errors import InvalidArgument
from falaj.pipeline import AggregateConfig, ExportConfig, JoinConfig, aggregate, export, join

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DAY = "2026-11-20T08:00:00Z"


def filled(path: Path, *rows: Any) -> None:
    with falaj.open(path) as store, store.topic("t", codec="json") as topic:
        for row in rows:
            topic.append(row, timestamp=DAY)


def results(path: Path, topic: str = "o") -> list[Any]:
    with falaj.open(path, read_only=True) as store:
        return [record.value for record in store.topic(topic)]


def test_a_field_that_is_called_as_a_column_of_the_pipeline_is_summed_up_as_it_is(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    filled(path, {"_time": 3, "_window": "a", "_falaj_bad": 1}, {"_time": 4, "_window": "a"}, "bad")
    config = AggregateConfig(
        store=path,
        topic="t",
        checkpoint=tmp_path / "c",
        schema="_time INT, _window STRING, _falaj_bad INT",
        by=("_window",),
        aggregates=("min(_time) AS low", "max(_falaj_bad) AS bad"),
        mode="update",
        into="o",
        on_bad="skip",
    )
    assert aggregate(spark, config).bad == 1
    [found] = results(path)
    assert (found["_window"], found["low"], found["bad"]) == ("a", 3, 1)


def test_a_field_that_is_called_as_a_column_of_the_pipeline_is_joined_as_it_is(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    row = {"k": "a", "_on0": 7, "_fits": "mine", "_with0": 8}
    filled(path, row, {**row, "k": "b"})
    (tmp_path / "t.csv").write_text("k,_on0,name\na,theirs,tea\n")
    config = JoinConfig(
        store=path,
        topic="t",
        checkpoint=tmp_path / "c",
        schema="k STRING, _on0 INT, _fits STRING, _with0 INT",
        table=tmp_path / "t.csv",
        on=("k",),
        select=("*", "table._on0 AS other"),
        into="o",
    )
    assert join(spark, config).unmatched == 1
    assert results(path) == [{**row, "other": "theirs"}, {**row, "k": "b", "other": None}]


def test_a_field_with_the_mark_of_the_pipelines_own_columns_is_refused(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    filled(path, {})
    config = AggregateConfig(
        store=path, topic="t", checkpoint=tmp_path / "c", schema="`falaj:time` INT", into="o"
    )
    with pytest.raises(InvalidArgument, match="the schema has a field 'falaj:time'"):
        aggregate(spark, config)


@pytest.mark.parametrize("schema", ["i INT, I INT", "a ARRAY<STRUCT<i: INT, I: INT>>"])
def test_members_that_spark_does_not_tell_apart_are_refused(
    spark: SparkSession, path: Path, tmp_path: Path, schema: str
) -> None:
    filled(path, {"i": 1})
    wanted = ExportConfig(
        store=path, topic="t", into=tmp_path / "lake", values="json", schema=schema
    )
    with pytest.raises(InvalidArgument, match="has the fields i and I, which Spark does not tell"):
        export(spark, wanted)
    flow = AggregateConfig(
        store=path, topic="t", checkpoint=tmp_path / "c", schema=schema, into="o"
    )
    with pytest.raises(InvalidArgument, match="has the fields i and I, which Spark does not tell"):
        aggregate(spark, flow)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert export(spark, wanted).records == 1
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_result_with_the_name_of_the_folders_of_batches_is_refused(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    filled(path, {"batch": 7})
    config = AggregateConfig(
        store=path,
        topic="t",
        checkpoint=tmp_path / "c",
        schema="batch INT",
        aggregates=("max(batch) AS Batch",),
        parquet=tmp_path / "p",
    )
    with pytest.raises(InvalidArgument, match="a result is called Batch, as the folders"):
        aggregate(spark, config)
