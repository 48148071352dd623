"""The shipper over a store in memory: every number restores to what the store held then."""

from pathlib import Path

import pytest
from falaj.errors import CorruptData, Fenced, PlaceRefused

from falaj import _core
from falaj.ship.place import Place, open_place
from falaj.ship.restore import restore
from falaj.ship.shipper import Options, Shipper
from tests.ship.fake import FakeBuilder, FakeStore, objects_of


@pytest.fixture(autouse=True)
def builder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "StoreBuilder", FakeBuilder, raising=False)


def begin(store: FakeStore, place: Place, **options: float) -> Shipper:
    shipper = Shipper(store, place, Options(**options))  # type: ignore[arg-type]
    shipper._shipping = None
    shipper._claim()
    return shipper


def restored(place: Place, to: Path, **how: int) -> dict[str, bytes]:
    report = restore(place, str(to), **how)  # type: ignore[arg-type]
    return FakeBuilder.built[report.path]


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
        chance.choice([log.roll, log.drop, log.compact, lambda: None, lambda: None])()
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
