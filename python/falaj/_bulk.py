"""`BulkLoad`: many records that become visible at once, or not at all.

This is for records that one process writes; `Topic.bulk_load` makes it. It stages a part and
commits it. Several processes do the same with `Topic.stage` and `Topic.commit_bulk_load`.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any, NoReturn, Self

from falaj._any_topic import GIVE_THE_PATH
from falaj._checks import text
from falaj._numbers import number
from falaj.errors import HandleClosed, InvalidArgument, named

if TYPE_CHECKING:
    from falaj._any_topic import AnyTopic
    from falaj._core import Part

__all__ = ["BulkLoad"]


def _pair(key: Any) -> tuple[str, int]:
    if not isinstance(key, tuple | list) or len(key) != 2:
        raise TypeError(
            "idempotency_key is a pair of the name of a series and a number, such as "
            f'("nightly", 20261127), not {named(key)}'
        )
    series, at = key
    return text(series, "the name of a series of bulk loads"), number(
        at, "the number of a bulk load"
    )


class BulkLoad:
    """Records that become visible at once when the `with` block ends; `Topic.bulk_load` makes it.

    After an exception in the block nothing of the load is ever visible. Records are written to a
    file beside the log as they come, so memory does not grow with the load. It belongs to the
    process that began it: a forked child can neither append to it nor end it.

    Attributes:
        done: True if the idempotency key was committed before the block began. The work can be
            skipped; records appended nevertheless are not committed again.
    """

    __slots__ = ("_key", "_name", "_part", "_process", "_told", "_topic", "done")

    def __init__(self, topic: AnyTopic[Any], name: str, key: tuple[str, int] | None) -> None:
        """Make it; `Topic.bulk_load` calls this."""
        self._topic = topic
        self._name = text(name, "the name of a bulk load")
        self._key = None if key is None else _pair(key)
        self._part: Part | None = None
        self._process = 0
        self.done = False
        # Filled within the commit: an exception of a signal's handler may come right behind it.
        self._told: dict[str, Any] = {}

    @property
    def committed(self) -> bool | None:
        """True when this call committed it, False when its key was committed before, else None."""
        return self._told.get("committed")

    @property
    def records(self) -> int:
        """How many records were appended."""
        appended: int = self._told.get("records", 0)
        return appended

    @property
    def offsets(self) -> dict[int, range]:
        """The range of offsets of each partition with records."""
        return {p: range(*found) for p, found in self._told.get("offsets", {}).items()}

    @property
    def part(self) -> Part:
        """The staged part: `append` and `append_arrow` are its methods.

        Raises:
            InvalidArgument: The `with` block has not begun, or is over.
            HandleClosed: Another process began it, which forked this one.
        """
        if self._part is None:
            raise InvalidArgument(
                "a bulk load is a context manager: with topic.bulk_load(…) as load"
            )
        if self._process != os.getpid():
            raise HandleClosed(
                "this bulk load was made before a fork and belongs to the parent: make another in "
                "this process"
            )
        return self._part

    def append(self, value: Any, **rest: Any) -> None:
        """Append a record when the load ends.

        Args:
            value: As for `Part.append`.
            **rest: key, headers, time and partition, as for `Part.append`.

        Raises:
            InvalidArgument: The topic has no such partition, or the load is over.
            AppendTooLarge: It is larger than one append may be.
        """
        self.part.append(value, **rest)

    def tombstone(self, key: Any, **rest: Any) -> None:
        """Append a tombstone when the load ends: a key without a value, which deletes the key.

        Args:
            key: As for `Topic.tombstone`.
            **rest: headers, timestamp and partition, as for `Topic.tombstone`.

        Raises:
            InvalidArgument, AppendTooLarge: As for `append`.
        """
        self.part.tombstone(key, **rest)

    def append_arrow(self, batch: Any) -> int:
        """Append the rows of record batches when the load ends; see `Part.append_arrow`.

        A null value is a tombstone.
        """
        return self.part.append_arrow(batch)

    def __enter__(self) -> Self:
        """Begin the load."""
        if self._part is not None or self.committed is not None:
            raise InvalidArgument("this bulk load was begun before: make another")
        if not self._name:
            raise InvalidArgument("the name of a bulk load needs at least one character")
        if self._key is not None:
            last = self._topic.last_idempotency_key(self._key[0])
            self.done = last is not None and self._key[1] <= last
        # Two loads of one name at once are independent.
        self._name = f"{self._name}.{secrets.token_hex(4)}"
        self._process = os.getpid()
        self._part = self._topic.stage(self._name, "0", idempotency_key=self._key)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Commit it, or abort it if the block ended with an exception."""
        if kind is not None and self._process != os.getpid():
            return  # what a forked child raised says nothing of its parent's load
        part, self._part = self.part, None
        if kind is not None:
            part.abort()
            return
        try:
            self._topic._commit_bulk_load(self._name, [part.finish()], self._key, self._told)
        except BaseException:
            self._topic.abort_bulk_load(self._name)
            raise

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a bulk load cannot be pickled or copied: {GIVE_THE_PATH}")

    def __repr__(self) -> str:
        """Show its name and state."""
        if self._part is not None:
            state = "open"
        elif self.committed is None:
            state = "not committed"
        else:
            state = f"{self.records} records committed" if self.committed else "committed before"
        return f"<falaj.BulkLoad {self._name!r}, {state}>"
