"""Steps of a place by itself: late requests land, garbage vanishes, other shippers write.

`ghosts` are any number of other shippers, in any state, with any number of requests on their way.
They may do to the place whatever `Rules` lets a shipper do, at any time. So one process beside
ghosts meets everything that it could meet beside real shippers which write as `Rules` says.

Why all real shippers write so: look at the first write of any run that is against the rules. Its
shipper had met writes within the rules until then. So the exploration of one shipper beside ghosts
has this write too, and `land`, `store` or `check_garbage` would have found it. Processes meet in
the place alone, and each promise compares one process with the true order. So promises that hold
for one process beside ghosts hold for any number of processes.

Two things are assumed. A claim has one holder, since its body is random: ghosts write no flush of a
claim that the explored shipper holds. And ghosts replace requests on their way, so `late` is 0
beside them. A ghost changes what a late request would change. So does the same request if it is
sent later and its reply is lost.
"""

from collections.abc import Iterator

from ship.explore.bodies import NOTHING
from ship.explore.place import Place, Rules, Stored

GHOST = 99
"""The count of a ghost's claim in a gap: no process waits for it, so all are one body."""

Change = tuple[Place, str]


def late(rules: Rules, place: Place) -> Iterator[Change]:
    """Let requests land that are on their way."""
    for flight in sorted(set(place.flying)):
        if flight.stored:
            if len(place.stored) < rules.checkpoints:
                left = rules.landed(place, flight)
                stored = rules.stored[flight.stored]
                yield rules.store(left, stored), f"late checkpoint {stored.facts.number} lands"
        elif not flight.owned:
            body = flight.body or rules.new_claim(place, *flight.claim)
            number = rules.bodies.numbers[body].number
            if place.slots[number - 1] == NOTHING:
                left = rules.landed(place, flight)
                kind = rules.bodies.numbers[body].kind
                yield rules.land(left, body), f"late {kind} {number} lands"


def deletes(rules: Rules, place: Place) -> Iterator[Change]:
    """Let garbage vanish."""
    for number in range(1, rules.length(place) + 1):
        if place.slots[number - 1] != NOTHING and rules.may_vanish(place, number):
            yield rules.delete(place, number), f"number {number} is deleted"


def ghosts(rules: Rules, place: Place, held: frozenset[int]) -> Iterator[Change]:
    """Let other shippers write: `held` are the claims of the processes that are explored."""
    bodies, length = rules.bodies, rules.length(place)
    if length < rules.numbers:
        yield rules.land(place, rules.new_claim(place, length + 1, place.tip)), "a ghost claims"
        force = bodies.force(place.tip)
        if force and rules.true(place, force) not in held:
            body = bodies.flush(length + 1, force, place.tip, "")
            yield rules.land(place, body), "a ghost flushes"
    if len(place.stored) < rules.checkpoints:
        there = rules.listed(place, 0)
        for number in range(1, length + 1):
            if number not in there:
                tip = rules.true(place, number)
                made = Stored(bodies.checkpoint(tip), bodies.view(tip))
                yield rules.store(place, made), f"a ghost stores checkpoint {number}"


def variants(rules: Rules, place: Place, number: int) -> Iterator[Place]:
    """Yield what ghosts may have made of a number when a process comes to it.

    Ghosts delete garbage, fill the gap with its flush again, or with a claim of a shipper that
    reads slowly. They may do each at any time and any number of times, so each leads to each.
    """
    yield place
    if number > rules.length(place) or not rules.may_vanish(place, number):
        return
    flush, before = rules.true(place, number), rules.true(place, number - 1)
    gap = rules.delete(place, number)
    yield gap
    yield rules.land(gap, flush)
    yield rules.land(gap, rules.bodies.claim(number, before, GHOST))


def folded(rules: Rules, place: Place, mine: int) -> Place:
    """Forget what ghosts may change at any time; keep the claim of the process that looks.

    Whatever lies at a number that is garbage, ghosts turn it into each of `variants` in steps that
    no process notices. So states that differ there alone reach the same states. One of them is
    kept, and `variants` is asked when a process comes to the number.
    """
    slots, counts = list(place.slots), list(place.counts)
    for at, body in enumerate(slots):
        if body != mine and rules.may_vanish(place, at + 1):
            slots[at] = NOTHING
        if rules.bodies.numbers[mine].number != at + 1:
            counts[at] = 0
    return place._replace(slots=tuple(slots), counts=tuple(counts))
