"""Bodies of numbers and checkpoints: canonical JSON with its own hash, written and read.

Owns the bytes of claims, flushes and checkpoints; docs/PLACE.md, "Numbers", says what they mean.
Invariant: a body that is read was written by these functions, or it raises `CorruptData` with its
key. So hostile bytes never reach the store that is being restored. `tree` owns what they say
together.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from falaj.errors import CorruptData, UnsupportedVersion
from falaj.ship.handlers import pass_on
from falaj.ship.shapes import (
    FIRST_BLOCK,
    HEADER,
    INLINE,
    Change,
    Claim,
    End,
    File,
    Flush,
    LogChange,
    Parent,
    Piece,
    Segment,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "FORMAT",
    "NO_HASH",
    "OBJECT",
    "Members",
    "Whose",
    "canonical",
    "decode_head",
    "decode_logs_and_files",
    "decode_number",
    "decode_objects",
    "encode_logs_and_files",
    "encode_number",
    "object_key_of",
    "seal",
    "sealed_with",
    "unseal",
    "whole",
]

FORMAT = 1
NO_HASH = ""
"""The hash before the first number."""
OBJECT = re.compile(r"[sk]/([0-9]{20})-[0-9a-f]{64}")
"""The key of an object; its group is the claim."""
BODY_MAX = 256 << 20
"""Bytes of a body that a reader takes, so that hostile ones cannot fill the memory."""

_TAIL = re.compile(rb',"sha256":"([0-9a-f]{64})"}')
_TAIL_BYTES = len(',"sha256":""}') + 64
_ID = re.compile(r"[0-9a-f]{32}")
_HASH = re.compile(r"[0-9a-f]{64}")
_NOTHING = re.compile("")
_NAME = r"[A-Za-z0-9._-]{1,249}"
_LOG = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,200}@[0-9a-f]{32}|\.[A-Za-z0-9._-]{0,199}@[0-9a-f]{32}")
_FILE = re.compile(rf"falaj\.json|topics/{_NAME}/topic\.json|consumers/{_NAME}|queues/{_NAME}")
_U32, _U64, _I64 = 2**32, 2**64, 2**63
_POSITION_MAX = 2**36
"""Positions lie below this, docs/FORMAT.md, "Limits"."""


class Whose(NamedTuple):
    """The store and the origin that a body must be of, and where it was found."""

    store: str
    origin: str
    where: str = ""


# --- Sealing --------------------------------------------------------------------------------------


def canonical(value: Any) -> bytes:
    """Write JSON in the one form that readers accept: sorted members, no white space, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def seal(members: dict[str, Any]) -> bytes:
    """Write an object with a last member that is the SHA-256 of all bytes before it."""
    head = canonical(members)[:-1]
    return head + b',"sha256":"' + hashlib.sha256(head).hexdigest().encode() + b'"}'


def sealed_with(body: bytes) -> str:
    """Return the hash in a body that was sealed or checked."""
    return body[-66:-2].decode()


def unseal(body: bytes, where: str) -> dict[str, Any]:
    """Check a sealed body and read it.

    Raises:
        CorruptData: It is not a body that `seal` wrote.
    """
    head, tail = body[:-_TAIL_BYTES], _TAIL.fullmatch(body[-_TAIL_BYTES:])
    if tail is None or len(body) > BODY_MAX:
        raise _corrupt(where, "it does not end with its own hash")
    if hashlib.sha256(head).hexdigest().encode() != tail[1]:
        raise _corrupt(where, "its hash does not match its bytes")
    try:
        members = json.loads(head + b"}", parse_float=_refuse, parse_constant=_refuse)
    except (ValueError, RecursionError) as failed:
        pass_on(failed)
        raise _corrupt(where, "it is no JSON") from None
    if not isinstance(members, dict) or canonical(members)[:-1] != head:
        raise _corrupt(where, "its JSON is not in the form that writers use")
    return members


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _corrupt(where: str, what: str) -> CorruptData:
    error = CorruptData(
        f"{where} is corrupt: {what}; restore an earlier number, or ship to another place"
    )
    error.path = where
    return error


class Members:
    """The members of a JSON object, each read once with its type; what is left over is corrupt."""

    def __init__(self, found: Any, where: str, what: str) -> None:
        self.where, self.what = where, what
        if not isinstance(found, dict):
            raise self.wrong("is no object")
        self._left = dict(found)

    def wrong(self, how: str) -> CorruptData:
        """Make the error of a wrong member."""
        return _corrupt(self.where, f"{self.what} {how}")

    def take(self, name: str, kind: type, default: Any = None) -> Any:
        """Return a member of a type."""
        if name not in self._left and default is not None:
            return default
        found = self._left.pop(name, None)
        if type(found) is not kind:
            raise self.wrong(f"has no {kind.__name__} {name!r}")
        return found

    def number(self, name: str, most: int, least: int = 0) -> int:
        """Return a whole number from `least` to below `most`."""
        return whole(self.take(name, int), most, self, least)

    def text(self, name: str, pattern: re.Pattern[str]) -> str:
        """Return a text that matches as a whole."""
        found: str = self.take(name, str)
        if not pattern.fullmatch(found):
            raise self.wrong(f"has {found[:80]!r} as {name!r}")
        return found

    def hash(self, name: str) -> str:
        """Return a SHA-256 in hexadecimal digits."""
        return self.text(name, _HASH)

    def has(self, name: str) -> bool:
        """Tell whether a member is there and not taken yet."""
        return name in self._left

    def data(self, name: str) -> bytes:
        """Return bytes that are written in Base64."""
        try:
            return base64.b64decode(self.take(name, str, ""), validate=True)
        except (binascii.Error, ValueError) as failed:
            pass_on(failed)
            raise self.wrong(f"has no Base64 in {name!r}") from None

    def end(self) -> None:
        """Refuse members that were not taken."""
        if self._left:
            raise self.wrong(f"has the unknown member {min(self._left)!r}")


def whole(found: Any, most: int, of: Members, least: int = 0) -> int:
    """Check that a value is a whole number from `least` to below `most`."""
    if type(found) is not int or not least <= found < most:
        raise of.wrong(f"has {str(found)[:40]} where a number is from {least} to below {most}")
    return found


# --- Numbers --------------------------------------------------------------------------------------


def encode_number(number: Claim | Flush, whose: Whose) -> bytes:
    """Write a claim or a flush, and note its hash in it."""
    members: dict[str, Any] = {
        "format": FORMAT,
        "kind": "claim" if isinstance(number, Claim) else "flush",
        "store": whose.store,
        "origin": whose.origin,
        "number": number.number,
        "claim": number.claim,
        "previous": number.previous,
        "time_us": number.time_us,
    }
    if isinstance(number, Claim):
        members["nonce"] = number.nonce
        if number.parent is not None:
            members["parent"] = number.parent._asdict()
    else:
        members["objects"] = [[key, size] for key, size in number.objects.items()]
        members |= encode_logs_and_files(number.logs, number.files, [*number.objects])
        if number.inline:
            members["inline"] = base64.b64encode(number.inline).decode()
    body = seal(members)
    number.hash = sealed_with(body)
    return body


def decode_number(body: bytes, number: int, whose: Whose) -> Claim | Flush:
    """Read a claim or a flush.

    Raises:
        CorruptData: It is none, or of another store, origin or number.
        UnsupportedVersion: A newer falaj wrote it.
    """
    members = decode_head(body, number, whose)
    kind = members.take("kind", str)
    claim = members.number("claim", number + 1, 1)
    previous = members.text("previous", _HASH if number > 1 else _NOTHING)
    time_us = members.number("time_us", _I64, -_I64)
    found: Claim | Flush
    if kind == "claim":
        if claim != number:
            raise members.wrong("is a claim of another number")
        parent = _parent_from(members) if members.has("parent") else None
        found = Claim(number, previous, members.text("nonce", _ID), time_us, parent)
    elif kind == "flush":
        if claim == number:
            raise members.wrong("is a flush of its own claim")
        inline = members.data("inline")
        objects = decode_objects(members, claim)
        logs, files = decode_logs_and_files(members, whose, objects, len(inline))
        found = Flush(number, claim, previous, time_us, logs, files, objects, inline)
    else:
        raise members.wrong(f"has the unknown kind {kind[:20]!r}")
    members.end()
    found.hash = sealed_with(body)
    return found


def _parent_from(members: Members) -> Parent:
    """Read the origin that a store was restored from."""
    of = Members(members.take("parent", dict), members.where, "its parent")
    origin, number = of.text("origin", _ID), of.number("number", 10**20, 1)
    ends: list[tuple[str, int, int, int]] = []
    for each in of.take("ends", list):
        match each:
            case [str(topic), int(partition), int(after), int(checksum)] if _ID.fullmatch(topic):
                whole(partition, _U32, of), whole(after, _I64, of), whole(checksum, _U32, of)
                ends.append((topic, partition, after, checksum))
            case _:
                raise of.wrong("has an end that names no partition of a topic")
    of.end()
    return Parent(origin, number, tuple(ends))


def decode_head(body: bytes, number: int, whose: Whose) -> Members:
    """Read what all bodies begin with."""
    found = unseal(body, whose.where)
    members = Members(found, whose.where, "it")
    version = members.number("format", _U64)
    if version != FORMAT:
        raise UnsupportedVersion(
            f"{whose.where} has version {version} of the place's format, and this falaj reads "
            f"{FORMAT}: upgrade falaj"
        )
    for name, mine in (("store", whose.store), ("origin", whose.origin)):
        if (of := members.text(name, _ID)) != mine:
            raise members.wrong(f"is of {name} {of}, not {mine}")
    if (said := members.number("number", 10**20)) != number:
        raise members.wrong(f"says that its number is {said}")
    return members


def decode_objects(members: Members, claim: int) -> dict[str, int]:
    """Read the objects that pieces lie in; with a claim all must be of that claim."""
    objects: dict[str, int] = {}
    for each in members.take("objects", list):
        if type(each) is not list or len(each) != 2:
            raise members.wrong("has an object without a name and a size")
        key = object_key_of(each[0], members)
        if claim and int(key[2:22]) != claim:
            raise members.wrong(f"refers to {key}, an object of another claim")
        objects[key] = whole(each[1], _I64, members)
    return objects


def object_key_of(found: Any, members: Members) -> str:
    """Check that a text names an object."""
    if type(found) is not str or not OBJECT.fullmatch(found):
        raise members.wrong(f"has {str(found)[:80]!r} where an object is named")
    return found


def encode_logs_and_files(
    logs: dict[str, LogChange | None], files: dict[str, File | None], keys: list[str]
) -> dict[str, Any]:
    """Write the changes of logs and files; pieces name their object by its place in `keys`."""
    at = {key: place for place, key in enumerate(keys)} | {INLINE: -1}
    return {
        "logs": {name: _log_to(log, at) for name, log in logs.items()},
        "files": {path: file and _file_to(file, at) for path, file in files.items()},
    }


def decode_logs_and_files(
    members: Members, whose: Whose, objects: dict[str, int], inline: int
) -> tuple[dict[str, LogChange | None], dict[str, File | None]]:
    """Read the changes of logs and files, whose pieces all lie inside their objects."""
    keys, sizes = [*objects], {**objects, INLINE: inline}
    logs: dict[str, LogChange | None] = _each(
        members, "logs", _LOG, lambda log, name: _log_from(log, name, whose, keys)
    )
    files: dict[str, File | None] = _each(
        members, "files", _FILE, lambda file, path: _file_from(file, path, whose, keys)
    )
    pieces = [change.segment.pieces for log in logs.values() if log for change in log.segments]
    pieces += [file.pieces for file in files.values() if file]
    for piece in chain.from_iterable(pieces):
        if piece.offset + piece.length > sizes[piece.key]:
            raise members.wrong(f"has a piece beyond the end of {piece.key or 'its own bytes'}")
    return logs, files


def _each(
    members: Members, name: str, pattern: re.Pattern[str], read: Callable[[Any, str], Any]
) -> dict[str, Any]:
    """Read the members of an object whose names match; null stays None."""
    found: dict[str, Any] = members.take(name, dict)
    for key in found:
        if not pattern.fullmatch(key) or "/./" in f"/{key}/" or "/../" in f"/{key}/":
            raise members.wrong(f"has the name {key[:80]!r} in {name!r}")
    return {key: None if value is None else read(value, key) for key, value in found.items()}


# --- Parts of a flush, which a checkpoint has too -------------------------------------------------


def _log_to(log: LogChange | None, at: dict[str, int]) -> Any:
    """Write the changes of a log; `at` says where each object stands in the list."""
    if log is None:
        return None
    return {
        "segments": [_segment_to(change, at) for change in log.segments],
        "gone": log.gone,
        "ends": [
            [end.topic, end.partition, end.name, end.next, end.checksum, end.time_us]
            for end in log.ends
        ],
        "ends_gone": [list(name) for name in log.ends_gone],
    }


def _segment_to(change: Change, at: dict[str, int]) -> dict[str, Any]:
    segment = change.segment
    written = {
        "sequence": segment.sequence,
        "salt": segment.salt,
        "compaction": segment.compaction,
        "end": segment.end,
        "length": segment.length,
        "sealed": segment.sealed,
        "pieces": _pieces_to(segment.pieces, at),
    }
    if change.fresh:
        written["header"] = base64.b64encode(segment.header).decode()
    return written


def _pieces_to(pieces: list[Piece], at: dict[str, int]) -> list[list[int]]:
    return [[p.position, p.length, at[p.key], p.offset, p.crc] for p in pieces]


def _log_from(found: Any, name: str, whose: Whose, keys: list[str]) -> LogChange:
    """Read the changes of a log."""
    members = Members(found, whose.where, f"log {name}")
    log = LogChange(
        [_segment_from(each, name, whose, keys) for each in members.take("segments", list)],
        [whole(each, _U32, members) for each in members.take("gone", list)],
        [_end_from(each, members) for each in members.take("ends", list)],
    )
    for each in members.take("ends_gone", list):
        match each:
            case [str(topic), int(partition)] if _ID.fullmatch(topic):
                log.ends_gone.append((topic, whole(partition, _U32, members)))
            case _:
                raise members.wrong("has an end that is gone and names no partition")
    members.end()
    return log


def _end_from(each: Any, members: Members) -> End:
    match each:
        case [str(topic), int(partition), str(name), int(after), int(checksum), int(time_us)]:
            if _ID.fullmatch(topic) and re.fullmatch(_NAME, name):
                return End(
                    topic,
                    whole(partition, _U32, members),
                    name,
                    whole(after, _I64, members),
                    whole(checksum, _U32, members),
                    whole(time_us, _I64, members, -_I64),
                )
    raise members.wrong("has an end that names no partition of a topic")


def _segment_from(found: Any, name: str, whose: Whose, keys: list[str]) -> Change:
    members = Members(found, whose.where, f"a segment of log {name}")
    fresh = isinstance(found, dict) and "header" in found
    segment = Segment(
        members.number("sequence", _U32),
        members.number("salt", _U64),
        members.number("compaction", _U64),
        members.data("header"),
        members.number("end", _POSITION_MAX, FIRST_BLOCK),
        members.number("length", _POSITION_MAX, FIRST_BLOCK),
        members.take("sealed", bool),
        _pieces_from(members, keys, _POSITION_MAX, FIRST_BLOCK),
    )
    if fresh and len(segment.header) != HEADER:
        raise members.wrong(f"has a header of {len(segment.header)} bytes")
    if segment.end > segment.length:
        raise members.wrong("ends behind its length")
    members.end()
    return Change(segment, fresh)


def _pieces_from(members: Members, keys: list[str], most: int, least: int = 0) -> list[Piece]:
    """Read pieces: in order of their positions, without overlap."""
    pieces: list[Piece] = []
    for each in members.take("pieces", list):
        if type(each) is not list or len(each) != 5:
            raise members.wrong("has a piece that is not five numbers")
        position = whole(each[0], most, members, least)
        length = whole(each[1], most + 1 - position, members, 1)
        at = whole(each[2], len(keys), members, -1)
        offset, crc = whole(each[3], _I64, members), whole(each[4], _U32, members)
        pieces.append(Piece(position, length, keys[at] if at >= 0 else INLINE, offset, crc))
        least = position + length
    return pieces


def _file_to(file: File, at: dict[str, int]) -> dict[str, Any]:
    return {
        "length": file.length,
        "digest": file.digest,
        "pieces": _pieces_to(file.pieces, at),
        "gone": file.gone,
        "fresh": file.fresh,
    }


def _file_from(found: Any, path: str, whose: Whose, keys: list[str]) -> File:
    of = Members(found, whose.where, f"file {path}")
    length = of.number("length", _POSITION_MAX)
    file = File(
        length,
        of.hash("digest"),
        _pieces_from(of, keys, length),
        [whole(each, length, of) for each in of.take("gone", list)],
        of.take("fresh", bool),
    )
    of.end()
    return file
