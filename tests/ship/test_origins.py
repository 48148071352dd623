"""Several origins in one reader: each origin's records in their order, each once, none missing."""

import asyncio
import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj import _origins as reading
from falaj import _origins_follower as following
from falaj.errors import (
    HandleClosed,
    HistoryDeleted,
    InvalidArgument,
    OffsetOutOfRange,
    PlaceUnreachable,
    TopicDeleted,
    UnknownOrigin,
    UnknownTopic,
)
from falaj.ship.place import open_place
from ship.test_reader import Watched

SECONDS = 30.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that machines ship to; readers have a cache of their own."""
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "place"


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[falaj.Store]]:
    """Return the stores of three machines."""
    stores = [falaj.open(tmp_path / f"machine{n}") for n in range(3)]
    yield stores
    for store in stores:
        store.close()


def write(store: falaj.Store, place: Path, *values: str) -> str:
    """Append records, ship them, and return the origin."""
    store.topic("orders", codec="str").extend([*values])
    store.ship(place, once=True)
    return store._origin()


def told(pairs: Any) -> list[tuple[str, str]]:
    """Return origins and values."""
    return [(origin, record.value) for origin, record in pairs]


def by_origin(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the values of each origin, as they came."""
    found: dict[str, list[str]] = {}
    for origin, value in pairs:
        found.setdefault(origin, []).append(value)
    return found


def until(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    begun = time.monotonic()
    while not done():
        assert time.monotonic() - begun < SECONDS
        time.sleep(0.01)  # sleep: another thread works


def copied(store: falaj.Store, place: Path, to: Path, number: int | None = None) -> falaj.Store:
    """Restore a store from its place."""
    falaj.restore(place, to, origin=store._origin(), to_number=number)
    return falaj.open(to)


# --- Which origins -------------------------------------------------------------------------------


def test_a_list_of_origins_tells_heads_from_those_that_were_left_behind(
    tmp_path: Path, place: Path, machines: list[falaj.Store]
) -> None:
    assert falaj.list_origins(place) == []
    old = write(machines[0], place, "a0")
    other = write(machines[1], place, "b0")
    with copied(machines[0], place, tmp_path / "copy") as copy:
        new = write(copy, place, "a1")
    found = {each.origin: each for each in falaj.list_origins(place)}
    assert found.keys() == {old, other, new}
    assert {origin: each.head for origin, each in found.items()} == {
        old: False,
        other: True,
        new: True,
    }
    assert found[new].parent == old
    assert found[old].parent is None
    assert found[new].store == found[old].store != found[other].store
    assert found[new].number > 1
    assert found[new].modified_us >= found[old].modified_us > 0


def test_all_that_several_machines_wrote_is_read_merged_by_time(
    place: Path, machines: list[falaj.Store]
) -> None:
    origins = []
    for n, store in enumerate(machines):
        topic = store.topic("orders", codec="str")
        for at in range(n, 30, 3):
            topic.append(str(at), timestamp_ns=1_000_000 + at)
        store.ship(place, once=True)
        origins.append(store._origin())
    with falaj.open_origins(place) as everyone:
        assert set(everyone) == set(origins)
        assert everyone[origins[1]].id == machines[1].id
        assert told(everyone.records("orders")) == [(origins[n % 3], str(n)) for n in range(30)]
        with everyone.follow("orders", timeout=0) as follower:
            assert told(follower) == [(origins[n % 3], str(n)) for n in range(30)]
        assert everyone.errors == {}
    assert everyone.closed
    with pytest.raises(HandleClosed):
        everyone.records("orders")
    with pytest.raises(HandleClosed):
        everyone.refresh()


def test_order_within_an_origin_holds_whatever_its_timestamps_say(
    place: Path, machines: list[falaj.Store]
) -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")  # noqa: T201  # to see a failure again
    chance = random.Random(seed)
    wanted = {}
    for store in machines:
        topic = store.topic("orders", codec="str")
        for n in range(50):
            topic.append(str(n), timestamp_ns=chance.randrange(1, 100))
        store.ship(place, once=True)
        wanted[store._origin()] = [str(n) for n in range(50)]
    with falaj.open_origins(place) as everyone:
        assert by_origin(told(everyone.records("orders"))) == wanted
        assert by_origin(told(everyone.follow("orders", timeout=0))) == wanted


def test_a_store_of_this_machine_is_one_of_the_origins_and_stays_open(
    place: Path, machines: list[falaj.Store]
) -> None:
    mine, theirs = write(machines[0], place, "a0"), write(machines[1], place, "b0")
    machines[0].topic("orders").append("a1")  # not shipped
    for own in (machines[0], machines[0].path):
        with falaj.open_origins(own, place) as everyone:
            found = by_origin(told(everyone.records("orders")))
            assert found == {mine: ["a0", "a1"], theirs: ["b0"]}
            assert (everyone[mine] is machines[0]) == (own is machines[0])
    assert not machines[0].closed
    with falaj.open_place(place, origin=theirs) as shipped:
        with falaj.open_origins(shipped) as everyone:
            assert [*everyone] == [theirs]
        assert not shipped.closed
    with pytest.raises(UnknownOrigin, match="no origin yet: ship it first"):
        falaj.open_origins(machines[2], place)
    assert not (Path(machines[2].path) / "origin").exists()


def test_of_a_restored_store_only_the_copy_that_goes_on_is_read(
    tmp_path: Path, place: Path, machines: list[falaj.Store]
) -> None:
    old = write(machines[0], place, "a0", "a1")
    with copied(machines[0], place, tmp_path / "copy") as copy:
        new = write(copy, place, "a2")
        with falaj.open_origins(place) as everyone:
            assert told(everyone.records("orders")) == [(new, f"a{n}") for n in range(3)]
        with falaj.open_origins(copy, place) as everyone:
            assert [*everyone] == [new]
        with falaj.open_origins(place, origins=[old[:6]]) as everyone:
            assert told(everyone.records("orders")) == [(old, "a0"), (old, "a1")]
        with falaj.open_origins(place, origins=[old, new]) as everyone:
            assert len(told(everyone.records("orders"))) == 5


def test_two_heads_of_a_store_are_refused_until_one_is_named(
    tmp_path: Path, place: Path, machines: list[falaj.Store]
) -> None:
    write(machines[0], place, "a0")
    copies = [copied(machines[0], place, tmp_path / f"copy{n}") for n in range(2)]
    heads = [write(copy, place, f"b{n}") for n, copy in enumerate(copies)]
    with pytest.raises(UnknownOrigin, match="name those to read with origins=") as refused:
        falaj.open_origins(place)
    assert all(head in str(refused.value) for head in heads)
    with falaj.open_origins(place, origins=heads[:1]) as everyone:
        assert told(everyone.records("orders")) == [(heads[0], "a0"), (heads[0], "b0")]
    for copy in copies:
        copy.close()


def test_a_second_head_that_comes_later_is_told_and_the_first_is_read_further(
    tmp_path: Path, place: Path, machines: list[falaj.Store]
) -> None:
    write(machines[0], place, "a0")
    with copied(machines[0], place, tmp_path / "one") as one:
        head = write(one, place, "b0")
        with (
            falaj.open_origins(place) as everyone,
            copied(machines[0], place, tmp_path / "two") as two,
        ):
            write(two, place, "c0")
            with pytest.raises(UnknownOrigin, match="name those to read"):
                everyone.refresh()
            assert [*everyone] == [head]
            assert isinstance(everyone.errors[one.id], UnknownOrigin)
            write(one, place, "b1")
            got = told(everyone.follow("orders", timeout="2s"))
            assert got == [(head, value) for value in ("a0", "b0", "b1")]


def test_names_that_fit_no_origin_or_several_and_places_without_one_are_refused(
    place: Path, machines: list[falaj.Store]
) -> None:
    with pytest.raises(UnknownOrigin, match="holds no store"):
        falaj.open_origins(place)
    origins = [write(store, place, "a") for store in machines]
    for wrong in ("", "x"):
        with pytest.raises(UnknownOrigin, match="choose from") as refused:
            falaj.open_origins(place, origins=[wrong])
        assert all(origin in str(refused.value) for origin in origins)
    with pytest.raises(InvalidArgument, match="at least one place"):
        falaj.open_origins()
    with pytest.raises(InvalidArgument, match="endpoint"):
        falaj.open_origins(place, endpoint="http://127.0.0.1:1")
    with pytest.raises(TypeError, match="list of origins"):
        falaj.open_origins(place, origins=origins[0])


def test_an_origin_in_several_places_is_read_once_from_the_first(
    tmp_path: Path, place: Path, machines: list[falaj.Store]
) -> None:
    origin = write(machines[0], place, "a0")
    shutil.copytree(place, tmp_path / "second")
    write(machines[0], place, "a1")
    with falaj.open_origins(tmp_path / "second", place) as everyone:
        assert told(everyone.records("orders")) == [(origin, "a0")]
    with falaj.open_origins(place, tmp_path / "second") as everyone:
        assert told(everyone.records("orders")) == [(origin, "a0"), (origin, "a1")]


# --- Following -----------------------------------------------------------------------------------


def test_a_follower_goes_on_as_any_origin_gets_more(
    place: Path, machines: list[falaj.Store]
) -> None:
    origins = [write(store, place, f"{n}") for n, store in enumerate(machines)]
    with falaj.open_origins(machines[0], place) as everyone:
        follower = everyone.follow("orders", start="latest", timeout=SECONDS)
        for n in (2, 0, 1, 2, 0):
            write(machines[n], place, f"more {n}")
            assert told([next(follower)]) == [(origins[n], f"more {n}")]
        assert follower.poll() is None
        follower.close()
        assert [*follower] == []
        assert follower.closed
        last = everyone.follow("orders", start=-1, timeout=0)
        assert sorted(value for _, value in told(last)) == ["more 0", "more 1", "more 2"]


def test_a_follower_ends_with_its_time_its_origins_or_a_close_in_another_thread(
    place: Path, machines: list[falaj.Store]
) -> None:
    write(machines[0], place, "a")
    everyone = falaj.open_origins(place)
    begun = time.monotonic()
    assert len([*everyone.follow("orders", timeout=0.3)]) == 1
    assert 0.3 <= time.monotonic() - begun < 5
    for owner in (None, everyone):
        follower = everyone.follow("orders", start="latest")
        threading.Timer(0.1, (owner or follower).close).start()
        assert [*follower] == []
        assert follower.closed


def test_a_topic_that_every_machine_finished_ends_the_iteration(
    place: Path, machines: list[falaj.Store]
) -> None:
    for store in machines[:2]:
        write(store, place, "a")
    with falaj.open_origins(machines[0], machines[1]) as everyone:
        machines[0].topic("orders").finish()
        threading.Timer(0.1, machines[1].topic("orders").finish).start()
        assert len([*everyone.follow("orders", timeout=SECONDS)]) == 2


def test_a_follower_is_read_by_async_for(place: Path, machines: list[falaj.Store]) -> None:
    async def run() -> list[str]:
        got = []
        with falaj.open_origins(*machines[:2]) as everyone:
            async for _, record in everyone.follow("orders", timeout=SECONDS):
                got.append(record.value)
                if len(got) == 600:
                    break
                if len(got) == 2:
                    machines[1].topic("orders").extend(["c"] * 598)
            with everyone.follow("orders", start="latest", timeout=0.05) as none:
                assert [each async for each in none] == []
        return got

    write(machines[0], place, "a")
    write(machines[1], place, "b")
    assert asyncio.run(run()) == ["a", "b"] + ["c"] * 598


def test_a_topic_that_an_origin_gets_later_is_read_from_its_first_record(
    place: Path, machines: list[falaj.Store]
) -> None:
    first = write(machines[0], place, "a0")
    machines[1].topic("other").append(b"x")
    machines[1].ship(place, once=True)
    with falaj.open_origins(place) as everyone:
        with pytest.raises(UnknownTopic, match="they have orders, other"):
            everyone.follow("returns")
        with pytest.raises(UnknownTopic, match="they have orders, other"):
            everyone.records("returns")
        assert told(everyone.records("orders")) == [(first, "a0")]
        follower = everyone.follow("orders", start="latest", timeout=SECONDS)
        second = write(machines[1], place, "b0", "b1")
        assert told([next(follower), next(follower)]) == [(second, "b0"), (second, "b1")]


def test_a_topic_that_was_deleted_and_made_again_is_an_error_that_names_the_origin(
    place: Path, machines: list[falaj.Store]
) -> None:
    origins = [write(store, place, "a") for store in machines[:2]]
    with falaj.open_origins(machines[0], place) as everyone:
        follower = everyone.follow("orders", timeout=SECONDS)
        assert len([next(follower), next(follower)]) == 2
        machines[1].delete_topic("orders")
        write(machines[1], place, "again")
        with pytest.raises(TopicDeleted) as deleted:
            next(follower)
        assert deleted.value.__notes__ == [f"in origin {origins[1]}"]


def test_a_machine_that_joins_is_found_and_read_from_its_first_record(
    place: Path, machines: list[falaj.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOOK_S", 0.1)
    write(machines[0], place, "a0")
    with falaj.open_origins(place) as everyone:
        follower = everyone.follow("orders", start="latest", timeout=SECONDS)
        joined = write(machines[1], place, "b0")
        assert told([next(follower)]) == [(joined, "b0")]
        assert set(everyone) == {machines[0]._origin(), joined}
    with falaj.open_origins(place, follow=False) as still:
        joined = write(machines[2], place, "c0")
        write(machines[0], place, "a1")
        assert len([*still.records("orders")]) == 2
        still.refresh()
        assert len([*still.records("orders")]) == 4
        assert joined in still


def test_a_look_for_new_origins_costs_a_listing_for_each_and_followers_look_seldom(
    place: Path, machines: list[falaj.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    for store in machines:
        write(store, place, "a")
    there = Watched(open_place(place))
    monkeypatch.setattr("falaj._origins.place_at", lambda at: there)

    def listings() -> int:
        found = sum(key == "" for key, _ in there.read)
        there.read.clear()
        return found

    with falaj.open_origins(place) as everyone:
        assert listings() == 4  # three origins, and the end with the probe
        assert len([*everyone.follow("orders", timeout=0.5)]) == 3
        assert listings() == 0
        everyone.refresh()
        assert not any(key.endswith(f"{1:020}") for key, _ in there.read)
        assert listings() == 4


# --- Going on ------------------------------------------------------------------------------------


def test_a_job_goes_on_exactly_where_it_stopped(place: Path, machines: list[falaj.Store]) -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")  # noqa: T201  # to see a failure again
    chance = random.Random(seed)
    wanted: dict[str, list[str]] = {}
    for store in machines:
        clicks = store.partitioned_topic("clicks", partitions=3, codec="str")
        values = [f"{store.id[:4]} {n}" for n in range(40)]
        for n, value in enumerate(values):
            clicks.append(value, partition=n if n < 3 else chance.randrange(3))
        store.ship(place, once=True)
        wanted[store._origin()] = values
    offsets: Any = "earliest"
    got: list[tuple[str, str]] = []
    with falaj.open_origins(place) as everyone:
        while len(got) < 120:
            follower = everyone.follow("clicks", start=offsets, timeout=0)
            for _ in range(chance.randrange(1, 30)):
                got += told([pair] if (pair := follower.poll()) else [])
            offsets = follower.offsets
        assert told(everyone.follow("clicks", start=offsets, timeout=0)) == []
        assert told(everyone.records("clicks", start=offsets)) == []
        left = {origin: {0: 1} for origin in everyone}
        assert 0 < len([*everyone.records("clicks", start=left)]) < 120
    assert {origin: sorted(values) for origin, values in by_origin(got).items()} == {
        origin: sorted(values) for origin, values in wanted.items()
    }


def test_a_start_that_fits_no_origin_is_refused(place: Path, machines: list[falaj.Store]) -> None:
    origin = write(machines[0], place, "a")
    with falaj.open_origins(place) as everyone:
        with pytest.raises(InvalidArgument, match="counts in one origin"):
            everyone.follow("orders", start=5)
        for wrong in ({origin: 5}, {origin: {0: "x"}}, {5: {0: 1}}):
            with pytest.raises(TypeError):
                everyone.follow("orders", start=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="from 0 on"):
            everyone.follow("orders", start={origin: {0: -1}})
        with pytest.raises(OffsetOutOfRange) as beyond:
            everyone.follow("orders", start={origin: {0: 5}})
        assert beyond.value.__notes__ == [f"in origin {origin}"]


def test_offsets_of_a_deleted_topic_lead_into_no_other_of_its_name(
    place: Path, machines: list[falaj.Store]
) -> None:
    origin = write(machines[0], place, "a", "b")
    with falaj.open_origins(place) as everyone, everyone.follow("orders", timeout=0) as follower:
        assert told(follower) == [(origin, "a"), (origin, "b")]
        stands = json.loads(json.dumps(follower.offsets))
    machines[0].topic("orders").delete()
    write(machines[0], place, "c", "d", "e")
    with falaj.open_origins(place) as everyone:
        for read in (everyone.follow, everyone.records):
            with pytest.raises(TopicDeleted, match=f"in origin {origin}.*another has its name"):
                read("orders", start=stands)
        of_no_topic = {origin: {"0": 1}}
        assert told(everyone.records("orders", start=of_no_topic)) == [(origin, "d"), (origin, "e")]
        del stands[origin]
        assert [value for _, value in told(everyone.records("orders", start=stands))] == [*"cde"]


def test_a_copy_whose_topic_is_another_one_is_read_from_its_first_record(
    tmp_path: Path, place: Path, machines: list[falaj.Store]
) -> None:
    write(machines[0], place, "a", "b")
    with falaj.open_origins(place) as everyone, everyone.follow("orders", timeout=0) as follower:
        assert len(told(follower)) == 2
    machines[0].topic("orders").delete()
    number = int(machines[0].ship(place, once=True)["number"])
    with copied(machines[0], place, tmp_path / "copy", number) as copy:
        new = write(copy, place, "c")
    with falaj.open_origins(place) as everyone:
        again = everyone.follow("orders", start=follower.offsets, timeout=0)
        assert told(again) == [(new, "c")]


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("read", [0, 2, 4])
def test_a_job_goes_on_in_the_copy_that_took_over(
    tmp_path: Path, place: Path, machines: list[falaj.Store], read: int, is_running: bool
) -> None:
    """The copy has two records of its parent, and two others behind them."""
    write(machines[0], place, "a0", "a1")
    number = falaj.list_origins(place)[0].number
    old = write(machines[0], place, "a2", "a3")
    with falaj.open_origins(place) as everyone:
        follower = everyone.follow("orders", timeout=SECONDS)
        got = told(next(follower) for _ in range(read))
        assert got == [(old, f"a{n}") for n in range(read)]
        with copied(machines[0], place, tmp_path / "copy", number) as copy:
            new = write(copy, place, "b2", "b3")
        everyone.refresh()
        assert [*everyone] == [new]
        if not is_running:
            follower = everyone.follow("orders", start=follower.offsets, timeout=SECONDS)
        wanted = ["a0", "a1", "b2", "b3"][min(read, 2) :]
        assert told(next(follower) for _ in wanted) == [(new, each) for each in wanted]
        assert follower.poll() is None
        assert follower.offsets[new].pop("generation")
        assert follower.offsets[new][0] == 4


def test_a_copy_that_shipped_nothing_yet_does_not_hide_its_parent(
    tmp_path: Path, place: Path, machines: list[falaj.Store]
) -> None:
    old = write(machines[0], place, "a0")
    with copied(machines[0], place, tmp_path / "copy") as copy:
        new = write(copy, place, "a1")
        _, *flushes = sorted((place / copy.id / "o" / new / "n").iterdir())
        kept = {each: each.read_bytes() for each in flushes}
        for each in flushes:  # as where the shipper has claimed, and sent no flush yet
            each.unlink()
        with falaj.open_origins(place) as everyone:
            assert told(everyone.records("orders")) == [(old, "a0")]
            assert isinstance(everyone.errors[new], HistoryDeleted)
            for each, body in kept.items():
                each.write_bytes(body)
            everyone.refresh()
            assert everyone.errors == {}
            assert told(everyone.records("orders")) == [(new, "a0"), (new, "a1")]


# --- Places that fail ----------------------------------------------------------------------------


def test_a_place_that_is_down_prevents_opening_and_later_holds_up_no_other(
    tmp_path: Path, place: Path, machines: list[falaj.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(machines[0], place, "a0")
    second = tmp_path / "second"
    write(machines[1], second, "b0")
    there = Watched(open_place(second))
    monkeypatch.setattr(
        "falaj._origins.place_at", lambda at: there if at == second else open_place(at)
    )
    with falaj.open_origins(place, second) as everyone:
        mine, theirs = machines[0]._origin(), machines[1]._origin()
        follower = everyone.follow("orders", timeout=SECONDS)
        assert {*told([next(follower), next(follower)])} == {(mine, "a0"), (theirs, "b0")}
        there.down = True
        write(machines[1], second, "b1")
        for n in range(1, 4):
            write(machines[0], place, f"a{n}")
            assert told([next(follower)]) == [(mine, f"a{n}")]
        until(lambda: isinstance(everyone[theirs].place.error, PlaceUnreachable))  # type: ignore[attr-defined]
        with pytest.raises(PlaceUnreachable):
            everyone.refresh()
        assert set(everyone) == {mine, theirs}
        with pytest.raises(PlaceUnreachable):
            falaj.open_origins(place, second)
        there.down = False
        assert told([next(follower)]) == [(theirs, "b1")]
        everyone.refresh()
        assert everyone.errors == {}


def test_a_corrupt_origin_is_left_aside_by_a_follower_and_raised_by_records(
    place: Path, machines: list[falaj.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "ASIDE_S", 0.1)
    for n, store in enumerate(machines[:2]):
        topic = store.topic("orders", codec="str", segment_bytes=65536)
        for at in range(300):
            topic.append(f"{n} {at} " + "x" * 1000)
        store.ship(place, once=True)
    mine, theirs = (store._origin() for store in machines[:2])
    for each in (place / machines[1].id / "o" / theirs / "s").iterdir():
        data = bytearray(each.read_bytes())
        data[9000:9100] = b"?" * 100
        each.chmod(0o600)
        each.write_bytes(data)
    with falaj.open_origins(place) as everyone:
        with pytest.raises(falaj.errors.CorruptData):
            list(everyone.records("orders"))
        follower = everyone.follow("orders", timeout=SECONDS)
        got = [next(follower)[0] for _ in range(300)]
        assert got == [mine] * 300
        assert isinstance(follower.errors[theirs], falaj.errors.CorruptData)
        write(machines[0], place, "more")
        assert told([next(follower)]) == [(mine, "more")]
