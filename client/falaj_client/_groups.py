"""A member of a consumer group, as operations: poll, commit, seek, leave.

Invariant: a poll has a number, and asking again with the same number gives the same records. The
number rises only once the answer is here. So no lost answer skips a record.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from falaj_client._calls import call, remote_patience
from falaj_client._numbers import natural, whole
from falaj_client._own_errors import named
from falaj_client._starts import place_of
from falaj_client._times import seconds, span
from falaj_client._topics import Core, describe, open_topic
from falaj_client._wire import Call, path_of
from falaj_client.codecs import Codec, resolve
from falaj_client.errors import (
    HandleClosed,
    InvalidArgument,
    PartitionNotAssigned,
    ServerUnavailable,
)
from falaj_client.records import Record, record_of

if TYPE_CHECKING:
    from falaj_client._calls import Patience
    from falaj_client._times import Duration
    from falaj_client._wire import Answer, Operation

T = TypeVar("T")
#: The offset of each partition, with the text that is stored with it.
Places = dict[tuple[str, int], tuple[int, str | None]]

__all__ = ["Member", "Places", "join"]

#: Longest wait of one poll: a longer one is several.
WAIT_S = 20.0


def join(
    patience: Patience,
    group: str,
    topics: Any,
    pattern: str | None,
    start: Any,
    session: Duration,
    cursor_in: Any,
) -> Operation[Member[Any]]:
    """Open the topics of a member. It joins with its first poll."""
    if (topics is None) == (pattern is None):
        raise InvalidArgument(
            "a consumer reads either topics or those of a pattern: give topics= or pattern="
        )
    if pattern is not None and not isinstance(pattern, str):
        raise TypeError(f"pattern is text, not {named(pattern)}")
    codecs = dict[str, Codec[Any]]()
    several = [topics] if isinstance(topics, str) or not isinstance(topics, Iterable) else topics
    for each in several if pattern is None else ():
        core = getattr(each, "_core", None)
        if not isinstance(core, Core):
            core = yield from open_topic(patience, each, None, {}, create=False, single=None)
        codecs[core.name] = core.codec
    asked: dict[str, Any] = {"pattern": pattern} if pattern else {"topics": list(codecs)}
    asked |= {"start": place_of(start), "session": span(seconds(session, "session"))}
    home = getattr(getattr(cursor_in, "_core", None), "name", cursor_in)
    if home is not None:
        if not isinstance(home, str):
            raise TypeError(f"cursor_in is a topic or its name, not {type(cursor_in).__name__}")
        asked["offsets_in"] = home
    return Member(patience, group, asked, codecs)


class Member(Generic[T]):
    """A member of a group.

    Attributes:
        group: Name of the group.
        assigned: The partitions of this member, as of its last poll.
        positions: The offset after the last delivered record, of each partition that has one.
    """

    def __init__(
        self,
        patience: Patience,
        group: str,
        asked: dict[str, Any],
        codecs: dict[str, Codec[Any]],
    ) -> None:
        self._patience, self.group, self._asked, self._codecs = patience, group, asked, codecs
        self._member, self._number = f"client-{uuid.uuid4().hex}", 0
        self._held: deque[Record[T]] = deque()
        self.assigned: list[tuple[str, int]] = []
        self.positions: dict[tuple[str, int], int] = {}
        self.is_closed = False

    @property
    def topics(self) -> list[str]:
        """Names of the topics that it read so far, or was given."""
        return sorted(self._codecs)

    def held(self, most: int) -> list[Record[T]]:
        """Deliver records that a poll brought already."""
        found = [self._held.popleft() for _ in range(min(most, len(self._held)))]
        for record in found:
            self.positions[record.topic, record.partition] = record.offset + 1
        return found

    def poll(self, most: int, timeout: Duration | None) -> Operation[list[Record[T]]]:
        """Deliver the next records; wait for the first of them."""
        most = whole(most, "how many records to return")
        if most < 1:
            raise InvalidArgument(
                f"poll() takes how many records to return, from 1 on, not {named(most)}"
            )
        yield from self._until_held(most, timeout)
        return self.held(most)

    def fetch(self, most: int, timeout: Duration | None) -> Operation[list[Record[T]]]:
        """Deliver the next record, and hold others for the calls after this one."""
        yield from self._until_held(most, timeout)
        return self.held(1)

    def _until_held(self, most: int, timeout: Duration | None) -> Operation[None]:
        end = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        if self.is_closed:
            raise _closed()
        while not self._held:
            left = WAIT_S if end is None else max(0.0, end - time.monotonic())
            try:
                yield from self._fetch(most, min(left, WAIT_S))
            except HandleClosed:
                return  # it was closed meanwhile
            if end is not None and time.monotonic() >= end:
                return

    def _fetch(self, most: int, wait: float) -> Operation[None]:
        first = self._asked if self._number == 0 else {}
        asked = {"number": self._number + 1, "limit": most, "wait": span(wait), **first}
        try:
            answer = yield from self._post("poll", asked, wait)
        except PartitionNotAssigned:
            if self._number == 0:
                raise
            # The session ended: records that were not committed come again.
            self._forget()
            return
        found = answer.json
        self._number += 1
        self.assigned = [(each["topic"], each["partition"]) for each in found["assigned"]]
        lines = _elements(answer.body.decode(), "records")
        for line, fields in zip(lines, found["records"], strict=True):
            name = fields["topic"]
            if name not in self._codecs:
                told = yield from describe(self._patience, name)
                self._codecs[name] = resolve(None, told["codec"])
            self._held.append(record_of(line, fields, self._codecs[name]))

    def _forget(self) -> None:
        self._number, self.assigned = 0, []
        self._held.clear()
        self.positions.clear()

    def commit(
        self,
        offset: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        sync: str | None = None,
        metadata: str | None = None,
    ) -> Operation[None]:
        """Commit after all delivered records, or one offset."""
        remote_patience(self._patience, sync, None)  # refuses what is no mode
        if sync == "remote":
            raise InvalidArgument(
                'an offset does not leave the machine by itself: commit it with sync="durable", or '
                'in a transaction that has sync="remote"'
            )
        places = dict(self.positions)
        if offset is not None:
            offset = natural(offset, "an offset")
            places = {self._one(topic, partition): offset}
        yield from self.commit_all({place: (at, metadata) for place, at in places.items()}, sync)

    def commit_all(self, places: Places, sync: str | None) -> Operation[None]:
        """Commit these offsets, with their texts."""
        if not places:
            return
        asked = {"offsets": offsets_of(places), "durable": sync == "durable"}
        try:
            yield from self._post("commit", asked)
        except PartitionNotAssigned as error:
            self.refused(error)
            raise
        self.committed(places)

    def refused(self, error: PartitionNotAssigned) -> None:
        """Begin another session, if this one ended: the last commits count."""
        if error.__dict__.get("_kind") == "session-ended":
            self._forget()

    def committed(self, places: Places) -> None:
        """Note that these offsets were committed."""
        for place, (at, _) in places.items():
            if self.positions.get(place) == at:
                del self.positions[place]

    def moves(self, metadata: str | None) -> Places:
        """Return what a transaction is to commit: after all delivered records.

        Raises:
            InvalidArgument: No log keeps the offsets of the group.
        """
        if self.is_closed:
            raise _closed()
        if "offsets_in" not in self._asked:
            raise InvalidArgument(
                f"consumer group {self.group!r} keeps its cursors in a file of its own, and they "
                "cannot move with a transaction: open it with cursor_in= and a topic of the log "
                "that is written to"
            )
        return {place: (at, metadata) for place, at in self.positions.items()}

    def cursors(self, places: Places) -> list[dict[str, Any]]:
        """Write these offsets as cursors of an append."""
        of = {"group": self.group, "member": self._member}
        return [{**of, **each} for each in offsets_of(places)]

    def _places(self, topic: str | None, partition: int | None) -> list[tuple[str, int]]:
        """Return the partitions that a topic and a number stand for; None stands for all."""
        if topic is not None and not isinstance(topic, str):
            raise TypeError(f"topic is the name of a topic, not {named(topic)}")
        if partition is not None:
            partition = natural(partition, "partition")
        return [
            place
            for place in self.assigned
            if topic in (None, place[0]) and partition in (None, place[1])
        ]

    def _one(self, topic: str | None, partition: int | None) -> tuple[str, int]:
        found = self._places(topic, partition)
        if len(found) != 1:
            raise InvalidArgument(
                f"this member of group {self.group!r} has {len(found)} partitions of that name: "
                "give topic= and partition= of one that it has"
            )
        return found[0]

    def seek(self, to: Any, topic: str | None, partition: int | None) -> Operation[None]:
        """Move the position in the partitions of this member, or in one of them."""
        if self._number == 0:
            yield from self._fetch(1, 0.0)
        for name, number in self._places(topic, partition):
            asked = {"topic": name, "partition": number, "to": place_of(to)}
            answer = yield from self._post("seek", asked)
            place = (name, number)
            self._held = deque(each for each in self._held if (each.topic, each.partition) != place)
            self.positions[place] = int(answer.json["offset"])

    def close(self) -> Operation[None]:
        """Leave the group, if it ever joined."""
        if not self.is_closed and self._number:
            # If the server cannot be reached, the session ends by itself.
            with suppress(ServerUnavailable):
                yield from self._post("leave", {})
        self.is_closed = True

    def _post(self, verb: str, asked: dict[str, Any], wait: float = 0.0) -> Operation[Answer]:
        if self.is_closed:
            raise _closed()
        body = json.dumps({"member": self._member, **asked}).encode()
        kind = {"Content-Type": "application/json"}
        path = path_of("groups", self.group, verb)
        answer = yield from call(self._patience, Call("POST", path, {}, kind, body, wait=wait))
        return answer


def offsets_of(places: Places) -> list[dict[str, Any]]:
    """Write offsets as the API has them."""
    return [
        {"topic": name, "partition": number, "offset": at}
        | ({} if metadata is None else {"metadata": metadata})
        for (name, number), (at, metadata) in places.items()
    ]


def _closed() -> HandleClosed:
    return HandleClosed("the consumer was closed: join the group again")


_SCAN = json.JSONDecoder().raw_decode


def _elements(text: str, member: str) -> list[str]:
    """Cut the elements of a list out of an object: documents keep the text that they had."""
    at, found = _past(text, 0, "{"), list[str]()
    while True:
        name, at = _SCAN(text, at)
        at = _past(text, at, ":")
        if name != member:
            _, at = _SCAN(text, at)
            at = _past(text, at, ",")
            continue
        at = _past(text, at, "[")
        while text[at] != "]":
            _, end = _SCAN(text, at)
            found.append(text[at:end])
            at = _past(text, end, ",")
        return found


def _past(text: str, at: int, mark: str) -> int:
    """Step over spaces, a mark if it is there, and the spaces behind it."""
    while text[at].isspace():
        at += 1
    if text[at] == mark:
        at += 1
    while text[at].isspace():
        at += 1
    return at
