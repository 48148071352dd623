"""The calls of topics as operations: describe, append, read, follow, trim, finish.

Owns a topic's description, which is asked for when it is needed, and its producers. The handles in
`store` and `aio` do these operations.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from falaj_client._calls import (
    Producers,
    call,
    named_append,
    open_stream,
    remote_patience,
    remote_wait,
)
from falaj_client._events import Events, event_id
from falaj_client._frames import FRAMES, records_of
from falaj_client._numbers import LARGEST, is_word, natural, plain, whole
from falaj_client._own_errors import named, shown
from falaj_client._pages import AHEAD, PAGE, Pages, Part, merged
from falaj_client._settings import changes, limits_of
from falaj_client._starts import start_query
from falaj_client._times import iso, seconds, span, to_ns
from falaj_client._wire import LINES, Broken, Call, Give, Piece, Shut, path_of
from falaj_client.codecs import RAW, Codec, resolve
from falaj_client.errors import (
    InvalidArgument,
    InvalidName,
    OffsetOutOfRange,
    PermissionDenied,
    RecordCompacted,
    SettingsMismatch,
    TopicDeleted,
    UnknownTopic,
    of_problem,
)
from falaj_client.records import NewRecord, Position, Record, line_of, new_records, record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from falaj_client._calls import Patience
    from falaj_client._times import Duration, Time
    from falaj_client._wire import Answer, Operation

T = TypeVar("T")

__all__ = [
    "Core",
    "open_topic",
    "topic_names",
]

#: Seconds without a word after which a stream is taken up again: the server sends one each minute.
_SILENCE_S = 150.0
_SEEN = ("visible", "durable", "remote")


def topic_names(patience: Patience) -> Operation[list[str]]:
    """List the topics that the token may read."""
    answer = yield from call(patience, Call("GET", path_of("topics")))
    return list(answer.json["topics"])


def describe(patience: Patience, name: str) -> Operation[dict[str, Any]]:
    """Ask for settings and offsets of a topic."""
    answer = yield from call(patience, Call("GET", path_of("topics", _named(name))))
    found: dict[str, Any] = answer.json
    return found


def _named(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a topic is text, not {type(name).__name__}")
    if ":" in name:
        raise InvalidName(f"no topic is called {name!r}: a name is of A-Z a-z 0-9 . _ -")
    return name


def open_topic(
    patience: Patience,
    name: str,
    codec: str | Codec[Any] | None,
    settings: Mapping[str, Any],
    *,
    create: bool,
    single: bool | None,
    visibility: str | None = None,
) -> Operation[Core[Any]]:
    """Find a topic, or create it, and check that it is as asked.

    Args:
        patience: How long it may take.
        name: Its name.
        codec: Its codec, or None for what it has.
        settings: Members of the API for a new topic.
        create: True to create a missing one.
        single: True for one partition, False for several, None for either.
        visibility: How far the handle reads; None for all there is.
    """
    if visibility is not None and not is_word(visibility, *_SEEN):
        raise InvalidArgument(f"visibility is one of {', '.join(_SEEN)}, not {named(visibility)}")
    if not isinstance(create, bool):
        raise TypeError(f"create is True or False, not {named(create)}")
    wanted = {key: value for key, value in settings.items() if value is not None}
    if "partitions" in wanted:
        wanted["partitions"] = whole(wanted["partitions"], "partitions")
    asked = None if codec is None or codec is RAW else resolve(codec, None).name
    if asked is not None:
        wanted["codec"] = asked
    found: dict[str, Any] | None = None
    try:
        found = yield from describe(patience, name)
        is_other = wanted.keys() - {"codec"} or (asked and found["codec"] is None)
    except UnknownTopic:
        if not create:
            raise
        is_other = True
    if is_other:
        body = json.dumps(wanted).encode()
        kind = {"Content-Type": "application/json"}
        try:
            made = yield from call(patience, Call("PUT", path_of("topics", name), {}, kind, body))
            found = made.json
        except PermissionDenied:
            if found is None or wanted.keys() - {"codec"}:
                raise  # else it is a reader of a topic without a codec: it has no record yet
    assert found is not None
    stored = found["codec"]
    if asked is not None and stored not in (None, asked):
        error = SettingsMismatch(f"topic {name!r} has the codec {stored}, not {asked}: open it so")
        error.topic, error.setting, error.stored, error.asked = name, "codec", stored, asked
        raise error
    count = len(found["partitions"])
    if single is not None and single != (count == 1):
        right = "topic()" if count == 1 else "partitioned_topic()"
        error = SettingsMismatch(f"topic {name!r} has {count} partitions: open it with {right}")
        error.topic, error.setting, error.asked = name, "partitions", "1" if single else "several"
        raise error
    far = None if visibility == "visible" else visibility
    opened, all_ = resolve(codec, stored), range(count)
    return Core(patience, name, opened, all_, None, Producers(), found, far)


@dataclass
class Core(Generic[T]):
    """An open topic, or one partition of it.

    Attributes:
        patience: How long calls may take.
        name: Its name.
        codec: Its codec.
        partitions: Numbers of the partitions that this handle reads.
        chosen: The partition that the handle is for; None for the whole topic.
        producers: Its producers.
        found: The description when it was opened.
        visibility: How far it reads: "durable", "remote", or None for all there is.
    """

    patience: Patience
    name: str
    codec: Codec[T]
    partitions: range
    chosen: int | None
    producers: Producers
    found: Mapping[str, Any]
    visibility: str | None = None

    @property
    def path(self) -> str:
        """Path of its records."""
        return path_of("topics", self.name, "records")

    def partition(self, number: int) -> Core[T]:
        """View one partition.

        Raises:
            InvalidArgument: There is no such partition.
        """
        number = whole(number, "a partition")
        if number not in self.partitions:
            raise InvalidArgument(
                f"topic {self.name!r} has the partitions {self.partitions.start} to "
                f"{self.partitions.stop - 1}, and {number} is none of them"
            )
        one = range(number, number + 1)
        return replace(self, partitions=one, chosen=number)

    def ask(
        self, asked: Call, send: Callable[[Call], Operation[Answer]] | None = None
    ) -> Operation[Answer]:
        """Send a request about this topic; `send` is how. Another of its name gets none.

        Raises:
            TopicDeleted: The topic was deleted, whether there is another of its name or not.
        """
        exact = {**asked.headers, "Falaj-Generation": self.generation}
        asked = replace(asked, headers=exact)
        try:
            answer = yield from call(self.patience, asked) if send is None else send(asked)
        except UnknownTopic as error:
            raise deleted(error, self.name) from None
        return answer

    @property
    def generation(self) -> str:
        """The text that tells the topic from others that had or will have its name."""
        return str(self.found["generation"])

    def describe(self) -> Operation[dict[str, Any]]:
        """Ask for settings and offsets, as they are now."""
        answer = yield from self.ask(Call("GET", path_of("topics", self.name)))
        found: dict[str, Any] = answer.json
        return found

    def properties(self) -> Operation[dict[str, str]]:
        """Ask for the texts that programs keep with the topic."""
        found = yield from self.describe()
        return dict(found["properties"])

    def count(self) -> Operation[int]:
        """Count the records that there are."""
        asked = Call("GET", path_of("topics", self.name, "count"), {"partition": self.chosen})
        answer = yield from self.ask(asked)
        return int(answer.json["count"])

    def offsets(self) -> Operation[dict[int, range]]:
        """Ask for the offsets of each partition."""
        found = yield from self.describe()
        there = dict[int, range]()
        for each in found["partitions"]:
            number, start = each["partition"], int(each["start_offset"])
            if number in self.partitions:
                there[number] = range(start, (yield from self._end(each)))
        return there

    def _end(self, each: Mapping[str, Any]) -> Operation[int]:
        """Return where reads of a partition that was described end."""
        if self.visibility is None:
            return int(each["end_offset"])
        _, after = yield from self.partition(each["partition"]).page({"last": 0}, 1)
        return max(after, int(each["start_offset"]))

    # --- Appends ---------------------------------------------------------------------------------

    def append(self, record: NewRecord, **options: Any) -> Operation[Position]:
        """Append a record; return its place."""
        placed = yield from self._append([record], **options)
        ((partition, offsets),) = placed.items()
        return Position(partition, offsets.start)

    def extend(self, records: Iterable[Any], **options: Any) -> Operation[dict[int, range]]:
        """Append records at once; return the offsets in each partition."""
        found = list(new_records(records))
        if not found:
            return {}
        placed = yield from self._append(found, **options)
        return placed

    def _append(
        self,
        records: list[NewRecord],
        *,
        partition: int | None = None,
        sync: str | None = None,
        timeout: Duration | None = None,
        producer: Any = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> Operation[dict[int, range]]:
        chosen = self.chosen if partition is None else self.partition(partition).chosen
        patience = remote_patience(self.patience, sync, timeout)
        if expect is not None and chosen is None and len(self.partitions) > 1:
            raise InvalidArgument("an offset is expected of one partition: name it with partition=")
        headers = {"Content-Type": LINES, **named_append(producer, sequence)}
        if expect is not None:
            headers["If-Next"] = str(natural(expect, "expect"))
        to = self.partitions.start if len(self.partitions) == 1 else chosen
        lines = [line_of(record, self.codec, self.name, to) for record in records]
        body = "\n".join(lines).encode()
        query = {"partition": chosen, "sync": sync, "create": "false", **patience}
        if len(self.partitions) == 1 and chosen is None:
            query["partition"] = 0
        wait = remote_wait(patience)
        asked = Call("POST", self.path, query, headers, body, wait)
        of = (chosen, self.name)
        own = partial(self.producers.send, self.patience, of=of)
        answer = yield from self.ask(asked, own if producer is None else None)
        return {
            each["partition"]: range(int(each["first"]), int(each["next"]))
            for each in answer.json["partitions"]
        }

    # --- Reads -----------------------------------------------------------------------------------

    def page(
        self, query: Mapping[str, Any], limit: int = PAGE
    ) -> Operation[tuple[list[Record[T]], int]]:
        """Read some records of one partition, and the offset that comes next."""
        number = self.partitions.start
        if query.get("from", 0) > LARGEST:
            raise (yield from self._missing(query["from"]))
        if query.get("last", 0) > LARGEST:
            query = {"last": LARGEST}
        where = {**query, "partition": number, "limit": limit, "visibility": self.visibility}
        answer = yield from self.ask(Call("GET", self.path, where, {"Accept": FRAMES}))
        records = records_of(answer.body, self.name, number, self.codec)
        return records, int(answer.headers["falaj-next-offset"])

    def record(self, line: bytes) -> Record[T]:
        """Read a line."""
        return record_of(line, json.loads(line), self.codec)

    def between(self, start: int, stop: int) -> Operation[None]:
        """Give the records of these offsets of one partition, a page at a time."""
        pages = Pages(self, range(start, stop), is_ahead=True)
        while records := (yield from pages.next()):
            yield Give(records)

    def stepping(self, offsets: range) -> Operation[None]:
        """Give the records of these offsets, in their order."""
        if offsets.step == 1:
            yield from self.between(offsets.start, offsets.stop)
            return
        way = 1 if offsets.step > 0 else -1
        lowest, highest = sorted((offsets[0], offsets[-1])) if offsets else (0, -1)
        edges = range(lowest, highest + 1, PAGE)
        for begin in edges[::way]:
            records, at = list[Record[T]](), begin
            stop = min(begin + PAGE, highest + 1)
            while at < stop:
                more, at = yield from self.page({"from": at}, stop - at)
                if not more:
                    break
                records += more
            yield Give([each for each in records[::way] if each.offset in offsets])

    def everything(self) -> Operation[None]:
        """Give the records that there are now; partitions are merged by time."""
        offsets = yield from self.offsets()
        if len(offsets) == 1:
            ((_, those),) = offsets.items()
            yield from self.between(those.start, those.stop)
            return
        is_ahead = len(offsets) <= AHEAD
        parts = [
            Part(Pages(self.partition(number), those, is_ahead=is_ahead))
            for number, those in offsets.items()
        ]
        while True:
            for part in parts:
                yield from part.fill()
            parts = [part for part in parts if part.held]
            if not parts:
                return
            yield Give(list(merged(parts)))

    def read(self, start: int, n: int) -> Operation[list[Record[T]]]:
        """Read up to `n` records from an offset on."""
        start, n = whole(start, "an offset"), _many(n)
        if start < -LARGEST:
            raise (yield from self._missing(start))
        query: dict[str, Any] = {"from": start} if start >= 0 else {"last": -start}
        found = yield from self._several(query, n)
        return found

    def last(self, n: int) -> Operation[list[Record[T]]]:
        """Read the last `n` records."""
        n = _many(n)
        found = yield from self._several({"last": n}, n)
        return found

    def _several(self, query: Mapping[str, Any], n: int) -> Operation[list[Record[T]]]:
        found = list[Record[T]]()
        while len(found) < n:
            records, after = yield from self.page(query, min(PAGE, n - len(found)))
            if not records:
                break
            found += records
            query = {"from": after}
        return found

    def positioned(self, position: Any) -> Operation[Record[T]]:
        """Read the record of a position in a topic of several partitions."""
        parts = position if isinstance(position, tuple) else ()
        if len(parts) != 2 or not all(type(plain(part)) is int for part in parts):
            raise TypeError(
                "each partition has offsets of its own: a partitioned topic takes a position "
                f"(partition, offset), not {type(position).__name__}"
            )
        record = yield from self.partition(parts[0]).one(parts[1])
        return record

    def one(self, offset: int) -> Operation[Record[T]]:
        """Read the record of an offset; a negative one counts from the end."""
        offset = whole(offset, "an offset")
        if offset < -LARGEST:
            raise (yield from self._missing(offset))
        if offset < 0:
            records = yield from self._several({"last": -offset}, -offset)
            if len(records) < -offset:
                raise (yield from self._missing(offset))
            return records[0]
        records, _ = yield from self.page({"from": offset}, 1)
        if not records:
            raise (yield from self._missing(offset))
        if records[0].offset != offset:
            error = RecordCompacted(
                f"compaction removed record {offset} of topic {self.name!r}: read the next one"
            )
            error.offset = offset
            raise error
        return records[0]

    def _missing(self, offset: int) -> Operation[OffsetOutOfRange]:
        offsets = yield from self.offsets()
        number = self.partitions.start
        there = offsets[number]
        error = OffsetOutOfRange(
            f"topic {self.name!r}, partition {number}, has the offsets {there.start} to "
            f"{there.stop - 1}, and {shown(offset)} is none of them"
            if there
            else f"topic {self.name!r}, partition {number}, has no record"
        )
        error.topic, error.partition, error.offset = self.name, number, offset
        error.first, error.end = there.start, there.stop
        return error

    def at(self, moment: Time) -> Operation[Record[T] | None]:
        """Read the first record of a time or later."""
        records, _ = yield from self.page({"at": iso(to_ns(moment))}, 1)
        return records[0] if records else None

    def slice(self, wanted: slice) -> Operation[range]:
        """Turn a slice, or a range of times, into offsets that are there."""
        offsets = yield from self.offsets()
        there = offsets[self.partitions.start]
        start = yield from self._edge(wanted.start, there)
        stop = yield from self._edge(wanted.stop, there)
        step = 1 if wanted.step is None else whole(wanted.step, "the step of a slice")
        if step > 0 and start is None:
            start = there.start
        if step < 0 and stop is None:
            stop = there.start - 1 if there.start else None
        found = range(*slice(start, stop, step).indices(there.stop))
        if found and min(found[0], found[-1]) < there.start:
            raise (yield from self._missing(min(found[0], found[-1])))
        return found

    def _edge(self, place: Any, there: range) -> Operation[int | None]:
        place = plain(place)
        if place is None:
            return None
        if isinstance(place, int) and not isinstance(place, bool):
            if place >= 0:
                return place
            if -place >= len(there):
                return there.start
            records, _ = yield from self.page({"last": -place}, 1)
            return records[0].offset if records else there.stop
        record = yield from self.at(place)
        return there.stop if record is None else record.offset

    # --- Streams ---------------------------------------------------------------------------------

    def follow(
        self, start: Any, timeout: Duration | None, places: Mapping[int, int] | None = None
    ) -> Operation[None]:
        """Give records as they come, and go on after a broken connection where it broke.

        `places` are what `begin` found.
        """
        wait = None if timeout is None else seconds(timeout, "timeout")
        if places is None:
            places = yield from self.begin(start)
        if wait == 0:
            yield from self._now(places)
            return
        seen = event_id(self.found["generation"], places)
        asked: dict[str, Any] = {"partition": self.chosen, "visibility": self.visibility}
        last = time.monotonic()
        while True:
            left = _SILENCE_S if wait is None else last + wait - time.monotonic()
            if left <= 0:
                return
            headers = {"Accept": "text/event-stream", "Last-Event-ID": seen}
            send = partial(open_stream, self.patience, read=min(left, _SILENCE_S))
            yield from self.ask(Call("GET", self.path, asked, headers), send)
            events = Events()
            try:
                while piece := (yield Piece()):
                    records = list[Record[T]]()
                    for event in events.feed(piece):
                        if event.kind == "finished":
                            yield Give(records)
                            return
                        if event.kind == "problem":
                            yield Give(records)
                            document = json.loads(event.data)
                            raise of_problem(int(document["status"]), document)
                        records.append(self.record(event.data))
                        seen = event.id
                    if records:
                        yield Give(records)
                        last = time.monotonic()
                    elif wait is not None:
                        break  # a ping came: the rest of the wait is shorter now
            except Broken:
                pass
            yield Shut()

    def begin(self, start: Any) -> Operation[dict[int, int]]:
        """Find the offset to begin with in each partition, so that a reconnect misses nothing."""
        query = start_query(start)
        found = yield from self.describe()
        places = dict[int, int]()
        for each in found["partitions"]:
            number = each["partition"]
            if number not in self.partitions:
                continue
            if not query:
                places[number] = int(each["start_offset"])
            elif query.get("last") == 0:
                places[number] = yield from self._end(each)
            else:
                records, after = yield from self.partition(number).page(query, 1)
                places[number] = records[0].offset if records else after
        return places

    def _now(self, places: Mapping[int, int]) -> Operation[None]:
        offsets = yield from self.offsets()
        for number, begin in places.items():
            yield from self.partition(number).between(begin, offsets[number].stop)

    # --- Changes ---------------------------------------------------------------------------------

    def trim(self, before_offset: int | None, before_time: Time | None) -> Operation[Any]:
        """Delete the oldest records."""
        if (before_offset is None) == (before_time is None):
            raise InvalidArgument(
                "trim() takes before_offset= or before_time=: give exactly one of them"
            )
        asked: dict[str, Any] = {}
        if before_time is not None:
            asked = {"before_time": iso(to_ns(before_time))}
        else:
            asked["before"] = before = whole(before_offset, "before_offset")
            if before > LARGEST:
                raise (yield from self._missing(before))
            if before < 0:
                asked["before"] = (yield from self.slice(slice(before, None))).start
        if self.chosen is not None:
            asked["partition"] = self.chosen
        found = yield from self._act("trim", asked)
        firsts = {
            each["partition"]: int(each["start_offset"])
            for each in found["partitions"]
            if each["partition"] in self.partitions
        }
        return {"firsts": firsts}

    def finish(self) -> Operation[None]:
        """Let no record come after those that are there."""
        if self.chosen is not None:
            raise InvalidArgument("this is one partition of several: finish the whole topic")
        yield from self._act("finish", {})

    def configure(
        self,
        compacted: bool | None,
        properties: Mapping[str, str | None] | None,
        settings: Mapping[str, Any],
    ) -> Operation[Any]:
        """Change settings; return the limits as they are now."""
        asked = changes(settings, compacted, properties)
        if not asked:
            return limits_of((yield from self.describe()))
        path, kind = path_of("topics", self.name), {"Content-Type": "application/json"}
        answer = yield from self.ask(Call("PATCH", path, {}, kind, json.dumps(asked).encode()))
        return limits_of(answer.json)

    def compact(self, delete_retention: Duration, seal: bool) -> Operation[dict[str, int]]:
        """Keep the last record of each key; return the figures of the work."""
        if not isinstance(seal, bool):
            raise TypeError(f"seal is True or False, not {seal!r}")
        long = seconds(delete_retention, "delete_retention")
        if long < 0:
            raise InvalidArgument(
                f"delete_retention is a number of seconds from 0 on, not {delete_retention!r}"
            )
        # A repeat would find nothing more to do, and report so.
        asked = {"tombstones": span(long), "seal": seal}
        done = yield from self._act("compact", asked, is_repeatable=False)
        return {name: int(number) for name, number in done.items()}

    def _act(
        self, verb: str, asked: Mapping[str, Any], *, is_repeatable: bool = True
    ) -> Operation[Any]:
        kind = {"Content-Type": "application/json"}
        path, body = path_of("topics", f"{self.name}:{verb}"), json.dumps(asked).encode()
        asking = Call("POST", path, {}, kind, body, is_repeatable=is_repeatable)
        answer = yield from self.ask(asking)
        return answer.json

    def delete(self) -> Operation[None]:
        """Delete the topic with its records; one that a lost request deleted is gone too."""
        try:
            yield from self.ask(Call("DELETE", path_of("topics", self.name)))
        except TopicDeleted as error:
            if not error.__dict__.get("_after_lost_answer"):
                raise


def delete_topic(patience: Patience, name: str) -> Operation[None]:
    """Delete a topic; one that a lost request deleted is gone too."""
    asked = Call("DELETE", path_of("topics", _named(name)))
    try:
        yield from call(patience, asked)
    except UnknownTopic as error:
        if not error.__dict__.get("_after_lost_answer"):
            raise


def deleted(error: UnknownTopic, name: str) -> TopicDeleted:
    """Make the error for a topic that a handle had, and that is not there any more."""
    made = TopicDeleted(f"topic {name!r} was deleted: open it again to create another one")
    made.__dict__.update(error.__dict__)
    return made


def _many(n: Any) -> int:
    if (found := whole(n, "how many to read")) >= 0:
        return found
    raise InvalidArgument(f"n is how many records to read, from 0 on, not {named(found)}")
