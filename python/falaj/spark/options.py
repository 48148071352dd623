"""The options of `format("falaj")`: text in, one checked value out.

Names and meanings are those of Spark's Kafka source, so that a job moves over by changing the
format and adding `store`. What is not known is an error and never passed over, but for Kafka's own
`kafka.*`: they speak to brokers, of which there are none, and get one warning.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from falaj.errors import Invalid
from falaj.spark.offsets import Bound, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ReadOptions"]

# Spark hands options over in lower case; messages name them as people write them.
_SPELLING = {
    name.lower(): name
    for name in (
        "store",
        "subscribe",
        "startingOffsets",
        "endingOffsets",
        "includeHeaders",
        "minPartitions",
        "failOnDataLoss",
    )
}
# Options of Spark's Kafka source that this version cannot honour.
_NOT_YET = {
    name.lower(): name
    for name in (
        "assign",
        "subscribePattern",
        "startingTimestamp",
        "endingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
        "maxRecordsPerPartition",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "groupIdPrefix",
    )
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a read was asked for.

    Attributes:
        store: Directory of the store, absolute, because executors may run elsewhere.
        topics: Names of the topics, in the order given.
        starting: Where each partition begins.
        ending: Where each partition ends.
        headers: Whether there is a column `headers`.
        partitions_min: Fewest input partitions to split into, or None.
    """

    store: Path
    topics: tuple[str, ...]
    starting: Bound
    ending: Bound
    headers: bool
    partitions_min: int | None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Check what the user gave.

        Args:
            given: Option names, in any case, and their text.

        Returns:
            The options.

        Raises:
            Invalid: One is missing, unknown or cannot be right.
        """
        options = {name.lower(): text for name, text in given.items()}
        _refuse_unknown(options)
        _refuse_data_loss(options)
        topics = _topics(_required(options, "subscribe"))
        return cls(
            store=Path(_required(options, "store")).absolute(),
            topics=topics,
            starting=parse("startingOffsets", options.get("startingoffsets", "earliest"), topics),
            ending=parse("endingOffsets", options.get("endingoffsets", "latest"), topics),
            headers=_boolean(options, "includeHeaders", default=False),
            partitions_min=_positive(options, "minPartitions"),
        )


def _refuse_unknown(options: Mapping[str, str]) -> None:
    brokers = sorted(name for name in options if name.startswith("kafka."))
    if brokers:
        warnings.warn(
            f"falaj has no broker, so these options do nothing: {', '.join(brokers)}",
            stacklevel=2,
        )
    for name in sorted(options.keys() - _SPELLING.keys() - set(brokers)):
        if name == "path":
            raise Invalid(
                "load() takes no path: name the store with .option('store', 'directory') and "
                "the topic with .option('subscribe', 'topic')"
            )
        if name in _NOT_YET:
            raise Invalid(
                f"option {_NOT_YET[name]} is not supported yet: "
                f"this version reads with {', '.join(_SPELLING.values())}"
            )
        raise Invalid(
            f"there is no option {name!r}: format('falaj') takes {', '.join(_SPELLING.values())}"
        )


def _refuse_data_loss(options: Mapping[str, str]) -> None:
    if not _boolean(options, "failOnDataLoss", default=True):
        raise Invalid(
            "option failOnDataLoss=false is not supported yet: a read whose records are gone "
            "fails and says which; leave the option away"
        )


def _required(options: Mapping[str, str], name: str) -> str:
    text = options.get(name, "").strip()
    if not text:
        example = {"store": "'events'", "subscribe": "'orders'"}[name]
        raise Invalid(f"option {name} is missing: add .option('{name}', {example})")
    return text


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(name.strip() for name in text.split(","))
    if "" in topics:
        raise Invalid(f"option subscribe is topic names with commas between them, not {text!r}")
    if len(set(topics)) < len(topics):
        raise Invalid(f"option subscribe names a topic twice: {text!r}")
    return topics


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise Invalid(f"option {name} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise Invalid(f"option {name} is a whole number from 1 up, not {text!r}")
    return int(text)
