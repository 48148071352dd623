"""Transactions: records for several topics of one log, gathered, and sent as one request."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from falaj_client._calls import remote_patience, remote_wait
from falaj_client._groups import Member
from falaj_client._numbers import natural, whole
from falaj_client._topics import Core, deleted, open_topic
from falaj_client._wire import Call, path_of
from falaj_client.errors import (
    InvalidArgument,
    PartitionNotAssigned,
    TopicDeleted,
    UnknownTopic,
)
from falaj_client.records import Headers, Key, NewRecord, line_of, new_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from falaj_client._calls import Patience, Producers
    from falaj_client._groups import Places
    from falaj_client._times import Duration, Time
    from falaj_client._wire import Operation

__all__ = ["Gathered"]


class Gathered:
    """Records for several topics that become visible together; `Store.transaction` makes it.

    The transaction sends nothing before its end. A value that a codec refuses raises there, and
    nothing is appended.

    Attributes:
        offsets: The offsets of each topic's partitions once it was sent; None before.
    """

    def __init__(
        self,
        patience: Patience,
        producers: Producers,
        sync: str | None,
        timeout: Duration | None = None,
    ) -> None:
        self._remote = remote_patience(patience, sync, timeout)
        self._patience, self._producers, self._sync = patience, producers, sync
        self._cores: dict[str, Core[Any] | None] = {}
        self._records: list[tuple[str, NewRecord, int | None, int | None]] = []
        self._finished: list[str] = []
        self._member: Member[Any] | None = None
        self._moves: Places = {}
        self._is_over = False
        self.offsets: dict[str, dict[int, range]] | None = None

    def append(
        self,
        topic: Any,
        value: Any,
        key: Key | None = None,
        *,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        expect: int | None = None,
    ) -> None:
        """Append a record when the transaction ends.

        Args:
            topic: The topic, or its name. It must exist, in the same log as the others.
            value, key, headers, timestamp, timestamp_ns, partition: As for `Topic.append`.
            expect: The offset that the record must get.
        """
        record = NewRecord(
            value, key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        self._add(topic, [record], partition, expect)

    def tombstone(
        self,
        topic: Any,
        key: Key,
        *,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        expect: int | None = None,
    ) -> None:
        """Append a tombstone when the transaction ends: a key without a value, which deletes it.

        Args:
            topic: The topic, or its name.
            key, headers, timestamp, timestamp_ns, partition: As for `Topic.tombstone`.
            expect: As for `append`.
        """
        record = NewRecord.tombstone(
            key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        self._add(topic, [record], partition, expect)

    def extend(
        self,
        topic: Any,
        records: Iterable[Any],
        *,
        partition: int | None = None,
        expect: int | None = None,
    ) -> None:
        """Append many records when the transaction ends.

        Args:
            topic: The topic, or its name.
            records: As for `Topic.extend`.
            partition: The partition that they go to, whatever their keys.
            expect: The offset that the first of them must get.
        """
        self._add(topic, new_records(records), partition, expect)

    def finish(self, topic: Any) -> None:
        """Finish a topic when the transaction ends, behind its records."""
        self._finished.append(self._name(topic))

    def commit_cursor(self, cursors: Any, *, metadata: str | None = None) -> None:
        """Commit the offsets of a consumer when the transaction ends: with its records, or not.

        Args:
            cursors: A consumer of this store that was opened with `cursor_in`. It moves to after
                the records that it delivered until now. A transaction takes one consumer.
            metadata: A text of at most 384 bytes that is stored with each offset.

        Raises:
            InvalidArgument: The consumer has no `cursor_in`, or there is another one already. Or at
                the end: another log keeps its offsets.
            PartitionNotAssigned: At the end: another member has a partition; nothing was appended.
        """
        self._expect()
        member = getattr(cursors, "_member", None)
        if not isinstance(member, Member):
            raise TypeError(
                f"cursors is a consumer of a store behind a server, not {type(cursors).__name__}: "
                "cursors of your own need the store's directory"
            )
        if self._member not in (None, member):
            raise InvalidArgument(
                "a transaction over HTTP commits the offsets of one consumer: use another "
                "transaction for the second one"
            )
        self._moves |= member.moves(metadata)
        self._member = member

    def _expect(self) -> None:
        if self._is_over:
            raise InvalidArgument("the transaction is over: begin another one")

    def _name(self, topic: Any) -> str:
        self._expect()
        core = getattr(topic, "_core", None)
        name = topic if isinstance(topic, str) else getattr(core, "name", None)
        if not isinstance(name, str):
            raise TypeError(f"topic is a topic or its name, not {type(topic).__name__}")
        before = self._cores.setdefault(name, None)
        if isinstance(core, Core):
            if before is not None and before.generation != core.generation:
                raise TopicDeleted(
                    f"the transaction has two topics of the name {name!r}, and one of them was "
                    "deleted: open it again"
                )
            self._cores[name] = core
        return name

    def _add(
        self,
        topic: Any,
        records: Iterable[NewRecord],
        partition: int | None,
        expect: int | None,
    ) -> None:
        name, core = self._name(topic), getattr(topic, "_core", None)
        partition = None if partition is None else whole(partition, "a partition")
        expect = None if expect is None else natural(expect, "expect")
        if partition is None and core is not None:
            partition = core.chosen
        for i, record in enumerate(records):
            wanted = expect if i == 0 else None
            self._records.append((name, record, partition, wanted))

    def commit(self) -> Operation[None]:
        """Send all of it; nothing if there is nothing."""
        self._is_over = True
        found: dict[str, dict[int, range]] = {}
        if not self._records and not self._finished:
            if self._member is not None:
                yield from self._member.commit_all(self._moves, self._sync)
            self.offsets = found
            return
        for name, core in self._cores.items():
            if core is None:
                opening = open_topic(self._patience, name, None, {}, create=False, single=None)
                self._cores[name] = yield from opening
        asked = Call(
            "POST",
            path_of("append"),
            {"sync": self._sync, **self._remote},
            {"Content-Type": "application/json"},
            self._body().encode(),
            remote_wait(self._remote),
        )
        of = ("transaction", *sorted(self._cores))
        try:
            answer = yield from self._producers.send(self._patience, asked, of)
        except PartitionNotAssigned as error:
            if self._member is not None:
                self._member.refused(error)
            raise
        except UnknownTopic as error:
            raise deleted(error, getattr(error, "topic", None) or ", ".join(self._cores)) from None
        if self._member is not None:
            self._member.committed(self._moves)
        for each in answer.json["parts"]:
            placed = found.setdefault(each["topic"], {})
            placed[each["partition"]] = range(int(each["first"]), int(each["next"]))
        self.offsets = found

    def _body(self) -> str:
        parts = ",".join([*self._parts(), *self._conditions()])
        cursors = [] if self._member is None else self._member.cursors(self._moves)
        return f'{{"parts": [{parts}], "cursors": {json.dumps(cursors)}}}'

    def _parts(self) -> Iterator[str]:
        """Write a part for each topic; its records name their partitions."""
        lines: dict[str, list[str]] = {name: [] for name in self._cores}
        for name, record, partition, _ in self._records:
            codec = self._core(name).codec
            lines[name].append(line_of(record, codec, name, partition, names_partition=True))
        for name, its in lines.items():
            finish = json.dumps(name in self._finished)
            exact = json.dumps(self._core(name).generation)
            head = f'"topic": {json.dumps(name)}, "generation": {exact}, "finish": {finish}'
            yield f'{{{head}, "records": [{",".join(its)}]}}'

    def _conditions(self) -> Iterator[str]:
        """Write a part without records for each expected offset, to come behind the records.

        Such a part expects the offset that follows those records.
        """
        counts = Counter((name, self._place(name, asked)) for name, _, asked, _ in self._records)
        before = Counter[tuple[str, int | None]]()
        for name, _, asked, expect in self._records:
            where = (name, partition) = (name, self._place(name, asked))
            if expect is not None and (partition is None or counts[name, None]):
                raise InvalidArgument(
                    f"an offset is expected of one partition of topic {name!r}: name the partition "
                    "of each of its records with partition="
                )
            if expect is not None and expect < before[where]:
                raise InvalidArgument(
                    f"no record of this transaction can get the offset {expect} of topic {name!r}"
                )
            if expect is not None:
                after = expect - before[where] + counts[where]
                part: dict[str, Any] = {
                    "topic": name,
                    "generation": self._core(name).generation,
                    "partition": partition,
                    "if_next": after,
                    "records": [],
                }
                yield json.dumps(part)
            before[where] += 1

    def _core(self, name: str) -> Core[Any]:
        core = self._cores[name]
        assert core is not None  # `commit` opened it
        return core

    def _place(self, name: str, asked: int | None) -> int | None:
        """Find the partition of a record; None where its key chooses."""
        core = self._core(name)
        if asked is not None:
            core.partition(asked)
        is_single = asked is None and len(core.partitions) == 1
        return core.partitions.start if is_single else asked
