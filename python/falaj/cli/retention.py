"""The settings of a topic that may change: options of `topic create` and `topic config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from falaj.cli.arguments import Option
from falaj.cli.options import size_from, span_from, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["NAMES", "NONE", "RETENTION", "changes", "or_none"]

#: This value lifts a limit.
NONE = "none"


def or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Make what reads a limit, or the word that lifts it."""
    return lambda text: NONE if text == NONE else read(text)


RETENTION = (
    Option(
        "--retention-bytes",
        "retention_bytes",
        "Keep about so much: 10G, or none for no limit.",
        "SIZE",
        or_none(size_from),
    ),
    Option(
        "--retention-age",
        "retention_age",
        "Keep records for so long: 7d, 12h, or none.",
        "SPAN",
        or_none(span_from),
    ),
    Option(
        "--retention-records",
        "retention_records",
        "Keep so many records of each partition, or none.",
        "N",
        or_none(whole(1)),
    ),
    Option(
        "--retention-waits",
        "retention_waits",
        "Keep, or not, what consumer groups and queues still need.",
        off="--no-retention-waits",
    ),
    Option(
        "--retention-protected",
        "retention_protected",
        "Exempt the topic, or not, from the store-wide limit.",
        off="--no-retention-protected",
    ),
    Option(
        "--compacted",
        "compacted",
        "Allow, or not, `falaj topic compact`.",
        off="--no-compacted",
    ),
)
NAMES = tuple(option.to for option in RETENTION)


def changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn options into the arguments of `Topic.configure`: None lifts a limit."""
    return {
        name: None if value == NONE else value for name, value in given.items() if value is not None
    }
