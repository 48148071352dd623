"""The search through all states, breadth first, and random walks where there are too many.

A state is remembered by a hash of 64 bits, as TLC does it. Among a hundred million states the
chance that any two share a hash is below one in a thousand. Small explorations keep each state
and the step that led to it, and can tell how a finding came about.
"""

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from ship.explore.model import Model, Size, State
from ship.explore.place import Violation


@dataclass(frozen=True)
class Result:
    """The result of an exploration: how much was seen, and the steps to a finding."""

    states: int
    steps: int
    depth: int
    seconds: float
    ended: bool
    finding: str = ""
    trace: tuple[str, ...] = ()


Say = Callable[[str], None]


def explore(size: Size, *, most: int = 1 << 62, say: Say | None = None) -> Result:
    """Visit every state, unless there are more than `most`."""
    gc.disable()  # nothing here has cycles
    model, begun = Model(size), time.monotonic()
    layer = [model.first()]
    seen = {hash(layer[0])}
    steps, depth = 0, 0
    while layer and len(seen) < most:
        following: list[State] = []
        for state in layer:
            try:
                for after, _ in model.steps_of(state):
                    steps += 1
                    key = hash(after)
                    if key not in seen:
                        seen.add(key)
                        following.append(after)
            except Violation as violation:
                took = time.monotonic() - begun
                return Result(len(seen), steps, depth, took, False, str(violation))
        layer, depth = following, depth + 1
        if say is not None:
            took = time.monotonic() - begun
            tables = f"{len(model.places):,} places, {len(model.processes):,} processes"
            say(f"{depth:3} steps deep: {len(seen):,} states, {tables}, {took:.0f} s")
    return Result(len(seen), steps, depth, time.monotonic() - begun, not layer)


def trace(size: Size, *, most: int = 3_000_000) -> Result:
    """Visit every state, and tell the shortest way to a finding."""
    model, begun = Model(size), time.monotonic()
    first = model.first()
    came: dict[State, tuple[State, str] | None] = {first: None}
    queue, steps = [first], 0
    for state in queue:
        try:
            for after, said in model.steps_of(state):
                steps += 1
                if after not in came:
                    came[after] = (state, said)
                    queue.append(after)
        except Violation as violation:
            way = _way(came, state)
            took = time.monotonic() - begun
            return Result(len(came), steps, len(way), took, False, str(violation), way)
        if len(came) > most:
            break
    return Result(len(came), steps, 0, time.monotonic() - begun, len(came) <= most)


def _way(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    way = list[str]()
    while (step := came[state]) is not None:
        state, said = step
        way.append(said)
    return tuple(reversed(way))


def walk(size: Size, *, seed: int, walks: int, length: int = 200) -> Result:
    """Take steps at random, from the first state again and again."""
    chance, model, begun = random.Random(seed), Model(size), time.monotonic()
    steps = 0
    for _ in range(walks):
        state, way = model.first(), list[str]()
        try:
            for _ in range(length):
                choices = list(model.steps_of(state))
                if not choices:
                    break
                state, said = chance.choice(choices)
                way.append(said)
                steps += 1
        except Violation as violation:
            took = time.monotonic() - begun
            return Result(0, steps, len(way), took, False, str(violation), tuple(way))
    return Result(0, steps, length, time.monotonic() - begun, False)
