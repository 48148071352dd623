"""Messages between the protocol of a place and its driver: events, actions, facts of bodies.

Owns these types and nothing else. They hold no bytes: the driver of `falaj.ship.protocol` encodes
bodies, hashes them, and translates keys. Rules about them are in `falaj.ship.protocol` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

__all__ = [
    "EMPTY",
    "Acknowledge",
    "Action",
    "Again",
    "Apply",
    "Believe",
    "Checkpoint",
    "CheckpointNow",
    "Claim",
    "Delete",
    "Ended",
    "Event",
    "Expire",
    "Flush",
    "GetCheckpoint",
    "GetNumber",
    "GotCheckpoint",
    "GotNumber",
    "Head",
    "Hold",
    "Kind",
    "ListCheckpoints",
    "Listed",
    "Number",
    "PutCheckpoint",
    "PutCheckpointDone",
    "PutDone",
    "PutNumber",
    "Ranges",
    "Reason",
    "Silence",
    "Stop",
    "Wait",
]

Kind: TypeAlias = Literal["claim", "flush"]
Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Numbers as ranges (first, last + 1), rising, with a gap between neighbours."""


class Reason(Enum):
    """Why a machine stopped. It then does nothing more, and the driver says so."""

    FENCED = "another shipper claimed this origin"
    TWIN = "another process ships with this process's claim: a copy of the store is running"
    OVERTAKEN = "the place has a checkpoint of another shipper of this origin"
    BROKEN_CHAIN = "a number does not follow from the one before it"
    OTHER_CHECKPOINT = "the place has another checkpoint of this number"
    STALE_LIST = "the place lists fewer checkpoints than it listed before"
    HISTORY_DELETED = "the numbers of that moment are deleted"


# --- Facts of bodies -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Head:
    """The part of a number that the protocol decides before the driver encodes the rest.

    Attributes:
        kind: A claim, or a flush.
        number: Its number.
        claim: The claim under which it is written; a claim names itself.
        previous: The hash of the body of the number before; empty for number 1.
    """

    kind: Kind
    number: int
    claim: int
    previous: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it lies in the place: its head, and the hash of its body."""

    kind: Kind
    number: int
    claim: int
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint: what the numbers up to one of them say.

    Attributes:
        number: The last number that it covers.
        claim: The claim in force at that number.
        hash: The hash of the body of that number.
        garbage: Flushes since the checkpoint before. They may be deleted once this one is stored.
    """

    number: int
    claim: int
    hash: str
    garbage: Ranges = ()


EMPTY = Checkpoint(0, 0, "")
"""The state of a place without checkpoints."""


# --- Events: what the driver reports -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listed:
    """Answers `ListCheckpoints`: the numbers of the checkpoints, rising, from `start` on."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GotCheckpoint:
    """Answers `GetCheckpoint`; None if the object does not exist."""

    checkpoint: Checkpoint | None


@dataclass(frozen=True, slots=True)
class GotNumber:
    """Answers `GetNumber`; None if the object does not exist."""

    found: Number | None


@dataclass(frozen=True, slots=True)
class PutDone:
    """Answers `PutNumber`.

    Attributes:
        hash: The hash of the body that was sent.
        created: True only if the place said that this request created the object. An object that
            exists, 409, a timeout, 5xx and a reset are all False.
    """

    hash: str
    created: bool


@dataclass(frozen=True, slots=True)
class PutCheckpointDone:
    """Answers `PutCheckpoint`; `created` as in `PutDone`."""

    created: bool


@dataclass(frozen=True, slots=True)
class Again:
    """Ends a `Wait`: ask for the number again."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Ends a `Wait` of 30 seconds or more: look for a newer checkpoint.

    A shipper that holds also gets it, before a flush, if it may have slept for a good part of the
    history. Any clock that jumped is a reason. A copy of its process may have gone on meanwhile.
    """


@dataclass(frozen=True, slots=True)
class Claim:
    """Follows `Ended` at a shipper whose store agrees with the place: claim the origin."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Asks a shipper that holds its claim to write a flush.

    Attributes:
        token: The driver's name of what the flush holds. All objects that it refers to are stored.
    """

    token: str


@dataclass(frozen=True, slots=True)
class CheckpointNow:
    """Asks a shipper that holds its claim for a checkpoint of the last number that it applied."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Asks a shipper that holds its claim to delete the garbage of a checkpoint of the place.

    The driver asks this when the history that it keeps begins after that checkpoint.
    """

    checkpoint: Checkpoint


Event: TypeAlias = (
    Listed
    | GotCheckpoint
    | GotNumber
    | PutDone
    | PutCheckpointDone
    | Again
    | Silence
    | Claim
    | Flush
    | CheckpointNow
    | Expire
)


# --- Actions: what the driver has to do, in this order -------------------------------------------


@dataclass(frozen=True, slots=True)
class ListCheckpoints:
    """List the checkpoints from number `start` on, with a consistent LIST; answer `Listed`."""

    start: int


@dataclass(frozen=True, slots=True)
class GetCheckpoint:
    """Read a checkpoint and verify its hash; answer `GotCheckpoint`."""

    number: int


@dataclass(frozen=True, slots=True)
class GetNumber:
    """Read a number and verify its hash; answer `GotNumber`."""

    number: int


@dataclass(frozen=True, slots=True)
class PutNumber:
    """Create a number; answer `PutDone`.

    The same head and token again ask for the same bytes again. The client must not retry by itself.
    The body of a claim has 16 random bytes, so that no two claims have equal bodies.
    """

    head: Head
    token: str


@dataclass(frozen=True, slots=True)
class PutCheckpoint:
    """Create a checkpoint of the driver's view at that number; answer `PutCheckpointDone`.

    The driver keeps its body. It may be asked for again when later numbers are applied.
    """

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the numbers of these ranges, and what only they refer to; no answer is needed."""

    numbers: Ranges


@dataclass(frozen=True, slots=True)
class Believe:
    """Forget the view, and begin with that checkpoint, or with nothing if it is `EMPTY`."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply that number to the view; for a shipper's own flush: what its token stands for."""

    number: Number


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing follows yet. Wait for a while, then send `Again`, or `Silence` after 30 seconds."""

    number: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The view is complete up to that number. A shipper compares its store and sends `Claim`."""

    number: int


@dataclass(frozen=True, slots=True)
class Hold:
    """The claim holds: flushes may be sent."""

    claim: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The place has the flush with that token, and every later claimer will see it."""

    number: int
    token: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The machine stopped at that number; no event changes it any more."""

    reason: Reason
    number: int


Action: TypeAlias = (
    ListCheckpoints
    | GetCheckpoint
    | GetNumber
    | PutNumber
    | PutCheckpoint
    | Delete
    | Believe
    | Apply
    | Wait
    | Ended
    | Hold
    | Acknowledge
    | Stop
)
