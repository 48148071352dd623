"""Creates and what may become of them: they land, the reply is lost, or they land later."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from falaj.ship.messages import Event, Head, PutCheckpointDone, PutDone
from falaj.ship.protocol import Shipping
from ship.explore.bodies import NOTHING
from ship.explore.place import OWNED, Flight, Place, Rules, Stored
from ship.explore.process import UNLANDED, Outcome, Process


class Creates(ABC):
    """Carries out the creates of a shipper in all ways in which a place may answer."""

    rules: Rules

    @abstractmethod
    def tell(self, place: Place, process: Process, event: Event, said: str) -> Iterator[Outcome]:
        """Let a process take an event, and carry out what it then asks for."""

    def put(self, place: Place, process: Process, head: Head, token: str) -> Iterator[Outcome]:
        """Create a number.

        A claim that has not landed has a hash that only its sender knows. Its true hash is given
        when it lands, also to its sender. So orders of claims that never land are not told apart.
        """
        body = self._body(process, head, token)
        hash_ = self.rules.bodies.numbers[body].hash if body else UNLANDED
        name = f"{head.kind} {head.number}"
        if place.slots[head.number - 1] == NOTHING:
            if body:
                landed, process_ = self.rules.land(place, body), process
            else:
                landed, process_, hash_ = self.land_claim(place, process, head)
            yield from self.tell(landed, process_, PutDone(hash_, True), f"{name} lands")
            done = PutDone(hash_, False)
            yield from self.tell(landed, process_, done, f"{name} lands, its reply is lost")
            hash_ = self.rules.bodies.numbers[body].hash if body else UNLANDED
        else:
            done = PutDone(hash_, False)
            yield from self.tell(place, process, done, f"{name} exists")
        flying = None
        if body:
            flying = self.rules.fly(place, Flight(body=body))
        elif not process.late:
            flying = self.rules.fly(place, OWNED)
        if flying is not None and flying != place:
            process = process._replace(late=process.late or not body)
            done = PutDone(hash_, False)
            yield from self.tell(flying, process, done, f"{name} times out, on its way")

    def _body(self, process: Process, head: Head, token: str) -> int:
        """Return the body, or 0 for a claim that has not landed yet."""
        bodies = self.rules.bodies
        if head.kind == "flush":
            return bodies.flush(head.number, head.claim, bodies.of(head.previous), token)
        machine = process.machine
        assert isinstance(machine, Shipping)
        assert machine.sent is not None
        sent = machine.sent.hash
        return NOTHING if sent in ("", UNLANDED) else bodies.of(sent)

    def land_claim(self, place: Place, process: Process, head: Head) -> tuple[Place, Process, str]:
        """Let a claim land that has no hash yet; a copy that is on its way is then that body."""
        body = self.rules.new_claim(place, head.number, self.rules.bodies.of(head.previous))
        if process.late:
            place = self.rules.landed(place, OWNED)
            place = self.rules.fly(place, Flight(body=body)) or place
        return self.rules.land(place, body), self.known(process, body), self._hash(body)

    def known(self, process: Process, body: int) -> Process:
        """Tell the sender of a claim that lands its hash."""
        machine = process.machine
        assert isinstance(machine, Shipping)
        assert machine.sent is not None
        sent = replace(machine.sent, hash=self._hash(body))
        return process._replace(machine=replace(machine, sent=sent), late=False)

    def _hash(self, body: int) -> str:
        return self.rules.bodies.numbers[body].hash

    def put_checkpoint(self, place: Place, process: Process, made: Stored) -> Iterator[Outcome]:
        """Create a checkpoint; without space for one more the process waits."""
        name = f"checkpoint {made.facts.number}"
        if self.rules.checkpoint(place, made.facts.number) is not None:
            yield from self.tell(place, process, PutCheckpointDone(False), f"{name} exists")
            return
        if len(place.stored) >= self.rules.checkpoints:
            return
        stored = self.rules.store(place, made)
        yield from self.tell(stored, process, PutCheckpointDone(True), f"{name} lands")
        lost = PutCheckpointDone(False)
        yield from self.tell(stored, process, lost, f"{name} lands, its reply is lost")
        flying = self.rules.fly(place, Flight(stored=self.rules.number_of(made)))
        if flying is not None and flying != place:
            yield from self.tell(flying, process, lost, f"{name} times out, on its way")
