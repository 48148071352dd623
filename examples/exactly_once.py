"""A worker that is killed repeatedly adds up each number exactly once.

Run it: python examples/exactly_once.py [FOLDER]
"""

import multiprocessing
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

import falaj

NUMBERS = 500


def worker(path: Path, life: int) -> None:
    """Continue where the last worker stopped, and die after so many numbers."""
    store = falaj.open(path)
    sums = store.topic("sums", codec="json")
    total = sums[-1].value if len(sums) else 0
    with store.consumer("adder", "numbers", cursor_in=sums) as adder:
        for record in adder:
            total += record.value
            with store.transaction() as tx:  # the sum, and the number up to which it adds
                tx.append(sums, total)
                tx.commit_cursor(adder)
            life -= 1
            if life == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Start workers until one of them reaches the end."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "events"
    with falaj.open(path) as store:
        store.topic("numbers", codec="json").extend(list(range(NUMBERS)))
        sums = store.topic("sums", codec="json")
        fresh = multiprocessing.get_context("spawn")
        deaths = 0
        while len(sums) < NUMBERS:
            process = fresh.Process(target=worker, args=(path, random.randint(50, 200)))
            process.start()
            process.join()
            deaths += process.exitcode == -signal.SIGKILL
        print(len(sums), "sums, the last is", sums[-1].value, "as expected")
        print("some workers died" if deaths else "no worker died")


if __name__ == "__main__":
    main()
