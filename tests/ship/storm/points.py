"""Named points: where a process of the storm kills itself, before or after a call.

Owns the names, the choice of one for a life, and wrappers of the place, the store and the builder
that meet them. A wrapper changes nothing else.
"""

import fcntl
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import Any

from falaj import _core, _place_store
from falaj.ship import cache as caching
from falaj.ship.place import Listed, Place

KINDS = {"c": "a checkpoint", "k": "a pack", "s": "a sealed segment"}
NUMBERS = ("a claim", "a flush")
CREATED = (*NUMBERS, *KINDS.values())
SIDES = ("before", "after")

SHIPPER = (
    *(f"{side} creating {what}" for side in SIDES for what in CREATED),
    *("before deleting an object", "after deleting an object"),
    *("before listing checkpoints", "after listing checkpoints"),
    *("before reading a number", "after reading a number"),
    *("before a cut", "after a cut"),
    *("before acknowledging", "after acknowledging"),
    *("before an object has its name", "after an object has its name"),
    *("before ship.json has its name", "after ship.json has its name"),
)
RESTORE = (
    *("before reading a number", "after reading a range"),
    *("before a file is made", "before a segment is made", "after a segment is made"),
    *("before bytes are written", "after bytes are written"),
    *("before a store is finished", "after a store is finished"),
)
READER = (
    *(
        f"{side} {what}"
        for side in SIDES
        for what in (
            "listing checkpoints",
            "reading a number",
            "reading a range",
            "a view is made",
            "a lock of the cache is taken",
            "a file of the cache is removed",
            "a segment is taken from the cache",
            "an object has its name",
            "the cache shrinks",
            "a file is put",
            "a log begins",
            "a segment is put",
            "a stand-in is put",
            "bytes are stored",
            "an end is published",
            "a segment is removed",
        )
    ),
)
WRITER = (
    *("before an append", "after an append"),
    *("before a commit", "after a commit"),
)
OTHER = (
    *("before an append", "after an append"),
    *("before a trim", "after a trim"),
    *("before a compaction", "after a compaction"),
)
ALL = {"shipper": SHIPPER, "restore": RESTORE, "writer": WRITER, "other": OTHER}
ALL |= {"reader": READER, "follower": READER}


class Points:
    """The death of one life: at a point, when it is met for the n-th time; or at none."""

    def __init__(self, chosen: str = "", times: int = 1) -> None:
        self.chosen, self.left = chosen, times

    def meet(self, name: str) -> None:
        """Die, if this is the point."""
        if name == self.chosen:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that meets a point before and after another."""

        def called(*given: Any, **named: Any) -> Any:
            self.meet(f"before {what}")
            result = call(*given, **named)
            self.meet(f"after {what}")
            return result

        return called


def drawn(name: str, chance: random.Random) -> Points:
    """Choose where an actor dies: in four of five lives at a point, mostly when first met.

    A reader meets most points as it opens its place, so later times let it read.
    """
    if chance.random() < 0.2:
        return Points()
    often, most = (0.4, 30) if ALL[name] is READER else (0.7, 6)
    times = 1 if chance.random() < often else chance.randint(2, most)
    return Points(chance.choice(ALL[name]), times)


class PointedPlace:
    """A place whose calls meet points."""

    def __init__(self, inner: Place, points: Points, draft: Callable[[bytes], None]) -> None:
        self.inner, self.url, self._points, self._draft = inner, inner.url, points, draft

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object, and tell outside of the body of a number before."""
        kind = key.split("/")[-2]
        if kind == "n":
            is_claim = b'"kind":"claim"' in body[:400]
            what = NUMBERS[0 if is_claim else 1]
            if not is_claim:
                self._draft(body)
        else:
            what = KINDS.get(kind, "")
        made: bool = self._points.around(f"creating {what}", self.inner.put_new)(key, body)
        return made

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects one by one, so that a death leaves some."""
        for key in keys:
            self._points.around("deleting an object", self.inner.delete)([key])

    def get(self, key: str) -> bytes | None:
        """Return an object."""
        found: bytes | None = self._points.around("reading a number", self.inner.get)(key)
        return found

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return bytes of an object."""
        found: bytes = self._points.around("reading a range", self.inner.get_range)(
            key, start, stop
        )
        return found

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List objects."""
        self._points.meet("before listing checkpoints")
        yield from self.inner.list_after(prefix, after)
        self._points.meet("after listing checkpoints")


class PointedStore:
    """A store whose cuts and acknowledgements meet points."""

    def __init__(self, store: Any, points: Points, acknowledged: Callable[[], None]) -> None:
        self._store, self._points, self._told = store, points, acknowledged

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _cut(self, previous: Any) -> Any:
        return self._points.around("a cut", self._store._cut)(previous)

    def _acknowledge_ends(self, ends: Any) -> None:
        self._told()
        self._points.around("acknowledging", self._store._acknowledge_ends)(ends)


def in_files(points: Points) -> None:
    """Have this process meet points where files get their names."""
    link, replace = os.link, os.replace
    os.link = points.around("an object has its name", link)
    os.replace = points.around("ship.json has its name", replace)


def in_builder(points: Points) -> None:
    """Have this process meet points where a restore makes files."""
    builder = _core.StoreBuilder

    class Builder:
        def __init__(self, *given: Any, **named: Any) -> None:
            self._inner = builder(*given, **named)
            self.file = points.around("a file is made", self._inner.file)
            self.segment = points.around("a segment is made", self._inner.segment)
            self.write = points.around("bytes are written", self._inner.write)
            self.write_checked = points.around("bytes are written", self._inner.write_checked)
            self.keep, self.leave = self._inner.keep, self._inner.leave
            self.finish = points.around("a store is finished", self._inner.finish)
            self.discard = self._inner.discard

    _core.StoreBuilder = Builder  # type: ignore[assignment,misc]


def in_cache(points: Points) -> None:
    """Have this process meet points where it changes the cache; `in_files` has those of links."""
    os.unlink = points.around("a file of the cache is removed", os.unlink)
    fcntl.flock = points.around("a lock of the cache is taken", fcntl.flock)
    for name, what in (
        ("new_view", "a view is made"),
        ("take", "a segment is taken from the cache"),
        ("shrink", "the cache shrinks"),
    ):
        setattr(caching.Cache, name, points.around(what, getattr(caching.Cache, name)))


class PointedView:
    """A view of a place whose changes meet points."""

    NAMED = MappingProxyType(
        {
            "file": "a file is put",
            "begin_log": "a log begins",
            "put": "a segment is put",
            "stand_in": "a stand-in is put",
            "store": "bytes are stored",
            "publish": "an end is published",
            "remove_segment": "a segment is removed",
        }
    )

    def __init__(self, inner: _core.PlaceView, points: Points) -> None:
        self.inner, self._points = inner, points

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)
        return self._points.around(self.NAMED[name], call) if name in self.NAMED else call


def in_view(points: Points) -> None:
    """Have this process meet points where it changes its view of a place."""
    make, store = _core.PlaceView, _place_store.PlaceStore

    def view(*given: Any) -> Any:
        return PointedView(make(*given), points)

    def opened(*given: Any, view: PointedView, **named: Any) -> Any:
        return store(*given, view=view.inner, **named)

    _core.PlaceView = view  # type: ignore[assignment,misc]
    _place_store.PlaceStore = opened  # type: ignore[assignment,misc]
