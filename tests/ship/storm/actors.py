"""The processes of a storm: each writes, ships or restores until it dies.

Owns the three programs. Each gets a directory with `store`, `place` and `account`, and dies by the
points that it is given or by its parent. Any error that a kill cannot explain ends it with 1.
"""

import os
import random
import shutil
import time
from itertools import count
from pathlib import Path
from typing import Any

import falaj
from falaj.errors import (
    CorruptData,
    Fenced,
    HistoryDeleted,
    NoShipper,
    RemoteTimeout,
    UnknownOrigin,
)
from falaj.ship import shipper as shipper_module
from falaj.ship.numbers import sealed_with
from falaj.ship.place import open_place
from falaj.ship.restore import restore as restored
from falaj.ship.shipper import Options, Shipper
from notes import Notes
from ship.storm.account import TOPICS, Ends, read
from ship.storm.points import PointedPlace, PointedStore, Points, in_builder, in_files

SEGMENT_BYTES = 1 << 16
REMOTE_S = 0.05
STEP_S = 0.001
PACES = (4, 10, 25)
"""Steps between two compactions or trims of one writer."""
SETTINGS: dict[str, dict[str, Any]] = {
    "one": {"log": "shared"},
    "two": {"log": "shared"},
    "three": {},
    "latest": {"compacted": True},
}


def write(base: Path, names: tuple[str, ...], points: Points, chance: random.Random) -> None:
    """Append records that say their offset, and now and then trim, compact and commit."""
    notes = Notes(base / "account")
    store = falaj.open(base / "store")
    topics = [
        store.topic(name, codec="bytes", segment_bytes=SEGMENT_BYTES, **SETTINGS[name])
        for name in names
    ]
    pace = chance.choice(PACES)
    for step in count():
        topic = chance.choice(topics)
        start, size = topic.end_offset, chance.randrange(90)
        values = [b"%d" % (start + n) + b"." * size for n in range(1 + step % 40)]
        keyed = topic.name == "latest"
        points.meet("before an append")
        topic.extend(
            [(b"k%d" % (n % 3), value) for n, value in enumerate(values)] if keyed else values,
            sync="durable" if step % 5 == 0 else "interval",
        )
        points.meet("after an append")
        if step % 6 == 3 and not keyed:
            _append_remotely(topic, notes)
        is_its_turn = step % pace == pace - 1
        if is_its_turn and keyed:
            points.around("a compaction", topic.compact)()
        elif is_its_turn and topic.name == "three":
            points.around("a trim", topic.trim)(before_offset=topic.end_offset // 2)
        if step % 9 == 8 and topic.name in ("one", "two"):
            with store.consumer(f"of-{topic.name}", [topic]) as group:
                group.poll(timeout=0)
                points.around("a commit", group.commit)()
        time.sleep(STEP_S)  # sleep: other processes of the storm want the processor, too


def _append_remotely(topic: falaj.Topic[bytes], notes: Notes) -> None:
    end = topic.end_offset
    try:
        topic.append(b"%d" % end, sync="remote", timeout=REMOTE_S)
    except (NoShipper, RemoteTimeout, Fenced):
        return
    notes.add("remote", topic.name, end + 1)


def begin(base: Path, chance: random.Random, history: float) -> None:
    """Ship a store with a few records, so that readers have something from the first kill on."""
    with falaj.open(base / "store") as store:
        for name, settings in SETTINGS.items():
            topic = store.topic(name, codec="bytes", segment_bytes=SEGMENT_BYTES, **settings)
            values = [b"%d" % n for n in range(5)]
            topic.extend([(b"k0", value) for value in values] if name == "latest" else values)
    ship(base, Points(), chance, history, once=True)


def ship(
    base: Path, points: Points, chance: random.Random, history: float, *, once: bool = False
) -> None:
    """Ship, and tell outside of each flush before it is sent and after it is acknowledged."""
    shipper_module.FLUSH_S, shipper_module.LOOK_S = 0.0, 0.005
    shipper_module.CHECKPOINT_NUMBERS = chance.choice([3, 8, 30])
    in_files(points)
    notes = Notes(base / "account")
    shipper: Shipper

    def draft(body: bytes) -> None:
        cut = shipper._cut
        assert cut is not None
        ends = {end.name: end.next for log in cut.logs for end in log.ends}
        notes.add("drafted", sealed_with(body), *(ends.get(name, 0) for name in TOPICS))

    def acknowledged() -> None:
        view = shipper._driver.view
        notes.add("acknowledged", view.number, view.hash)

    store = PointedStore(falaj.open(base / "store"), points, acknowledged)
    place = PointedPlace(open_place(base / "place"), points, draft)
    shipper = Shipper(store, place, Options(history=history))  # type: ignore[arg-type]
    shipper.run(once=once)


def restore(base: Path, number: int | None, points: Points, history: float) -> None:
    """Restore a number or the newest, and read all of it; its directory then goes away."""
    in_builder(points)
    place = PointedPlace(open_place(base / "place"), points, lambda body: None)
    before = read(base / "account")
    to = whole_or_absent(base)
    try:
        restored(place, os.fspath(to), to_number=number)
    except (UnknownOrigin, HistoryDeleted, CorruptData) as error:
        expect_explained(error, history)
        return
    ends = ends_of(to)
    if number is None:
        assert all(end >= before.remote[name] for name, end in zip(TOPICS, ends, strict=True))
    elif number in before.acknowledged:
        assert ends == before.drafted[before.acknowledged[number]], number
    remove(to)


def expect_explained(error: Exception, history: float) -> None:
    """Raise an error, unless there is nothing to restore yet, or another process deletes it."""
    is_early = isinstance(error, UnknownOrigin) or "has no flush yet" in str(error)
    is_gone = isinstance(error, HistoryDeleted) or "is missing" in str(error)
    if isinstance(error, CorruptData) and "a committed block" in str(error):
        raise error  # it is of the view: no object that was deleted
    if not is_early and (history or not is_gone):
        raise error


def whole_or_absent(base: Path) -> Path:
    """Return where restores go, after a look at what one left that was killed after its end."""
    to = base / "copy"
    if to.exists():
        ends_of(to)
        remove(to)
    return to


def remove(path: Path) -> None:
    """Remove a store; a kill meanwhile leaves none that looks whole."""
    gone = path.with_name("gone")
    shutil.rmtree(gone, ignore_errors=True)
    path.rename(gone)
    shutil.rmtree(gone)


def ends_of(path: Path) -> Ends:
    """Return where each topic ends, after a look at each record."""
    with falaj.open(path, read_only=True) as copy:
        found = []
        for name in TOPICS:
            if name not in copy.topics:
                found.append(0)
                continue
            topic = copy.topic(name, codec="bytes")
            for record in topic:
                assert record.value.rstrip(b".") == b"%d" % record.offset, record
            found.append(topic.end_offset)
        return tuple(found)
