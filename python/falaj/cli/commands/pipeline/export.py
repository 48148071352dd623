"""`falaj pipeline export`: what is new in a topic, in files by date."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Argument, Option
from falaj.cli.pipeline_options import END, START, mode, text
from falaj.cli.pipelines import command, names

if TYPE_CHECKING:
    from falaj.cli.pipelines import Loaded

__all__ = ["COMMAND"]


def _load() -> Loaded:
    from falaj.pipeline.exporting.run import ExportConfig, export

    return ExportConfig, export


COMMAND = command(
    _load,
    "Write what is new in a topic to Parquet files by date, each record once.",
    (
        options.TOPIC,
        Argument("into", "INTO", "The folder to write."),
    ),
    (
        Option("--columns", "columns", "Columns, with commas between.", "NAMES", names),
        mode("--values", "Form of the values.", "binary", "string", "json"),
        text("--schema", "TYPES", "Members of JSON: 'id BIGINT, name STRING'."),
        text("--date-of", "TIME", "timestamp, run or value.MEMBER."),
        text("--zone", "ZONE", "Time zone of dates."),
        START._replace(help="Where the first run begins (earliest)."),
        END._replace(help="Where this run ends at the latest."),
        mode("--format", "Files, or a table over them.", "parquet", "delta", "iceberg"),
        text("--table", "NAME", "Iceberg's name of the table: sales.orders."),
        text("--catalog", "NAME", "Iceberg's name of the catalog (default)."),
        text("--origin", "ORIGIN", "Which origin of the place, if several."),
        mode("--visibility", "Which records are exported.", "durable", "visible"),
        mode("--on-loss", "How to handle missing records.", "fail", "continue"),
        mode("--on-corrupt", "How to handle corrupt records.", "fail", "skip"),
        mode("--on-bad", "How to handle malformed values.", "fail", "skip", "TOPIC"),
        mode("--compression", "Compression of the files.", "zstd", "snappy", "gzip", "none"),
        Option(
            "--file-records",
            "file_records",
            "Most records of a file.",
            "N",
            options.whole(-1000),
        ),
    ),
    "A run that was killed is resumed by the next one.",
)
