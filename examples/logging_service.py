"""A service of several processes that logs into one topic: no line of a killed worker is lost.

Run it: python examples/logging_service.py [STORE]
"""

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
from collections import Counter

import falaj
from falaj.logging import Handler

WORKERS = 4
REQUESTS = 500


def serve(path: str, worker: int) -> None:
    """Handle requests, and log each."""
    log = logging.getLogger(f"worker.{worker}")
    log.setLevel(logging.INFO)
    log.addHandler(Handler(falaj.open(path).topic("log", codec="json")))
    for request in range(REQUESTS):
        log.info("request %d served", request)
        if worker == 0 and request == REQUESTS // 2:
            os.kill(os.getpid(), signal.SIGKILL)  # no exit handlers run, nothing is flushed


def main() -> None:
    """Start the workers, then count the lines that they logged."""
    path = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    fresh = multiprocessing.get_context("spawn")
    workers = [fresh.Process(target=serve, args=(path, n)) for n in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with falaj.open(path, read_only=True) as store:
        counts = Counter(record.key for record in store.topic("log"))
    for logger, lines in sorted(counts.items()):
        print(logger.decode() if logger else "", lines)


if __name__ == "__main__":
    main()
