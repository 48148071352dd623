"""A view of a place on this machine: which segments it has, and how each change gets there.

Owns the order of changes, which is that of a writer: a new file has its name before readers can
see it. Files that are gone go last. Segments and whole logs come when a reader needs them.
Invariant: readers see of a log what it was at one number. `_core.PlaceView` makes the files,
`cache` shares whole segments between processes, `reader` follows the place.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from falaj import _core
from falaj.errors import CorruptData, HandleClosed, PlaceUnreachable
from falaj.ship.ahead import AHEAD_BYTES, Ahead
from falaj.ship.cache import named_after
from falaj.ship.fetching import Target, checked, fetch
from falaj.ship.handlers import pass_on
from falaj.ship.objects import IN_FLIGHT, Stopped
from falaj.ship.shapes import FIRST_BLOCK, File, Segment
from falaj.ship.tree import PIECE_MAX, LogView, View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from falaj.ship.cache import Cache, ViewDirectory
    from falaj.ship.objects import Patience
    from falaj.ship.origin import Origin

__all__ = ["Replica"]


_MOMENT_SHARE = 1 / 30
"""Part of the patience: how long a wait that ended counts, and how long the next one is then."""


class _Shape(NamedTuple):
    """The properties by which a file of a segment is the one that the place has now."""

    identity: tuple[int, int, int]
    end: int
    length: int
    sealed: bool


def _shape(segment: Segment) -> _Shape:
    return _Shape(segment.identity, segment.end, segment.length, segment.sealed)


def _told(segment: Segment) -> tuple[bytes, int, int, bool]:
    return segment.header, segment.end, segment.length, segment.sealed


@dataclass(slots=True)
class _Log:
    """A log in the directory. `last` is the segment in which readers see it end."""

    segments: dict[int, _Shape] = field(default_factory=dict)
    last: Segment | None = None


class _Coming:
    """A segment on its way: one thread brings it, and others wait for that.

    Where the first one gave up, the place has been silent for long, and those that waited meanwhile
    wait but briefly. So does one that asks a moment later: the engine gives a reader what lies
    before an error, and comes to the error again.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._failed = -math.inf

    def patience(self, usual: Patience, began: float) -> Patience:
        """Return how long a thread waits for the place, which has the lock and wanted it then."""
        moment = (usual.seconds or 0.0) * _MOMENT_SHARE
        return usual.within(moment) if self._failed > began - moment else usual

    def note(self) -> None:
        """Note that the place gave no answer."""
        self._failed = time.monotonic()


class Replica:
    """A directory that is read as a store, with what an origin of a place holds.

    Args:
        origin: The origin.
        directory: Where the view goes.
        cache: What other processes on this machine share.
        patience: How long a reader waits for the place.
        renew: Called when the place lacks something; it reads the place again, and tells whether it
            could.
    """

    def __init__(
        self,
        origin: Origin,
        directory: ViewDirectory,
        cache: Cache,
        patience: Patience,
        renew: Callable[[], bool],
    ) -> None:
        self.origin, self.directory, self.cache = origin, directory, cache
        self.patience, self._renew = patience, renew
        self.view = View()
        #: Held while logs change in the directory: for long, since bytes may have to come.
        self.changing = threading.RLock()
        #: Held for moments, while the view or the tables below change.
        self.lock = threading.RLock()
        self._logs: dict[str, _Log] = {}
        self._files: dict[str, File] = {}
        self._whole: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._coming: dict[tuple[str, int], _Coming] = {}
        self.ahead = Ahead(min(AHEAD_BYTES, cache.most // 4), self._bring_ahead, patience.stop)
        # The view is Rust's, so no collector sees a cycle through it.
        own = weakref.WeakMethod(self._bring)

        def bring(log: str, sequence: int | None, whole: bool) -> None:
            method = own()
            if method is None:
                raise HandleClosed("the store was closed: open it again")
            method(log, sequence, whole)

        self.files = _core.PlaceView(directory.store, bring)
        # Errors of writers name the place, which they find here.
        with self._named():
            directory.path.joinpath("place.url").write_text(origin.place.url, encoding="utf-8")

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Let errors name the cache; say so where it was removed, which a reader does not mend."""
        try:
            with named_after(self.cache.path):
                yield
        except OSError as error:
            pass_on(error)
            self.directory.expect()
            raise

    # --- What the place has now ------------------------------------------------------------------

    def apply(self) -> None:
        """Bring the directory to the view: logs that were read, and small files.

        Settings of topics come after their logs and go before them. A reader in another thread
        would take settings without a log for corruption.
        """
        with self.changing, self._named():
            view = self.view
            for name in view.logs.keys() - self._logs.keys():
                self.files.begin_log(name)
                with self.lock:
                    self._logs[name] = _Log()
            for name in [*self._logs]:
                if name in view.logs and self._logs[name].last is not None:
                    self._update(name, view.logs[name])
            self._apply_files(view.files)
            for name in self._logs.keys() - view.logs.keys():
                self._remove_log(name)

    def _apply_files(self, files: dict[str, File]) -> None:
        for path in self._files.keys() - files.keys():
            self.files.remove_file(path)
            del self._files[path]
        for path, file in files.items():
            before = self._files.get(path)
            if before is not None and before.digest == file.digest:
                continue
            self.files.file(path, file.length, [*self._parts(path, file, before)])
            self._files[path] = replace(file, pieces=list(file.pieces))

    def _parts(self, path: str, file: File, before: File | None) -> Iterator[tuple[int, bytes]]:
        """Read the blocks of a small file: those that did not change from the directory."""
        same = {(each.position, each.length, each.crc) for each in before.pieces} if before else ()
        old = (self.directory.store / path).read_bytes() if same else b""
        for piece in file.pieces:
            if (piece.position, piece.length, piece.crc) in same:
                yield piece.position, old[piece.position : piece.stop]
            else:
                yield (
                    piece.position,
                    self.patience(lambda piece=piece: self.origin.bytes_of(piece)),  # type: ignore[misc]
                )

    def _remove_log(self, name: str) -> None:
        with self.lock:
            del self._logs[name]
            for key in [key for key in self._whole if key[0] == name]:
                del self._whole[key]
        self.files.remove_log(name)

    def _update(self, name: str, log: LogView) -> None:
        """Bring a log to its state in the view, and let readers see it."""
        known = self._logs[name]
        order = [log.segments[sequence] for sequence in sorted(log.segments)]
        last = order[-1]
        if any(each.compaction for each in order):
            self.files.allow_compaction(name)
        old = known.last
        changed = [each for each in order if known.segments.get(each.sequence) != _shape(each)]
        gone = [*(known.segments.keys() - log.segments.keys())]
        if not changed and not gone:
            return
        others = []
        for each in changed:
            if old is not None and each.identity == old.identity:
                self._extend(name, each, old.end)
                continue
            others.append(each.sequence)
            if each is last:
                path = self.directory.temporary()
                self._fill(name, each, path, self.patience)
                self.files.put(name, each.sequence, path)
        following = {one.sequence: later.header for one, later in pairwise(order)}
        sealed = [
            (_told(log.segments[each]), following[each]) for each in others if each in following
        ]
        self.files.publish(name, _told(last), sealed, gone)
        with self.lock:
            known.segments = {sequence: _shape(each) for sequence, each in log.segments.items()}
            known.last = replace(last, pieces=[])
            for sequence in (*others, *gone):
                self._forget_whole(name, sequence)

    def _extend(self, name: str, segment: Segment, end: int) -> None:
        """Store what a segment got behind the end that readers see."""
        for piece in segment.pieces:
            if piece.stop <= end or piece.position >= segment.length:
                continue
            data = self.patience(lambda piece=piece: self.origin.bytes_of(piece))  # type: ignore[misc]
            start = max(piece.position, end)
            stop = min(piece.stop, segment.length)
            self.files.store(name, start, data[start - piece.position : stop - piece.position])

    def _fill(self, name: str, segment: Segment, path: Path, patience: Patience) -> None:
        """Make a whole file of a segment from the place."""
        targets = [
            Target(name, segment.sequence, each, min(each.stop, segment.length) - each.position)
            for each in segment.pieces
            if each.position < segment.length
        ]
        targets.sort(key=lambda each: (each.piece.key, each.piece.offset))
        try:
            self.files.blank(path, name, _told(segment))
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

        def write(target: Target, data: bytes, start: int, stop: int) -> bool:
            found = checked(target, data, start, stop)
            at, rest = target.piece.position, memoryview(found or b"")
            while rest:
                written = os.pwrite(file, rest, at)
                at, rest = at + written, rest[written:]
            return found is not None

        try:
            fetch(self.origin, targets, patience, write, lambda size: None, IN_FLIGHT)
        except BaseException:
            path.unlink(missing_ok=True)  # a view that is closed has removed its directory
            raise
        finally:
            os.close(file)

    # --- What a reader needs ---------------------------------------------------------------------

    def _bring(self, name: str, sequence: int | None, whole: bool) -> None:
        """Bring a log, or a segment of it: the engine calls this before it reads it."""
        if sequence is not None and whole:
            self.ahead.comes_to(name, sequence, lambda: self._sealed_behind(name, sequence))
        try:
            self._bring_or_renew(name, sequence, whole)
        except Stopped:
            url = self.origin.place.url
            raise HandleClosed(f"{url} was closed: open it again") from None

    def _bring_or_renew(self, name: str, sequence: int | None, whole: bool) -> None:
        try:
            self._bring_once(name, sequence, whole)
        except CorruptData:
            # A later checkpoint may have put it elsewhere, and the place deleted it then.
            if not self._renew():
                raise
            self._bring_once(name, sequence, whole)

    def _sealed_behind(self, name: str, sequence: int) -> list[Segment]:
        with self.lock:
            log = self.view.logs.get(name)
            later = sorted(each for each in log.segments if each > sequence) if log else []
            return [log.segments[each] for each in later if log and log.segments[each].sealed]

    def _bring_ahead(self, name: str, sequence: int) -> None:
        with self.lock:
            is_there = self._segment(name, sequence) is not None
        if is_there:
            self._bring_once(name, sequence, whole=True)

    def _bring_once(self, name: str, sequence: int | None, whole: bool) -> None:
        with self._named():
            self._bring_named(name, sequence, whole)

    def _bring_named(self, name: str, sequence: int | None, whole: bool) -> None:
        if sequence is None:
            return self._bring_log(name)
        with self.lock:
            coming = self._coming.setdefault((name, sequence), _Coming())
        began = time.monotonic()
        with coming.lock:  # in no generator, which an exception of a handler's would keep
            if not self.files.stands_in(name, sequence):
                return None
            with self.lock:
                segment = self._segment(name, sequence)
            if segment is None:
                return self._bring_log(name)  # the directory is behind the view
            try:
                patience = coming.patience(self.patience, began)
                return self._bring_segment(name, segment, whole, patience)
            except PlaceUnreachable:
                coming.note()
                raise

    def _segment(self, name: str, sequence: int) -> Segment | None:
        """Return a segment as the view has it, if the directory has that one."""
        log, known = self.view.logs.get(name), self._logs.get(name)
        found = log.segments.get(sequence) if log else None
        if found is None or known is None or known.segments.get(sequence) != _shape(found):
            return None
        return replace(found, pieces=list(found.pieces))

    def _bring_log(self, name: str) -> None:
        with self.changing:
            log = self.view.logs.get(name)
            if log is not None and name in self._logs:
                self._update(name, log)
            elif name in self._logs:
                self.apply()  # settings of its topics go first

    def _bring_segment(self, name: str, segment: Segment, whole: bool, patience: Patience) -> None:
        path = self.directory.temporary()
        if not self.cache.take(self.origin.origin, name, segment, path):
            first = segment.pieces[0] if segment.pieces else None
            if not whole and segment.length > PIECE_MAX and first is not None:
                data = patience(lambda: self.origin.bytes_of(first))
                if first.position == FIRST_BLOCK:
                    self.files.put_beginning(name, segment.sequence, data)
                    return
            self._fill(name, segment, path, patience)
            path.chmod(0o400)
            self.cache.keep(self.origin.origin, name, segment, path)
        size = path.stat().st_blocks * 512
        with self.lock:
            # Another one may have come in its place meanwhile.
            if self._segment(name, segment.sequence) is None:
                path.unlink()
                return
            self.files.put(name, segment.sequence, path)
            self._whole[name, segment.sequence] = size
        self._give_up_beyond_bound((name, segment.sequence))

    def _forget_whole(self, name: str, sequence: int) -> None:
        with self.lock:
            self._whole.pop((name, sequence), None)
            self._coming.pop((name, sequence), None)

    def _give_up_beyond_bound(self, kept: tuple[str, int]) -> None:
        """Let stand-ins take the place of the segments that came first, beyond the bound."""
        with self.lock:
            while sum(self._whole.values()) > self.cache.most and len(self._whole) > 1:
                name, sequence = next(key for key in self._whole if key != kept)
                log = self.view.logs.get(name)
                segment = self._segment(name, sequence)
                later = [each for each in log.segments if each > sequence] if log else []
                if log is not None and segment is not None and later:
                    following = log.segments[min(later)].header
                    self.files.give_up(name, _told(segment), following)
                del self._whole[name, sequence]
