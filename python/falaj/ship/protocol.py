"""The protocol of a place: two machines as pure functions, (state, event) → (state, actions).

Owns every rule on which the safety of a place rests. The rules are about claims, fences, the second
look, the chain of hashes, the order of acknowledgements, and deletion. It uses no clock, network or
file.

`Reading` finds out what a place holds: for followers, for restore, and at the start of a shipper.
`Shipping` begins with it, claims the origin, and then writes flushes and checkpoints. Both are
frozen. `machine.on(event)` gives the next machine and the actions that the driver carries out in
order. An event that the machine did not ask for is an error of the driver: ValueError.

Invariant: the numbers of an origin have one true order, the first body that each number had. All
views are beginnings of it. A flush that was acknowledged is in the view of every later claimer.
`tests/ship/explore` runs these machines through every order of requests, delays and deaths.

Leaves bodies and hashes to the driver, and time as well: when to flush, to wait, to expire.

docs/decisions/0058 says why; the types of events and actions are in `falaj.ship.messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, Self, TypeAlias

from falaj.ship.messages import (
    EMPTY,
    Acknowledge,
    Action,
    Again,
    Apply,
    Believe,
    Checkpoint,
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
    Head,
    Hold,
    ListCheckpoints,
    Listed,
    Number,
    PutCheckpoint,
    PutCheckpointDone,
    PutDone,
    PutNumber,
    Ranges,
    Reason,
    Silence,
    Stop,
    Wait,
)

__all__ = ["Reading", "Shipping"]

Goal: TypeAlias = Literal["follow", "end", "claim"]
Actions: TypeAlias = tuple[Action, ...]


class Phase(Enum):
    """The event that a reading machine waits for."""

    NEW = "start()"
    LISTING = "Listed"
    FETCHING = "GotCheckpoint"
    FETCHING_COVER = "GotCheckpoint of the checkpoint that must be reached"
    READING = "GotNumber"
    WAITING = "Again or Silence"
    ENDED = "nothing; a claimer may hand it the number that it found"
    STOPPED = "nothing"


class Look(Enum):
    """Why a reading machine lists checkpoints."""

    START = "it begins"
    CLAIM = "it met a claim"
    BREAK = "the chain of hashes is broken"
    END = "no next number exists"


@dataclass(frozen=True, slots=True)
class Reading:
    """Read checkpoints and numbers of one origin, in order, and believe nothing that was replaced.

    A deleted number leaves a gap, and a late request may fill it. Two rules keep such an object
    out of the view. The hash of the number before is compared everywhere. And the machine looks
    for a newer checkpoint when it meets a claim, when the chain breaks, and at the end. If there
    is one, the machine starts over from it. Only a claim can fill a gap with another body, since
    a claimer sends no flush before its own second look.

    Args:
        goal: "follow" waits behind the last number, and "end" ends there. "claim" ends there
            without the last look. The look at its own claim replaces that.
        until: Apply numbers up to this one only. The machine reads on, to the first checkpoint at
            or behind it or to the end. Only its `Ended` says that what it applied is true.

    Attributes:
        phase: The event that it waits for.
        look: The reason of the last LIST.
        wanted: The checkpoint that is fetched.
        begun: The checkpoint with which the view began.
        cover: With `until`, the checkpoint that the chain must reach.
        at: The last number that it passed; `hash` is that of its body.
        claim: The claim in force.
        garbage: Flushes that it passed since the newest checkpoint that it knows.
        met: A claim that waits for the look.

    Example:
        >>> reading, actions = Reading("follow").start()
        >>> actions
        (ListCheckpoints(start=0),)
        >>> reading.on(Listed(()))[1]
        (Believe(checkpoint=Checkpoint(number=0, claim=0, hash='', garbage=())),
         GetNumber(number=1))
    """

    goal: Goal
    until: int | None = None
    phase: Phase = Phase.NEW
    look: Look = Look.START
    wanted: int = 0
    begun: int = 0
    cover: Checkpoint | None = None
    at: int = 0
    hash: str = ""
    claim: int = 0
    garbage: Ranges = ()
    met: Number | None = None

    def start(self) -> tuple[Self, Actions]:
        """Begin: list the checkpoints."""
        if self.phase is not Phase.NEW:
            raise ValueError("this reading has begun already; make another one")
        return self._look(Look.START)

    def on(self, event: Event) -> tuple[Self, Actions]:
        """Take an event; return the next machine and what the driver has to do."""
        match self.phase, event:
            case Phase.STOPPED, _:
                return self, ()
            case Phase.LISTING, Listed(numbers):
                return self._looked(numbers)
            case Phase.FETCHING | Phase.FETCHING_COVER, GotCheckpoint(None):
                return self._look(Look.START)  # deleted since the LIST: a newer one exists
            case Phase.FETCHING, GotCheckpoint(Checkpoint() as checkpoint):
                return self._begin(self._checked(checkpoint))
            case Phase.FETCHING_COVER, GotCheckpoint(Checkpoint() as checkpoint):
                return replace(self, cover=self._checked(checkpoint))._go_on()
            case Phase.READING, GotNumber(None):
                return self._nothing_follows()
            case Phase.READING | Phase.ENDED, GotNumber(Number() as found):
                return self._meet(found)
            case Phase.WAITING, Again():
                return self._go_on()
            case Phase.WAITING, Silence():
                return self._look(Look.END)
        raise ValueError(f"reading waits for {self.phase.value}, not for {event}")

    # The rules; tests break them one by one.

    def _follows(self, found: Number) -> bool:
        """Return whether the chain goes on: by hash, and under a claim that was passed."""
        claims = found.kind == "claim"
        known = found.claim == found.number if claims else found.claim <= self.claim
        return found.previous == self.hash and known

    def _asks_for_a_look(self, found: Number) -> bool:
        """Return whether a newer checkpoint is looked for before this number is believed.

        With a cover the chain has to reach the hash of a later checkpoint, which proves more.
        """
        return found.kind == "claim" and self.cover is None

    def _starts_over(self, newest: int) -> bool:
        """Return whether the newest checkpoint makes what was read doubtful."""
        return newest > self.begun

    # Checkpoints.

    def _look(self, look: Look, met: Number | None = None) -> tuple[Self, Actions]:
        start = 0 if look is Look.START else self.begun
        looking = replace(self, phase=Phase.LISTING, look=look, met=met)
        return looking, (ListCheckpoints(start),)

    def _looked(self, numbers: tuple[int, ...]) -> tuple[Self, Actions]:
        newest = numbers[-1] if numbers else 0
        if self.look is Look.START:
            return self._choose(numbers)
        if newest < self.begun:
            return self._stop(Reason.STALE_LIST, self.begun)
        if self._starts_over(newest):
            return self._choose(numbers)
        if self.look is Look.BREAK:
            return self._stop(Reason.BROKEN_CHAIN, self.at + 1)
        if self.met is not None:
            return self.take(self.met)
        return self._end() if self.goal == "end" else self._wait()

    def _choose(self, numbers: tuple[int, ...]) -> tuple[Self, Actions]:
        """Choose the checkpoint to begin with, and with `until` the one that must be reached."""
        until = self.until
        base = max((n for n in numbers if until is None or n <= until), default=0)
        over = min((n for n in numbers if until is not None and n >= until), default=0)
        cover = Checkpoint(over, 0, "") if over else None
        chosen = replace(self, phase=Phase.FETCHING, wanted=base, cover=cover, met=None)
        return (chosen, (GetCheckpoint(base),)) if base else chosen._begin(EMPTY)

    def _checked(self, checkpoint: Checkpoint) -> Checkpoint:
        if checkpoint.number != self.wanted:
            raise ValueError(f"asked for checkpoint {self.wanted}, not for {checkpoint.number}")
        return checkpoint

    def _begin(self, checkpoint: Checkpoint) -> tuple[Self, Actions]:
        begun = replace(
            self,
            begun=checkpoint.number,
            at=checkpoint.number,
            hash=checkpoint.hash,
            claim=checkpoint.claim,
            garbage=(),
        )
        if begun.cover is not None and begun.cover.number > begun.at:
            wanted = begun.cover.number
            fetching = replace(begun, phase=Phase.FETCHING_COVER, wanted=wanted)
            return fetching, (Believe(checkpoint), GetCheckpoint(wanted))
        following, actions = begun._go_on()
        return following, (Believe(checkpoint), *actions)

    # Numbers.

    def _go_on(self) -> tuple[Self, Actions]:
        if self.cover is not None and self.at >= self.cover.number:
            return self._covered(self.cover)
        return replace(self, phase=Phase.READING), (GetNumber(self.at + 1),)

    def _covered(self, cover: Checkpoint) -> tuple[Self, Actions]:
        proved = self.at == self.begun or cover.hash == self.hash
        return self._end() if proved else self._stop(Reason.HISTORY_DELETED, self.at)

    def _nothing_follows(self) -> tuple[Self, Actions]:
        if self.cover is not None:
            return self._stop(Reason.HISTORY_DELETED, self.at + 1)
        if self.goal == "claim":
            return self._end()
        return self._look(Look.END) if self.goal == "end" else self._wait()

    def _meet(self, found: Number) -> tuple[Self, Actions]:
        if found.number != self.at + 1:
            raise ValueError(f"asked for number {self.at + 1}, not for {found.number}")
        if not self._follows(found):
            if self.cover is not None:
                return self._stop(Reason.HISTORY_DELETED, found.number)
            return self._look(Look.BREAK)
        return self._look(Look.CLAIM, found) if self._asks_for_a_look(found) else self.take(found)

    def take(self, found: Number) -> tuple[Self, Actions]:
        """Pass a number that may be believed; one of a lower claim than the one in force is void.

        A void number is never garbage. While it lies there, no late request can fill its key.
        """
        passed = replace(self, at=found.number, hash=found.hash, met=None)
        applied: Actions = ()
        if found.claim >= self.claim:
            garbage = self.garbage if found.kind == "claim" else _with(self.garbage, found.number)
            passed = replace(passed, claim=found.claim, garbage=garbage)
            if self.until is None or found.number <= self.until:
                applied = (Apply(found),)
        following, actions = passed._go_on()
        return following, (*applied, *actions)

    # Ends.

    def _wait(self) -> tuple[Self, Actions]:
        return replace(self, phase=Phase.WAITING), (Wait(self.at + 1),)

    def _end(self) -> tuple[Self, Actions]:
        number = self.at if self.until is None else min(self.at, self.until)
        return replace(self, phase=Phase.ENDED), (Ended(number),)

    def _stop(self, reason: Reason, number: int) -> tuple[Self, Actions]:
        return replace(self, phase=Phase.STOPPED, met=None), (Stop(reason, number),)


class Stage(Enum):
    """How far a shipper is."""

    READING = "what the reading waits for"
    COMPARING = "Claim"
    CLAIMING = "PutDone or GotNumber of its claim"
    HOLDING = "Flush"
    DOUBTING = "Listed"
    FLUSHING = "PutDone or GotNumber of its flush"
    STOPPED = "nothing"


@dataclass(frozen=True, slots=True)
class Sent:
    """A number on its way: the same body until the place shows what became of it.

    Attributes:
        head: Its head.
        token: The driver's name of what it holds.
        hash: The hash of its body; empty until it was sent.
        asked: Whether its number is read, since the place's answer left it unknown.
    """

    head: Head
    token: str
    hash: str = ""
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Shipping:
    """Claim an origin, then write flushes and checkpoints, one number after the other.

    Every start claims: no state of an earlier process is continued. The machine reads to the end,
    creates the next number as its claim, and then treats it as any reader treats a claim.
    So its second look decides whether it holds. A create that did not surely succeed is unknown.
    The number is then read: if it is missing, the same body is sent again.

    A checkpoint may be on its way beside a flush. `Expire` may be sent at any time while it holds.

    Attributes:
        reading: The view: what is applied, and the last number passed.
        stage: How far it is.
        sent: A claim or flush on its way.
        claim: Its own claim, once created. It holds when the reading has taken it.
        stored: The newest checkpoint that is known to lie in the place.
        making: A checkpoint on its way.
        asked: Whether that checkpoint is read, since the place's answer left it unknown.

    Example:
        >>> shipping, actions = Shipping().start()
        >>> shipping, actions = shipping.on(Listed(()))
        >>> shipping, actions = shipping.on(GotNumber(None))
        >>> shipping.on(Claim())[1]
        (PutNumber(head=Head(kind='claim', number=1, claim=1, previous=''), token=''),)
    """

    reading: Reading = Reading("claim")
    stage: Stage = Stage.READING
    sent: Sent | None = None
    claim: Number | None = None
    stored: int = 0
    making: Checkpoint | None = None
    asked: bool = False

    def start(self) -> tuple[Self, Actions]:
        """Begin: list the checkpoints."""
        reading, actions = self.reading.start()
        return replace(self, reading=reading), actions

    def on(self, event: Event) -> tuple[Self, Actions]:
        """Take an event; return the next machine and what the driver has to do."""
        match self.stage, event:
            case Stage.STOPPED, _:
                return self, ()
            case Stage.READING, _:
                return self._read(event)
            case Stage.COMPARING, Claim():
                return self._send("claim", "")
            case Stage.HOLDING, Flush(token):
                return self._send("flush", token)
            case Stage.HOLDING, Silence():
                return replace(self, stage=Stage.DOUBTING), (ListCheckpoints(self.stored),)
            case Stage.DOUBTING, Listed(numbers):
                return self._doubted(numbers)
            case Stage.CLAIMING | Stage.FLUSHING, PutDone(sent_hash, created):
                return self._answered(sent_hash, created)
            case Stage.CLAIMING | Stage.FLUSHING, GotNumber(found):
                return self._found(found)
            case Stage.HOLDING | Stage.FLUSHING | Stage.DOUBTING, _:
                return self._beside(event)
        raise ValueError(f"shipping waits for {self.stage.value}, not for {event}")

    def _beside(self, event: Event) -> tuple[Self, Actions]:
        """Take an event about checkpoints, while a flush may be on its way."""
        match event:
            case CheckpointNow():
                return self._make_checkpoint()
            case PutCheckpointDone(created):
                return self._checkpoint_answered(created)
            case GotCheckpoint(checkpoint):
                return self._checkpoint_found(checkpoint)
            case Expire(checkpoint):
                return self, self._deletes(checkpoint)
        raise ValueError(f"shipping waits for {self.stage.value}, not for {event}")

    # The rules; tests break them one by one.

    def _is_mine(self, found: Number, sent: Sent) -> bool:
        """Return whether the object that lies there is the body that was sent."""
        return found.hash == sent.hash

    def _garbage(self) -> Ranges:
        """Return what the next checkpoint lists as garbage: valid flushes, and never a claim."""
        return self.reading.garbage

    def _deletes(self, checkpoint: Checkpoint) -> Actions:
        """Delete what a checkpoint lists that is known to lie in the place."""
        if checkpoint.number > self.stored:
            raise ValueError(f"checkpoint {checkpoint.number} is not known to lie in the place")
        return (Delete(checkpoint.garbage),) if checkpoint.garbage else ()

    # Reading, and the claim.

    def _read(self, event: Event) -> tuple[Self, Actions]:
        return self._after_reading(*self.reading.on(event))

    def _after_reading(self, reading: Reading, actions: Actions) -> tuple[Self, Actions]:
        """Go on as the reading did: it reads on, ends, stops, or has taken the shipper's claim."""
        mine = self.claim
        if reading.phase is Phase.STOPPED:
            return replace(self, reading=reading, stage=Stage.STOPPED), actions
        if mine is not None and (reading.at, reading.hash) == (mine.number, mine.hash):
            holding = replace(self, reading=reading, stage=Stage.HOLDING, stored=reading.begun)
            return holding, (*_without_reading(actions), Hold(mine.number))
        kept = mine if reading.phase is Phase.LISTING and reading.met == mine else None
        stage = Stage.COMPARING if reading.phase is Phase.ENDED else Stage.READING
        return replace(self, reading=reading, stage=stage, claim=kept), actions

    # Numbers.

    def _send(self, kind: Literal["claim", "flush"], token: str) -> tuple[Self, Actions]:
        number = self.reading.at + 1
        claim = self.claim.number if kind == "flush" and self.claim else number
        head = Head(kind, number, claim, self.reading.hash)
        stage = Stage.CLAIMING if kind == "claim" else Stage.FLUSHING
        return replace(self, stage=stage, sent=Sent(head, token)), (PutNumber(head, token),)

    def _answered(self, sent_hash: str, created: bool) -> tuple[Self, Actions]:
        sent = self._on_its_way(asked=False)
        if not sent_hash or sent.hash not in ("", sent_hash):
            raise ValueError(f"number {sent.head.number} must be sent again with the same bytes")
        sent = replace(sent, hash=sent_hash, asked=not created)
        if created:
            return replace(self, sent=sent)._succeeded(sent)
        return replace(self, sent=sent), (GetNumber(sent.head.number),)

    def _found(self, found: Number | None) -> tuple[Self, Actions]:
        """Judge what lies where the number was sent to."""
        sent = self._on_its_way(asked=True)
        if found is None:
            again = replace(self, sent=replace(sent, asked=False))
            return again, (PutNumber(sent.head, sent.token),)
        if found.number != sent.head.number:
            raise ValueError(f"asked for number {sent.head.number}, not for {found.number}")
        if self._is_mine(found, sent):
            return self._succeeded(sent)
        if self.stage is Stage.CLAIMING:  # another was faster: read on
            return replace(self, stage=Stage.READING, sent=None)._read(GotNumber(found))
        return self._lost(found, sent)

    def _lost(self, found: Number, sent: Sent) -> tuple[Self, Actions]:
        """Stop for another's claim and for a twin; pass a number of a lower claim."""
        if found.kind == "claim" or found.claim > sent.head.claim:
            return self._stop(Reason.FENCED, found.number)
        if found.claim == sent.head.claim:
            return self._stop(Reason.TWIN, found.number)
        if found.previous != self.reading.hash:
            return self._stop(Reason.BROKEN_CHAIN, found.number)
        reading, _ = self.reading.take(found)
        return replace(self, reading=reading, sent=None)._send("flush", sent.token)

    def _succeeded(self, sent: Sent) -> tuple[Self, Actions]:
        head = sent.head
        number = Number(head.kind, head.number, head.claim, head.previous, sent.hash)
        if self.stage is Stage.CLAIMING:
            claimed = replace(self, stage=Stage.READING, sent=None, claim=number)
            return claimed._after_reading(*self.reading.on(GotNumber(number)))
        reading, actions = self.reading.take(number)
        holding = replace(self, reading=reading, stage=Stage.HOLDING, sent=None)
        return holding, (*_without_reading(actions), Acknowledge(number.number, sent.token))

    def _on_its_way(self, *, asked: bool) -> Sent:
        if self.sent is None or self.sent.asked is not asked:
            raise ValueError(f"no answer is awaited; the number on its way is {self.sent}")
        return self.sent

    # Checkpoints.

    def _doubted(self, numbers: tuple[int, ...]) -> tuple[Self, Actions]:
        """Stop if another shipper made a checkpoint that covers this one's claim.

        A checkpoint below the claim may be a late one of the shipper before.
        """
        newest = numbers[-1] if numbers else 0
        own = self.making.number if self.making is not None else self.stored
        if newest < self.stored:
            return self._stop(Reason.STALE_LIST, self.stored)
        if self.claim is not None and newest >= self.claim.number and newest > own:
            return self._stop(Reason.OVERTAKEN, newest)
        return replace(self, stage=Stage.HOLDING), ()

    def _make_checkpoint(self) -> tuple[Self, Actions]:
        """Send a checkpoint of what is applied, unless one is on its way or nothing is new."""
        read = self.reading
        if self.making is not None or read.at <= self.stored:
            return self, ()
        checkpoint = Checkpoint(read.at, read.claim, read.hash, self._garbage())
        return replace(self, making=checkpoint, asked=False), (PutCheckpoint(checkpoint),)

    def _checkpoint_answered(self, created: bool) -> tuple[Self, Actions]:
        making = self._in_making(asked=False)
        if created:
            return self._checkpoint_stored(making), ()
        return replace(self, asked=True), (GetCheckpoint(making.number),)

    def _checkpoint_found(self, found: Checkpoint | None) -> tuple[Self, Actions]:
        making = self._in_making(asked=True)
        if found is None:
            return replace(self, asked=False), (PutCheckpoint(making),)
        if (found.number, found.claim, found.hash) != (making.number, making.claim, making.hash):
            return self._stop(Reason.OTHER_CHECKPOINT, making.number)
        return self._checkpoint_stored(making), ()

    def _checkpoint_stored(self, made: Checkpoint) -> Self:
        garbage = tuple(
            (max(first, made.number + 1), end)
            for first, end in self.reading.garbage
            if end > made.number + 1
        )
        reading = replace(self.reading, garbage=garbage)
        return replace(self, reading=reading, making=None, asked=False, stored=made.number)

    def _in_making(self, *, asked: bool) -> Checkpoint:
        if self.making is None or self.asked is not asked:
            raise ValueError(f"no answer is awaited; the checkpoint on its way is {self.making}")
        return self.making

    def _stop(self, reason: Reason, number: int) -> tuple[Self, Actions]:
        return replace(self, stage=Stage.STOPPED, sent=None, making=None), (Stop(reason, number),)


def _with(ranges: Ranges, number: int) -> Ranges:
    """Add a number behind all ranges."""
    if ranges and ranges[-1][1] == number:
        return (*ranges[:-1], (ranges[-1][0], number + 1))
    return (*ranges, (number, number + 1))


def _without_reading(actions: Actions) -> Actions:
    """Leave out the reading of the next number: a shipper that holds writes it."""
    return tuple(action for action in actions if not isinstance(action, GetNumber))
