"""Reads the pieces of a view from a place, in parallel, and passes on bytes that are checked.

Owns how neighbouring pieces become one request, and the bound of bytes in flight. Invariant: every
piece that is passed on has the checksum that its number says.
"""

from __future__ import annotations

import zlib
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple

from falaj.ship.objects import InFlight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from falaj.ship.objects import Patience
    from falaj.ship.origin import Origin
    from falaj.ship.shapes import Piece
    from falaj.ship.tree import View

__all__ = ["Target", "fetch", "targets_of"]

REQUEST_MAX = 8 << 20
THREADS = 8


class Target(NamedTuple):
    """A piece of a segment, and how much of it lies in the segment."""

    log: str
    sequence: int
    piece: Piece
    length: int


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


def fetch(
    origin: Origin,
    targets: list[Target],
    patience: Patience,
    write: Callable[[Target, bytes], None],
    done: Callable[[int], None],
    in_flight: int,
) -> None:
    """Read pieces and pass each to `write`, from several threads.

    Raises:
        CorruptData: A piece is missing or corrupt.
    """
    bound = InFlight(in_flight)

    def work(group: list[Target], taken: int) -> None:
        try:
            for target, data in _read(origin, group, patience):
                write(target, bytes(data[: target.length]))
                done(target.length)
        finally:
            bound.give(taken)

    with ThreadPoolExecutor(THREADS, "falaj-fetch") as pool:
        running = set()
        for group in _groups(targets):
            taken = bound.take(sum(each.piece.length for each in group))
            running.add(pool.submit(work, group, taken))
            finished = {future for future in running if future.done()}
            running -= finished
            if any(future.exception() for future in finished):
                pool.shutdown(cancel_futures=True)
                _ = [future.result() for future in finished]
        finished, rest = wait(running, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
        for future in finished:
            future.result()


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
) -> Iterator[tuple[Target, memoryview | bytes]]:
    first, last = group[0].piece, group[-1].piece
    if first.key.startswith("n/") or len(group) == 1:
        for target in group:
            yield target, patience(lambda piece=target.piece: origin.bytes_of(piece))  # type: ignore[misc]
        return
    stop = last.offset + last.length
    data = memoryview(patience(lambda: origin.range_of(first, first.offset, stop)))
    for target in group:
        piece = target.piece
        part = data[piece.offset - first.offset : piece.offset - first.offset + piece.length]
        if zlib.crc32(part) != piece.crc:
            raise origin.wrong(piece, f"is corrupt at byte {piece.offset}")
        yield target, part
