"""`falaj demo`: falaj at work on real flights."""

from __future__ import annotations

from falaj.cli import options
from falaj.cli.arguments import Argument, Command, Option
from falaj.cli.exits import Exit, Stop
from falaj.cli.units import real
from falaj.errors import InvalidArgument

__all__ = ["COMMAND", "demo"]


def demo(folder: str | None, flights: int | None, seconds: float) -> None:
    """Run the demo."""
    from pathlib import Path

    from falaj.demo import Failed, run

    try:
        run(Path(folder or "falaj-demo"), flights=flights, seconds=seconds)
    except Failed as failed:
        raise Stop(str(failed), Exit.CORRUPTION) from None


def _number(text: str) -> float:
    try:
        return real(text)
    except ValueError:
        raise InvalidArgument(f"write a number of seconds, not {text!r}") from None


COMMAND = Command(
    demo,
    "Watch falaj at work on the flights that left New York in 2013.",
    (
        Argument(
            "folder",
            "FOLDER",
            "Where store and report are left (falaj-demo).",
            needed=False,
            read=options.path,
        ),
    ),
    (
        Option("--flights", "flights", "Only the first N flights.", "N", options.whole(-1000)),
        Option(
            "--seconds", "seconds", "How long the producers take (15).", "SECONDS", _number, 15.0
        ),
    ),
    "Three producers, a follower, a killed process, a Spark job, a report. Needs falaj[demo].",
)
