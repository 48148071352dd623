"""The promises about a process: its view is a beginning of the true order, and so are its writes.

Each later claimer sees all flushes that are valid in the true order before its claim. An
acknowledged flush is one of them. So views are beginnings of each other, and a number has one
writer that acknowledges it.
"""

from falaj.ship.messages import Reason
from falaj.ship.protocol import Reading, Shipping, Stage
from ship.explore.bodies import Views
from ship.explore.place import Place, Rules, Violation
from ship.explore.process import Process


class Promises:
    """Compares what a process believes and says with the true order of the place."""

    rules: Rules
    twins: bool

    def check_view(self, place: Place, machine: Reading | Shipping | None, view: Views) -> None:
        """A view that may be used is a beginning of the true order."""
        reading = machine.reading if isinstance(machine, Shipping) else machine
        if reading is None or reading.cover is not None:  # with a cover only the end counts
            return
        bodies, until = self.rules.bodies, reading.until
        passed = self.rules.true(place, reading.at)
        last = reading.at if until is None else min(reading.at, until)
        truth = bodies.view(self.rules.true(place, last))
        if (reading.hash, view) != (bodies.numbers[passed].hash, truth):
            raise Violation(f"a view of {reading.at} has {view}, not {truth}")

    def check_ended(self, place: Place, process: Process, number: int) -> None:
        """A restored view is that of the number which it names, and misses nothing older."""
        view = process.view
        if number < process.least:
            raise Violation(f"a restore ends at {number}, and {process.least} existed before")
        truth = self.rules.bodies.view(self.rules.true(place, number))
        if view != truth:
            raise Violation(f"restoring {number} gives {view}, not {truth}")

    def check_hold(self, place: Place, machine: Shipping, number: int) -> None:
        """A claim that holds is in the true order."""
        claim = machine.claim
        assert claim is not None
        assert machine.stage is Stage.HOLDING
        if self.rules.true(place, number) != self.rules.bodies.of(claim.hash):
            raise Violation(f"claim {number} holds, and another body had its number first")

    def check_acknowledgement(self, place: Place, body: int) -> None:
        """A flush that is acknowledged is in the true order, and its claim was in force."""
        bodies = self.rules.bodies
        number = bodies.numbers[body].number
        if self.rules.true(place, number) != body:
            raise Violation(f"flush {number} is acknowledged, and it is not what {number} holds")
        if not bodies.valid(body):
            raise Violation(f"flush {number} is acknowledged, and a later claim fenced it")

    def check_stop(self, reason: Reason, number: int) -> None:
        """Without twins and without corruption, only a later claim stops a machine."""
        fine = {Reason.FENCED, Reason.OVERTAKEN, Reason.HISTORY_DELETED} | (
            {Reason.TWIN} if self.twins else set()
        )
        if reason not in fine:
            raise Violation(f"a machine stops at {number}: {reason.name}")
