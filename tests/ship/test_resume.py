"""A restore that was stopped, killed, or left by its place goes on where it was."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj import _core
from falaj.errors import CorruptData, InvalidArgument, LockTimeout, PlaceUnreachable
from falaj.ship.place import Listed, Place, open_place
from falaj.ship.restore import restore
from notes import read_notes

SEGMENT = 1 << 18
RECORDS = [os.urandom(1000) * 4 for _ in range(1000)]


class Counting:
    """A place that counts the bytes of pieces that it gave, and calls `before` each of them."""

    def __init__(self, url: str, before: Callable[[int], object] = lambda given: None) -> None:
        self._place: Place = open_place(url)
        self.url, self._before, self.given = self._place.url, before, 0
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        return self._place.get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        with self._lock:
            self._before(self.given)
            self.given += stop - start
        return self._place.get_range(key, start, stop)

    def put_new(self, key: str, body: bytes) -> bool:
        return self._place.put_new(key, body)

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        return self._place.list_after(prefix, after)

    def delete(self, keys: object) -> None:
        raise AssertionError("a restore deletes nothing")


def give(topic: falaj.Topic[bytes], records: list[bytes]) -> None:
    for record in records:
        topic.append(record)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A place with a store of several segments. The last one is not sealed."""
    with falaj.open(tmp_path / "store") as store:
        orders = store.topic("orders", codec="bytes", segment_bytes=SEGMENT)
        give(orders, RECORDS[:700])
        store.ship(tmp_path / "place", once=True)
        give(orders, RECORDS[700:900])
        store.ship(tmp_path / "place", once=True)
    return str(tmp_path / "place")


def records_in(path: Path) -> list[bytes]:
    with falaj.open(path, read_only=True) as copy:
        return [bytes(record.value) for record in copy.topic("orders", codec="bytes")]


def halves(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.name.endswith(".tmp"))


def size_of(url: str, tmp_path: Path) -> int:
    """How many bytes of pieces a restore fetches that is not stopped."""
    place = Counting(url)
    restore(place, str(tmp_path / "whole"))
    return place.given


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[4])
from falaj.ship import fetching
from falaj.ship.restore import restore
from notes import Notes
from ship.test_resume import Counting

fetching.REQUEST_MAX = 1 << 17
notes = Notes(sys.argv[3])

class Slow(Counting):
    def get_range(self, key, start, stop):
        notes.add(stop - start)
        time.sleep(0.02)  # sleep: a kill comes between two requests, too
        return super().get_range(key, start, stop)

restore(Slow(sys.argv[1]), sys.argv[2], in_flight=1 << 19)
"""


def test_a_restore_that_is_killed_many_times_fetches_what_it_lacks(
    url: str, tmp_path: Path
) -> None:
    size, chance = size_of(url, tmp_path), random.Random(4)
    note, kills, before = tmp_path / "fetched", 0, 0
    in_flight = (1 << 19) + (1 << 17)

    def fetched() -> int:
        return sum(int(size) for (size,) in read_notes(note))

    while True:
        tests = str(Path(__file__).parents[1])
        command = [sys.executable, "-c", KILLED, url, str(tmp_path / "copy"), str(note), tests]
        process = subprocess.Popen(command)
        until = before + chance.randint(1, size // 6)
        while process.poll() is None and fetched() < until:
            time.sleep(0.002)  # sleep: another process says only so how far it is
        if process.poll() is not None:
            break
        if chance.random() < 0.5:
            time.sleep(chance.random() / 20)  # sleep: a kill comes anywhere
        process.send_signal(signal.SIGKILL)
        process.wait()
        before, kills = fetched(), kills + 1
        assert before <= size + kills * in_flight, f"{kills} kills"
        assert not (tmp_path / "copy").exists()
    assert process.returncode == 0
    assert kills >= 4
    assert halves(tmp_path) == []
    assert records_in(tmp_path / "copy") == RECORDS[:900]
    assert fetched() <= size + kills * in_flight, f"{kills} kills"


def test_a_place_that_falls_silent_is_gone_on_with(url: str, tmp_path: Path) -> None:
    size = size_of(url, tmp_path)

    def silent(given: int) -> None:
        if given > size // 3:
            raise PlaceUnreachable("the place gives no answer")

    first = Counting(url, silent)
    with pytest.raises(PlaceUnreachable) as failed:
        restore(first, str(tmp_path / "copy"), patience=0, in_flight=1 << 20)
    assert "goes on from there" in failed.value.__notes__[0]
    (half,) = halves(tmp_path)
    told: list[tuple[int, int]] = []
    seen: list[int] = []
    second = Counting(url)
    restore(
        second,
        str(tmp_path / "copy"),
        resumed=lambda there, total: told.append((there, total)),
        progress=lambda done, total: seen.append(done),
    )
    ((there, total),) = told
    assert there > 0
    assert second.given <= size - there
    assert seen[-1] == total
    assert seen == sorted(seen)
    assert first.given + second.given <= size + (1 << 20) + SEGMENT
    assert half not in halves(tmp_path)
    assert records_in(tmp_path / "copy") == RECORDS[:900]


def test_a_kept_exception_keeps_no_lock_of_a_restore(url: str, tmp_path: Path) -> None:
    chance, kept, armed = random.Random(2), list[BaseException](), [False]

    def interrupt(number: int, frame: object) -> None:
        if armed[0]:
            armed[0] = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for turn in range(12):
            armed[0] = True
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.005, 0.1))
            try:
                falaj.restore(url, tmp_path / f"{turn}")
                armed[0] = False
            except KeyboardInterrupt as error:
                kept.append(error)  # as sys.last_value keeps it
            signal.setitimer(signal.ITIMER_REAL, 0)
            if not (tmp_path / f"{turn}").exists():
                falaj.restore(url, tmp_path / f"{turn}")
            assert records_in(tmp_path / f"{turn}") == RECORDS[:900]
    finally:
        signal.signal(signal.SIGALRM, before)
    assert kept


def test_an_interrupt_waits_for_writes_and_is_masked_by_none(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = threading.Event()
    build = _core.StoreBuilder

    class Slow:
        """A builder whose small files take time in another thread."""

        def __init__(self, *given: Any, **named: Any) -> None:
            self._below = build(*given, **named)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._below, name)

        def file(self, *given: Any) -> None:
            began.set()
            time.sleep(0.2)  # sleep: a file is synced
            self._below.file(*given)

    def interrupt(done: int, total: int) -> None:
        began.wait(10)
        raise KeyboardInterrupt

    with monkeypatch.context() as slow:
        slow.setattr(_core, "StoreBuilder", Slow)
        with pytest.raises(KeyboardInterrupt) as kept:
            falaj.restore(url, tmp_path / "copy", progress=interrupt)
    assert "goes on from there" in kept.value.__notes__[0]
    falaj.restore(url, tmp_path / "copy")
    assert records_in(tmp_path / "copy") == RECORDS[:900]


def test_an_interrupted_restore_goes_on_at_a_later_number(url: str, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        falaj.restore(url, tmp_path / "copy", progress=interrupt)
    assert str(tmp_path / "copy") in stopped.value.__notes__[0]
    with falaj.open(tmp_path / "store") as store:
        give(store.topic("orders", codec="bytes"), RECORDS[900:])
        store.ship(url, once=True)
    place = Counting(url)
    done = restore(place, str(tmp_path / "copy"))
    assert place.given < done["bytes"] * 0.6
    assert records_in(tmp_path / "copy") == RECORDS


def test_where_others_may_make_directories_a_restore_begins_again(url: str, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(KeyboardInterrupt) as stopped:
        falaj.restore(url, shared / "copy", progress=interrupt)
    assert not hasattr(stopped.value, "__notes__")
    assert list(shared.iterdir()) == []
    falaj.restore(url, shared / "copy")
    assert records_in(shared / "copy") == RECORDS[:900]


def test_a_second_restore_to_the_same_path_is_refused(url: str, tmp_path: Path) -> None:
    refused: list[str] = []

    def again(_given: int) -> None:
        if not refused:
            with pytest.raises(LockTimeout) as error:
                falaj.restore(url, tmp_path / "copy")
            refused.append(str(error.value))

    restore(Counting(url, again), str(tmp_path / "copy"))
    assert "another process that makes the same store" in refused[0]
    assert records_in(tmp_path / "copy") == RECORDS[:900]


def test_corruption_and_misuse_leave_nothing_to_go_on_with(url: str, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(InvalidArgument):
        falaj.restore(url, tmp_path / "taken")
    for object_ in Path(url).glob("*/o/*/[sk]/*"):
        body = bytearray(object_.read_bytes())
        body[len(body) // 2] ^= 1
        object_.write_bytes(body)
    with pytest.raises(CorruptData) as error:
        falaj.restore(url, tmp_path / "copy")
    assert not hasattr(error.value, "__notes__")
    assert halves(tmp_path) == []


def test_bytes_that_changed_meanwhile_are_fetched_again(url: str, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        falaj.restore(url, tmp_path / "copy", progress=stop)
    (half,) = tmp_path.glob("copy.*.tmp")
    logs = sorted(half.glob("logs/*/*.log"))
    assert len(logs) > 5
    torn = logs[1].read_bytes()
    logs[1].write_bytes(torn[: len(torn) // 2])  # as a power failure may leave it
    logs[2].write_bytes(bytes(len(torn)))
    logs[3].unlink()
    place = Counting(url)
    restore(place, str(tmp_path / "copy"))
    assert SEGMENT < place.given < 5 * SEGMENT
    assert records_in(tmp_path / "copy") == RECORDS[:900]
