"""Disk bytes per payload byte, in a sealed segment with its index."""

from pathlib import Path

import falaj
from runner.results import Measured
from runner.sizes import Sizes

_SECTOR = 512  # the unit of st_blocks, whatever the file system


def _sealed(path: Path, sizes: Sizes, batch: int) -> float:
    """Append until the first segment is sealed; return its disk bytes per payload byte."""
    value = b"v" * sizes.value_bytes
    with falaj.open(path, sync="none") as store:
        topic = store.topic("t", segment_bytes=sizes.segment_bytes)
        topic.append(value)
        (log,) = (path / "logs").iterdir()
        second, values = log / f"{1:020}.log", [value] * batch
        held = 1
        while True:
            if batch > 1:
                topic.extend(values)
            else:
                topic.append(value)
            if second.exists():
                break
            held += batch
    files = [log / f"{0:020}{suffix}" for suffix in (".log", ".idx")]
    used = sum(file.stat().st_blocks * _SECTOR for file in files)
    return used / (held * sizes.value_bytes)


def measure(place: Path, sizes: Sizes) -> list[Measured]:
    """Measure records appended singly, and by extend."""
    return [
        Measured(name, [_sealed(place / name, sizes, batch)], unit="bytes")
        for name, batch in (("disk_single", 1), ("disk_batched", sizes.batch))
    ]
