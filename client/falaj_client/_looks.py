"""Groups and queues by name, as operations: which there are, what each is, its changes, its end.

Owns their form: members and values are those of a native store, as far as the API has them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from falaj_client._calls import call
from falaj_client._numbers import natural
from falaj_client._starts import place_of
from falaj_client._wire import Call, path_of
from falaj_client.errors import UnknownGroup, UnknownQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from falaj_client._calls import Patience
    from falaj_client._wire import Operation

__all__ = ["delete_named", "forget_topic", "group_info", "names_of", "queue_info", "seek_group"]

_COUNTS = ("ready", "delayed", "in_flight", "done", "dead", "trimmed")


def names_of(patience: Patience, kind: str) -> Operation[list[str]]:
    """List the "groups" or "queues" that the token may read."""
    answer = yield from call(patience, Call("GET", path_of(kind)))
    return [each["name" if kind == "groups" else "queue"] for each in answer.json[kind]]


def group_info(patience: Patience, name: str) -> Operation[dict[str, Any]]:
    """Ask how far a group has read."""
    answer = yield from call(patience, Call("GET", path_of("groups", name)))
    found = answer.json
    return {
        "name": found["name"],
        "cursor_in": found["log"],
        "members": found["members"],
        "sessions": found["sessions"],
        "partitions": [
            _exact(each, "committed", "end_offset", "lag") for each in found["partitions"]
        ],
    }


def queue_info(patience: Patience, name: str) -> Operation[dict[str, Any]]:
    """Ask for the numbers of a queue."""
    answer = yield from call(patience, Call("GET", path_of("queues", name)))
    found = answer.json
    kept = {member: found[member] for member in ("topic", "order", *_COUNTS)}
    return {"name": found["queue"], **_exact(kept, *_COUNTS)}


def delete_named(patience: Patience, kind: str, name: str) -> Operation[None]:
    """Delete a "group" or "queue"; one that a lost request deleted is gone too."""
    try:
        yield from call(patience, Call("DELETE", path_of(f"{kind}s", name)))
    except (UnknownGroup, UnknownQueue) as error:
        if not error.__dict__.get("_after_lost_answer"):
            raise


def seek_group(
    patience: Patience, group: str, topic: str, to: Any, partition: int | None
) -> Operation[dict[int, int]]:
    """Move the committed offsets of a group that has no member."""
    asked: dict[str, Any] = {"topic": _topic(topic), "to": place_of(to)}
    if partition is not None:
        asked["partition"] = natural(partition, "a partition")
    answer = yield from call(patience, _post(group, "seek", asked))
    return {each["partition"]: int(each["offset"]) for each in answer.json["offsets"]}


def forget_topic(patience: Patience, group: str, topic: Any) -> Operation[None]:
    """Forget the committed offsets of a group in one topic."""
    yield from call(patience, _post(group, "forget", {"topic": _topic(topic)}))


def _post(group: str, verb: str, asked: Mapping[str, Any]) -> Call:
    kind, body = {"Content-Type": "application/json"}, json.dumps(asked).encode()
    return Call("POST", path_of("groups", group, verb), {}, kind, body)


def _topic(topic: Any) -> str:
    name = topic if isinstance(topic, str) else getattr(topic, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"the name of a topic is text, not {type(topic).__name__}")
    return name


def _exact(found: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Read numbers that the API writes as text beyond 2^53."""
    numbers = {name: int(found[name]) for name in names if found[name] is not None}
    return {**found, **numbers}
