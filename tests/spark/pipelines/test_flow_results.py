"""Results of jobs in a topic: exact times in UTC, and as many partitions as were asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.errors import SettingsMismatch
from falaj.pipeline import AggregateConfig, JoinConfig, aggregate, join

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_another_number_of_partitions_than_the_results_have_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("k,n\na,1\n")
    with falaj.open(tmp_path / "s") as store:
        store.topic("t", codec="json")
        store.topic("u", codec="json")
        given: dict[str, Any] = {
            "store": store.path,
            "topic": "t",
            "into": "u",
            "checkpoint": tmp_path / "c",
            "partitions": 3,
        }
        with pytest.raises(SettingsMismatch, match="topic u has 1 partition, not 3"):
            aggregate(spark, AggregateConfig(**given))
        on: dict[str, Any] = {"schema": "k STRING", "on": ("k",), "table": tmp_path / "t.csv"}
        with pytest.raises(SettingsMismatch, match="topic u has 1 partition, not 3"):
            join(spark, JoinConfig(**given, **on))
    assert not (tmp_path / "c").exists()


def test_times_of_results_are_in_utc_to_the_microsecond_in_any_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("k,n\na,1\n")
    with falaj.open(tmp_path / "s") as store, store.topic("t", codec="json") as topic:
        topic.append({"k": "a", "at": "2026-11-20T09:00:00.123456+01:00"})
        config = JoinConfig(
            store=store.path,
            topic="t",
            into="u",
            checkpoint=tmp_path / "c",
            schema="k STRING, at TIMESTAMP",
            on=("k",),
            table=tmp_path / "t.csv",
        )
        zone = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
        try:
            join(spark, config)
        finally:
            spark.conf.set("spark.sql.session.timeZone", str(zone))
        [record] = store.topic("u", codec="json")
        assert record.value["at"] == "2026-11-20T08:00:00.123456Z"
