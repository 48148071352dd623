"""The view of a place: repacking bounds its objects, and loses no piece."""

import random

import pytest

from falaj.ship.shapes import Change, Flush, LogChange, Piece, Segment, object_key
from falaj.ship.tree import TOP, View, keys_to_repack, runs_of

SLOW, BUSY = f"slow@{'1' * 32}", f"busy@{'2' * 32}"


def flush(number: int, log: str, segment: Segment, start: int, size: int) -> Flush:
    """Make a flush of some more bytes of a segment, which stand in the number itself."""
    piece = Piece(start, size, "", 0, number % 2**32)
    fresh = start == 8192
    part = Segment(
        segment.sequence, segment.salt, 0, b"h" * 512, start + size, start + size, False, [piece]
    )
    return Flush(number, 1, "", number, {log: LogChange([Change(part, fresh)])}, inline=bytes(size))


def repack_without_files(view: View, made: int) -> int:
    """Do what a checkpoint does, but put no objects; return how many bytes were moved."""
    runs = runs_of(view, keys_to_repack(view))
    moved = sum(run.length for run in runs)
    key, offset = object_key("k", 1, f"{made:064x}"), 16
    for run in runs:
        run.becomes(Piece(run.pieces[0].position, run.length, key, offset, 0))
        offset += run.length
    if runs:
        view.sizes[key] = offset
    return moved


def simulate(flushes: int) -> tuple[View, int, int, int]:
    """Append to a busy log, and now and then to a slow one; checkpoints come each 256 numbers."""
    view, chance = View(), random.Random(3)
    ends = {SLOW: 8192, BUSY: 8192}
    segments = {SLOW: Segment(1, 1, 0, b"", 0, 0, False), BUSY: Segment(1, 2, 0, b"", 0, 0, False)}
    shipped = moved = most = 0
    for number in range(1, flushes + 1):
        log = SLOW if number % 1000 == 0 else BUSY
        size = chance.choice([50, 400])
        view.apply(flush(number, log, segments[log], ends[log], size))
        ends[log] += size
        shipped += size
        if number % 256 == 0:
            moved += repack_without_files(view, number)
            view.started_from(number)
            most = max(most, len(view.live()))
        if ends[BUSY] > 1 << 22:  # sealed and shipped whole: it no longer needs packs
            old = view.logs[BUSY].segments[segments[BUSY].sequence]
            whole = object_key("s", 1, f"{number:064x}")
            view.sizes[whole] = old.length
            old.pieces[:] = [Piece(8192, old.length - 8192, whole, 8192, 0)]
            old.sealed = True
            sequence = segments[BUSY].sequence + 1
            segments[BUSY], ends[BUSY] = Segment(sequence, sequence, 0, b"", 0, 0, False), 8192
    return view, most, moved, shipped


def expect_bounded(flushes: int) -> None:
    view, most, moved, shipped = simulate(flushes)
    whole = sum(key.startswith("s/") for key in view.live())
    assert most - whole < 24
    assert moved < 6 * shipped
    for log in view.logs.values():
        for segment in log.segments.values():
            position = 8192
            for piece in segment.pieces:
                assert piece.position == position
                position = piece.stop
            assert position == segment.length
    assert not any(
        key.startswith("n/") and int(key[2:]) <= flushes // 256 * 256 for key in view.live()
    )


def test_a_slow_topic_pins_no_numbers_for_many_flushes() -> None:
    expect_bounded(50_000)


@pytest.mark.proof
def test_a_slow_topic_pins_no_numbers_for_a_million_flushes() -> None:
    expect_bounded(1_000_000)


def test_objects_that_are_mostly_dead_are_repacked_and_large_ones_are_not() -> None:
    view = View()
    dead, large = object_key("k", 1, "d" * 64), object_key("k", 1, "e" * 64)
    view.sizes = {dead: 1000, large: TOP + 100}
    log = LogChange(
        [
            Change(
                Segment(1, 1, 0, b"h" * 512, 9000, 9000, False, [Piece(8192, 499, dead, 0, 0)]),
                True,
            ),
            Change(
                Segment(2, 2, 0, b"h" * 512, 9000, 9000, False, [Piece(8192, TOP, large, 0, 0)]),
                True,
            ),
        ]
    )
    view._apply_log(1, SLOW, log)
    assert keys_to_repack(view) == {dead}
