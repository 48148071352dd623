"""The probe passes places that keep their promise, and finds each way of breaking it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Lock

import pytest

from falaj.errors import PlaceUnreachable, UnsupportedPlace
from falaj.ship.memory import MemoryPlace
from falaj.ship.place import Listed, Place, open_place
from falaj.ship.probe import PASSED, probe
from ship.faults import FaultyPlace, Rates
from ship.scripted import Answer, Asked, Scripted
from ship.servers import VARIABLES, Server


def test_a_place_that_keeps_its_promise_passes_and_is_not_tried_again(place: Place) -> None:
    assert probe(place)
    assert not probe(place)
    assert probe(place, again=True)


def test_the_probe_leaves_only_its_memory() -> None:
    place = MemoryPlace("memory://left")
    probe(place)
    assert [one.key for one in place.list_after("")] == [PASSED]


class Broken(MemoryPlace):
    """A place with a bug, and what the probe says of it."""

    said = ""

    def __init__(self) -> None:
        super().__init__(f"memory://{id(self)}")
        self._objects.clear()
        self.lock = Lock()


class Replaces(Broken):
    """It ignores the condition of a create."""

    said = "creates of one key succeeded"

    def put_new(self, key: str, body: bytes) -> bool:
        with self.lock:
            super().delete([key])
            return super().put_new(key, body)


class RepliesSoAndReplaces(Replaces):
    """It refuses creates, and replaces the object all the same."""

    said = "not the one whose bytes"

    def put_new(self, key: str, body: bytes) -> bool:
        with self.lock:
            is_there = key in self._objects
        super().put_new(key, body)
        return not is_there


class ReplacesUnlessRacing(Broken):
    """Its condition holds among requests at once, and not for later ones."""

    said = "a later create replaced"

    def put_new(self, key: str, body: bytes) -> bool:
        if body == b"late":
            super().delete([key])
        return super().put_new(key, body)


class RefusesAndReplacesLater(Broken):
    """It refuses a later create, and replaces the object all the same."""

    said = "a later create replaced"

    def put_new(self, key: str, body: bytes) -> bool:
        if body == b"late":
            super().delete([key])
            super().put_new(key, body)
            return False
        return super().put_new(key, body)


class AcknowledgesLosers(Broken):
    """It keeps the first object, and acknowledges the creates that race with it too."""

    said = "8 creates of one key succeeded"

    def put_new(self, key: str, body: bytes) -> bool:
        return super().put_new(key, body) or body != b"late"


class KeepsTheLoser(Broken):
    """The body of a create that it acknowledges is not the one that it keeps."""

    said = "not the one whose bytes"

    def put_new(self, key: str, body: bytes) -> bool:
        return super().put_new(key, body if key == PASSED else b"other" + body)


class ForgetsObjects(Broken):
    """An object is not there right after its create."""

    said = "right after its create"

    def get(self, key: str) -> bytes | None:
        return None


class ListsLate(Broken):
    """A listing lacks the newest object."""

    said = "a listing has 7 of 8"

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        yield from list(super().list_after(prefix, after))[:-1]


class ListsInAnyOrder(Broken):
    """A listing has no order."""

    said = "another order"

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        yield from reversed(list(super().list_after(prefix, after)))


class ListsFromTheBegin(Broken):
    """A listing ignores where it is to begin."""

    said = "does not begin where"

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        yield from super().list_after(prefix)


class DeletesLate(Broken):
    """Deleted objects are still listed."""

    said = "deleted objects are still there"

    def delete(self, keys: Sequence[str]) -> None:
        pass


class CutsRangesElsewhere(Broken):
    """A range begins at another byte."""

    said = "other bytes than the object"

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        return super().get_range(key, start + 1, stop + 1)


@pytest.mark.parametrize("broken", [*Broken.__subclasses__(), *Replaces.__subclasses__()])
def test_a_place_that_breaks_a_promise_is_refused(broken: Callable[[], Broken]) -> None:
    place = broken()
    with pytest.raises(UnsupportedPlace, match=f"cannot keep a store: .*{place.said}"):
        probe(place)


def test_a_server_that_ignores_the_condition_of_a_create_is_refused_though_nothing_can_be_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    objects, lock = dict[str, bytes](), Lock()
    dated = (("ETag", '"x"'), ("Last-Modified", "Fri, 27 Nov 2026 21:00:00 GMT"))

    def answer(asked: Asked) -> Answer:
        with lock:
            if asked.method == "PUT":
                objects[asked.path] = asked.body
                return Answer(200, headers=dated)
            if asked.method == "POST":
                return Answer(403)
            if (found := objects.get(asked.path)) is None:
                return Answer(404)
            return Answer(200, found, dated)

    said = "8 creates of one key succeeded"
    with Scripted(answer) as server, pytest.raises(UnsupportedPlace, match=said):
        probe(open_place("s3://shop", endpoint=server.endpoint))


def test_a_place_that_failed_is_tried_again() -> None:
    place = Replaces()
    for _ in range(2):
        with pytest.raises(UnsupportedPlace):
            probe(place)


def test_a_real_server_whose_condition_does_not_hold_among_creates_that_race_is_refused(
    started: Callable[[str], Server],
) -> None:
    server, said = started("s3s-fs"), list[str]()
    assert [server.open("x").put_new("late", body) for body in (b"a", b"b")] == [True, False]
    for number in range(6):
        place = server.open(f"probe{number}")
        with pytest.raises(UnsupportedPlace) as refused:
            probe(place)
        said.append(str(refused.value))
        assert place.get(PASSED) is None
    assert sum("creates of one key succeeded" in one for one in said) >= 3, said


def test_lost_replies_are_no_reason_to_refuse_a_place(
    first_seed: int, budget: Callable[[int, int], int]
) -> None:
    passed = 0
    for seed in range(first_seed, first_seed + budget(40, 1000)):
        inner = MemoryPlace(f"memory://faulty-{seed}")
        rates = replace(Rates(), lost=0.01, reply=0.01)
        try:
            passed += probe(FaultyPlace(inner, seed, rates))
        except PlaceUnreachable:
            continue
    assert passed


def test_a_place_that_acknowledges_nothing_is_unreachable_and_not_refused() -> None:
    deaf = FaultyPlace(MemoryPlace("memory://deaf"), 1, Rates(lost=0.0, reply=0.0))
    deaf.is_down = True
    with pytest.raises(PlaceUnreachable):
        probe(deaf)
