"""How many records a run tells of, from what Spark tells of its batches."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.pipeline.base.frame import SILENT
from falaj.pipeline.streaming.aggregating import AggregateConfig
from falaj.pipeline.streaming.jobs import Job
from falaj.pipeline.streaming.outputs import Outputs, Shape
from falaj.pipeline.streaming.runs import Batch, Run
from falaj.spark.streaming import checkpoint
from falaj.spark.streaming.checkpoint import Place, Standing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def told(number: int, start: Any, end: Any, began: Any = None, *, form: Any) -> Any:
    """A batch as Spark tells of it: from places, as generation and offsets, to others."""

    def text(at: Any) -> Any:
        return form(None if at is None else checkpoint.encode(standing(at), standing(began)))

    def standing(at: Any) -> Any:
        return at and {"t": Standing(at[0], {n: Place(offset) for n, offset in enumerate(at[1:])})}

    source = SimpleNamespace(startOffset=text(start), endOffset=text(end))
    return SimpleNamespace(
        batchId=number, durationMs={"addBatch": 1}, sources=[source], observedMetrics={}
    )


@pytest.mark.parametrize("form", [lambda place: place, json.dumps, str], ids=["is", "JSON", "4.1"])
@pytest.mark.parametrize(
    ("batches", "seen"),
    [
        ([(("a", 4, 0), ("a", 7, 2))], [{0: 4, 1: 0}]),
        # Created again, with fewer records, with more and with fewer partitions.
        ([(("a", 44, 0), ("b", 7, 2))], [{0: 0, 1: 0}]),
        ([(("a", 44), ("b", 7, 2))], [{0: 0, 1: 0}]),
        ([(("a", 44, 3), ("b", 7))], [{0: 0}]),
        # The first batch says itself where it began; or else it is where the job did.
        ([(None, ("b", 7, 2), ("b", 5, 1))], [{0: 5, 1: 1}]),
        ([(None, ("b", 7, 2))], [{0: 3, 1: 0}]),
        ([(("a", 1), ("a", 4)), (("a", 4), ("b", 2))], [{0: 1}, {0: 0}]),
    ],
)
def test_a_batch_is_counted_within_one_generation_of_its_topic(
    path: Path, batches: list[Any], seen: list[dict[int, int]], form: Callable[[Any], Any]
) -> None:
    with falaj.open(path) as store:
        store.partitioned_topic("t", partitions=3).append(b"x", partition=0)
    config = AggregateConfig(
        store=path,
        topic="t",
        checkpoint=path,
        into="u",
        window="1 hour",
        time="t",
        on_loss="continue",
    )
    looks: list[Batch] = []
    job = Job("name", path, {0: 3})
    spark: Any = None
    run = Run(spark, config, job, Shape(key=None), SILENT, looks.append)
    query: Any = SimpleNamespace(
        recentProgress=[told(n, *each, form=form) for n, each in enumerate(batches)]
    )
    run._take_in(query)
    assert [batch.start for batch in looks] == seen
    wanted = [
        sum(end - begun[n] for n, end in enumerate(batch[1][1:]))
        for batch, begun in zip(batches, seen, strict=True)
    ]
    assert [batch.records for batch in looks] == wanted
    assert run.records == sum(wanted) > 0
    assert run.ends() == {0: 3, 1: 0, 2: 0}


def test_the_name_of_a_folder_is_no_pattern(spark: SparkSession, tmp_path: Path) -> None:
    job = Job("a", tmp_path / "checkpoint", {})
    outputs = Outputs(job, tmp_path / "store", None, tmp_path / "o[ut]{a,b}*", Shape(key=None))
    outputs.prepare(1)
    rows = spark.range(3)
    for _ in range(2):  # the second time from the folder
        assert outputs.write(spark, 0, lambda: (rows, {"rows": 3})) == {"rows": 3}
