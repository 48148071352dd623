"""Ships a store to a place: cut, compare, put, number, acknowledge; again and again.

Owns when something is sent, and the order of these steps for one store. Invariant: a number refers
only to objects that the place has, and the store hears of an acknowledgement after the number lies
there. Which number may be written is `protocol`'s decision; what differs is found by `delta`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple

from falaj import _core
from falaj.errors import CorruptData, Fenced, PlaceNotFound, PlaceRefused, TwinStore
from falaj.ship import messages as say
from falaj.ship.delta import Delta, FileImage, Want, compare
from falaj.ship.driver import Driver, is_whole
from falaj.ship.expire import expire
from falaj.ship.objects import IN_FLIGHT, Patience, Stopped, Uploads, all_of
from falaj.ship.origin import Origin, leave_origin, parent_in
from falaj.ship.packing import Sealing, Wanted, put_together
from falaj.ship.past import look_back
from falaj.ship.probe import probe
from falaj.ship.protocol import Shipping
from falaj.ship.shapes import Change, Flush, LogChange, Segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from falaj._core import Cut, CutLog, CutSegment
    from falaj._core import Shipping as Guard
    from falaj._store import Store
    from falaj.errors import Error
    from falaj.ship.past import Past
    from falaj.ship.place import Place
    from falaj.ship.tree import View

__all__ = ["Options", "Shipped", "Shipper", "write_note"]

FLUSH_BYTES = 4 << 20
FLUSH_S = 10.0
SPACE_S = 0.02
"""Least seconds between the beginnings of two flushes: it bounds the requests of a fast place."""
LOOK_S = 2.0
_STOP_S = 0.1
"""Seconds after which a shipper that sleeps looks whether it should stop."""
_ASK_LEAST_S, _ASK_MOST_S, _ASK_SHARE = 0.001, 0.01, 1 / 32
_GATHER_MOST_S, _GATHER_SHARE = 0.002, 1 / 16
_SLEPT_LEAST_S = 60.0
LOOK_BACK_S = 300.0
"""Seconds after which a shipper that sends looks whether the place still has its claim."""
LAST_S = 15.0
"""Seconds that a request may still take once shipping is to stop: the last flush comes then."""
_SEALERS = 2
"""Parts of sealed segments that are under way at a time, beside the bytes in flight."""
CHECKPOINT_NUMBERS = 256
CHECKPOINT_BYTES = 8 << 20
_CHECKPOINT_LEAST = 16
DAY_S = 86_400.0


class Options(NamedTuple):
    """How a store is shipped.

    Attributes:
        history: Seconds for which earlier numbers can be restored.
        in_flight: Bytes of objects that are in memory at a time.
        patience: Seconds for which a place may give no answer; None is without end.
        new_origin: Whether the store begins as a new origin, beside the one that it was.
    """

    history: float = 7 * DAY_S
    in_flight: int = IN_FLIGHT
    patience: float | None = None
    new_origin: bool = False


class Shipped(NamedTuple):
    """The result of shipping.

    Attributes:
        number: The last number that the place acknowledged; a claim if nothing was new.
        flushes: How many flushes this process wrote.
        bytes: Bytes of logs and files in them.
        objects: How many objects it put beside the numbers.
    """

    number: int
    flushes: int
    bytes: int
    objects: int


class Shipper:
    """A store that is being shipped to a place.

    Args:
        store: The store, open for writing.
        place: Where it goes.
        options: How.
        notice: Called with errors of a place that gives no answer, while it is asked again.
    """

    def __init__(
        self,
        store: Store,
        place: Place,
        options: Options | None = None,
        notice: Callable[[Error], None] = lambda error: None,
    ) -> None:
        self.store, self.place, self.options = store, place, options or Options()
        self.stop = threading.Event()
        self.patience = Patience(self.options.patience, self.stop, notice, LAST_S)
        self.flushes = self.bytes = 0
        self.is_cut_short = False
        self._images: dict[str, FileImage] = {}
        self._cut: Cut | None = None
        self._shipped_cut: Cut | None = None
        self._is_proved = False
        self._flushed_at = self._files_at = self._began_at = -FLUSH_S
        self._seen_at = 0.0
        self._sealing: dict[tuple[str, int, int, int], tuple[Sealing, list[Future[str]]]] = {}
        self._shipping: Guard | None = None
        self._sealer = ThreadPoolExecutor(_SEALERS, "falaj-seal")
        self._expired: set[int] = set()
        self._looker = ThreadPoolExecutor(1, "falaj-look")
        self._looking: Future[Past] | None = None
        self._leaves = threading.Event()
        self._awake = time.monotonic(), time.time()

    # --- From start to end -----------------------------------------------------------------------

    def run(self, *, once: bool = False, told: Callable[[Shipped], None] | None = None) -> Shipped:
        """Ship until `stop` is set, or with `once` until the place has what the store has now.

        Raises:
            PlaceRefused: The place has another history than the store.
            Fenced: Another process claimed the place.
            TwinStore: A copy of this store ships to the same place.
            CorruptData: The local disk or the place lost bytes.
        """
        with self._guard():
            try:
                self._claim()
                if not once and not self._is_checkpoint_due():
                    leaving = Patience(self.patience.seconds, self._leaves, self.patience.notice)
                    self._looking = self._looker.submit(self._past_for(leaving))
                self.care()  # claims alone grow, too
                self._loop(once, told)
            except Stopped:
                self.is_cut_short = True
            except (Fenced, TwinStore):
                if self._shipping is not None:
                    self._shipping.fence()
                raise
            finally:
                self._leaves.set()
                self._looker.shutdown(cancel_futures=True)
                self._sealer.shutdown(cancel_futures=True)
                driver = getattr(self, "_driver", None)
                if driver is not None and driver.uploads is not None:
                    driver.uploads.close()
                # These keep the store's files open.
                self._cut = self._shipped_cut = self._shipping = None
            return self.shipped

    @property
    def shipped(self) -> Shipped:
        """Count what was shipped so far."""
        if not hasattr(self, "_driver"):  # stopped before the place answered
            return Shipped(0, 0, 0, 0)
        uploads = self._driver.uploads
        objects = 0 if uploads is None else uploads.count
        return Shipped(self._driver.view.number, self.flushes, self.bytes, objects)

    def lacks(self) -> bool:
        """Tell whether the store has more than the place acknowledged, and ask nothing there."""
        driver = getattr(self, "_driver", None)
        cut = self.store._cut(None)
        return driver is None or bool(compare(driver.view, cut, dict(self._images)))

    def _guard(self) -> Guard:
        """Say in the store that it is being shipped."""
        self._shipping = self.store._shipping()
        return self._shipping

    def _claim(self) -> None:
        """Read the place, compare, and claim; again where another process was faster."""
        self.patience(self._probe)
        if self.options.new_origin:
            leave_origin(self.store.path)
        own = self.store._origin()
        origin = Origin(self.place, self.store.id, own, parent_in(self.store.path))
        self._driver = Driver(origin, Shipping(), self.patience)
        self._driver.start()
        while self._driver.holds is None:
            ended = self._driver.ended
            assert ended is not None
            is_whole(origin, ended, self.patience)  # else the claim would fill the hole
            self._cut = cut = self._take_cut()
            try:
                expect_same_history(self._driver.view, cut, self.store, origin)
            except CorruptData:
                # Retention or compaction may have replaced a segment since the cut.
                if not self._is_overtaken(cut):
                    raise
                continue
            self._driver.send(say.Claim())
        self._seen_at = time.monotonic()
        self._driver.uploads = Uploads(
            origin, self._driver.holds, self.patience, self.options.in_flight
        )
        self._note()

    def _probe(self) -> None:
        """Try once whether the place keeps its promises; that creates a directory, too."""
        try:
            probe(self.place)
        except PlaceNotFound:
            probe(self.place, again=True)

    def _loop(self, once: bool, told: Callable[[Shipped], None] | None) -> None:
        while not self.stop.is_set():
            if self.turn(now=once):
                self.care()
                if told:
                    told(self.shipped)
            elif once and not self._sealing:
                break
            elif once:
                self._wait_for_seals()
            if not once:
                self._sleep()
        if not once:
            self.turn(now=True)
        elif self.stop.is_set():
            raise Stopped

    def _take_cut(self) -> Cut:
        """Cut the store, again where a busy writer holds the lock of a log too long."""
        return self.patience(lambda: self.store._cut(self._cut))

    # --- One flush -------------------------------------------------------------------------------

    def turn(self, *, now: bool = True) -> bool:
        """Ship what is new, if it is enough or time for it; return whether a number was written."""
        while True:
            cut = self._take_cut()
            try:
                return self._ship(cut, now)
            except CorruptData:
                # Retention or compaction may have replaced a segment since the cut.
                if not self._is_overtaken(cut):
                    raise

    def _is_overtaken(self, cut: Cut) -> bool:
        newer = self.store._cut(None)
        return not _names(cut) <= _names(newer)

    def _ship(self, cut: Cut, now: bool) -> bool:
        view, clock = self._driver.view, time.monotonic()
        now_files = now or clock - self._files_at >= FLUSH_S
        images = dict(self._images)
        delta = compare(view, cut, images, now_files=now_files, before=self._shipped_cut)
        sealed = self._sealed(cut)
        self._cut = cut
        if not delta and not sealed:
            # An earlier process shipped it all, or a waiter gave up and left its flag.
            if not self._is_proved or self._waits():
                self._acknowledge(cut)
            return False
        late = clock - self._flushed_at >= FLUSH_S
        # A number names a sealed segment at once: else it would be put again.
        due = now or late or bool(sealed) or delta.bytes >= FLUSH_BYTES
        if not (due or self._waits()):
            return False
        self._began_at = clock
        if clock - self._seen_at >= LOOK_BACK_S:
            self._look_back()
        flush = self._draft(cut, delta, sealed)
        self._driver.flush(flush, doubts=self._slept())
        assert self._driver.uploads is not None
        self._driver.uploads.forget(flush.objects)
        self._images, self._flushed_at = images, time.monotonic()
        self._files_at = clock if now_files else self._files_at
        # Without files of queues it is not all shipped; the next comparison looks at them again.
        self._shipped_cut = cut if now_files else None
        self.flushes += 1
        self.bytes += delta.bytes
        self._acknowledge(cut)
        return True

    def _look_back(self) -> None:
        """Stop if the place was wiped. It costs a request, so only a shipper that sends looks."""
        self._driver.expect_claim()
        self._seen_at = time.monotonic()

    def _acknowledge(self, cut: Cut) -> None:
        """Let the store know what has left the machine, and wake who waits for it."""
        self._is_proved = True
        if self._shipping is not None:
            self.store._acknowledge_ends(
                (log.directory, log.segments[-1].sequence, log.segments[-1].end)
                for log in cut.logs
                if log.segments
            )

    def _slept(self) -> bool:
        """Tell whether by any clock a part of the history passed since the last flush."""
        now = time.monotonic(), time.time()
        before, self._awake = self._awake, now
        longest = max(self.options.history / 4, _SLEPT_LEAST_S)
        return any(abs(b - a) > longest for a, b in zip(before, now, strict=True))

    def _draft(self, cut: Cut, delta: Delta, sealed: list[tuple[str, Segment]]) -> Flush:
        """Put all bytes, and say what changed."""
        uploads = self._driver.uploads
        assert uploads is not None
        wanted = [_of_log(want) for want in delta.wanted]
        for changed in delta.files.values():
            if changed is not None:
                file, blocks = changed
                wanted += [
                    Wanted(at, len(data), data, file.pieces.append) for at, data in blocks.items()
                ]
        self._put_backlog(cut, delta, uploads)
        objects, inline = put_together(wanted, uploads, cut.gather)
        flush = Flush(0, 0, "", time.time_ns() // 1000, delta.logs, {}, objects, inline)
        flush.files = {path: each and each[0] for path, each in delta.files.items()}
        for directory, segment in sealed:
            change = flush.logs.setdefault(directory, LogChange())
            assert change is not None
            change.segments = [
                each for each in change.segments if each.segment.sequence != segment.sequence
            ]
            change.segments.append(Change(segment, True))
        for log in flush.logs.values():
            for each in log.segments if log else ():
                flush.objects.update(
                    (piece.key, uploads.sizes[piece.key])
                    for piece in each.segment.pieces
                    if piece.key
                )
        return flush

    def _put_backlog(self, cut: Cut, delta: Delta, uploads: Uploads) -> None:
        """Put segments whole, if the place has little or nothing of them."""
        started = [
            (sealing, sealing.start(uploads))
            for directory, segment in delta.backlog
            for sealing in [self._sealing_of(directory, segment, cut)]
        ]
        for sealing, parts in started:
            sealing.segment.pieces = sealing.finished(all_of(parts)).pieces

    # --- Sealed segments -------------------------------------------------------------------------

    def care(self) -> None:
        """Do what is due between flushes: seal, make checkpoints, delete what expired."""
        self._start_sealing()
        if self._is_checkpoint_due():
            self.checkpoint()

    def _is_checkpoint_due(self) -> bool:
        view = self._driver.view
        many = view.bytes >= CHECKPOINT_BYTES and view.numbers >= _CHECKPOINT_LEAST
        return view.numbers >= CHECKPOINT_NUMBERS or many

    def checkpoint(self) -> None:
        """Make a checkpoint, and delete what is older than the history.

        The past must be known to delete. A process looks back once, beside its other work. If the
        first checkpoint is due at its claim, it looks at once. So a shipper that is killed often
        still lists what the ones before it left.
        """
        if not self._driver.knows_past:
            if self._looking is None:
                self._driver.remember(self._past_for(self.patience)())
            elif self._looking.done():
                self._driver.remember(self._looking.result())
        self._look_back()
        self._driver.checkpoint()
        if self._driver.knows_past:
            expire(self._driver, self.options.history, self._expired)

    def _past_for(self, patience: Patience) -> Callable[[], Past]:
        """Return what looks back from here; it may be called in another thread."""
        driver, known = self._driver, frozenset(self._driver.view.sizes)
        claim, newest = driver.holds, driver.view.checkpoint
        assert claim is not None
        return lambda: look_back(driver.origin, newest, claim, known, patience)

    def _sealing_of(self, directory: str, segment: Segment, cut: Cut) -> Sealing:
        found = _segment_in(cut, directory, segment)
        missing = found.extents(segment.reach) if segment.reach < segment.length else []
        return Sealing(directory, segment, missing, cut.gather, self._driver.origin)

    def _start_sealing(self) -> None:
        """Begin to put sealed segments whole; a later flush names them."""
        uploads, cut = self._driver.uploads, self._cut
        assert uploads is not None
        assert cut is not None
        there = _names(cut)  # retention may have been faster than the place
        for directory, log in self._driver.view.logs.items():
            for segment in log.segments.values():
                name = (directory, *segment.identity)
                if name not in there or name in self._sealing:
                    continue
                if segment.sealed and not segment.whole:
                    sealing = self._sealing_of(directory, _copy(segment), cut)
                    self._sealing[name] = sealing, sealing.put_with(self._sealer, uploads)

    def _sealed(self, cut: Cut) -> list[tuple[str, Segment]]:
        """Take the segments that the place has whole since the last flush."""
        found: list[tuple[str, Segment]] = []
        there = _names(cut)
        for name, (sealing, parts) in list(self._sealing.items()):
            if not all(part.done() for part in parts):
                continue
            del self._sealing[name]
            try:
                segment = sealing.finished([part.result() for part in parts])
            except CorruptData:
                if name in there:
                    raise
                continue  # retention or compaction was faster
            uploads = self._driver.uploads
            assert uploads is not None
            self._driver.view.sizes.update(
                (piece.key, uploads.sizes[piece.key]) for piece in segment.pieces
            )
            if name in there:
                found.append((sealing.log, segment))
        return found

    def _wait_for_seals(self) -> None:
        wait([part for _, parts in self._sealing.values() for part in parts])

    # --- Waiting ---------------------------------------------------------------------------------

    def _waits(self) -> bool:
        """Tell whether an append waits for the place. Readers do not hurry it."""
        return self._shipping is not None and self._shipping.waiting()

    def _sleep(self) -> None:
        """Sleep until a process waits for the place, or it is time to look.

        While a flush is on its way, the next one gathers what is appended. Processes that the
        last flush woke get a moment to append again, so that one flush takes them all.
        """
        now = time.monotonic()
        pause = pause_after(self._began_at, self._flushed_at, now)
        # Where a look found nothing, a waiter of a log that cannot be synced may be all there is.
        self.stop.wait(max(pause, ask_after(now - self._flushed_at)))
        until = now + LOOK_S
        while (left := until - time.monotonic()) > 0 and not self.stop.is_set():
            if self._shipping is None or self._shipping.wait(min(left, _STOP_S)):
                return

    def _note(self) -> None:
        """Say in the store where it goes."""
        noted = {"place": self.place.url, "claim": self._driver.holds, "process": os.getpid()}
        write_note(self.store.path, json.dumps(noted))


def write_note(store: str | os.PathLike[str], noted: str, *, sync: bool = True) -> None:
    """Write `ship.json` into a store. Its text only informs; retention asks if it exists."""
    path = os.path.join(store, "ship.json")
    with open(f"{path}.tmp", "w") as file:
        file.write(noted)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.replace(f"{path}.tmp", path)
    if not sync:
        return
    folder = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _names(cut: Cut) -> set[tuple[str, int, int, int]]:
    """Name the segments of a cut."""
    return {
        (log.directory, each.sequence, each.salt, each.compaction)
        for log in cut.logs
        for each in log.segments
    }


def pause_after(began: float, ended: float, now: float) -> float:
    """Return how long no flush may begin after the last one, in seconds."""
    gather = min((ended - began) * _GATHER_SHARE, _GATHER_MOST_S)
    return max(began + SPACE_S, ended + gather) - now


def ask_after(quiet: float) -> float:
    """Return the least seconds between two looks at the store; the longer quiet, the more."""
    return min(max(quiet * _ASK_SHARE, _ASK_LEAST_S), _ASK_MOST_S)


def _copy(segment: Segment) -> Segment:
    """Copy a segment of the view, which goes on changing."""
    return Segment(
        segment.sequence,
        segment.salt,
        segment.compaction,
        segment.header,
        segment.end,
        segment.length,
        segment.sealed,
        list(segment.pieces),
    )


def _of_log(want: Want) -> Wanted:
    part = want.log, want.segment.sequence, want.start, want.stop
    return Wanted(want.start, want.stop - want.start, part, want.segment.pieces.append)


def _segment_in(cut: Cut, directory: str, segment: Segment) -> CutSegment:
    for log in cut.logs:
        if log.directory == directory:
            for each in log.segments:
                if (each.sequence, each.salt, each.compaction) == segment.identity:
                    return each
    raise CorruptData(f"log {directory} has segment {segment.sequence} no longer")


# --- Before a claim -------------------------------------------------------------------------------


def expect_same_history(view: View, cut: Cut, store: Store, origin: Origin) -> None:
    """Check that a store has everything that its place has.

    A log that the store has no longer was deleted; that is no contradiction.

    Raises:
        PlaceRefused: The place is ahead, or has other records.
    """
    logs = {log.directory: log for log in cut.logs}
    for directory, known in view.logs.items():
        log = logs.get(directory)
        if log is None:
            continue
        mine = {(end.topic, end.partition): end.next for end in log.ends}
        for end in known.ends.values():
            if end.of not in mine:
                continue  # the topic was deleted, and shares its log with others
            if not store._contains(directory, end.topic, end.partition, end.next, end.checksum):
                ahead = mine[end.of] < end.next
                how = "has more records" if ahead else "has other records"
                raise _refused(store, origin, end.name, end.partition, how)
        _expect_same_bytes(known.segments, log, cut, store, origin)


def _expect_same_bytes(
    known: dict[int, Segment], log: CutLog, cut: Cut, store: Store, origin: Origin
) -> None:
    """Compare the checksums of the segment that was open when it was shipped last."""
    if not known:
        return
    last = known[max(known)]
    for found in log.segments:
        if (found.sequence, found.salt, found.compaction) != last.identity:
            continue
        for piece in last.pieces:
            if piece.stop <= found.length:
                data = cut.read(log.directory, found.sequence, piece.position, piece.stop)
                if _core._crc32(data) != piece.crc:
                    raise _refused(store, origin, log.directory, 0, "has other bytes")


def _refused(store: Store, origin: Origin, name: str, partition: int, how: str) -> PlaceRefused:
    error = PlaceRefused(
        f"{origin.where('')} {how} of {name}, partition {partition}, than {store.path}. So the "
        "store was replaced by an older or another copy, and nothing was shipped. Either restore "
        "the place to a new directory and go on there, or ship this store as a new origin beside "
        "the other: `falaj ship --new-origin`"
    )
    error.path = os.fspath(store.path)
    return error
