"""`falaj pipeline profile`: what is in a topic, in figures and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.pipeline_options import END, START, TOP, text
from falaj.cli.pipelines import command

if TYPE_CHECKING:
    from falaj.cli.pipelines import Loaded

__all__ = ["COMMAND"]


def _load() -> Loaded:
    from falaj.pipeline.profiling.run import ProfileConfig, profile

    return ProfileConfig, profile


COMMAND = command(
    _load,
    "Show rates, sizes, keys and gaps, also as a page.",
    (options.TOPIC,),
    (
        text("--html", "FILE", "Write a page with plots, too."),
        START,
        END,
        TOP,
        text("--origin", "ORIGIN", "Which origin of the place, if several."),
    ),
)
