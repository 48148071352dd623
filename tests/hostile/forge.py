"""Harm by an attacker who knows the format, with checksums made right again, or not.

Owns what "too long", "overlapping" and "outside" mean. Without checksums such a harm is like
others. With them no answer counts as right: a process that can write the files can make any
content.
"""

import random
from collections.abc import Callable
from pathlib import Path

from hostile.harms import Harm, Place, Trust, told
from hostile.pieces import KINDS, OFTEN, blocks, get, of_block, of_index, put
from proof import craft, layout

EDGES = (
    *(0, 1, 7, 8, 31, 32, 249, 250, 2**12, 2**15, 2**16, 2**24 - 1, 2**26, 2**31 - 1, 2**31),
    *(2**32 - 8, 2**32 - 1, 2**32, 2**40, 2**63 - 8, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1),
)


def edgy(chance: random.Random, old: int) -> int:
    """A number that may exceed a limit."""
    near = (old - 1, old + 1, old + 8, 2 * old, old ^ 1 << chance.randrange(64))
    return chance.choice(near) if chance.random() < 0.3 else chance.choice(EDGES)


def numbers(chance: random.Random, place: Place, again: bool) -> Harm:
    """Change a number or two, anywhere in the file."""
    [pattern] = chance.choices(list(KINDS), OFTEN)
    path = chance.choice(place.files(pattern))
    before = path.read_bytes()
    data = bytearray(before)
    story = []
    pieces = KINDS[pattern](before)
    # Dozens of blocks have a header, the file has one.
    piece = chance.choice(pieces[:3] if chance.random() < 0.3 else pieces)
    for at, size in chance.sample(piece.fields, min(len(piece.fields), chance.choice([1, 1, 2]))):
        value = edgy(chance, get(data, at, size))
        put(data, at, size, value)
        story.append(f"{value:#x} at {at}")
    return _done("numbers", ", ".join(story), place, path, data, piece.redo if again else None)


def _done(
    kind: str,
    story: str,
    place: Place,
    path: Path,
    data: bytearray,
    redo: Callable[[bytearray], None] | None,
) -> Harm:
    before = path.read_bytes()
    if redo is not None:
        redo(data)
    path.write_bytes(data)
    harm = told(kind, story, place, path, before, data)
    if redo is None:
        return harm
    return Harm(f"{kind}, forged", f"forged: {harm.story}", harm.path, Trust.NOTHING)


def huge(chance: random.Random, place: Place, again: bool) -> Harm:
    """A length or a count that exceeds its container: a block's, its parts', or a file's."""
    path, data, found = _segment(chance, place)
    block = chance.choice(found)
    at = block.position
    value = chance.choice([len(data) - at + 1, len(data) - at + 8, 2**26 + 1, 2**31, 2**32 - 1])
    match chance.randrange(4):
        case 0:
            put(data, at, 4, value)
            what = "length"
        case 1:
            put(data, at + 20, 4, value)
            what = "count"
        case 2:
            # This is a group's length, a span, or the body's first number.
            put(data, at + 30, 2, block.flags | chance.choice([layout.GROUP, layout.SPARSE]))
            put(data, at + 32 + 4 * bool(block.flags & layout.TOPIC), 4, value)
            what = "group or span"
        case _:
            begin = at + block.length - len(block.body)
            length = craft.varint(chance.choice([value, 2**62, 2**64 - 1]))
            where = begin + chance.choice([0, 0, 1, 2, 8])
            data[where : where + len(length)] = length
            what = "varint"
    redo = of_block(at, get(data, 40, 8)) if again else None
    return _done("huge", f"{what} {value:#x} at {at}", place, path, data, redo)


def overlap(chance: random.Random, place: Place, again: bool) -> Harm:
    """Two blocks that share bytes, or offsets."""
    path, data, found = _segment(chance, place)
    n = chance.randrange(len(found) - 1)
    block, following = found[n], found[n + 1]
    at, changed = block.position, block.position
    match chance.randrange(4):
        case 0:
            put(data, at, 4, max(32, block.length // 16 * 8))
            what = "ends within itself"
        case 1:
            put(data, at, 4, following.position + 8 * chance.randint(1, 6) - at)
            what = "ends within the next"
        case 2:
            changed = following.position
            put(data, changed + 16, 4, max(0, block.offset - chance.choice([0, 0, 1])))
            what = "and the next have the same offsets"
        case _:
            # A block inside another one, which it does not end with.
            begin = at + block.length - len(block.body)
            changed = (begin + 7) // 8 * 8
            inner = bytes(data[following.position : following.position + following.length])
            data[changed : changed + len(inner)] = inner
            what = "has the next one inside"
    salt = get(data, 40, 8)

    def redo(data: bytearray) -> None:
        # The inner one first: it is in the other's body.
        of_block(changed, salt)(data)
        of_block(at, salt)(data)

    return _done("overlap", f"block at {at} {what}", place, path, data, redo if again else None)


def outside(chance: random.Random, place: Place, again: bool) -> Harm:
    """An entry of an index that leads out of the segment, or to no block of its own."""
    path = chance.choice(place.files("**/*.idx"))
    data = bytearray(path.read_bytes())
    segment = path.with_suffix(".log").read_bytes()
    entries = of_index(bytes(data))[1:]
    piece = chance.choice(entries)
    position = get(data, piece.at + 16, 8)
    others = [block.position for block in blocks(segment)]
    value = chance.choice(
        [
            *(len(segment), len(segment) - 8, len(segment) + 8, 2**35, 2**63, 2**64 - 8, 2**64 - 1),
            *(8, 512, position + 1, position + 8, chance.choice(others), chance.choice(others)),
        ]
    )
    put(data, piece.at + 16, 8, value)
    return _done(
        "outside",
        f"entry {value:#x} at {piece.at}",
        place,
        path,
        data,
        piece.redo if again else None,
    )


def _segment(chance: random.Random, place: Place) -> tuple[Path, bytearray, list[layout.Block]]:
    path = chance.choice(place.files("**/*.log"))
    data = bytearray(path.read_bytes())
    return path, data, blocks(data)


SETTINGS = (
    *("format", "partitions", "number", "segment_bytes", "sync_interval_ms", "created_us"),
    *("retention_bytes", "retention_age_ms", "retention_records", "revision"),
)


def settings(chance: random.Random, place: Place, again: bool) -> Harm:
    """A number in a settings file that no user can have set."""
    path = chance.choice(place.files("topics/*/topic.json", "falaj.json"))
    before = path.read_bytes()
    name, value = chance.choice(SETTINGS), chance.choice(EDGES)
    if name == "segment_bytes":
        # A segment may have gigabytes, and is mapped at its full length, so the number is no
        # multiple of a page.
        value |= 1
    craft.change_settings(path, **{name: value})
    if not again:
        wrong = bytearray(path.read_bytes())
        wrong[-11:-3] = before[-11:-3]
        path.write_bytes(wrong)
    harm = told("settings", f"{name} {value:#x}", place, path, before, path.read_bytes())
    if not again:
        return harm
    return Harm("settings, forged", f"forged: {harm.story}", harm.path, Trust.NOTHING)


FORGED = (numbers, numbers, huge, overlap, outside, settings)
