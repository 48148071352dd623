"""Carries out what the protocol wants from a place, and keeps the view that results.

Owns the way between bodies and the protocol's events: hashes, decoding, and the numbers that were
read. Invariant: the view is what the protocol said to believe and to apply, nothing else. All
decisions are `protocol`'s; what a shipper sends when is `shipper`'s.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NoReturn

from falaj.errors import (
    CorruptData,
    Fenced,
    HistoryDeleted,
    InvalidArgument,
    ObjectMissing,
    TwinStore,
    UnsupportedPlace,
    shown,
)
from falaj.ship import messages as say
from falaj.ship.checkpoints import Checkpoint, encode_checkpoint
from falaj.ship.numbers import encode_number, sealed_with
from falaj.ship.objects import Patience, Stopped, Uploads, salted
from falaj.ship.packing import repack
from falaj.ship.place import error
from falaj.ship.protocol import Reading, Shipping
from falaj.ship.shapes import Claim, Flush, checkpoint_key, number_key
from falaj.ship.tree import View

if TYPE_CHECKING:
    from falaj.ship.origin import Origin
    from falaj.ship.past import Past

__all__ = ["Driver", "is_whole", "read_view"]

ORPHANS_MOST = 4096
"""Orphans that one checkpoint lists; the next one lists more."""
_KEPT = 8
_PAUSE_S = 0.05

_STOPS: dict[say.Reason, type[Exception]] = {
    say.Reason.FENCED: Fenced,
    say.Reason.OVERTAKEN: Fenced,
    say.Reason.TWIN: TwinStore,
    say.Reason.BROKEN_CHAIN: CorruptData,
    say.Reason.OTHER_CHECKPOINT: CorruptData,
    say.Reason.STALE_LIST: UnsupportedPlace,
    say.Reason.HISTORY_DELETED: HistoryDeleted,
}
_NEW_ORIGIN = "restore an earlier number, and ship on with `falaj ship --new-origin`"
_HELP: dict[say.Reason, str] = {
    say.Reason.FENCED: "find out which of the two is to go on; to ship here again, start again",
    say.Reason.OVERTAKEN: "find out which of the two is to go on; to ship here again, start again",
    say.Reason.TWIN: "stop one of the two, restore it from the place, and ship that copy",
    say.Reason.BROKEN_CHAIN: _NEW_ORIGIN,
    say.Reason.OTHER_CHECKPOINT: _NEW_ORIGIN,
    say.Reason.STALE_LIST: "its listing is not consistent: use another place",
    say.Reason.HISTORY_DELETED: "choose a later number or time; `falaj place list` shows them",
}


class Driver:
    """A machine of the protocol at work on an origin.

    Args:
        origin: The origin in its place.
        machine: What decides.
        patience: How long an answer is awaited.
    """

    def __init__(self, origin: Origin, machine: Reading | Shipping, patience: Patience) -> None:
        self.origin, self.patience = origin, patience
        self.view = View()
        self.uploads: Uploads | None = None  # needed from the first checkpoint on
        self.ended: int | None = None
        self.holds: int | None = None
        self.acknowledged = 0
        self.line: set[int] = set()  # checkpoints of this process, and of the past once it is known
        self.orphans: list[str] = []
        self.knows_past = False
        self._doubts = False  # whether a follower that finds nothing asks what lies behind that
        self._machine = machine
        self._numbers: OrderedDict[str, tuple[Claim | Flush, int]] = OrderedDict()
        self._checkpoints: OrderedDict[int, Checkpoint] = OrderedDict()
        self._drafts: dict[str, Flush] = {}
        self._pages: dict[str, int] = {}
        self._checkpoint_body = "", b""
        self._bodies: dict[tuple[say.Head, str], bytes] = {}

    # --- The loop --------------------------------------------------------------------------------

    def start(self) -> None:
        """Let the machine begin, until it waits for the driver."""
        self._doubts = True
        self._machine, actions = self._machine.start()
        self._run(actions)

    def send(self, event: say.Event) -> None:
        """Give the machine an event of the driver's own, and do what follows from it."""
        self._doubts = isinstance(event, say.Silence)
        self._machine, actions = self._machine.on(event)
        self._run(actions)

    def flush(self, draft: Flush, *, doubts: bool = False) -> None:
        """Write a flush, and return when it is acknowledged.

        Args:
            draft: What changed.
            doubts: Whether this process may have slept so long that another went on without it.

        Raises:
            Fenced: Another shipper claimed the origin.
            TwinStore: A copy of this process ships.
        """
        if doubts:
            self.send(say.Silence())
        token = os.urandom(8).hex()
        self._drafts[token] = draft
        self.send(say.Flush(token))
        del self._drafts[token]
        self._bodies.clear()

    def _run(self, actions: tuple[say.Action, ...]) -> None:
        todo = list(actions)
        while todo:
            event = self._do(todo.pop(0))
            if event is not None:
                self._machine, more = self._machine.on(event)
                todo += more

    def _do(self, action: say.Action) -> say.Event | None:
        match action:
            case say.ListCheckpoints(start):
                return self._list(start)
            case say.GetCheckpoint(number):
                return say.GotCheckpoint(self._get_checkpoint(number))
            case say.GetNumber(number):
                return say.GotNumber(self._get_number(number))
            case say.PutNumber(head, token):
                return self._put_number(head, token)
            case say.PutCheckpoint(checkpoint):
                return self._put_checkpoint(checkpoint)
            case say.Believe(checkpoint):
                self._believe(checkpoint)
            case say.Apply(number):
                self.view.apply(*self._numbers[number.hash])
            case say.Wait(number):
                if self._doubts:
                    is_whole(self.origin, number - 1, self.patience)
            case say.Ended(number):
                self.ended = number
            case say.Hold(claim):
                self.holds = claim
            case say.Acknowledge():
                self.acknowledged += 1
            case say.Delete(numbers):
                self._delete(numbers)
            case say.Stop(reason, number):
                self._stop(reason, number)
        return None

    # --- Reading ---------------------------------------------------------------------------------

    def _list(self, start: int) -> say.Listed:
        numbers = self.patience(lambda: [int(each.key[2:]) for each in self.origin.checkpoints()])
        return say.Listed(tuple(number for number in numbers if number >= start))

    def _get_checkpoint(self, number: int) -> say.Checkpoint | None:
        found = self.patience(lambda: self.origin.checkpoint(number))
        if found is None:
            return None
        self._checkpoints[number] = found
        while len(self._checkpoints) > 2:
            self._checkpoints.popitem(last=False)
        return said(found)

    def _get_number(self, number: int) -> say.Number | None:
        found = self.patience(lambda: self.origin.number(number))
        if found is None:
            return None
        self._remember(*found)
        return _fact(found[0])

    def _remember(self, number: Claim | Flush, size: int) -> None:
        self._numbers[number.hash] = number, size
        while len(self._numbers) > _KEPT:
            self._numbers.popitem(last=False)

    def _believe(self, checkpoint: say.Checkpoint) -> None:
        if checkpoint.number == 0:
            self.view = View()
        else:
            self.view = self._checkpoints.pop(checkpoint.number).view

    # --- Writing ---------------------------------------------------------------------------------

    def _put_number(self, head: say.Head, token: str) -> say.PutDone:
        body = self._bodies.get((head, token))
        if body is None:
            body = self._bodies[head, token] = self._encode(head, token)
        elif self.patience.stop.wait(_PAUSE_S) and head.kind == "claim":
            raise Stopped
        key = number_key(head.number)
        created = self.patience(lambda: self.origin.put_new(key, body))
        return say.PutDone(sealed_with(body), created)

    def _encode(self, head: say.Head, token: str) -> bytes:
        number: Claim | Flush
        if head.kind == "claim":
            nonce, now = os.urandom(16).hex(), time.time_ns() // 1000
            parent = self.origin.parent if head.number == 1 else None
            number = Claim(head.number, head.previous, nonce, now, parent)
        else:
            number = self._drafts[token]
            number.number, number.claim, number.previous = head.number, head.claim, head.previous
            self.origin.keep(number_key(head.number), number.inline)
        body = encode_number(number, self.origin.whose(number_key(head.number)))
        self._remember(number, len(body))
        return body

    def _put_checkpoint(self, wanted: say.Checkpoint) -> say.PutCheckpointDone:
        """Create a checkpoint of the view, which then lies where the checkpoint says."""
        key = checkpoint_key(wanted.number)
        if self._checkpoint_body[0] != key:
            self._checkpoint_body = key, self._encode_checkpoint(wanted)
        elif self.patience.stop.wait(_PAUSE_S):
            raise Stopped
        body = self._checkpoint_body[1]
        return say.PutCheckpointDone(self.patience(lambda: self.origin.put_new(key, body)))

    def _encode_checkpoint(self, wanted: say.Checkpoint) -> bytes:
        assert self.uploads is not None
        uploads = self.uploads
        self.view.number, self.view.hash = wanted.number, wanted.hash
        repack(self.view, self.origin, uploads)
        live = self.view.live()
        orphans = {key for key in self.orphans[:ORPHANS_MOST] if key not in live}
        garbage = sorted(orphans.union(self.view.garbage()))
        made = Checkpoint(self.view, self.view.checkpoint, garbage, list(wanted.garbage))
        body, self._pages = encode_checkpoint(
            made,
            self.origin.whose(checkpoint_key(wanted.number)),
            lambda page: uploads.put("k", salted(page)),
        )
        return body

    def checkpoint(self) -> None:
        """Make a checkpoint of the view, and begin to count from it."""
        if self.view.checkpoint == self.view.number:
            return
        self.send(say.CheckpointNow())
        self._checkpoint_body = "", b""
        del self.orphans[:ORPHANS_MOST]
        self.view.started_from(self.view.number)
        self.view.sizes |= self._pages
        if self.uploads is not None:
            self.uploads.forget(self.view.sizes)
        self.line.add(self.view.number)

    def expect_claim(self) -> None:
        """Look whether the place still has this process's claim, which no shipper ever deletes.

        Raises:
            ObjectMissing: Somebody else deleted it, and other objects with it.
        """
        assert self.holds is not None
        key = number_key(self.holds)
        if self.patience(lambda: self.origin.get(key)) is None:
            raise error(
                ObjectMissing,
                f"{self.origin.where(key)} is missing: objects were deleted from the place while"
                " this process shipped to it, and what lies there cannot be restored any more."
                " Start it again: an empty place gets everything. Where something is left, remove"
                " that first, or ship the store as a new origin: `falaj ship --new-origin`",
                self.origin.place.url,
                self.origin.root + key,
            )

    def remember(self, past: Past) -> None:
        """Take what was found out about the past: the next checkpoints list the orphans."""
        self.line |= past.line
        self.orphans = list(past.orphans)
        self.knows_past = True

    def _delete(self, numbers: say.Ranges) -> None:
        keys = [number_key(each) for first, end in numbers for each in range(first, end)]
        for at in range(0, len(keys), 500):
            self.patience(lambda some=keys[at : at + 500]: self.origin.delete(some))  # type: ignore[misc]

    # --- Ends ------------------------------------------------------------------------------------

    def _stop(self, reason: say.Reason, number: int) -> NoReturn:
        where = self.origin.where(number_key(number))
        raise _STOPS[reason](f"{reason.value} ({where}): {_HELP[reason]}")


def said(checkpoint: Checkpoint) -> say.Checkpoint:
    """Say of a checkpoint what the protocol decides by."""
    view = checkpoint.view
    return say.Checkpoint(view.number, view.claim, view.hash, tuple(checkpoint.numbers))


def _fact(number: Claim | Flush) -> say.Number:
    kind: say.Kind = "claim" if isinstance(number, Claim) else "flush"
    return say.Number(kind, number.number, number.claim, number.previous, number.hash)


def read_view(origin: Origin, patience: Patience, until: int | None = None) -> View:
    """Read what an origin holds, now or at a number.

    A listing shows what lies behind the end that was found. If that is more than the next number,
    a later reading must pass it. Numbers are created in order, and a shipper deletes one only
    below a checkpoint.

    Raises:
        HistoryDeleted: The numbers up to there are deleted.
        InvalidArgument: There is no number so high.
        CorruptData: A number or a checkpoint is missing, or not what was written.
    """
    least = 0
    while True:
        driver = Driver(origin, Reading("end", until), patience)
        driver.start()
        ended = driver.ended
        assert ended is not None
        if until is not None and ended >= until:
            return driver.view
        if ended < least:
            raise _missing(origin, driver.view, ended + 1, least)
        behind = patience(lambda after=ended: origin.listed_behind(after))  # type: ignore[misc]
        if behind is not None and behind > ended + 1:
            least = behind
        elif until is None:
            return driver.view
        else:
            where = origin.where("")
            raise InvalidArgument(
                f"{where} ends at number {ended}, and has no {shown(until)} yet: choose one up to"
                " that; `falaj place list` shows them"
            )


def is_whole(origin: Origin, ended: int, patience: Patience) -> bool:
    """Tell whether a reading that ended at a number missed none: False asks it to begin again.

    Raises:
        CorruptData: The next number is missing, and later ones are there.
    """
    behind = patience(lambda: origin.listed_behind(ended))
    if behind is None or behind == ended + 1:
        return True
    read_view(origin, patience)  # raises, unless a checkpoint has come that covers the gap
    return False


def _missing(origin: Origin, before: View, number: int, behind: int) -> CorruptData:
    """Make the error of a number that is missing, though no checkpoint covers it.

    Where no flush precedes it, nothing there can be restored: so it is after a place was wiped
    while a shipper went on.
    """
    where = origin.where(number_key(number))
    if before.files:
        instead = (
            f"restore what precedes it with `falaj restore --to-number {number - 1}`, and ship"
        )
    else:
        instead = (
            f"if the place was wiped, remove what is left below {origin.where('')} too, and start"
            " the shipper again, which then sends everything; or ship"
        )
    made = CorruptData(
        f"{where} is missing, and the place has number {behind}: bring that object back, such as"
        f" from the bucket's versions; or {instead} on with `falaj ship --new-origin`"
    )
    made.path = where
    return made
