"""Segments that a scan of a place comes to next are fetched ahead of it, and no others."""

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

import falaj
from falaj.errors import PlaceUnreachable
from falaj.ship import ahead as fetching_ahead
from falaj.ship import replica
from falaj.ship.ahead import Ahead
from falaj.ship.objects import Patience
from falaj.ship.shapes import Segment
from ship.test_reader import SEGMENT, Watched, watched

__all__ = ["watched"]

WAIT_S = 30.0


class Length(NamedTuple):
    """A segment, as far as it matters here."""

    sequence: int
    length: int


class Log:
    """A log of segments of one byte; a scan lacks those that were not brought."""

    def __init__(self, segments: int, most: int) -> None:
        self.segments = segments
        self.brought: list[int] = []
        self.error: Exception | None = None
        self.stop = threading.Event()
        self.may = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.ahead = Ahead(most, self._bring, self.stop)

    def _bring(self, log: str, sequence: int) -> None:
        self.begun.release()
        assert self.may.acquire(timeout=WAIT_S)
        if self.error is not None:
            raise self.error
        self.brought.append(sequence)

    def come_to(self, sequence: int, log: str = "log") -> None:
        behind = [Length(each, 1) for each in range(sequence + 1, self.segments)]
        self.ahead.comes_to(log, sequence, lambda: behind)  # type: ignore[arg-type, return-value]

    def bring_all(self) -> list[int]:
        """Let everything come that is wanted, and return it."""
        for _ in range(self.segments):
            self.may.release()
        for thread in [*self.ahead._threads]:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        found = sorted(self.brought)
        self.brought.clear()
        return found


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log(64, most=8)
    yield made
    made.stop.set()
    made.bring_all()


def test_no_more_is_fetched_ahead_than_was_read_in_order(log: Log) -> None:
    read = 0
    at = 0
    while at < 40:
        log.come_to(at)
        read += 1
        ahead = log.bring_all()
        assert ahead == [*range(at + 1, at + 1 + len(ahead))]
        assert len(ahead) <= min(read, 8)
        read += len(ahead)
        at += 1 + len(ahead)
    log.come_to(at)
    assert len(log.bring_all()) == 8, "a long scan gets all that the bound allows"


def test_a_reader_that_jumps_gets_nothing_ahead(log: Log) -> None:
    for sequence in (3, 9, 5, 30, 29, 28, 3, 3):
        log.come_to(sequence)
        assert log.bring_all() == []


def test_the_next_segments_come_while_the_scan_waits_for_one(log: Log) -> None:
    log.come_to(0)
    log.come_to(1)
    assert log.begun.acquire(timeout=WAIT_S)
    log.come_to(2)  # it is on its way, so the reader waits for it
    assert log.begun.acquire(timeout=WAIT_S), "segment 3 begins meanwhile"
    assert log.bring_all() == [2, 3, 4]


def test_threads_that_scan_one_log_at_two_places_both_get_theirs(log: Log) -> None:
    def other() -> None:
        log.come_to(30)

    log.come_to(0)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    log.come_to(1)
    assert log.bring_all() == [2]


def test_scans_of_several_logs_share_the_bound(log: Log) -> None:
    names = ("one", "two", "three", "four")
    at, ahead = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for _ in range(8):
        for name in names:
            log.come_to(at[name], name)
            ahead[name] = len(log.bring_all())
            at[name] += 1 + ahead[name]
    assert ahead == dict.fromkeys(names, 8 // len(names))
    log.come_to(at["four"], "four")
    assert len(log.bring_all()) == 4, "the others stopped, and it doubles what it gets again"


def test_an_error_is_left_to_the_reader_and_ends_what_is_fetched_ahead(log: Log) -> None:
    log.error = OSError("no answer")
    for sequence in (0, 1, 2, 3):
        log.come_to(sequence)
    begun = [log.begun.acquire(timeout=WAIT_S) for _ in range(fetching_ahead._THREADS)]
    assert all(begun), "one for each thread"
    assert log.bring_all() == []
    assert not log.begun.acquire(blocking=False), "the others are not tried"
    log.error = None
    log.come_to(4)
    assert log.bring_all()[:1] == [5]


def test_nothing_is_wanted_once_the_view_is_closed(log: Log) -> None:
    for sequence in (0, 1, 2, 3):
        log.come_to(sequence)
    assert log.begun.acquire(timeout=WAIT_S)
    log.stop.set()
    log.may.release(8)
    log.ahead.close()
    assert len(log.brought) <= fetching_ahead._THREADS
    log.brought.clear()
    log.come_to(4)
    assert log.bring_all() == []


def test_a_bound_below_one_segment_fetches_nothing_ahead() -> None:
    small = Log(64, most=0)
    for sequence in range(20):
        small.come_to(sequence)
        assert small.bring_all() == []


@pytest.fixture
def place(tmp_path: Path, watched: Callable[[object], Watched]) -> Watched:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(1000):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
    return watched(tmp_path / "place")


def test_a_scan_of_a_place_finds_segments_here_and_fetches_each_once(
    tmp_path: Path, place: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[str, int]] = []
    fill = replica.Replica._fill
    main = threading.current_thread()

    def filled(
        self: replica.Replica, name: str, segment: Segment, path: Path, patience: Patience
    ) -> None:
        who = "reader" if threading.current_thread() is main else "ahead"
        fetched.append((who, segment.sequence))
        fill(self, name, segment, path, patience)

    monkeypatch.setattr(replica.Replica, "_fill", filled)
    with falaj.open_place("any", cache=tmp_path / "cache", follow=False) as reader:
        topic = reader.topic("orders")
        assert [r.to_bytes() for r in topic] == [b"%d" % n * 1000 for n in range(1000)]
    sequences = [sequence for _, sequence in fetched]
    assert len(sequences) == len({*sequences})
    assert sum(each == "ahead" for each, _ in fetched) >= len(fetched) // 2
    assert not [each for each in threading.enumerate() if each.name == "falaj-ahead"]


def test_single_records_and_the_end_of_a_place_bring_nothing_ahead(
    tmp_path: Path, place: Watched
) -> None:
    with falaj.open_place("any", cache=tmp_path / "cache", follow=False) as reader:
        topic = reader.topic("orders")
        for offset in (999, 10, 500, 250):
            assert topic[offset].to_bytes() == b"%d" % offset * 1000
        assert not reader._reader.replica.ahead._threads
        assert place.fetched() < 20 * SEGMENT


def test_a_scan_of_a_place_out_of_reach_gets_its_error_and_goes_on_later(
    tmp_path: Path, place: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("falaj.ship.reader.PATIENCE_S", 0.1)
    with falaj.open_place("any", cache=tmp_path / "cache", follow=False) as reader:
        records = iter(reader.topic("orders"))
        offsets = [next(records).offset for _ in range(300)]
        place.down = True
        with pytest.raises(PlaceUnreachable):
            offsets.extend(record.offset for record in records)
        place.down = False
        offsets.extend(record.offset for record in reader.topic("orders")[offsets[-1] + 1 :])
        assert offsets == [*range(1000)]
        assert all(one < two for one, two in pairwise(offsets))
