"""Windows before 1970, which Spark's first watermark would close before they are open."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.errors import InvalidArgument
from falaj.pipeline import AggregateConfig, aggregate
from falaj.pipeline.streaming import late

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = ["0001-01-02T00:00:00", "1969-12-31T23:10:00", "1969-12-31T23:50:00", "1970-01-01T01:00:00"]


def config(path: Path, tmp_path: Path, **rest: Any) -> AggregateConfig:
    usual: dict[str, Any] = {
        "store": path,
        "topic": "t",
        "checkpoint": tmp_path / "c",
        "schema": "at STRING",
        "time": "CAST(at AS TIMESTAMP)",
        "into": "o",
    }
    return AggregateConfig(**usual | rest)


def fill(path: Path, *rows: str) -> None:
    with falaj.open(path) as store, store.topic("t", codec="json") as topic:
        for row in rows:
            topic.append({"at": row})


def windows(path: Path) -> list[tuple[str, int]]:
    with falaj.open(path, read_only=True) as store:
        return [(r.value["window_start"], r.value["count"]) for r in store.topic("o")]


def test_windows_before_1970_are_counted_as_all_others(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    fill(path, *ROWS)
    with pytest.raises(InvalidArgument, match="timestamp_ntz and no timestamp"):
        aggregate(spark, config(path, tmp_path, time="CAST(at AS TIMESTAMP_NTZ)"))
    wanted = config(path, tmp_path)
    done = aggregate(spark, wanted)
    assert (done.records, done.late) == (4, 0)
    assert done.watermark == "1970-01-01T00:50:00.000Z"
    fill(path, "1970-01-05T00:00:00", "1969-12-31T23:55:00")
    assert aggregate(spark, wanted).late == 1
    assert windows(path) == [
        ("0001-01-02T00:00:00.000000Z", 1),
        ("1969-12-31T23:00:00.000000Z", 2),
        ("1970-01-01T01:00:00.000000Z", 1),
    ]


def test_windows_begin_where_they_began_before_whatever_their_length(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    fill(path, "2026-11-20T08:00:00")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        aggregate(spark, config(path, tmp_path, window="7 minutes", mode="update"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    [(start, _)] = windows(path)
    assert falaj_ms(start) % (7 * 60_000) == 0
    assert 0 <= falaj_ms("2026-11-20T07:00:00Z") - falaj_ms(start) < 7 * 60_000


def falaj_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def test_a_job_from_before_goes_on_and_says_why_it_leaves_them_out(
    spark: SparkSession, path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(path, *ROWS)
    made = late.shift_us
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(late, "shift_us", lambda _: 0)
        with caplog.at_level(logging.WARNING, "falaj.pipeline"):
            done = aggregate(spark, config(path, tmp_path))
    assert late.shift_us is made
    assert (done.late, done.watermark) == (3, "1970-01-01T00:50:00.000Z")
    assert "a new job, with another checkpoint, counts them" in caplog.text
    assert "A longer watermark" not in caplog.text
    assert "shift" not in json.loads((tmp_path / "c/falaj.json").read_bytes())
    fill(path, "1970-01-05T00:00:00")
    aggregate(spark, config(path, tmp_path))
    assert windows(path) == [("1970-01-01T01:00:00.000000Z", 1)]
