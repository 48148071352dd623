"""Reads the pieces of a view from a place, in parallel, and passes on bytes that are checked.

Owns how neighbouring pieces become one request, and the bound of bytes in flight. Invariant: every
piece that is passed on has the checksum that its number says, and none is passed on any more once
`fetch` has raised. A thread that still waits for the place then is left alone. Pieces that an
earlier restore left are looked for in as many threads, before any is fetched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple

from falaj import _core
from falaj.ship.objects import InFlight, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from falaj.ship.objects import Patience
    from falaj.ship.origin import Origin
    from falaj.ship.shapes import Piece
    from falaj.ship.tree import View

__all__ = ["Target", "Writes", "checked", "fetch", "missing", "targets_of"]

REQUEST_MAX = 8 << 20
THREADS = 8


Write = Callable[["Target", bytes, int, int], bool]


class Target(NamedTuple):
    """A piece of a segment, and how much of it lies in the segment."""

    log: str
    sequence: int
    piece: Piece
    length: int


class Writes:
    """Counts the writes of other threads that are under way, and lets none begin after its end."""

    def __init__(self) -> None:
        self._count, self._is_over = 0, False
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        """Begin one.

        Raises:
            Stopped: No more begin.
        """
        with self._changed:
            if self._is_over:
                raise Stopped
            self._count += 1

    def __exit__(self, *_: object) -> None:
        """End one."""
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let no more begin, and wait for those under way."""
        with self._changed:
            self._is_over = True
            self._changed.wait_for(lambda: not self._count)


def targets_of(view: View) -> list[Target]:
    """List the pieces of all segments, those of one object together.

    Objects come in the order of the segments in them. So segments become whole one after the other,
    and the engine checks each while the next ones are on their way.
    """
    found = [
        Target(name, sequence, piece, min(piece.stop, segment.length) - piece.position)
        for name, log in view.logs.items()
        for sequence, segment in sorted(log.segments.items())
        for piece in segment.pieces
        if piece.position < segment.length
    ]
    first: dict[str, int] = {}
    for number, each in enumerate(found):
        first.setdefault(each.piece.key, number)
    return sorted(found, key=lambda each: (first[each.piece.key], each.piece.offset))


def checked(target: Target, data: bytes, start: int, stop: int) -> memoryview | None:
    """Return the bytes of a piece that lie in its segment; None if they have another checksum."""
    if _core._crc32(data, start, stop) != target.piece.crc:
        return None
    return memoryview(data)[start : start + target.length]


def missing(
    targets: list[Target], is_there: Callable[[Target], bool], done: Callable[[int], None]
) -> list[Target]:
    """Ask for each piece whether it is there; return those that are not, in their order."""

    def look(target: Target) -> bool:
        found = is_there(target)
        if found:
            done(target.length)
        return found

    with ThreadPoolExecutor(THREADS, "falaj-look") as pool:
        try:
            found = list(pool.map(look, targets))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [target for target, is_left in zip(targets, found, strict=True) if not is_left]


def fetch(
    origin: Origin,
    targets: list[Target],
    patience: Patience,
    write: Write,
    done: Callable[[int], None],
    in_flight: int,
) -> None:
    """Read pieces and pass each to `write`, from several threads.

    Args:
        origin: Where they lie.
        targets: The pieces.
        patience: Asks the place.
        write: Checks a piece, and writes it: bytes, and where in them the piece begins and ends.
            It returns False for a piece that has another checksum.
        done: Called with the bytes of each piece that was written.
        in_flight: Bytes that are in memory at a time.

    Raises:
        CorruptData: A piece is missing or corrupt.
    """
    bound, asks, writes = InFlight(in_flight), patience.apart(), Writes()

    def work(group: list[Target], taken: int) -> None:
        try:
            for target, data, start in _read(origin, group, asks):
                with writes:
                    if not write(target, data, start, start + target.piece.length):
                        raise origin.corrupt(target.piece)
                    done(target.length)
        finally:
            bound.give(taken)

    pool = ThreadPoolExecutor(THREADS, "falaj-fetch")
    try:
        running = set()
        for group in _groups(targets):
            taken = bound.take(sum(each.piece.length for each in group))
            running.add(pool.submit(work, group, taken))
            finished = {future for future in running if future.done()}
            running -= finished
            for future in finished:
                future.result()
        for future in wait(running, return_when=FIRST_EXCEPTION).done:
            future.result()
        pool.shutdown()
    except BaseException:
        # The place may give no answer for long, and a handler's exception waits for none.
        asks.end()
        pool.shutdown(wait=False, cancel_futures=True)
        writes.end()
        raise


def _groups(targets: list[Target]) -> Iterator[list[Target]]:
    """Join pieces that lie one behind the other in an object."""
    group: list[Target] = []
    for target in targets:
        last = group[-1].piece if group else None
        joins = (
            last is not None
            and last.key == target.piece.key
            and last.offset + last.length == target.piece.offset
            and target.piece.offset + target.piece.length - group[0].piece.offset <= REQUEST_MAX
        )
        if group and not joins:
            yield group
            group = []
        group.append(target)
    if group:
        yield group


def _read(
    origin: Origin, group: list[Target], patience: Patience
) -> Iterator[tuple[Target, bytes, int]]:
    """Yield each piece as bytes and the place in them at which it begins."""
    first, last = group[0].piece, group[-1].piece
    if first.key.startswith("n/"):
        for target in group:
            yield target, patience(lambda piece=target.piece: origin.bytes_of(piece)), 0  # type: ignore[misc]
        return
    stop = last.offset + last.length
    data = patience(lambda: origin.range_of(first, first.offset, stop))
    for target in group:
        yield target, data, target.piece.offset - first.offset
