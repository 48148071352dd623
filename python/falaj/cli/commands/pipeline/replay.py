"""`falaj pipeline replay`: a range of a topic appended to another, at a speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Option
from falaj.cli.pipeline_options import END, INTO, START, mode, text
from falaj.cli.pipelines import command
from falaj.cli.units import real
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from falaj.cli.pipelines import Loaded

__all__ = ["COMMAND"]


def _load() -> Loaded:
    from falaj.pipeline.replaying.run import ReplayConfig, replay

    return ReplayConfig, replay


def _speed(given: str) -> float | str:
    if given == "max":
        return given
    try:
        return real(given)
    except ValueError:
        raise InvalidArgument(f"write a number, or max, not {given!r}") from None


COMMAND = command(
    _load,
    "Append a range of time to another topic, at a speed.",
    (options.TOPIC, INTO),
    (
        Option("--speed", "speed", "1 as it came, 10 ten times as fast, or max.", "N", _speed),
        START,
        END,
        Option("--shift", "shift", "Times become those of now, or stay.", off="--no-shift"),
        Option(
            "--longest-pause", "longest_pause", "Wait no longer: 10s.", "SPAN", options.span_from
        ),
        Option("--resume", "resume", "Resume where it stopped, or start over.", off="--no-resume"),
        text("--name", "NAME", "Consumer group that keeps the place."),
        mode("--on-loss", "How to handle missing records.", "fail", "continue"),
    ),
    "It runs without Spark.",
    needs_spark=False,
)
