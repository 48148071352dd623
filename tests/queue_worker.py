"""A worker of a queue that keeps accounts of its own, for tests that kill and stop it.

`queue_worker.py STORE ACCOUNT LEASE`: takes jobs until there is none for a second. A line of the
account: what happened, offset, attempt, and the machine's steady clock before and after. A job is
*had* when its batch hands it over, which begins it.
"""

import os
import random
import sys
import time

import falaj
from falaj.errors import LeaseExpired
from notes import Notes


def main(path: str, account: str, lease: float) -> None:
    notes = Notes(account)
    dice = random.Random(os.getpid())

    with falaj.open(path) as store, store.queue("jobs") as queue:
        while True:
            before = time.monotonic()
            jobs = queue.take(dice.randrange(1, 20), lease=lease, timeout=1)
            if not jobs:
                return
            for job in jobs:
                notes.add("had", job.offset, job.attempt, before, time.monotonic())
                time.sleep(0.002)  # sleep: the work, so that there is some when it is killed
                begun = time.monotonic()
                leaves = dice.random() < 0.02
                notes.add("left" if leaves else "done", job.offset, job.attempt, begun, begun)
                try:
                    job.nack() if leaves else job.ack()
                    what = "gave" if leaves else "acked"
                except LeaseExpired:
                    what = "late"
                notes.add(what, job.offset, job.attempt, begun, time.monotonic())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
