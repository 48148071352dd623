"""The verbs `configure` and `maintain`: what is kept, and letting go of the rest."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from falaj.cli import options
from falaj.cli.exits import Stop, told
from falaj.cli.informing import LIMITS, limits_row
from falaj.cli.opened import raw_topic
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, table
from falaj.cli.units import count, size, size_from, span_from
from falaj.errors import NoSuchTopic
from falaj.stores import Store

if TYPE_CHECKING:
    from falaj.retention import Maintenance, TopicRetention

__all__ = ["configure", "maintain"]

_NONE = "none"


def configure(
    context: options.Context,
    store: options.StoreArgument,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Without one: the store as a whole.")
    ] = None,
    most: Annotated[
        str | None,
        typer.Option("--bytes", metavar="SIZE", help="Keep about so much: 10G; none: all of it."),
    ] = None,
    age: Annotated[
        str | None,
        typer.Option("--age", metavar="SPAN", help="Keep for so long: 7d; none: for ever."),
    ] = None,
    records: Annotated[
        str | None,
        typer.Option("--records", metavar="N", help="Keep so many of each partition, or none."),
    ] = None,
    waits: Annotated[
        bool | None, typer.Option("--wait/--no-wait", help="Keep what consumers still need.")
    ] = None,
    protected: Annotated[
        bool | None,
        typer.Option("--protect/--no-protect", help="Let the store's limit take nothing of it."),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Say which records of a topic may go by themselves, or limit a whole store.

    What is not named stays as it is. Nothing goes before somebody writes, or runs `falaj maintain`.
    """
    changes: dict[str, Any] = {}
    if most is not None:
        changes["retention_bytes"] = None if most == _NONE else size_from(most)
    if age is not None:
        changes["retention_age"] = None if age == _NONE else span_from(age)
    if records is not None:
        changes["retention_records"] = None if records == _NONE else _number(records)
    flags = {"retention_waits": waits, "retention_protected": protected}
    changes |= {name: flag for name, flag in flags.items() if flag is not None}
    if not changes:
        raise Stop("say what to change, as --age 7d; `falaj info` shows what is set")
    if topic is None:
        if changes.keys() != {"retention_bytes"}:
            raise Stop("of a store as a whole only --bytes can be set; name a topic")
        with options.access_of(context).store(store, "w") as opened:
            opened.configure(retention_bytes=changes["retention_bytes"])
            _show_store(changes["retention_bytes"], as_json)
        return
    with options.access_of(context).store(store) as opened:
        if topic not in opened.topics():
            raise NoSuchTopic(
                f"there is no topic {topic!r} in {store}; nothing was changed, and `falaj topics` "
                "lists what there is"
            )
    with options.access_of(context).store(store, "w") as opened:
        _show(topic, _configured(opened, topic, changes), as_json)


def _configured(store: Store, topic: str, changes: dict[str, Any]) -> "TopicRetention":
    with raw_topic(store, topic) as opened:
        return opened.configure(**changes)


def _number(text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise Stop(f"--records takes a whole number or none, not {text!r}") from None


def _show_store(limit: int | None, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"retention_bytes": limit}))
    elif is_terminal(sys.stdout):
        print("no limit" if limit is None else f"all logs together are kept to {size(limit)}")
    else:
        print("" if limit is None else limit)


def _show(topic: str, limits: "TopicRetention", as_json: bool) -> None:
    if as_json:
        print(json.dumps({"topic": topic, **limits}))
    else:
        table(LIMITS, [limits_row(topic, limits)])


def maintain(
    context: options.Context,
    store: options.StoreArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Let go of records beyond the limits, in all topics, and finish what others began.

    For cron: topics that are written to are seen to by whoever writes.
    """
    with options.access_of(context).store(store, "r" if dry_run else "w") as opened:
        done = opened.maintain(dry_run=dry_run)
    if as_json:
        print(json.dumps(done))
    else:
        _tell(done)
    of_logs = ((log["problem"], log["remedy"]) for log in done["logs"])
    if code := told((*zip(done["problems"], done["remedies"], strict=True), *of_logs)):
        raise typer.Exit(code)


_CUTS = (
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("first_before", "first", number=True),
    Column("first", "now", number=True),
    Column("limit", "limit"),
    Column("needed", "kept for consumers", number=True),
)


def _tell(done: "Maintenance") -> None:
    cuts = [cut for log in done["logs"] for cut in log["cuts"]]
    rows = [{**cut, "needed": cut["needed"] or None} for cut in cuts]
    table(_CUTS, rows)
    if not is_terminal(sys.stdout):
        return
    segments = sum(log["segments"] for log in done["logs"])
    freed = sum(log["bytes"] for log in done["logs"])
    gone = "would be removed" if done["dry_run"] else "removed"
    print(f"{count(segments, 'segment')}, {size(freed)} {gone}; {size(done['bytes'])} are taken")
