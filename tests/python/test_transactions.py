"""Transactions: records for several topics, and cursors, become visible at once or not at all."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj import Cursor, errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def refused(store: falaj.Store, error: type[Exception], words: str) -> Iterator[falaj.Transaction]:
    """Run a transaction that must end with an error of these words."""
    told, tx = "", store.transaction()
    try:
        with tx:
            yield tx
    except error as came:
        told = str(came) or "it came"
    assert told, "nothing was refused"
    assert words in told
    assert tx.offsets is None


def fail() -> object:
    """Raise an error that is not falaj's."""
    raise KeyError("something")


@pytest.fixture
def shop(store: falaj.Store) -> dict[str, Any]:
    """Three topics of one log, one of them with partitions, one with a codec."""
    return {
        "paid": store.topic("paid", log="shop"),
        "audit": store.topic("audit", log="shop", codec="json"),
        "parts": store.partitioned_topic("parts", log="shop", partitions=3),
    }


def test_what_is_in_a_transaction_is_visible_when_it_ends_and_not_before(
    store: falaj.Store, shop: dict[str, Any]
) -> None:
    with store.transaction() as tx:
        tx.append("paid", b"1", key=b"k", headers={"trace": b"t"})
        tx.append(shop["audit"], {"paid": 1})
        tx.append("paid", b"2")
        tx.extend("parts", [(b"a", b"x"), (b"b", b"y"), (b"a", b"z")])
        assert len(shop["paid"]) == len(shop["audit"]) == len(shop["parts"]) == 0
        assert not tx.offsets
    assert [record.to_bytes() for record in shop["paid"]] == [b"1", b"2"]
    assert (shop["paid"][0].key, shop["paid"][0].headers) == (b"k", (("trace", b"t"),))
    assert [record.value for record in shop["audit"]] == [{"paid": 1}]
    assert sorted(record.to_bytes() for record in shop["parts"]) == [b"x", b"y", b"z"]
    assert tx.offsets is not None
    assert (tx.offsets["paid"], tx.offsets["audit"]) == ({0: range(2)}, {0: range(1)})
    by_partition = tx.offsets["parts"]
    assert sum(len(offsets) for offsets in by_partition.values()) == 3


def test_an_exception_inside_appends_nothing_and_goes_on(
    store: falaj.Store, shop: dict[str, Any]
) -> None:
    with refused(store, KeyError, "") as tx:
        tx.append("paid", b"1")
        tx.commit_cursor([Cursor("c", 7)])
        fail()
    assert tx.offsets is None
    assert len(shop["paid"]) == 0
    assert shop["paid"].cursor("c") is None
    with store.transaction() as tx:
        pass
    assert tx.offsets == {}


def test_what_cannot_be_written_at_once_is_refused_with_the_advice_and_nothing_changes(
    store: falaj.Store, shop: dict[str, Any], tmp_path: Path
) -> None:
    elsewhere = store.topic("elsewhere")
    with refused(store, errors.InvalidArgument, "log=") as tx:
        tx.append("paid", b"1")
        tx.append(elsewhere, b"2")
    with refused(store, errors.UnknownTopic, "nothing") as tx:
        tx.append("paid", b"1")
        tx.append("nothing", b"2")
    with falaj.open(tmp_path / "another") as other:
        foreign = other.topic("paid", log="shop")
        with refused(store, errors.InvalidArgument, "one store") as tx:
            tx.append("paid", b"1")
            tx.append(foreign, b"2")
    with refused(store, errors.InvalidArgument, "nest") as tx:
        tx.append("paid", b"1")
        store.transaction().__enter__()
    with refused(store, errors.InvalidArgument, "no partition 3") as tx:
        tx.append("parts", b"1", partition=3)
    with refused(store, TypeError, "not int") as tx:
        tx.append("paid", b"1")
        tx.append(7, b"2")  # type: ignore[call-overload]
    assert all(len(topic) == 0 for topic in (*shop.values(), elsewhere))
    assert list(store.topics) == ["audit", "elsewhere", "paid", "parts"]


def test_a_transaction_is_used_once_and_within_its_block(
    store: falaj.Store, shop: dict[str, Any]
) -> None:
    tx = store.transaction()
    with pytest.raises(errors.InvalidArgument, match="with"):
        tx.append("paid", b"1")
    with tx:
        tx.append("paid", b"1")
    for misuse in (lambda: tx.append("paid", b"2"), tx.__enter__):
        with pytest.raises(errors.InvalidArgument, match="over"):
            misuse()
    assert len(shop["paid"]) == 1
    assert repr(tx) == "<falaj.Transaction committed>"


def test_more_than_one_append_may_hold_is_refused_whole(store: falaj.Store) -> None:
    small = store.topic("small", log="small", segment_bytes=65536)
    other = store.topic("other", log="small")
    with refused(store, errors.AppendTooLarge, "") as tx:
        tx.append(small, bytes(9000))
        tx.append(other, bytes(9000))
    with refused(store, errors.AppendTooLarge, "") as tx:
        tx.append(other, b"x")
        tx.extend(small, (b"endless" for _ in iter(int, 1)))
    assert len(small) == len(other) == 0


def test_a_cursor_moves_with_the_records_and_outlives_rolls_trims_and_restarts(path: Path) -> None:
    with falaj.open(path) as store:
        results = store.topic("results", log="r", segment_bytes=65536)
        for n in range(200):
            with store.transaction(sync="none") as tx:
                tx.append(results, bytes(1000))
                tx.commit_cursor([Cursor("adder", n + 1, n)])
        results.trim(before_offset=results.end_offset)
        assert results.cursor("adder") == Cursor("adder", 200, 199)
        assert results.cursor(b"nobody") is None
        with falaj.open(path, read_only=True) as reader:
            assert reader.topic("results").cursor("adder") == Cursor("adder", 200, 199)
    with falaj.open(path) as store:
        assert store.topic("results").cursor("adder") == Cursor("adder", 200, 199)


def test_a_transaction_may_move_cursors_alone_if_it_knows_the_log(store: falaj.Store) -> None:
    results = store.topic("results")
    with store.transaction(sync="durable") as tx:
        tx.commit_cursor(Cursor("adder", 5), into=results)
        tx.commit_cursor([Cursor("adder", 6)])
    assert results.cursor("adder") == Cursor("adder", 6)
    with refused(store, errors.InvalidArgument, "into=") as tx:
        tx.commit_cursor([Cursor("adder", 7)])
    for name in ("", "x" * 513):
        with refused(store, errors.InvalidArgument, "512") as tx:
            tx.commit_cursor([Cursor(name, 7)], into="results")
    with pytest.raises(errors.InvalidArgument, match=r"2\*\*32"):
        Cursor("adder", -1)
    assert results.cursor("adder") == Cursor("adder", 6)


def test_a_consumer_is_refused_for_its_cursors_are_elsewhere(store: falaj.Store) -> None:
    results = store.topic("results")
    results.append(b"before")
    with store.consumer("adder", "results") as consumer:
        with refused(store, errors.InvalidArgument, "file of its own") as tx:
            tx.append(results, b"x")
            tx.commit_cursor(consumer)
        assert consumer.position() == 0
    assert len(results) == 1


def test_a_log_says_when_it_keeps_no_more_cursors(store: falaj.Store) -> None:
    small = store.topic("small", segment_bytes=65536)
    names = [f"{n:0500}" for n in range(16)]  # each takes 522 bytes
    with store.transaction() as tx:
        tx.commit_cursor([Cursor(name, 1) for name in names[:15]], into=small)
    with refused(store, errors.InvalidArgument, "keeps 8192 bytes of cursors") as tx:
        tx.append(small, b"x")
        tx.commit_cursor([Cursor(names[15], 1)])
    assert len(small) == 0
    with store.transaction() as tx:
        tx.commit_cursor([Cursor(names[7], 70)], into=small)
    assert small.cursor(names[7]) == Cursor(names[7], 70)


def test_a_topic_that_was_deleted_meanwhile_takes_the_transaction_with_it(
    store: falaj.Store, shop: dict[str, Any]
) -> None:
    with refused(store, errors.TopicDeleted, "audit") as tx:
        tx.append("paid", b"1")
        tx.append("audit", 1)
        store.delete_topic("audit")
    assert len(shop["paid"]) == 0
    # By name it is found again when it exists again.
    store.topic("audit", log="shop")
    with store.transaction() as tx:
        tx.append("audit", b"new")
    with pytest.raises(errors.TopicDeleted):
        len(shop["audit"])
    with pytest.raises(errors.TopicDeleted):
        shop["audit"].append(1)
    assert [r.to_bytes() for r in shop["paid"]] == []


def test_tasks_and_threads_have_transactions_of_their_own(
    store: falaj.Store, shop: dict[str, Any]
) -> None:
    async def one(turn: asyncio.Barrier) -> None:
        with store.transaction() as tx:
            tx.append("paid", b"1")
            await turn.wait()
            tx.append("audit", 1)

    async def both() -> None:
        turn = asyncio.Barrier(2)
        await asyncio.gather(one(turn), one(turn))

    asyncio.run(both())
    assert len(shop["paid"]) == len(shop["audit"]) == 2


def test_a_task_or_thread_begun_in_a_transaction_has_its_own_and_one_in_itself_is_refused(
    store: falaj.Store, shop: dict[str, Any]
) -> None:
    def work(value: bytes) -> None:
        with store.transaction() as tx:
            tx.append("paid", value)
            with pytest.raises(errors.InvalidArgument, match="do not nest"), store.transaction():
                pass

    async def child(worked: asyncio.Event, parent_is_over: asyncio.Event) -> None:
        work(b"while it is open")
        worked.set()
        await parent_is_over.wait()
        work(b"when it is over")

    async def parent() -> None:
        worked, is_over = asyncio.Event(), asyncio.Event()
        with store.transaction() as tx:
            tx.append("paid", b"parent")
            begun = asyncio.create_task(child(worked, is_over))
            await worked.wait()
            await asyncio.to_thread(work, b"thread")
            with pytest.raises(errors.InvalidArgument, match="do not nest"), store.transaction():
                pass
        is_over.set()
        await begun

    asyncio.run(parent())
    values = [record.to_bytes() for record in shop["paid"]]
    assert values == [b"while it is open", b"thread", b"parent", b"when it is over"]
    context = copy_context()
    with store.transaction():
        with pytest.raises(errors.InvalidArgument, match="do not nest"):
            copy_context().run(work, b"the same thread, whatever the context")
        inside = copy_context()
    for each in (context, inside):
        each.run(work, b"afterwards")
    assert len(shop["paid"]) == 6


def test_a_deleted_topic_ends_its_followers_and_not_those_of_others(store: falaj.Store) -> None:
    gone, kept = store.topic("gone", log="shop"), store.topic("kept", log="shop")
    with gone.follow(timeout=20) as following, kept.follow(timeout=20) as other:
        store.delete_topic("gone")
        with pytest.raises(errors.TopicDeleted, match="gone"):
            next(following)
        kept.append(b"x")
        assert next(other).to_bytes() == b"x"


def test_a_transaction_whose_record_cannot_get_its_offset_appends_nothing_and_says_which(
    store: falaj.Store, shop: dict[str, Any]
) -> None:
    shop["audit"].append({"opened": 1})
    place = shop["parts"].append(b"x", b"a")

    def audit() -> None:
        with store.transaction() as tx:
            tx.append("paid", b"1", expect=0)
            tx.append("paid", b"2", expect=1)
            tx.append("audit", {"paid": 1}, expect=0)
            tx.commit_cursor([Cursor("c", 7)])

    def delete() -> None:
        with store.transaction() as tx:
            tx.append("paid", b"1")
            tx.tombstone("parts", b"a", expect=place.offset)

    with pytest.raises(errors.OffsetConflict, match='topic "audit" came first') as lost:
        audit()
    conflict = lost.value
    assert (conflict.topic, conflict.partition) == ("audit", 0)
    assert (conflict.expected, conflict.next) == (0, 1)
    with pytest.raises(errors.OffsetConflict) as lost:
        delete()
    assert (lost.value.topic, lost.value.partition) == ("parts", place.partition)
    assert (len(shop["paid"]), shop["paid"].cursor("c")) == (0, None)
    with store.transaction() as tx:
        tx.extend("paid", [b"1", b"2"], expect=0)
        tx.extend("parts", [(b"a", b"y"), (b"a", b"z")], expect=place.offset + 1)
        tx.tombstone("parts", b"a", expect=place.offset + 3)
        tx.extend("audit", [], expect=99)
    assert tx.offsets == {
        "paid": {0: range(2)},
        "parts": {place.partition: range(place.offset + 1, place.offset + 4)},
    }


def test_an_offset_that_no_record_of_the_transaction_can_get_is_refused_at_once(
    store: falaj.Store, shop: dict[str, Any]
) -> None:
    with store.transaction() as tx:
        tx.append("paid", b"1", expect=0)
        with pytest.raises(errors.InvalidArgument, match="cannot get offset 5"):
            tx.append("paid", b"2", expect=5)
        with pytest.raises(errors.InvalidArgument, match="goes to one partition"):
            tx.extend("parts", [(b"%d" % i, b"x") for i in range(9)], expect=0)
        with pytest.raises(errors.InvalidArgument, match="goes to one partition"):
            tx.append("parts", b"x", expect=0)
        tx.append("paid", b"2")
    assert (len(shop["paid"]), len(shop["parts"])) == (2, 0)


def test_a_transaction_of_a_producer_happens_once(store: falaj.Store, shop: dict[str, Any]) -> None:
    def pay(sequence: int) -> Any:
        with store.transaction(producer="till-3", sequence=sequence) as tx:
            tx.append("paid", b"order")
            tx.extend("parts", [(b"%d" % i, b"x") for i in range(9)])
            tx.commit_cursor([Cursor("c", sequence)])
        return tx.offsets

    first, second = pay(17), pay(18)
    assert (pay(17), pay(18)) == (first, second)
    assert (len(shop["paid"]), len(shop["parts"])) == (2, 18)
    assert shop["paid"].cursor("c").offset == 18
    with pytest.raises(errors.OutOfOrderSequence) as lost:
        pay(20)
    assert (lost.value.topic, lost.value.next) == ("paid", 19)
    with pytest.raises(errors.DuplicateSequence) as old:
        pay(16)
    assert (old.value.topic, old.value.highest) == ("paid", 18)
    with pytest.raises(errors.InvalidArgument, match="go together"):
        store.transaction(producer="till-3")
    assert (len(shop["paid"]), len(shop["parts"])) == (2, 18)
