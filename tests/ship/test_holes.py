"""Numbers that a place lost, keys of other programs in it, and numbers that it never had."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj import _core
from falaj.errors import CorruptData, HistoryDeleted, InvalidArgument, UnknownOrigin
from falaj.ship import messages as say
from falaj.ship import reader as reading
from falaj.ship.driver import Driver, read_view
from falaj.ship.heads import Known, matching
from falaj.ship.objects import Patience
from falaj.ship.origin import Origin, origins_of
from falaj.ship.place import Listed, Place, open_place
from falaj.ship.protocol import Reading
from falaj.ship.restore import restore
from falaj.ship.shapes import checkpoint_key, number_key
from falaj.ship.shipper import Options, Shipper
from falaj.ship.verify import verify_place
from ship.fake import FakeBuilder, FakeStore
from ship.test_reader import Watched
from ship.test_reader import watched as watched
from ship.test_ship_fake import begin, restored

NUMBERS = 8


@pytest.fixture(autouse=True)
def builder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "StoreBuilder", FakeBuilder, raising=False)


def shipped(place: Place, tmp_path: Path) -> tuple[FakeStore, Shipper]:
    """Ship a claim and seven flushes."""
    store = FakeStore(tmp_path / "store", logs=1)
    shipper = begin(store, place, history=0.0)
    while shipper.shipped.number < NUMBERS:
        flush(shipper)
    return store, shipper


def flush(shipper: Shipper) -> None:
    shipper.store.logs[0].append(20)  # type: ignore[attr-defined]
    assert shipper.turn()


def lose(origin: Origin, number: int) -> bytes:
    """Delete a number, and return its bytes."""
    body = origin.get(number_key(number))
    origin.delete([number_key(number)])
    assert body is not None
    return body


def keys(place: Place) -> list[str]:
    return [each.key for each in place.list_after("")]


# --- A number that is missing --------------------------------------------------------------------


@pytest.mark.parametrize("missing", [1, 2, 3, NUMBERS - 1])
def test_a_missing_number_is_named_by_verify_and_restore_and_no_claim_fills_it(
    tmp_path: Path, missing: int
) -> None:
    place = open_place(f"memory://hole-{missing}")
    store, shipper = shipped(place, tmp_path)
    origin = shipper._driver.origin
    body = lose(origin, missing)
    named = f"{origin.where(number_key(missing))} is missing"
    for deep in (False, True):
        (report,) = verify_place(place, deep=deep)
        assert [each.startswith(named) for each in report.findings] == [True]
    before = keys(place)
    for call in (
        lambda: restore(place, str(tmp_path / "copy")),
        lambda: restore(place, str(tmp_path / "copy"), to_number=NUMBERS),
        lambda: restore(place, str(tmp_path / "copy"), to_time_us=time.time_ns() // 1000),
        lambda: begin(store, place),
    ):
        with pytest.raises(CorruptData, match=r"bring that object back.*--new-origin") as refused:
            call()
        assert str(refused.value).startswith(named)
        assert (f"--to-number {missing - 1}`" in str(refused.value)) == (missing > 2)
    assert keys(place) == before
    if missing > 2:
        restored(place, tmp_path / "before", to_number=missing - 1)
    origin.put_new(number_key(missing), body)
    assert verify_place(place, deep=True)[0].findings == []
    assert restored(place, tmp_path / "whole") == store.content()
    assert begin(store, place).shipped.number == NUMBERS + 1


def test_a_store_ships_on_as_a_new_origin_beside_one_that_lacks_a_number(tmp_path: Path) -> None:
    place = open_place("memory://hole-new-origin")
    store, shipper = shipped(place, tmp_path)
    lost = shipper._driver.origin
    lose(lost, 3)
    shipper = Shipper(store, place, Options(new_origin=True))  # type: ignore[arg-type]
    shipper._claim()
    assert shipper.turn()
    mine = shipper._driver.origin.origin
    findings = {each.origin: each.findings for each in verify_place(place)}
    assert (findings[mine], len(findings[lost.origin])) == ([], 1)
    report = restore(place, str(tmp_path / "copy"), origin=mine)
    assert FakeBuilder.built[report["path"]] == store.content()


@pytest.mark.parametrize("claims", [0, 1, 2])
def test_where_no_flush_precedes_a_missing_number_the_error_advises_no_restore(
    tmp_path: Path, claims: int
) -> None:
    place = open_place("memory://wiped")
    store = FakeStore(tmp_path / "store", logs=1)
    begin(store, place)
    shipper = begin(store, place)
    flush(shipper)
    flush(shipper)
    origin = shipper._driver.origin
    for number in (*range(claims + 1, 3), 3):
        lose(origin, number)
    with pytest.raises(CorruptData, match=r"remove what is left below .*--new-origin") as refused:
        begin(store, place)
    assert "--to-number" not in str(refused.value)
    place.delete([each.key for each in place.list_after("")])
    begin(store, place).turn()
    assert restored(place, tmp_path / "copy") == store.content()


def test_numbers_that_a_checkpoint_covers_may_be_gone(tmp_path: Path) -> None:
    place = open_place("memory://hole-covered")
    store, shipper = shipped(place, tmp_path)
    shipper.checkpoint()
    flush(shipper)
    for number in (1, 2, 5, NUMBERS):
        lose(shipper._driver.origin, number)
    assert verify_place(place, deep=True)[0].findings == []
    assert restored(place, tmp_path / "copy") == store.content()
    assert begin(store, place).shipped.number == NUMBERS + 2
    with pytest.raises(HistoryDeleted, match=number_key(1)):
        restore(place, str(tmp_path / "early"), to_number=4)


def test_a_time_whose_numbers_are_deleted_gives_no_earlier_state(tmp_path: Path) -> None:
    place = open_place("memory://hole-time")
    _, shipper = shipped(place, tmp_path)
    shipper.checkpoint()
    then = shipper._driver.view.time_us
    time.sleep(0.002)  # sleep: the times of the two states differ
    flush(shipper)
    flush(shipper)
    shipper.checkpoint()
    origin = shipper._driver.origin
    lose(origin, NUMBERS + 1)  # as where a deletion is under way
    with pytest.raises(HistoryDeleted, match="deleted the numbers of that moment"):
        restore(place, str(tmp_path / "copy"), to_time_us=then + 500)
    lose(origin, NUMBERS + 2)
    assert restored(place, tmp_path / "new", to_time_us=time.time_ns() // 1000 + 10**12)


class Meanwhile:
    """A place in which something happens at the next listings of numbers, before the answer."""

    def __init__(self, below: Place, happens: Callable[[], None], times: int) -> None:
        self.below, self.url = below, below.url
        self.happens, self.times = happens, times

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        if prefix.endswith("/n") and self.times:
            self.times -= 1
            self.happens()
        return self.below.list_after(prefix, after)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("deletes", [False, True])
def test_a_shipper_that_writes_and_deletes_meanwhile_makes_no_hole(
    tmp_path: Path, times: int, deletes: bool
) -> None:
    below = open_place(f"memory://hole-meanwhile-{times}-{deletes}")
    store, shipper = shipped(below, tmp_path)

    def ship_on() -> None:
        for _ in range(5):
            flush(shipper)
            if deletes:
                shipper.checkpoint()  # the history is over at once

    def patience() -> Patience:
        return Patience(1.0, shipper.stop)

    known = shipper._driver.origin
    place = Meanwhile(below, ship_on, times)
    origin = Origin(place, known.store, known.origin)
    seen = shipper.shipped.number + 5 * (times - 1) * deletes
    assert read_view(origin, patience()).number >= seen
    assert (below.get(origin.root + number_key(NUMBERS + 1)) is None) is deletes
    place.times = times
    follower = Driver(origin, Reading("follow"), patience())
    follower.start()
    follower.send(say.Silence())
    place.times = times
    later = begin(store, place)
    assert later.shipped.number > shipper.shipped.number
    assert restored(below, tmp_path / "copy") == store.content()


def test_a_reader_raises_for_a_missing_number_and_a_follower_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: Callable[[object], Watched]
) -> None:
    monkeypatch.setattr(reading, "SILENCE_S", 0.0)
    options: Any = {"cache": tmp_path / "cache", "follow": False}
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders")
        topic.append(b"first")
        store.ship(tmp_path / "place", once=True)
        place = watched(tmp_path / "place")
        with falaj.open_place(tmp_path / "place", **options) as reader:
            assert len(reader.topic("orders")) == 1
            last = reader.place.number
            for _ in range(2):
                topic.append(b"more")
                store.ship(tmp_path / "place", once=True)
            (found,) = origins_of(place)
            origin = Origin(place, found.store, found.origin)
            body = lose(origin, last + 1)
            with pytest.raises(CorruptData, match=f"{number_key(last + 1)} is missing"):
                reader.refresh()
            assert len(reader.topic("orders")) == 1
            with pytest.raises(CorruptData, match=f"{number_key(last + 1)} is missing"):
                falaj.open_place(tmp_path / "place", **options)
            origin.put_new(number_key(last + 1), body)
            reader.refresh()
            assert len(reader.topic("orders")) == 3


def test_a_follower_lists_numbers_when_it_begins_and_after_silence_alone(tmp_path: Path) -> None:
    below = open_place("memory://hole-follower")
    _, shipper = shipped(below, tmp_path)
    place = Watched(below)
    known = shipper._driver.origin
    origin = Origin(place, known.store, known.origin)
    follower = Driver(origin, Reading("follow"), Patience(1.0, shipper.stop))

    def listings() -> int:
        found = sum(key == f"{origin.root}n" for key, _ in place.read)
        place.read.clear()
        return found

    follower.start()
    assert listings() == 1
    for _ in range(3):
        follower.send(say.Again())
        flush(shipper)
    assert listings() == 0
    follower.send(say.Silence())
    assert listings() == 1


# --- Keys of other programs ----------------------------------------------------------------------

FOREIGN = [
    "README.txt",
    "n/README.txt",
    "n/00000000000000000099.bak",
    "n/00000000000000000099/x",
    "n/3",
    "c/99",
    "c/README.txt",
    "k/README.txt",
    "s/00000000000000000001-x",
]


def test_keys_of_other_programs_are_passed_over(place: Place, tmp_path: Path) -> None:
    store, shipper = shipped(place, tmp_path)
    origin = shipper._driver.origin
    for key in FOREIGN:
        assert origin.put_new(key, b"not falaj's")
    for key in ("0", "readme", f"{origin.store}/readme", f"{'f' * 32}/o/{'e' * 32}/n/README.txt"):
        assert place.put_new(key, b"not falaj's")
    (found,) = origins_of(place)
    assert (found.origin, found.last) == (origin.origin, NUMBERS)
    assert verify_place(place, deep=True)[0].findings == []
    assert restored(place, tmp_path / "copy") == store.content()
    later = begin(store, place, history=0.0)
    flush(later)
    for _ in range(4):
        flush(later)
        later.checkpoint()
    assert restored(place, tmp_path / "again") == store.content()
    assert [key for key in FOREIGN if origin.get(key) is None] == []


def test_an_origin_is_found_by_one_listing_however_many_foreign_keys_lie_before(
    tmp_path: Path,
) -> None:
    below = open_place("memory://hole-foreign")
    shipped(below, tmp_path)
    for number in range(50):
        below.put_new(f"0/{number}", b"x")
    place = Watched(below)
    assert len(origins_of(place)) == 1
    assert sum(key == "" for key, _ in place.read) == 2


# --- Numbers that a place never had --------------------------------------------------------------


def test_a_number_beyond_the_end_is_refused_and_a_later_time_is_now(tmp_path: Path) -> None:
    place = open_place("memory://hole-beyond")
    store, shipper = shipped(place, tmp_path)
    for last in (NUMBERS, NUMBERS + 1):
        if last > NUMBERS:
            flush(shipper)
            shipper.checkpoint()
        for number in (last + 1, 99, 2**70):
            with pytest.raises(InvalidArgument, match=f"ends at number {last}, and has no"):
                restore(place, str(tmp_path / "copy"), to_number=number)
        assert restored(place, tmp_path / f"{last}", to_number=last) == store.content()
        later = time.time_ns() // 1000 + 10**12
        assert restored(place, tmp_path / f"{last}-now", to_time_us=later) == store.content()
    assert shipper._driver.origin.get(checkpoint_key(NUMBERS + 1)) is not None


@pytest.mark.parametrize("number", [0, -1, -(2**70)])
def test_a_number_below_one_is_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(InvalidArgument, match="a number of the place, from 1 on"):
        falaj.restore("memory://hole-below", tmp_path / "copy", to_number=number)


def test_an_origin_with_a_claim_alone_is_whole(tmp_path: Path) -> None:
    place = open_place("memory://hole-claim")
    begin(FakeStore(tmp_path / "store"), place)
    (report,) = verify_place(place, deep=True)
    assert (report.number, report.findings) == (1, [])
    with pytest.raises(HistoryDeleted, match=r"has no flush yet at number 1: .*, or ship the"):
        restore(place, str(tmp_path / "copy"))


def test_an_empty_name_of_an_origin_names_none(tmp_path: Path) -> None:
    place = open_place("memory://hole-unnamed")
    _, shipper = shipped(place, tmp_path)
    own = shipper._driver.origin.origin
    with pytest.raises(UnknownOrigin, match=f"has not one origin '': choose one of {own}"):
        restore(place, str(tmp_path / "copy"), origin="")
    with pytest.raises(UnknownOrigin, match=f"has not one origin '': choose one of {own}"):
        verify_place(place, origin="")
    with pytest.raises(UnknownOrigin, match="not one origin ''"):
        matching({own: Known("s", own, None, "place")}, [""])
    assert restore(place, str(tmp_path / "copy"), origin=own[:6])["parent"] == own
