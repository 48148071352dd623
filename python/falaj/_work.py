"""`Queue.work`: a loop that takes jobs, runs a handler for each, and settles it.

Owns the heartbeat that extends a lease while its handler runs, and the delay before a failed job is
delivered again. It also owns the clean stop on SIGTERM. Invariant: a job is acked only after its
handler returned. A stop begins no job, and the running handler ends first.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from falaj import _core
from falaj._backoff import delay_after, delay_of
from falaj._checks import function
from falaj._numbers import seconds
from falaj.errors import Error, HandleClosed, LeaseExpired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from falaj._backoff import Backoff
    from falaj._core import Job
    from falaj._queue import Queue
    from falaj._time import Duration

__all__ = ["work"]

T = TypeVar("T")


class _Stop(BaseException):
    """Raised by the signal handler while the loop waits for jobs."""


def work(
    queue: Queue[T],
    handler: Callable[[Job[T]], object],
    lease: Duration,
    backoff: Backoff,
    timeout: Duration | None,
    on_error: Callable[[Job[T], Exception], object] | None,
) -> int:
    """Run the loop; see `Queue.work`."""
    if not callable(handler):
        raise TypeError(f"work() takes a function of a job, not {type(handler).__name__}")
    function(on_error, "on_error")
    delay_of(backoff, 1)
    done = 0
    with _Stopping() as stopping:
        while not stopping.asked:
            job = _next(queue, lease, timeout, stopping)
            if job is None:
                break
            done += _handle(queue.name, job, handler, lease, backoff, on_error)
    return done


def _next(
    queue: Queue[T], lease: Duration, timeout: Duration | None, stopping: _Stopping
) -> Job[T] | None:
    try:
        with stopping.waiting():
            jobs = queue.take(1, lease, timeout)
        # If the stop came since, the job goes back with its batch, uncounted.
        return None if stopping.asked or not jobs else jobs[0]
    except _Stop:
        return None
    except HandleClosed:
        if queue.closed:
            return None
        raise


def _handle(
    queue: str,
    job: Job[T],
    handler: Callable[[Job[T]], object],
    lease: Duration,
    backoff: Backoff,
    on_error: Callable[[Job[T], Exception], object] | None,
) -> int:
    """Run the handler for a job; return 1 if it returned and the job is done."""
    try:
        with _Heartbeat(job, lease):
            handler(job)
    except Exception as error:  # noqa: BLE001  # the job failed, the worker did not
        try:
            if on_error is not None:
                on_error(job, error)
        finally:
            if not job.settled:
                delay = delay_after(backoff, job.attempt, queue)
                with suppress(LeaseExpired):
                    job.nack(delay, reason=_core._reason_of(error))
        return 0
    if not job.settled:
        try:
            job.ack()
        except LeaseExpired:
            return 0
    return 1


class _Heartbeat:
    """Extends the lease of a job from a thread, three times a lease, until the block ends."""

    def __init__(self, job: Job[Any], lease: Duration) -> None:
        self._job = job
        self._lease = seconds(lease, "a lease") or 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="falaj-heartbeat", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(self._lease / 3):
            try:
                self._job.extend(self._lease)
            except Error:  # its lease is over, or the queue was closed: the ack raises then
                return


class _Stopping:
    """Notes SIGTERM, and ends the wait for jobs with it. In other threads it only restores."""

    def __init__(self) -> None:
        self.asked = False
        self._waits = False
        self._before: Any = None
        self._is_main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> _Stopping:
        if self._is_main:
            self._before = signal.signal(signal.SIGTERM, self._on_signal)
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._is_main:
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.asked = True
        if self._waits:
            raise _Stop

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While this block runs, the signal ends it."""
        self._waits = True
        try:
            if self.asked:
                raise _Stop
            yield
        finally:
            self._waits = False
