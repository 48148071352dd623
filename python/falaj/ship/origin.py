"""The part of a place that one origin of a store owns, and how it is read.

Owns keys below `<store>/o/<origin>/`, and the errors of what is missing or corrupt there. It lists
the stores and origins of a place, and says which origin came from which. Invariants: bytes that
`bytes_of` returns have the checksum that the piece says; a listing leaves out keys of another form,
which are another program's. Which numbers are valid is left to `protocol`.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from falaj import _core
from falaj.errors import (
    CorruptData,
    ObjectMissing,
    PermissionDenied,
    SystemCallFailed,
    UnknownOrigin,
    named,
)
from falaj.ship.checkpoints import Checkpoint, Outline, decode_checkpoint, decode_outline
from falaj.ship.handlers import closed, pass_on
from falaj.ship.numbers import Whose, decode_number
from falaj.ship.shapes import Claim, Flush, Parent, Piece, checkpoint_key, number_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from falaj.ship.place import Listed, Place

__all__ = [
    "Found",
    "Origin",
    "leave_origin",
    "named_origins",
    "origins_of",
    "parent_in",
    "roots_of",
]

_ORIGIN = re.compile(r"([0-9a-f]{32})/o/([0-9a-f]{32})/.*")
_NUMBERED = re.compile(r"(?:.*/)?[cn]/([0-9]{20})")
_KEPT_BYTES = 8 << 20


class Found(NamedTuple):
    """An origin that a place has: its store, its id, and its newest number."""

    store: str
    origin: str
    last: int
    modified_us: int


class Origin:
    """One origin of a store in a place.

    Args:
        place: The place.
        store: The store's id.
        origin: The id of the origin.
        parent: For a shipper, the origin that its store was restored from.
    """

    def __init__(self, place: Place, store: str, origin: str, parent: Parent | None = None) -> None:
        self.place, self.store, self.origin, self.parent = place, store, origin, parent
        self.root = f"{store}/o/{origin}/"
        self._inline: dict[str, bytes] = {}

    def where(self, key: str) -> str:
        """Name an object in messages."""
        return f"{self.place.url.rstrip('/')}/{self.root}{key}"

    def whose(self, key: str) -> Whose:
        """Name the store and the origin that a body must be of."""
        return Whose(self.store, self.origin, self.where(key))

    def get(self, key: str) -> bytes | None:
        """Return an object of this origin, or None."""
        return self.place.get(self.root + key)

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object of this origin."""
        return self.place.put_new(self.root + key, body)

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List objects of this origin; their keys are below it."""
        last = after and self.root + after
        with closed(self.place.list_after(self.root + prefix, last)) as listing:
            for found in listing:
                yield found._replace(key=found.key.removeprefix(self.root))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects of this origin."""
        self.place.delete([self.root + key for key in keys])

    def number(self, number: int) -> tuple[Claim | Flush, int] | None:
        """Read a number, and how many bytes it has; None where there is none."""
        key = number_key(number)
        body = self.get(key)
        if body is None:
            return None
        found = decode_number(body, number, self.whose(key))
        if isinstance(found, Flush) and found.inline:
            self.keep(key, found.inline)
        return found, len(body)

    def shipped_parent(self) -> Parent | None:
        """Read from the first claim which origin this one came from; None for a new store."""
        found = self.number(1)
        return found[0].parent if found and isinstance(found[0], Claim) else None

    def keep(self, key: str, inline: bytes) -> None:
        """Remember the bytes in a number, which a checkpoint or a restore soon reads again."""
        if inline:
            self._inline[key] = inline
        while sum(map(len, self._inline.values())) > _KEPT_BYTES:
            del self._inline[next(iter(self._inline))]

    def checkpoint(self, number: int) -> Checkpoint | None:
        """Read a checkpoint; None where there is none."""
        key = checkpoint_key(number)
        body = self.get(key)
        if body is None:
            return None
        return decode_checkpoint(body, number, self.whose(key), self.get)

    def outline(self, number: int) -> Outline | None:
        """Read what a checkpoint says about deletion; None where there is none."""
        key = checkpoint_key(number)
        body = self.get(key)
        return None if body is None else decode_outline(body, number, self.whose(key))

    def checkpoints(self) -> list[Listed]:
        """List the checkpoints, the oldest first."""
        return [each for each in self.list_after("c") if _NUMBERED.fullmatch(each.key)]

    def listed_behind(self, number: int) -> int | None:
        """Return the first number that a listing shows behind one; None if there is none."""
        with closed(self.list_after("n", number_key(number))) as listing:
            for each in listing:
                if match := _NUMBERED.fullmatch(each.key):
                    return int(match[1])
        return None

    def bytes_of(self, piece: Piece) -> bytes:
        """Read the bytes of a piece.

        Raises:
            CorruptData: They are missing, or not those that were written.
        """
        stop = piece.offset + piece.length
        if piece.key.startswith("n/"):
            found = self._inline_of(piece)[piece.offset : stop]
        else:
            found = self.range_of(piece, piece.offset, stop)
        if len(found) != piece.length or _core._crc32(found) != piece.crc:
            raise self.corrupt(piece)
        return found

    def range_of(self, piece: Piece, start: int, stop: int) -> bytes:
        """Read a range of the object that a piece is in.

        Raises:
            CorruptData: It is missing or too short.
        """
        try:
            return self.place.get_range(self.root + piece.key, start, stop)
        except ObjectMissing:
            raise self.wrong(piece, "is missing") from None

    def corrupt(self, piece: Piece) -> CorruptData:
        """Make the error of a piece that has another checksum."""
        return self.wrong(piece, f"is corrupt at byte {piece.offset}")

    def wrong(self, piece: Piece, how: str) -> CorruptData:
        """Make the error of a piece that cannot be read."""
        error = CorruptData(
            f"{self.where(piece.key)} {how}: restore an earlier number, or from another place"
        )
        error.path, error.position = self.where(piece.key), piece.offset
        return error

    def _inline_of(self, piece: Piece) -> bytes:
        kept = self._inline.get(piece.key)
        if kept is not None:
            return kept
        read = self.number(int(piece.key[2:]))
        if read is None or not isinstance(read[0], Flush):
            raise self.wrong(piece, "is missing")
        return read[0].inline


def roots_of(place: Place) -> Iterator[tuple[str, str]]:
    """List the stores and origins of a place, by one short listing for each."""
    after = ""
    while True:
        match = None
        with closed(place.list_after("", after)) as listing:
            for each in listing:
                if match := _ORIGIN.fullmatch(each.key):
                    break
        if match is None:
            return
        yield match[1], match[2]
        after = f"{match[1]}/o/{match[2]}/~"


def origins_of(place: Place) -> list[Found]:
    """List the origins of a place, the one with the latest number last.

    It reads the keys of numbers alone: it skips from origin to origin.
    """
    found: list[Found] = []
    for store, origin in roots_of(place):
        last, modified_us = 0, 0
        for each in place.list_after(f"{store}/o/{origin}/n"):
            if match := _NUMBERED.fullmatch(each.key):
                last, modified_us = int(match[1]), each.modified_us
        if last:
            found.append(Found(store, origin, last, modified_us))
    return sorted(found, key=lambda each: each.modified_us)


def named_origins(place: Place, wanted: str | None) -> list[Found]:
    """List the origins whose id begins so, or all of them.

    Raises:
        UnknownOrigin: The place has no store, or no such origin.
    """
    there = origins_of(place)
    if not there:
        raise UnknownOrigin(f"{place.url} holds no store: check the URL, or ship one to it")
    if wanted is None:
        return there
    found = [each for each in there if wanted and each.origin.startswith(wanted)]
    if not found:
        listed = ", ".join(f"{each.origin} (store {each.store})" for each in there)
        raise UnknownOrigin(
            f"{place.url} has not one origin {named(wanted)}: choose one of {listed}"
        )
    return found


def parent_in(path: str | os.PathLike[str]) -> Parent | None:
    """Read from a store's file `origin` which origin it was restored from.

    The engine reads the file first, and checks it.
    """
    try:
        with open(os.path.join(path, "origin"), encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError as missing:
        pass_on(missing)
        return None
    if "parent" not in found:
        return None
    ends = tuple((topic, *numbers) for topic, *numbers in found["parent_ends"])
    return Parent(found["parent"], found["parent_number"], ends)


def leave_origin(path: str | os.PathLike[str]) -> None:
    """Remove a store's file `origin`, so that the store begins as a new one.

    Raises:
        SystemCallFailed: The operating system refuses.
    """
    file = os.path.join(path, "origin")
    try:
        os.unlink(file)
    except FileNotFoundError as missing:
        pass_on(missing)
    except OSError as refused:
        pass_on(refused)
        kind = PermissionDenied if isinstance(refused, PermissionError) else SystemCallFailed
        made = kind(
            f"{file} cannot be removed, so the store cannot begin as a new origin: "
            f"{refused.strerror}; it has to be a file that this user may remove"
        )
        made.errno, made.filename, made.path = refused.errno, file, file
        raise made from refused
