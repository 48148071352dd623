"""Fetches the segments that a scan of a place comes to next, while it reads.

Owns when that is worth it. A reader that comes from one segment to the next scans. The more it
read, the more is fetched ahead, up to a bound of bytes. Invariant: no more is fetched ahead of a
log than was read of it in order. So a reader that stops early paid at most twice. Errors are left
to the reader, which meets them at the segment itself. `replica` brings the segments.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from falaj.ship.shapes import Segment

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AHEAD_BYTES", "Ahead"]

AHEAD_BYTES = 256 << 20
"""Bytes that scans fetch ahead together; a quarter of the cache is a bound, too."""
_THREADS = 2
"""Segments that come at a time: while the last requests for one are answered, the next begins."""
_SCANS = 64
"""Scans that are known at a time; of the others, the next segment counts as their first."""


@dataclass(slots=True)
class _Scan:
    """Where a scan of a log is: how many segments go ahead of it, and which it may come to next."""

    count: int = 0
    next: set[int] = field(default_factory=set)


class Ahead:
    """Fetches segments in threads of its own, which end when there is nothing to fetch.

    Args:
        most: Bytes that may be ahead.
        bring: Fetches a segment: the log and its sequence.
        stop: Set when the view is closed.
    """

    def __init__(self, most: int, bring: Callable[[str, int], None], stop: threading.Event) -> None:
        self._most, self._bring, self._stop = most, bring, stop
        self._lock = threading.RLock()
        self._scans: OrderedDict[tuple[str, int], _Scan] = OrderedDict()
        self._wanted: deque[tuple[str, int]] = deque()
        self._threads: set[threading.Thread] = set()

    def comes_to(self, log: str, sequence: int, later: Callable[[], list[Segment]]) -> None:
        """Note that this thread came to a segment, which it lacks.

        Args:
            log: Its log.
            sequence: Its sequence.
            later: Returns the sealed segments behind it, in order.
        """
        with self._lock:
            scan, others = self._scan_of(log)
            most = self._most // (1 + others)
            scan.count = max(1, 2 * scan.count) if sequence in scan.next else 0
            behind, order = later(), list[Segment]()
            for each in behind[: scan.count]:
                if sum(one.length for one in order) + each.length > most:
                    break
                order.append(each)
            scan.count = min(scan.count, len(order))
            # One more than is fetched: if all of those are here, it is the one that is lacked next.
            scan.next = {each.sequence for each in behind[: scan.count + 1]}
            wanted = [(log, each.sequence) for each in order]
            kept = [each for each in self._wanted if each not in (*wanted, (log, sequence))]
            self._wanted = deque([*kept, *wanted])
            self._start()

    def _scan_of(self, log: str) -> tuple[_Scan, int]:
        """Return the scan of this thread, and how many others went on since its last segment.

        They share the bound. A thread seldom has two scans of one log.
        """
        key = log, threading.get_ident()
        scan = self._scans.setdefault(key, _Scan())
        others = len(self._scans) - 1 - [*self._scans].index(key)
        self._scans.move_to_end(key)
        if len(self._scans) > _SCANS:
            self._scans.popitem(last=False)
        return scan, others

    def _start(self) -> None:
        while len(self._threads) < min(_THREADS, len(self._wanted)):
            thread = threading.Thread(target=self._work, name="falaj-ahead", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _work(self) -> None:
        own = threading.current_thread()
        while True:
            with self._lock:
                if self._stop.is_set() or not self._wanted:
                    self._threads.discard(own)
                    return
                log, sequence = self._wanted.popleft()
            try:
                self._bring(log, sequence)
            except Exception:  # noqa: BLE001  # its reader meets it, and can do something about it
                with self._lock:
                    self._wanted.clear()

    def close(self) -> None:
        """Wait for the threads. `stop` is set."""
        with self._lock:
            self._wanted.clear()
            # A collector may close a view in any thread.
            threads = self._threads - {threading.current_thread()}
        for thread in threads:
            thread.join()
