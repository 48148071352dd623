"""Bytes to a place and back, in turns: shipping, raw puts; a restore, a scan, raw ranged GETs.

The raw side uses the same client and as many threads. It sends the bytes of the log once, in
bodies as large as ours. For the way back it reads them in ranges, checks each by its checksum, and
writes them into a file that it syncs, since a restored store is on the disk too.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import falaj
from falaj.ship.fetching import REQUEST_MAX
from falaj.ship.fetching import THREADS as GETS
from falaj.ship.objects import THREADS as PUTS
from falaj.ship.packing import PACK_MAX
from falaj.ship.place import open_place
from falaj.ship.restore import restore
from falaj.ship.shipper import Shipper
from runner.results import Measured

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from falaj.ship.place import Place
    from runner.bucket.places import Places
    from runner.sizes import Sizes

__all__ = ["measure"]

MB, KB = 1_000_000, 1_000
PAIRS = (
    ("ship", "ship", "put"),
    ("backlog", "backlog", "put"),
    ("restore", "restore", "file"),
    ("restore_bare", "restore", "get"),
    ("scan", "scan", "get"),
)
"""Rows: the name, what is ours, what it is compared with."""


class Taken(NamedTuple):
    """Nanoseconds of a kilobyte, by the clock and of this process's processor time."""

    clock: float
    processor: float


def measure(of: Places, place: Path, sizes: Sizes) -> list[Measured]:
    """Measure a bucket and a directory; the first round of each is thrown away."""
    measured = []
    for kind in ("server", "directory"):
        rounds: dict[str, list[Taken]] = {}
        for number in range(_rounds(sizes) + 1):
            for name, taken in _round(of, kind, place, number, sizes).items():
                if number > 0:
                    rounds.setdefault(name, []).append(taken)
        for name, ours, floor in PAIRS:
            for at, suffix in enumerate(
                ("", "_cpu")[: 1 if name in ("restore_bare", "scan") else 2]
            ):
                measured.append(
                    Measured(
                        f"{kind}_{name}{suffix}",
                        [each[at] for each in rounds[ours]],
                        [each[at] for each in rounds[floor]],
                    )
                )
    return measured


def _rounds(sizes: Sizes) -> int:
    """A round moves hundreds of megabytes, so three of them take long enough."""
    return min(sizes.rounds, 3)


def _round(of: Places, kind: str, folder: Path, number: int, sizes: Sizes) -> dict[str, Taken]:
    prefix = f"moved-{kind}-{number}"
    size = sizes.shipped_mb * MB
    raw = open_place(of.url(kind, f"{prefix}-raw"))
    raw.put_new("begin", b"")
    taken = {"put": _timed(size, lambda: _put(raw, size))}
    taken["ship"] = _ship(of.url(kind, f"{prefix}-grows"), folder / "grows", sizes, grows=True)
    taken["backlog"] = _ship(of.url(kind, f"{prefix}-once"), folder / "once", sizes, grows=False)
    checksums = _checksums(raw, size)
    taken["get"] = _timed(size, lambda: _get(raw, checksums))
    taken["file"] = _timed(size, lambda: _get(raw, checksums, folder / "raw"))
    url = of.url(kind, f"{prefix}-grows")
    taken["restore"] = _timed(size, lambda: restore(open_place(url), f"{folder / 'restored'}"))
    taken["scan"] = _timed(size, lambda: _scan(url, folder / "cache"))
    for name in ("grows", "once", "restored", "cache"):
        shutil.rmtree(folder / name)
    (folder / "raw").unlink()
    shutil.rmtree(of.server.folder / "buckets/shop" / f"{prefix}-raw", ignore_errors=True)
    for left in of.folder.iterdir():
        shutil.rmtree(left)
    return taken


def _timed(size: int, work: Callable[[], object]) -> Taken:
    begin, used = time.perf_counter_ns(), time.process_time_ns()
    work()
    used = time.process_time_ns() - used
    return Taken((time.perf_counter_ns() - begin) / size * KB, used / size * KB)


# --- The raw side ---------------------------------------------------------------------------------


def _bodies(size: int) -> list[tuple[str, int]]:
    return [(f"raw/{at}", min(PACK_MAX, size - at)) for at in range(0, size, PACK_MAX)]


def _put(place: Place, size: int) -> None:
    body = os.urandom(min(PACK_MAX, size))
    with ThreadPoolExecutor(PUTS) as pool:
        done = pool.map(lambda each: place.put_new(each[0], body[: each[1]]), _bodies(size))
        if not all(done):
            raise AssertionError("a raw put created nothing")


def _checksums(place: Place, size: int) -> list[tuple[str, int, int]]:
    found = []
    for key, length in _bodies(size):
        body = place.get(key)
        assert body is not None
        found.append((key, length, zlib.crc32(body)))
    return found


def _get(place: Place, wanted: list[tuple[str, int, int]], path: Path | None = None) -> None:
    """Read all ranges and check them; with a path, write them there, and sync."""
    file = None if path is None else os.open(path, os.O_CREAT | os.O_WRONLY)

    def one(at: int) -> bool:
        key, length, crc = wanted[at]
        data = place.get_range(key, 0, min(length, REQUEST_MAX))
        if file is not None:
            os.pwrite(file, data, at * PACK_MAX)
        return zlib.crc32(data) == crc

    try:
        with ThreadPoolExecutor(GETS) as pool:
            if not all(pool.map(one, range(len(wanted)))):
                raise AssertionError("a raw GET brought other bytes")
        if file is not None:
            os.fsync(file)
    finally:
        if file is not None:
            os.close(file)


# --- Ours -----------------------------------------------------------------------------------------


def _scan(url: str, cache: Path) -> None:
    """Read all records out of the place, on a machine that has none of them."""
    with falaj.open_place(url, cache=cache, follow=False) as reader:
        topic = reader.topic("shipped", codec="bytes")
        if sum(map(len, topic.batches())) != topic.end_offset:
            raise AssertionError("a scan of the place read fewer records than it has")


def _ship(url: str, folder: Path, sizes: Sizes, *, grows: bool) -> Taken:
    """Ship a log until the place has each sealed segment whole.

    Where it grows, each flush takes the next step of it. Appending and syncing it is not timed.
    """
    total = sizes.shipped_mb * MB
    steps = [sizes.shipped_step_mb * MB] * (sizes.shipped_mb // sizes.shipped_step_mb)
    values = [os.urandom(sizes.value_bytes)] * sizes.batch
    with falaj.open(folder) as store:
        topic = store.topic("shipped", codec="bytes")
        appending = 0.0, 0.0

        def append(size: int) -> None:
            for _ in range(0, size, sizes.value_bytes * sizes.batch):
                topic.extend(values)
            topic.wait_durable()

        def told(_shipped: object) -> None:
            nonlocal appending
            if steps:
                begin, used = time.perf_counter_ns(), time.thread_time_ns()
                append(steps.pop())
                spent = time.perf_counter_ns() - begin, time.thread_time_ns() - used
                appending = appending[0] + spent[0], appending[1] + spent[1]

        append(steps.pop() if grows else total)
        if not grows:
            steps.clear()
        shipper = Shipper(store, open_place(url))
        taken = _timed(total, lambda: shipper.run(once=True, told=told))
    return Taken(*(all_ - own / total * KB for all_, own in zip(taken, appending, strict=True)))
