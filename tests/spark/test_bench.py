"""The benchmark of Spark runs, at a tiny size: figures mean nothing here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runner import sparking
from runner.rows import SPARK_REFERENCES, SPARK_ROWS
from runner.sizes import TINY

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.proof


def test_spark_is_measured_beside_parquet_and_ready_made_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    measured = sparking.measure(tmp_path, TINY, spark)
    known = {row.key for row in (*SPARK_ROWS, *SPARK_REFERENCES)}
    found = {one.name for one in measured}
    assert {row.key for row in SPARK_ROWS if row.key.startswith("spark")} <= found
    assert found <= known
    assert all(figure > 0 for one in measured for figure in (*one.ours, *one.floor))
