"""The class that Spark calls to write: tasks stage records, the driver commits all of them or none.

A task encodes its records into a part, which no reader sees. It sends the manifest of the part to
the driver in its message. The driver lets the engine splice the parts of all tasks into the log.
That is one append, in the order of Spark's partitions.

Invariant: if the idempotency key of a bulk load was committed, its records are in the log exactly
once; otherwise none of them is. That holds whichever tasks and drivers die or run twice.

Spark makes a writer in a process of the driver's and pickles it to the tasks. For a batch the same
writer commits. For a stream Spark makes another one for the commit, so the messages bring what that
one needs to know. The idempotency key of a stream is (query id, batch id); both are the same when a
batch is repeated.
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
from falaj.errors import InvalidArgument, NotAStore, OffsetConflict, UnknownTopic
from falaj.spark.reading.ranges import make, open_raw
from falaj.spark.writing import columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow
    from pyspark.sql.types import StructType

    from falaj import Store
    from falaj._arguments import BulkLoadReport
    from falaj.spark.writing.options import WriteOptions

__all__ = ["FalajStreamWriter", "FalajWriter", "Staged", "Target", "expect_turn"]

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
    """Appends one batch, whole or not at all."""

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
    """Appends each batch of a stream once, even if Spark repeats it."""

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
        """Append what the tasks staged, unless the log has this batch of this query."""
        if batchId == 0:
            self.options.warn_of_ignored()
            _warn_of_columns(self.schema)
        staged = _staged(messages)
        for query in {each.query for each in staged if each.query}:
            token = (query, batchId)
            for topic in self.target.commit(_job(*token), staged, token, is_stream=True):
                logger.warning("%s", _REPEATED.format(topic=topic, batch=batchId, query=query))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what tasks staged; a committed batch stays."""
        staged = _staged(messages)
        for query in {each.query for each in staged if each.query}:
            self.target.abort(_job(query, batchId), staged)


@dataclass(frozen=True)
class Target:
    """The store that driver and tasks write to, wherever they run.

    Attributes:
        options: The options of the user.
        store_id: The id of the store; a task checks that it sees the same store as the driver.
    """

    options: WriteOptions
    store_id: str

    @classmethod
    def prepare(cls, options: WriteOptions) -> Target:
        """Check the target on the driver, and create it if the options say so.

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
        """Stage the records of a task; no reader sees them before the commit.

        Args:
            job: Name of the job.
            token: Its idempotency key. Once it is committed, what dead tasks of the job left is
                removed.
            batches: The records.

        Returns:
            Topics, and the manifest of what was staged for each.

        Raises:
            InvalidArgument: The records name several topics, and the job has no idempotency key.
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

    def commit(
        self,
        job: str,
        staged: list[Staged],
        token: tuple[str, int] | None,
        *,
        is_stream: bool = False,
    ) -> list[str]:
        """Append what was staged to each topic at once, unless its log has the idempotency key.

        When this returns, the records are on the disk. Spark then notes that the batch is done, and
        does not repeat it.

        Args:
            job: Name of the job.
            staged: What its tasks staged.
            token: Its idempotency key.
            is_stream: Whether the key is of a stream, where only the last batch comes again.

        Returns:
            The topics whose logs had the key before, and for which there were records.

        Raises:
            OffsetConflict: It is a stream, and the log of a topic has a later batch.
        """
        topics = _topics(staged, self.options)
        # No task knows which topics the others have.
        _refuse_several(topics, token)
        manifests = {n: [each.parts[n] for each in staged if n in each.parts] for n in topics}
        known = []
        with self._opened(f"the driver on {socket.gethostname()}") as store:
            if token is not None and is_stream:
                for name in filter(manifests.get, topics):
                    with _topic(store, name) as topic:
                        expect_turn(f"topic {name}", topic.last_idempotency_key(token[0]), token[1])
            for name, parts in manifests.items():
                with _topic(store, name) as topic:
                    done = topic.commit_bulk_load(job, parts, idempotency_key=token)
                _tell(name, done, token)
                if parts and not done["committed"]:
                    known.append(name)
        return known

    def abort(self, job: str, staged: list[Staged]) -> None:
        """Remove what was staged; committed records stay."""
        with self._opened(f"the driver on {socket.gethostname()}") as store:
            for name in _topics(staged, self.options):
                with _topic(store, name) as topic:
                    topic.abort_bulk_load(job)

    @contextmanager
    def _opened(self, who: str) -> Iterator[Store]:
        """Open the store for writing, if it is the store that the driver prepared."""
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
    """Create a topic that does not exist.

    Args:
        store: The store.
        name: The name of the topic.
        partitions: How many it must have; None for any.
        otherwise: How many a new topic gets in that case.

    Raises:
        SettingsMismatch: It exists with another number of partitions.
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
    """List the topics that are written; a named topic counts even without records."""
    named = {options.topic} if options.topic is not None else set()
    return sorted(named.union(*(each.parts for each in staged)))


def _refuse_several(topics: list[str], token: tuple[str, int] | None) -> None:
    """Refuse a write to several topics that could not be repeated.

    Raises:
        InvalidArgument: There are several topics, and no idempotency key.
    """
    if len(topics) > 1 and token is None:
        raise InvalidArgument(
            f"the frame names several topics, {', '.join(topics)}, and falaj commits each by "
            "itself. So that you can repeat a write that failed in between, name it with "
            ".option('txnAppId', 'nightly').option('txnVersion', '1'), or write each topic by "
            "itself"
        )


def _spill(parts: Collection[Any]) -> None:
    """Limit what the parts of a task hold in memory to `HELD`; the largest spill first.

    They spill until half of that is free, so that blocks do not become small.
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


_REPEATED = (
    "topic {topic} has batch {batch} of the query {query}, so nothing was appended. That is right "
    "if Spark repeats its last batch. If the checkpoint was restored or partly removed, this batch "
    "may have other records than the topic: write them with a new checkpointLocation"
)


def expect_turn(where: str, last: int | None, batch: int, what: str = "query") -> None:
    """Refuse a batch that comes after a later one.

    Spark repeats a query's last batch alone. An older one comes only with an older checkpoint. Then
    its records need not be those that have its number.

    Args:
        where: What is written, as "topic x".
        last: The last batch that is there, or None.
        batch: The batch that comes now.
        what: The work that the checkpoint is of.

    Raises:
        OffsetConflict: A later batch is there.
    """
    if last is not None and last > batch:
        raise OffsetConflict(
            f"{where} has batch {last} of this {what}, and now comes batch {batch}: the checkpoint "
            "is older, as one that was restored or partly removed, so the records of this batch "
            f"could be lost. Begin a new {what} with a new checkpoint, or restore both from one "
            "backup"
        )


def _tell(topic: str, done: BulkLoadReport, token: tuple[str, int] | None) -> None:
    named = "" if token is None else f" as batch {token[1]} of {token[0]}"
    if done["committed"]:
        logger.info("topic %s: %s records appended%s", topic, done["records"], named)
    else:
        logger.info("topic %s: nothing appended%s, which is there", topic, named)
