"""The number of different crash states that all soaks together visited, from their sketches.

Owns the arithmetic of `Sketch` in rust/sim/src/seen.rs. Owns also the file `states.txt` beside this
one, which holds the union of all soaks' sketches. Invariant: a sketch that is merged twice counts
once. So a resumed soak, and two soaks with the same states, add only what is new.
"""

import base64
import math
import textwrap
import zlib
from collections.abc import Iterable
from pathlib import Path

from soak.state import put

HEAD = """\
# The crash states that the soaks of RELIABILITY.md visited, as the ranks of a sketch.
# tools/soak/sketch.py writes this file, and estimates their number within one percent.
"""


def union(sketches: Iterable[bytes]) -> bytes:
    """Merge several sketches; the union of none is empty.

    Args:
        sketches: Ranks, a byte for each register, all equally many.
    """
    return bytes(map(max, zip(*sketches, strict=True)))


def count(ranks: bytes) -> int:
    """Estimate how many different states a sketch was shown.

    Flajolet et al., "HyperLogLog" (2007); with 65,536 registers the standard error is 0.4 %.
    """
    if not ranks:
        return 0
    m = len(ranks)
    raw = 0.7213 / (1 + 1.079 / m) * m * m / math.fsum(2.0**-rank for rank in ranks)
    empty = ranks.count(0)
    return int(m * math.log(m / empty) if empty and raw <= 2.5 * m else raw)


def take_in(path: Path, sketches: Iterable[bytes]) -> int:
    """Merge sketches into the file, which need not exist yet; return its new count."""
    known = [read(path)] if path.exists() else []
    ranks = union([*known, *sketches])
    if ranks and [ranks] != known:
        put(path, text(ranks))
    return count(ranks)


def text(ranks: bytes) -> str:
    """Format a sketch for a file."""
    packed = base64.b64encode(zlib.compress(ranks, 9)).decode()
    return HEAD + textwrap.fill(packed, 100) + "\n"


def read(path: Path) -> bytes:
    """Read a sketch from a file's text.

    Raises:
        ValueError: It holds none; the words name it, and the remedy.
    """
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    try:
        return zlib.decompress(base64.b64decode("".join(lines), validate=True))
    except (ValueError, zlib.error) as why:
        raise ValueError(f"{path} holds no sketch ({why}): restore an older version of it") from why
