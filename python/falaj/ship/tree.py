"""The state of a place at a number: logs as segments of pieces, small files, and ends of topics.

Owns the view: it applies numbers one after the other, says which objects are live and which are
garbage, and chooses what a checkpoint repacks. Invariant: a view is a function of the numbers up to
its own; where their objects lie is all that repacking changes. `checkpoints` writes and reads it;
`protocol` decides which numbers are valid.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from falaj.errors import CorruptData
from falaj.ship.numbers import NO_HASH
from falaj.ship.shapes import (
    INLINE,
    Change,
    Claim,
    End,
    EndName,
    File,
    Flush,
    LogChange,
    Piece,
    Segment,
    number_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PIECE_MAX", "TOP", "LogView", "Run", "View", "keys_to_repack", "runs_of"]

PIECE_MAX = 4 << 20
"""Bytes of the largest piece: what a reader fetches and checks at once."""
TOP = 16 << 20
"""An object with so many live bytes is not merged with others."""
_TIER = 64 << 10
_PER_TIER = 4


@dataclass(slots=True)
class LogView:
    """A log: its segments by sequence, and where its partitions end."""

    segments: dict[int, Segment] = field(default_factory=dict)
    ends: dict[EndName, End] = field(default_factory=dict)


@dataclass(slots=True)
class View:
    """Everything as of one number.

    `sizes` has the objects that are live now or were since the checkpoint `checkpoint`. `numbers`
    and `bytes` count what came behind that checkpoint.
    """

    number: int = 0
    claim: int = 0
    hash: str = NO_HASH
    time_us: int = 0
    logs: dict[str, LogView] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    checkpoint: int = 0
    numbers: int = 0
    bytes: int = 0

    def apply(self, number: Claim | Flush, size: int = 0) -> None:
        """Apply the next number that is valid.

        Raises:
            CorruptData: It changes what is not there.
        """
        self.number, self.hash = number.number, number.hash
        self.numbers += 1
        self.bytes += size
        if isinstance(number, Claim):
            self.claim = number.number
            return
        self.sizes.update(number.objects)
        self.time_us = number.time_us
        if number.inline:
            self.sizes[number_key(number.number)] = len(number.inline)
        for directory, change in number.logs.items():
            self._apply_log(number.number, directory, change)
        for path, file in number.files.items():
            self._apply_file(number.number, path, file)

    def _apply_log(self, number: int, directory: str, change: LogChange | None) -> None:
        if change is None:
            if self.logs.pop(directory, None) is None:
                raise _wrong(number, f"removes log {directory}, which is not there")
            return
        log = self.logs.setdefault(directory, LogView())
        for sequence in change.gone:
            if log.segments.pop(sequence, None) is None:
                raise _wrong(number, f"removes segment {sequence} of {directory}")
        for each in change.segments:
            _apply_segment(log, number, directory, each)
        for name in change.ends_gone:
            log.ends.pop(name, None)
        log.ends.update((end.of, end) for end in change.ends)

    def _apply_file(self, number: int, path: str, file: File | None) -> None:
        if file is None:
            if self.files.pop(path, None) is None:
                raise _wrong(number, f"removes {path}, which is not there")
            return
        blocks = {piece.position: piece for piece in _resolved(file.pieces, number)}
        if not file.fresh:
            before = self.files.get(path)
            if before is None:
                raise _wrong(number, f"changes {path}, which is not there")
            blocks = {piece.position: piece for piece in before.pieces} | blocks
            for position in file.gone:
                blocks.pop(position, None)
        pieces = [blocks[position] for position in sorted(blocks)]
        self.files[path] = File(file.length, file.digest, pieces)

    def pieces(self) -> Iterator[Piece]:
        """Yield every piece that a restore would read."""
        for log in self.logs.values():
            for segment in log.segments.values():
                yield from segment.pieces
        for file in self.files.values():
            yield from file.pieces

    def live(self) -> Counter[str]:
        """Count the live bytes of each object."""
        found: Counter[str] = Counter()
        for piece in self.pieces():
            found[piece.key] += piece.length
        return found

    def bytes_to_restore(self) -> int:
        """Count the bytes that a restore reads."""
        return sum(piece.length for piece in self.pieces())

    def garbage(self) -> list[str]:
        """List the objects that were live since the last checkpoint, and are not any more."""
        live = self.live()
        return sorted(key for key in self.sizes if key not in live and not key.startswith("n/"))

    def contents(self) -> tuple[dict[str, LogChange | None], dict[str, File | None]]:
        """Return all of it in the form of one large change, for a checkpoint."""
        logs: dict[str, LogChange | None] = {
            name: LogChange(
                [Change(log.segments[sequence], True) for sequence in sorted(log.segments)],
                [],
                [log.ends[of] for of in sorted(log.ends)],
            )
            for name, log in sorted(self.logs.items())
        }
        return logs, dict(sorted(self.files.items()))

    def started_from(self, checkpoint: int) -> None:
        """Forget what was before a checkpoint that was made of this view."""
        live = self.live()
        self.sizes = {key: size for key, size in self.sizes.items() if key in live}
        self.checkpoint, self.numbers, self.bytes = checkpoint, 0, 0


def _apply_segment(log: LogView, number: int, directory: str, change: Change) -> None:
    new, old = change.segment, log.segments.get(change.segment.sequence)
    pieces = _resolved(new.pieces, number)
    if change.fresh:
        log.segments[new.sequence] = replace(new, pieces=pieces)
        return
    if old is None or old.identity != new.identity:
        raise _wrong(number, f"changes segment {new.sequence} of {directory}, which is another")
    if pieces and pieces[0].position < old.reach:
        raise _wrong(number, f"writes segment {new.sequence} of {directory} twice")
    old.end, old.length, old.sealed = new.end, new.length, new.sealed
    old.pieces.extend(pieces)


def _resolved(pieces: list[Piece], number: int) -> list[Piece]:
    """Name the number as the object of bytes that stand in it."""
    key = number_key(number)
    return [replace(piece, key=key) if piece.key == INLINE else piece for piece in pieces]


def _wrong(number: int, what: str) -> CorruptData:
    return CorruptData(
        f"number {number} of the place {what}: the place was changed by another program; "
        "restore an earlier number, or ship to another place"
    )


# --- Repacking ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """Neighbouring pieces of one file that become one piece."""

    owner: Segment | File
    pieces: list[Piece]

    @property
    def length(self) -> int:
        """Bytes of all."""
        return sum(piece.length for piece in self.pieces)

    def becomes(self, piece: Piece) -> None:
        """Replace the pieces by one with the same bytes."""
        at = self.owner.pieces.index(self.pieces[0])
        self.owner.pieces[at : at + len(self.pieces)] = [piece]


def keys_to_repack(view: View) -> set[str]:
    """Choose the objects whose live bytes a checkpoint moves into new ones.

    Numbers are always among them, so that no number stays for the bytes in it. So are objects that
    are mostly garbage, and objects of similar size once there are four of them. So a
    byte is moved a few times, and the number of objects grows with the bytes alone.
    """
    tiers: dict[int, list[str]] = {}
    chosen: set[str] = set()
    for key, bytes_live in view.live().items():
        if key.startswith("s/"):
            continue
        if key.startswith("n/") or bytes_live * 2 < view.sizes[key]:
            chosen.add(key)
        elif bytes_live < TOP:
            tiers.setdefault(_tier(bytes_live), []).append(key)
    for keys in tiers.values():
        if len(keys) >= _PER_TIER:
            chosen.update(keys)
    return chosen


def _tier(size: int) -> int:
    return (size // _TIER).bit_length() // 2


def runs_of(view: View, keys: set[str]) -> list[Run]:
    """Collect the pieces in some objects as runs, in the order of logs and positions."""
    runs: list[Run] = []
    for _, log in sorted(view.logs.items()):
        for sequence in sorted(log.segments):
            runs += _runs(log.segments[sequence], keys, PIECE_MAX)
    for _, file in sorted(view.files.items()):
        runs += _runs(file, keys, 0)
    return runs


def _runs(owner: Segment | File, keys: set[str], most: int) -> Iterator[Run]:
    """Cut runs of at most so many bytes; with 0 each piece stays as it is."""
    run: list[Piece] = []
    length = 0
    for piece in owner.pieces:
        if piece.key not in keys:
            continue
        goes_on = run and run[-1].stop == piece.position and length + piece.length <= most
        if run and not goes_on:
            yield Run(owner, run)
            run, length = [], 0
        run.append(piece)
        length += piece.length
    if run:
        yield Run(owner, run)
