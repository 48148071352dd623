"""The protocol of a place keeps its promises in every order of requests; planted mistakes do not.

docs/RELIABILITY.md, "The place", has the sizes; `PYTHONPATH=tests python -m ship.explore` others.
"""

from collections.abc import Callable

import pytest

from falaj.ship.protocol import Reading, Shipping
from ship.explore import planted
from ship.explore.model import Size
from ship.explore.search import Result, explore, trace, walk

FOLLOW, END = Reading("follow"), Reading("end")


def ended(size: Size) -> Result:
    result = explore(size)
    assert (result.finding, result.ended) == ("", True), trace(size).trace
    return result


@pytest.mark.parametrize("late", [0, 1])
def test_two_shippers_and_a_reader_keep_the_promises_in_every_order(late: int) -> None:
    assert ended(Size(2, 3, 1, late, reader=FOLLOW)).states > 10_000


def test_a_shipper_keeps_the_promises_beside_any_number_of_others() -> None:
    assert ended(Size(1, 4, 2, 0, ghosts=True)).states > 4_000


@pytest.mark.parametrize("reader", [FOLLOW, END, Reading("end", until=2)])
def test_a_reader_keeps_the_promises_beside_any_number_of_shippers(reader: Reading) -> None:
    assert ended(Size(0, 4, 2, 0, reader=reader, ghosts=True)).states > 2_000


def test_copies_of_a_process_with_one_claim_stop_while_no_history_is_deleted() -> None:
    assert ended(Size(2, 4, 0, 1, twins=True)).states > 100


def test_a_copy_that_sleeps_longer_than_the_history_is_not_stopped_by_numbers_alone() -> None:
    found = trace(Size(2, 4, 1, 0, twins=True))
    assert "number 2 is deleted" in found.trace  # so it must look first: docs/decisions/0058
    assert "another flush took number 2" in found.finding


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "size",
    [
        Size(1, 6, 2, 0, ghosts=True),
        Size(2, 4, 1, 1),
        Size(3, 3, 1, 1),
        Size(0, 6, 2, 0, reader=FOLLOW, ghosts=True),
        Size(0, 5, 2, 0, reader=END, ghosts=True),
        Size(0, 5, 2, 0, reader=Reading("end", until=3), ghosts=True),
    ],
)
def test_larger_sizes_end_without_a_finding(size: Size) -> None:
    ended(size)


@pytest.mark.proof
def test_random_walks_beyond_those_sizes_find_nothing(
    first_seed: int, budget: Callable[[int, int], int]
) -> None:
    size = Size(4, 12, 4, 3, reader=FOLLOW)
    assert walk(size, seed=first_seed, walks=budget(10, 300)).finding == ""


# --- Planted mistakes ----------------------------------------------------------------------------

ASKS_NOT = Shipping(planted.NoSecondLook("claim"))

PLANTED = {
    "no second look": (Size(2, 4, 1, 0, shipper=ASKS_NOT), "claim 2 holds"),
    "a second look without a consequence": (
        Size(2, 4, 1, 0, shipper=Shipping(planted.NeverStartsOver("claim"))),
        "claim",
    ),
    "hash chain alone": (
        Size(2, 4, 1, 0, shipper=ASKS_NOT, reader=planted.NoSecondLook("follow")),
        "",
    ),
    "409 believed": (Size(2, 3, 1, 1, shipper=planted.Believes409()), ""),
    "mine by claim": (Size(2, 3, 1, 0, shipper=planted.MineByClaim(), twins=True), ""),
    "ship.json continued": (Size(2, 4, 1, 0, shipper=planted.Continues(), twins=True), ""),
    "early delete": (Size(2, 4, 1, 1, shipper=planted.DeletesEarly()), "garbage"),
    "what follows from an early delete": (
        Size(2, 4, 1, 1, shipper=planted.DeletesEarly(), strict=False),
        "",
    ),
    "deleted claims": (Size(2, 4, 1, 0, shipper=planted.DeletesClaims()), "garbage"),
    "what follows from deleted claims": (
        Size(2, 4, 1, 0, shipper=planted.DeletesClaims(), strict=False),
        "",
    ),
    "stale LIST": (Size(2, 4, 1, 0, stale=True), ""),
    "a reader without a second look": (
        Size(0, 4, 1, 0, reader=planted.NoSecondLook("follow"), ghosts=True),
        "a view",
    ),
    "a restore of an earlier number without the chain": (
        Size(0, 4, 2, 0, reader=planted.NoChain("end", until=2), ghosts=True),
        "restoring",
    ),
    "a restore without the last look": (
        Size(0, 4, 1, 0, reader=planted.NoLastLook("end"), ghosts=True),
        "a restore ends at 1",
    ),
}


BESIDE_OTHERS = {
    "no second look": ASKS_NOT,
    "a second look without a consequence": Shipping(planted.NeverStartsOver("claim")),
    "409 believed": planted.Believes409(),
    "early delete": planted.DeletesEarly(),
    "deleted claims": planted.DeletesClaims(),
}


@pytest.mark.parametrize("mistake", BESIDE_OTHERS)
def test_a_planted_mistake_is_found_in_one_shipper_beside_any_number_of_others(
    mistake: str,
) -> None:
    size = Size(1, 3, 1, 1, ghosts=True, shipper=BESIDE_OTHERS[mistake])
    assert trace(size).finding


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    size, promise = PLANTED[mistake]
    result = trace(size)
    assert result.finding, f"{result.states} states without a finding"
    assert promise in result.finding, result
