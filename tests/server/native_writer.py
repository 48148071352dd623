"""A native process that appends to a topic, half of the time only where it expects the end.

Usage: native_writer.py STORE TOPIC NAME. Its output has a line before and after each step, each in
one write: so a reader of the pipe has all that happened before the process is killed.
"""

import os
import sys
import time
from itertools import count

import falaj


def tell(*words: object) -> None:
    """Write a line with the time of now."""
    os.write(1, " ".join(map(str, (*words, time.monotonic()))).encode() + b"\n")


def main(path: str, name: str, who: str) -> None:
    """Append until the process is killed."""
    with falaj.open(path) as store:
        topic = store.topic(name)
        for number in count():
            value = f"{who}-{number}"
            expected = None
            if number % 2:
                tell("look")
                expected = topic.end_offset
                tell("end", expected)
            tell("ask", value)
            try:
                tell("ok", topic.append(value.encode(), expect=expected))
            except falaj.errors.OffsetConflict as conflict:
                tell("refused", conflict.next)


if __name__ == "__main__":
    main(*sys.argv[1:])
