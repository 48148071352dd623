"""How bytes become objects: packs of ranges, and sealed segments as a whole.

Owns the layout inside objects; docs/PLACE.md, "Objects", describes it. Invariant: bytes of a sealed
segment replace the pieces that the place has only if they have the same checksums. So bytes that
became corrupt on the local disk never replace a good copy. Putting is left to `objects`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from falaj import _core
from falaj.errors import CorruptData
from falaj.ship.objects import Uploads, all_of
from falaj.ship.shapes import FIRST_BLOCK, INLINE, SALT, Piece, Segment
from falaj.ship.tree import PIECE_MAX, View, keys_to_repack, runs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor, Future

    from falaj.ship.origin import Origin

__all__ = ["INLINE_MAX", "Join", "Sealing", "Wanted", "put_together", "repack"]

INLINE_MAX = 48 << 10
"""Bytes that go into the number itself: one request instead of two in a row."""
PACK_MAX = 8 << 20
PART_MAX = 8 << 20
"""Bytes of a part of a sealed segment: so small that several parts are under way at a time."""
_PAGE = FIRST_BLOCK // 2


class Wanted(NamedTuple):
    """Bytes that are to be put: what they are for `join`, and what takes their piece."""

    position: int
    size: int
    part: Any
    into: Callable[[Piece], None]


if TYPE_CHECKING:
    Join = Callable[[Sequence[Any]], tuple[bytes, list[int]]]
    """Joins bytes and parts of `Wanted`, and computes the CRC-32 of each, as `Cut.gather` does."""


# --- Packs ----------------------------------------------------------------------------------------


def put_together(
    wanted: Sequence[Wanted], uploads: Uploads, join: Join, inline_most: int = INLINE_MAX
) -> tuple[dict[str, int], bytes]:
    """Put bytes into as few objects as make sense, and give everyone its piece.

    Returns:
        The objects with their sizes, and the bytes that go into the number instead.
    """
    if sum(each.size for each in wanted) <= inline_most:
        inline, pieces = _joined(wanted, join)
        _deliver(wanted, pieces, INLINE)
        return {}, inline
    packs = list(_packs(wanted))
    pieces_of: list[list[Piece]] = [[] for _ in packs]
    started = [
        _start(pack, pieces, uploads, join) for pack, pieces in zip(packs, pieces_of, strict=True)
    ]
    keys = all_of(started)
    for pack, pieces, key in zip(packs, pieces_of, keys, strict=True):
        _deliver(pack, pieces, key)
    return {key: uploads.sizes[key] for key in keys}, b""


def _start(
    pack: Sequence[Wanted], pieces: list[Piece], uploads: Uploads, join: Join
) -> Future[str]:
    def make() -> bytes:
        body, found = _joined(pack, join, os.urandom(SALT))
        pieces.extend(found)
        return body

    return uploads.start("k", sum(each.size for each in pack), make)


def _packs(wanted: Sequence[Wanted]) -> Iterator[list[Wanted]]:
    pack: list[Wanted] = []
    size = 0
    for each in wanted:
        if pack and size + each.size > PACK_MAX:
            yield pack
            pack, size = [], 0
        pack.append(each)
        size += each.size
    yield pack


def _joined(wanted: Sequence[Wanted], join: Join, salt: bytes = b"") -> tuple[bytes, list[Piece]]:
    """Join bytes behind a salt; the key of their pieces comes later."""
    body, checksums = join([salt, *(each.part for each in wanted)])
    offset = len(salt)
    pieces: list[Piece] = []
    for each, crc in zip(wanted, checksums[1:], strict=True):
        pieces.append(Piece(each.position, each.size, INLINE, offset, crc))
        offset += each.size
    assert offset == len(body)
    return body, pieces


def _deliver(wanted: Sequence[Wanted], pieces: Sequence[Piece], key: str) -> None:
    for each, piece in zip(wanted, pieces, strict=True):
        each.into(replace(piece, key=key))


# --- Sealed segments ------------------------------------------------------------------------------


class _Range(NamedTuple):
    """Bytes of a segment that become one piece; `old` is what the place has of them."""

    start: int
    stop: int
    old: list[Piece]


class Sealing:
    """A sealed segment on its way to the place as a whole.

    Args:
        log: Directory of the log.
        segment: The segment, with the pieces that the place has.
        missing: The ranges of bytes that the place lacks.
        join: Joins bytes and ranges of segments.
        origin: Where the pieces are.
    """

    def __init__(
        self,
        log: str,
        segment: Segment,
        missing: Sequence[tuple[int, int]],
        join: Join,
        origin: Origin,
    ) -> None:
        self.log, self.segment, self._join, self._origin = log, segment, join, origin
        self._parts = list(_parts(segment, missing))
        self._pieces: list[list[Piece]] = [[] for _ in self._parts]
        self._started: list[Future[str]] = []

    def start(self, uploads: Uploads) -> list[Future[str]]:
        """Begin to put its parts, several at a time."""
        return [
            uploads.start("s", self._size(number), lambda number=number: self._part(number))  # type: ignore[misc]
            for number in range(len(self._parts))
        ]

    def put_with(self, pool: Executor, uploads: Uploads) -> list[Future[str]]:
        """Begin to put its parts, as many at a time as the pool has threads."""
        return [
            pool.submit(lambda number=number: uploads.put("s", self._part(number)))  # type: ignore[misc]
            for number in range(len(self._parts))
        ]

    def finished(self, keys: Sequence[str]) -> Segment:
        """Return the segment with its pieces in the objects of these keys."""
        pieces = [
            replace(piece, key=key)
            for key, part in zip(keys, self._pieces, strict=True)
            for piece in part
        ]
        return replace(self.segment, pieces=pieces)

    def _size(self, number: int) -> int:
        return FIRST_BLOCK + sum(each.stop - each.start for each in self._parts[number])

    def _part(self, number: int) -> bytes:
        """Make the body of a part: the header as a file has it, then bytes without holes."""
        header = self.segment.header
        head = header.ljust(_PAGE, b"\0") * 2 if number == 0 else header
        ranges = [
            each._replace(stop=min(each.stop, self.segment.length)) for each in self._parts[number]
        ]
        sequence = self.segment.sequence
        body, checksums = self._join(
            [head, *((self.log, sequence, each.start, each.stop) for each in ranges)]
        )
        offset, pieces = len(head), list[Piece]()
        for (start, stop, old), crc in zip(ranges, checksums[1:], strict=True):
            piece = Piece(start, stop - start, INLINE, offset, crc)
            self._expect_same(body, piece, old)
            pieces.append(piece)
            offset += piece.length
        self._pieces[number] = pieces
        return body

    def _expect_same(self, body: bytes, new: Piece, old: list[Piece]) -> None:
        for piece in old:
            start = new.offset + piece.position - new.position
            stop = start + min(piece.stop, new.stop) - piece.position
            if stop - start == new.length == piece.length:
                same = new.crc == piece.crc
            elif stop - start == piece.length:
                same = _core._crc32(body, start, stop) == piece.crc
            else:  # a later segment cut this one short
                same = self._origin.bytes_of(piece)[: stop - start] == body[start:stop]
            if not same:
                raise CorruptData(
                    f"segment {self.segment.sequence} of log {self.log} has other bytes at "
                    f"{piece.position} than were shipped, so the local disk lost them. The place "
                    "keeps its copy: run `falaj verify`, then restore the store from the place"
                )


def _parts(segment: Segment, missing: Sequence[tuple[int, int]]) -> Iterator[list[_Range]]:
    """Cut a segment into parts, and each part into ranges that become pieces."""
    part: list[_Range] = []
    size = 0
    for each in _ranges(segment, missing):
        if part and size + each.stop - each.start > PART_MAX:
            yield part
            part, size = [], 0
        part.append(each)
        size += each.stop - each.start
    yield part


def _ranges(segment: Segment, missing: Sequence[tuple[int, int]]) -> Iterator[_Range]:
    known: list[Piece] = []
    for piece in segment.pieces:
        if piece.position >= segment.length:
            break
        begin = known[0].position if known else piece.position
        if known and (known[-1].stop != piece.position or piece.stop - begin > PIECE_MAX):
            yield _Range(begin, known[-1].stop, known)
            known = []
        known.append(piece)
    if known:
        yield _Range(known[0].position, known[-1].stop, known)
    for start, stop in missing:
        for at in range(start, stop, PIECE_MAX):
            yield _Range(at, min(at + PIECE_MAX, stop), [])


# --- Repacking ------------------------------------------------------------------------------------


def repack(view: View, origin: Origin, uploads: Uploads) -> None:
    """Move what a checkpoint has to move into new objects, and change the view accordingly."""
    runs = runs_of(view, keys_to_repack(view))
    if not runs:
        return

    def bytes_of(part: bytes | list[Piece]) -> bytes:
        if isinstance(part, bytes):
            return part
        return b"".join(
            uploads.patience(lambda piece=piece: origin.bytes_of(piece))  # type: ignore[misc]
            for piece in part
        )

    def join(parts: Sequence[bytes | list[Piece]]) -> tuple[bytes, list[int]]:
        found = [bytes_of(part) for part in parts]
        return b"".join(found), [_core._crc32(each) for each in found]

    wanted = [Wanted(run.pieces[0].position, run.length, run.pieces, run.becomes) for run in runs]
    objects, _ = put_together(wanted, uploads, join, inline_most=-1)
    view.sizes.update(objects)
