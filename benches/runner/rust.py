"""The Rust rows: programs of benches/core that print a line of JSON each."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from runner.results import Measured

PROGRAMS = ("falaj-bench", "durable", "opening")
NAMES = {
    "rust append, one per call": "rust_append",
    "rust append, one per call, fresh pages": "rust_append_fresh",
    "rust append, with a key": "rust_append_key",
    "rust append, to partition 3": "rust_append_partition",
    "rust scan, verified": "rust_scan_verified",
    "rust blocks, verified": "rust_blocks_verified",
    "rust blocks, unverified": "rust_scan_unverified",
    "rust durable append, fresh pages": "rust_durable",
    "rust open, 10,000 topics in a log": "open_many_topics",
    "rust open, a full active segment": "open_large_segment",
}


def read(printed: Iterable[str]) -> list[Measured]:
    """Take the rows that the table knows."""
    rows = [json.loads(line) for line in printed if line.strip()]
    return [
        Measured(
            NAMES[row["name"]], row["rounds_ns"], row.get("floor_rounds_ns", [row["floor_ns"]])
        )
        for row in rows
        if row["name"] in NAMES
    ]


def measure(programs: Path, place: Path) -> list[Measured]:
    """Run the programs."""
    found: list[Measured] = []
    for name in PROGRAMS:
        done = subprocess.run(
            [programs / name, place], check=True, stdout=subprocess.PIPE, text=True
        )
        found += read(done.stdout.splitlines())
    return found
