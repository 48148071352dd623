"""Several places for one store: each gets everything, as many acknowledge as the store wants."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import (
    Error,
    Fenced,
    InvalidArgument,
    NoShipper,
    PlaceDenied,
    PlaceError,
    PlaceRefused,
    PlaceUnreachable,
    RemoteTimeout,
    TwinStore,
)
from falaj.ship import messages as say
from falaj.ship.directory import DirectoryPlace
from falaj.ship.driver import Driver
from falaj.ship.lanes import Lanes
from falaj.ship.numbers import encode_number
from falaj.ship.objects import Patience
from falaj.ship.origin import Origin
from falaj.ship.place import Listed, Place, open_place
from falaj.ship.probe import probe
from falaj.ship.protocol import Shipping
from falaj.ship.shapes import Flush, number_key
from falaj.ship.shipper import Options


class Gate:
    """A place that raises an error on demand."""

    def __init__(self, inner: Place, error: type[PlaceError] | None = None) -> None:
        self.inner, self.url, self.error = inner, inner.url, error

    def _ask(self, name: str, *given: Any) -> Any:
        if self.error is not None:
            raise self.error(f"{self.url} fails, as the test wants")
        return getattr(self.inner, name)(*given)

    def get(self, key: str) -> bytes | None:
        found: bytes | None = self._ask("get", key)
        return found

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        found: bytes = self._ask("get_range", key, start, stop)
        return found

    def put_new(self, key: str, body: bytes) -> bool:
        created: bool = self._ask("put_new", key, body)
        return created

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        found: Iterator[Listed] = self._ask("list_after", prefix, after)
        return found

    def delete(self, keys: Sequence[str]) -> None:
        self._ask("delete", keys)


class Late(Gate):
    """A place that answers when others have long been compared."""

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        time.sleep(0.5)  # sleep: it is slow
        return super().list_after(prefix, after)


class Running:
    """Lanes that run in another thread."""

    def __init__(self, store: falaj.Store, places: Sequence[Place]) -> None:
        self.noticed: list[Error] = []
        self.lanes = Lanes(store, places, Options(), self.noticed.append)
        self.failed: BaseException | None = None
        self.began = threading.Event()
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self) -> None:
        try:
            self.lanes.run(told=lambda _: self.began.set())
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            self.failed = error
        self.began.set()

    def end(self) -> None:
        """Stop, and wait for it."""
        self.lanes.stop.set()
        self.thread.join(60)
        assert not self.thread.is_alive()


@contextmanager
def shipping(store: falaj.Store, *places: Place) -> Iterator[Running]:
    """Ship a store, which has something, until the block ends."""
    store.topic("orders", codec="bytes").append(b"first")
    found = Running(store, places)
    try:
        assert found.began.wait(60)
        yield found
    finally:
        found.end()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[falaj.Store]:
    with falaj.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def two(tmp_path: Path) -> tuple[Gate, Gate]:
    """Make two places that keep their promises."""
    found = Gate(open_place(tmp_path / "a")), Gate(open_place(tmp_path / "b"))
    for each in found:
        probe(each)
    return found


def values(place: Path, to: Path) -> list[bytes]:
    """Restore a place, and return the records of its topic."""
    falaj.restore(place, to)
    with falaj.open(to, read_only=True) as copy:
        return [record.value for record in copy.topic("orders", codec="bytes")]


def until(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # sleep: another thread makes it so


def add(store: falaj.Store, value: bytes, timeout: float = 60) -> None:
    store.topic("orders", codec="bytes").append(value, sync="remote", timeout=timeout)


def test_each_place_gets_everything(tmp_path: Path, store: falaj.Store) -> None:
    store.topic("orders").extend([b"%d" % n for n in range(100)])
    places = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    report = store.ship(places, once=True)
    assert [each["flushes"] for each in report["places"]] == [1, 1, 1]
    assert [each["place"] for each in report["places"]] == [place.as_uri() for place in places]
    assert report["flushes"] == 3
    assert report["number"] == report["places"][0]["number"]
    store.topic("orders").append(b"more")
    store.ship(places, once=True)
    for place in places:
        found = values(place, tmp_path / f"of-{place.name}")
        assert found == [*(b"%d" % n for n in range(100)), b"more"]


def test_a_dead_place_holds_up_no_other_until_more_must_have_a_record(
    tmp_path: Path, store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    two[1].error = PlaceUnreachable
    with shipping(store, *two) as running:
        add(store, b"one is enough")
        assert running.noticed
        store.configure(ship_min_sync=2)
        with pytest.raises(RemoteTimeout):
            add(store, b"two are wanted", timeout=0.5)
        two[1].error = None
        add(store, b"both are there")
    wanted = [b"first", b"one is enough", b"two are wanted", b"both are there"]
    assert values(tmp_path / "a", tmp_path / "of-a") == wanted
    assert values(tmp_path / "b", tmp_path / "of-b") == wanted


def test_a_remote_append_is_in_as_many_places_as_the_store_wants(
    tmp_path: Path, store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    store.configure(ship_min_sync=2)
    with shipping(store, *two):
        for number in range(5):
            add(store, b"%d" % number)
            for name in "ab":
                found = values(tmp_path / name, tmp_path / f"{name}-{number}")
                assert found[-1] == b"%d" % number


def test_fewer_places_than_the_store_wants_are_refused_and_so_is_a_place_twice(
    tmp_path: Path, store: falaj.Store
) -> None:
    store.topic("orders").append(b"one")
    store.configure(ship_min_sync=2)
    assert store.info()["ship_min_sync"] == 2
    for places, said in (
        (tmp_path / "a", "ship_min_sync"),
        ([tmp_path / "a"], "ship_min_sync"),
        ([tmp_path / "a", tmp_path / "a"], "given twice"),
        ([], "at least one"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            store.ship(places, once=True)
    assert not (tmp_path / "a").exists()
    with pytest.raises(InvalidArgument):
        store.configure(ship_min_sync=0)
    store.configure(ship_min_sync=None)
    assert store.ship(tmp_path / "a", once=True)["flushes"] == 1


def test_the_engine_takes_no_acknowledgement_of_fewer_places(store: falaj.Store) -> None:
    store.topic("orders").append(b"one", sync="durable")
    (log,) = store.info()["logs"]
    end = Path(log["path"]).name, *(log["durable"] or ())
    store.configure(ship_min_sync=2)
    with store._shipping():
        with pytest.raises(InvalidArgument, match="2, and 1 of its places"):
            store._acknowledge_ends([end])
        assert store.info()["logs"][0]["remote"] == (0, 0)
        store._acknowledge_ends([end], [], places=2)
        assert store.info()["logs"][0]["remote"] == log["durable"]


def test_a_shipper_whose_places_are_no_longer_enough_stops(
    store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    with shipping(store, *two) as running:
        add(store, b"one")
        store.configure(ship_min_sync=3)
        with pytest.raises(NoShipper):
            add(store, b"three are wanted")
        running.thread.join(60)
        assert isinstance(running.failed, InvalidArgument)


def claim(place: Place, store: falaj.Store) -> None:
    """Claim the store's origin, as the process of another machine would."""
    driver = Driver(
        Origin(place, store.id, store._origin()), Shipping(), Patience(60, threading.Event())
    )
    driver.start()
    driver.send(say.Claim())


def test_a_claim_of_one_place_leaves_the_others_shipping_while_they_are_enough(
    tmp_path: Path, store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    with shipping(store, *two) as running:
        add(store, b"one")
        claim(two[0], store)
        for number in range(20):
            add(store, b"after %d" % number)
        until(lambda: any(isinstance(error, Fenced) for error in running.noticed))
        add(store, b"last")
    assert running.failed is None
    assert values(tmp_path / "b", tmp_path / "of-b")[-1] == b"last"


def test_a_claim_of_one_place_of_two_fences_a_store_that_wants_two(
    store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    store.configure(ship_min_sync=2)
    with shipping(store, *two) as running:
        add(store, b"one")
        claim(two[1], store)
        with pytest.raises(Fenced):
            add(store, b"two")
        running.thread.join(60)
        assert isinstance(running.failed, Fenced)


def test_a_store_that_one_place_refuses_is_sent_to_none(tmp_path: Path, store: falaj.Store) -> None:
    store.topic("orders").append(b"one")
    store._origin()
    store.close()
    shutil.copytree(tmp_path / "store", tmp_path / "old")
    with falaj.open(tmp_path / "store") as newer:
        newer.topic("orders").append(b"two")
        newer.ship(tmp_path / "a", once=True)
    with falaj.open(tmp_path / "old") as old:
        old.topic("orders").append(b"another two")
        late, ready = Late(open_place(tmp_path / "a")), open_place(tmp_path / "b")
        probe(ready)
        for places in ([late, ready], [ready, late]):
            with pytest.raises(PlaceRefused, match=str(tmp_path / "a")):
                Lanes(old, places).run(once=True)
    assert list((tmp_path / "b").glob("*/o/*/k/*")) == []
    with pytest.raises(Error):
        falaj.restore(tmp_path / "b", tmp_path / "of-b")


def test_a_twin_in_one_place_stops_all(store: falaj.Store, two: tuple[Gate, Gate]) -> None:
    store.configure(ship_min_sync=2)
    with shipping(store, *two) as running:
        add(store, b"one")
        root = f"{store.id}/o/{store._origin()}/n/"
        last = max(int(each.key[-20:]) for each in two[0].list_after(root))
        whole = two[0].get(f"{root}{last:020}")
        assert whole is not None
        driver = running.lanes._lanes[0]._shipper._driver  # type: ignore[union-attr]
        # What a copy of the process would write next: under the same claim, another body.
        key = number_key(last + 1)
        other = Flush(last + 1, driver.holds or 0, driver.view.hash, 1)
        body = encode_number(other, driver.origin.whose(key))
        assert two[0].put_new(driver.origin.root + key, body)
        with pytest.raises((Fenced, NoShipper)):
            add(store, b"two")
        running.thread.join(60)
        assert isinstance(running.failed, TwinStore)


def test_limits_keep_what_any_of_the_places_lacks(
    store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    orders = store.topic("orders", codec="bytes", segment_bytes=1 << 16, retention_records=10)
    two[1].error = PlaceUnreachable
    with shipping(store, *two):
        for _ in range(30):
            orders.extend([os.urandom(1000)] * 12, sync="remote", timeout=60)
        store.maintain()
        assert orders.start_offset == 0
        two[1].error = None
        store.configure(ship_min_sync=2)
        add(store, b"both")
        store.maintain()
        assert orders.start_offset > 0


def test_a_place_that_fails_is_shipped_to_again_and_counts_for_nothing_meanwhile(
    tmp_path: Path, store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    store.configure(ship_min_sync=2)
    with shipping(store, *two) as running:
        add(store, b"one")
        two[1].error = PlaceDenied
        with pytest.raises(RemoteTimeout):
            add(store, b"two", timeout=0.5)
        until(lambda: any(isinstance(error, PlaceDenied) for error in running.noticed))
        two[1].error = None
        add(store, b"three")
    assert values(tmp_path / "b", tmp_path / "of-b") == [b"first", b"one", b"two", b"three"]


def test_once_with_a_dead_place_ships_to_the_others_and_then_fails(
    tmp_path: Path, store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    store.topic("orders").append(b"one")
    two[0].error = PlaceUnreachable
    with pytest.raises(PlaceUnreachable, match="fails, as the test wants"):
        Lanes(store, two, Options(patience=0.3)).run(once=True)
    assert values(tmp_path / "b", tmp_path / "of-b") == [b"one"]


def test_a_shipper_whose_places_are_all_dead_can_be_stopped(
    store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    two[0].error = two[1].error = PlaceUnreachable
    store.topic("orders").append(b"one")
    running = Running(store, two)
    until(lambda: len(running.noticed) > 1)
    running.end()
    assert running.failed is None
    assert [each.place for each in running.lanes.lacking()] == [each.url for each in two]


def has_flushed(running: Running) -> bool:
    return all(lane.sent.shipped and lane.sent.shipped.flushes for lane in running.lanes._lanes)


def test_a_stop_says_which_places_lack_the_last_records(
    store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    with shipping(store, *two) as running:
        until(lambda: has_flushed(running))
        two[1].error = PlaceUnreachable
        before = running.lanes._lanes[1].sent.shipped
        store.topic("orders", codec="bytes").append(b"last")
    assert running.failed is None
    assert before is not None
    lacking = [
        (each.place, each.shipped and each.shipped.number) for each in running.lanes.lacking()
    ]
    assert lacking == [(two[1].url, before.number)]


def test_a_stop_that_finds_all_shipped_says_nothing(
    store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    with shipping(store, *two) as running:
        until(lambda: has_flushed(running))
        two[0].error = two[1].error = PlaceUnreachable
    assert running.lanes.lacking() == []
    two[0].error = two[1].error = None
    with shipping(store, *two) as running:
        until(lambda: all(each.has_held for each in running.lanes._lanes))
        store.topic("orders", codec="bytes").append(b"last")
    assert running.lanes.lacking() == []


def test_info_says_how_far_each_place_is(
    tmp_path: Path, store: falaj.Store, two: tuple[Gate, Gate]
) -> None:
    assert store.info()["places"] == []
    two[1].error = PlaceUnreachable
    with shipping(store, *two):
        add(store, bytes(5000))
        until(lambda: bool(store.info()["places"][1]["problem"]))
    first, second = store.info()["places"]
    assert (first["place"], second["place"]) == (
        (tmp_path / "a").as_uri(),
        (tmp_path / "b").as_uri(),
    )
    assert (first["behind"], first["problem"]) == (0, None)
    assert first["number"] >= 2
    assert first["heard_us"]
    assert (second["number"], second["heard_us"]) == (0, None)
    assert (second["behind"] or 0) > 5000


def test_lanes_share_cuts_that_began_after_they_asked(tmp_path: Path, store: falaj.Store) -> None:
    made = []
    lanes = Lanes(store, [DirectoryPlace(str(tmp_path / name)) for name in "abc"])
    real, inside, go = store._cut, threading.Event(), threading.Event()

    class Slow:
        """A store whose cut waits."""

        def _cut(self, previous: Any) -> Any:
            inside.set()
            assert go.wait(60)
            made.append(real(previous))
            return made[-1]

    lanes.store = Slow()  # type: ignore[assignment]
    before = real(None)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(lanes.cut(before))) for _ in range(3)]
    threads[0].start()
    assert inside.wait(60)
    for each in threads[1:]:
        each.start()
    time.sleep(0.2)  # sleep: both ask while the first cut is being made
    go.set()
    for each in threads:
        each.join()
    assert len(made) == 2
    assert sorted(map(id, found)) == sorted([id(made[0]), id(made[1]), id(made[1])])
