"""Ships a store to several places: one process, and a lane for each place.

Owns what lanes share: the guard of the store, the cuts, the count of acknowledgements, and which
error ends what. A *lane* is a `Shipper` of one place, in a thread of its own, so no place waits for
another. Invariant: `sync="remote"` hears of an address only after as many places have everything
before it as the store's `ship_min_sync` says. The engine reads that setting once more as it takes
the acknowledgement. Safety in one place is left to `protocol`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from falaj.errors import (
    Error,
    Fenced,
    InvalidArgument,
    PathNotFound,
    PlaceError,
    PlaceRefused,
    TwinStore,
)
from falaj.ship.handlers import ignored
from falaj.ship.objects import Stopped
from falaj.ship.origin import leave_origin
from falaj.ship.shipper import Options, Shipped, Shipper, write_note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from falaj._core import Cut
    from falaj._core import Shipping as Guard
    from falaj._store import Store
    from falaj.ship.place import Place

    Address = tuple[int, int]
    Ends = Mapping[str, Address]

__all__ = ["Lanes", "Sent", "reached"]

_COMPARED_S = 5.0
"""Seconds for which a lane that may begin waits for others that still compare."""
_AGAIN_FIRST_S, _AGAIN_MOST_S = 1.0, 60.0
_LEAST_IN_FLIGHT = 8 << 20
_DELETIONS_MOST = 8
"""Times in a row that a look at the store may meet a deletion, before that is an error."""
_NOTE_S = 2.0


class Sent(NamedTuple):
    """The result of shipping to one of the places.

    Attributes:
        place: Its URL.
        shipped: What was sent; None if its lane never began.
    """

    place: str
    shipped: Shipped | None


def reached(lanes: Iterable[Ends], least: int) -> dict[str, Address]:
    """Return for each log the address up to which at least so many lanes have everything.

    A lane says nothing of a log until its place acknowledged it, and then counts for no address.
    Addresses of a log are those of one chain, so a higher one covers all lower ones.

    Example:
        >>> reached([{"a": (1, 5)}, {"a": (2, 1), "b": (1, 1)}, {}], 2)
        {'a': (1, 5)}
    """
    said: dict[str, list[Address]] = {}
    for ends in lanes:
        for log, end in ends.items():
            said.setdefault(log, []).append(end)
    return {
        log: sorted(ends, reverse=True)[least - 1]
        for log, ends in said.items()
        if len(ends) >= least
    }


class Lanes:
    """A store that is being shipped to one place or several.

    Args:
        store: The store, open for writing.
        places: Where it goes; each of them gets everything.
        options: How.
        notice: Called with errors of a place while the others go on, or while it is asked again.

    Raises:
        InvalidArgument: There are fewer places than the store's `ship_min_sync`, or one twice.
    """

    def __init__(
        self,
        store: Store,
        places: Sequence[Place],
        options: Options | None = None,
        notice: Callable[[Error], None] = lambda error: None,
    ) -> None:
        self.store, self.notice = store, notice
        chosen = options or Options()
        in_flight = max(chosen.in_flight // max(len(places), 1), _LEAST_IN_FLIGHT)
        self.options = chosen._replace(in_flight=in_flight)
        self.stop = threading.Event()
        self._expect(places)
        self._lanes = [_Lane(self, number, place) for number, place in enumerate(places)]
        self._changed = threading.Condition()
        self._ended: list[_Lane] = []
        self._ends: list[dict[str, Address]] = [{} for _ in places]
        self._counting = threading.Lock()
        self._cutting = threading.Lock()
        self._cuts, self._newest, self._newest_is = 0, cast("Cut | None", None), 0
        self._is_halted, self._origin = False, cast("str | None", None)
        self.guard: Guard | None = None
        self._noted_at, self._is_noted = -_NOTE_S, True

    def _expect(self, places: Sequence[Place]) -> None:
        urls = [place.url.rstrip("/") for place in places]
        for url in urls:
            if urls.count(url) > 1:
                raise InvalidArgument(f"{url} is given twice: name each place once")
        wanted = self.store._min_sync()
        if len(urls) < wanted:
            raise InvalidArgument(
                f"ship_min_sync of {self.store.path} is {wanted}, and these are {len(urls)}: name "
                "as many places, or lower that setting"
            )

    # --- From start to end -----------------------------------------------------------------------

    def run(
        self,
        *,
        once: bool = False,
        told: Callable[[Sent], None] = lambda sent: None,
        stop: threading.Event | None = None,
    ) -> list[Sent]:
        """Ship until `stop` is set, or with `once` until each place has what the store has now.

        Raises:
            PlaceRefused: A place has another history than the store; no lane goes on.
            TwinStore: A copy of this store ships to one of the places; no lane goes on.
            Fenced: Other processes claimed so many places that too few are left.
        """
        with self.store._shipping() as self.guard:
            for lane in self._lanes:
                lane.begin(once, told)
            try:
                self._attend(once, stop)
            finally:
                self.stop.set()
                for lane in self._lanes:
                    lane.thread.join()
            self.note(last=True)
            for lane in self._lanes:
                if once and lane.error is not None:
                    self._raise(lane.error)
        self._newest = self.guard = None  # these keep the store's files open
        return [lane.sent for lane in self._lanes]

    def _attend(self, once: bool, stop: threading.Event | None) -> None:
        """Wait for the lanes, and end all of them where one must not go on alone."""
        while any(lane.thread.is_alive() for lane in self._lanes):
            with self._changed:
                self._changed.wait_for(lambda: bool(self._ended), 0.2 if stop else 1.0)
                ended, self._ended = self._ended, []
            if stop is not None and stop.is_set():
                self.stop.set()
            for lane in ended:
                self._end_of(lane, once)
            if not self._is_noted:
                self.note()

    def _end_of(self, lane: _Lane, once: bool) -> None:
        error = lane.error
        if error is None:
            return
        left = sum(each.error is None for each in self._lanes)
        is_for_all = not isinstance(error, Error) or isinstance(error, TwinStore | PlaceRefused)
        has_too_few = left < max(self.store._min_sync(), 1) or not lane.has_held
        if is_for_all or (has_too_few and not once):
            self._is_halted = True
            self._raise(error)
        if not once:
            self.notice(cast("Error", error))

    def _raise(self, error: BaseException) -> NoReturn:
        if isinstance(error, Fenced | TwinStore) and self.guard is not None:
            self.guard.fence()
        raise error

    def expect_to_go_on(self) -> None:
        """Check that a lane may send something.

        Raises:
            Stopped: An error of another lane ended all of them.
        """
        refusals = TwinStore | PlaceRefused
        if self._is_halted or any(isinstance(lane.error, refusals) for lane in self._lanes):
            raise Stopped

    def lane_ended(self, lane: _Lane) -> None:
        """Hear that the thread of a lane ends."""
        with self._changed:
            self._ended.append(lane)
            self._changed.notify_all()

    def wait_for_others(self, ready: _Lane) -> None:
        """Wait a moment until all places that answer have been compared with the store.

        So a store that one of them refuses is sent to none.
        """
        with self._changed:
            ready.is_compared = True
            self._changed.notify_all()
            self._changed.wait_for(self._is_all_compared, _COMPARED_S)

    def hear_of(self, lane: _Lane, error: Error) -> None:
        """Hear that the place of a lane gives no answer; the others wait for it no longer."""
        with self._changed:
            lane.is_compared = True
            self._changed.notify_all()
        lane.problem = str(error)
        self.notice(error)
        self.note()

    def _is_all_compared(self) -> bool:
        return self.stop.is_set() or all(
            lane.is_compared or lane.error is not None for lane in self._lanes
        )

    def lacking(self) -> list[Sent]:
        """List what was sent to places that `stop` left without the last records of the store."""
        return [lane.sent for lane in self._lanes if lane.lacks]

    # --- What lanes share ------------------------------------------------------------------------

    def origin(self) -> str:
        """Return the origin; it is made once a place has passed the probe."""
        with self._cutting:
            if self._origin is None:
                if self.options.new_origin:
                    leave_origin(self.store.path)
                self._origin = self.store._origin()
            return self._origin

    def cut(self, previous: Cut | None) -> Cut:
        """Cut the store, or share the cut of another lane that began after this call."""
        begun = self._cuts
        with self._cutting:
            newest = self._newest
            if previous is not None and newest is not None and self._newest_is > begun:
                return newest
            self._cuts += 1
            made = self._cut_again(None if previous is None else newest or previous)
            self._newest, self._newest_is = made, self._cuts
            return made

    def _cut_again(self, previous: Cut | None) -> Cut:
        """Cut the store; again where a topic was deleted while its log was read."""
        for _ in range(_DELETIONS_MOST):
            with suppress(PathNotFound):
                return self.store._cut(previous)
        return self.store._cut(previous)

    def acknowledge(self, lane: _Lane, ends: Iterable[tuple[str, int, int]]) -> None:
        """Count what the place of a lane has, and let the store know what enough of them have.

        Raises:
            InvalidArgument: The store wants more places now than there are.
        """
        said = {log: (sequence, position) for log, sequence, position in ends}
        with self._counting:
            self._ends[lane.number] = said
            lane.problem = ""
            lane.heard_us = time.time_ns() // 1000
            self._publish()
        self.note()

    def forget(self, lane: _Lane) -> None:
        """Count a lane for nothing until its place is compared again."""
        with self._counting:
            self._ends[lane.number] = {}

    def _publish(self) -> None:
        deletions = 0
        while not self._is_over():
            wanted = self.store._min_sync()
            if wanted > len(self._lanes):
                self._expect([lane.place for lane in self._lanes])
            enough = reached(self._ends, wanted)
            everywhere = reached(self._ends, len(self._lanes))
            try:
                self.store._acknowledge_ends(_flat(enough), _flat(everywhere), places=wanted)
            except InvalidArgument:
                if self._is_over():
                    return
                if self.store._min_sync() <= wanted:
                    raise
            except PathNotFound:  # a topic was deleted while its log was looked at
                deletions += 1
                if deletions > _DELETIONS_MOST:
                    raise
            else:
                return

    def _is_over(self) -> bool:
        return self.guard is None or self.guard.closed

    # --- Reports --------------------------------------------------------------------------------

    def note(self, *, last: bool = False) -> None:
        """Write how far each place is into `ship.json`, now and then. It only informs."""
        now = time.monotonic()
        if not any(lane.has_held for lane in self._lanes):
            return  # limits of the store wait for places once the file is there
        if not last and now - self._noted_at < _NOTE_S:
            self._is_noted = False
            return
        with self._counting:
            self._is_noted = True
            is_first, self._noted_at = self._noted_at < 0, now
            places = [self._state_of(lane) for lane in self._lanes]
            noted = {"places": places, "process": os.getpid()}
            with ignored(OSError):
                write_note(self.store.path, json.dumps(noted), sync=is_first)

    def _state_of(self, lane: _Lane) -> dict[str, Any]:
        shipped = lane.sent.shipped
        return {
            "place": lane.place.url,
            "number": 0 if shipped is None else shipped.number,
            "behind": behind(self._newest, self._ends[lane.number]),
            "heard_us": lane.heard_us,
            "problem": lane.problem or None,
        }


def behind(cut: Cut | None, ends: Ends) -> int | None:
    """Return how many bytes of logs a cut has behind what a place acknowledged."""
    if cut is None:
        return None
    found = 0
    for log in cut.logs:
        sequence, position = ends.get(log.directory, (-1, 0))
        for segment in log.segments:
            if segment.sequence > sequence:
                found += segment.end
            elif segment.sequence == sequence:
                found += max(segment.end - position, 0)
    return found


def _flat(ends: Ends) -> Iterator[tuple[str, int, int]]:
    return ((log, sequence, position) for log, (sequence, position) in ends.items())


class _Lane:
    """A place, the shipper of it, and its thread."""

    def __init__(self, lanes: Lanes, number: int, place: Place) -> None:
        self.lanes, self.number, self.place = lanes, number, place
        self.error: BaseException | None = None
        self.is_compared = self.has_held = self.lacks = False
        self.problem, self.heard_us = "", cast("int | None", None)
        self._sent = Shipped(0, 0, 0, 0)
        self._shipper: _LaneShipper | None = None

    def begin(self, once: bool, told: Callable[[Sent], None]) -> None:
        """Start the thread."""
        self.thread = threading.Thread(
            target=self._work, args=(once, told), name=f"falaj-ship-{self.number}"
        )
        self.thread.start()

    @property
    def sent(self) -> Sent:
        """Count what was sent so far, by earlier shippers of this lane too."""
        if not self.has_held:
            return Sent(self.place.url, None)
        before, now = self._sent, cast("_LaneShipper", self._shipper).shipped
        number = now.number or before.number
        sums = (a + b for a, b in zip(before[1:], now[1:], strict=True))
        return Sent(self.place.url, Shipped(number, *sums))

    def _work(self, once: bool, told: Callable[[Sent], None]) -> None:
        try:
            self._ship(once, told)
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001  # raised again where the lanes are attended
            self.error = error
            self.problem = str(error)
        finally:
            self.lanes.lane_ended(self)

    def _ship(self, once: bool, told: Callable[[Sent], None]) -> None:
        """Ship, and begin again after errors that pass, if there are other places to rely on."""
        pause, alone = _AGAIN_FIRST_S, len(self.lanes._lanes) == 1
        while True:
            self._shipper = _LaneShipper(self)
            try:
                self._shipper.run(once=once, told=lambda _: told(self.sent))
            except PlaceError as error:
                lasting = isinstance(error, Fenced | TwinStore | PlaceRefused)
                if alone or once or lasting or not self.has_held:
                    raise
                self._sent = cast("Shipped", self.sent.shipped)
                self.lanes.forget(self)
                self.lanes.hear_of(self, cast("Error", error))
                if self.lanes.stop.wait(pause):
                    self.lacks = self._shipper.lacks()
                    return
                pause = min(pause * 2, _AGAIN_MOST_S)
            else:
                self.lacks = self._shipper.is_cut_short and self._shipper.lacks()
                return


class _LaneShipper(Shipper):
    """The shipper of one lane; what it says of the store is said by all lanes together."""

    def __init__(self, lane: _Lane) -> None:
        lanes = lane.lanes
        view = cast("Store", _LaneStore(lane))
        options = lanes.options._replace(new_origin=False)
        super().__init__(view, lane.place, options, lambda error: lanes.hear_of(lane, error))
        self.stop = self.patience.stop = lanes.stop
        self._lane = lane

    def _loop(self, once: bool, told: Callable[[Shipped], None] | None) -> None:
        self._lane.lanes.wait_for_others(self._lane)
        super()._loop(once, told)

    def turn(self, *, now: bool = True) -> bool:
        """Ship what is new, unless another lane met what ends all of them."""
        self._lane.lanes.expect_to_go_on()
        return super().turn(now=now)

    def _note(self) -> None:
        self._lane.has_held = True
        self._lane.lanes.note()


class _LaneStore:
    """The store as the shipper of a lane sees it."""

    def __init__(self, lane: _Lane) -> None:
        self._lane, self._lanes = lane, lane.lanes
        store = lane.lanes.store
        self.path, self.id, self._contains = store.path, store.id, store._contains

    def _origin(self) -> str:
        return self._lanes.origin()

    def _cut(self, previous: Cut | None) -> Cut:
        return self._lanes.cut(previous)

    def _shipping(self) -> _LaneGuard:
        return _LaneGuard(self._lanes)

    def _acknowledge_ends(self, ends: Iterable[tuple[str, int, int]]) -> None:
        self._lanes.acknowledge(self._lane, ends)


class _LaneGuard:
    """The guard as a lane sees it: its own end leaves the store guarded by the others."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def waiting(self) -> bool:
        guard = self._lanes.guard
        return guard is not None and guard.waiting()

    def wait(self, timeout: float) -> bool:
        guard = self._lanes.guard
        return guard is not None and guard.wait(timeout)

    def fence(self) -> None:
        """Leave it to all lanes together."""

    def __enter__(self) -> _LaneGuard:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the store guarded."""
