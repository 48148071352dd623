#!/usr/bin/env python3
"""Use an installed falaj once: a record, a group, a queue, a transaction, and a second opening.

For a wheel on a machine without anything else. Usage: smoke.py DIRECTORY
"""

import sys
import tempfile
from pathlib import Path

import falaj


def main(folder: Path) -> None:
    """Run all steps; an assertion says what does not work."""
    with falaj.open(folder / "store") as store:
        orders = store.topic("orders", codec="json", log="shop")
        assert orders.append({"cups": 2}, key=b"ann", sync="durable") == 0
        with store.consumer("billing", "orders") as billing:
            assert [order.value for order in billing] == [{"cups": 2}]
            billing.commit()
        mails = store.queue("mails")
        mails.put(b"welcome")
        with mails.take(1, timeout=1) as jobs:
            jobs.ack()
        with store.transaction() as tx:
            tx.append(orders, {"cups": 1})
    with falaj.open(folder / "store") as store:
        assert [order.offset for order in store.topic("orders")] == [0, 1]
    print(f"falaj {falaj.__version__} works with Python {sys.version.split()[0]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as scratch:
        main(Path(scratch))
