"""Appends that wait for another machine. A real process stands for the shipper."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from children import Child, child

import falaj
from falaj.errors import (
    Fenced,
    InvalidArgument,
    LockTimeout,
    NoShipper,
    OffsetOutOfRange,
    RemoteTimeout,
)

SHIPPER = """
import threading, time
store = falaj.open(path)
topics = [store.any_topic(name) for name in store.topics]
shipping = store._shipping()
going = threading.Event()
def acknowledge():
    while True:
        going.wait()
        for log in store.info()["logs"]:
            store._acknowledge_ends([(os.path.basename(log["path"]), *log["durable"])])
        time.sleep(0.002)  # sleep: what stands for a shipper has nothing to wait for
threading.Thread(target=acknowledge, daemon=True).start()
say("ships")
while word := hear():
    match word:
        case "go":
            going.set()
        case "halt":
            going.clear()
        case "fence":
            shipping.fence()
        case "close":
            shipping.close()
    say(word)
os._exit(0)
"""


class Shipper:
    """A process that ships, and obeys one word at a time."""

    def __init__(self, started: Child) -> None:
        self.child = started
        assert started.hear() == "ships"

    def do(self, word: str) -> None:
        self.child.tell(word)
        assert self.child.hear() == word


@contextmanager
def shipping(path: Path, *words: str) -> Iterator[Shipper]:
    with child(path, SHIPPER) as started:
        shipper = Shipper(started)
        for word in words:
            shipper.do(word)
        yield shipper


def shortly(act: Callable[[], object]) -> threading.Timer:
    """Act once the main thread waits."""
    timer = threading.Timer(0.3, act)
    timer.start()
    return timer


def test_every_append_waits_for_the_shipper_and_returns_what_it_always_does(
    path: Path, store: falaj.Store
) -> None:
    orders = store.topic("orders")
    clicks = store.partitioned_topic("clicks", partitions=2)
    with shipping(path, "go"):
        assert orders.append(b"a", sync="remote", timeout=60) == 0
        assert orders.extend([b"b", b"c"], sync="remote") == range(1, 3)
        assert orders.tombstone(b"key", sync="remote") == 3
        assert orders.append(b"d", producer="p", sequence=1, sync="remote", timeout=60) == 4
        assert orders.append(b"d", producer="p", sequence=1, sync="remote", timeout=60) == 4
        assert clicks.append(b"x", key=b"k", sync="remote", timeout=60).offset == 0
        with store.transaction(sync="remote", timeout=60) as tx:
            tx.append(orders, b"e")
        assert tx.offsets == {"orders": {0: range(5, 6)}}
        assert store.topic("orders", sync="remote").append(b"f", timeout=60) == 6
        assert orders.wait_remote(timeout=60)
        assert store.topic("orders", visibility="remote").end_offset == 7
        assert store.info()["shipper"] == {"state": "ships", "slot": 1, "process": _pid(store)}


def _pid(store: falaj.Store) -> int | None:
    return next(slot["process"] for slot in store.info()["slots"] if slot["slot"] == 1)


def test_without_a_shipper_nothing_is_appended_and_the_error_says_so(store: falaj.Store) -> None:
    orders = store.topic("orders")
    for append in (
        lambda: orders.append(b"x", sync="remote"),
        lambda: orders.extend([b"x"], sync="remote"),
        lambda: orders.append(b"x", sync="remote", producer="p", sequence=1),
        lambda: orders.tombstone(b"x", sync="remote"),
    ):
        with pytest.raises(NoShipper, match="nothing was appended") as refused:
            append()
        assert (refused.value.offset, len(orders)) == (None, 0)
        assert isinstance(refused.value, OSError)
    with pytest.raises(NoShipper), store.transaction(sync="remote") as tx:
        tx.append(orders, b"x")
    assert (tx.offsets, len(orders)) == (None, 0)
    orders.append(b"x")
    with pytest.raises(NoShipper):
        orders.wait_remote(timeout=60)


def test_a_shipper_that_is_killed_ends_the_wait_and_another_process_ships_on(
    path: Path, store: falaj.Store
) -> None:
    orders = store.topic("orders")
    with shipping(path) as shipper, falaj.Receipts() as receipts:
        timer = shortly(shipper.child.kill)
        began = time.monotonic()
        with pytest.raises(NoShipper, match="on this disk from offset 0 on") as ended:
            orders.append(b"x", sync="remote")
        timer.join()
        assert time.monotonic() - began < 20
        assert (ended.value.offset, orders.durable_offset) == (0, 1)
        assert receipts.appended[0].offsets == range(1)
        known = store.info()["shipper"]
        assert known is not None
        assert known["state"] == "dead"
    with shipping(path, "go"):
        assert orders.append(b"y", sync="remote", timeout=60) == 1


@pytest.mark.parametrize(("word", "error"), [("close", NoShipper), ("fence", Fenced)])
def test_a_shipper_that_stops_says_why_to_all_that_wait(
    path: Path, store: falaj.Store, word: str, error: type[falaj.Error]
) -> None:
    orders = store.topic("orders")
    with shipping(path) as shipper:
        timer = shortly(lambda: shipper.do(word))
        with pytest.raises(error) as ended:
            orders.append(b"x", sync="remote")
        timer.join()
        assert ended.value.offset == 0
        with pytest.raises(error) as refused:
            orders.append(b"y", sync="remote")
        assert (refused.value.offset, len(orders)) == (None, 1)


def test_a_wait_that_takes_too_long_says_that_the_records_are_here(
    path: Path, store: falaj.Store
) -> None:
    orders = store.topic("orders")
    with shipping(path) as shipper:
        with pytest.raises(RemoteTimeout, match="do not append it again") as late:
            orders.extend([b"x", b"y"], sync="remote", timeout=0.05)
        assert isinstance(late.value, TimeoutError)
        assert (late.value.offset, orders.durable_offset) == (0, 2)
        with (
            pytest.raises(RemoteTimeout) as late,
            store.transaction(sync="remote", timeout=0) as tx,
        ):
            tx.append(orders, b"z")
        assert (late.value.offset, tx.offsets) == (2, {"orders": {0: range(2, 3)}})
        assert not orders.wait_remote(1, timeout=0)
        shipper.do("go")
        assert orders.wait_remote(timeout=60)


def test_a_shipper_that_is_stopped_for_a_while_counts_as_alive(
    path: Path, store: falaj.Store
) -> None:
    orders = store.topic("orders")
    with shipping(path, "go") as shipper:
        os.kill(shipper.child.process.pid, signal.SIGSTOP)
        with pytest.raises(RemoteTimeout):
            orders.append(b"x", sync="remote", timeout=0.5)
        timer = shortly(lambda: os.kill(shipper.child.process.pid, signal.SIGCONT))
        assert orders.append(b"y", sync="remote", timeout=60) == 1
        timer.join()


def test_a_signal_ends_the_wait_and_its_exception_says_what_was_appended(
    path: Path, store: falaj.Store
) -> None:
    orders = store.topic("orders")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with shipping(path):
            timer = shortly(lambda: os.kill(os.getpid(), signal.SIGUSR1))
            with pytest.raises(KeyboardInterrupt) as ended:
                orders.append(b"x", sync="remote")
            timer.join()
            assert ended.value.__notes__ == ["falaj: the records were appended, from offset 0 on"]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_child_of_a_shipper_does_not_ship_and_does_not_end_it(
    path: Path, store: falaj.Store
) -> None:
    orders = store.topic("orders")
    program = """
    store = falaj.open(path)
    shipping = store._shipping()
    child = os.fork()
    if child == 0:
        shipping.close()
        del shipping
        try:
            store._acknowledge_ends([])
        except falaj.errors.InvalidArgument:
            os._exit(7)
        os._exit(1)
    say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    hear()
    """
    with child(path, "\n".join(line[4:] for line in program.split("\n"))) as shipper:
        assert shipper.hear() == "7"
        with pytest.raises(RemoteTimeout):
            orders.append(b"x", sync="remote", timeout=0.2)
        shipper.tell()
        shipper.end()
    with pytest.raises(NoShipper):
        orders.append(b"y", sync="remote")


def test_a_second_shipper_is_told_which_process_ships(path: Path, store: falaj.Store) -> None:
    with shipping(path) as shipper:
        with pytest.raises(LockTimeout, match=f"process {shipper.child.process.pid} "):
            store._shipping()
        with pytest.raises(InvalidArgument, match="does not ship"):
            store._acknowledge_ends([])
    with store._shipping() as own:
        closed = [own.closed]
        with pytest.raises(LockTimeout, match=f"process {os.getpid()} "):
            store._shipping()
    assert [*closed, own.closed] == [False, True]
    with store._shipping():
        store._acknowledge_ends([])
    with falaj.open(path, read_only=True) as reader, pytest.raises(falaj.errors.NotWritable):
        reader._shipping()


def test_readers_of_remote_records_see_no_other_and_follow_acknowledgements(
    path: Path, store: falaj.Store
) -> None:
    orders = store.topic("orders", codec="str")
    with shipping(path) as shipper:
        remote = store.topic("orders", codec="str", visibility="remote")
        orders.extend(["a", "b"], sync="durable")
        assert (len(remote), list(remote), remote.visibility) == (0, [], "remote")
        with pytest.raises(OffsetOutOfRange):
            remote[0]
        group = store.consumer("billing", "orders", visibility="remote")
        assert group.poll(timeout=0) == []
        shipper.do("go")
        follower = orders.follow(0, visibility="remote")
        assert [next(follower).value, next(follower).value] == ["a", "b"]
        assert [record.value for record in group.poll(timeout=60)] == ["a", "b"]
        assert (len(remote), remote[-1].value) == (2, "b")
        with falaj.open(path, read_only=True) as reader:
            assert reader.topic("orders", visibility="remote").end_offset == 2
            assert reader.topic("orders").wait_remote(timeout=60)


def test_what_cannot_wait_for_another_machine_refuses_it_with_a_sentence(
    store: falaj.Store,
) -> None:
    orders = store.topic("orders")
    orders.append(b"x")
    group = store.consumer("billing", "orders")
    group.poll(timeout=0)
    with pytest.raises(InvalidArgument, match="does not wait for another machine"):
        group.commit(sync="remote")  # type: ignore[arg-type, unused-ignore]
    for call in (
        lambda: orders.append(b"x", timeout=1),
        lambda: orders.append(b"x", sync="durable", timeout=1),
        lambda: orders.extend([b"x"], timeout=1),
        lambda: store.transaction(sync="durable", timeout=1),
    ):
        with pytest.raises(InvalidArgument, match="timeout= limits the wait"):
            call()
    assert len(orders) == 1


def test_the_cap_of_a_backlog_is_a_setting_of_the_store(path: Path, store: falaj.Store) -> None:
    assert store.info()["ship_backlog_bytes"] is None
    store.configure(retention_bytes=1 << 30)
    store.configure(ship_backlog_bytes=1 << 20)
    told = store.info()
    assert (told["ship_backlog_bytes"], told["retention_bytes"]) == (1 << 20, 1 << 30)
    store.configure(ship_backlog_bytes=None)
    assert store.info()["ship_backlog_bytes"] is None
    with pytest.raises(InvalidArgument):
        store.configure(ship_backlog_bytes=0)
    store.topic("orders").append(b"x", sync="durable")
    log = store.info()["logs"][0]
    assert (log["remote"], log["unshipped"]) == ((0, 0), 0)


def test_a_repeat_is_answered_as_a_repeat_though_no_process_ships(store: falaj.Store) -> None:
    topic = store.topic("orders", codec="str")

    def append(value: str, sequence: int) -> int:
        return topic.append(value, producer="p", sequence=sequence, sync="remote", timeout=0.1)

    def together(sequence: int) -> None:
        with store.transaction(
            sync="remote", timeout=0.1, producer="q", sequence=sequence
        ) as transaction:
            transaction.append("orders", "both")

    first: list[Callable[[], object]] = [partial(append, "paid", 0), partial(together, 0)]
    later: list[Callable[[], object]] = [partial(append, "new", 1), partial(together, 1)]
    with store._shipping():
        for offset, write in enumerate(first):
            with pytest.raises(RemoteTimeout) as waited:
                write()
            assert waited.value.offset == offset
    for offset, write in enumerate(first):
        with pytest.raises(NoShipper) as repeated:
            write()
        assert repeated.value.offset == offset
    for write in later:
        with pytest.raises(NoShipper) as new:
            write()
        assert new.value.offset is None
    assert [record.value for record in topic] == ["paid", "both"]
