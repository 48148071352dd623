"""The steps of a process: the real machines, and the requests that they wait for.

Owns how a process and a place change together. A step is everything between two moments at which
another process could make a difference. These merges lose nothing. Each order of requests has an
equal one in which the merged ones are neighbours, or a longer one with the same end:

- A death, the start after it and the first LIST. A process that is dead for a while changes as
  little as one that takes no step. Requests that it left on their way land by steps of the place.
- A LIST and the GET of the checkpoint that it named. A checkpoint never changes, and the newest is
  never deleted. So the GET of an old one that fails leads to a later LIST.
- A GET that finds nothing, and the create that follows. If the key is filled in between, the
  create changes nothing. The next GET finds what this GET would have found if it came later.
- The wish to flush, and its create: a wish changes nothing outside.
- A wait of a follower, `Again` and the GET: without a find nothing changes.

Needless steps: a death without a start is a process that takes no step. A 409 without effect is a
create on its way that never lands.
"""

from collections.abc import Iterator

from falaj.ship.messages import (
    Acknowledge,
    Action,
    Apply,
    Believe,
    CheckpointNow,
    Claim,
    Delete,
    Ended,
    Event,
    Expire,
    Flush,
    GetCheckpoint,
    GetNumber,
    GotCheckpoint,
    GotNumber,
    Hold,
    ListCheckpoints,
    Listed,
    PutCheckpoint,
    PutCheckpointDone,
    PutNumber,
    Silence,
    Stop,
    Wait,
)
from falaj.ship.protocol import Reading, Shipping, Stage
from ship.explore.bodies import NOTHING, Views
from ship.explore.creates import Creates
from ship.explore.place import OWNED, Flight, Place, Rules, Stored
from ship.explore.process import Outcome, Process
from ship.explore.promises import Promises

Machine = Reading | Shipping
HOLDS = (Stage.HOLDING, Stage.FLUSHING, Stage.DOUBTING)


class Steps(Creates, Promises):
    """The steps that one process may take."""

    def __init__(
        self, rules: Rules, shipper: Shipping, reader: Reading, *, twins: bool, stale: bool
    ) -> None:
        self.rules, self.shipper, self.reader = rules, shipper, reader
        self.twins, self.stale = twins, stale
        self._same: dict[Machine, Machine] = {}
        self._answers: dict[tuple[int, Event], tuple[Machine, tuple[Action, ...]]] = {}
        self._starts: dict[tuple[Views, bool, str], tuple[tuple[Process, str], ...]] = {}

    def of(self, place: Place, process: Process, *, ships: bool) -> Iterator[Outcome]:
        """Yield what the process may do next."""
        machine = process.machine
        if machine is None or (ships and not self.twins):
            yield from self._start(place, process, ships=ships)
        if isinstance(process.number, ListCheckpoints):
            yield from self._look(place, process, process.number)
        elif isinstance(process.number, GetNumber):
            yield from self._get(place, process, process.number.number)
        if process.checkpoint is not None:
            found = self.rules.checkpoint(place, process.checkpoint.number)
            answer = GotCheckpoint(found.facts if found else None)
            asked = process._replace(checkpoint=None)
            yield from self.tell(place, asked, answer, "looks for its checkpoint")
        if isinstance(machine, Shipping):
            yield from self._write(place, process, machine)

    def _write(self, place: Place, process: Process, machine: Shipping) -> Iterator[Outcome]:
        if machine.stage is Stage.HOLDING and machine.reading.at < self.rules.numbers:
            yield from self.tell(place, process, Flush(process.token), "flushes")
            yield from self._doubt(place, process)
        if machine.stage in HOLDS and machine.making is None:
            free = len(place.stored) < self.rules.checkpoints
            if machine.reading.at > machine.stored and free:
                yield from self.tell(place, process, CheckpointNow(), "makes a checkpoint")
        if process.late and machine.sent is not None:
            head = machine.sent.head
            if place.slots[head.number - 1] == NOTHING:
                body = self.rules.new_claim(place, head.number, self.rules.bodies.of(head.previous))
                landed = self.rules.land(self.rules.landed(place, OWNED), body)
                yield landed, self.known(process, body), f"its late claim {head.number} lands"

    # Requests and their answers.

    def _start(self, place: Place, process: Process, *, ships: bool) -> Iterator[Outcome]:
        place = self._left_alone(place, process)
        key = (place.stored, ships, process.token)
        found = self._starts.get(key)
        if found is None:  # it reads checkpoints alone, and changes nothing
            found = self._starts[key] = tuple(self._started(place, process.token, ships=ships))
        least = 0
        if not ships and self.reader.goal == "end":
            length, until = self.rules.length(place), self.reader.until
            least = length if until is None else min(length, until)
        for started, said in found:
            yield place, started._replace(least=least) if least else started, said

    def _started(self, place: Place, token: str, *, ships: bool) -> Iterator[tuple[Process, str]]:
        machine, actions = (self.shipper if ships else self.reader).start()
        for p, looking, _ in self._settle(place, Process(machine, token=token), actions):
            assert isinstance(looking.number, ListCheckpoints)
            for _, started, said in self._look(p, looking, looking.number):
                yield started, f"starts, {said}"

    def _left_alone(self, place: Place, process: Process) -> Place:
        """Let a claim that is on its way go on without its sender."""
        machine = process.machine
        if not process.late or not isinstance(machine, Shipping) or machine.sent is None:
            return place
        head = machine.sent.head
        flight = Flight(claim=(head.number, self.rules.bodies.of(head.previous)))
        place = self.rules.landed(place, OWNED)
        return self.rules.fly(place, flight) or place

    def _look(self, place: Place, process: Process, asked: ListCheckpoints) -> Iterator[Outcome]:
        numbers = self.rules.listed(place, asked.start)
        yield from self.tell(place, process, Listed(numbers), f"lists {numbers}")
        if self.stale and numbers:
            older = numbers[:-1]
            yield from self.tell(place, process, Listed(older), f"lists {older}, which is stale")

    def _get(self, place: Place, process: Process, number: int) -> Iterator[Outcome]:
        if number > self.rules.numbers:
            return
        body = place.slots[number - 1]
        found = self.rules.bodies.numbers[body] if body else None
        machine = process.machine
        if found is None and isinstance(machine, Reading) and machine.goal == "follow":
            if self.rules.newest(place) > machine.begun:  # else it waits, and nothing changes
                yield from self._silence(place, process)
            return
        said = f"reads {number}: {found.kind if found else 'nothing'}"
        yield from self.tell(place, process, GotNumber(found), said)

    def _doubt(self, place: Place, process: Process) -> Iterator[Outcome]:
        """Let a shipper that paused look for checkpoints of others."""
        for p, looking, _ in self.tell(place, process, Silence(), ""):
            assert isinstance(looking.number, ListCheckpoints)
            yield from self._look(p, looking, looking.number)

    def _silence(self, place: Place, process: Process) -> Iterator[Outcome]:
        """Let a follower wait, and then look for a newer checkpoint."""
        for p1, waiting, _ in self.tell(place, process, GotNumber(None), ""):
            for p2, looking, _ in self.tell(p1, waiting, Silence(), ""):
                assert isinstance(looking.number, ListCheckpoints)
                yield from self._look(p2, looking, looking.number)

    # Events and what follows from them.

    def tell(self, place: Place, process: Process, event: Event, said: str) -> Iterator[Outcome]:
        """Give the machine an event, and carry out its actions."""
        assert process.machine is not None
        beside = isinstance(event, GotCheckpoint | PutCheckpointDone | CheckpointNow | Expire)
        before = process if beside else process._replace(number=None)
        machine, actions = self._on(process.machine, event)
        after = before._replace(machine=machine)
        if before.late and _gave_up(before.machine, machine):
            place, after = self._left_alone(place, before), after._replace(late=False)
        for p, q, more in self._settle(place, after, actions):
            yield p, q, said + more

    def _on(self, machine: Machine, event: Event) -> tuple[Machine, tuple[Action, ...]]:
        """Ask the real machine once for each state and event: it is a pure function."""
        machine = self._same.setdefault(machine, machine)  # stays alive, so its id is its name
        key = (id(machine), event)
        found = self._answers.get(key)
        if found is None:
            after, actions = machine.on(event)
            found = self._answers[key] = (self._same.setdefault(after, after), actions)
        return found

    def _settle(
        self, place: Place, process: Process, actions: tuple[Action, ...]
    ) -> Iterator[Outcome]:
        """Carry out actions, until an answer depends on what others do meanwhile."""
        words = ""
        for at, action in enumerate(actions):
            followed = self._followed(place, process, action)
            if followed is None:
                place, process, said = self._act(place, process, action)
                words += said
                continue
            assert all(isinstance(more, Delete) for more in actions[at + 1 :])
            for p, q, said in followed:
                for later in actions[at + 1 :]:
                    p, q, _ = self._act(p, q, later)
                yield p, q, f"{words}, {said}"
            return
        self._expire(place, process)
        self.check_view(place, process.machine, process.view)
        yield place, process, words

    def _followed(self, place: Place, process: Process, action: Action) -> Iterator[Outcome] | None:
        """Return what follows at once from a request, or None if it waits or needs no answer."""
        machine = process.machine
        match action:
            case PutNumber(head, token):
                return self.put(place, process, head, token)
            case PutCheckpoint(checkpoint):
                last, numbers = checkpoint.number, self.rules.bodies.numbers
                view = tuple(body for body in process.view if numbers[body].number <= last)
                return self.put_checkpoint(place, process, Stored(checkpoint, view))
            case GetCheckpoint(number) if not _holds(machine):
                found = self.rules.checkpoint(place, number)
                answer = GotCheckpoint(found.facts if found else None)
                return self.tell(place, process, answer, f"gets checkpoint {number}")
            case Ended() if isinstance(machine, Shipping):
                return self.tell(place, process, Claim(), "claims")
        return None

    def _act(self, place: Place, process: Process, action: Action) -> Outcome:
        match action:
            case GetNumber() | ListCheckpoints() | Wait():
                return place, process._replace(number=action), ""
            case GetCheckpoint():
                return place, process._replace(checkpoint=action), ""
            case Believe(checkpoint):
                stored = self.rules.checkpoint(place, checkpoint.number)
                view: Views = stored.view if stored else ()
                return place, process._replace(view=view), f", begins with {checkpoint.number}"
            case Apply(number):
                applied = () if number.kind == "claim" else (self.rules.bodies.of(number.hash),)
                view = (*process.view, *applied)
                return place, process._replace(view=view), f", applies {number.number}"
            case Delete(garbage):
                return self.rules.release(place, garbage), process, f", deletes {garbage}"
            case Acknowledge(number, _):
                assert isinstance(process.machine, Shipping)
                body = self.rules.bodies.of(process.machine.reading.hash)
                self.check_acknowledgement(place, body)
                return place, process, f", acknowledges {number}"
            case Hold(number):
                assert isinstance(process.machine, Shipping)
                self.check_hold(place, process.machine, number)
                return place, process, f", holds {number}"
            case Ended(number):
                self.check_ended(place, process, number)
                return place, Process(None), f", ends at {number}"
            case Stop(reason, number):
                self.check_stop(reason, number)
                return place, Process(None, token=process.token), f", stops: {reason.name}"
        raise AssertionError(action)

    def _expire(self, place: Place, process: Process) -> None:
        """Ask for the garbage of every checkpoint that the shipper knows to be stored."""
        machine = process.machine
        if isinstance(machine, Shipping) and _holds(machine):
            for number in self.rules.listed(place, 0):
                stored = self.rules.checkpoint(place, number)
                if stored is not None and number <= machine.stored:
                    for action in self._on(machine, Expire(stored.facts))[1]:
                        assert isinstance(action, Delete)
                        self.rules.check_garbage(place, action.numbers, machine.stored)


def _holds(machine: Reading | Shipping | None) -> bool:
    return isinstance(machine, Shipping) and machine.stage in HOLDS


def _gave_up(before: Reading | Shipping | None, after: Reading | Shipping) -> bool:
    """Return whether a shipper does not wait for its claim any more."""
    assert isinstance(before, Shipping)
    assert isinstance(after, Shipping)
    sent, now = before.sent, after.sent
    return sent is not None and (now is None or now.head != sent.head)
