"""The states of a place that a reader sees: each one is a beginning of the next."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import HistoryDeleted, ObjectMissing, RecordCompacted
from falaj.ship import reader as reading
from falaj.ship import shipper as shipping
from falaj.ship.place import error, open_place
from falaj.ship.shipper import Options
from ship.test_reader import SEGMENT, WRITER, Watched, until, watched
from ship.test_ship import records_of

__all__ = ["watched"]


def test_checkpoints_and_deleted_numbers_are_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "CHECKPOINT_NUMBERS", 4)
    monkeypatch.setattr(reading, "SILENCE_S", 0.2)
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        topic.append(b"0")
        shipper = shipping.Shipper(store, open_place(tmp_path / "place"), Options(history=0.0))
        shipper._claim()
        shipper.turn()
        options: Any = {"cache": tmp_path / "cache"}
        with (
            falaj.open_place(tmp_path / "place", **options) as reader,
            falaj.open_place(tmp_path / "place", **options, follow=False) as late,
        ):
            assert len(reader.topic("orders")) == len(late.topic("orders")) == 1
            behind = late.place.number + 1
            for n in range(1, 40):
                topic.append(b"%d" % n * 3000)
                shipper.turn()
                shipper.care()
            assert not list((tmp_path / "place").rglob(f"n/{behind:020}"))
            number = shipper.shipped.number
            until(reader, number)
            assert records_of(reader) == records_of(store)
            time.sleep(0.2)  # sleep: the place was silent for so long
            late.refresh()
            assert late.place.number == number
            assert records_of(late) == records_of(store)


def test_a_reader_goes_on_where_each_of_its_looks_comes_after_a_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SILENCE_S", 0.0)
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"0")
        store.ship(tmp_path / "place", once=True)
        options: Any = {"cache": tmp_path / "cache"}
        with (
            falaj.open_place(tmp_path / "place", **options) as reader,
            falaj.open_place(tmp_path / "place", **options, follow=False) as late,
        ):
            store.topic("orders").append(b"1")
            number = store.ship(tmp_path / "place", once=True)["number"]
            until(reader, number)  # no checkpoint leads there
            late.refresh()
            assert late.place.number == number


def test_what_was_deleted_from_the_place_is_read_from_a_later_state(
    tmp_path: Path, watched: Callable[[object], Watched]
) -> None:
    gone: list[str] = []

    def delete(key: str) -> None:
        """Let the first object be gone, as after a checkpoint that put its bytes elsewhere."""
        if not gone and "/k/" in key:
            gone.append(key)
            raise error(ObjectMissing, f"{key} is gone", place.url, key)

    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(100):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
        place = watched(tmp_path / "place")
        with falaj.open_place("any", cache=tmp_path / "cache", follow=False) as reader:
            before = reader.place.number
            topic.append(b"100" * 1000)
            store.ship(tmp_path / "place", once=True)
            place.before = delete
            assert list(reader.topic("orders"))
            assert gone
            assert reader.place.number > before
            assert records_of(reader) == records_of(store)


def test_what_compaction_removed_is_compacted_for_readers(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT, compacted=True)
        for n in range(300):
            topic.append(b"%d" % n * 300, key=b"k%d" % (n % 7))
        store.ship(tmp_path / "place", once=True)
        with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader:
            orders = reader.topic("orders")
            assert len(orders) == 300
            topic.compact(seal=True)
            assert len(list(topic)) == 7
            until(reader, store.ship(tmp_path / "place", once=True)["number"])
            later = falaj.open_place(tmp_path / "place", cache=tmp_path / "cache")
            with later:
                for each in (orders, later.topic("orders")):
                    assert [r.offset for r in each] == [r.offset for r in topic]
                    with pytest.raises(RecordCompacted):
                        each[3]


def test_a_reader_that_pauses_behind_an_older_checkpoint_never_goes_back(
    tmp_path: Path, watched: Callable[[object], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "CHECKPOINT_NUMBERS", 1000)
    monkeypatch.setattr(reading, "SILENCE_S", 1e9)
    asked: list[str] = []
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        shipper = shipping.Shipper(store, open_place(tmp_path / "place"), Options(history=0.0))
        shipper._claim()

        def ship() -> None:
            topic.append(os.urandom(3000))
            shipper.turn()

        def pause(key: str) -> None:
            """Let the number behind the checkpoint be deleted before the reader gets it."""
            if "/n/" in key:
                asked.append(key)
            while asked == [key] and (tmp_path / "place" / key).exists():
                ship()
                shipper.checkpoint()

        ship()
        place = watched(tmp_path / "place")
        with falaj.open_place("any", cache=tmp_path / "cache", follow=False) as reader:
            ship()
            shipper.checkpoint()
            for _ in range(3):
                ship()
            # It passes the checkpoint without a look at it.
            reader.refresh()
            seen, orders = reader.place.number, [r.to_bytes() for r in reader.topic("orders")]
            assert len(orders) == 5
            monkeypatch.setattr(reading, "SILENCE_S", 0.0)
            place.before = pause
            reader.refresh()
            assert not (tmp_path / "place" / asked[0]).exists()
            assert int(asked[0][-20:]) <= seen
            assert reader.place.number > seen
            assert records_of(reader) == records_of(store)
            assert [r.to_bytes() for r in reader.topic("orders")[:5]] == orders


def test_a_place_that_lost_its_end_is_an_error_and_readers_keep_what_they_see(
    tmp_path: Path,
) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders")
        for n in range(3):
            topic.append(b"%d" % n)
            store.ship(tmp_path / "place", once=True)
        with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache", follow=False) as reader:
            seen = reader.place.number
            assert len(reader.topic("orders")) == 3
            *_, last = sorted((tmp_path / "place").rglob("n/*"))
            last.unlink()
            reader._reader._driver = None  # as after an error: it reads the place again
            with pytest.raises(HistoryDeleted, match=f"had {seen} before"):
                reader.refresh()
            assert reader.place.number == seen
            assert isinstance(reader.place.error, HistoryDeleted)
            assert [record.to_bytes() for record in reader.topic("orders")] == [b"0", b"1", b"2"]


class Interrupted:
    """The files of a view; each change is followed by a look, as of a reader at that moment."""

    def __init__(self, inner: Any, look: Callable[[str], None]) -> None:
        self.inner, self.look = inner, look

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)

        def called(*given: Any) -> Any:
            result = call(*given)
            self.look(name)
            return result

        return called if name in ("put", "stand_in", "store", "publish", "remove_segment") else call


def test_a_reader_never_meets_a_segment_whose_successor_is_not_there_yet(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders", segment_bytes=SEGMENT).append(b"0 " * 50)
        store.ship(place, once=True)
    options: Any = {"cache": tmp_path / "cache", "follow": False}
    with falaj.open_place(place, **options) as reader, ThreadPoolExecutor(8) as pool:
        seen, looks = 1, list[Future[int]]()

        def look() -> int:
            topic = reader.topic("orders")  # it opens the log again
            end = topic.end_offset
            found = [record.to_bytes() for record in topic]
            assert found == [b"%d " % n * 50 for n in range(len(found))]
            assert end <= len(found)
            assert topic[-1].offset >= end - 1
            return end

        def change(name: str) -> None:
            looks.append(pool.submit(look))
            wait(looks, 0.3)  # it may have to wait for what it needs until all is changed

        replica = reader._reader.replica
        replica.files = Interrupted(replica.files, change)  # type: ignore[assignment]
        for _ in range(3):
            command = [sys.executable, "-c", WRITER, str(tmp_path / "store")]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
                assert writer.stdout is not None
                writer.stdout.readline()
                writer.kill()
            gc.collect()  # the shipper of before keeps the log open
            # A block that it did not finish: the next segment supersedes.
            last = max((tmp_path / "store" / "logs").glob("*/*.log"))
            with last.open("r+b") as file:
                file.seek(-(-len(file.read().rstrip(b"\0")) // 8) * 8)
                file.write(b"\1" * 200)
            with falaj.open(tmp_path / "store") as store:
                mine = store.topic("orders")
                for n in range(mine.end_offset, mine.end_offset + 700):
                    mine.append(b"%d " % n * 50)
                store.ship(place, once=True)
            reader.refresh()
            ends = [each.result() for each in looks]
            assert ends == sorted(ends)
            assert {seen, n + 1} >= set(ends)
            looks.clear()
            seen = reader.topic("orders").end_offset
            assert seen == n + 1
