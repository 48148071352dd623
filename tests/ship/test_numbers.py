"""Bodies of numbers and checkpoints: what is written is read again, and nothing else is."""

import contextlib
import hashlib
import json
import random

import pytest

from falaj.errors import CorruptData, UnsupportedVersion
from falaj.ship.checkpoints import Checkpoint, decode_checkpoint, encode_checkpoint
from falaj.ship.numbers import NO_HASH, Whose, decode_number, encode_number, seal, unseal
from falaj.ship.shapes import (
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
    object_key,
)
from falaj.ship.tree import View

WHOSE = Whose("a" * 32, "b" * 32, "memory://p/n/2")
LOG = f"orders@{'e' * 32}"
KEY = object_key("k", 1, "d" * 64)


def a_claim() -> Claim:
    return Claim(1, NO_HASH, "c" * 32, 5)


def a_flush() -> Flush:
    pieces = [Piece(8192, 100, KEY, 0, 7), Piece(8292, 10, INLINE, 0, 3)]
    segment = Segment(1, 2**64 - 1, 9, b"h" * 512, 8302, 8302, False, pieces)
    log = LogChange([Change(segment, True)], [], [End("f" * 32, 0, "orders", 3, 4, 5)], [])
    settings = File(4, "0" * 64, [Piece(0, 4, INLINE, 0, 2)])
    files: dict[str, File | None] = {"falaj.json": settings, "queues/q": None}
    return Flush(2, 1, "1" * 64, 6, {LOG: log}, files, {KEY: 100}, b"0123456789")


def members_of(flush: Flush) -> dict:  # type: ignore[type-arg]
    return unseal(encode_number(flush, WHOSE), "")


def test_numbers_are_read_as_they_were_written() -> None:
    claim, flush = a_claim(), a_flush()
    assert decode_number(encode_number(claim, WHOSE), 1, WHOSE) == claim
    assert decode_number(encode_number(flush, WHOSE), 2, WHOSE) == flush
    assert encode_number(flush, WHOSE) == encode_number(a_flush(), WHOSE)


def test_a_claim_says_from_which_origin_its_store_was_restored() -> None:
    claim = a_claim()
    claim.parent = Parent("d" * 32, 7, (("f" * 32, 0, 3, 4), ("f" * 32, 1, 0, 0)))
    found = decode_number(encode_number(claim, WHOSE), 1, WHOSE)
    assert found == claim
    assert isinstance(found, Claim)
    assert found.parent is not None
    assert [found.parent.end("f" * 32, partition) for partition in range(3)] == [3, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"origin": "../x"},
        {"number": 0},
        {"ends": [["f" * 32, True, 3, 4]]},
        {"ends": [["orders", 0, 3, 4]]},
        {"ends": [["f" * 32, 0, -1, 4]]},
        {"more": 1},
    ],
)
def test_a_parent_that_no_writer_names_is_refused(change: dict[str, object]) -> None:
    claim = a_claim()
    claim.parent = Parent("d" * 32, 7, (("f" * 32, 0, 3, 4),))
    members = unseal(encode_number(claim, WHOSE), "")
    members["parent"] |= change
    with pytest.raises(CorruptData):
        decode_number(seal(members), 1, WHOSE)


def test_any_changed_byte_is_noticed_and_the_key_named() -> None:
    body = encode_number(a_flush(), WHOSE)
    for at in range(len(body)):
        changed = bytearray(body)
        changed[at] ^= 1
        with pytest.raises(CorruptData, match="memory://p/n/2"):
            decode_number(bytes(changed), 2, WHOSE)
    for length in range(0, len(body), 7):
        with pytest.raises(CorruptData):
            decode_number(body[:length], 2, WHOSE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", 3),
        ("store", "0" * 32),
        ("origin", "0" * 32),
        ("claim", 3),
        ("claim", 2),
        ("kind", "other"),
        ("previous", "x" * 64),
        ("previous", ""),
        ("time_us", 2**63),
        ("objects", [[KEY, 99]]),
        ("objects", [[KEY.replace("1-", "2-"), 100]]),
        ("objects", [["k/../../x", 100]]),
        ("logs", {f"../orders@{'e' * 32}": None}),
        ("logs", {"orders": None}),
        ("logs", []),
        ("files", {"../falaj.json": None}),
        ("files", {"topics/../topic.json": None}),
        ("files", {"origin": None}),
        ("inline", "MDEy"),
        ("inline", "?"),
        ("more", 1),
    ],
)
def test_a_sealed_body_that_no_writer_makes_is_refused(name: str, value: object) -> None:
    with pytest.raises(CorruptData):
        decode_number(seal(members_of(a_flush()) | {name: value}), 2, WHOSE)


def test_a_newer_version_asks_for_an_upgrade() -> None:
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        decode_number(seal(members_of(a_flush()) | {"format": 2}), 2, WHOSE)


def test_random_changes_inside_a_sealed_body_raise_nothing_but_corruption() -> None:
    chance = random.Random(7)
    text = json.dumps(members_of(a_flush()))
    values = ["-1", "1e9", "null", "true", "[]", "{}", '""', str(2**70), '"\\u0000"', "9" * 40]
    read = 0
    for _ in range(3000):
        parts = text.split(" ")
        parts[chance.randrange(len(parts))] = chance.choice(values) + chance.choice([",", "", "}"])
        try:
            members = json.loads(" ".join(parts))
        except ValueError:
            continue
        if not isinstance(members, dict):
            continue
        with contextlib.suppress(CorruptData, UnsupportedVersion):
            decode_number(seal(members), 2, WHOSE)
        read += 1
    assert read > 200


def test_a_checkpoint_of_any_size_is_read_as_it_was_written() -> None:
    for segments in (3, 3000):
        view = View(9, 1, "2" * 64, 77)
        view.apply(Flush(9, 1, "1" * 64, 77, {}, {}, {KEY: 100}))
        view.number, view.hash = 9, "2" * 64
        change = LogChange(
            [
                Change(
                    Segment(n, n, 0, b"h" * 512, 8292, 8292, True, [Piece(8192, 100, KEY, 0, n)]),
                    True,
                )
                for n in range(segments)
            ],
            [],
            [End("f" * 32, 0, "orders", 3, 4, 5)],
        )
        view._apply_log(9, LOG, change)
        view.files["falaj.json"] = File(4, "0" * 64, [Piece(0, 4, KEY, 0, 2)])
        pages: dict[str, bytes] = {}

        def put(page: bytes, pages: dict[str, bytes] = pages) -> str:
            body = b"s" * 16 + page
            key = object_key("k", 1, hashlib.sha256(body).hexdigest())
            pages[key] = body
            return key

        body, made = encode_checkpoint(Checkpoint(view, 4, [KEY], [(5, 9)]), WHOSE, put)
        assert bool(made) is bool(pages) is (segments > 1000)
        found = decode_checkpoint(body, 9, WHOSE, pages.get)
        assert found.view.logs == view.logs
        assert found.view.files == view.files
        assert (found.before, found.garbage, found.numbers) == (4, [KEY], [(5, 9)])
        assert found.view.sizes.keys() == {KEY} | pages.keys()
        for key in pages:
            with pytest.raises(CorruptData, match="missing or corrupt"):
                decode_checkpoint(body, 9, WHOSE, {**pages, key: b"x"}.get)
