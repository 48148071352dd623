"""A shop that writes to SQLite only, and a relay that is killed: each sale reaches the log once.

Run it: python examples/outbox.py [FOLDER]
"""

import multiprocessing
import os
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import falaj
from falaj.outbox import Outbox

SALES = 300


def relay(folder: Path, die: bool) -> None:
    """Move the waiting rows, and new ones, into the log, a few at a time."""
    topic = falaj.open(folder / "events").topic("sales", codec="str")
    with Outbox(folder / "shop.db", topic, limit=10) as outbox:
        while topic.end_offset < SALES:
            if outbox.relay() and die:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.01)


def main() -> None:
    """Sell while one relay dies and the next one continues; then count the sales in the log."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    fresh = multiprocessing.get_context("spawn")
    relays = [fresh.Process(target=relay, args=(folder, die)) for die in (True, False)]
    with closing(sqlite3.connect(folder / "shop.db", timeout=30)) as shop:
        shop.execute("CREATE TABLE sales (number INTEGER)")
        shop.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT)")
        relays[0].start()
        for number in range(SALES):
            with shop:  # the sale, and the message for others, in one transaction
                shop.execute("INSERT INTO sales VALUES (?)", (number,))
                shop.execute("INSERT INTO outbox (value) VALUES (?)", (f"sale {number}",))
        relays[0].join()
        relays[1].start()
        relays[1].join()
    with falaj.open(folder / "events", read_only=True) as store:
        sales = [sale.value for sale in store.topic("sales")]
    print("relays ended with", [process.exitcode for process in relays])
    print(len(sales), "sales,", len(set(sales)), "different")


if __name__ == "__main__":
    main()
