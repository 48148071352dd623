"""`falaj pipeline compact`: the last record of each key kept; Spark finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Option
from falaj.cli.pipelines import command

if TYPE_CHECKING:
    from falaj.cli.pipelines import Loaded

__all__ = ["COMMAND"]


def _load() -> Loaded:
    from falaj.pipeline.compacting import CompactConfig, compact

    return CompactConfig, compact


COMMAND = command(
    _load,
    "Keep only the latest record of each key; Spark finds them.",
    (options.TOPIC,),
    (
        Option(
            "--delete-retention",
            "delete_retention",
            "Keep tombstones for so long: 1d (the default), 0.",
            "SPAN",
            options.span_from,
        ),
        Option("--seal", "seal", "Begin a new file first, so that all is looked at."),
    ),
    "For more keys than one process can hold; `falaj topic compact` does the same without Spark.",
)
