"""Step 1: three producers and a follower; one producer is killed on the way and started again.

The bars and the table show what the follower saw, not what producers say of themselves: everything
here goes through the log. The demo does not tell a successor how far its predecessor got.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from falaj.demo.figures import Interruption, Live, Streamed
from falaj.demo.flights import ORIGINS
from falaj.demo.workers import Crew, Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["TOPIC", "stream"]

TOPIC = "flights"
VICTIM = "JFK"
# When it is killed, as a share of its flights.
KILL_AT = 0.4
# A successor spreads what is left over the time that is left, but never over less than this.
SECONDS_LEFT_MIN = 2.0

_FOLLOWER = "follower"


def stream(
    store: Path,
    live: Live,
    *,
    limit: int | None,
    seconds: float,
    changed: Callable[[], None],
) -> Streamed:
    """Run the pass.

    Args:
        store: Directory of the store, where the topic exists and is empty.
        live: Kept up to date while it runs.
        limit: Only the first so many flights.
        seconds: Over how long the producers spread their flights.
        changed: Called when `live` has changed.

    Returns:
        The figures of the pass.

    Raises:
        Failed: A process ended with an error, or all fell silent.
    """
    # A few flights spread over minutes leave pauses of minutes.
    with Crew(quiet_seconds=seconds) as crew:
        running = _Stream(crew, store, live, limit, seconds, changed)
        running.run()
    return Streamed(
        live=live,
        seconds=running.ended - running.begun,
        interruption=running.interruption,
        histogram=[(float(edge), int(count)) for edge, count in running.result["histogram"]],
        percentiles=running.result["percentiles"],
        follower_cpu=running.result["cpu_seconds"],
    )


class _Stream:
    """The pass while it runs."""

    def __init__(
        self,
        crew: Crew,
        store: Path,
        live: Live,
        limit: int | None,
        seconds: float,
        changed: Callable[[], None],
    ) -> None:
        self.crew, self.store, self.live, self.limit = crew, store, live, limit
        self.seconds, self.changed = seconds, changed
        self.begun = self.ended = 0.0
        self.ready: set[str] = set()
        self.result: dict[str, Any] = {}
        self.killed_at: float | None = None
        self.interruption: Interruption | None = None
        self.producers = {origin: self.hire(origin) for origin in ORIGINS}
        crew.start(_FOLLOWER, "falaj.demo.follower", store, TOPIC, sum(live.totals.values()))

    def hire(self, origin: str) -> Worker:
        """Start a producer."""
        self.live.states[origin] = "reading its flights"
        return self.crew.start(
            origin, "falaj.demo.producer", self.store, TOPIC, origin, self.limit or 0
        )

    def run(self) -> None:
        """Handle all messages until all processes are done."""
        for worker, message in self.crew.messages():
            if "carriers" in message:
                self.look(message)
            elif "histogram" in message:
                self.result = message
            elif "ended" in message:
                self.live.states[worker.name] = "done"
            elif self.killed_at is None:
                self.ready.add(worker.name)
                self.begin()
            else:
                self.resume(worker, message["ready"], self.killed_at)
            self.changed()

    def begin(self) -> None:
        """Start the producers once all processes are ready, so that all begin together."""
        if self.ready < {*self.producers, _FOLLOWER}:
            return
        self.begun = self.ended = time.time()
        for producer in self.producers.values():
            producer.say(seconds=self.seconds)
            self.live.states[producer.name] = "appending"

    def look(self, message: dict[str, Any]) -> None:
        """Show what the follower saw, and kill a producer when it is time."""
        self.ended = message["time"]
        self.live.seen = message["producers"]
        self.live.carriers = message["carriers"]
        self.live.median_us = message["median"]
        self.live.history.append((self.ended - self.begun, self.live.seen))
        seen, total = self.live.seen.get(VICTIM, 0), self.live.totals[VICTIM]
        if self.killed_at is None and total > seen >= KILL_AT * total:
            self.killed_at = self.now()
            self.crew.kill(self.producers[VICTIM])
            self.producers[VICTIM] = self.hire(VICTIM)
            self.live.states[VICTIM] = "killed, starts again"

    def resume(self, successor: Worker, found: int, killed_at: float) -> None:
        """Let the successor resume at the end that it found in the log."""
        left = self.seconds - self.now()
        successor.say(seconds=max(left, min(SECONDS_LEFT_MIN, self.seconds)))
        self.interruption = Interruption(successor.name, killed_at, self.now(), found)
        self.live.states[successor.name] = f"resumes after {found:,}"

    def now(self) -> float:
        """Return the seconds since the beginning."""
        return time.time() - self.begun
