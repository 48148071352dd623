"""The readers of a storm: each reads a place through the cache that they share, until it dies.

Owns the two programs. `reader` looks at the place itself, so it tells whole states with their
numbers. `follower` has the thread that follows, so it tells the end of one topic at a time. Each
looks at values by iteration, by offset, by following and as Arrow; a record says its own offset.
Whether what they told was shipped is for `judge`.
"""

import os
import random
import time
from itertools import count
from pathlib import Path

import pyarrow  # noqa: TC002  # its import takes longer than a life

import falaj
import falaj.arrow
from falaj.errors import (
    CorruptData,
    Error,
    HistoryDeleted,
    OffsetOutOfRange,
    RecordCompacted,
    UnknownOrigin,
)
from falaj.ship import place as places
from falaj.ship import reader as reading
from notes import Notes
from ship.storm.account import TOPICS, Ends, read
from ship.storm.actors import STEP_S, expect_explained
from ship.storm.points import PointedPlace, Points, in_cache, in_files, in_view

READERS = 2
"""Readers that are alive at a time."""
CACHE_BYTES = 6 << 16
LOOK = 60
"""Records of a topic that one look reads at most."""


def follow(base: Path, points: Points, chance: random.Random, history: float) -> None:
    """Read a place that a thread follows, and tell where topics end."""
    _live(base, points, chance, history, is_following=True)


def look(base: Path, points: Points, chance: random.Random, history: float) -> None:
    """Read a place again and again, and tell each state that it had."""
    _live(base, points, chance, history, is_following=False)


def _live(
    base: Path, points: Points, chance: random.Random, history: float, *, is_following: bool
) -> None:
    reading.SILENCE_S, reading.PAUSE_MOST_S, reading.RENEW_S = 0.05, 0.02, 0.02
    inner = places.open_place(base / "place")
    places.open_place = lambda url, **_: PointedPlace(inner, points, lambda body: None)
    in_files(points)
    in_cache(points)
    in_view(points)
    notes = Notes(base / "account")
    while True:
        before = read(base / "account")
        try:
            with falaj.open_place(
                base / "place",
                cache=base / "cache",
                cache_bytes=CACHE_BYTES,
                follow=is_following,
                io=chance.choice(("mmap", "mmap", "pread")),
            ) as store:
                views = [each for each in (base / "cache" / "views").iterdir() if each.is_dir()]
                assert len(views) <= READERS, f"readers that are dead left {views}"
                if history:
                    _expect_no_older(store, before.seen, before.remote)
                told = _told_while_following if is_following else _told_each_state
                told(store, notes, chance, history)
        except (UnknownOrigin, HistoryDeleted, CorruptData) as error:
            expect_explained(error, history)
        time.sleep(STEP_S)  # sleep: there is nothing in the place yet, or it was deleted


def _expect_no_older(store: falaj.PlaceStore, seen: int, remote: dict[str, int]) -> None:
    """Expect all that a reader saw, and that an append heard of from the place."""
    assert store.place.number >= seen, f"{store.place.number} is before {seen}, which was seen"
    for name, end in remote.items():
        assert not end or store.topic(name).end_offset >= end, (name, end)


def _told_each_state(
    store: falaj.PlaceStore, notes: Notes, chance: random.Random, history: float
) -> None:
    number, ends = 0, (0,) * len(TOPICS)
    while True:
        before, last = number, ends
        store.refresh()
        number, driver = store.place.number, store._reader._driver
        assert driver is not None
        hash_ = driver.view.hash
        ends = tuple(_looked_at(store, name, chance) for name in TOPICS)
        assert number >= before, (number, before)
        assert all(map(int.__ge__, ends, last)), (ends, last)
        # It may have looked at the place again, for an object that was deleted.
        if store._reader._driver is driver and driver.view.hash == hash_:
            notes.add("saw", number, hash_, *ends)
        time.sleep(STEP_S)  # sleep: other processes of the storm want the processor, too


def _told_while_following(
    store: falaj.PlaceStore, notes: Notes, chance: random.Random, history: float
) -> None:
    ends = [0] * len(TOPICS)
    for step in count():
        which, number = step % len(TOPICS), store.place.number
        end = _looked_at(store, TOPICS[which], chance)
        assert end >= ends[which], f"{TOPICS[which]} went back from {ends[which]} to {end}"
        ends[which] = end
        notes.add("followed", number, which, end)
        error = store.place.error
        if isinstance(error, Error):
            expect_explained(error, history)
        assert error is None or isinstance(error, Error), error
        time.sleep(STEP_S)  # sleep: other processes of the storm want the processor, too


def _looked_at(store: falaj.PlaceStore, name: str, chance: random.Random) -> int:
    """Look at some records of a topic in some way; return where it ended before."""
    if name not in store.topics:
        return 0
    topic = store.topic(name, codec="bytes")
    end = topic.end_offset
    first = topic.start_offset
    if first == end:
        return end
    try:
        _look_from(topic, first, end, chance)
    except OffsetOutOfRange:
        if topic.start_offset <= first:
            raise  # no trim under the reader explains it
    return end


def _look_from(topic: falaj.Topic[bytes], first: int, end: int, chance: random.Random) -> None:
    start = chance.randrange(first, end)
    has_gaps = topic.name == "latest"
    match chance.choice(("slice", "offsets", "arrow", "follow", "all")):
        case "slice":
            for record in topic[start : min(start + LOOK, end)]:
                _expect(record.offset, record.value)
        case "all":
            wanted = first
            for record in topic[first:]:
                assert has_gaps or record.offset == wanted, (topic, record.offset, wanted)
                _expect(record.offset, record.value)
                wanted = record.offset + 1
            assert has_gaps or wanted >= end, (topic, wanted, end)
        case "arrow":
            table: pyarrow.Table = topic.to_arrow()
            rows = zip(*(table[each].to_pylist() for each in ("offset", "value")), strict=True)
            for offset, value in rows:
                _expect(offset, value)
        case "follow":
            with topic.follow(max(first, end - 5), timeout=0.05) as records:
                for record in records:
                    _expect(record.offset, record.value)
                    if record.offset >= end:
                        break
        case _:
            for offset in (start, end - 1):
                try:
                    record = topic[offset]
                except RecordCompacted:
                    assert has_gaps, offset
                else:
                    assert record.offset == offset
                    _expect(offset, record.value)


def _expect(offset: int, value: bytes) -> None:
    assert value.rstrip(b".") == b"%d" % offset, f"{offset}: {value[:40]!r}"


def ends_seen(store: falaj.PlaceStore) -> Ends:
    """Return where each topic ends, after a look at each record."""
    found = []
    for name in TOPICS:
        topic = store.topic(name, codec="bytes") if name in store.topics else None
        for record in topic or ():
            _expect(record.offset, record.value)
        found.append(topic.end_offset if topic else 0)
    return tuple(found)


def expect_bounded(cache: Path) -> None:
    """Look at what the cache holds of segments: whole ones, and no more than its bound."""
    held = [each.stat().st_blocks * 512 for each in os.scandir(cache / "segments")]
    assert sum(held) <= CACHE_BYTES, f"the cache holds {held}, more than {CACHE_BYTES}"
