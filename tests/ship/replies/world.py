"""A world of faulty replies: the processes of one store, what becomes of them, and what is asked.

Owns the order of events, all drawn from one seed. Shippers that do not know that they were fenced
go on beside the newest one. Processes die at any call. A process may be paused between two calls,
while others go on for longer than the history. The place is down for up to an hour. Requests that
are under way land after their process is gone. A store is copied, with the process that ships it or
without, and both copies go on. The place has the history of one of them. The other one is given up
once it is refused, as somebody would who restores it.
"""

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from falaj.errors import CorruptData, Fenced, HistoryDeleted, PlaceRefused, TwinStore
from falaj.ship import messages as say
from falaj.ship.driver import Driver, read_view
from falaj.ship.memory import MemoryPlace
from falaj.ship.objects import Patience, Uploads
from falaj.ship.origin import Origin
from falaj.ship.place import Listed
from falaj.ship.probe import PASSED
from falaj.ship.protocol import Reading
from falaj.ship.shipper import Options, Shipper
from falaj.ship.tree import View
from falaj.ship.verify import verify_place
from ship.fake import FakeStore
from ship.faults import FaultyPlace, Rates
from ship.replies.simulated import Clock, Waits
from ship.replies.witness import Witness, digest, expect

T = TypeVar("T")
RATES = Rates(lost=0.08, reply=0.08, late=0.08, twice=0.08, busy=0.08, calls=40)
HISTORY_S = 600.0
STEPS = 150
DIES = 0.002
PAUSES, PAUSES_OF_READERS, PAUSES_OF_CLAIMS = 0.002, 0.01, 0.05
"""The share of calls at which a process dies, and at which it is paused."""
SLEEPS = (1, 3, 10, 60, 150)
"""For so many steps a follower sleeps before it goes on."""
SHIPPERS_MOST, FOLLOWERS = 4, 6
COPIES, COPIES_OF_PROCESSES = 0.02, 0.6
"""How often a store is copied, and the share of these at which the process that ships is, too."""


class Killed(BaseException):
    """The process died."""


class MortalPlace:
    """A place whose user may die or be paused before a call is sent, or before its reply comes."""

    def __init__(
        self, world: "World", pauses: float, sent: Callable[[bytes], None] = lambda body: None
    ) -> None:
        self.inner, self.url = world.network, world.network.url
        self._world, self._pauses, self._sent, self._is_dead = world, pauses, sent, False

    def _live(self) -> None:
        if self._is_dead or self._world.chance.random() < self._world.dies:
            self._is_dead = True
            raise Killed
        if self._world.chance.random() < self._pauses:
            self._world.meanwhile()

    def _call(self, ask: Callable[[], T]) -> T:
        self._live()
        answer = ask()
        self._live()
        return answer

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object."""
        if key.split("/")[-2] == "n":
            self._sent(body)
            if self._world.chance.random() < PAUSES_OF_CLAIMS and b'"kind":"claim"' in body:
                self._world.meanwhile()
        return self._call(lambda: self.inner.put_new(key, body))

    def get(self, key: str) -> bytes | None:
        """Return an object."""
        return self._call(lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return bytes of an object."""
        return self._call(lambda: self.inner.get_range(key, start, stop))

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List objects."""
        return iter(self._call(lambda: list(self.inner.list_after(prefix, after))))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        self._call(lambda: self.inner.delete(keys))


class Seen:
    """A store, and what it held at the last cut."""

    def __init__(self, world: "World", store: FakeStore) -> None:
        self._world, self.store, self.held = world, store, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def _cut(self, previous: Any = None) -> Any:
        self.held = self._world.digest(self.store)
        return self.store._cut(previous)


class World:
    """The processes of one store, and its place.

    Attributes:
        counts: What was done, for people and for the ledger.
    """

    def __init__(self, base: Path, seed: int, clock: Clock) -> None:
        self.chance, self.clock, self.counts = random.Random(seed), clock, Counter[str]()
        self.store = FakeStore(base, seed, logs=3)
        self.stores, self._held = [self.store], dict[int, str]()
        self._copied_claims: set[int] = set()
        inner = MemoryPlace(f"memory://replies-{base}")
        inner.put_new(PASSED, b"{}")
        self.witness = Witness(inner, Origin(inner, self.store.id, self.store._origin()))
        self.network = FaultyPlace(self.witness, seed, RATES)
        self.waits, self._down_until = Waits(clock), 0.0
        clock.alarms.append(self._look_at_the_time)
        self.shippers: list[Shipper] = []
        self.followers: list[Driver | None] = [None] * FOLLOWERS
        self._steps, self._wakes = 0, [0] * FOLLOWERS
        self._at_work: list[Shipper | None] = []
        self.dies, self._is_meanwhile, self._pauses = DIES, False, 0

    # --- Events ----------------------------------------------------------------------------------

    def step(self) -> None:
        """Let something happen in the store, pass some time, and let some processes work."""
        chance, self._steps = self.chance, self._steps + 1
        self._write()
        self.clock.move(chance.choice([0.01, 0.1, 1.0, 5.0, 20.0]))
        if chance.random() < 0.02:
            self.clock.move(chance.uniform(0.5, 3) * HISTORY_S)
        if chance.random() < 0.02:
            self.network.is_down = True
            self._down_until = self.clock.now + chance.choice([5.0, 60.0, 3600.0])
            self.counts["outages"] += 1
        if len(self.stores) < 2 and chance.random() < COPIES:
            self._copy()
        if not self.shippers or chance.random() < 0.1:
            self._do(self._begin, None)
        for shipper in self._awake():
            if shipper in self.shippers[-1:] or chance.random() < 0.3:
                self._do(lambda it=shipper: self._ship(it), shipper)  # type: ignore[misc]
        for at in range(FOLLOWERS):
            if self._steps >= self._wakes[at]:
                self._wakes[at] = self._steps + chance.choice(SLEEPS)
                self._follow(at)
        if chance.random() < 0.1:
            self._restore()

    def meanwhile(self) -> None:
        """Let others go on, while a process is paused between two calls."""
        if not self._is_meanwhile:
            self._is_meanwhile, self._pauses = True, self._pauses + 1
            for _ in range(self.chance.choice([1, 3, 10, 40])):
                self.step()
            self._is_meanwhile = False
            self.counts["pauses"] += 1

    def end(self) -> None:
        """Let all land, ship once more without faults, and restore all that can be restored."""
        self.network.is_down = False
        self.network.settle()
        self.network.rates = Rates(0.0, 0.0, 0.0, 0.0)
        self.dies, self._is_meanwhile = 0.0, True
        shipper = self._last_begun()
        shipper.turn()
        self._note_acknowledged(shipper)
        view = read_view(self.witness.origin, self._patience())
        self.witness.expect_true(view, "the last restore", whole=True)
        held = self.witness.held_at(view.number)
        expect(held == self.digest(self._store_of(shipper)), "the last restore lacks some")
        for number in range(self.witness.floor(), len(self.witness.facts) + 1):
            if number and self.witness.held_at(number) is not None:
                view = read_view(self.witness.origin, self._patience(), number)
                self.witness.expect_true(view, f"a restore of {number}", whole=True)
                self.counts["restored"] += 1
        found = verify_place(self.witness)[0].findings
        expect(found == [], f"the place has {found}")
        self.counts["faults"] = self.network.counts.faults
        for name in ("lost", "reply", "late", "twice", "busy", "calls"):
            self.counts[name] = getattr(self.network.counts, name)
        self.counts["acknowledged"] = len(self.witness.acknowledged)

    def _last_begun(self) -> Shipper:
        """Begin with a store that the place does not refuse."""
        for store in list(self.stores):
            try:
                return self._begun(store)
            except PlaceRefused:
                self._give_up(store)
        raise AssertionError("the place refuses all copies of the store")

    def _look_at_the_time(self, now: float) -> None:
        if self.network.is_down and now >= self._down_until:
            self.network.is_down = False

    def _write(self) -> None:
        for store in self.stores:
            chance, log = self.chance, self.chance.choice(store.logs)
            log.append(chance.choice([10, 10, 300, 3_000, 60_000]))
            if chance.random() < 0.3:
                chance.choice([log.roll, log.drop, log.drop, log.compact])()
            if chance.random() < 0.2:
                store.files["consumers/c"] = bytearray(chance.randbytes(200))
        self._held.clear()

    def digest(self, store: FakeStore) -> str:
        """Return the hash of what a store holds now."""
        if id(store) not in self._held:
            self._held[id(store)] = digest(store.content())
        return self._held[id(store)]

    # --- Copies ----------------------------------------------------------------------------------

    def _copy(self) -> None:
        """Copy the store, perhaps with its newest shipper as it is at work; both go on."""
        self.counts["copies"] += 1
        made = copy.deepcopy(self.store)
        made.chance = random.Random(self.chance.getrandbits(64))
        for log in made.logs:
            log._chance = made.chance
        self.stores.append(made)
        awake = [each for each in self._awake() if self._store_of(each) is self.store]
        if awake and self.chance.random() < COPIES_OF_PROCESSES:
            self.shippers.append(self._copied(awake[-1], made))
            self.counts["copied processes"] += 1

    def _copied(self, first: Shipper, store: FakeStore) -> Shipper:
        """Copy a process between two steps: its memory, over its own connection to the place."""
        twin = self._shipper_of(store)
        driver = first._driver
        origin = Origin(twin.place, driver.origin.store, driver.origin.origin)
        twin._driver = made = Driver(origin, driver._machine, twin.patience)
        made.view = copy.deepcopy(driver.view)
        made._numbers, made._checkpoints = driver._numbers.copy(), driver._checkpoints.copy()
        made.holds, made.line, made.orphans = driver.holds, set(driver.line), list(driver.orphans)
        assert driver.holds is not None
        self._copied_claims.add(driver.holds)
        made.uploads = Uploads(origin, driver.holds, twin.patience, twin.options.in_flight)
        twin._awake, twin._flushed_at, twin._cut = first._awake, first._flushed_at, store._cut()  # type: ignore[assignment]
        return twin

    def _store_of(self, shipper: Shipper) -> FakeStore:
        return shipper.store.store  # type: ignore[attr-defined,no-any-return]

    def _give_up(self, store: FakeStore) -> None:
        """Give a store up that the place refused: the place has the history of the other one."""
        if store not in self.stores:
            return  # another process of it was refused while this one was paused
        expect(len(self.stores) == 2, "the only store was refused")
        self.stores = [each for each in self.stores if each is not store]
        self.shippers = [each for each in self.shippers if self._store_of(each) is not store]
        (self.store,) = self.stores
        self.counts["given up"] += 1

    # --- Shippers --------------------------------------------------------------------------------

    def _shipper_of(self, store: FakeStore) -> Shipper:
        seen = Seen(self, store)
        place = MortalPlace(self, PAUSES, lambda body: self.witness.sent(body, seen.held))
        shipper = Shipper(seen, place, Options(HISTORY_S))  # type: ignore[arg-type]
        shipper.stop = shipper.patience.stop = self.waits
        return shipper

    def _begun(self, store: FakeStore) -> Shipper:
        shipper = self._shipper_of(store)
        before = self._pauses
        shipper._claim()
        self.counts["claims"] += 1
        self._expect_claim(shipper, was_paused=self._pauses > before)
        return shipper

    def _begin(self) -> None:
        store = self.chance.choice(self.stores)
        try:
            begun = self._begun(store)
            if store in self.stores:
                self.shippers.append(begun)
        except PlaceRefused:
            self._give_up(store)
            return
        if len(self.shippers) > SHIPPERS_MOST:
            self.shippers.pop(0)

    def _expect_claim(self, shipper: Shipper, *, was_paused: bool) -> None:
        """A claimer's view is true, so it has each flush that was acknowledged before its claim."""
        driver = shipper._driver
        assert driver.holds is not None
        self._expect_true(driver.view, f"claim {driver.holds}", was_paused)
        for number, known in self.witness.acknowledged.items():
            if number < driver.holds:
                expect(self.witness.fact(number).hash == known, f"flush {number} was lost")

    def _expect_true(self, view: View, whose: str, was_paused: bool) -> None:
        """Check a view and its bytes; what a paused process was to read may have expired."""
        self.witness.expect_true(view, whose, whole=False)
        try:
            self.witness.expect_true(view, whose, whole=True)
        except CorruptData as error:
            expect(was_paused and "is missing" in str(error), f"{whose}: {error}")
            self.counts["behind"] += 1

    def _ship(self, shipper: Shipper) -> None:
        is_newest = shipper in self.shippers[-1:]
        if self.chance.random() < (0.8 if is_newest else 0.3):
            before = shipper.flushes
            try:
                shipper.turn()
            finally:
                if shipper.flushes > before:
                    self._note_acknowledged(shipper)
        if self.chance.random() < 0.3:
            shipper.care()
        if self.chance.random() < 0.25:
            shipper.checkpoint()
            self.counts["checkpoints"] += 1

    def _note_acknowledged(self, shipper: Shipper) -> None:
        view = shipper._driver.view
        if not self.witness.fact(view.number).claims:
            self.witness.acknowledge(view.number, view.hash)

    def _awake(self) -> list[Shipper]:
        return [shipper for shipper in self.shippers if shipper not in self._at_work]

    def _do(self, work: Callable[[], None], shipper: Shipper | None) -> None:
        try:
            self._at_work.append(shipper)
            work()
        except Killed:
            self.counts["kills"] += 1
        except (Fenced, CorruptData, TwinStore) as error:
            # Objects that a fenced shipper needs may have expired since.
            is_fenced = shipper is not None and self._is_fenced(shipper)
            is_copied = shipper is not None and shipper._driver.holds in self._copied_claims
            is_right = is_fenced and not isinstance(error, TwinStore)
            if is_copied:
                # A copy finds the number of the other one, its checkpoint, or nothing any more.
                is_right |= not isinstance(error, CorruptData) or "is missing" in str(error)
            expect(is_right, f"a shipper stopped: {error}")
            self.counts["twins found" if isinstance(error, TwinStore) else "fenced"] += 1
        else:
            return
        finally:
            self._at_work.remove(shipper)
        if shipper in self.shippers:
            self.shippers.remove(shipper)

    def _is_fenced(self, shipper: Shipper) -> bool:
        return self.witness.claim > (shipper._driver.holds or 0)

    # --- Readers ---------------------------------------------------------------------------------

    def _patience(self) -> Patience:
        return Patience(None, self.waits)

    def _reads(self) -> Origin:
        place = MortalPlace(self, PAUSES_OF_READERS)
        return Origin(place, self.witness.origin.store, self.witness.origin.origin)

    def _follow(self, at: int) -> None:
        """Let a follower go on; what it has is true, and it goes back only if it was paused.

        A paused one may have begun with a checkpoint whose next numbers are deleted meanwhile. It
        finds nothing behind it, and waits until it looks for a newer checkpoint.
        """
        driver, pauses = self.followers[at], self._pauses
        self.followers[at] = None  # while it is paused, others take its place
        before = 0 if driver is None else driver.view.number
        try:
            if driver is None:
                driver = Driver(self._reads(), Reading("follow"), self._patience())
                driver.start()
            else:
                driver.send(say.Silence() if self.chance.random() < 0.3 else say.Again())
        except Killed:
            self.counts["kills"] += 1
            return
        is_back = driver.view.number < before
        expect(not is_back or self._pauses > pauses, f"a follower went back from {before}")
        self.counts["back"] += is_back
        # Its pieces may lie where an older checkpoint has them; a reader then begins again.
        self._expect_true(driver.view, "a follower", was_paused=True)
        self.counts["followed"] += 1
        self.followers[at] = driver if self.chance.random() < 0.97 else None

    def _restore(self) -> None:
        """Restore the newest, or any number; only one below the history may be gone."""
        acknowledged, before = list(self.witness.acknowledged), self._pauses
        number = self.chance.choice([None, *acknowledged[-20:]])
        try:
            view = read_view(self._reads(), self._patience(), number)
        except Killed:
            self.counts["kills"] += 1
            return
        except HistoryDeleted:
            expect(number is not None and number < self.witness.floor(), f"{number} is deleted")
            return
        least = max(acknowledged, default=0) if number is None else number
        most = len(self.witness.facts) if number is None else number
        expect(least <= view.number <= most, f"a restore of {number} gave {view.number}")
        self._expect_true(view, "a restore", self._pauses > before)
        self.counts["restored"] += 1
