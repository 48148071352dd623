"""The options of reading `format("falaj")`: text in, one checked value out.

Names and meanings are those of Spark's Kafka source; `falaj.spark.given` decides about unknown
names. Options of writing are in `falaj.spark.writing.options`.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from falaj.errors import InvalidArgument
from falaj.spark.given import (
    boolean,
    directory_or_place,
    one_of,
    positive,
    refuse_unknown,
    required,
)
from falaj.spark.reading import offsets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from falaj._arguments import Visibility
    from falaj.spark.reading.offsets import Bound

__all__ = ["CORRUPT_RECORD", "NAMES", "Kind", "ReadOptions", "Values"]

CORRUPT_RECORD = "_corrupt_record"
"""The usual name of the member that keeps the text of a bad value."""
Kind = Literal["batch", "stream"]
Values = Literal["binary", "string", "json"]
Mode = Literal["failfast", "dropmalformed", "permissive"]

NAMES = (
    "store",
    "origin",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "includeHeaders",
    "includeOrigin",
    "failOnDataLoss",
    "values",
    "visibility",
    "onCorrupt",
    "mode",
    "columnNameOfCorruptRecord",
    "pushdown",
    "consumer",
)
_ADVICE = {
    "path": "load() takes no path: name the store with .option('store', 'directory') and "
    "the topic with .option('subscribe', 'topic')",
    "topic": "option topic is for writing: name what to read with .option('subscribe', 'topic')",
}
_WAITS = (
    "option {} is not there, for no batch waits for more records: say how often one is made with "
    ".trigger(processingTime='1 minute'), and leave the option away"
).format
_ADVICE |= {
    "assign": "option assign is not there: name the topic with .option('subscribe', 'topic'), "
    "where each partition begins with startingOffsets, and choose some with "
    ".where('partition IN (0, 1)')",
    "minoffsetspertrigger": _WAITS("minOffsetsPerTrigger"),
    "maxtriggerdelay": _WAITS("maxTriggerDelay"),
    "maxrecordsperpartition": "option maxRecordsPerPartition is not there: say into how many tasks "
    "to cut with minPartitions",
}
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushdown")
_STREAM_ONLY = ("consumer",)
# Kafka's source passes over it in a batch, so jobs carry it.
_NOTHING_IN_A_BATCH = "maxOffsetsPerTrigger"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read.

    Attributes:
        store: Directory of the store, absolute because executors may run elsewhere. Or the URL of a
            place, which executors read by themselves.
        origin: Which origin of the place to read, or None if it has one.
        topics: Names of the topics, in the given order; None with a pattern.
        pattern: A pattern that whole names of topics match, or None.
        starting: Where to begin in each partition.
        ending: Where to end in each partition.
        rate: Most offsets that a micro-batch may cover, or None.
        partitions_min: Fewest input partitions to split into, or None.
        headers: Whether there is a column `headers`.
        names_origin: Whether there is a column `origin`.
        fails_on_loss: Whether lost records fail the query.
        values: The form in which to read the column `value`.
        visibility: Whether to read visible records, or only durable ones.
        skips_damage: Whether to leave out corrupt records and report them.
        mode: What to do with a value that does not fit `values`, in the words of Spark's readers.
            None: keep it if the schema has a member for it; otherwise `skips_damage` decides.
        corrupt_record: Name of the member of `value` that keeps the text of such a value.
        pushdown: Whether to use filters of Spark.
        consumer: The consumer group whose cursors follow a stream, or None.
        ignored: Options that do nothing here, as they were spelled.
    """

    store: Path | str
    origin: str | None
    topics: tuple[str, ...] | None
    pattern: str | None
    starting: Bound
    ending: Bound
    rate: int | None
    partitions_min: int | None
    headers: bool
    names_origin: bool
    fails_on_loss: bool
    values: Values
    visibility: Visibility
    skips_damage: bool
    mode: Mode | None
    corrupt_record: str
    pushdown: bool
    consumer: str | None
    ignored: tuple[str, ...]

    @classmethod
    def parse(cls, given: Mapping[str, str], kind: Kind | None = None) -> ReadOptions:
        """Parse and check the options of the user.

        Args:
            given: Option names, in any case, and their text.
            kind: "batch" or "stream": some options and defaults are for one of them. None if that
                is not known yet; an option that is wrong for only one of them then passes.

        Returns:
            The options.

        Raises:
            InvalidArgument: An option is missing, unknown or not allowed.
        """
        options = {name.lower(): text for name, text in given.items()}
        ignored = refuse_unknown(options, NAMES, _ADVICE)
        if kind is not None:
            _refuse_of_the_other(options, kind)
        if kind == "batch" and _NOTHING_IN_A_BATCH.lower() in options:
            ignored = (*ignored, _NOTHING_IN_A_BATCH)
        topics, pattern = _topics(options)
        starting = offsets.starting(options, kind)
        ending = offsets.ending(options)
        if topics is not None:
            starting.expect_topics(topics)
            ending.expect_topics(topics)
        far = "durable" if kind == "stream" else "visible"
        store = directory_or_place(options)
        _refuse_of_the_other_kind_of_store(options, store)
        return cls(
            store=store,
            origin=required(options, "origin", "'4f2a'") if "origin" in options else None,
            topics=topics,
            pattern=pattern,
            starting=starting,
            ending=ending,
            rate=positive(options, "maxOffsetsPerTrigger"),
            partitions_min=positive(options, "minPartitions"),
            headers=boolean(options, "includeHeaders", default=False),
            names_origin=boolean(options, "includeOrigin", default=False),
            fails_on_loss=boolean(options, "failOnDataLoss", default=True),
            values=cast("Values", one_of(options, "values", ("binary", "string", "json"))),
            visibility=cast(
                "Visibility", one_of(options, "visibility", ("visible", "durable"), far)
            ),
            skips_damage=one_of(options, "onCorrupt", ("fail", "skip")) == "skip",
            mode=_mode(options),
            corrupt_record=options.get("columnnameofcorruptrecord", CORRUPT_RECORD),
            pushdown=boolean(options, "pushdown", default=False),
            consumer=required(options, "consumer", "'billing'") if "consumer" in options else None,
            ignored=ignored,
        )

    def warn_of_ignored(self) -> None:
        """Report once which options do nothing."""
        if self.ignored:
            warnings.warn(
                f"falaj has no broker, so these options do nothing: {', '.join(self.ignored)}"
                if _NOTHING_IN_A_BATCH not in self.ignored
                else f"these options do nothing in a batch of falaj: {', '.join(self.ignored)}",
                stacklevel=2,
            )

    def chosen(self, there: list[str]) -> list[str]:
        """Choose the topics to read.

        Args:
            there: Names of all topics of the store.

        Returns:
            The named topics, whether they exist or not; or the existing topics that match.
        """
        if self.topics is not None:
            return list(self.topics)
        pattern = re.compile(self.pattern or "")
        return sorted(name for name in there if pattern.fullmatch(name))


def _mode(options: Mapping[str, str]) -> Mode | None:
    if "mode" not in options:
        return None
    words = ("failfast", "dropmalformed", "permissive")
    found = one_of(options, "mode", words)
    values = options.get("values", "binary").strip().lower()
    if values == "binary" or (values, found) == ("string", "permissive"):
        raise InvalidArgument(
            f"option mode={found.upper()} is for values=json"
            f"{'' if found == 'permissive' else ' and values=string'}"
        )
    return cast("Mode", found)


def _refuse_of_the_other(options: Mapping[str, str], kind: Kind) -> None:
    others, verb = (_BATCH_ONLY, "read") if kind == "stream" else (_STREAM_ONLY, "readStream")
    for name in others:
        if name.lower() in options:
            raise InvalidArgument(f"option {name} is for spark.{verb}: leave it away here")


def _refuse_of_the_other_kind_of_store(options: Mapping[str, str], store: Path | str) -> None:
    if isinstance(store, str) and "consumer" in options:
        raise InvalidArgument(
            f"option consumer keeps cursors in the store, and {store} is a place, which is only "
            "read: leave it away; the checkpoint of the query has its position"
        )
    if not isinstance(store, str) and "origin" in options:
        raise InvalidArgument(
            "option origin chooses among the stores that were shipped to a place, such as "
            "s3://bucket/shop; a directory is one store: leave it away"
        )


def _topics(options: Mapping[str, str]) -> tuple[tuple[str, ...] | None, str | None]:
    if "subscribepattern" in options:
        if "subscribe" in options:
            raise InvalidArgument(
                "subscribe and subscribePattern exclude each other: leave one away"
            )
        pattern = required(options, "subscribePattern", "'orders-.*'")
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidArgument(f"option subscribePattern is no expression: {error}") from None
        return None, pattern
    text = required(options, "subscribe", "'orders'")
    topics = tuple(name.strip() for name in text.split(","))
    if "" in topics:
        raise InvalidArgument(
            f"option subscribe is topic names with commas between them, not {text!r}"
        )
    if len(set(topics)) < len(topics):
        raise InvalidArgument(f"option subscribe names a topic twice: {text!r}")
    return topics, None
