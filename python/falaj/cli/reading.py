"""Writing records to the output, for `cat`, `tail` and `queue take`.

If only values are wanted, it is as fast as reading them. A follower flushes whenever it has nothing
more. `show` owns the form of a record, and `ranges` chooses the records.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from falaj.cli.paint import Paint, escaped
from falaj.cli.show import Look, Several, printer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from falaj._any_topic import AnyTopic
    from falaj._records import Record
    from falaj.cli.ranges import Part

    Match = Callable[[Record[Any]], bool]
    Show = Callable[[Record[Any]], bytes]

__all__ = ["matching", "several_of", "show_of", "write", "write_values"]

_BATCH = 8192


def show_of(look: Look, topics: Sequence[AnyTopic[Any]]) -> Show:
    """Make the function that turns a record of these topics into output."""
    return printer(look, Paint.of(sys.stdout), several_of(topics))


def several_of(topics: Sequence[AnyTopic[Any]]) -> Several:
    """Find what tells the records of these topics apart."""
    return Several(
        len(topics) > 1,
        any(len(topic.partitions) > 1 for topic in topics),
        {topic.name: topic.codec for topic in topics},
    )


def matching(records: Iterable[Record[Any]], matches: Match | None) -> Iterable[Record[Any]]:
    """Leave out records that do not match."""
    return filter(matches, records) if matches else records


def write(records: Iterable[Record[Any]], show: Show) -> None:
    """Write records, including those before an error."""
    out = sys.stdout.buffer
    try:
        for record in records:
            out.write(show(record))
    finally:
        out.flush()


def write_values(part: Part, out: BinaryIO) -> None:
    """Write the bare values of one partition, thousands at a time, up to the end or an error."""
    try:
        for batch in part.topic._batches(part.start, part.stop, _BATCH):
            values = [value or b"" for value in batch.to_list()]
            lines = b"\n".join([*values, b""])
            try:
                lines.decode()
            except UnicodeDecodeError:
                lines = b"".join(map(_line, values))
            out.write(lines)
    finally:
        out.flush()


def _line(value: bytes) -> bytes:
    return escaped(value).encode() + b"\n"
