"""Long silences, pauses, outages and idle times of shipping, in simulated time.

The seconds here pass at once: waits move a clock (`ship.replies.simulated`).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import CorruptData, Error, Fenced, ObjectMissing, PlaceDenied
from falaj.ship import messages as say
from falaj.ship.driver import Driver
from falaj.ship.memory import MemoryPlace
from falaj.ship.objects import Patience
from falaj.ship.origin import Origin
from falaj.ship.place import Place, error, open_place
from falaj.ship.probe import probe
from falaj.ship.protocol import Reading
from falaj.ship.restore import restore
from falaj.ship.shipper import LOOK_BACK_S, Options, Shipper
from ship.fake import FakeStore
from ship.faults import FaultyPlace, Rates
from ship.replies.simulated import Clock, Waits, simulated
from ship.replies.witness import digest, digest_of

HISTORY_S = 600.0
HOUR_S = 3600.0


class Counting:
    """A place that counts its calls, and may refuse all of them."""

    def __init__(self, inner: Place) -> None:
        self.inner, self.url, self.calls = inner, inner.url, Counter[str]()
        self.refuses = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self.inner, name)

        def counted(*given: Any) -> Any:
            self.calls[name] += 1
            if self.refuses:
                raise error(PlaceDenied, "the credentials expired", self.url)
            return call(*given)

        return counted


@pytest.fixture
def clock() -> Iterator[Clock]:
    with simulated(7) as made:
        yield made


@pytest.fixture
def inner(tmp_path: Path) -> MemoryPlace:
    place = MemoryPlace(f"memory://{tmp_path}")
    probe(place)
    return place


def begin(store: FakeStore, place: Any, clock: Clock) -> Shipper:
    shipper = Shipper(store, place, Options(HISTORY_S))  # type: ignore[arg-type]
    shipper.stop = shipper.patience.stop = Waits(clock)
    shipper._claim()
    return shipper


def go_on(store: FakeStore, shipper: Shipper, clock: Clock, rounds: int) -> None:
    """Ship and make checkpoints for longer than the history."""
    for _ in range(rounds):
        store.logs[0].append(60_000)
        shipper.turn()
        shipper.checkpoint()
        clock.move(HISTORY_S / 4)


def origin_of(store: FakeStore, place: Any) -> Origin:
    return Origin(place, store.id, store._origin())


def numbers_in(store: FakeStore, place: Place) -> set[int]:
    return {int(each.key[2:]) for each in origin_of(store, place).list_after("n")}


# --- Idle -----------------------------------------------------------------------------------------


def test_an_idle_store_sends_no_request_in_ten_thousand_polls(
    tmp_path: Path, clock: Clock, inner: MemoryPlace
) -> None:
    store, place = FakeStore(tmp_path / "store"), Counting(inner)
    store.logs[0].append(100)
    store.logs[0].roll()
    shipper = begin(store, place, clock)
    for _ in range(3):
        shipper.turn()
        shipper.care()
    place.calls.clear()
    for _ in range(10_000):
        assert not shipper.turn(now=False)
        clock.move(2.0)
    shipper.care()
    assert place.calls == Counter()


def test_an_idle_store_of_the_engine_sends_no_request(tmp_path: Path) -> None:
    place = Counting(open_place(tmp_path / "place"))
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"one")
        with store.consumer("readers", ["orders"]) as group:
            group.poll(timeout=0)
            group.commit()
        store.queue("jobs", topic="tasks").put_many([b"a"])
        shipper = Shipper(store, place, Options())
        shipper._claim()
        assert shipper.turn()
        shipper.care()
        place.calls.clear()
        for _ in range(500):
            assert not shipper.turn()
        assert place.calls == Counter()


def test_a_sealed_segment_is_put_once_though_no_flush_is_due_when_it_is_there(
    tmp_path: Path, clock: Clock, inner: MemoryPlace
) -> None:
    store, place = FakeStore(tmp_path / "store", logs=1), Counting(inner)
    shipper = begin(store, place, clock)
    store.logs[0].append(60_000)
    shipper.turn()
    store.logs[0].roll()
    clock.move(20.0)
    assert shipper.turn(now=False)
    shipper.care()
    place.calls.clear()
    for _ in range(60):
        clock.move(1.0)
        store.logs[0].append(10)
        if shipper.turn(now=False):
            shipper.care()
    segments = shipper._driver.view.logs[store.logs[0].directory].segments
    assert segments[1].whole
    sealed = list(origin_of(store, inner).list_after("s"))
    assert len(sealed) == 1
    assert place.calls["put_new"] < 10


def test_what_a_shipper_remembers_does_not_grow_with_its_flushes(
    tmp_path: Path, clock: Clock, inner: MemoryPlace
) -> None:
    store = FakeStore(tmp_path / "store", logs=1)
    shipper = begin(store, inner, clock)
    for _ in range(40):
        store.logs[0].append(60_000)
        store.logs[0].roll()
        shipper.turn()
        shipper.care()
        if len(store.logs[0].segments) > 3:
            store.logs[0].drop()
    shipper.turn()
    shipper.checkpoint()
    driver = shipper._driver
    assert driver.uploads is not None
    assert shipper.shipped.objects > 40
    assert len(driver.uploads.sizes) < 10
    assert driver.acknowledged == shipper.flushes


# --- Pauses that are longer than the history ------------------------------------------------------


class Interrupted:
    """A place that calls something once, before it creates a number."""

    def __init__(self, inner: Place, meanwhile: Callable[[], None]) -> None:
        self.inner, self.url, self.meanwhile = inner, inner.url, meanwhile
        self.is_armed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put_new(self, key: str, body: bytes) -> bool:
        if self.is_armed and key.split("/")[-2] == "n":
            self.is_armed = False
            self.meanwhile()
        return self.inner.put_new(key, body)


def test_a_claimer_that_is_paused_longer_than_the_history_starts_over_and_has_all(
    tmp_path: Path, clock: Clock, inner: MemoryPlace
) -> None:
    store = FakeStore(tmp_path / "store")
    first = begin(store, inner, clock)
    go_on(store, first, clock, 1)
    gap = first.shipped.number + 1

    def meanwhile() -> None:
        go_on(store, first, clock, 12)
        assert gap not in numbers_in(store, inner)

    second = begin(store, Interrupted(inner, meanwhile), clock)
    holds = second._driver.holds
    assert holds is not None
    assert holds > gap, "it began with a number that had been deleted"
    assert gap in numbers_in(store, inner), "its first claim filled the gap"
    view, origin = second._driver.view, origin_of(store, inner)
    assert digest_of(view, origin) == digest(store.content())
    store.logs[0].append(100)
    assert second.turn()
    with pytest.raises(Fenced):
        go_on(store, first, clock, 1)


def test_a_follower_that_is_paused_longer_than_the_history_begins_anew(
    tmp_path: Path, clock: Clock, inner: MemoryPlace
) -> None:
    store = FakeStore(tmp_path / "store")
    shipper = begin(store, inner, clock)
    go_on(store, shipper, clock, 1)
    origin = origin_of(store, inner)
    follower = Driver(origin, Reading("follow"), Patience(None, Waits(clock)))
    follower.start()
    before = follower.view.number
    go_on(store, shipper, clock, 12)
    assert before + 1 not in numbers_in(store, inner)
    follower.send(say.Again())
    assert follower.view.number == before, "no next number is there, and that may mean: not yet"
    follower.send(say.Silence())
    assert follower.view.number == shipper.shipped.number
    assert digest_of(follower.view, origin) == digest(store.content())


def test_a_shipper_that_is_paused_longer_than_the_history_acknowledges_nothing_more(
    tmp_path: Path, clock: Clock, inner: MemoryPlace
) -> None:
    store = FakeStore(tmp_path / "store")
    sleeper = begin(store, inner, clock)
    go_on(store, sleeper, clock, 2)
    acknowledged = sleeper._driver.acknowledged
    go_on(store, begin(store, inner, clock), clock, 12)
    store.logs[0].append(100)
    with pytest.raises(Fenced):
        sleeper.turn()
    assert sleeper._driver.acknowledged == acknowledged


# --- Outages --------------------------------------------------------------------------------------


def test_after_an_hour_without_the_place_all_is_shipped_and_few_requests_were_made(
    tmp_path: Path, clock: Clock, inner: MemoryPlace
) -> None:
    store = FakeStore(tmp_path / "store")
    network = FaultyPlace(inner, 1, Rates(0.0, 0.0, 0.0, 0.0))
    shipper, told = begin(store, network, clock), list[Error]()
    shipper.patience.notice = told.append
    for size in (100, 100_000):
        store.logs[0].append(size)
        network.is_down, calls, until = True, network.counts.calls, clock.now + HOUR_S

        def look(now: float, until: float = until) -> None:
            network.is_down = now < until

        clock.alarms[:] = [look]
        assert shipper.turn()
        assert clock.now >= until
        assert network.counts.calls - calls < 2 * HOUR_S
    assert len(told) > 100
    origin = origin_of(store, inner)
    assert digest_of(shipper._driver.view, origin) == digest(store.content())
    assert shipper.flushes == 2


def test_credentials_that_expire_stop_a_shipper_and_the_next_one_has_all(
    tmp_path: Path, clock: Clock, inner: MemoryPlace
) -> None:
    store, place = FakeStore(tmp_path / "store"), Counting(inner)
    shipper = begin(store, place, clock)
    store.logs[0].append(100)
    assert shipper.turn()
    for size in (100, 100_000):
        store.logs[0].append(size)
        place.refuses = True
        place.calls.clear()
        with pytest.raises(PlaceDenied, match="expired"):
            shipper.turn()
        assert place.calls.total() == 1, "it is not asked again and again"
        assert shipper.flushes == 1
        place.refuses = False
    again = begin(store, place, clock)
    assert again.turn()
    assert digest_of(again._driver.view, origin_of(store, inner)) == digest(store.content())


# --- Rot ------------------------------------------------------------------------------------------


def flip(store: Path, at: int) -> None:
    """Flip a bit in the oldest segment."""
    (log,) = (path for path in (store / "logs").iterdir() if path.name.startswith("orders"))
    files = [path for path in log.iterdir() if path.is_file()]
    segment = min(path for path in files if path.read_bytes()[:8] == b"FALAJSEG")
    with segment.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def extend(topic: Any, values: list[bytes]) -> None:
    for start in range(0, len(values), 100):
        topic.extend(values[start : start + 100])


def ship_all(shipper: Shipper) -> None:
    for _ in range(5):
        shipper.turn()
        shipper.care()
        shipper._wait_for_seals()


def test_a_sealed_segment_that_rotted_after_it_was_shipped_stops_the_shipper_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    path, place = tmp_path / "store", open_place(tmp_path / "place")
    values = [b"%05d" % number + b"." * 90 for number in range(2_000)]
    with falaj.open(path) as store:
        orders = store.topic("orders", codec="bytes", segment_bytes=1 << 16)
        shipper = Shipper(store, place, Options())
        shipper._claim()
        extend(orders, values[:300])
        shipper.turn()
        extend(orders, values[300:])
        flip(path, 8192 + 10_000)
        with pytest.raises(CorruptData, match="than were shipped"):
            ship_all(shipper)
        last = shipper.shipped.number
        shipper._sealer.shutdown()
        again = Shipper(store, place, Options())
        again._claim()
        with pytest.raises(CorruptData, match="than were shipped"):
            ship_all(again)
    restore(place, str(tmp_path / "copy"), to_number=last)
    with falaj.open(tmp_path / "copy") as copy:
        found = [record.value for record in copy.topic("orders", codec="bytes")]
    assert found == values[: len(found)]
    assert len(found) >= 300


def test_a_shipper_that_sends_notices_that_its_place_was_wiped(
    inner: MemoryPlace, tmp_path: Path, clock: Clock
) -> None:
    for looks in (False, True):
        store, place = FakeStore(tmp_path / f"store{looks}", 3), Counting(inner)
        shipper = begin(store, place, clock)
        store.logs[0].append(60_000)
        assert shipper.turn()
        inner.delete([each.key for each in list(inner.list_after(""))])
        clock.move(LOOK_BACK_S / 2)
        store.logs[0].append(60_000)
        assert shipper.turn(), "it looks back now and then, not at each flush"
        clock.move(LOOK_BACK_S)
        before = place.calls.total()
        assert not shipper.turn()
        assert place.calls.total() == before, "nothing new, no request"
        if not looks:
            store.logs[0].append(10)
        look = shipper.checkpoint if looks else shipper.turn
        with pytest.raises(ObjectMissing, match=r"n/0{19}1 is missing.*falaj ship --new-origin"):
            look()


def test_a_shipper_that_begins_at_a_wiped_place_sends_everything(
    inner: MemoryPlace, tmp_path: Path, clock: Clock
) -> None:
    store = FakeStore(tmp_path / "store", 5)
    store.logs[0].append(200_000)
    before = begin(store, inner, clock)
    assert before.turn()
    inner.delete([each.key for each in list(inner.list_after(""))])
    shipper = begin(store, inner, clock)
    assert shipper.turn()
    assert shipper.bytes >= before.bytes
    origin = shipper._driver.origin
    assert digest_of(shipper._driver.view, origin) == digest(store.content())
