"""`falaj pipeline aggregate`: windows of a topic summed, into a topic and into Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.pipeline_options import FLOW, mode, text
from falaj.cli.pipelines import command

if TYPE_CHECKING:
    from falaj.cli.pipelines import Loaded

__all__ = ["COMMAND"]


def _load() -> Loaded:
    from falaj.pipeline.streaming.aggregating import AggregateConfig, aggregate

    return AggregateConfig, aggregate


COMMAND = command(
    _load,
    "Sum windows of a stream, each result once.",
    (options.TOPIC,),
    (
        *FLOW,
        text("--window", "SPAN", "How long a window is: '1 hour'."),
        text("--slide", "SPAN", "How far apart windows begin, if they overlap."),
        text("--time", "SQL", "The time that decides (record.timestamp)."),
        text("--watermark", "SPAN", "How late a record may come."),
        text("--by", "SQL", "A group: carrier. May be repeated.", many=True),
        text(
            "--aggregate",
            "SQL",
            "count, 'sum(delay) AS minutes'; may be repeated.",
            "aggregates",
            many=True,
        ),
        mode("--mode", "Windows as they close, or whenever they changed.", "append", "update"),
    ),
)
