"""Follow a topic while other processes append; act only on records that no power cut can take back.

Run it: python examples/follow.py STORE TOPIC [SECONDS]
In another terminal: seq 10 | falaj append -s STORE TOPIC
"""

import sys

import falaj


def main() -> None:
    """Print the durable records, and new ones, until none came for SECONDS."""
    path, name = sys.argv[1:3]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else None
    with falaj.open(path) as store:
        topic = store.topic(name, visibility="durable")
        with topic.follow("earliest", timeout=seconds) as follower:
            for record in follower:  # sleeps in the kernel while there is nothing new
                print(record.offset, record.to_bytes().decode(errors="replace"), flush=True)


if __name__ == "__main__":
    main()
