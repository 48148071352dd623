"""The place of an exploration: what lies in it, what is on its way, and what must stay true.

Owns the true order: the first body that each number had. Everything that lands is compared with
it, so that a shipper can change a place only in ways that `ghosts.py` may take for any shipper.
"""

from typing import NamedTuple

from falaj.ship.messages import Checkpoint
from ship.explore.bodies import NOTHING, Bodies, Views, within


class Violation(Exception):  # a finding, not an error
    """A promise that does not hold."""


class Stored(NamedTuple):
    """A checkpoint in the place, and the view that its maker wrote into it."""

    facts: Checkpoint
    view: Views


class Flight(NamedTuple):
    """A request that may land later: a body, a claim that has no count yet, or a checkpoint."""

    body: int = 0
    claim: tuple[int, int] = (0, 0)  # number, and the body before
    stored: int = 0
    owned: bool = False  # a claim whose sender still waits: the sender's `late` says which


OWNED = Flight(owned=True)


class Place(NamedTuple):
    """Everything outside the processes.

    `slots[n - 1]` is the body that lies at number n. `tip` is the last body of the true order.
    """

    slots: Views
    tip: int
    stored: tuple[int, ...]  # checkpoints, rising
    flying: tuple[Flight, ...]
    counts: Views  # how many claims have landed at each number that had another body before
    loose: int  # numbers that were released before a checkpoint listed them, as bits


class Rules:
    """How requests change a place, and the promises about it."""

    def __init__(self, numbers: int, checkpoints: int, flights: int, *, strict: bool) -> None:
        self.bodies = Bodies()
        self.numbers, self.checkpoints, self.flights = numbers, checkpoints, flights
        self.strict = strict  # else a promise about deletion may break, to see what follows
        self.stored: list[Stored] = [Stored(Checkpoint(0, 0, ""), ())]
        self._stored: dict[Stored, int] = {}

    def empty(self) -> Place:
        nothing = (NOTHING,) * self.numbers
        return Place(nothing, NOTHING, (), (), nothing, 0)

    def length(self, place: Place) -> int:
        """Return how many numbers were ever filled."""
        return len(self.bodies.chain(place.tip))

    def true(self, place: Place, number: int) -> int:
        """Return the first body that a number had."""
        if number > self.length(place):
            raise Violation(f"a process believes in number {number}, which does not exist")
        return self.bodies.chain(place.tip)[number - 1] if number else NOTHING

    # Objects that lie there.

    def listed(self, place: Place, start: int) -> tuple[int, ...]:
        found = (self.stored[stored].facts.number for stored in place.stored)
        return tuple(number for number in found if number >= start)

    def checkpoint(self, place: Place, number: int) -> Stored | None:
        found = (self.stored[stored] for stored in place.stored)
        return next((stored for stored in found if stored.facts.number == number), None)

    def newest(self, place: Place) -> int:
        return self.stored[place.stored[-1]].facts.number if place.stored else 0

    # Creates.

    def new_claim(self, place: Place, number: int, before: int) -> int:
        """Return the body of a claim that lands now; no other body is equal to it."""
        count = place.counts[number - 1] + 1 if number <= self.length(place) else 0
        return self.bodies.claim(number, before, count)

    def land(self, place: Place, body: int) -> Place:
        """Create a number that does not exist."""
        number = self.bodies.numbers[body].number
        slots = (*place.slots[: number - 1], body, *place.slots[number:])
        self._check_landing(place, number, body)
        counts = place.counts
        if number > self.length(place):
            place = place._replace(tip=body)
        elif body == self.new_claim(place, number, self._before(body)):
            counts = tuple(count + (at == number) for at, count in enumerate(counts, 1))
        return self.pruned(place._replace(slots=slots, counts=counts))

    def _before(self, body: int) -> int:
        return self.bodies.of(self.bodies.numbers[body].previous)

    def _check_landing(self, place: Place, number: int, body: int) -> None:
        facts, length = self.bodies.numbers[body], self.length(place)
        if number > length + 1:
            raise Violation(f"number {number} was created before {length + 1}")
        if facts.previous != self.bodies.numbers[self.true(place, number - 1)].hash:
            raise Violation(f"number {number} does not follow from the true {number - 1}")
        fenced = facts.kind == "flush" and facts.claim != self.bodies.force(place.tip)
        if number == length + 1 and fenced:
            raise Violation(f"flush {number} of claim {facts.claim} landed, which is fenced")
        refills = self.strict and number <= length and facts.kind == "flush"
        if refills and body != self.true(place, number):
            raise Violation(f"another flush took number {number} after it was deleted")

    def store(self, place: Place, made: Stored) -> Place:
        """Create a checkpoint."""
        facts = made.facts
        tip = self.true(place, facts.number)
        truth = (self.bodies.force(tip), self.bodies.numbers[tip].hash, self.bodies.view(tip))
        if (facts.claim, facts.hash, made.view) != truth:
            raise Violation(f"checkpoint {facts.number} says {made}, not {truth}")
        self.check_garbage(place, facts.garbage, facts.number)
        if self.strict:  # all that any checkpoint of this number may list
            made = Stored(self.bodies.checkpoint(tip), made.view)
        known = {*place.stored, self.number_of(made)}
        ordered = sorted(known, key=lambda stored: self.stored[stored].facts.number)
        return self.pruned(place._replace(stored=tuple(ordered)))

    def number_of(self, made: Stored) -> int:
        if made not in self._stored:
            self._stored[made] = len(self.stored)
            self.stored.append(made)
        return self._stored[made]

    # Deletes.

    def check_garbage(self, place: Place, garbage: tuple[tuple[int, int], ...], last: int) -> None:
        """Only flushes that a checkpoint covers may be deleted."""
        if not self.strict:
            return
        for first, end in garbage:
            for number in range(first, end):
                body = self.true(place, number)
                if number > last or self.bodies.numbers[body].kind == "claim":
                    raise Violation(f"number {number} is garbage of a checkpoint of {last}")

    def release(self, place: Place, garbage: tuple[tuple[int, int], ...]) -> Place:
        """Take a Delete of a shipper: what no checkpoint in the place lists is released early."""
        self.check_garbage(place, garbage, self.newest(place))
        numbers = {n for first, end in garbage for n in range(first, end)}
        early = (n for n in numbers if not self.may_vanish(place, n))
        return place._replace(loose=place.loose | sum(1 << n for n in early))

    def may_vanish(self, place: Place, number: int) -> bool:
        """Return whether a DELETE of that number may be on its way.

        From the moment when a checkpoint lies in the place, its garbage may be deleted at any
        time and any number of times. That is more than any shipper does: it asks later, its
        request may be late or repeated, and it may die on the way.
        """
        listed = (self.stored[stored].facts.garbage for stored in place.stored)
        return bool(place.loose >> number & 1) or any(within(number, each) for each in listed)

    def delete(self, place: Place, number: int) -> Place:
        return place._replace(slots=(*place.slots[: number - 1], NOTHING, *place.slots[number:]))

    # Requests on their way.

    def fly(self, place: Place, flight: Flight) -> Place | None:
        """Leave a request on its way, if one more is allowed."""
        if flight in place.flying and flight != OWNED:
            return place
        if len(place.flying) >= self.flights:
            return None
        return self.pruned(place._replace(flying=tuple(sorted((*place.flying, flight)))))

    def landed(self, place: Place, flight: Flight) -> Place:
        left = list(place.flying)
        left.remove(flight)
        return place._replace(flying=tuple(left))

    def pruned(self, place: Place) -> Place:
        """Forget requests that can change nothing any more: a claim is never deleted."""
        if not self.strict or not place.flying:
            return place
        return place._replace(flying=tuple(f for f in place.flying if self._matters(place, f)))

    def _matters(self, place: Place, flight: Flight) -> bool:
        if flight.owned:
            return True
        if flight.stored:
            facts = self.stored[flight.stored].facts
            return self.checkpoint(place, facts.number) is None
        number = self.bodies.numbers[flight.body].number if flight.body else flight.claim[0]
        if number > self.length(place):
            return True
        return self.bodies.numbers[self.true(place, number)].kind == "flush"
