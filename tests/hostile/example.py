"""The store that is harmed: small, with one of everything that a Python reader can ask about.

Owns its content, and the true answers that cannot be read from it: where a cursor was one commit
before, and which jobs are done. An earlier copy of it is kept too, so that a careless copy can
replace a new file by an old one.
"""

import shutil
from pathlib import Path

import falaj

SEGMENT_BYTES = 65536
READER = ("reader", "shop")
"""A group with cursors in a file of its own, and the topics that it reads."""
KEPT = ("kept", "orders")
"""A group with cursors in the log of `shop`, and the topics that it reads."""
QUEUE = ("work", "orders")
CURSORS = {
    ("reader", "shop", 0): {10, 20},
    ("reader", "shop", 1): {0, 5},
    ("kept", "orders", 0): {30},
}
"""Allowed offsets of a cursor: the last commit, or the one before, as after a power cut."""
HANDED_OUT = 40
DONE = set(range(20)) | set(range(25, 35))


def make(path: Path, earlier: Path) -> None:
    """Make it, and keep a copy of its state halfway."""
    _begin(path)
    shutil.copytree(path, earlier)
    _go_on(path)


def _begin(path: Path) -> None:
    with falaj.open(path) as store:
        orders = store.topic("orders", segment_bytes=SEGMENT_BYTES)
        for i in range(60):
            orders.append(b"%d " % i * (i * 7 % 300))
        shop = store.partitioned_topic("shop", segment_bytes=SEGMENT_BYTES, partitions=2)
        for i in range(40):
            headers = {"trace": b"%d" % i, "none": None}
            shop.append(b"x" * i, key=b"%d" % (i % 5), headers=headers, partition=i % 2)
        with store.consumer(*_members(READER)) as reader:
            reader.commit(10, topic="shop", partition=0)
            reader.commit(5, topic="shop", partition=1, sync="durable")
        with store.queue(*QUEUE) as queue:
            queue.take(5, timeout=0).ack()


def _go_on(path: Path) -> None:
    with falaj.open(path) as store:
        orders, shop = store.topic("orders"), store.partitioned_topic("shop")
        # Blocks of one record, of many, and of a group; three segments of them.
        for i in range(90):
            orders.append(b"%d " % i * (i * 31 % 1500))
        orders.extend([b"many %d" % i for i in range(300)])
        with store.transaction() as tx:
            tx.append(shop, b"both", partition=0)
            tx.extend(shop, [b"both", b"again"], partition=1)
        with store.consumer(*_members(READER)) as reader:
            reader.commit(20, topic="shop", partition=0)
        with store.consumer(*_members(KEPT), cursor_in="shop") as kept:
            kept.commit(30)
        with store.queue(*QUEUE) as queue:
            jobs = queue.take(HANDED_OUT - 5, timeout=0)
            queue.ack([job for job in jobs if job.offset in DONE])
        with orders.stage("left", "0") as part:
            for i in range(5):
                part.append(b"staged %d" % i)
            part.finish()


def _members(of: tuple[str, str]) -> tuple[str, list[str]]:
    return of[0], [of[1]]
