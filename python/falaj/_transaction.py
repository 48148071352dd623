"""`Transaction`: records for several topics of one log, and cursors, at once or not at all.

The compiled class has the calls that run once a record. This module moves cursors. A cursor that
the written log keeps moves in the same append as the records. So a program that reads, works and
writes does each piece of work exactly once, however often it dies.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from falaj import _core
from falaj._numbers import number
from falaj.errors import InvalidArgument, named, shown

if TYPE_CHECKING:
    from falaj._any_topic import AnyTopic

__all__ = ["Cursor", "Transaction"]

#: The transaction that a thread or task is in, or was created in: those of one do not nest.
_CURRENT: ContextVar[_core.Transaction] = ContextVar("falaj transaction")


_NAME_MAX = 512


class Cursor(tuple[bytes, int, int]):
    """A place up to which a program has read: `(name, offset, checksum)`.

    Attributes:
        name: The cursor's name in the log that keeps it, 1 to 512 bytes.
        offset: Offset of the next record to be read.
        checksum: A checksum of the input read so far, which would differ for another input, 32
            bits; 0 by default. A program that resumes may compare it.

    Example:
        >>> falaj.Cursor("billing", 18).offset
        18
    """

    __slots__ = ()

    def __new__(cls, name: str | bytes, offset: int, checksum: int = 0) -> Cursor:
        """Make one."""
        name = _core._text_or_bytes(name, "the name of a cursor")
        if not 1 <= len(name) <= _NAME_MAX:
            raise InvalidArgument(
                f"the name of a cursor is 1 to {_NAME_MAX} bytes, not {len(name)}"
            )
        offset = number(offset, "the offset of a cursor")
        checksum = number(checksum, "the checksum of a cursor")
        if not 0 <= offset < 1 << 64 or not 0 <= checksum < 1 << 32:
            raise InvalidArgument(
                "a cursor has an offset below 2**64 and a checksum below 2**32, both from 0 on, "
                f"not {shown(offset)} and {shown(checksum)}"
            )
        return super().__new__(cls, (name, offset, checksum))

    def __getnewargs__(self) -> tuple[bytes, int, int]:
        """Give the arguments that make an equal one, for pickle and copy."""
        return self.name, self.offset, self.checksum

    @property
    def name(self) -> bytes:
        """Its name."""
        return self[0]

    @property
    def offset(self) -> int:
        """Offset of the next record to be read."""
        return self[1]

    @property
    def checksum(self) -> int:
        """The checksum given with it."""
        return self[2]


class Transaction(_core.Transaction):
    """Records for several topics that become visible together; `Store.transaction` makes it.

    One thread or task is in one transaction at a time. Records of one topic keep their order. In
    the log those of one partition are consecutive, and partitions are in the order of their first
    record.
    """

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a transaction cannot be pickled or copied: begin and end it in one process"
        )

    def commit_cursor(
        self,
        cursors: Cursor | _core.Consumer[Any] | Iterable[tuple[bytes, int, int]],
        *,
        into: AnyTopic[Any] | str | None = None,
        metadata: str | None = None,
    ) -> None:
        """Move cursors when the transaction ends: with its records, or not at all.

        The log that the transaction writes to keeps them, wherever the input is; `Topic.cursor`
        reads them back. If a cursor moves twice, the last move counts.

        Args:
            cursors: A consumer that was opened with `cursor_in`: it moves to after its delivered
                records. Or a `Cursor`, or several, under names of your own.
            into: A topic of the log that is to keep them. Only needed if the transaction may append
                nothing, as when the work had no result.
            metadata: A text for a consumer's offsets, as for `Consumer.commit`.

        Raises:
            InvalidArgument: The consumer keeps its cursors in a file of its own, or in another log
                than the transaction's. Or, at the end, there are more cursors than the log
                keeps.
            PartitionNotAssigned: Another member has a partition of the consumer now, or has had it
                since, when the transaction ends. Nothing was appended.

        Example:
            >>> work, results = store.topic("work"), store.topic("results")
            >>> work.append(b"3 + 4")
            0
            >>> adder = store.consumer("adder", "work", cursor_in=results)
            >>> for record in adder:
            ...     with store.transaction() as tx:
            ...         tx.append(results, b"7")
            ...         tx.commit_cursor(adder)
            >>> adder.lag, len(results)
            (0, 1)
        """
        if isinstance(cursors, _core.Consumer):
            if into is not None:
                raise InvalidArgument(
                    "a consumer knows which log keeps its cursors: leave out into="
                )
            self._move_consumer(cursors, metadata)
            return
        if metadata is not None:
            raise InvalidArgument(
                "metadata= goes with a consumer's offsets: a cursor of your own has none"
            )
        each: Any = [cursors] if isinstance(cursors, Cursor) else cursors
        if isinstance(each, str | bytes) or not isinstance(each, Iterable):
            raise TypeError(f"cursors is a consumer, a falaj.Cursor or several, not {named(each)}")
        self._move([_cursor(it) for it in each], into)


def _cursor(given: Any) -> Cursor:
    if isinstance(given, tuple) and len(given) in (2, 3):
        return Cursor(*given)
    raise TypeError(f"a cursor is a falaj.Cursor(name, offset), not {named(given)}")
