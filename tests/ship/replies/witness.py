"""The witness: it sees each object that lands, and knows what the store held at each number.

Owns the true order of numbers (the first body that each had), which of them are void, and the
questions about views that follow from it. It stands below all faults, so it sees what is true.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from falaj.ship.fetching import targets_of
from falaj.ship.numbers import decode_number, sealed_with
from falaj.ship.origin import Origin
from falaj.ship.place import Listed, Place
from falaj.ship.shapes import Claim
from falaj.ship.tree import View

FIRST = 8192


class Broken(Exception):
    """A promise was broken; the message says which."""


def expect(holds: bool, what: str) -> None:
    """Raise `Broken` unless it holds."""
    if not holds:
        raise Broken(what)


@dataclass(frozen=True)
class Fact:
    """The first body of a number.

    Attributes:
        hash: Its hash.
        claims: Whether it is a claim.
        is_void: Whether a higher claim was in force before it.
    """

    hash: str
    claims: bool
    is_void: bool


class Witness:
    """A place that keeps all of its promises, and watches."""

    def __init__(self, inner: Place, origin: Origin) -> None:
        self.inner, self.url, self.origin = inner, inner.url, origin
        self.facts: list[Fact] = []  # number 1 first
        self.held: dict[
            str, str
        ] = {}  # by the hash of a flush: what the store held when it was cut
        self.claim = 0
        self.acknowledged: dict[int, str] = {}
        self._prefix = origin.root + "n/"

    # --- The place -------------------------------------------------------------------------------

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object; the first body of a number is the true one."""
        made = self.inner.put_new(key, body)
        if made and key.startswith(self._prefix):
            number = int(key.rpartition("/")[2])
            if number > len(self.facts):
                expect(number == len(self.facts) + 1, f"number {number} leaves a gap")
                found = decode_number(body, number, self.origin.whose(key))
                claims = isinstance(found, Claim)
                claim = found.number if isinstance(found, Claim) else found.claim
                self.facts.append(Fact(found.hash, claims, claim < self.claim))
                self.claim = max(self.claim, claim)
        return made

    def get(self, key: str) -> bytes | None:
        """Return an object."""
        return self.inner.get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return bytes of an object."""
        return self.inner.get_range(key, start, stop)

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List objects."""
        return self.inner.list_after(prefix, after)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; a claim never goes."""
        for key in keys:
            if key.startswith(self._prefix):
                number = int(key.rpartition("/")[2])
                expect(not self.facts[number - 1].claims, f"claim {number} is deleted")
        self.inner.delete(keys)

    # --- What is true ----------------------------------------------------------------------------

    def fact(self, number: int) -> Fact:
        """Return what is true of a number."""
        expect(0 < number <= len(self.facts), f"number {number} never was")
        return self.facts[number - 1]

    def sent(self, body: bytes, held: str) -> None:
        """Note what the store holds as a flush is sent for the first time."""
        self.held.setdefault(sealed_with(body), held)

    def acknowledge(self, number: int, hash_: str) -> None:
        """Take note of an acknowledged flush, which must be the true and valid one."""
        fact = self.fact(number)
        expect(fact.hash == hash_, f"number {number} was acknowledged with another body")
        expect(not fact.is_void, f"number {number} was acknowledged, and is void")
        self.acknowledged[number] = hash_

    def held_at(self, number: int) -> str | None:
        """Return what the store held at the last valid flush up to a number."""
        for fact in reversed(self.facts[:number]):
            if not fact.claims and not fact.is_void:
                return self.held[fact.hash]
        return None

    def expect_true(self, view: View, whose: str, *, whole: bool) -> None:
        """Check a view against the true order, and all of its bytes if it can have them still."""
        if view.number == 0:
            return
        fact = self.fact(view.number)
        expect(fact.hash == view.hash, f"{whose} has another body of number {view.number}")
        expect(not fact.is_void, f"{whose} has the void number {view.number}")
        if whole and (held := self.held_at(view.number)) is not None:
            found = digest_of(view, self.origin)
            expect(found == held, f"{whose} has other bytes at number {view.number}")

    def floor(self) -> int:
        """Return the number from which on all can be restored: the checkpoint before the newest."""
        listed = self.origin.checkpoints()
        outline = self.origin.outline(int(listed[-1].key[2:])) if listed else None
        return outline.before if outline else 0


def digest(content: dict[str, bytes]) -> str:
    """Return the hash of what a store holds."""
    whole = hashlib.sha256()
    for name, data in sorted(content.items()):
        whole.update(f"{name} {len(data)}\n".encode() + data)
    return whole.hexdigest()


def digest_of(view: View, origin: Origin) -> str:
    """Return the hash of what a view holds, read from the place."""
    found: dict[str, bytearray] = {}
    for path, file in view.files.items():
        data = found[path] = bytearray(file.length)
        for piece in file.pieces:
            data[piece.position : piece.stop] = origin.bytes_of(piece)
    for name, log in view.logs.items():
        for sequence, segment in log.segments.items():
            found[f"{name}/{sequence}"] = bytearray(segment.header + bytes(segment.length - FIRST))
    for target in targets_of(view):
        data = found[f"{target.log}/{target.sequence}"]
        header = len(view.logs[target.log].segments[target.sequence].header)
        at = header + target.piece.position - FIRST
        data[at : at + target.length] = origin.bytes_of(target.piece)[: target.length]
    return digest({name: bytes(data) for name, data in found.items()})
