"""`falaj topic config`: the settings of a topic that may change, shown or changed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.arguments import text as utf8
from falaj.cli.paint import is_terminal
from falaj.cli.retention import NAMES, NONE, RETENTION, changes
from falaj.cli.stores import expect_topics
from falaj.cli.tables import facts
from falaj.cli.units import size, span
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from falaj._retention import TopicRetention
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "changed", "config", "settings_in", "show", "shown_properties"]


def config(
    access: Access,
    topic: str,
    as_json: bool,
    properties: list[tuple[str, str]] | None,
    removed: list[str] | None,
    **settings: Any,
) -> None:
    """Show or change the settings of a topic."""
    if given := changed(properties, removed, settings):
        with access.topic(topic, writes=True) as opened:
            opened.configure(**given)
    with access.store() as store:
        expect_topics(store, topic)
        (found,) = (each for each in store.info()["topics"] if each["name"] == topic)
    if found["retention"] is None:
        raise InvalidArgument(found["problem"] or f"the settings of topic {topic} cannot be read")
    told = settings_in(found["retention"], bool(found["compacted"]))
    show(topic, told, found["properties"] or {}, as_json)


def changed(
    properties: list[tuple[str, str]] | None, removed: list[str] | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """Turn the options into arguments of `Topic.configure`."""
    given = changes(settings)
    if texts := {**dict.fromkeys(removed or ()), **dict(properties or ())}:
        given["properties"] = texts
    return given


def show(topic: str, told: dict[str, Any], kept: dict[str, str], as_json: bool) -> None:
    """Print settings and properties."""
    if as_json:
        print(json.dumps({"topic": topic, **told, "properties": kept}))
    elif is_terminal(sys.stdout):
        settings_of = ((name, _shown(name, value)) for name, value in told.items())
        facts([("topic", topic), *settings_of, *shown_properties(kept)])
    else:
        for name, value in told.items():
            print(name, NONE if value is None else json.dumps(value), sep="\t")
        for name, value in kept.items():
            print("property", json.dumps(name), json.dumps(value), sep="\t")


def shown_properties(kept: dict[str, str]) -> list[tuple[str, str]]:
    """Show properties to a person."""
    return [(f"property {name}", value) for name, value in kept.items()]


def pair(text: str) -> tuple[str, str]:
    """Read the name and the value of a property.

    Raises:
        InvalidArgument: There is no name, or no "=", or they are not UTF-8.
    """
    name, equals, value = utf8(text).partition("=")
    if not equals or not name:
        raise InvalidArgument(f"write NAME=VALUE, not {text!r}")
    return name, value


def settings_in(limits: TopicRetention, compacted: bool) -> dict[str, Any]:
    """Name the limits of a topic as the options do."""
    age = limits["age_ms"]
    values = (
        limits["bytes"],
        None if age is None else age / 1000,
        limits["records"],
        limits["waits"],
        limits["protected"],
        compacted,
    )
    return dict(zip(NAMES, values, strict=True))


def _shown(name: str, value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "retention_bytes":
        return size(value)
    return span(value) if name == "retention_age" else f"{value:,}"


COMMAND = Command(
    config,
    "Show or change the settings of a topic.",
    (options.TOPIC,),
    (
        *options.ACCESS,
        *RETENTION,
        Option(
            "--property",
            "properties",
            "Keep this text with the topic; may be repeated.",
            "NAME=VALUE",
            pair,
            many=True,
        ),
        Option(
            "--remove-property",
            "removed",
            "Remove this property; may be repeated.",
            "NAME",
            many=True,
        ),
        options.AS_JSON._replace(help="Print the settings as one JSON object."),
    ),
    "Settings that are not named stay as they are. A limit deletes nothing by itself: the next "
    "process that writes enforces it, or `falaj maintain`.",
)
