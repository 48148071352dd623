"""The shipper over a store in memory: every number restores to what the store held then."""

import copy
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from falaj import _core
from falaj.cli.ship_plan import MONTH_S, plan_of
from falaj.errors import (
    CorruptData,
    Fenced,
    HistoryDeleted,
    LockTimeout,
    PlaceRefused,
    TwinStore,
    UnknownOrigin,
)
from falaj.ship import packing
from falaj.ship import shipper as shipper_module
from falaj.ship.objects import Stopped
from falaj.ship.place import Place, open_place
from falaj.ship.probe import probe
from falaj.ship.restore import restore
from falaj.ship.shapes import number_key
from falaj.ship.shipper import Options, Shipper
from falaj.ship.verify import verify_place
from ship.fake import FakeBuilder, FakeStore, objects_of
from ship.faults import FaultyPlace, Rates


@pytest.fixture(autouse=True)
def builder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "StoreBuilder", FakeBuilder, raising=False)


def begin(store: FakeStore, place: Place, **options: float) -> Shipper:
    shipper = Shipper(store, place, Options(**options))  # type: ignore[arg-type]
    shipper._claim()
    return shipper


def restored(place: Place, to: Path, **how: int) -> dict[str, bytes]:
    report = restore(place, str(to), **how)  # type: ignore[arg-type]
    return FakeBuilder.built[report["path"]]


@pytest.mark.parametrize("seed", range(4))
def test_each_number_restores_to_what_the_store_held_then(
    place: Place, tmp_path: Path, seed: int
) -> None:
    store = FakeStore(tmp_path / "store", seed)
    shipper, account = begin(store, place), {}
    chance = store.chance
    for step in range(60):
        log = chance.choice(store.logs)
        for _ in range(chance.randrange(4)):
            log.append(chance.choice([10, 100, 30_000, 200_000]))
        if chance.random() < 0.6:
            chance.choice([log.roll, log.drop, log.compact])()
        store.files["queues/q"] = bytearray(chance.randbytes(20_000))
        if step % 7 == 3:
            store.files.pop("consumers/c", None)
        else:
            store.files["consumers/c"] = bytearray(20_000)
            store.files["consumers/c"][5000:5010] = chance.randbytes(10)
        if shipper.turn():
            account[shipper.shipped.number] = store.content()
        shipper.care()
        if step % 10 == 9:
            shipper.checkpoint()
        if step % 20 == 19:
            shipper = begin(store, place)
    for number, content in account.items():
        assert restored(place, tmp_path / f"at{number}", to_number=number) == content
    assert restored(place, tmp_path / "newest") == store.content()


def test_nothing_new_sends_nothing(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store"), open_place("memory://nothing-new")
    store.logs[0].append(100)
    shipper = begin(store, place)
    assert shipper.turn()
    assert not shipper.turn()
    assert shipper.shipped.flushes == 1


def test_faults_of_the_place_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    for seed in range(6):
        store = FakeStore(tmp_path / f"store{seed}", seed)
        inner = open_place(f"memory://faults-{seed}")
        probe(inner)
        shipper, account = begin(store, FaultyPlace(inner, seed)), {}
        for step in range(40):
            chance = store.chance
            chance.choice(store.logs).append(chance.choice([10, 90_000]))
            if step % 5 == 0:
                chance.choice(store.logs).roll()
            shipper.turn()
            account[shipper.shipped.number] = store.content()
            shipper.care()
            if step % 9 == 8:
                shipper.checkpoint()
            if step % 15 == 14:
                shipper = begin(store, shipper.place)
        for number, content in account.items():
            assert restored(inner, tmp_path / f"{seed}-{number}", to_number=number) == content


def test_a_second_shipper_fences_the_first_and_has_all_it_acknowledged(
    place: Place, tmp_path: Path
) -> None:
    store = FakeStore(tmp_path / "store")
    first = begin(store, place)
    store.logs[0].append(100)
    first.turn()
    begin(store, place).turn()
    store.logs[0].append(100)
    with pytest.raises(Fenced, match="claimed"):
        first.turn()
    assert first.shipped.flushes == 1


def test_a_copy_of_the_running_process_is_found_out(place: Place, tmp_path: Path) -> None:
    store = FakeStore(tmp_path / "store")
    first = begin(store, place)
    twin = begin(FakeStore(tmp_path / "store"), open_place("memory://other"))
    for each in ("_machine", "origin", "view"):
        setattr(twin._driver, each, copy.copy(getattr(first._driver, each)))
    twin.store = store  # type: ignore[assignment]
    store.logs[0].append(100)
    first.turn()
    store.logs[0].append(100)
    with pytest.raises(TwinStore, match="copy of the store"):
        twin.turn()


def test_a_place_that_is_ahead_or_different_is_left_alone(place: Place, tmp_path: Path) -> None:
    store = FakeStore(tmp_path / "store")
    store.logs[0].append(100)
    old_history, old_data = list(store.logs[0].history), bytes(store.logs[0].segments[0].data)
    store.logs[0].append(100)
    begin(store, place).turn()
    number = begin(store, place).shipped.number
    store.logs[0].history, store.logs[0].segments[0].data = old_history, bytearray(old_data)
    with pytest.raises(PlaceRefused, match=r"more records of log0.*--new-origin"):
        begin(store, place)
    store.logs[0].append(100)
    with pytest.raises(PlaceRefused, match="other records of log0"):
        begin(store, place)
    assert len(list(place.list_after(f"{store.id}/o/{store._origin()}/n"))) == number
    origin = store._origin()
    shipper = begin(store, place, new_origin=True)
    assert shipper.turn()
    assert store._origin() != origin
    with pytest.raises(UnknownOrigin, match="several origins"):
        restore(place, str(tmp_path / "copy"))
    report = restore(place, str(tmp_path / "copy"), origin=store._origin())
    assert FakeBuilder.built[report["path"]] == store.content()


def test_bytes_that_rotted_locally_never_replace_a_good_copy(place: Place, tmp_path: Path) -> None:
    store = FakeStore(tmp_path / "store")
    store.logs[0].append(60_000)
    shipper = begin(store, place)
    shipper.turn()
    good = store.content()
    store.logs[0].segments[0].data[30_000] ^= 1
    store.logs[0].roll()
    shipper.turn()
    shipper.care()
    shipper._wait_for_seals()
    with pytest.raises(CorruptData, match="other bytes at 8192 than were shipped"):
        shipper.turn()
    found = restored(place, tmp_path / "copy")
    assert all(found[key] == data for key, data in good.items())


def test_what_is_missing_or_corrupt_in_the_place_is_named(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store"), open_place(tmp_path / "place")
    store.logs[0].append(90_000)
    shipper = begin(store, place)
    shipper.turn()
    assert verify_place(place)[0].findings == []
    (pack,) = (tmp_path / "place").glob("*/o/*/k/*")
    body = bytearray(pack.read_bytes())
    body[50_000] ^= 1
    pack.write_bytes(body)
    (finding,) = verify_place(place)[0].findings
    assert pack.name in finding
    with pytest.raises(CorruptData, match=f"{pack.name} is corrupt"):
        restore(place, str(tmp_path / "copy"))
    pack.unlink()
    assert "is missing" in verify_place(place)[0].findings[0] or "no object" in str(
        verify_place(place)[0].findings
    )
    with pytest.raises(CorruptData, match=f"{pack.name} is missing"):
        restore(place, str(tmp_path / "copy"))


def test_old_numbers_are_deleted_and_later_ones_restore(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store", logs=1), open_place("memory://old-numbers")
    shipper, account, most = begin(store, place, history=0.0), {}, 0
    for step in range(300):
        store.logs[0].append(50)
        if step % 50 == 49:
            store.logs[0].roll()
        shipper.turn()
        account[shipper.shipped.number] = store.content()
        shipper.care()
        shipper._wait_for_seals()
        if step % 10 == 9:
            shipper.checkpoint()
        most = max(most, len(list(place.list_after(""))))
    assert most < 80
    newest = shipper.shipped.number
    for number in range(newest - 20, newest + 1):
        if number in account:
            assert restored(place, tmp_path / f"{number}", to_number=number) == account[number]
    with pytest.raises(HistoryDeleted):
        restore(place, str(tmp_path / "copy"), to_number=5)
    assert verify_place(place)[0].findings == []


def test_a_slow_topic_leaves_few_objects_after_a_thousand_flushes(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store", logs=2), open_place("memory://slow-topic")
    shipper = begin(store, place)
    for step in range(1000):
        store.logs[0].append(20)
        if step % 100 == 0:
            store.logs[1].append(20)
        shipper.turn()
        if step % 50 == 49:
            shipper.checkpoint()
    assert objects_of(shipper._driver.view) < 12
    assert restored(place, tmp_path / "copy") == store.content()


@pytest.mark.parametrize("part", [64 << 20, 5 << 20])
def test_a_backlog_is_shipped_as_whole_segments(
    tmp_path: Path, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "PART_MAX", part)
    place = open_place(f"memory://backlog-{part}")
    store = FakeStore(tmp_path / "store", logs=1)
    for _ in range(3):
        store.logs[0].append(9 << 20)
        store.logs[0].roll()
    shipper = begin(store, place)
    shipper.turn()
    kinds = {piece.key[0] for piece in shipper._driver.view.pieces()}
    assert kinds == {"s", "n"}
    sealed = [key for key in shipper._driver.view.live() if key.startswith("s/")]
    assert len(sealed) == (3 if part > 9 << 20 else 6)
    assert restored(place, tmp_path / "copy") == store.content()


def test_a_moment_chooses_the_last_flush_before_it(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store"), open_place("memory://moments")
    shipper, moments = begin(store, place), []
    for step in range(12):
        store.logs[0].append(50)
        shipper.turn()
        moments.append((time.time_ns() // 1000, store.content()))
        if step == 6:
            shipper.checkpoint()
    for at, (moment, content) in enumerate(moments):
        assert restored(place, tmp_path / f"{at}", to_time_us=moment) == content
    with pytest.raises(HistoryDeleted, match="no state that is so old"):
        restore(place, str(tmp_path / "copy"), to_time_us=1)


def test_claims_alone_are_covered_by_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper_module, "CHECKPOINT_NUMBERS", 5)
    store, place = FakeStore(tmp_path / "store"), open_place("memory://claims-alone")
    store.logs[0].append(50)
    for _ in range(12):
        Shipper(store, place).run(once=True)  # type: ignore[arg-type]
    root = f"{store.id}/o/{store._origin()}"
    assert len(list(place.list_after(f"{root}/c"))) == 2
    assert restored(place, tmp_path / "copy") == store.content()


def test_a_segment_that_retention_deleted_while_no_shipper_ran_stops_none(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store", logs=1), open_place("memory://retention-first")
    shipper = begin(store, place)
    store.logs[0].append(60_000)
    shipper.turn()
    store.logs[0].roll()
    store.logs[0].append(10)
    shipper.turn()  # the place has a sealed segment in a pack
    store.logs[0].drop()
    Shipper(store, place).run(once=True)  # type: ignore[arg-type]
    assert restored(place, tmp_path / "copy") == store.content()


def test_a_stopped_place_is_asked_again_and_a_stop_ends_the_wait(tmp_path: Path) -> None:
    store, inner = FakeStore(tmp_path / "store"), open_place("memory://stopped")
    store.logs[0].append(50)
    shipper = begin(store, FaultyPlace(inner, 1, Rates(0, 0, 0, 0)))
    shipper.turn()
    before = shipper.shipped.number
    shipper.place.is_down = True  # type: ignore[attr-defined]
    store.logs[0].append(50)
    told: list[Exception] = []

    def notice(error: Exception) -> None:
        told.append(error)
        if len(told) == 3:
            shipper.stop.set()

    shipper.patience.notice = notice
    with pytest.raises(Stopped):
        shipper.turn()
    assert len(told) == 3
    assert len(list(inner.list_after(f"{store.id}/o/{store._origin()}/n"))) == before


def test_only_the_changed_blocks_of_a_small_file_are_sent(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store"), open_place("memory://blocks")
    store.files["consumers/c"] = bytearray(store.chance.randbytes(20_000))
    shipper = begin(store, place)
    shipper.turn()
    store.files["consumers/c"][9000] ^= 1
    shipper.turn()
    pieces = shipper._driver.view.files["consumers/c"].pieces
    newest = number_key(shipper.shipped.number)
    assert [piece.position for piece in pieces if piece.key == newest] == [8192]
    assert restored(place, tmp_path / "copy") == store.content()


@pytest.mark.parametrize("put_s", [0.02, 0.03, 0.1, 0.5])
def test_the_next_flush_begins_as_soon_as_the_waiters_of_the_last_could_append_again(
    put_s: float,
) -> None:
    pause = shipper_module.pause_after(5.0, 5.0 + put_s, 5.0 + put_s)
    assert 0 < pause <= put_s / 10
    # The worst moment to append is just after a flush was cut: it waits for that one, and its own.
    ask = shipper_module.ask_after(0.0)
    assert put_s / 2 + pause + ask + put_s <= 1.8 * put_s


def test_a_place_that_answers_at_once_gets_no_more_flushes_than_the_plan_says() -> None:
    assert shipper_module.pause_after(5.0, 5.001, 5.001) == pytest.approx(0.019)
    requests = {row["what"]: row["requests"] for row in plan_of(0.0, 0)}
    (most,) = [
        found for what, found in requests.items() if what.endswith("at most") and "wait" in what
    ]
    assert most >= MONTH_S / shipper_module.SPACE_S


def test_a_store_is_asked_for_waiters_less_often_the_longer_there_are_none() -> None:
    pauses = [shipper_module.ask_after(quiet) for quiet in (0.0, 0.1, 0.3, 1.0, 60.0)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.001, 0.01)


def test_parts_of_a_sealed_segment_are_put_several_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "PART_MAX", 100_000)
    monkeypatch.setattr(packing, "PIECE_MAX", 100_000)
    place = open_place("memory://parts")
    store = FakeStore(tmp_path / "store", logs=1)
    shipper = begin(store, place)
    together, first_two = threading.Barrier(2, timeout=20), [1, 2]
    put = shipper._driver.uploads.put  # type: ignore[union-attr]

    def slow(kind: str, body: bytes) -> str:
        if kind == "s" and first_two:
            first_two.pop()
            together.wait()  # breaks where one part waits for the other
        return put(kind, body)

    monkeypatch.setattr(shipper._driver.uploads, "put", slow)
    for _ in range(4):
        store.logs[0].append(60_000)
        shipper.turn()
    store.logs[0].roll()
    shipper.turn()
    shipper.care()
    shipper._wait_for_seals()
    shipper.turn()
    assert sum(key.startswith("s/") for key in shipper._driver.view.live()) >= 2
    assert restored(place, tmp_path / "copy") == store.content()


def test_a_log_whose_lock_a_writer_holds_is_cut_once_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, place = FakeStore(tmp_path / "store", logs=1), open_place("memory://locked")
    shipper = begin(store, place)
    store.logs[0].append(20)
    cut, refusals = store._cut, [1, 2]

    def late(previous: object) -> object:
        if refusals:
            refusals.pop()
            raise LockTimeout("the lock was not free")
        return cut(previous)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "_cut", late)
    assert shipper.turn()
    assert restored(place, tmp_path / "copy") == store.content()


class Gone:
    """A cut whose segments cannot be read any more."""

    def __init__(self, cut: object, told: Callable[[], None]) -> None:
        self._cut, self._told = cut, told

    def __getattr__(self, name: str) -> object:
        return getattr(self._cut, name)

    def read(self, *_: object) -> bytes:
        self._told()
        raise CorruptData("another segment than the one in the cut")


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_claim_cuts_again_where_compaction_replaced_the_segment_that_it_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    store, place = FakeStore(tmp_path / "store"), open_place(f"memory://replaced-{is_replaced}")
    store.logs[0].append(100)
    begin(store, place).turn()
    store.logs[0].roll()
    cut, told = store._cut, list[int]()

    def replaced() -> None:
        told.append(1)
        if is_replaced:
            store.logs[0].compact()

    def first(previous: object = None) -> object:
        found = cut(None)
        return found if told else Gone(found, replaced)

    monkeypatch.setattr(store, "_cut", first)
    if not is_replaced:
        with pytest.raises(CorruptData, match="another segment"):
            begin(store, place)
        return
    shipper = begin(store, place)
    assert told == [1]
    shipper.turn()
    assert restored(place, tmp_path / "copy") == store.content()
