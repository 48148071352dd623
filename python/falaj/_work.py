"""`Queue.work`: a loop that takes jobs, runs a handler for each, and settles it.

Owns the heartbeat that extends a lease while its handler runs, and the delay before a failed job is
delivered again. It also owns the clean stop on SIGTERM. Invariant: a job is acked only after its
handler returned. A stop begins no job, and the running handler ends first. However the loop ends,
it leaves no heartbeat and keeps no job.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from falaj import _core
from falaj._backoff import delay_after, delay_of
from falaj._functions import finished, plain_function
from falaj._threads import begin_thread, new_lock
from falaj.errors import ConflictError, Error, HandleClosed, LeaseExpired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from falaj._backoff import Backoff
    from falaj._core import Job
    from falaj._jobs import Jobs
    from falaj._queue import Queue

__all__ = ["work"]

T = TypeVar("T")

#: The shortest pause between two extensions of a lease, and the longest, in seconds.
_PAUSE, _PAUSE_MAX = 0.001, 86_400.0
#: A failed extension is tried again after this part of the usual pause.
_SOONER = 4


class _Stop(BaseException):
    """Raised by the signal handler while the loop waits for jobs."""


def work(
    queue: Queue[T],
    handler: Callable[[Job[T]], object],
    lease: float,
    backoff: Backoff,
    timeout: float | None,
    on_error: Callable[[Job[T], Exception], object] | None,
) -> int:
    """Run the loop; see `Queue.work`."""
    if not callable(handler):
        raise TypeError(f"work() takes a function of a job, not {type(handler).__name__}")
    plain_function(handler, "the handler")
    plain_function(on_error, "on_error")
    delay_of(backoff, 1)
    done = 0
    stopping = _Stopping()
    try:
        stopping.begin()
        while not stopping.asked:
            jobs = _next(queue, lease, timeout, stopping)
            if not jobs:
                break
            done += _attend(queue.name, jobs, handler, lease, backoff, on_error)
    finally:
        try:
            stopping.end()
        finally:
            stopping.end()  # a signal's handler may have raised before the first one did its work
    return done


def _next(
    queue: Queue[T], lease: float, timeout: float | None, stopping: _Stopping
) -> Jobs[T] | None:
    try:
        with stopping.waiting():
            jobs = queue.take(1, lease, timeout)
        # If the stop came since, the job goes back with its batch, uncounted.
        return None if stopping.asked else jobs
    except _Stop:
        return None
    except HandleClosed:
        if queue.closed:
            return None
        raise


def _attend(
    queue: str,
    jobs: Jobs[T],
    handler: Callable[[Job[T]], object],
    lease: float,
    backoff: Backoff,
    on_error: Callable[[Job[T], Exception], object] | None,
) -> int:
    """Run the handler for the job of a take; return 1 if it is done.

    An exception that ends the loop, such as Ctrl-C, returns the job as it does in `with jobs:`.
    """
    done = 0
    try:
        for job in jobs:  # it passes over a job whose lease is over
            done += _handle(queue, job, handler, lease, backoff, on_error)
    except BaseException as error:
        with suppress(Error):  # the job returns when its lease ends, and this error is lesser
            jobs.__exit__(type(error), error)
        raise
    return done


def _handle(
    queue: str,
    job: Job[T],
    handler: Callable[[Job[T]], object],
    lease: float,
    backoff: Backoff,
    on_error: Callable[[Job[T], Exception], object] | None,
) -> int:
    """Run the handler for a job; return 1 if it returned and the job is done."""
    try:
        _with_heartbeat(job, handler, lease)
    except Exception as error:  # noqa: BLE001  # the job failed, the worker did not
        try:
            if on_error is not None:
                finished(on_error(job, error), "on_error")
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


def _with_heartbeat(job: Job[T], handler: Callable[[Job[T]], object], lease: float) -> None:
    """Run the handler while a thread extends the lease of its job."""
    # No Event: a signal's handler that raises within its `set` would leave the thread running. To
    # release a lock is one call in C, which it cannot divide.
    over, ended, begun = new_lock(), new_lock(), list[int]()
    over.acquire()
    ended.acquire()
    try:
        # No green thread, which would not run while the handler keeps this one.
        begin_thread(_beat_to_the_end, job, lease, over, ended, begun=begun)
        finished(handler(job), "the handler")
    finally:
        over.release()
        if begun:  # its start may have been interrupted
            ended.acquire()


def _beat_to_the_end(
    job: Job[Any], lease: float, over: threading.Lock, ended: threading.Lock
) -> None:
    """Beat in a thread of its own, and say when that ends."""
    try:
        _beat(job, lease, over)
    finally:
        ended.release()


def _beat(job: Job[Any], lease: float, over: threading.Lock) -> None:
    """Extend the lease of a job, three times a lease, until it is lost or the handler's end."""
    usual = min(max(lease / 3, _PAUSE), _PAUSE_MAX)
    pause = usual
    while not over.acquire(timeout=pause):
        try:
            job.extend(lease)
        except (ConflictError, HandleClosed):  # the lease is lost: the ack raises then
            return
        except Error:
            # Such as a lock that was not free in time: the lease goes on, and so does this.
            pause = max(usual / _SOONER, _PAUSE)
        else:
            pause = usual


class _Stopping:
    """Notes SIGTERM, and ends the wait for jobs with it. In other threads it only restores."""

    def __init__(self) -> None:
        self.asked = False
        self._waits = False
        self._before: Any = None
        self._is_main = threading.current_thread() is threading.main_thread()

    def begin(self) -> None:
        """Note SIGTERM from here on."""
        if self._is_main:
            self._before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
            signal.signal(signal.SIGTERM, self._on_signal)

    def end(self) -> None:
        """Restore the signal's handler; once more does nothing more."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

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
