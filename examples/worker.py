"""Process a topic with as many workers as you like: each record goes to one.

Run it in several terminals: python examples/worker.py STORE TOPIC [SECONDS]
Kill one of them: the others go on with its partitions.
"""

import os
import sys

import falaj


def main() -> None:
    """Print the records of this worker's partitions, until none came for SECONDS."""
    path, topic = sys.argv[1:3]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else None
    with falaj.open(path) as store, store.consumer("workers", [topic]) as worker:
        for record in worker.follow(timeout=seconds):
            print(os.getpid(), record.partition, record.to_bytes().decode(), flush=True)
            worker.commit()


if __name__ == "__main__":
    main()
