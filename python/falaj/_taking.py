"""`Taking`: a take of a queue's jobs that asyncio waits for."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from falaj._any_topic import GIVE_THE_PATH

if TYPE_CHECKING:
    from collections.abc import Generator

    from falaj._jobs import Jobs
    from falaj._queue import Queue
    from falaj._time import Duration

__all__ = ["Taking"]

T = TypeVar("T")


class Taking(Coroutine[Any, Any, "Jobs[T]"], Generic[T]):
    """A take that asyncio waits for: a coroutine, and a context manager; `Queue.atake` makes it.

    It begins when it is awaited, or when `asyncio.create_task` or `gather` runs it.
    """

    __slots__ = ("_jobs", "_queue", "_running", "_what")

    def __init__(self, queue: Queue[T], n: int, lease: Duration, timeout: Duration | None) -> None:
        self._queue = queue
        self._what = (n, lease, timeout)
        self._jobs: Jobs[T] | None = None
        self._running: Coroutine[Any, Any, Jobs[T]] | None = None

    def __await__(self) -> Generator[Any, None, Jobs[T]]:
        return self._begun().__await__()

    def send(self, value: Any, /) -> Any:
        """Continue it; Python calls this."""
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception in it; Python calls this, for example to cancel a task."""
        return self._begun().throw(*error)

    def close(self) -> None:
        """End it; Python calls this."""
        if self._running is not None:
            self._running.close()

    def _begun(self) -> Coroutine[Any, Any, Jobs[T]]:
        if self._running is None:
            from falaj._wait import take  # asyncio takes as long to import as all of falaj

            self._running = take(self._queue, *self._what)
        return self._running

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a take cannot be pickled or copied: {GIVE_THE_PATH}")

    async def __aenter__(self) -> Jobs[T]:
        self._jobs = await self
        return self._jobs

    async def __aexit__(self, *exception: Any) -> None:
        if self._jobs is not None:
            self._jobs.__exit__(*exception)
