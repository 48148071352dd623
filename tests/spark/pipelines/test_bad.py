"""Bad values in pipelines: counted, kept in a topic byte for byte and once, and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.errors import InvalidArgument
from falaj.pipeline import (
    AggregateConfig,
    ExportConfig,
    JoinConfig,
    aggregate,
    export,
    join,
    read_exported,
)
from spark.pipelines.test_aggregate import forget_the_last_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAD = [b"no JSON", b'{"n": "x"}', b"\xff\xfe"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with falaj.open(tmp_path / "s") as opened, opened.partitioned_topic("t", partitions=2) as topic:
        for place, value in enumerate([b'{"n": 1}', *BAD, b'{"n": 2}']):
            topic.append(
                value,
                key=b"k",
                partition=1,
                timestamp_ns=(place + 1) * 10**9,
                headers=[("h", b"1")],
            )
        topic.append(b'{"n": 3}', partition=0, timestamp_ns=9 * 10**9)
        topic.flush()
    return tmp_path / "s"


def given(store: Path, **more: Any) -> dict[str, Any]:
    return {
        "store": store,
        "topic": "t",
        "into": "u",
        "checkpoint": store.parent / "checkpoint",
        "schema": "n INT",
        "trigger": "available-now",
        **more,
    }


def values(store: Path, topic: str = "u") -> list[Any]:
    with falaj.open(store, read_only=True) as opened:
        return [json.loads(record.to_bytes()) for record in opened.any_topic(topic)]


def bad(store: Path) -> list[tuple[Any, ...]]:
    """Read the topic of bad values: value, key, time and where it stood."""
    with falaj.open(store, read_only=True) as opened:
        return [
            (r.to_bytes(), r.key, r.timestamp.timestamp(), dict(r.headers))
            for r in opened.any_topic("bad")
        ]


KEPT = [
    (
        value,
        b"k",
        place + 2.0,
        {
            "h": b"1",
            "falaj-topic": b"t",
            "falaj-partition": b"1",
            "falaj-offset": b"%d" % (place + 1),
        },
    )
    for place, value in enumerate(BAD)
]


def test_an_aggregate_keeps_bad_values_once_also_when_a_batch_is_done_again(
    spark: SparkSession, store: Path
) -> None:
    config = AggregateConfig(
        **given(store, on_bad="bad", aggregates=("sum(n) AS n",), mode="update")
    )
    done = aggregate(spark, config)
    assert (done.bad, sum(row["n"] for row in values(store))) == (3, 6)
    assert ("bad values", "3") in done.rows()
    assert bad(store) == KEPT
    forget_the_last_commit(Path(config.checkpoint))
    aggregate(spark, config)
    assert bad(store) == KEPT
    with falaj.open(store) as opened:
        opened.any_topic("t").append(b"more", key=b"k", partition=0)
    assert aggregate(spark, config).bad == 1
    assert [kept[0] for kept in bad(store)] == [*BAD, b"more"]


@pytest.mark.parametrize("trigger", ["available-now", "batch"])
def test_a_join_keeps_bad_values_and_joins_the_others(
    spark: SparkSession, store: Path, tmp_path: Path, trigger: str
) -> None:
    (tmp_path / "names.csv").write_text("n,name\n1,one\n2,two\n3,three\n")
    table = {"table": tmp_path / "names.csv", "on": ("CAST(n AS STRING) = n",)}
    config = JoinConfig(**given(store, on_bad="bad", trigger=trigger, **table))
    done = join(spark, config)
    assert (done.bad, done.rows_written) == (3, 3)
    assert bad(store) == KEPT
    join(spark, config)
    assert bad(store) == KEPT


def test_bad_values_that_are_left_out_are_counted_and_fields_that_no_record_has_are_named(
    spark: SparkSession, store: Path
) -> None:
    sums = {"aggregates": ("count",), "mode": "update"}
    done = aggregate(spark, AggregateConfig(**given(store, schema="N INT", on_bad="skip", **sums)))
    assert done.bad == 2  # one of the three is an object
    [note] = done.notes
    assert note.startswith("value.N is in none of the 4 records that were looked at")
    assert note.endswith("did you mean 'n'?")
    assert done.to_dict()["notes"] == [note]
    more = {"schema": None, "checkpoint": store.parent / "other", "into": "w"}
    done = aggregate(spark, AggregateConfig(**given(store, on_corrupt="skip", **sums, **more)))
    assert (done.bad, done.notes) == (1, ())  # text that is not UTF-8


def exported(store: Path, **more: Any) -> ExportConfig:
    into = store.parent / "lake"
    schema = {"values": "json", "schema": "n INT", "columns": ("value",)}
    return ExportConfig(**{"store": store, "topic": "t", "into": into, **schema, **more})


def test_an_export_keeps_bad_values_once_also_where_it_dies_behind_its_commit(
    spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgument, match="the value at offset 1 is not JSON"):
        export(spark, exported(store))
    config = exported(store, on_bad="bad")
    with monkeypatch.context() as patch:
        patch.setattr("falaj.pipeline.base.bad.keep", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export(spark, config)
    assert export(spark, config).resumed
    assert bad(store) == KEPT
    assert read_exported(spark, config.into).count() == 3
    with falaj.open(store) as opened:
        opened.any_topic("t").append(b"more", key=b"k", partition=0, sync="durable")
    done = export(spark, config)
    assert (done.records, done.bad, dict(done.rows())["bad values"]) == (0, 1, "1")
    assert [kept[0] for kept in bad(store)] == [*BAD, b"more"]


def test_an_export_counts_what_it_leaves_out_and_names_members_that_no_record_has(
    spark: SparkSession, store: Path
) -> None:
    done = export(spark, exported(store, on_bad="skip", schema="N INT"))
    assert (done.records, done.bad) == (4, 2)
    assert any("value.N is in none of the 4 records" in note for note in done.notes)
    assert any("left out 2 records, not JSON" in note for note in done.notes)
    more = {"values": "string", "schema": None, "into": store.parent / "text"}
    assert export(spark, exported(store, on_bad="skip", **more)).bad == 1
    with pytest.raises(InvalidArgument, match="as bytes no value is bad"):
        exported(store, values="binary", schema=None, on_bad="skip")


@pytest.mark.parametrize("topic", ["t", "u"])
def test_bad_values_go_to_a_topic_of_their_own(store: Path, topic: str) -> None:
    with pytest.raises(InvalidArgument, match="on_bad is fail, skip or a topic of its own"):
        AggregateConfig(**given(store, on_bad=topic))
