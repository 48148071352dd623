"""States of an exploration as small integers, and the table of their steps.

A state is a place, its shippers and its reader. Shippers are interchangeable: their order is left
out by sorting them. Places and processes have numbers. The steps of a process depend on the place
and on it alone. So the real machines work them out once for each pair.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from falaj.ship.protocol import Reading, Shipping
from ship.explore import outside
from ship.explore.bodies import NOTHING
from ship.explore.place import Place, Rules
from ship.explore.process import Outcome, Process
from ship.explore.steps import Steps

State = tuple[int, ...]
"""A place, shippers, and the reader if there is one, by their numbers."""


@dataclass(frozen=True)
class Size:
    """The size of an exploration, and its kind.

    Attributes:
        shippers: How many shippers there are.
        numbers: How many numbers may be filled.
        checkpoints: How many checkpoints may be stored.
        late: How many requests may be on their way at the same time.
        reader: The reader beside them, if there is one.
        shipper: What each shipper begins with.
        ghosts: Whether any number of other shippers write as well.
        strict: Whether a wrong deletion is a finding by itself, and not only what follows from it.
        stale: Whether a LIST may leave out the newest checkpoint.
        twins: Shippers that begin in one state with one claim, as copies of a store.
    """

    shippers: int = 2
    numbers: int = 4
    checkpoints: int = 1
    late: int = 1
    reader: Reading | None = None
    shipper: Shipping = field(default_factory=Shipping)
    ghosts: bool = False
    strict: bool = True
    stale: bool = False
    twins: bool = False


class Model:
    """The first state, and the steps from each."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.rules = Rules(size.numbers, size.checkpoints, size.late, strict=size.strict)
        reader = size.reader or Reading("follow")
        self.steps = Steps(self.rules, size.shipper, reader, twins=size.twins, stale=size.stale)
        self.places: list[Place] = []
        self.processes: list[Process] = []
        self._places: dict[Place, int] = {}
        self._processes: dict[Process, int] = {}
        self._moves: dict[int, tuple[tuple[int, int, str], ...]] = {}
        self._reads: dict[int, tuple[tuple[int, int, str], ...]] = {}
        self._changes: dict[tuple[int, frozenset[int]], tuple[tuple[int, str], ...]] = {}
        self._claims: list[int] = []

    def first(self) -> State:
        place, size = self.rules.empty(), self.size
        down = [Process(None)] * size.shippers
        if size.twins:
            place, down = self._twins()
        reader = [self._process(Process(None))] if size.reader else []
        return (self._place(place), *sorted(map(self._process, down)), *reader)

    def _twins(self) -> tuple[Place, list[Process]]:
        """Let one shipper claim, and copy it."""
        claimed = (self.rules.empty(), Process(None))
        for wanted in ("starts", "lands", "holds"):
            steps = self.steps.of(*claimed, ships=True)
            claimed = next((p, q) for p, q, said in steps if wanted in said)
        place, process = claimed
        tokens = [str(n) for n in range(self.size.shippers)]
        return place, [process._replace(token=token) for token in tokens]

    def steps_of(self, state: State) -> Iterator[tuple[State, str]]:
        """Yield the states that may follow, with a description of each step."""
        place, shippers, reader = self._parts(state)
        for at, process in enumerate(shippers):
            if at and process == shippers[at - 1]:
                continue  # the same as the one before it
            others = (*shippers[:at], *shippers[at + 1 :])
            for next_place, next_process, said in self._moved(place, process):
                yield (next_place, *sorted((*others, next_process)), *reader), said
        for process in reader:
            for next_place, next_process, said in self._read(place, process):
                yield (next_place, *shippers, next_process), said
        for next_place, said in self._changed(place, shippers):
            yield (next_place, *shippers, *reader), said

    def _parts(self, state: State) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        end = 1 + self.size.shippers
        return state[0], state[1:end], state[end:]

    def _moved(self, place: int, process: int) -> tuple[tuple[int, int, str], ...]:
        if self.size.ghosts:  # one process, so a pair does not come back
            return self._worked_out(place, process, ships=True)
        key = place << 32 | process
        found = self._moves.get(key)
        if found is None:
            found = self._moves[key] = self._worked_out(place, process, ships=True)
        return found

    def _read(self, place: int, process: int) -> tuple[tuple[int, int, str], ...]:
        key = place << 32 | process
        found = self._reads.get(key)
        if found is None:
            found = self._reads[key] = self._worked_out(place, process, ships=False)
        return found

    def _worked_out(
        self, place: int, process: int, *, ships: bool
    ) -> tuple[tuple[int, int, str], ...]:
        found: dict[tuple[int, int], str] = {}
        for p, q, said in self._outcomes(self.places[place], self.processes[process], ships):
            found.setdefault((self._place(p), self._process(q)), said)
        found.pop((place, process), None)
        return tuple((p, q, said) for (p, q), said in found.items())

    def _outcomes(self, place: Place, process: Process, ships: bool) -> Iterator[Outcome]:
        if not self.size.ghosts:
            yield from self.steps.of(place, process, ships=ships)
            return
        machine = process.machine
        reading = machine.reading if isinstance(machine, Shipping) else machine
        for variant in outside.variants(self.rules, place, reading.at + 1 if reading else 1):
            for p, q, said in self.steps.of(variant, process, ships=ships):
                yield outside.folded(self.rules, p, self._claim(q)), q, said

    def _changed(self, place: int, shippers: tuple[int, ...]) -> tuple[tuple[int, str], ...]:
        claims = (self._claims[shipper] for shipper in shippers) if self.size.ghosts else ()
        key = (place, frozenset(claims))
        found = self._changes.get(key)
        if found is None:
            changes = dict[int, str]()
            for p, said in self._all_changes(self.places[place], key[1]):
                changes.setdefault(self._place(p), said)
            found = self._changes[key] = tuple(changes.items())
        return found

    def _all_changes(self, place: Place, held: frozenset[int]) -> Iterator[outside.Change]:
        yield from outside.late(self.rules, place)
        if not self.size.ghosts:
            yield from outside.deletes(self.rules, place)
            return
        mine = next(iter(held), NOTHING)  # one process is explored
        for changed, said in outside.ghosts(self.rules, place, held):
            yield outside.folded(self.rules, changed, mine), said

    def _place(self, place: Place) -> int:
        found = self._places.setdefault(place, len(self.places))
        if found == len(self.places):
            self.places.append(place)
        return found

    def _process(self, process: Process) -> int:
        found = self._processes.setdefault(process, len(self.processes))
        if found == len(self.processes):
            self.processes.append(process)
            self._claims.append(self._claim(process))
        return found

    def _claim(self, process: Process) -> int:
        """Return the claim that a process holds, or whose fate it does not know yet."""
        machine = process.machine
        if not isinstance(machine, Shipping):
            return NOTHING
        if machine.claim is not None:
            return self.rules.bodies.of(machine.claim.hash)
        sent = machine.sent
        if sent is None or sent.head.kind == "flush" or not sent.hash.startswith("h"):
            return NOTHING
        return self.rules.bodies.of(sent.hash)
