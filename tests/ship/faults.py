"""`FaultyPlace`: a place over another one, which delays, repeats and loses what passes.

Owns the faults, and nothing else: the place below keeps the objects. All chances come from one
seed. Time is counted in calls: what is on its way lands before one of the next calls, or at
`settle()`. So a run with one thread repeats exactly.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Never, TypeVar

from falaj.errors import PlaceUnreachable
from falaj.ship.place import Listed, Place, error

T = TypeVar("T")


@dataclass
class Rates:
    """The share of calls that meet each fault; the rest pass as they are.

    Attributes:
        lost: The request never arrives.
        reply: It is carried out, and its reply is lost.
        late: It is carried out after one of the next calls, and the caller knows nothing of it.
        twice: It is carried out now, and once more later.
        busy: The place answers that it did nothing, as a server does with 409, 412, 500 or 503.
        calls: The most calls that something is on its way for.
    """

    lost: float = 0.05
    reply: float = 0.05
    late: float = 0.05
    twice: float = 0.05
    busy: float = 0.0
    calls: int = 8


@dataclass
class Counts:
    """How often each fault came, and how many calls there were."""

    calls: int = 0
    lost: int = 0
    reply: int = 0
    late: int = 0
    twice: int = 0
    busy: int = 0

    @property
    def faults(self) -> int:
        """All faults together."""
        return self.lost + self.reply + self.late + self.twice + self.busy


@dataclass
class FaultyPlace:
    """A place with faults.

    A create that meets one answers False: its outcome is unknown. Other calls raise
    `PlaceUnreachable`. A call for which `is_down` is set raises it always, and nothing passes.
    """

    inner: Place
    seed: int
    rates: Rates = field(default_factory=Rates)
    counts: Counts = field(default_factory=Counts)
    is_down: bool = False

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._under_way = list[tuple[int, Callable[[], object]]]()
        self._lock = RLock()

    @property
    def url(self) -> str:
        """The URL of the place below."""
        return self.inner.url

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object, or answer False."""
        whole = bytes(body)
        return self._pass(lambda: self.inner.put_new(key, whole), lambda: False)

    def get(self, key: str) -> bytes | None:
        """Return an object or None, or raise."""
        return self._pass(lambda: self.inner.get(key), lambda: self._fail(key), False)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return bytes of an object, or raise."""
        ask = partial(self.inner.get_range, key, start, stop)
        return self._pass(ask, lambda: self._fail(key), False)

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List objects, or raise."""
        yield from self._pass(
            lambda: list(self.inner.list_after(prefix, after)), lambda: self._fail(None), False
        )

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, or raise; the objects may go later."""
        asked = list(keys)
        self._pass(lambda: self.inner.delete(asked), lambda: self._fail(None))

    def settle(self) -> None:
        """Let all that is on its way land, in a random order."""
        with self._lock:
            landing = [call for _, call in self._under_way]
            self._under_way.clear()
            self._chance.shuffle(landing)
        for call in landing:
            call()

    def _pass(self, ask: Callable[[], T], unknown: Callable[[], T], writes: bool = True) -> T:
        with self._lock:
            fate = self._fate(ask, writes)
        if fate in ("lost", "busy", "late"):
            return unknown()
        answer = ask()
        return unknown() if fate == "reply" else answer

    def _fate(self, ask: Callable[[], object], writes: bool) -> str:
        self.counts.calls += 1
        self._land()
        if self.is_down:
            return "lost"
        rates, left = self.rates, self._chance.random()
        for fate in ("lost", "reply", "busy", "late", "twice")[: 5 if writes else 3]:
            left -= getattr(rates, fate)
            if left < 0:
                setattr(self.counts, fate, getattr(self.counts, fate) + 1)
                if fate in ("late", "twice"):
                    after = self.counts.calls + self._chance.randint(1, rates.calls)
                    self._under_way.append((after, ask))
                return fate
        return "passes"

    def _land(self) -> None:
        due = [call for after, call in self._under_way if after <= self.counts.calls]
        self._under_way = [one for one in self._under_way if one[0] > self.counts.calls]
        for call in due:
            call()

    def _fail(self, key: str | None) -> Never:
        raise error(PlaceUnreachable, f"{self.url} gave no answer", self.url, key)
