"""Ships a store in a process of its own, and says what it needed: for `waiting` and `keeping`.

Each line on its standard input is answered by one of JSON: requests so far, memory, processor time.
The end of the input ends it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import falaj
from falaj.ship.shipper import Options, Shipper
from runner.bucket.places import Counted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Child", "anonymous", "shipping"]

_SAMPLE_S = 0.005


def anonymous() -> int:
    """Return the bytes of this process's memory that no file backs."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) << 10


class Child:
    """The process, seen from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, *, quiet: bool = False) -> dict[str, Any]:
        """Ask what it needed so far; with `quiet` it no longer samples its memory."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("quiet\n" if quiet else "now\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the shipper ended by itself; see what it said above")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def shipping(store: Path, url: str, delay_s: float = 0.0) -> Iterator[Child]:
    """Ship a store to a place until the block ends."""
    command = [sys.executable, "-m", "runner.bucket.shipping", str(store), url, str(delay_s)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        child = Child(process)
        while child.ask()["claim"] is None:
            time.sleep(0.01)  # sleep: another process says nothing when it has claimed
        yield child
    finally:
        process.communicate(timeout=60)


def main() -> None:
    """Ship until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("url")
    parser.add_argument("delay_s", type=float)
    asked = parser.parse_args()
    with falaj.open(asked.store) as store:
        place = Counted(asked.url, asked.delay_s)
        idle = peak = anonymous()
        shipper = Shipper(store, place, Options())
        thread = threading.Thread(target=shipper.run)
        thread.start()
        ended = threading.Event()

        def sample() -> None:
            nonlocal peak
            while not ended.wait(_SAMPLE_S):
                peak = max(peak, anonymous())

        sampling = threading.Thread(target=sample)
        sampling.start()
        for line in sys.stdin:
            if line == "quiet\n":
                ended.set()
                sampling.join()
            ready = (store.info()["shipper"] or None) and shipper.flushes + 1
            said = {
                "claim": ready,
                "requests": sum(place.requests.values()),
                "flushes": shipper.flushes,
                "memory": peak - idle,
                "processor_s": time.process_time(),
            }
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()
        shipper.stop.set()
        thread.join()
        ended.set()
        sampling.join()


if __name__ == "__main__":
    main()
