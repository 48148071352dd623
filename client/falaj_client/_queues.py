"""A worker of a queue, as operations: put, take, ack, nack, extend, redrive.

Invariant: a take has a number, and asking again with the same number gives the same jobs. The
number rises only once the answer is here. So no lost answer hides a job until its lease ends.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from falaj_client._calls import Producers, call
from falaj_client._groups import WAIT_S, _elements
from falaj_client._numbers import is_word, whole
from falaj_client._own_errors import named
from falaj_client._times import seconds, span
from falaj_client._topics import Core, describe, open_topic
from falaj_client._wire import LINES, Call, path_of
from falaj_client.errors import (
    ConflictError,
    HandleClosed,
    InvalidArgument,
    SettingsMismatch,
    UnknownQueue,
    UnknownTopic,
)
from falaj_client.records import NewRecord, Record, line_of, record_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from falaj_client._calls import Patience
    from falaj_client._times import Duration
    from falaj_client._wire import Answer, Operation
    from falaj_client.codecs import Codec

T = TypeVar("T")

__all__ = ["Taken", "Worker", "create_queue", "hire"]

#: Dead letters that one request puts back at most.
REDRIVEN = 10_000
_JSON = {"Content-Type": "application/json"}


def hire(
    patience: Patience,
    name: str,
    codec: str | Codec[Any] | None,
    limits: dict[str, Any],
    *,
    create: bool,
    topic: str | None = None,
    order: str | None = None,
) -> Operation[Worker[Any]]:
    """Find the topic of a queue, by default the one of its name.

    A queue with a topic or an order of its own is created here, any other one by its first job.
    """
    if order is not None and not is_word(order, "key"):
        raise InvalidArgument(f'order is "key" or None, not {named(order)}')
    if topic is not None and not isinstance(topic, str):
        raise TypeError(f"the topic of a queue is its name here, not {type(topic).__name__}")
    if (most := limits.get("max_attempts")) is not None:
        limits = {**limits, "max_attempts": (most := whole(most, "max_attempts"))}
        if not 1 <= most < 2**24:
            raise InvalidArgument(f"max_attempts is 1 to {2**24 - 1}, or None, not {named(most)}")
    over, is_new = name if topic is None else topic, False
    try:
        answer = yield from call(patience, Call("GET", path_of("queues", name)))
        _expect(name, answer.json, topic, order)
        over = answer.json["topic"]
    except UnknownQueue:
        if not create:
            raise
        is_new = True
    core = yield from open_topic(patience, over, codec, {}, create=create, single=True)
    if is_new and (topic is not None or order is not None):
        yield from create_queue(patience, name, over, order)
        is_new = False
    return Worker(patience, name, core, limits, is_new=is_new)


def create_queue(
    patience: Patience, name: str, topic: str | None, order: str | None
) -> Operation[str]:
    """Create a queue, or check that it has this topic and order; return the name of its topic."""
    body = json.dumps({"topic": topic, "order": order}).encode()
    answer = yield from call(patience, Call("PUT", path_of("queues", name), {}, _JSON, body))
    return str(answer.json["topic"])


def _expect(name: str, found: Any, topic: str | None, order: str | None) -> None:
    for setting, stored, asked in (
        ("topic", found["topic"], topic),
        ("order", found["order"], order),
    ):
        if asked is not None and stored != asked:
            raise SettingsMismatch(
                f"queue {name!r} has {setting} = {stored}, not {asked}: leave that out"
            )


class Taken(Generic[T]):
    """A job: a record, and the right to work on it until its lease ends.

    Attributes:
        record: The record.
        attempt: The number of attempts, this one included.
        settled: True once it was acked or given back here.
    """

    def __init__(self, ticket: str, attempt: int, record: Record[T]) -> None:
        self._ticket, self.attempt, self.record = ticket, attempt, record
        self.settled = False

    @property
    def value(self) -> T:
        """The value of its record."""
        return self.record.value

    @property
    def key(self) -> bytes | None:
        """The key of its record."""
        return self.record.key

    @property
    def offset(self) -> int:
        """The offset of its record."""
        return self.record.offset

    def to_bytes(self) -> bytes:
        """A copy of its record's payload."""
        return self.record.to_bytes()

    def __repr__(self) -> str:
        return f"<Job {self.record!r}, attempt {self.attempt}>"


class Worker(Generic[T]):
    """A worker of a queue."""

    def __init__(
        self,
        patience: Patience,
        name: str,
        core: Core[T],
        limits: dict[str, Any],
        *,
        is_new: bool,
    ) -> None:
        self._patience, self.name, self.core, self._limits = patience, name, core, limits
        self._is_new = is_new  # the first put or take creates the queue
        self._worker, self._number = f"client-{uuid.uuid4().hex}", 0
        self._producers = Producers()

    def put(
        self, records: Iterable[NewRecord], delay: Duration, sync: str | None
    ) -> Operation[range]:
        """Append jobs, all at once."""
        lines = [line_of(record, self.core.codec, self.core.name) for record in records]
        if not lines:
            return range(0)
        wait = seconds(delay, "a delay")
        if wait < 0:
            raise InvalidArgument(f"a delay is a number of seconds from 0 on, not {wait:g}")
        query = {"sync": sync, "delay": span(wait) if wait else None}
        path, body = path_of("queues", self.name, "put"), "\n".join(lines).encode()
        asked = Call("POST", path, query, {"Content-Type": LINES}, body)
        answer = yield from self._producers.send(self._patience, asked, self.name)
        return range(int(answer.json["first"]), int(answer.json["next"]))

    def take(
        self, n: int, lease: Duration, timeout: Duration | None
    ) -> Operation[list[tuple[str, int, Record[T]]]]:
        """Take up to `n` jobs; wait for the first of them."""
        if (n := whole(n, "how many jobs to take")) < 1:
            raise InvalidArgument(f"take() takes how many jobs to take, from 1 on, not {named(n)}")
        end = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        common = {"limit": n, "lease": span(seconds(lease, "a lease")), **self._limits}
        while True:
            left = WAIT_S if end is None else max(0.0, end - time.monotonic())
            wait = min(left, WAIT_S)
            asked = {"number": self._number + 1, "wait": span(wait), **common}
            try:
                answer = yield from self._post("take", asked, wait)
            except ConflictError as error:
                if self._number == 0 or error.__dict__.get("_kind") != "session-ended":
                    raise
                self._number = 0  # the server was started again; jobs that are here stay ours
                continue
            except HandleClosed:
                return []  # the store was closed meanwhile
            self._number += 1
            found = answer.json["jobs"]
            lines = _elements(answer.body.decode(), "jobs")
            if found or (end is not None and time.monotonic() >= end):
                return [
                    (each["job"], each["attempt"], record_of(line, each, self.core.codec))
                    for line, each in zip(lines, found, strict=True)
                ]

    def ack(self, jobs: list[str]) -> Operation[None]:
        """Say that jobs are done."""
        yield from self._post("ack", {"jobs": jobs})

    def nack(self, jobs: list[str], delay: Duration | None, reason: str | None) -> Operation[None]:
        """Return jobs because they failed."""
        asked: dict[str, Any] = {"jobs": jobs, **self._limits}
        if delay is not None:
            asked["delay"] = span(seconds(delay, "a delay"))
        yield from self._post("nack", asked | ({"reason": reason} if reason else {}))

    def extend(self, jobs: list[str], lease: Duration) -> Operation[None]:
        """Keep jobs for longer."""
        asked = {"jobs": jobs, "lease": span(seconds(lease, "a lease"))}
        yield from self._post("extend", asked)

    def redrive(self, limit: int | None) -> Operation[int]:
        """Put dead letters back, and count them."""
        if self._limits.get("max_attempts") is None:
            raise InvalidArgument(
                f"queue {self.name!r} has no dead letters: open it with max_attempts="
            )
        if limit is not None and (limit := whole(limit, "limit")) < 0:
            raise InvalidArgument(f"limit is a number from 0 on, not {named(limit)}")
        letters, done = self._limits.get("dead_letter", f"{self.core.name}.dead"), 0
        while (most := REDRIVEN if limit is None else min(limit - done, REDRIVEN)) > 0:
            body = json.dumps({"dead_letter": letters, "limit": most}).encode()
            path, kind = path_of("queues", self.name, "redrive"), _JSON
            # A repeat would put back others, and count only those.
            asked = Call("POST", path, {}, kind, body, is_repeatable=False)
            try:
                answer = yield from call(self._patience, asked)
            except UnknownQueue:
                if self._is_new:
                    break  # no job was given up yet
                raise
            except UnknownTopic:
                if (yield from _is_there(self._patience, letters)):
                    raise
                break
            found = int(answer.json["redriven"])
            done += found
            if found < most:
                break
        return done

    def _post(self, verb: str, asked: dict[str, Any], wait: float = 0.0) -> Operation[Answer]:
        body = json.dumps({"worker": self._worker, **asked}).encode()
        path = path_of("queues", self.name, verb)
        answer = yield from call(self._patience, Call("POST", path, {}, _JSON, body, wait=wait))
        return answer


def _is_there(patience: Patience, topic: str) -> Operation[bool]:
    try:
        yield from describe(patience, topic)
    except UnknownTopic:
        return False
    return True


def reason_of(error: BaseException | None) -> str | None:
    """Describe the exception that left the block of a job."""
    return None if error is None else f"{type(error).__name__}: {error}"[:1000]
