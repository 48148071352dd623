"""When replayed records are due, on a clock that the test turns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.pipeline.replaying.pacing import Pace

S = 1_000_000_000


class Hand:
    """A clock that moves when it is waited for, and oversleeps."""

    def __init__(self, oversleep: int = 0) -> None:
        self.now = 7 * S
        self.oversleep = oversleep
        self.waits = 0

    def now_ns(self) -> int:
        return self.now

    def wait_ns(self, span_ns: int) -> None:
        self.waits += 1
        self.now += span_ns + self.oversleep


def went(times: list[int], speed: float | None, longest: int | None, clock: Hand) -> list[int]:
    """When records go, since the first."""
    pace = Pace(speed, longest, clock)
    found = []
    for time in times:
        pace.wait(pace.due(time))
        found.append(clock.now - 7 * S)
    return found


@pytest.mark.parametrize(("speed", "expected"), [(1, [0, 2, 2, 5]), (10, [0, 0.2, 0.2, 0.5])])
def test_records_go_in_the_rhythm_in_which_they_came(speed: float, expected: list[float]) -> None:
    times = [100 * S, 102 * S, 101 * S, 105 * S]
    assert went(times, speed, None, Hand()) == [round(second * S) for second in expected]


def test_a_pause_is_over_after_the_longest_at_any_speed() -> None:
    times = [0, 2 * S, 1_000 * S, 1_002 * S]
    assert went(times, 1, 5 * S, Hand()) == [0, 2 * S, 7 * S, 9 * S]
    assert went(times, 2, 5 * S, Hand()) == [0, 1 * S, 6 * S, 7 * S]


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1), st.integers(0, 300))
def test_oversleeping_does_not_add_up(pauses: list[int], oversleep: int) -> None:
    times = [sum(pauses[:n]) * 1_000 for n in range(len(pauses))]
    clock = Hand(oversleep * 1_000)
    for time, gone in zip(times, went(times, 1, None, clock), strict=True):
        assert time - 500_000 <= gone <= time + oversleep * 1_000


def test_as_fast_as_it_goes_waits_for_nothing() -> None:
    clock = Hand()
    assert went([0, 10**15, 5], None, None, clock) == [0, 0, 0]
    assert clock.waits == 0


def test_how_late_the_latest_was_is_told() -> None:
    clock = Hand()
    pace = Pace(1, None, clock)
    for time, work in ((0, 3), (2, 0), (10, 0)):
        pace.wait(pace.due(time * S))
        clock.now += work * S
    assert pace.behind_ns == 1 * S


def test_times_that_are_shifted_keep_their_distance() -> None:
    pace = Pace(2, 4 * S, Hand())
    dues = []
    for time in (10, 14, 13, 100):
        pace.due(time * S)
        dues.append(pace.moved(time * S))
    assert dues == [0, 2 * S, 1.5 * S, 6 * S]
