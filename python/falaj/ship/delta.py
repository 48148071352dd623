"""Find what a cut of a store has and a view of its place lacks.

Owns the comparison: segments that are new, grew, were sealed or are gone; ends that moved; small
files whose blocks changed. It reads no log byte and sends nothing. Invariant: a view to which the
delta is applied, with the pieces that `shipper` puts, restores to the cut.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from falaj.ship.shapes import FIRST_BLOCK, Change, End, File, LogChange, Segment
from falaj.ship.tree import PIECE_MAX, LogView, View

if TYPE_CHECKING:
    from falaj._core import Cut, CutFile, CutLog, CutSegment

__all__ = ["BLOCK", "Delta", "FileImage", "Want", "compare", "image_of"]

BLOCK = 4096
"""Bytes of a block of a small file."""
WHOLE_FROM = 8 << 20
"""A sealed segment that lacks so many bytes in the place is shipped whole at once."""


class Want(NamedTuple):
    """A range of bytes of a segment that the place lacks; its piece goes to that segment."""

    log: str
    segment: Segment
    start: int
    stop: int


class FileImage(NamedTuple):
    """A small file as blocks by position; blocks of zeros are left out."""

    length: int
    digest: str
    blocks: dict[int, bytes]


@dataclass(slots=True)
class Delta:
    """The difference: changes whose pieces are still to be put.

    `wanted` are ranges of bytes, `backlog` segments that are shipped whole, `files` the blocks of
    small files that changed.
    """

    logs: dict[str, LogChange | None] = field(default_factory=dict)
    wanted: list[Want] = field(default_factory=list)
    backlog: list[tuple[str, Segment]] = field(default_factory=list)
    files: dict[str, tuple[File, dict[int, bytes]] | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Tell whether there is anything to ship."""
        return bool(self.logs or self.files)

    @property
    def bytes(self) -> int:
        """Bytes of logs that are to be shipped."""
        whole = sum(segment.length - FIRST_BLOCK for _, segment in self.backlog)
        return whole + sum(want.stop - want.start for want in self.wanted)


def compare(
    view: View,
    cut: Cut,
    images: dict[str, FileImage],
    *,
    now_files: bool = True,
    before: Cut | None = None,
) -> Delta:
    """Compare a cut with a view.

    Args:
        view: What the place has.
        cut: What the store has.
        images: The small files as they were shipped last, where that is known.
        now_files: Whether files of queues are compared; others always are.
        before: The cut that was shipped last, if this view has all of it.
    """
    delta = Delta()
    same_logs = {log.directory: log for log in before.logs} if before else {}
    same_files = {file.path: file.parts for file in before.files} if before else {}
    for log in cut.logs:
        if same_logs.get(log.directory) != log:
            _compare_log(view.logs.get(log.directory), log, delta)
    there = {log.directory for log in cut.logs}
    delta.logs.update((name, None) for name in view.logs if name not in there)
    for file in cut.files:
        late = file.path.startswith("queues/") and file.path in view.files and not now_files
        if not late and same_files.get(file.path) != file.parts:
            _compare_file(view.files.get(file.path), file, images, delta)
    paths = {file.path for file in cut.files}
    delta.files.update((path, None) for path in view.files if path not in paths)
    return delta


def _compare_log(old: LogView | None, log: CutLog, delta: Delta) -> None:
    known = old or LogView()
    change = LogChange()
    there = {segment.sequence for segment in log.segments}
    change.gone = sorted(known.segments.keys() - there)
    for segment in log.segments:
        _compare_segment(known.segments.get(segment.sequence), segment, log, change, delta)
    ends = {
        (end.topic, end.partition): End(
            end.topic, end.partition, end.name, end.next, end.checksum, end.time_us
        )
        for end in log.ends
    }
    change.ends = [end for of, end in sorted(ends.items()) if known.ends.get(of) != end]
    change.ends_gone = sorted(known.ends.keys() - ends.keys())
    if change or old is None:
        delta.logs[log.directory] = change


def _compare_segment(
    old: Segment | None, found: CutSegment, log: CutLog, change: LogChange, delta: Delta
) -> None:
    fresh = old is None or old.identity != (found.sequence, found.salt, found.compaction)
    if (
        old is not None
        and not fresh
        and (old.end, old.length, old.sealed) == (found.end, found.length, found.sealed)
    ):
        return
    new = Segment(
        found.sequence,
        found.salt,
        found.compaction,
        found.header,
        found.end,
        found.length,
        found.sealed,
    )
    start = FIRST_BLOCK if old is None or fresh else old.reach
    if found.sealed and found.length - start >= WHOLE_FROM:
        new.pieces = [] if old is None or fresh else list(old.pieces)
        change.segments.append(Change(new, True))
        delta.backlog.append((log.directory, new))
        return
    change.segments.append(Change(new, fresh))
    if start < found.length:
        for begin, stop in found.extents(start):
            for at in range(begin, stop, PIECE_MAX):
                delta.wanted.append(Want(log.directory, new, at, min(at + PIECE_MAX, stop)))


# --- Small files ----------------------------------------------------------------------------------


def image_of(length: int, parts: tuple[tuple[int, bytes], ...]) -> FileImage:
    """Make the image of a file; its digest is the same however it was cut into parts."""
    blocks: dict[int, bytearray] = {}
    for position, data in parts:
        at = 0
        while at < len(data):
            begin = (position + at) // BLOCK * BLOCK
            block = blocks.setdefault(begin, bytearray(min(BLOCK, length - begin)))
            inside = position + at - begin
            taken = data[at : at + len(block) - inside]
            block[inside : inside + len(taken)] = taken
            at += len(taken) or len(data)
    found = {at: bytes(blocks[at]) for at in sorted(blocks) if any(blocks[at])}
    digest = hashlib.sha256(length.to_bytes(8, "little"))
    for at, data in found.items():
        digest.update(at.to_bytes(8, "little") + data)
    return FileImage(length, digest.hexdigest(), found)


def _compare_file(
    old: File | None, file: CutFile, images: dict[str, FileImage], delta: Delta
) -> None:
    image = image_of(file.length, file.parts)
    if old is not None and old.digest == image.digest:
        images[file.path] = image
        return
    before = images.get(file.path)
    known = old is not None and before is not None and before.digest == old.digest
    if known and before is not None and before.length == image.length:
        changed = {at: data for at, data in image.blocks.items() if before.blocks.get(at) != data}
        gone = sorted(before.blocks.keys() - image.blocks.keys())
        made = File(image.length, image.digest, gone=gone, fresh=False)
    else:
        changed, made = image.blocks, File(image.length, image.digest)
    delta.files[file.path] = made, changed
    images[file.path] = image
