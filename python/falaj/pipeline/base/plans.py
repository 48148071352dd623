"""Plans: each run decides once what it reads, and keeps that, so it survives its death.

For pipelines that fill a topic by bulk loads with idempotency keys. A *plan* is a range of offsets
for each partition. Before a run begins, it appends its plan durably to a topic of its own beside
the target. The plan has the number that the idempotency key of the run will have. A run is over
when the log of the target has that key; the next plan begins where it ended.

Invariant: each number has one plan. So a run that starts after a death, or at the same time, does
the same work under the same key. The log accepts it once.
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

__all__ = ["Plan", "Plans", "ledger_of"]


def ledger_of(into: str, verb: str) -> str:
    """Name the topic with the plans of all runs of a pipeline into a topic."""
    return f"{into}.{verb}"


@dataclass(frozen=True)
class Plan:
    """The records that one run reads.

    Attributes:
        number: The number in its idempotency key.
        lanes: The records of each partition: its number, the first offset, and the offset after the
            last.
        lost: Records that were trimmed before a run could read them.
        begun: Whether a process began this run before and did not finish it.
        recreated: Whether the topic was deleted and created again since the run before, or since
            this one began. All that was not read of the old one is lost, and not counted.
    """

    number: int
    lanes: tuple[Lane, ...]
    lost: int
    begun: bool
    recreated: bool = False

    @property
    def offsets(self) -> int:
        """The number of offsets that it covers."""
        return sum(end - start for _, start, end in self.lanes)


class Plans:
    """The plans of all runs from one topic into another.

    Args:
        store: The store of both, open for writing.
        verb: The name of the pipeline; the plans are in the topic `<into>.<verb>`.
        source: The topic that is read.
        into: The topic that is written.
        settings: The settings that must not change from one run to the next, as JSON has them.
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
        self._kept = store.topic(ledger_of(into.name, verb), codec="json")
        self.token = f"{verb}:{source.name}"
        """The name of the idempotency key that runs commit with."""

    def next(self, start: Start, end: int | Time | None) -> Plan | None:
        """Return the next plan: that of a run that died, or else one for what came since.

        Args:
            start: Where the first run begins; a later one begins where the last one ended.
            end: Where a run that begins now ends, as for `falaj.arrow.read`.

        Returns:
            The plan, which is on the disk; None if there is nothing to do.

        Raises:
            InvalidArgument: Earlier runs had other settings.
            OffsetOutOfRange: `start` or `end` was trimmed, or lies beyond the end.
        """
        while True:
            seen = self._kept.end_offset
            done = self._into.last_idempotency_key(self.token)
            number = 0 if done is None else done + 1
            pending, last = self._find(seen, number)
            if pending is not None:
                return self._plan(pending, begun=True)
            ends = lanes(self._source, start if last is None else "earliest", end)
            recreated = last is not None and last["generation"] != self._source.generation
            begin = {}
            if last is not None and not recreated:
                begin = {int(p): n for p, (_, n) in last["lanes"].items()}
            found = {str(p): self._lane(p, begin.get(p, first), to) for p, first, to in ends}
            if all(first == to for first, to in found.values()) and not recreated:
                return None
            plan = {
                "run": number,
                "source": self._source.name,
                "generation": self._source.generation,
                "into": self._into.generation,
                "settings": self._settings,
                "lanes": found,
                "recreated": recreated,
            }
            try:
                self._kept.append(plan, expect=seen, sync="durable")
            except OffsetConflict:
                continue  # somebody planned meanwhile: that plan counts
            return self._plan(plan, begun=False)

    def _lane(self, partition: int, begin: int, end: int) -> tuple[int, int]:
        """Return the range to read; it is empty if the requested end lies before its beginning.

        So a position never moves back, with one exception. A log may have lost records that were
        read; then it moves to the log's end, since what is appended there is new.
        """
        begin = min(begin, self._source.partition(partition).end_offset)
        return begin, max(begin, end)

    def _find(self, end: int, number: int) -> tuple[Any, Any]:
        """Find the plan of a number, or else the plan before it; None for what is missing."""
        last = None
        for plan in self._mine(end):
            if plan["run"] == number:
                return plan, None
            if plan["run"] < number:
                last = plan if plan["run"] == number - 1 else None
                break
        return None, last

    def _mine(self, end: int) -> Iterator[Any]:
        """Iterate over the plans of this source and target, the last one first."""
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
        """Make a plan of a kept one, without the records that were trimmed since."""
        found, lost = [], 0
        if kept["generation"] != self._source.generation:  # all of it is gone
            lost = sum(end - start for start, end in kept["lanes"].values())
            return Plan(kept["run"], (), lost, begun, recreated=True)
        for partition, (start, end) in kept["lanes"].items():
            gone = min(end, self._source.partition(int(partition)).start_offset)
            lost += max(gone, start) - start
            found.append((int(partition), max(gone, start), end))
        recreated = kept.get("recreated", False)
        return Plan(kept["run"], tuple(found), lost, begun, recreated)

    def close(self) -> None:
        """Close the topic of plans."""
        self._kept.close()
