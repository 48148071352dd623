"""Consumers that keep their cursors in the log they write to: read, work, write, exactly once."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest
from children import child

import falaj
from falaj import errors

if TYPE_CHECKING:
    from pathlib import Path

    from falaj._consumer import Consumer

Work = tuple[falaj.Topic[Any], falaj.Topic[Any]]


@pytest.fixture
def work(store: falaj.Store) -> Work:
    """Create ten orders, and a topic in another log for the results."""
    orders = store.topic("orders", codec="json")
    orders.extend(list(range(10)))
    return orders, store.topic("sums", log="shop", codec="json")


def member(store: falaj.Store, cursor_in: falaj.Topic[Any] | str = "shop") -> Consumer[Any]:
    """Open the consumer."""
    return store.consumer("adder", "orders", cursor_in=cursor_in)


def test_a_transaction_moves_what_was_handed_out_and_no_more(
    store: falaj.Store, work: Work
) -> None:
    sums = work[1]
    with member(store, sums) as adder:
        handed = adder.poll(3, timeout=0)
        with store.transaction() as tx:
            tx.append(sums, sum(record.value for record in handed))
            tx.commit_cursor(adder)
            adder.poll(2, timeout=0)
        assert (adder.committed(), adder.position(), adder.lag) == (3, 5, 7)
        with store.transaction() as tx:
            tx.commit_cursor(adder)
        assert (adder.committed(), tx.offsets) == (5, {})
        with store.transaction() as tx:
            tx.commit_cursor(adder)  # nothing was delivered
        adder.poll(2, timeout=0)
        adder.commit(sync="durable")
        adder.commit(4)
    with member(store) as adder:
        assert [record.value for record in adder] == [4, 5, 6, 7, 8, 9]
    assert [record.value for record in sums] == [3]


def test_twice_in_one_transaction_and_two_consumers_in_one_move_together(
    store: falaj.Store, work: Work
) -> None:
    sums = work[1]
    adder, other = member(store), store.consumer("other", "orders", cursor_in="shop")
    with store.transaction() as tx:
        for _ in range(2):
            adder.poll(2, timeout=0)
            tx.commit_cursor(adder)
        other.poll(1, timeout=0)
        tx.commit_cursor(other)
        tx.append(sums, 1)
        tx.commit_cursor(falaj.Cursor("by hand", 7))
    assert (adder.committed(), other.committed(), sums.cursor("by hand")) == (
        4,
        1,
        (b"by hand", 7, 0),
    )
    adder.poll(1, timeout=0)
    adder.commit()
    assert adder.committed() == 5


def test_what_was_given_up_or_failed_is_handed_out_again_after_a_rewind(
    store: falaj.Store, work: Work
) -> None:
    sums = work[1]
    adder = member(store)

    def fails() -> None:
        with store.transaction() as tx:
            for record in adder.poll(4, timeout=0):
                tx.append(sums, record.value)
            tx.commit_cursor(adder)
            raise KeyError("something")

    with pytest.raises(KeyError):
        fails()
    assert (adder.committed(), adder.position(), len(sums)) == (0, 4, 0)
    adder.rewind()
    assert [record.value for record in adder.poll(2, timeout=0)] == [0, 1]


def test_a_former_owner_is_refused_and_nothing_of_its_transaction_is_there(
    store: falaj.Store, work: Work
) -> None:
    sums = work[1]
    former = member(store)
    former.poll(3, timeout=0)
    tx = store.transaction()

    def late() -> None:
        with tx:
            tx.append(sums, "late")
            tx.commit_cursor(former)
            former.close()
            later = member(store)
            assert later.position() == 0
            later.close()

    with pytest.raises(errors.PartitionNotAssigned, match="adder"):
        late()
    assert (tx.offsets, len(sums)) == (None, 0)
    assert member(store).lag == 10


def test_a_killed_members_work_is_done_once(path: Path) -> None:
    program = """
store = falaj.open(path, sync="none")
adder = store.consumer("adder", "orders", cursor_in="sums")
with store.transaction() as tx:
    tx.append("sums", b"%d" % len(adder.poll(3, timeout=0)))
    tx.commit_cursor(adder)
adder.poll(3, timeout=0)
say("here")
hear()
"""
    with falaj.open(path) as store:
        store.topic("orders").extend([b"x"] * 10)
        sums = store.topic("sums")
        with child(path, program) as other:
            assert other.hear() == "here"
            adder = store.consumer("adder", "orders", cursor_in="sums")
            assert adder.partitions == []
            other.kill()
            with store.transaction() as tx:
                tx.append(sums, b"%d" % len(adder.poll(100, timeout=20)))
                tx.commit_cursor(adder)
        assert [record.to_bytes() for record in sums] == [b"3", b"7"]


def test_what_cannot_go_together_is_refused_and_nothing_changes(
    store: falaj.Store, work: Work, tmp_path: Path
) -> None:
    orders, sums = work
    adder = member(store)
    adder.poll(3, timeout=0)

    def elsewhere() -> None:
        with store.transaction() as tx:
            tx.append(orders, 1)
            tx.commit_cursor(adder)

    def into() -> None:
        with store.transaction() as tx:
            tx.commit_cursor(adder, into=sums)

    with falaj.open(tmp_path / "other") as other:
        other.topic("orders").append(b"x")
        foreign = other.topic("sums", log="shop")

        def another_store() -> None:
            theirs = other.consumer("adder", "orders", cursor_in=foreign)
            with store.transaction() as tx:
                tx.commit_cursor(theirs)

        for refused, words in (
            (elsewhere, "different logs"),
            (into, "into="),
            (another_store, "one store"),
            (lambda: store.consumer("adder", "orders"), 'cursor_in="shop"'),
            (lambda: member(store, orders), 'cursor_in="shop"'),
            (lambda: member(store, "nothing"), "no topic lives in a log"),
            (lambda: member(store, foreign), "own store"),
            (
                lambda: store.consumer("x", "orders", cursor_in="shop", auto_commit=True),
                "auto_commit",
            ),
        ):
            with pytest.raises(errors.InvalidArgument, match=words):
                refused()
    assert (adder.committed(), len(orders), len(sums)) == (0, 10, 0)
    assert [found["name"] for found in store.info()["groups"]] == ["adder"]


def test_the_place_is_told_reset_and_forgotten_from_outside(store: falaj.Store, work: Work) -> None:
    sums = work[1]
    with member(store) as adder:
        adder.poll(6, timeout=0)
        with store.transaction() as tx:
            tx.append(sums, 1)
            tx.commit_cursor(adder)
        with pytest.raises(errors.InvalidArgument, match="open in"):
            store.seek_group("adder", "orders", 0)
    [found] = store.info()["groups"]
    assert (found["cursor_in"], found["partitions"][0]["committed"]) == ("shop", 6)
    assert found["partitions"][0]["lag"] == 4
    with falaj.open(store.path, read_only=True) as reader:
        assert reader.info()["groups"][0]["partitions"][0]["committed"] == 6
    assert store.seek_group("adder", "orders", 2) == {0: 2}
    with member(store) as adder:
        assert [record.value for record in adder.poll(1, timeout=0)] == [2]
    store.delete_group("adder")
    assert member(store).lag == 10


def test_the_cursor_outlives_rolls_trims_backups_and_restarts(path: Path) -> None:
    with falaj.open(path) as store:
        store.topic("orders").extend([b"x"] * 200)
        sums = store.topic("sums", segment_bytes=65536)
        with store.consumer("adder", "orders", cursor_in=sums) as adder:
            for _ in adder:
                with store.transaction(sync="none") as tx:
                    tx.append(sums, bytes(1000))
                    tx.commit_cursor(adder)
                if adder.position() == 150:
                    break
        sums.trim(before_offset=sums.end_offset)
        store.backup(path.with_name("copy"))
    for place in (path, path.with_name("copy")):
        with falaj.open(place) as store:
            assert store.consumer("adder", "orders", cursor_in="sums").position() == 150


def test_a_backup_beside_transactions_has_no_cursor_behind_what_was_read(path: Path) -> None:
    with falaj.open(path, sync="none") as store:
        names = ["a", "b", "c"]  # each step reads one and writes the next, whose log has its cursor
        topics = [store.topic(name, segment_bytes=1 << 20) for name in names]
        over = threading.Event()

        def work() -> None:
            steps = [
                store.consumer(to, [source], cursor_in=to)
                for source, to in itertools.pairwise(names)
            ]
            while not over.is_set():
                topics[0].append(b"x")
                for step in steps:
                    with store.transaction() as tx:
                        tx.extend(
                            step.group, [record.to_bytes() for record in step.poll(timeout=0)]
                        )
                        tx.commit_cursor(step)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for n in range(5):
                copy = path.with_name(f"copy{n}")
                store.backup(copy)
                with falaj.open(copy) as copied:
                    for found in copied.info()["groups"]:
                        if not found["partitions"]:  # copied before its first transaction
                            assert copied.topic(found["name"]).end_offset == 0
                            continue
                        [cursor] = found["partitions"]
                        step = copied.consumer(
                            found["name"], [cursor["topic"]], cursor_in=found["cursor_in"]
                        )
                        assert step.position() == copied.topic(found["name"]).end_offset
        finally:
            over.set()
            worker.join(30)
