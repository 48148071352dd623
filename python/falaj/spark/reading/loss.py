"""Lost records: `failOnDataLoss` decides what a query does, and falaj always reports the loss.

Records are lost if a topic was deleted, created again or trimmed, or if a log lost its end. Then
the query either ends with an error that names the choices, or continues with the records that are
left. If it continues, the logger `falaj.spark` gets one warning for each loss. Without a logging
configuration, that is the standard error of the driver or executor.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from falaj.errors import OffsetOutOfRange, TopicDeleted

if TYPE_CHECKING:
    from falaj._topic import Topic
    from falaj.errors import Error

__all__ = ["BATCH_CHOICES", "STREAM_CHOICES", "Loss", "logger", "out_of_range", "recreated"]

logger = logging.getLogger("falaj.spark")

STREAM_CHOICES = (
    "start the query with a new checkpointLocation, or let it go on from what is there with "
    ".option('failOnDataLoss', 'false')"
)
BATCH_CHOICES = (
    "give offsets that exist, or load the topic again with spark.read. A DataFrame and a view keep "
    "the offsets of their first action. Or let the query go on from what is there with "
    ".option('failOnDataLoss', 'false')"
)


@dataclass
class Loss:
    """Decides what a loss does to a query, and remembers what it reported.

    Attributes:
        fails: `failOnDataLoss`.
        choices: The choices of the user, for the end of the message.
        skipped: How many records were left out because their values cannot be read.
    """

    fails: bool
    choices: str
    skipped: int = 0
    _told: set[str] = field(default_factory=set)

    def meet(self, error: Error) -> None:
        """Raise the error with the choices; or report it once and return.

        Args:
            error: The loss, as a sentence without a remedy.
        """
        if self.fails:
            error.args = (f"{error}: {self.choices}",)
            raise error
        self.warn(f"{error}; the query goes on from what is there")

    def skip(self, records: int, sentence: str) -> None:
        """Count records that are left out, and report which."""
        self.skipped += records
        self.warn(sentence)

    @property
    def told(self) -> list[str]:
        """The sentences that were reported."""
        return sorted(self._told)

    def warn(self, sentence: str) -> None:
        """Report a sentence once."""
        if sentence not in self._told:
            self._told.add(sentence)
            logger.warning("%s", sentence)


def out_of_range(
    sentence: str, part: Topic[Any], offset: int, first: int, end: int
) -> OffsetOutOfRange:
    """Make the error for an offset that a partition does not have."""
    error = OffsetOutOfRange(sentence)
    error.topic, error.partition = part.name, part.partitions[0]
    error.offset, error.first, error.end = offset, first, end
    return error


def recreated(name: str, reader: str = "the query") -> TopicDeleted:
    """Make the error for a topic that was created again."""
    return TopicDeleted(
        f"topic {name} was deleted and created again, and what {reader} did not read of the old "
        "one is gone"
    )
