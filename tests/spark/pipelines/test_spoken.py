"""Errors of Spark that users cause come as one sentence, with the cause."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.errors import InvalidArgument
from falaj.pipeline import AggregateConfig, ExportConfig, JoinConfig, aggregate, export, join
from falaj.pipeline.base.spoken import struct_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def filled(path: Path) -> Path:
    with falaj.open(path) as store, store.topic("t", codec="json") as topic:
        topic.append({"k": "x", "n": 0})
    return path


def summed(path: Path, sql: str, schema: str = "k STRING, n INT") -> AggregateConfig:
    return AggregateConfig(
        store=path,
        topic="t",
        checkpoint=path.parent / "c",
        schema=schema,
        aggregates=(sql,),
        mode="update",
        into="o",
    )


@pytest.mark.parametrize(
    ("sql", "cause"),
    [
        ("sum(1 / n) AS x", "DIVIDE_BY_ZERO: Division by zero"),
        ("sum(k) AS x", "CAST_INVALID_INPUT: The value 'x' of the type"),
        ("max(raise_error('boom')) AS x", "USER_RAISED_EXCEPTION: boom"),
    ],
)
def test_sql_that_fails_at_a_record_says_why_in_one_sentence(
    spark: SparkSession, filled: Path, sql: str, cause: str, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    with pytest.raises(InvalidArgument) as error:
        aggregate(spark, summed(filled, sql))
    said = str(error.value)
    assert said.startswith(f"Spark cannot compute it: {cause}")
    assert "\n" not in said
    assert len(said) < 400
    assert error.value.__cause__ is not None
    assert '"level": "ERROR"' not in capfd.readouterr().err
    assert not logging.getLogger("DataFrameQueryContextLogger").disabled


def test_a_join_of_text_with_numbers_says_which_value_is_none(
    spark: SparkSession, filled: Path
) -> None:
    (filled.parent / "t.json").write_text('{"k": 1}\n')
    config = JoinConfig(
        store=filled,
        topic="t",
        checkpoint=filled.parent / "c",
        schema="k STRING",
        table=filled.parent / "t.json",
        on=("k",),
        into="o",
    )
    with pytest.raises(InvalidArgument, match=r"Spark cannot compute it: .*x"):
        join(spark, config)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("k NOPE", r"not 'k NOPE': Unsupported data type \"NOPE\".*\(line 1, column 3\)$"),
        ("k STRING, , n INT", r"not 'k STRING, , n INT': Syntax error.*\(line 1, column 11\)$"),
        ("INT", r"not 'INT': it is the type int"),
    ],
)
def test_a_wrong_schema_is_named_as_the_user_wrote_it(
    spark: SparkSession, filled: Path, tmp_path: Path, schema: str, said: str
) -> None:
    wanted: Any
    for run, wanted in (
        (aggregate, summed(filled, "count", schema)),
        (
            export,
            ExportConfig(
                store=filled, topic="t", into=tmp_path / "l", values="json", schema=schema
            ),
        ),
    ):
        with pytest.raises(InvalidArgument, match=said) as error:
            run(spark, wanted)
        assert "STRUCT<" not in str(error.value)
        assert "== SQL ==" not in str(error.value)


def test_text_of_a_length_in_a_schema_is_one_sentence(spark: SparkSession, filled: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"not varchar\(4\) \(value\.k\): declare it as STR"):
        aggregate(spark, summed(filled, "count", "k VARCHAR(4)"))


def test_the_place_of_a_fault_is_that_in_the_schema_of_the_user(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgument, match=r"\(line 2, column 3\)$"):
        struct_of("a INT,\nb NOPE")
