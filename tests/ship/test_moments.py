"""`to_time` where clocks were wrong: the last flush at or before a time, whatever others say."""

import random
from bisect import bisect_left
from pathlib import Path

import pytest

from falaj.errors import HistoryDeleted
from falaj.ship.memory import MemoryPlace
from falaj.ship.moments import number_at
from falaj.ship.probe import probe
from falaj.ship.shapes import Flush
from ship.fake import FakeStore
from ship.replies.simulated import Clock, simulated
from ship.test_ship_time import Counting, begin, origin_of

YEAR_S = 365 * 86_400.0


class Shipping:
    """Ships flushes whose times are seconds behind a beginning; `c` is a checkpoint."""

    def __init__(self, tmp_path: Path, clock: Clock) -> None:
        inner = MemoryPlace(f"memory://{tmp_path}")
        probe(inner)
        self.store, self.place, self.clock = FakeStore(tmp_path / "store"), Counting(inner), clock
        self.began = clock.now
        self.shipper = begin(self.store, self.place, clock)
        self.times: dict[int, int] = {}

    def ship(self, *moments: float | str) -> None:
        """Ship flushes at these times by the clock, and make checkpoints."""
        for moment in moments:
            if isinstance(moment, str):
                self.shipper.checkpoint()
                continue
            self.clock.now = self.began + moment
            self.store.logs[0].append(50)
            assert self.shipper.turn()
            view = self.shipper._driver.view
            self.times[view.number] = round(moment)

    def keep_all(self) -> None:
        """Let nothing expire, however far the clock jumps."""
        self.shipper.options = self.shipper.options._replace(history=100 * YEAR_S)

    def at(self, moment: float) -> int:
        """Return the time by the clock of the flush that a time chooses."""
        origin = origin_of(self.store, self.place)
        asked = round((self.began + moment) * 1e6)
        return self.times[number_at(origin, asked, self.shipper.patience)]


AHEAD = 10 * YEAR_S


@pytest.mark.parametrize(
    ("flushes", "wanted"),
    [
        ((10, AHEAD, 20, 30), {15: 10, 25: 20, 35: 30, 2 * AHEAD: 30}),
        ((10, AHEAD, AHEAD + 9, 20, 30), {15: 10, 25: 20, 35: 30}),
        ((10, "c", AHEAD, "c", 20, 30), {15: 10, 25: 20, 35: 30}),
        ((10, AHEAD, "c", 20, "c", 30, "c", 40), {15: 10, 25: 20, 35: 30, 45: 40}),
        ((10, "c", AHEAD, "c", AHEAD + 9, "c", 20, "c", 30, "c"), {15: 10, 25: 20, 35: 30}),
        ((10, "c", AHEAD, "c", AHEAD + 9, "c", 20, 30), {15: 10, 25: 20, 35: 30}),
        ((10, 20, -YEAR_S, 30), {15: 10, 35: 30}),
        ((10, "c", 20, "c", -YEAR_S, "c", 30, "c", 40), {15: 10, 35: 30, 45: 40}),
    ],
)
def test_a_flush_with_a_wrong_clock_hides_no_other(
    tmp_path: Path, flushes: tuple[float | str, ...], wanted: dict[float, int]
) -> None:
    with simulated(3) as clock:
        shipping = Shipping(tmp_path, clock)
        shipping.ship(*flushes)
        assert {moment: shipping.at(moment) for moment in wanted} == wanted
        with pytest.raises(HistoryDeleted, match=r"so old|deleted the numbers"):
            shipping.at(-2 * YEAR_S)


def test_with_right_clocks_a_time_reads_little(tmp_path: Path) -> None:
    with simulated(3) as clock:
        shipping = Shipping(tmp_path, clock)
        for part in range(30):
            shipping.ship(*range(10 * part, 10 * part + 10), "c")
        shipping.ship(*range(300, 305))
        for moment in (0.5, 55.5, 100.5, 299.5, 304.5):
            shipping.place.calls.clear()
            assert shipping.at(moment) == int(moment)
            assert shipping.place.calls["get"] <= 30 + 12 + 5 + 3


@pytest.mark.parametrize("seed", range(8))
def test_one_wrong_clock_costs_at_most_its_own_flush(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with simulated(seed) as clock:
        shipping = Shipping(tmp_path, clock)
        right = [10 * step for step in range(1, 40)]
        wrong = chance.randrange(2, 38)
        flushes: list[float | str] = [*right]
        flushes[wrong] = chance.choice([AHEAD, -YEAR_S])
        for _ in range(6):
            flushes.insert(chance.randrange(2, len(flushes)), "c")
        shipping.ship(*flushes)
        for step, moment in enumerate(right):
            if abs(step - wrong) > 1:
                assert shipping.at(moment + 5) == moment
    bodies = (origin_of(shipping.store, shipping.place).number(each) for each in shipping.times)
    assert all(body and isinstance(body[0], Flush) for body in bodies)


# --- Against the rule -----------------------------------------------------------------------------


def chosen(times: dict[int, int], asked: int) -> int:
    """Read every flush, by the rule that the module's header has; 0 where none counts."""
    found, is_past = 0, False
    counted: list[int] = []
    for number, moment in sorted(times.items()):
        if moment > asked:
            is_past = True
        elif not is_past or moment >= max(counted, default=moment):
            found = number
            counted.append(moment)
    return found


def with_wrong_clocks(chance: random.Random) -> tuple[list[int], list[int]]:
    """Make times and the positions of checkpoints; clocks are wrong where checkpoints show it."""
    times = [chance.randrange(1, 60) for _ in range(chance.randrange(4, 16))]
    checkpoints = sorted(chance.sample(range(len(times)), chance.randrange(1, 5)))
    before = 0
    for at in checkpoints:
        if times[before] <= times[at]:
            times[before : at + 1] = [
                times[before],
                *sorted(chance.randint(times[before], times[at]) for _ in range(before + 1, at)),
                *times[at : at + (at > before)],
            ]
        before = at
    return times, checkpoints


def expect_the_rule(shipping: Shipping, checkpoints: list[int]) -> None:
    """Ask for every moment."""
    origin = origin_of(shipping.store, shipping.place)
    for moment in range(-1, 62):
        asked = round((shipping.began + moment + 0.5) * 1e6)
        wanted = chosen(shipping.times, moment)
        try:
            found = number_at(origin, asked, shipping.shipper.patience)
        except HistoryDeleted:
            found = 0
        assert found == wanted, (moment, shipping.times, checkpoints)


@pytest.mark.parametrize("seed", range(30))
def test_with_checkpoints_a_time_chooses_the_flush_that_the_rule_chooses(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    times, checkpoints = with_wrong_clocks(chance)
    with simulated(seed) as clock:
        shipping = Shipping(tmp_path, clock)
        for at, moment in enumerate(times):
            shipping.ship(moment, *(["c"] if at in checkpoints else []))
        expect_the_rule(shipping, checkpoints)
        numbers = sorted(shipping.times)
        oldest = numbers[chance.choice(checkpoints)]
        origin = origin_of(shipping.store, shipping.place)
        gone = [f"n/{each:020}" for each in numbers[: bisect_left(numbers, oldest)]]
        gone += [each.key for each in origin.checkpoints() if int(each.key[2:]) < oldest]
        origin.delete(gone)
        shipping.times = {at: each for at, each in shipping.times.items() if at >= oldest}
        expect_the_rule(shipping, checkpoints)


def test_checkpoints_of_a_clock_far_behind_hide_no_state_before_them(tmp_path: Path) -> None:
    with simulated(3) as clock:
        shipping = Shipping(tmp_path, clock)
        shipping.keep_all()
        behind = [-YEAR_S + step for step in range(6)]
        shipping.ship(10, 20, 30, *behind[:2], "c", *behind[2:4], "c", *behind[4:], 40, "c", 50)
        assert [shipping.at(moment) for moment in (15, 25, 45, 55)] == [10, 20, 40, 50]
