"""The place with faults is what the storms rest on: its faults come, and repeat with their seed."""

import contextlib

import pytest

from falaj.errors import PlaceUnreachable
from falaj.ship.memory import MemoryPlace
from ship.faults import FaultyPlace, Rates


def run(seed: int, name: str) -> tuple[FaultyPlace, list[object]]:
    """Make many calls, and list what each answered."""
    place = FaultyPlace(MemoryPlace(f"memory://{name}-{seed}"), seed)
    said = list[object]()
    for number in range(400):
        said.append(place.put_new(f"n/{number:03}", b"x"))
        with contextlib.suppress(PlaceUnreachable):
            said.append(place.get(f"n/{number:03}"))
        if number % 7 == 0:
            with contextlib.suppress(PlaceUnreachable):
                place.delete([f"n/{number:03}"])
    return place, said


def test_each_fault_comes_and_a_run_repeats_with_its_seed() -> None:
    (place, first), (_, again) = run(3, "one"), run(3, "two")
    assert first == again
    counts = place.counts
    assert min(counts.lost, counts.reply, counts.late, counts.twice) > 5
    assert counts.faults < counts.calls / 3
    assert run(4, "one")[1] != first


def test_a_late_create_lands_after_a_later_call_or_when_all_settles() -> None:
    inner = MemoryPlace("memory://late")
    place = FaultyPlace(inner, 1, Rates(lost=0, reply=0, late=1, twice=0, calls=3))
    assert not place.put_new("a", b"x")
    assert inner.get("a") is None
    place.rates = Rates(lost=0, reply=0, late=0, twice=0)
    for _ in range(3):
        place.get("b")
    assert inner.get("a") == b"x"
    place.rates = Rates(lost=0, reply=0, late=1, twice=0)
    with pytest.raises(PlaceUnreachable):
        place.delete(["a"])
    assert inner.get("a") == b"x"
    place.settle()
    assert inner.get("a") is None


def test_a_create_whose_reply_is_lost_was_carried_out() -> None:
    inner = MemoryPlace("memory://reply")
    place = FaultyPlace(inner, 1, Rates(lost=0, reply=1, late=0, twice=0))
    assert not place.put_new("a", b"x")
    assert inner.get("a") == b"x"


def test_a_create_that_comes_twice_may_create_what_was_deleted_meanwhile() -> None:
    inner = MemoryPlace("memory://twice")
    place = FaultyPlace(inner, 1, Rates(lost=0, reply=0, late=0, twice=1))
    assert place.put_new("a", b"x")
    inner.delete(["a"])
    place.settle()
    assert inner.get("a") == b"x"


def test_nothing_passes_while_the_place_is_down() -> None:
    inner = MemoryPlace("memory://down")
    place = FaultyPlace(inner, 1)
    place.is_down = True
    assert not place.put_new("a", b"x")
    for call in (
        lambda: place.get("a"),
        lambda: list(place.list_after("")),
        lambda: place.delete(["a"]),
    ):
        with pytest.raises(PlaceUnreachable):
            call()
    assert inner.get("a") is None
