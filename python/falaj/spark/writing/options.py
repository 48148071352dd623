"""The options of writing `format("falaj")`: text in, one checked value out.

Names and meanings are those of Spark's Kafka sink, and those of Delta for repeated batches.
`falaj.spark.given` decides about unknown names.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from falaj._paths import holds_a_place
from falaj.errors import InvalidArgument
from falaj.spark.given import boolean, directory, positive, refuse_unknown, required
from falaj.spark.reading import options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from falaj.spark.reading.options import Kind

__all__ = ["NAMES", "WriteOptions"]

NAMES = ("store", "topic", "partitions", "createTopics", "txnAppId", "txnVersion")
_SUBSCRIBING = (
    "option {} is for reading: name what to write to with .option('topic', 'orders')".format
)
_ADVICE = {
    **{name.lower(): f"option {name} is for reading: leave it away here" for name in options.NAMES},
    "path": "save() and start() take no path: name the store with .option('store', 'directory') "
    "and the topic with .option('topic', 'orders')",
    "subscribe": _SUBSCRIBING("subscribe"),
    "subscribepattern": _SUBSCRIBING("subscribePattern"),
    "values": "option values is for reading: write text or bytes, JSON as .withColumn('value', "
    "to_json('value'))",
}
# Spark hands its own over with ours.
_OF_SPARK = ("checkpointLocation", "queryName")
_ASYNC = "asyncProgressTrackingEnabled"
_VERSION_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write.

    Attributes:
        store: Directory of the store; it is absolute because executors may run elsewhere.
        topic: Topic of all records; None if the column `topic` names that of each.
        partitions: How many partitions the topic must have, and a new topic gets; None for any.
        creates: Whether to create a store and topics that do not exist.
        transaction: `txnAppId` and `txnVersion`, by which a repeated batch appends nothing; or
            None.
        ignored: Options that do nothing here.
    """

    store: Path
    topic: str | None
    partitions: int | None
    creates: bool
    transaction: tuple[str, int] | None
    ignored: tuple[str, ...]

    @classmethod
    def parse(cls, given: Mapping[str, str], kind: Kind) -> WriteOptions:
        """Parse and check the options of the user.

        Args:
            given: Option names, in any case, and their text.
            kind: "batch" or "stream": some options are for one of them.

        Returns:
            The options.

        Raises:
            InvalidArgument: An option is missing, unknown or not allowed.
        """
        options = {name.lower(): text for name, text in given.items()}
        if kind == "stream":
            _refuse_late_progress(options)
            for name in _OF_SPARK:
                options.pop(name.lower(), None)
        ignored = refuse_unknown(options, NAMES, _ADVICE)
        store = directory(options)
        if holds_a_place(str(store)):
            raise InvalidArgument(
                f"option store is {store}, where a place is, and a place is only read: write to "
                "the store that is shipped there"
            )
        topic = required(options, "topic", "'orders'") if "topic" in options else None
        partitions = positive(options, "partitions")
        creates = boolean(
            options, "createTopics", default=partitions is not None and topic is not None
        )
        if partitions is not None and not creates:
            raise InvalidArgument(
                "option partitions is for topics that are created: name one with "
                ".option('topic', 'orders'), or create those that the column topic names with "
                ".option('createTopics', 'true')"
            )
        return cls(store, topic, partitions, creates, _transaction(options, kind), ignored)

    def warn_of_ignored(self) -> None:
        """Report which options do nothing."""
        if self.ignored:
            warnings.warn(
                f"falaj has no broker, so these options do nothing: {', '.join(self.ignored)}",
                stacklevel=2,
            )


def _refuse_late_progress(options: dict[str, str]) -> None:
    if boolean(options, _ASYNC, default=False):
        raise InvalidArgument(
            f"option {_ASYNC} does not work with falaj. With it, Spark may give the number of a "
            "written batch to other records when it starts again; so falaj could write nothing "
            "exactly once. Leave it away"
        )
    for name in [name for name in options if name.startswith("asyncprogresstracking")]:
        del options[name]  # of no effect without


def _transaction(options: Mapping[str, str], kind: Kind) -> tuple[str, int] | None:
    both = [name for name in ("txnAppId", "txnVersion") if name.lower() in options]
    if not both:
        return None
    if kind == "stream":
        raise InvalidArgument(
            f"option {both[0]} is for df.write: a stream is written exactly once by the ids of "
            "query and batch. Leave it away here"
        )
    name = required(options, "txnAppId", "'nightly'")
    text = required(options, "txnVersion", "'1'")
    if not (text.isascii() and text.isdecimal()) or int(text) > _VERSION_MAX:
        raise InvalidArgument(f"option txnVersion is a whole number from 0 up, not {text!r}")
    return name, int(text)
