"""`falaj pipeline join`: records enriched from a table, into a topic and into Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Option
from falaj.cli.pipeline_options import FLOW, mode, moment, text
from falaj.cli.pipelines import command

if TYPE_CHECKING:
    from falaj.cli.pipelines import Loaded

__all__ = ["COMMAND"]


def _load() -> Loaded:
    from falaj.pipeline.streaming.joining import JoinConfig, join

    return JoinConfig, join


COMMAND = command(
    _load,
    "Enrich a topic's records from a table, each once.",
    (options.TOPIC,),
    (
        *FLOW,
        text("--table", "PATH", "A Parquet, CSV or JSON file, or a folder."),
        text("--table-topic", "TOPIC", "Or a topic: the last value of each key."),
        text("--table-schema", "FIELDS", "Fields of that topic's values."),
        text(
            "--table-column",
            "SQL",
            "A column of the table: 'name AS airline'; may be repeated.",
            "table_columns",
            many=True,
        ),
        text("--null", "TEXT", "Text of a missing value in CSV: NA."),
        text(
            "--on", "SQL", "Columns that match: carrier, 'dest = faa'; may be repeated.", many=True
        ),
        mode("--how", "Keep records that match nothing, or leave them out.", "left", "inner"),
        text("--select", "SQL", "A column of the results; may be repeated.", many=True),
        Option("--reload", "reload", "Read the table again when it changed."),
        Option(
            "--no-broadcast",
            "broadcast",
            "The table is too large for an executor's memory.",
            gives=False,
        ),
        Option("--end", "end", "With --trigger batch: where it ends.", "WHEN", moment),
    ),
)
