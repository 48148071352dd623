"""`falaj group`: show how far consumer groups have read, their lag, and where they resume.

Owns the rows about groups. The library owns what a group is, and when its offsets may move.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Argument, Command, Group, Option
from falaj.cli.exits import Stop, told
from falaj.cli.names import no_such
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, objects, rows_of, table
from falaj.cli.units import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from falaj._admin import GroupInfo, MemberInfo
    from falaj._store import Store
    from falaj.cli.stores import Access

__all__ = ["COLUMNS", "GROUP", "idle", "rows", "show", "show_moved"]

COLUMNS = (
    Column("group", "group"),
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("committed", "committed", number=True),
    Column("lag", "lag", number=True),
    Column("member", "member"),
    Column("metadata", "metadata"),
)
_LISTED = (
    Column("group", "group"),
    Column("topics", "topics"),
    Column("partitions", "partitions", number=True),
    Column("lag", "lag", number=True),
    Column("members", "members", number=True),
)


def list_(access: Access, as_json: bool) -> None:
    """Print a row for each group."""
    with access.store() as opened:
        found = opened.info()["groups"]
    if as_json:
        objects(found)
    else:
        table(_LISTED, [_summary(group) for group in found])
        if not found and is_terminal(sys.stdout):
            print(f"{access.path} has no consumer groups yet")
    _tell_errors(found)


def _summary(group: GroupInfo) -> dict[str, Any]:
    lags = [cursor["lag"] for cursor in group["partitions"]]
    return {
        "group": group["name"],
        "topics": ",".join(dict.fromkeys(cursor["topic"] for cursor in group["partitions"])),
        "partitions": len(group["partitions"]),
        "lag": sum(lag for lag in lags if lag is not None),
        "members": len(group["members"]),
    }


def describe(access: Access, groups: list[str], as_json: bool) -> None:
    """Print a row for each partition of some groups."""
    with access.store() as opened:
        found = [_expect(opened, name) for name in groups]
    show(found, as_json)
    _tell_errors(found)


def show(found: Sequence[GroupInfo], as_json: bool) -> None:
    """Print a row for each partition of groups."""
    if as_json:
        objects(found)
    elif is_terminal(sys.stdout):
        table(COLUMNS, rows(found))
    else:
        rows_of(None, COLUMNS, rows(found))


def _expect(store: Store, name: str) -> GroupInfo:
    """Find a group.

    Raises:
        Stop: There is none of this name; the sentence lists those that there are.
    """
    there = {group["name"]: group for group in store.info()["groups"]}
    if name not in there:
        raise no_such("group", name, list(there), store._where)
    return there[name]


def _tell_errors(found: Sequence[GroupInfo]) -> None:
    if code := told((group["error"], group["error_class"]) for group in found):
        raise Stop.silent(code)


def rows(found: Sequence[GroupInfo]) -> list[dict[str, Any]]:
    """Make a row for each partition of each group, and for each member that has none."""
    return [row for group in found for row in _rows_of(group)]


def _rows_of(group: GroupInfo) -> Iterator[dict[str, Any]]:
    for cursor in group["partitions"]:
        yield {
            "group": group["name"],
            "topic": cursor["topic"],
            "partition": cursor["partition"],
            "committed": cursor["committed"],
            "lag": cursor["lag"],
            "member": _member(cursor["owner"]),
            "metadata": cursor["metadata"] or None,
        }
    for member in idle(group):
        nothing = dict.fromkeys(column.member for column in COLUMNS)
        yield nothing | {"group": group["name"], "member": _member(member)}


def idle(group: GroupInfo) -> list[MemberInfo]:
    """The members that have no partition: there are too many, or one waits for its share."""
    owners = [cursor["owner"] for cursor in group["partitions"]]
    return [member for member in group["members"] if member not in owners]


def _member(owner: MemberInfo | None) -> str | None:
    if owner is None:
        return None
    return "held" if owner["process"] is None else f"process {owner['process']}"


def seek(access: Access, group: str, topic: str, to: Any, partition: int | None) -> None:
    """Set where a group resumes."""
    with access.store() as opened:
        _expect(opened, group)
    with access.store(writes=True) as opened:
        done = opened.seek_group(group, topic, to, partition=partition)
    show_moved(group, topic, done)


def show_moved(group: str, topic: str, done: dict[int, int]) -> None:
    """Print where a group resumes now, in each partition."""
    for number, offset in done.items():
        if is_terminal(sys.stdout):
            print(f"group {group} resumes topic {topic} partition {number} at offset {offset:,}")
        else:
            print(group, topic, number, offset, sep="\t")


def forget(access: Access, group: str, topic: str) -> None:
    """Forget the committed offsets of a group in one topic."""
    with access.store() as opened:
        _expect(opened, group)
    with access.store(writes=True) as opened:
        opened.forget_topic(group, topic)


def delete(access: Access, group: str, yes: bool) -> None:
    """Delete a group with its committed offsets."""
    from falaj.cli.confirm import confirm

    with access.store() as opened:
        cursors = _expect(opened, group)["partitions"]
    offsets = count(len(cursors), "committed offset")
    confirm(f"Delete group {group} with {offsets}?", f"deleting group {group}", yes)
    with access.store(writes=True) as opened:
        opened.delete_group(group)


def _place(text: str) -> Any:
    return text if text in ("earliest", "latest") else options.place(text)


_NAME = Argument("group", "GROUP", "Name of the consumer group.")
GROUP = Group(
    "List, describe and change consumer groups.",
    {
        "list": Command(
            list_,
            "List consumer groups: their topics, lag and members.",
            (),
            (*options.READS, options.AS_JSON),
        ),
        "describe": Command(
            describe,
            "Show each partition of a group: committed offset, lag, member.",
            (_NAME._replace(to="groups", many=True),),
            (*options.READS, options.AS_JSON),
        ),
        "seek": Command(
            seek,
            "Set where a group resumes, while no member is alive.",
            (_NAME, options.TOPIC),
            (
                *options.ACCESS,
                Option(
                    "--to",
                    "to",
                    "earliest, latest, an offset, -10, or a time such as 2h (ago).",
                    "PLACE",
                    _place,
                    needed=True,
                ),
                options.PARTITION,
            ),
        ),
        "forget": Command(
            forget,
            "Forget the offsets of a group in a topic it no longer reads.",
            (_NAME, options.TOPIC),
            options.ACCESS,
        ),
        "delete": Command(
            delete,
            "Delete a group with its committed offsets.",
            (_NAME,),
            (*options.ACCESS, options.YES),
        ),
    },
)
