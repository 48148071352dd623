"""Tables of Spark's catalog: what commands on them do to a topic, and what works in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

import falaj

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

VIEW = "use CREATE TEMPORARY VIEW name USING falaj"


@pytest.mark.parametrize("columns", ["", "(value BINARY)"])
def test_a_table_of_the_catalog_is_refused_with_what_works_in_its_place(
    spark: SparkSession, orders: Path, tmp_path: Path, columns: str
) -> None:
    options = f"OPTIONS (store '{orders}', subscribe 'plain')"

    def make_and_read() -> None:  # with columns given nothing of falaj is asked before it is read
        spark.sql(f"CREATE TABLE shelf.plain {columns} USING falaj {options}")
        spark.sql("SELECT * FROM shelf.plain").collect()

    spark.sql(f"CREATE DATABASE shelf LOCATION '{tmp_path}'")
    try:
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW name USING falaj"):
            make_and_read()
    finally:
        spark.sql("DROP DATABASE shelf CASCADE")
    spark.sql(f"CREATE TEMPORARY VIEW plain USING falaj {options}")
    try:
        assert spark.sql("SELECT offset FROM plain").count() == 3
    finally:
        spark.catalog.dropTempView("plain")


@pytest.fixture
def shelf(spark: SparkSession, path: Path, tmp_path: Path) -> Iterator[Path]:
    """A store with the topic `out`, and a database `shelf` in Spark's catalog."""
    with falaj.open(path) as store:
        store.topic("out").append(b"first")
    spark.sql(f"CREATE DATABASE shelf LOCATION '{tmp_path}/shelf'")
    yield path
    spark.sql("DROP DATABASE shelf CASCADE")


def written(store: Path) -> list[bytes]:
    with falaj.open(store, read_only=True) as opened:
        return [record.to_bytes() for record in opened.any_topic("out")]


def test_commands_that_spark_asks_a_source_about_are_refused_before_anything_is_written(
    spark: SparkSession, shelf: Path
) -> None:
    given = {"store": str(shelf), "topic": "out"}
    options = f"OPTIONS (store '{shelf}', topic 'out')"
    one = spark.range(1).selectExpr("'x' AS value")
    writer = one.write.format("falaj").options(**given)
    made = f"CREATE TABLE shelf.a USING falaj {options}"
    create = spark.catalog.createTable
    commands: list[tuple[Callable[[], object], str]] = [
        (lambda: spark.sql(made), VIEW),
        (lambda: spark.sql(f"{made} AS SELECT 'x' AS value"), VIEW),
        (lambda: create("shelf.a", None, "falaj", None, None, **given), VIEW),
        (lambda: writer.mode("overwrite").saveAsTable("shelf.a"), "nothing in it is written over"),
    ]
    for command, sentence in commands:
        with pytest.raises(AnalysisException, match=sentence):
            command()
    assert spark.catalog.listTables("shelf") == []
    assert written(shelf) == [b"first"]


def test_a_table_that_spark_makes_unasked_says_what_to_do_and_takes_options_in_the_query(
    spark: SparkSession, shelf: Path
) -> None:
    spark.sql(f"CREATE TABLE shelf.a (value STRING) USING falaj OPTIONS (store '{shelf}')")
    for command in ("SELECT * FROM shelf.a", "INSERT INTO shelf.a VALUES ('x')"):
        with pytest.raises(AnalysisException, match=VIEW):
            spark.sql(command).collect()
    assert written(shelf) == [b"first"]
    spark.sql(f"INSERT INTO shelf.a WITH (`store`='{shelf}', `topic`='out') VALUES ('second')")
    given = f"(`store`='{shelf}', `subscribe`='out', `values`='string')"
    found = spark.sql(f"SELECT value FROM shelf.a WITH {given}").collect()
    assert [row.value for row in found] == ["first", "second"]
    spark.sql("DROP TABLE shelf.a")
    assert written(shelf) == [b"first", b"second"]


def test_save_as_table_appends_and_leaves_a_table_without_options(
    spark: SparkSession, shelf: Path
) -> None:
    writer = spark.range(1).selectExpr("'x' AS value").write.format("falaj").mode("append")
    writer.options(store=str(shelf), topic="out").saveAsTable("shelf.a")
    # Where this changes, Spark tells a source of it: refuse it then.
    assert written(shelf) == [b"first", b"x"]
    with pytest.raises(AnalysisException, match=VIEW):
        spark.table("shelf.a").collect()
