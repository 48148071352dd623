"""`Jobs`: the jobs of one take. `Queue.take` makes it.

Owns when a job of a batch begins: when the batch returns it. A job that it never returned was no
attempt.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeVar, overload

from falaj import _core
from falaj._core import Job
from falaj.errors import named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from falaj._queue import Queue
    from falaj._time import Duration

__all__ = ["Jobs"]

T = TypeVar("T")


class Jobs(list[Job[T]]):
    """Jobs that were taken together: a list that begins each job when it returns it.

    A job begins when iteration reaches it, when it is indexed or popped, or by `Job.begin`.
    Iteration passes over jobs whose lease is over by then: other workers may have them. In a forked
    child it passes over those that the parent took. Slices and copies are batches too, and begin
    nothing.

    It is a context manager: jobs that are not settled when the block ends are returned, as by
    `nack`. An exception that leaves the block is the reason. If several of those had begun, each of
    them is a suspect, because any may have failed.

    Example:
        >>> queue = store.queue("jobs")
        >>> _ = queue.put(b"one"), queue.put(b"two")
        >>> with queue.take(2) as jobs:
        ...     for job in jobs:
        ...         with job:
        ...             raise ValueError("poison")
        Traceback (most recent call last):
        ValueError: poison
        >>> {job.to_bytes(): job.attempt for job in queue.take(2)}
        {b'two': 1, b'one': 2}
    """

    __slots__ = ("_parents", "_process", "_queue", "_taken")
    _taken: tuple[Job[T], ...]
    #: Which of them a parent of this process took, by `id`.
    _parents: frozenset[int]

    def __init__(self, jobs: Iterable[Job[T]], queue: Queue[T]) -> None:
        self._taken = tuple(jobs)
        super().__init__(self._taken)
        self._queue = queue
        self._process = os.getpid()
        self._parents = frozenset()

    def _foreign(self) -> frozenset[int]:
        """Return which jobs a parent of this process took; a fork copied the batch."""
        if self._process != (process := os.getpid()):
            self._process, self._parents = process, frozenset(map(id, self._taken))
        return self._parents

    def _others(self, jobs: Iterable[Job[Any]], *batches: Iterable[Any]) -> Jobs[Any]:
        """Make a batch of jobs of this one and of others."""
        made = Jobs(jobs, self._queue)
        foreign = self._foreign().union(*(b._foreign() for b in batches if isinstance(b, Jobs)))
        if foreign:
            made._parents = foreign.intersection(map(id, made._taken))
        return made

    def _reach(self, job: Job[T]) -> bool:
        """Begin a job; return whether it is this process's, and its lease goes on."""
        # A job that the parent began would begin here too, without a look at its lease.
        return id(job) not in self._foreign() and job._reach()

    def ack(self) -> None:
        """Ack all of them, as `Queue.ack`."""
        self._queue.ack(self)

    def nack(self, delay: Duration | None = None, *, reason: str | None = None) -> None:
        """Return the jobs that are not settled, at once or after a delay.

        Jobs that have begun count an attempt, the others do not. A job whose lease is over needs
        nothing.

        Args:
            delay: Seconds before they are delivered again. By default jobs that have begun wait as
                the queue's `backoff` says, and the others are delivered at once.
            reason: Why they failed, for dead letters; as for `Job.nack`.
        """
        self._queue._release(list.copy(self), delay, reason)

    def __iter__(self) -> Iterator[Job[T]]:
        return filter(self._reach, list.__iter__(self))

    def __contains__(self, item: object) -> bool:
        if isinstance(item, Job):
            return list.__contains__(self, item)
        raise TypeError(f"`in` looks for a job of the batch, not for {named(item)}")

    def __reversed__(self) -> Iterator[Job[T]]:
        return filter(self._reach, list.__reversed__(self))

    @overload
    def __getitem__(self, index: SupportsIndex) -> Job[T]: ...
    @overload
    def __getitem__(self, index: slice) -> Jobs[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Job[T] | Jobs[T]:
        if isinstance(index, slice):
            return self._others(list.__getitem__(self, index))
        job = list.__getitem__(self, index)
        job._reach()
        return job

    def pop(self, index: SupportsIndex = -1) -> Job[T]:
        """Remove a job from the list, begin it, and return it."""
        job = list.pop(self, index)
        job._reach()
        return job

    def copy(self) -> Jobs[T]:
        """Return the same jobs as another batch."""
        return self[:]

    __copy__ = copy

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "jobs cannot be pickled or copied, because their leases are this process's: give other "
            "processes their records, or let them take jobs themselves"
        )

    def __add__(self, other: list[Any]) -> Jobs[Any]:  # type: ignore[override]
        return self._others(list.__add__(self, other), other)

    def __enter__(self) -> Jobs[T]:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        _traceback: object = None,
    ) -> None:
        reason = None if error is None else _core._reason_of(error)
        self._queue._release(self._taken, None, reason, failed=error is not None)
