"""`falaj pipeline import`: rows of files appended to a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli.arguments import Argument, Option
from falaj.cli.pipeline_options import INTO, PARTITIONS, mode, text
from falaj.cli.pipelines import command, names

if TYPE_CHECKING:
    from falaj.cli.pipelines import Loaded

__all__ = ["COMMAND"]


def _load() -> Loaded:
    from falaj.pipeline.importing.run import ImportConfig, import_files

    return ImportConfig, import_files


COMMAND = command(
    _load,
    "Append the rows of Parquet, CSV or JSON files to a topic, each file once.",
    (
        INTO,
        Argument("source", "SOURCE", "Files, folders or patterns.", many=True),
    ),
    (
        PARTITIONS,
        mode(
            "--format",
            "Form of the files; by default as their names say.",
            "parquet",
            "csv",
            "json",
        ),
        text("--schema", "TYPES", "Columns of the files: 'id BIGINT, name STRING'."),
        Option(
            "--option",
            "options",
            "An option of Spark's reader; may be repeated.",
            "NAME=VALUE",
            many=True,
        ),
        text("--value", "NAME", "Column that is the value as it is."),
        Option("--columns", "columns", "Columns of the row as JSON.", "NAMES", names),
        Option("--key", "key", "Column of the key, or several.", "NAMES", names),
        text("--headers", "NAME", "Column of headers."),
        text("--partition", "NAME", "Column of the partition."),
        text("--time", "NAME", "Column of the record's time."),
        Option("--order-by", "order_by", "Columns of the order.", "NAMES", names),
        mode("--on-bad", "How to handle malformed rows.", "fail", "skip", "TOPIC"),
        mode("--on-changed", "How to handle files that changed.", "fail", "skip"),
    ),
)
