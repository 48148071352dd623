"""Appending lines to a topic, for `append` and `queue put`.

Invariant: lines are appended in their order, each once, in batches of the lines that have arrived.
If a line is refused, those before it are in the topic, and the error says so.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from falaj.cli.exits import Exit, Stop, code_of, interrupt_after, say
from falaj.cli.lines import Lines, chunks_of
from falaj.cli.paint import is_terminal
from falaj.cli.progress import Advance, bar, no_bar
from falaj.cli.units import count, size
from falaj.errors import AppendTooLarge, Error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from falaj._topic import EitherTopic
    from falaj.cli.values import Made, Maker

__all__ = ["BATCH_RECORDS", "Appending"]

BATCH_RECORDS = 1000
_BATCH_BYTES = 1 << 20


def _progress(topic: str, sources: list[str]) -> AbstractContextManager[Advance]:
    """Return a bar, but none if a person types: the bar would overwrite the text."""
    if "-" in sources and is_terminal(sys.stdin):
        say(f"each line you type is a record of {topic}; Ctrl-D ends")
        return nullcontext(no_bar)
    return bar(f"append to {topic}", _total(sources))


def _total(sources: list[str]) -> int | None:
    """Return the bytes of all sources, if all are files with a size."""
    if "-" in sources or not all(map(os.path.isfile, sources)):
        return None
    return sum(map(os.path.getsize, sources))


class Appending:
    """An append of lines in progress, with its counts."""

    def __init__(
        self,
        topic: EitherTopic,
        maker: Maker,
        partition: int | None,
        batch: int,
        timeout: float | None = None,
        sync: str | None = None,
    ) -> None:
        self.topic, self.maker, self.partition, self.batch = topic, maker, partition, batch
        # A time belongs to the mode "remote" alone. A local topic was opened with its mode.
        asked = {"sync": sync, "timeout": timeout}
        self._wait: dict[str, Any] = {
            name: value for name, value in asked.items() if value is not None
        }
        self.records = self.bytes = self.read = 0
        self.offsets: dict[int, range] = {}

    def all_of(self, sources: list[str]) -> None:
        """Append the lines of all sources."""
        try:
            with _progress(self.topic.name, sources) as advance:
                for source in sources:
                    for chunk in self._chunks_of(source):
                        self._take(chunk)
                        advance(self.read, self.records)
        except KeyboardInterrupt:
            say(self.summary())
            raise

    def _chunks_of(self, source: str) -> Iterator[Lines]:
        """Read a file; if that fails before its end, report what is in the topic."""
        try:
            yield from chunks_of(source)
        except Stop as stop:
            raise self._stop(stop.sentence, stop.code) from None

    def _take(self, chunk: Lines) -> None:
        """Append the lines of a chunk."""
        self.read += chunk.read
        make, skips_blank = self.maker
        numbered: list[tuple[int, Made]] = []
        held = 0
        for number, line in enumerate(chunk.lines, chunk.first):
            if skips_blank and not line.strip():
                continue
            try:
                made = make(line)
            except ValueError as error:
                self.extend(numbered, chunk.file)
                raise self._stop(f"line {number} of {chunk.file} {error}") from None
            if len(numbered) == self.batch or (numbered and held + len(line) > _BATCH_BYTES):
                self.extend(numbered, chunk.file)
                numbered, held = [], 0
            numbered.append((number, made))
            held += len(line)
        self.extend(numbered, chunk.file)

    def extend(self, numbered: list[tuple[int, Made]], file: str) -> None:
        """Append records, as one block for each partition that lines ask for."""
        if self.partition is not None:
            self._block(numbered, file, self.partition)
            return
        groups: dict[int | None, list[tuple[int, Made]]] = {}
        for each in numbered:
            groups.setdefault(each[1].partition, []).append(each)
        for partition, group in groups.items():
            if partition is not None and partition >= len(self.topic.partitions):
                raise self._stop(
                    f"line {group[0][0]} of {file} is of partition {partition}, which topic "
                    f"{self.topic.name} does not have; leave the member out, and the key decides"
                )
            self._block(group, file, partition)

    def _block(self, numbered: list[tuple[int, Made]], file: str, partition: int | None) -> None:
        """Append records as one block, or in halves if the segments of the topic are small."""
        if not numbered:
            return
        made = [each for _, each in numbered]
        try:
            with interrupt_after():  # so that the summary counts exactly what is in the topic
                topic = self.topic if partition is None else self.topic.partition(partition)
                records = [each.record for each in made]
                self._count(made, partition or 0, topic.extend(records, **self._wait))
        except AppendTooLarge as error:
            if len(made) == 1:
                line = numbered[0][0]
                raise self._stop(f"line {line} of {file} is too long: {error}") from None
            half = len(made) // 2
            self._block(numbered[:half], file, partition)
            self._block(numbered[half:], file, partition)
        except Error as error:
            raise self._stop(str(error), code_of(error)) from None

    def _count(self, made: list[Made], only: int, got: range | dict[int, range]) -> None:
        for number, offsets in (got if isinstance(got, dict) else {only: got}).items():
            before = self.offsets.get(number, offsets)
            self.offsets[number] = range(before.start, offsets.stop)
        self.records += len(made)
        self.bytes += sum(each.size for each in made)

    def _stop(self, sentence: str, code: Exit = Exit.USAGE) -> Stop:
        there = f"; what came before it, {count(self.records, 'record')}, is in the topic"
        return Stop(sentence + (there if self.records else ""), code)

    def summary(self) -> str:
        """Report what was appended."""
        said = f"appended {count(self.records, 'record')} ({size(self.bytes)}) to {self.topic.name}"
        if len(self.offsets) != 1:
            return said
        (offsets,) = self.offsets.values()
        if self.records == 1:
            return f"{said}, offset {offsets[0]}"
        return f"{said}, offsets {offsets[0]} to {offsets[-1]}"

    def figures(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "topic": self.topic.name,
            "records": self.records,
            "bytes": self.bytes,
            "offsets": [
                {"partition": number, "first": offsets[0], "last": offsets[-1]}
                for number, offsets in sorted(self.offsets.items())
            ],
        }
