"""`falaj pipeline dedupe`: a topic copied without repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Option
from falaj.cli.pipeline_options import END, INTO, START, TOP, mode, text
from falaj.cli.pipelines import command

if TYPE_CHECKING:
    from falaj.cli.pipelines import Loaded

__all__ = ["COMMAND"]


def _load() -> Loaded:
    from falaj.pipeline.deduping.run import DedupeConfig, dedupe

    return DedupeConfig, dedupe


COMMAND = command(
    _load,
    "Copy a topic without repeats.",
    (options.TOPIC, INTO),
    (
        text("--by", "WHAT", "key, value, key+value, header:NAME or json:FIELD."),
        mode("--keep", "Which copy by time.", "first", "last"),
        Option(
            "--window",
            "window",
            "Copies further apart are both kept: 1h.",
            "SPAN",
            options.span_from,
        ),
        START,
        END,
        mode("--on-loss", "How to handle records that were trimmed.", "fail", "continue"),
        TOP,
    ),
)
