"""The part that Spark calls to write: tasks stage records, the driver commits all of them or none.

A task encodes what it is given into a part, which no reader sees, and hands its manifest to the
driver in its message; the driver lets the engine splice the parts of all tasks into the log, in the
order of Spark's partitions, in one append. Invariant: records of a job are in the log exactly once
if its token was committed, and otherwise not at all; whatever tasks and drivers die or come twice.

Spark makes a writer in a process of the driver's and pickles it to the tasks. For a batch the same
one commits; for a stream another is made for that, so what it has to know of the job comes with the
messages. A stream's idempotency key is (query id, batch id): both come again when a batch does.
"""

from __future__ import annotations

import logging
import socket
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import falaj
from falaj.errors import InvalidArgument, NotAStore, UnknownTopic
from falaj.spark.reading.ranges import make, open_raw
from falaj.spark.writing import columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow
    from pyspark.sql.types import StructType

    from falaj import Store
    from falaj._arguments import BulkLoadReport
    from falaj.spark.writing.options import WriteOptions

__all__ = ["FalajStreamWriter", "FalajWriter", "Staged"]

logger = logging.getLogger("falaj.spark")

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of a task, as Spark names them."""

HELD = 16 << 20
"""Bytes of memory that the parts of a task hold back between two batches of Spark's: as many topics
as its rows name."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The records that a task staged.

    Attributes:
        query: Id of the streaming query; None in a batch.
        parts: Topics, and the manifest of what was staged for each.
    """

    query: str | None
    parts: dict[str, bytes]


class FalajWriter(DataSourceArrowWriter):
    """One batch: all of it is appended, or nothing."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        columns.check(schema, options)
        self.options = options
        self.job = uuid.uuid4().hex
        self.target = Target.prepare(options)
        options.warn_of_ignored()
        _warn_of_columns(schema)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        """Stage what one task is given."""
        return Staged(None, self.target.stage(self.job, self.options.transaction, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append what all tasks staged."""
        self.target.commit(self.job, _staged(messages), self.options.transaction)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks staged."""
        self.target.abort(self.job, _staged(messages))


class FalajStreamWriter(DataSourceStreamArrowWriter):
    """A stream: each of its batches is appended once, also when it comes again."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        columns.check(schema, options)
        self.options = options
        self.schema = schema
        self.target = Target.prepare(options)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        """Stage what one task is given."""
        query, batch = _of_the_task(_QUERY), int(_of_the_task(_BATCH))
        return Staged(query, self.target.stage(_job(query, batch), (query, batch), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Append what the tasks staged, if this batch of this query is not there yet."""
        if batchId == 0:
            self.options.warn_of_ignored()
            _warn_of_columns(self.schema)
        staged = _staged(messages)
        for query in {each.query for each in staged if each.query}:
            self.target.commit(_job(query, batchId), staged, (query, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what tasks staged; a batch that is there stays."""
        staged = _staged(messages)
        for query in {each.query for each in staged if each.query}:
            self.target.abort(_job(query, batchId), staged)


@dataclass(frozen=True)
class Target:
    """The store that is written to, by driver and tasks, wherever they run.

    Attributes:
        options: What the user asked for.
        store_id: By what a task knows that it sees the store that the driver sees.
    """

    options: WriteOptions
    store_id: str

    @classmethod
    def prepare(cls, options: WriteOptions) -> Target:
        """Look at what is written to, on the driver; make it where that is asked for.

        Raises:
            NotAStore: There is no store.
            UnknownTopic: There is no such topic.
            SettingsMismatch: The topic has another number of partitions.
        """
        if options.creates:
            with falaj.open(options.store) as store:
                if options.topic is not None:
                    _create(store, options.topic, options.partitions)
                return cls(options, store.id)
        try:
            with falaj.open(options.store, read_only=True) as store:
                if options.topic is not None:
                    _topic(store, options.topic).close()
                return cls(options, store.id)
        except NotAStore as error:
            raise NotAStore(f"{error}; {_MAKE}") from None

    def stage(
        self, job: str, token: tuple[str, int] | None, batches: Iterator[pyarrow.RecordBatch]
    ) -> dict[str, bytes]:
        """Stage what a task is given; no reader sees it before it is committed.

        Args:
            job: Name of the job.
            token: That of the job: what its dead leave goes once it is spent.
            batches: The records.

        Returns:
            Topics, and the manifest of what was staged for each.

        Raises:
            InvalidArgument: The records name several topics, and the job has no token.
        """
        context = TaskContext.get()
        name = f"{context.partitionId()}-{context.taskAttemptId()}" if context else "0-0"
        parts: dict[str, Any] = {}
        with self._opened(f"the executor on {socket.gethostname()}") as store, ExitStack() as held:
            try:
                for batch in batches:
                    for topic, records in columns.by_topic(batch, self.options.topic):
                        if topic not in parts:
                            _refuse_several([*parts, topic], token)
                            if self.options.creates:
                                _create(store, topic, None, self.options.partitions or 1)
                            opened = held.enter_context(_topic(store, topic))
                            parts[topic] = opened.stage(job, name, idempotency_key=token)
                        parts[topic].append_arrow(records)
                    _spill(parts.values())
                return {topic: part.finish() for topic, part in parts.items()}
            except BaseException:
                for part in parts.values():
                    part.abort()
                raise

    def commit(self, job: str, staged: list[Staged], token: tuple[str, int] | None) -> None:
        """Append what was staged to each topic at once, unless its token was spent on it.

        When this returns the records are on the disk: Spark notes on its side that it is done, and
        does not come again.
        """
        topics = _topics(staged, self.options)
        # No task knows which topics the others have.
        _refuse_several(topics, token)
        with self._opened(f"the driver on {socket.gethostname()}") as store:
            for name in topics:
                parts = [each.parts[name] for each in staged if name in each.parts]
                with _topic(store, name) as topic:
                    done = topic.commit_bulk_load(job, parts, idempotency_key=token)
                _tell(name, done, token)

    def abort(self, job: str, staged: list[Staged]) -> None:
        """Remove what was staged; what was committed stays."""
        with self._opened(f"the driver on {socket.gethostname()}") as store:
            for name in _topics(staged, self.options):
                with _topic(store, name) as topic:
                    topic.abort_bulk_load(job)

    @contextmanager
    def _opened(self, who: str) -> Iterator[Store]:
        """Open the store for writing, if it is the one that the driver prepared."""
        path = self.options.store
        same = f"executors must see it under the same path, {path}"
        try:
            with falaj.open(path, read_only=True) as seen:
                found = seen.id
        except NotAStore as error:
            lost = f"{who} does not see the store that Spark writes to: {error}; {same}"
            raise NotAStore(lost) from None
        if found != self.store_id:
            raise NotAStore(
                f"{who} sees another store than the one that Spark writes to: it has the id "
                f"{found}, not {self.store_id}; {same}"
            )
        with falaj.open(path) as store:
            yield store


_MAKE = (
    "create it first, with falaj.open(), or let Spark do so with the topic, by "
    ".option('createTopics', 'true')"
)


def _create(store: Store, name: str, partitions: int | None, otherwise: int = 1) -> None:
    """Create a topic that is not there.

    Args:
        store: The store.
        name: The topic's name.
        partitions: How many it must have; None for any.
        otherwise: How many a new one gets then.

    Raises:
        SettingsMismatch: It is there, with another number of partitions.
    """
    if partitions is not None or name not in store.topics:
        make(store, name, partitions or otherwise)


def _topic(store: Store, name: str) -> falaj.AnyTopic[Any]:
    try:
        return open_raw(store, name)
    except UnknownTopic as error:
        raise UnknownTopic(
            f"{error.args[0]}: create it first, with .topic({name!r}), or let Spark do so, with "
            ".option('createTopics', 'true') and .option('partitions', '1')"
        ) from None


def _topics(staged: list[Staged], options: WriteOptions) -> list[str]:
    """List what is written to; a topic that is named is, also where there are no records."""
    named = {options.topic} if options.topic is not None else set()
    return sorted(named.union(*(each.parts for each in staged)))


def _refuse_several(topics: list[str], token: tuple[str, int] | None) -> None:
    """Refuse to write to several topics what could not be repeated.

    Raises:
        InvalidArgument: There are several, and no token.
    """
    if len(topics) > 1 and token is None:
        raise InvalidArgument(
            f"the frame names several topics, {', '.join(topics)}, and each is committed on its "
            "own: so that a write that fails in between can be repeated, name it with "
            ".option('txnAppId', 'nightly').option('txnVersion', '1'), or write each topic by "
            "itself"
        )


def _spill(parts: Collection[Any]) -> None:
    """Have the parts of a task hold back no more than `HELD`: the largest give first.

    Half of that stays free then, so that blocks do not become small.
    """
    held = sum(part.held for part in parts)
    if held <= HELD:
        return
    for part in sorted(parts, key=lambda part: part.held, reverse=True):
        held -= part.held
        part.spill()
        if held <= HELD // 2:
            break


def _staged(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _job(query: str, batch: int) -> str:
    return f"{query}.{batch}"


def _of_the_task(name: str) -> str:
    context = TaskContext.get()
    found = context.getLocalProperty(name) if context else None
    if found is None:
        raise InvalidArgument(
            f"Spark does not tell the task its {name}, which a stream is written by"
        )
    return found


def _warn_of_columns(schema: StructType) -> None:
    if said := columns.passed_over(schema.names):
        logger.warning("%s", said)


def _tell(topic: str, done: BulkLoadReport, token: tuple[str, int] | None) -> None:
    named = "" if token is None else f" as batch {token[1]} of {token[0]}"
    if done["committed"]:
        logger.info("topic %s: %s records appended%s", topic, done["records"], named)
    else:
        logger.info("topic %s: nothing appended%s, which is there", topic, named)
