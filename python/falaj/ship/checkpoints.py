"""Checkpoints: everything as of a number in one object, with what has become garbage.

Owns the bytes of checkpoints and of their pages; docs/PLACE.md, "Checkpoints", says what they mean.
Invariant: a checkpoint says what the numbers up to its own say together, so it may come late, or
twice with other pages. `tree` applies the numbers behind it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falaj.errors import CorruptData
from falaj.ship.handlers import pass_on
from falaj.ship.numbers import (
    FORMAT,
    Members,
    Whose,
    canonical,
    decode_head,
    decode_logs_and_files,
    decode_objects,
    encode_logs_and_files,
    object_key_of,
    seal,
    whole,
)
from falaj.ship.shapes import SALT
from falaj.ship.tree import LogView, View

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Checkpoint", "Outline", "decode_checkpoint", "decode_outline", "encode_checkpoint"]

PAGE = 1 << 20
"""Bytes of content above which it goes to pages, objects of their own."""
_U64 = 2**64
_HASH_TEXT = 64


@dataclass(slots=True)
class Checkpoint:
    """A checkpoint: a view, the checkpoint before it, and what is garbage since then.

    The objects in `garbage`, and the numbers in the ranges `numbers`, may be deleted once no
    restore below this number is wanted.
    """

    view: View
    before: int
    garbage: list[str]
    numbers: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Outline:
    """A checkpoint without what the store held: all that deletion needs, and no page is read.

    `time_us` is that of the last flush it covers, for a restore to a time; 0 where there is none.
    """

    number: int
    claim: int
    hash: str
    time_us: int
    before: int
    garbage: list[str]
    numbers: list[tuple[int, int]]


def encode_checkpoint(
    checkpoint: Checkpoint, whose: Whose, put: Callable[[bytes], str]
) -> tuple[bytes, dict[str, int]]:
    """Write a checkpoint; return its body, and its pages with their sizes.

    Args:
        checkpoint: What it says.
        whose: The store and the origin.
        put: Puts a page behind a salt into an object, and returns its key.
    """
    view = checkpoint.view
    live = view.live()
    keys = sorted(live)
    logs, files = view.contents()
    content = encode_logs_and_files(logs, files, keys)
    objects = [[key, view.sizes[key]] for key in keys]
    members: dict[str, Any] = {
        "format": FORMAT,
        "kind": "checkpoint",
        "store": whose.store,
        "origin": whose.origin,
        "number": view.number,
        "claim": view.claim,
        "hash": view.hash,
        "time_us": view.time_us,
        "before": checkpoint.before,
        "garbage": checkpoint.garbage,
        "numbers": [list(each) for each in checkpoint.numbers],
    }
    inner = canonical({"objects": objects, **content})
    if len(inner) <= PAGE:
        return seal(members | {"objects": objects, **content}), {}
    pages = [inner[at : at + PAGE] for at in range(0, len(inner), PAGE)]
    put_pages = {put(page): SALT + len(page) for page in pages}
    members["pages"] = [[key, size] for key, size in put_pages.items()]
    return seal(members), put_pages


def decode_checkpoint(
    body: bytes, number: int, whose: Whose, get: Callable[[str], bytes | None]
) -> Checkpoint:
    """Read a checkpoint and its pages.

    Raises:
        CorruptData: It is none, or of another store, origin or number, or a page is missing.
        UnsupportedVersion: A newer falaj wrote it.
    """
    members = decode_head(body, number, whose)
    outline = _outline(members, number)
    view = View(number, outline.claim, outline.hash)
    view.time_us = outline.time_us
    inner, pages = members, dict[str, int]()
    if members.has("pages"):
        inner, pages = _paged(members, whose, get)
    objects = decode_objects(inner, 0)
    logs, files = decode_logs_and_files(inner, whose, objects, 0)
    inner.end()
    members.end()
    for name, log in logs.items():
        if log is None or log.gone or log.ends_gone or not all(c.fresh for c in log.segments):
            raise members.wrong(f"has log {name} as a change")
        segments = {change.segment.sequence: change.segment for change in log.segments}
        view.logs[name] = LogView(segments, {end.of: end for end in log.ends})
    for path, file in files.items():
        if file is None or not file.fresh or file.gone:
            raise members.wrong(f"has file {path} as a change")
        view.files[path] = file
    view.sizes, view.checkpoint = objects | pages, number
    return Checkpoint(view, outline.before, outline.garbage, outline.numbers)


def decode_outline(body: bytes, number: int, whose: Whose) -> Outline:
    """Read what a checkpoint says about deletion, and when it was.

    Raises:
        CorruptData: It is none, or of another store, origin or number.
        UnsupportedVersion: A newer falaj wrote it.
    """
    return _outline(decode_head(body, number, whose), number)


def _outline(members: Members, number: int) -> Outline:
    if members.take("kind", str) != "checkpoint":
        raise members.wrong("is no checkpoint")
    return Outline(
        number,
        members.number("claim", number + 1),
        members.hash("hash"),
        members.number("time_us", 2**63, -(2**63)),
        members.number("before", max(number, 1)),
        [object_key_of(each, members) for each in members.take("garbage", list)],
        _ranges(members, number),
    )


def _ranges(members: Members, number: int) -> list[tuple[int, int]]:
    """Read ranges of numbers that rise and do not touch."""
    found: list[tuple[int, int]] = []
    least = 1
    for each in members.take("numbers", list):
        if type(each) is not list or len(each) != 2:
            raise members.wrong("has a range of numbers that is no pair")
        first = whole(each[0], number + 1, members, least)
        least = whole(each[1], number + 2, members, first + 1) + 1
        found.append((first, least - 1))
    return found


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _paged(
    members: Members, whose: Whose, get: Callable[[str], bytes | None]
) -> tuple[Members, dict[str, int]]:
    """Read the content from its pages; each must hash to its name."""
    parts: list[bytes] = []
    sizes: dict[str, int] = {}
    for each in members.take("pages", list):
        match each:
            case [str(name), int(size)]:
                key = object_key_of(name, members)
            case _:
                raise members.wrong("has a page without a name and a size")
        page = get(key)
        if (
            page is None
            or len(page) != size
            or hashlib.sha256(page).hexdigest() != key[-_HASH_TEXT:]
        ):
            raise members.wrong(f"has a page {key} that is missing or corrupt")
        parts.append(page[SALT:])
        sizes[key] = size
    content = b"".join(parts)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as failed:
        pass_on(failed)
        raise members.wrong("has pages that are no JSON") from None
    if canonical(found) != content:
        raise CorruptData(f"{whose.where}: its pages are not in the form that writers use")
    return Members(found, whose.where, "its content"), sizes
