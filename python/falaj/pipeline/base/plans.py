"""Runs that go on where the last one ended: what a run is to read is decided once, and kept.

For pipelines that write a topic by a job with a token. Before a run begins its *plan*, a range of
offsets for each partition, is appended durably to a topic of its own beside the target, under the
number that the idempotency key will have. Invariant: each number has one plan, so a run that comes
after a death, or at the same time, does the same work under the same key, and the log takes it
once. A run is over when the target's log has its token; then the next plan begins where it ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falaj.arrow import lanes
from falaj.errors import InvalidArgument, OffsetConflict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from falaj import AnyTopic, Store
    from falaj._arguments import Start
    from falaj._time import Time
    from falaj.arrow import Lane

__all__ = ["Plan", "Plans"]


@dataclass(frozen=True)
class Plan:
    """The records that one run reads.

    Attributes:
        number: Number of its token.
        lanes: Records of each partition: its number, first offset, offset behind the last.
        lost: Records that were trimmed before a run could read them.
        begun: Whether somebody began this run before and did not end it.
    """

    number: int
    lanes: tuple[Lane, ...]
    lost: int
    begun: bool

    @property
    def offsets(self) -> int:
        """How many offsets it covers."""
        return sum(end - start for _, start, end in self.lanes)


class Plans:
    """The plans of one series of runs, from a topic into another.

    Args:
        store: Where both are, open for writing.
        verb: The pipeline's; the plans are in the topic `<into>.<verb>`.
        source: What is read.
        into: What is written.
        settings: What must not change from one run to the next, as JSON has it.
    """

    def __init__(
        self,
        store: Store,
        verb: str,
        source: AnyTopic[Any],
        into: AnyTopic[Any],
        settings: Mapping[str, Any],
    ) -> None:
        self._source, self._into = source, into
        self._settings = dict(settings)
        self._kept = store.topic(f"{into.name}.{verb}", codec="json")
        self.token = f"{verb}:{source.name}"
        """Name of the token that runs commit with."""

    def next(self, start: Start, end: int | Time | None) -> Plan | None:
        """Say what is to be done: what a run that died has left, or else what came since.

        Args:
            start: Where the first run begins; a later one begins where the last one ended.
            end: Where a run that begins now ends, as for `falaj.arrow.read`.

        Returns:
            The plan, on the disk; None where there is nothing.

        Raises:
            InvalidArgument: Runs before had other settings.
            OffsetOutOfRange: `start` or `end` is gone, or beyond the end.
        """
        while True:
            seen = self._kept.end_offset
            done = self._into.last_idempotency_key(self.token)
            number = 0 if done is None else done + 1
            pending, last = self._find(seen, number)
            if pending is not None:
                return self._plan(pending, begun=True)
            ends = lanes(self._source, start if last is None else "earliest", end)
            begin = {} if last is None else {int(p): n for p, (_, n) in last["lanes"].items()}
            found = {str(p): self._lane(p, begin.get(p, first), to) for p, first, to in ends}
            if all(first == to for first, to in found.values()):
                return None
            plan = {
                "run": number,
                "source": self._source.name,
                "generation": self._source.generation,
                "into": self._into.generation,
                "settings": self._settings,
                "lanes": found,
            }
            try:
                self._kept.append(plan, expect=seen, sync="durable")
            except OffsetConflict:
                continue  # somebody planned meanwhile: that plan counts
            return self._plan(plan, begun=False)

    def _lane(self, partition: int, begin: int, end: int) -> tuple[int, int]:
        """Say what is to be read: nothing where the end asked for lies before the beginning.

        So a place never goes back, but to the end of a log that lost records which were read: what
        is appended there is new.
        """
        begin = min(begin, self._source.partition(partition).end_offset)
        return begin, max(begin, end)

    def _find(self, end: int, number: int) -> tuple[Any, Any]:
        """Find the plan of a number, and the one before it, both if they are there."""
        last = None
        for plan in self._mine(end):
            if plan["run"] == number:
                return plan, None
            if plan["run"] < number:
                last = plan if plan["run"] == number - 1 else None
                break
        if last is not None and last["generation"] != self._source.generation:
            last = None  # the topic was created again: it is another one, read from its beginning
        return None, last

    def _mine(self, end: int) -> Iterator[Any]:
        """Go through the plans of this series, the last one first."""
        for offset in range(end - 1, self._kept.start_offset - 1, -1):
            plan = self._kept[offset].value
            if plan["source"] != self._source.name or plan["into"] != self._into.generation:
                continue
            self._expect_settings(plan["settings"])
            yield plan

    def _expect_settings(self, before: Mapping[str, Any]) -> None:
        for name, value in self._settings.items():
            if before.get(name) != value:
                raise InvalidArgument(
                    f"topic {self._into.name} was filled from {self._source.name} with {name} = "
                    f"{before.get(name)!r}, not {value!r}: name the same as before, or another "
                    "target"
                )

    def _plan(self, kept: Mapping[str, Any], *, begun: bool) -> Plan:
        """Make a plan of what is kept: without what has gone since."""
        found, lost = [], 0
        for partition, (start, end) in kept["lanes"].items():
            gone = end  # of a topic that was created again since all of it
            if kept["generation"] == self._source.generation:
                gone = min(end, self._source.partition(int(partition)).start_offset)
            lost += max(gone, start) - start
            found.append((int(partition), max(gone, start), end))
        return Plan(kept["run"], tuple(found), lost, begun)

    def close(self) -> None:
        """Close the topic of plans."""
        self._kept.close()
