"""Reading a place as a store: the same figures, only what is needed, and every change."""

import asyncio
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import (
    CorruptData,
    InvalidArgument,
    NotWritable,
    PlaceUnreachable,
    TopicDeleted,
)
from falaj.ship import cache as caching
from falaj.ship import reader as reading
from falaj.ship.place import Listed, Place, error, open_place
from ship.test_ship import fill, records_of

SEGMENT = 1 << 16
SECONDS = 30.0


class Watched:
    """A place that counts reads, and can be out of reach."""

    def __init__(self, below: Place) -> None:
        self.below, self.url = below, below.url
        self.read: list[tuple[str, int]] = []
        self.down = False
        self.before: Callable[[str], None] = lambda key: None

    def _pass(self, key: str, size: int) -> None:
        if self.down:
            raise error(PlaceUnreachable, f"{self.url}/{key} gives no answer", self.url, key)
        self.before(key)
        self.read.append((key, size))

    def get(self, key: str) -> bytes | None:
        self._pass(key, 0)
        return self.below.get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        self._pass(key, stop - start)
        return self.below.get_range(key, start, stop)

    def put_new(self, key: str, body: bytes) -> bool:
        return self.below.put_new(key, body)

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        self._pass(prefix, 0)
        return self.below.list_after(prefix, after)

    def delete(self, keys: Sequence[str]) -> None:
        self.below.delete(keys)

    def fetched(self) -> int:
        """Bytes of segments that were read since the last call."""
        found = sum(size for _, size in self.read)
        self.read.clear()
        return found


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], Watched]:
    """Let readers open a place that is watched."""

    def watch(url: object) -> Watched:
        place = Watched(open_place(url))  # type: ignore[arg-type]
        monkeypatch.setattr("falaj.ship.place.open_place", lambda url, **options: place)
        return place

    return watch


def until(reader: falaj.PlaceStore, number: int) -> None:
    """Wait until a reader has a number."""
    begun = time.monotonic()
    while reader.place.number < number:
        assert time.monotonic() - begun < SECONDS, reader.place
        time.sleep(0.01)  # sleep: a reader wakes no process when it has a number


def test_a_place_is_read_record_by_record_as_its_store(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("falaj.ship.place.open_place", lambda url, **options: place)
    with falaj.open(tmp_path / "store") as store:
        fill(store)
        store.ship(place.url, once=True)
        with falaj.open_place(place.url, cache=tmp_path / "cache") as reader:
            assert records_of(reader) == records_of(store)
            assert reader.id == store.id
            assert not reader.writable
            assert reader.groups["readers"]["partitions"] == store.groups["readers"]["partitions"]
            mine, theirs = reader.topic("orders"), store.topic("orders")
            assert (len(mine), mine.end_offset) == (len(theirs), theirs.end_offset)
            for slice_ in (slice(-10, None), slice(1990, 1995), slice(None, None, None)):
                assert [r.to_bytes() for r in mine[slice_]] == [
                    r.to_bytes() for r in theirs[slice_]
                ]
            assert mine[-1].to_bytes() == theirs[-1].to_bytes()


def test_frames_of_a_place_are_those_of_its_store(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", codec="json", segment_bytes=SEGMENT)
        for start in range(0, 5000, 50):
            topic.extend([{"n": n, "text": "x" * 100} for n in range(start, start + 50)])
        store.ship(tmp_path / "place", once=True)
        with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader:
            mine = reader.topic("orders", codec="json")
            assert mine.to_arrow() == topic.to_arrow()
            frames = [polars.from_arrow(each.to_arrow()) for each in (mine, topic)]
            assert frames[0].equals(frames[1])
            orders = mine.to_arrow()  # noqa: F841  # the query names it
            assert duckdb.sql("select count(*) from orders").fetchall() == [(5000,)]


def test_the_last_record_brings_no_more_than_the_end_of_the_log(
    tmp_path: Path, watched: Callable[[object], Watched]
) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(500):
            topic.append(b"%d" % n * 1000)
        for n in range(50):
            store.topic(f"other{n}").append(b"x" * 10_000)
        store.ship(tmp_path / "place", once=True)
        place = watched(tmp_path / "place")
        with falaj.open_place("any", cache=tmp_path / "cache") as reader:
            settings = place.fetched()
            assert settings < SEGMENT
            assert reader.topic("orders")[-1].to_bytes() == b"499" * 1000
            assert place.fetched() < 3 * SEGMENT
            assert len(list((tmp_path / "cache" / "segments").iterdir())) <= 1
            assert [r.to_bytes() for r in reader.topic("orders")] == [
                b"%d" % n * 1000 for n in range(500)
            ]
            assert place.fetched() > 10 * SEGMENT
        with falaj.open_place("any", cache=tmp_path / "cache") as again:
            place.fetched()
            assert len([*again.topic("orders")]) == 500
            assert place.fetched() < 2 * SEGMENT  # all sealed segments are in the cache


def test_a_large_segment_is_searched_by_its_beginning_alone(
    tmp_path: Path, watched: Callable[[object], Watched]
) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=24 << 20)
        for n in range(80):
            topic.append(bytes([n]) * (1 << 20))
        store.ship(tmp_path / "place", once=True)
        place = watched(tmp_path / "place")
        with falaj.open_place("any", cache=tmp_path / "cache") as reader:
            assert reader.topic("orders")[-1].to_bytes()[:1] == bytes([79])
            assert place.fetched() < 32 << 20
            assert reader.topic("orders")[30].to_bytes()[:1] == bytes([30])
            assert place.fetched() < 40 << 20


def test_a_follower_gets_what_is_shipped_later(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        topic.append(b"0" * 1000)
        store.ship(tmp_path / "place", once=True)
        with (
            falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader,
            reader.topic("orders").follow(timeout=SECONDS) as follower,
        ):
            assert next(follower).to_bytes() == b"0" * 1000
            for n in range(1, 200, 10):
                for each in range(n, n + 10):
                    topic.append(b"%d" % each * 1000)
                store.ship(tmp_path / "place", once=True)
                got = [next(follower).to_bytes() for _ in range(10)]
                assert got == [b"%d" % each * 1000 for each in range(n, n + 10)]


def segments_of(store: falaj.Store) -> list[str]:
    """List the files of segments, which all logs of the store have."""
    logs = store.path / "logs"
    return sorted(str(file.relative_to(logs)) for file in logs.glob("*/*.log"))


def change(store: falaj.Store, chance: random.Random) -> None:
    """Change a store in some way."""
    names = ["a", "b", "c"]
    name = chance.choice(names)
    what = chance.random()
    if what < 0.08:
        if name in store.topics:
            store.delete_topic(name)
        return
    topic = store.topic(name, segment_bytes=SEGMENT, compacted=name == "c")
    if what < 0.16 and topic.end_offset > 10:
        topic.trim(before_offset=topic.end_offset - 5)
    elif what < 0.24 and name == "c":
        topic.compact()
    else:
        for _ in range(chance.randrange(1, 40)):
            key = b"k%d" % chance.randrange(4)
            topic.append(os.urandom(chance.randrange(1, 6000)), key=key)


@pytest.mark.parametrize("seed", range(4))
def test_each_state_that_is_read_is_one_that_was_shipped(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with falaj.open(tmp_path / "store") as store:
        store.topic("a", segment_bytes=SEGMENT).append(b"first")
        number = store.ship(tmp_path / "place", once=True)["number"]
        with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader:
            for step in range(40):
                change(store, chance)
                number = store.ship(tmp_path / "place", once=True)["number"]
                if chance.random() < 0.5:
                    continue
                until(reader, number)
                assert records_of(reader) == records_of(store), (seed, step)
                assert segments_of(reader) == segments_of(store), (seed, step)
            until(reader, number)
            falaj.restore(tmp_path / "place", tmp_path / "copy", to_number=number)
            with falaj.open(tmp_path / "copy", read_only=True) as copy:
                assert records_of(copy) == records_of(reader)


def test_a_deleted_topic_is_deleted_for_readers(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"old")
        store.ship(tmp_path / "place", once=True)
        with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader:
            old = reader.topic("orders")
            assert len(old) == 1
            store.delete_topic("orders")
            store.topic("orders").append(b"new")
            until(reader, store.ship(tmp_path / "place", once=True)["number"])
            with pytest.raises(TopicDeleted):
                list(old)
            assert [r.to_bytes() for r in reader.topic("orders")] == [b"new"]


WRITER = """
import os, sys, falaj
store = falaj.open(sys.argv[1])
topic = store.topic("orders", segment_bytes=1 << 16, sync="none")
n = topic.end_offset
while True:
    topic.append(b"%d " % n * 50)
    n += 1
    if n % 50 == 0:
        print(n, flush=True)
"""


def test_a_log_that_goes_on_after_kills_is_read_on(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders", segment_bytes=SEGMENT).append(b"0 " * 50)
        store.ship(tmp_path / "place", once=True)
    with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader:
        topic = reader.topic("orders")
        for _ in range(6):
            command = [sys.executable, "-c", WRITER, str(tmp_path / "store")]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
                assert writer.stdout is not None
                writer.stdout.readline()
                writer.send_signal(signal.SIGKILL)
            with falaj.open(tmp_path / "store") as store:
                until(reader, store.ship(tmp_path / "place", once=True)["number"])
                assert records_of(reader) == records_of(store)
        wanted = [b"%d " % n * 50 for n in range(len(topic))]
        assert [r.to_bytes() for r in topic] == wanted


def test_a_reader_out_of_reach_keeps_what_it_has_and_says_so(
    tmp_path: Path, watched: Callable[[object], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", 0.3)
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(200):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
        place = watched(tmp_path / "place")
        with falaj.open_place("any", cache=tmp_path / "cache") as reader:
            orders = reader.topic("orders")
            assert orders[-1].to_bytes() == b"199" * 1000
            place.down = True
            begun = time.monotonic()
            while reader.place.error is None:
                assert time.monotonic() - begun < SECONDS
                time.sleep(0.01)  # sleep: the reader notices at its next look
            assert isinstance(reader.place.error, PlaceUnreachable)
            assert orders[-1].to_bytes() == b"199" * 1000
            with pytest.raises(PlaceUnreachable, match=str(tmp_path / "place")):
                list(orders)
            place.down = False
            assert len(list(orders)) == 200
            topic.append(b"later")
            until(reader, store.ship(place.below.url, once=True)["number"])
            assert orders[-1].to_bytes() == b"later"
            assert reader.place.error is None


def test_corrupt_pieces_of_a_place_are_an_error_that_names_the_object(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(200):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
    for file in (tmp_path / "place").rglob("s/*"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.chmod(0o600)
        file.write_bytes(data)
    with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader:
        with pytest.raises(CorruptData, match="/s/") as raised:
            list(reader.topic("orders"))
        assert "/s/" in str(raised.value.path)


@pytest.mark.parametrize("damage", ["flip", "truncate", "grow"])
def test_corrupt_files_of_the_cache_are_fetched_again(tmp_path: Path, damage: str) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(200):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
        wanted = records_of(store)
    with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader:
        assert records_of(reader) == wanted
    for file in (tmp_path / "cache" / "segments").iterdir():
        data = bytearray(file.read_bytes())
        file.chmod(0o600)
        match damage:
            case "flip":
                data[random.Random(file.name).randrange(8192, len(data))] ^= 16
            case "truncate":
                del data[len(data) // 2 :]
            case _:
                data += bytes(4096)
        file.write_bytes(data)
    with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader:
        assert records_of(reader) == wanted


def held_bytes(directory: Path) -> int:
    """Add up the files below a directory; what threads remove meanwhile, it no longer holds."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(folder, name).stat().st_blocks * 512
    return total


def test_the_cache_keeps_its_bound_and_readers_what_they_hold(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(600):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
    bound = 4 * SEGMENT
    cache = tmp_path / "cache"
    with falaj.open_place(tmp_path / "place", cache=cache, cache_bytes=bound) as reader:
        orders = reader.topic("orders")
        held = []
        for record in itertools.chain(orders, orders[100:], orders[50:60]):
            held.append((record.offset, record.raw))
            assert held_bytes(cache / "segments") <= bound
            assert held_bytes(cache / "views") <= 3 * bound
        for offset, raw in held:
            assert bytes(raw or b"") == b"%d" % offset * 1000


def test_the_cache_is_within_its_bound_again_once_a_reader_begins_after_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(600):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
    bound, cache = 4 * SEGMENT, tmp_path / "cache"
    given: Any = {"cache": cache, "cache_bytes": bound}
    with monkeypatch.context() as patched:
        # Each dies behind the name of a segment in the cache, and before it removes others.
        patched.setattr(caching.Cache, "shrink", lambda cache, more=0: None)
        with falaj.open_place(tmp_path / "place", **given) as reader:
            assert len(list(reader.topic("orders"))) == 600
    assert held_bytes(cache / "segments") > 2 * bound
    with falaj.open_place(tmp_path / "place", **given):
        assert held_bytes(cache / "segments") <= bound


READER = """
import sys, random, falaj
place, cache, seed = sys.argv[1:]
with falaj.open_place(place, cache=cache, cache_bytes=1 << 19) as reader:
    chance = random.Random(int(seed))
    orders = reader.topic("orders")
    print("reads", flush=True)
    while True:
        n = chance.randrange(len(orders))
        for record in orders[n : n + 20]:
            assert record.to_bytes() == b"%d" % record.offset * 1000, record.offset
"""


def test_processes_that_are_killed_leave_a_cache_that_others_use(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(600):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
        wanted = records_of(store)
    chance, cache = random.Random(5), tmp_path / "cache"
    for round_ in range(6):
        running = []
        for one in range(2):
            arguments = [str(tmp_path / "place"), str(cache), str(round_ * 2 + one)]
            command = [sys.executable, "-c", READER, *arguments]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        time.sleep(chance.random() / 4)  # sleep: the kill comes at a random moment
        for process in running:
            assert process.poll() is None
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        assert len([each for each in (cache / "views").iterdir() if each.is_dir()]) >= 2
        with falaj.open_place(tmp_path / "place", cache=cache) as reader:
            assert len([each for each in (cache / "views").iterdir() if each.is_dir()]) == 1
            assert records_of(reader) == wanted
    assert [each.name for each in (cache / "views").iterdir()] == ["lock"]


def test_afollow_gets_what_is_shipped_later(tmp_path: Path) -> None:
    async def run() -> list[bytes]:
        got: list[bytes] = []
        with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader:
            async for record in reader.topic("orders").afollow(timeout=SECONDS):
                got.append(record.to_bytes())
                if len(got) == 6:
                    break
                topic.append(b"%d" % len(got))
                await asyncio.to_thread(store.ship, tmp_path / "place", once=True)
        return got

    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders")
        topic.append(b"0")
        store.ship(tmp_path / "place", once=True)
        assert asyncio.run(run()) == [b"%d" % n for n in range(6)]


def test_a_place_is_read_with_pread(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(200):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
        given: Any = {"cache": tmp_path / "cache", "io": "pread"}
        with falaj.open_place(tmp_path / "place", **given) as reader:
            assert records_of(reader) == records_of(store)
            held = list(reader.topic("orders"))
            maps = Path("/proc/self/maps").read_text().splitlines()
            ours = os.fspath(tmp_path / "cache")  # other tests of this process may have maps
            assert not [line for line in maps if ours in line and ".log" in line]
            assert held[-1].to_bytes() == b"199" * 1000
            with reader.topic("orders").follow("latest", timeout=SECONDS) as follower:
                topic.append(b"later")
                store.ship(tmp_path / "place", once=True)
                assert next(follower).to_bytes() == b"later"
            assert records_of(reader) == records_of(store)


FORKS = """
import os, sys, falaj
place, cache = sys.argv[1:]
with falaj.open_place(place, cache=cache) as reader:
    orders = reader.topic("orders")
    assert len(orders) == 200 and orders[-1].to_bytes() == b"199" * 1000
    child = os.fork()
    if child == 0:
        print(len(list(orders)), flush=True)
        reader.close()
        with falaj.open_place(place, cache=cache) as own:
            print(len(list(own.topic("orders"))), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(len(list(orders)), flush=True)
"""


def test_a_forked_child_opens_the_place_itself_and_leaves_its_parents_view(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(200):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    command += [str(tmp_path / "place"), str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["200", "200", "200"]


def test_nothing_is_written_through_a_place(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"one")
        store.ship(tmp_path / "place", once=True)
    with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader:
        orders = reader.topic("orders")
        writes: list[Callable[[], Any]] = [
            lambda: orders.append(b"two"),
            lambda: orders.extend([b"two"]),
            lambda: orders.trim(before_offset=1),
            lambda: orders.tombstone(b"key"),
            lambda: orders.finish(),
            lambda: orders.flush(),
            lambda: orders.configure(retention_bytes=1 << 30),
            lambda: orders.stage("job", "0"),
            lambda: orders.abort_bulk_load("job"),
            lambda: orders.sweep_bulk_loads(0),
            lambda: orders.forget_idempotency_key("series"),
            lambda: orders.forget_producer("till"),
            lambda: reader.configure(retention_bytes=1 << 30),
            lambda: reader.maintain(),
            lambda: reader.delete_group("group"),
            lambda: reader.delete_queue("queue"),
            lambda: reader.forget_topic("group", "orders"),
            lambda: reader.seek_group("group", "orders", 0),
            lambda: reader.queue("queue", orders),
            lambda: reader.delete_topic("orders"),
            lambda: reader.consumer("group", "orders"),
            lambda: reader.ship(tmp_path / "other", once=True),
        ]
        for write in writes:
            with pytest.raises(NotWritable, match="shipped there"):
                write()
        assert [r.to_bytes() for r in orders] == [b"one"]


def test_a_url_of_a_place_is_opened_for_reading_alone(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"one")
        store.ship("memory://open", once=True)
    with pytest.raises(InvalidArgument, match="read_only=True"):
        falaj.open("memory://open")
    with falaj.open("memory://open", read_only=True) as reader:
        assert [r.to_bytes() for r in reader.topic("orders")] == [b"one"]
