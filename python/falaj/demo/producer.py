"""A producer: appends the flights of one airport, one record each.

Only the log says where it has to begin. Every record names its producer and its number in the
headers `producer` and `seq`. A record is there or it is not. So a producer that is killed and
started again reads what is there and resumes after it.

It says when it is ready, begins when the demo says so, and reports when it began and ended.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import falaj
from falaj.demo import flights
from falaj.demo.messages import say, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from falaj import Topic

__all__ = ["main", "next_of"]

Row = tuple[bytes, bytes | None, list[tuple[str, bytes]]]

# A sleep shorter than this is not worth the call.
_NAP_SECONDS = 0.0005


def rows(origin: str, limit: int | None) -> list[Row]:
    """Make value, key and headers of every record beforehand, so that only appending is timed."""
    producer = origin.encode()
    return [
        (
            flights.encode(flight),
            flight["tailnum"].encode() if flight["tailnum"] else None,
            [("producer", producer), ("seq", b"%d" % seq)],
        )
        for seq, flight in enumerate(flights.flights(limit, origin))
    ]


def next_of(topic: Topic[Any], origin: str) -> int:
    """Find in the log which flight of this airport comes next."""
    producer = origin.encode()
    found = -1
    for record in topic:
        headers = dict(record.headers)
        if headers["producer"] == producer:
            found = int(headers["seq"] or b"")
    return found + 1


def append(topic: Topic[Any], ready: Sequence[Row], seconds: float) -> None:
    """Append one by one, spread over so many seconds; 0 is as fast as it goes."""
    begun = time.perf_counter()
    each = seconds / len(ready) if ready else 0.0
    if not each:
        for value, key, headers in ready:
            topic.append(value, key, headers=headers)
        return
    for number, (value, key, headers) in enumerate(ready):
        # With its own timestamp: the log's is that of the last tick of the machine's clock.
        topic.append(value, key, headers=headers, timestamp_ns=time.time_ns())
        ahead = begun + number * each - time.perf_counter()
        if ahead > _NAP_SECONDS:
            time.sleep(ahead)


def main(path: str, name: str, origin: str, limit: int | None) -> None:
    """Run a producer."""
    prepared = rows(origin, limit)
    with falaj.open(path) as store, store.topic(name) as topic:
        begin = next_of(topic, origin)
        say(ready=begin)
        seconds = wait_for("seconds")
        begun = time.time()
        append(topic, prepared[begin:], seconds)
        say(begun=begun, ended=time.time())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]) or None)
