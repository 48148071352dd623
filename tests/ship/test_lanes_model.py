"""Explore the count of acknowledgements over several places, to the end.

The model has one log, whose records are numbers. Places have a part of it, or the history of
another store. One process ships at a time; it may die anywhere, and the next one may name other
places. Whatever happens, a record that `sync="remote"` acknowledged lies in as many places as the
store's setting said while it waited: the least of them, if it was lowered meanwhile. Rules of one
place are explored in `explore`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from falaj.ship.lanes import reached

LOG = "log"
RECORDS = 2
PLACES = 3
FOREIGN = -1
"""In the first place of some worlds lies another history, as long as the log."""


class Lane(NamedTuple):
    """A place of the process: what it knows, if it has compared the place with the store."""

    place: int
    is_compared: bool = False
    end: int = 0


class State(NamedTuple):
    """The world at one moment.

    `wants` is the least setting while each record waited, `has` what each place has of the log.
    """

    wants: tuple[int, ...] = ()
    min_sync: int = 1
    has: tuple[int, ...] = (0,) * PLACES
    lanes: tuple[Lane, ...] = ()
    least_at_start: int = 1
    remote: int = 0
    shipped: int = 0


class Rules:
    """The rules as they are; each mistake replaces one."""

    def least(self, state: State) -> int:
        """Return how many places must have a record: the setting as it is now."""
        return state.min_sync

    def counted(self, state: State, lane: Lane) -> int | None:
        """Return up to where a lane counts; None for no address."""
        return lane.end if lane.is_compared else None

    def published(self, state: State) -> tuple[int, int]:
        """Return REMOTE and SHIPPED after an acknowledgement."""
        said = [self.counted(state, lane) for lane in state.lanes]
        ends = [{} if end is None else {LOG: (0, end)} for end in said]
        least, most = self.least(state), len(ends)
        if least > most:
            return state.remote, state.shipped
        enough, everywhere = reached(ends, least), reached(ends, most)
        remote, shipped = enough.get(LOG, (0, 0))[1], everywhere.get(LOG, (0, 0))[1]
        return max(state.remote, remote), max(state.shipped, shipped)


class Highest(Rules):
    """Mistake: one place is enough, whatever the setting."""

    def least(self, state: State) -> int:
        return 1


class Unproved(Rules):
    """Mistake: what a place says counts before it is compared with the store."""

    def counted(self, state: State, lane: Lane) -> int | None:
        has = state.has[lane.place]
        return lane.end if lane.is_compared else len(state.wants) if has == FOREIGN else has


class OfTheProcess(Rules):
    """Mistake: the process reads the setting when it begins."""

    def least(self, state: State) -> int:
        return state.least_at_start


def steps(state: State, rules: Rules) -> Iterator[State]:
    """Yield all that may happen next."""
    if len(state.wants) < RECORDS:
        yield state._replace(wants=(*state.wants, state.min_sync))
    for least in (1, 2):
        waiting = tuple(min(wanted, least) for wanted in state.wants[state.remote :])
        yield state._replace(min_sync=least, wants=state.wants[: state.remote] + waiting)
    # The process dies, and one with other places begins, if they are enough. Recovery may forget.
    for chosen in range(1, 1 << PLACES):
        lanes = tuple(Lane(place) for place in range(PLACES) if chosen >> place & 1)
        if len(lanes) >= state.min_sync:
            begun = state._replace(lanes=lanes, least_at_start=state.min_sync)
            yield begun
            yield begun._replace(remote=0, shipped=0)
    for at, lane in enumerate(state.lanes):
        yield from of_lane(state, at, lane, rules)


def of_lane(state: State, at: int, lane: Lane, rules: Rules) -> Iterator[State]:
    """Yield what one lane may do: compare, flush, lose a reply, or claim again."""

    def now(changed: Lane, has: tuple[int, ...] = state.has) -> State:
        lanes = (*state.lanes[:at], changed, *state.lanes[at + 1 :])
        return state._replace(lanes=lanes, has=has)

    def told(after: State) -> State:
        remote, shipped = rules.published(after)
        return after._replace(remote=remote, shipped=shipped)

    has = state.has[lane.place]
    if not lane.is_compared:
        if has != FOREIGN:  # else it is refused
            yield told(now(Lane(lane.place, True, has)))
        return
    for end in range(has + 1, len(state.wants) + 1):
        there = (*state.has[: lane.place], end, *state.has[lane.place + 1 :])
        yield now(lane, there)  # the reply is lost
        yield told(now(lane._replace(end=end), there))
    if has > lane.end:
        yield told(now(lane._replace(end=has)))  # it reads what a lost reply left
    yield now(Lane(lane.place))


def explore(rules: Rules, first: State) -> tuple[int, str | None, int]:
    """Look at every state; return how many there are, what is wrong, and how far it got."""
    seen, todo, furthest = {first}, [first], 0
    while todo:
        state = todo.pop()
        furthest = max(furthest, state.remote if state.has[0] <= 0 else 0)
        if wrong := complaint(state):
            return len(seen), wrong, furthest
        for after in map(in_order, steps(state, rules)):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return len(seen), None, furthest


def in_order(state: State) -> State:
    """Number the places again: which of them is which changes nothing."""
    lanes = {lane.place: lane for lane in state.lanes}
    told = sorted(
        (has, place in lanes, lanes.get(place, Lane(place))[1:])
        for place, has in enumerate(state.has)
    )
    named = tuple(Lane(at, *lane) for at, (_, is_one, lane) in enumerate(told) if is_one)
    return state._replace(has=tuple(has for has, _, _ in told), lanes=named)


def complaint(state: State) -> str | None:
    """Say what is wrong with a state."""
    for record, wanted in enumerate(state.wants[: state.remote]):
        if sum(has > record for has in state.has) < wanted:
            return f"record {record} was acknowledged, and is not in {wanted} places: {state}"
    return None


WORLDS = (State(), State(has=(FOREIGN, 0, 0)))


@pytest.mark.parametrize("first", WORLDS, ids=["own", "foreign"])
def test_what_was_acknowledged_lies_in_as_many_places_as_the_store_wanted(first: State) -> None:
    states, wrong, furthest = explore(Rules(), first)
    assert wrong is None
    assert states > 3_000
    assert furthest == RECORDS  # also while the first place has nothing


@pytest.mark.parametrize("mistake", [Highest, Unproved, OfTheProcess])
def test_each_mistake_in_the_count_is_found(mistake: Callable[[], Rules]) -> None:
    assert any(explore(mistake(), first)[1] for first in reversed(WORLDS))


def test_retention_goes_no_further_than_every_place() -> None:
    """Within one process; a place that is named later begins with what the store has then."""
    ends = [{LOG: (3, 9)}, {LOG: (2, 5)}, {LOG: (3, 1)}]
    assert reached(ends, 3) == {LOG: (2, 5)}
    assert reached(ends, 2) == {LOG: (3, 1)}
    assert reached(ends, 1) == {LOG: (3, 9)}
    assert reached([*ends, {}], 4) == {}
