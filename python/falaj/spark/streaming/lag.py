"""The cursors of a stream, which show its lag beside that of other consumers.

The progress of a stream is its checkpoint. With the option `consumer` the cursors of a consumer
group follow it. They move when the stream starts and after each batch, and `falaj group list` shows
how far the stream is behind. These cursors only show progress; they never decide what is read. So
an error that keeps one from moving is reported, and does not fail the query.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import falaj
from falaj.errors import Error, InvalidArgument, LockTimeout, PartitionNotAssigned
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from pathlib import Path

    from falaj import Store
    from falaj._consumer import Consumer
    from falaj.spark.reading.loss import Loss
    from falaj.spark.streaming.checkpoint import Places

__all__ = ["Cursors"]


class Cursors:
    """The consumer group that follows a stream; it is opened when its cursors first move."""

    def __init__(self, path: Path, name: str, loss: Loss) -> None:
        self._path = path
        self._name = name
        self._loss = loss
        self._store: Store | None = None
        self._member: Consumer[Any] | None = None
        self._reads: dict[str, str] = {}
        self._at: Places | None = None

    def begin(self, places: Places) -> None:
        """Move to where the stream stands as it starts.

        Raises:
            Error: No consumer group of this name is possible, or this user may not have one in this
                store.
        """
        try:
            self._move(places)
        except (InvalidArgument, PartitionNotAssigned, LockTimeout) as error:
            self._say(error)

    def move(self, places: Places) -> None:
        """Move to the position of the stream; report an error that keeps a cursor from moving."""
        if places == self._at:
            return
        try:
            self._move(places)
        except Error as error:
            self._say(error)

    def close(self) -> None:
        """Close the cursors; they stay where they are."""
        member, store = self._member, self._store
        self._member, self._store, self._reads = None, None, {}
        with contextlib.suppress(Error):
            if member is not None:
                member.close()
        if store is not None:
            store.close()

    def _move(self, places: Places) -> None:
        self._at = places
        if not places:
            return
        member = self._opened(places)
        held = set(member.partitions)  # takes what became free
        others = []
        for name, standing in places.items():
            for number, place in standing.partitions.items():
                if (name, number) not in held:
                    others.append(f"{name}/{number}")
                elif member.committed(name, number) != place.offset:
                    member.commit(place.offset, topic=name, partition=number)
        if others:
            self._at = None  # looked at again soon: the others may leave
            raise PartitionNotAssigned(f"other members of it have {', '.join(others)}")

    def _opened(self, places: Places) -> Consumer[Any]:
        reads = {name: standing.generation for name, standing in places.items()}
        if self._member is None or reads != self._reads:
            self.close()
            self._store = falaj.open(self._path)
            topics = [open_raw(self._store, name) for name in reads]
            self._member = self._store.consumer(self._name, topics)
            self._reads = reads
        return self._member

    def _say(self, error: Error) -> None:
        self._loss.warn(
            f"consumer {self._name}: cursors do not follow the stream, which goes on: {error}; "
            "give each query a consumer of its own"
        )
