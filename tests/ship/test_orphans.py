"""Objects that killed shippers leave, and checkpoints of fenced ones: deleted, and nothing else."""

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from falaj import _core
from falaj.errors import CorruptData, Fenced
from falaj.ship import driver
from falaj.ship import shipper as shipper_module
from falaj.ship.numbers import encode_number
from falaj.ship.origin import Origin
from falaj.ship.place import Listed, Place, open_place
from falaj.ship.probe import probe
from falaj.ship.restore import restore
from falaj.ship.shapes import Claim, Flush, number_key
from falaj.ship.shipper import Options, Shipper
from falaj.ship.verify import verify_place
from ship.fake import FakeBuilder, FakeStore


@pytest.fixture(autouse=True)
def builder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "StoreBuilder", FakeBuilder, raising=False)


class Killed(BaseException):
    """The process of a shipper died."""


class MortalPlace:
    """A place whose user dies at a write, by chance; its last create may land later."""

    def __init__(self, inner: Place, chance: random.Random, late: list[Callable[[], object]]):
        self.inner, self.url = inner, inner.url
        self.share, self.is_dead = 0.0, False
        self._chance, self._late = chance, late

    def _alive(self) -> None:
        if self.is_dead:
            raise Killed

    def _maybe(self) -> None:
        self._alive()
        if self._chance.random() < self.share:
            self.is_dead = True
            raise Killed

    def put_new(self, key: str, body: bytes) -> bool:
        self._alive()
        if self._chance.random() < self.share:
            self.is_dead = True
            self._late.append(lambda: self.inner.put_new(key, body))
            raise Killed
        made = self.inner.put_new(key, body)
        self._maybe()
        return made

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._maybe()
            self.inner.delete([key])

    def get(self, key: str) -> bytes | None:
        self._alive()
        return self.inner.get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        self._alive()
        return self.inner.get_range(key, start, stop)

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        self._alive()
        return self.inner.list_after(prefix, after)


def begin(store: FakeStore, place: Place, history: float = 0.0) -> Shipper:
    shipper = Shipper(store, place, Options(history=history))  # type: ignore[arg-type]
    shipper._claim()
    return shipper


def origin_of(store: FakeStore, place: Place) -> Origin:
    return Origin(place, store.id, store._origin())


def expect_content(place: Place, to: Path, content: dict[str, bytes], **how: int) -> None:
    report = restore(place, str(to), **how)  # type: ignore[arg-type]
    assert FakeBuilder.built.pop(report["path"]) == content


def needed(shipper: Shipper) -> set[str]:
    """Return the objects that the place needs: of the view, or garbage that waits."""
    origin = shipper._driver.origin
    found = set(shipper._driver.view.sizes)
    for each in origin.checkpoints():
        outline = origin.outline(int(each.key[2:]))
        assert outline is not None
        found.update(outline.garbage)
    return found


def objects_in(store: FakeStore, place: Place) -> set[str]:
    origin = origin_of(store, place)
    return {each.key for kind in ("k", "s") for each in origin.list_after(kind)}


def go_on(store: FakeStore, shipper: Shipper, rounds: int = 4) -> None:
    """Write and make checkpoints, so that all that is garbage by now expires."""
    for _ in range(rounds):
        store.logs[0].append(10)
        shipper.turn()
        shipper.checkpoint()


def leave_orphans(store: FakeStore, place: Place, count: int) -> None:
    """Kill shippers between the packs and their number."""
    for _ in range(count):
        mortal = MortalPlace(place, random.Random(1), [])
        shipper = begin(store, mortal)
        store.logs[0].append(100_000)
        mortal.share = 0.0
        shipper._driver.flush = lambda *_, **__: (_ for _ in ()).throw(Killed)  # type: ignore[method-assign]
        with pytest.raises(Killed):
            shipper.turn()


def test_what_killed_shippers_left_is_deleted_after_the_history(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store"), open_place("memory://orphans")
    leave_orphans(store, place, 10)
    left = objects_in(store, place)
    assert len(left) == 10
    shipper = begin(store, place)
    shipper.turn()
    shipper.checkpoint()
    shipper.checkpoint()
    assert left <= objects_in(store, place), "they wait for the history"
    go_on(store, shipper)
    assert not left & objects_in(store, place)
    assert objects_in(store, place) <= needed(shipper)
    expect_content(place, tmp_path / "copy", store.content())


def test_orphans_wait_as_long_as_the_history(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store"), open_place("memory://orphans-wait")
    leave_orphans(store, place, 2)
    left = objects_in(store, place)
    go_on(store, begin(store, place, history=3600.0), 8)
    assert left <= objects_in(store, place)


def test_shippers_that_are_always_killed_early_list_what_others_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper_module, "CHECKPOINT_NUMBERS", 3)
    store, place = FakeStore(tmp_path / "store"), open_place("memory://orphans-early")
    most = 0
    for _ in range(40):
        leave_orphans(store, place, 1)
        shipper = Shipper(store, place, Options(history=0.0))  # type: ignore[arg-type]
        monkeypatch.setattr(shipper, "_loop", lambda *_: None)
        monkeypatch.setattr(shipper._looker, "submit", lambda *_: Future())  # killed before its end
        shipper.run()
        most = max(most, len(objects_in(store, place)))
    assert most < 20


def test_a_look_back_beside_the_shipping_is_taken_once_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, place = FakeStore(tmp_path / "store"), open_place("memory://orphans-beside")
    leave_orphans(store, place, 3)
    left = objects_in(store, place)
    shipper = Shipper(store, place, Options(history=0.0))  # type: ignore[arg-type]

    def loop(*_: object) -> None:
        assert shipper._looking is not None
        shipper._looking.result()
        go_on(store, shipper, 5)

    monkeypatch.setattr(shipper, "_loop", loop)
    shipper.run()
    assert not left & objects_in(store, place)


def test_one_checkpoint_lists_a_part_of_many_orphans_and_later_ones_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "ORPHANS_MOST", 2)
    store, place = FakeStore(tmp_path / "store"), open_place("memory://orphans-many")
    leave_orphans(store, place, 5)
    left = objects_in(store, place)
    shipper, lists = begin(store, place), []
    for _ in range(4):
        go_on(store, shipper, 1)
        outline = shipper._driver.origin.outline(shipper._driver.view.number)
        assert outline is not None
        lists.append(len(left.intersection(outline.garbage)))
    assert lists == [2, 2, 1, 0]


def test_objects_of_the_own_claim_are_no_orphans(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store"), open_place("memory://orphans-own")
    shipper = begin(store, place)
    uploads = shipper._driver.uploads
    assert uploads is not None
    mine = uploads.put("k", b"on its way")
    go_on(store, shipper, 5)
    assert mine in objects_in(store, place)
    go_on(store, begin(store, place), 5)
    assert mine not in objects_in(store, place)


def test_a_number_of_a_dead_shipper_that_lands_late_stays_void(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store"), open_place("memory://orphans-late")
    dead = begin(store, place)
    go_on(store, dead, 1)
    store.logs[0].append(100_000)
    sent: list[Flush] = []
    dead._driver.flush = lambda draft, **_: sent.append(draft)  # type: ignore[method-assign]
    dead.turn()
    (draft,) = sent
    assert draft.objects
    shipper = begin(store, place)
    go_on(store, shipper, 5)
    origin = shipper._driver.origin
    assert not set(draft.objects) & objects_in(store, place)
    view = shipper._driver.view
    draft.number, draft.claim, draft.previous = view.number + 1, dead._driver.holds or 0, view.hash
    key = number_key(draft.number)
    assert origin.put_new(key, encode_number(draft, origin.whose(key)))
    expect_content(place, tmp_path / "before", store.content())
    go_on(store, shipper, 5)
    go_on(store, begin(store, place), 5)
    expect_content(place, tmp_path / "copy", store.content())
    assert verify_place(place)[0].findings == []


def test_a_checkpoint_of_a_fenced_shipper_deletes_nothing_of_its_successor(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store", logs=4), open_place("memory://stray")
    fenced = begin(store, place)
    for log in store.logs:
        log.append(100_000)
        fenced.turn()
    shipper = begin(store, place)
    fenced.checkpoint()  # it does not know yet, and joins the four packs in one
    store.logs.pop()
    shipper.turn()  # three are left, so this one joins none
    go_on(store, shipper, 6)
    expect_content(place, tmp_path / "copy", store.content())
    assert len(origin_of(store, place).checkpoints()) <= 4
    with pytest.raises(Fenced):
        go_on(store, fenced)
    go_on(store, begin(store, place), 6)
    assert objects_in(store, place) <= needed(begin(store, place))


def test_a_fenced_shipper_deletes_nothing_once_another_made_a_checkpoint(tmp_path: Path) -> None:
    store, place = FakeStore(tmp_path / "store"), open_place("memory://fenced-expires")
    fenced = begin(store, place, history=3600.0)
    go_on(store, fenced, 5)
    go_on(store, begin(store, place, history=3600.0), 5)
    before = set(place.list_after(""))
    fenced.options = Options(history=0.0)
    fenced.checkpoint()
    assert set(place.list_after("")) == before


class World:
    """Shippers of one store: one goes on, older ones do not know that they were fenced."""

    def __init__(self, base: Path, seed: int) -> None:
        self.base, self.chance = base, random.Random(seed)
        self.store = FakeStore(base / f"store{seed}", seed, logs=3)
        self.inner = open_place(f"memory://world-{seed}")
        probe(self.inner)
        self.late: list[Callable[[], object]] = []
        self.shippers: list[Shipper] = []
        self.account: dict[int, dict[str, bytes]] = {}
        self.kills = self.strays = self.checked = 0

    def step(self) -> None:
        log, chance = self.chance.choice(self.store.logs), self.chance
        log.append(chance.choice([10, 60_000, 100_000]))
        if chance.random() < 0.3:
            chance.choice([log.roll, log.drop, log.drop, log.compact])()
        if self.late and chance.random() < 0.2:
            self.late.pop(chance.randrange(len(self.late)))()
        if not self.shippers or chance.random() < 0.15:
            self.do(self.begin, None)
        for shipper in list(self.shippers):
            if shipper is self.shippers[-1] or chance.random() < 0.3:
                self.do(lambda it=shipper: self.work(it), shipper)  # type: ignore[misc]

    def begin(self) -> None:
        place = MortalPlace(self.inner, self.chance, self.late)
        place.share = 0.03
        self.shippers.append(begin(self.store, place))

    def work(self, shipper: Shipper) -> None:
        is_newest = shipper is self.shippers[-1]
        turns = 0.7 if is_newest else 0.2
        if self.chance.random() < turns and shipper.turn():
            self.account[shipper.shipped.number] = self.store.content()
        if self.chance.random() < 0.3:
            shipper.care()
            shipper._wait_for_seals()
        if self.chance.random() < 0.4:
            before = shipper._driver.view.checkpoint
            shipper.checkpoint()
            self.strays += not is_newest and shipper._driver.view.checkpoint > before

    def do(self, work: Callable[[], None], shipper: Shipper | None) -> None:
        try:
            work()
        except (Killed, Fenced) as error:
            self.kills += isinstance(error, Killed)
        except CorruptData:  # a fenced shipper may miss what has expired since
            assert shipper is not None
            assert self.is_fenced(shipper)
        else:
            return
        if shipper is not None:
            self.shippers.remove(shipper)

    def is_fenced(self, shipper: Shipper) -> bool:
        """Tell whether the place has a later claim."""
        origin = origin_of(self.store, self.inner)
        later = origin.list_after("n", number_key(shipper._driver.holds or 0))
        read = [origin.number(int(each.key[2:])) for each in later]
        return any(each and isinstance(each[0], Claim) for each in read)

    def check(self) -> None:
        """Restore all numbers from the checkpoint before the newest one on."""
        origin = origin_of(self.store, self.inner)
        listed = origin.checkpoints()
        outline = origin.outline(int(listed[-1].key[2:])) if listed else None
        floor = outline.before if outline else 0
        for number in sorted(self.account):
            if number < floor:
                del self.account[number]
                continue
            to = self.base / f"{self.inner.url[-1]}-{self.checked}"
            expect_content(self.inner, to, self.account[number], to_number=number)
            self.checked += 1


def test_random_kills_leave_every_number_that_can_be_restored_and_no_garbage(
    tmp_path: Path,
) -> None:
    kills = strays = checked = 0
    for seed in range(8):
        world = World(tmp_path, seed)
        for step in range(100):
            world.step()
            if step % 10 == 9:
                world.check()
        while world.late:
            world.late.pop()()
        world.check()
        go_on(world.store, begin(world.store, world.inner), 6)
        last = begin(world.store, world.inner)
        go_on(world.store, last, 6)
        assert objects_in(world.store, world.inner) <= needed(last)
        expect_content(world.inner, tmp_path / f"newest{seed}", world.store.content())
        assert verify_place(world.inner)[0].findings == []
        kills, strays = kills + world.kills, strays + world.strays
        checked += world.checked
    assert kills > 50
    assert strays > 2
    assert checked > 150
