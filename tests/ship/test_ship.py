"""Shipping and restoring real stores: everything a store has comes back, record by record."""

import gc
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import CorruptData, LockTimeout, NoShipper, PlaceRefused, UnknownOrigin
from falaj.ship import shipper as shipper_module
from falaj.ship.place import open_place
from falaj.ship.shipper import Options, Shipper
from falaj.ship.verify import verify_place


def records_of(store: falaj.Store) -> dict[str, list[Any]]:
    """Everything that readers see, by topic and partition."""
    found: dict[str, list[Any]] = {}
    for name in sorted(store.topics):
        topic = store.any_topic(name, codec=falaj.RAW)
        for number in topic.partitions:
            found[f"{name}/{number}"] = [
                (r.offset, r.timestamp_ns, r.key, list(r.headers), bytes(r.raw or b""))
                for r in topic.partition(number)
            ]
    return found


def fill(store: falaj.Store) -> None:
    """Use all that a store has."""
    orders = store.topic("orders", segment_bytes=1 << 16, retention_bytes=1 << 18)
    for step in range(40):
        orders.extend([b"%d-%d" % (step, n) * 40 for n in range(50)])
    parts = store.partitioned_topic("parts", partitions=3, codec="json")
    for n in range(200):
        parts.append({"n": n}, key=f"k{n % 7}")
    latest = store.topic("latest", compacted=True, segment_bytes=1 << 16)
    for n in range(3000):
        latest.append(b"v%d" % n * 10, key=b"k%d" % (n % 5))
    latest.compact()
    left, right = store.topic("left", log="both"), store.topic("right", log="both")
    with store.transaction() as both:
        both.append(left, b"l")
        both.append(right, b"r")
    orders.flush()
    store.maintain()  # of all, so that retention deletes nothing between joining and reading
    with store.consumer("readers", [orders]) as group:
        group.poll(timeout=0)
        group.commit()
    queue = store.queue("jobs", topic="tasks")
    queue.put_many([b"a", b"b", b"c"])
    queue.take(timeout=0).ack()
    queue.take(timeout=0)


def test_a_store_with_everything_comes_back_record_by_record(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        fill(store)
        wanted = records_of(store)
        committed = store.groups["readers"]["partitions"][0]["committed"]
        shipped = store.ship(tmp_path / "place", once=True)
        store.topic("orders").extend([b"more"] * 10)
        assert store.ship(tmp_path / "place", once=True)["bytes"] < shipped["bytes"] / 10
        wanted["orders/0"] = records_of(store)["orders/0"]
        identity = store.id
    done = falaj.restore(tmp_path / "place", tmp_path / "copy")
    assert falaj.verify(tmp_path / "copy")["worst"] in (None, "note", "rebuildable")
    with falaj.open(tmp_path / "copy") as copy:
        assert copy.id == identity == done["store"]
        assert records_of(copy) == wanted
        assert copy.groups["readers"]["partitions"][0]["committed"] == committed
        jobs = copy.queues["jobs"]
        assert (jobs["ready"], jobs["done"]) == (2, 1)
        orders = copy.topic("orders")
        assert orders.append(b"goes on") == orders.end_offset - 1
    assert verify_place(open_place(tmp_path / "place"), deep=True)[0].findings == []


def test_a_sealed_segment_is_an_object_that_is_the_file_without_marks(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        orders = store.topic("orders", segment_bytes=1 << 16)
        for _ in range(20):
            orders.extend([os.urandom(100) for _ in range(100)])
        store.ship(tmp_path / "place", once=True)
    objects = {path.name: path.read_bytes() for path in (tmp_path / "place").glob("*/o/*/s/*")}
    (log,) = (tmp_path / "store" / "logs").iterdir()
    files = [path.read_bytes() for path in log.glob("*.log")] or [
        path.read_bytes() for path in log.iterdir() if path.read_bytes()[:8] == b"FALAJSEG"
    ]
    assert len(objects) == len(files) - 1 > 1
    for name, found in objects.items():
        assert name.endswith(hashlib.sha256(found).hexdigest())
        assert found[:512] == found[4096:4608]
        assert not any(found[512:4096] + found[4608:8192])
        (file,) = [each for each in files if each[:512] == found[:512]]
        assert file[8192 : len(found)] == found[8192:]


def test_a_restored_store_ships_as_a_new_origin(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"one")
        store.ship(place, once=True)
    falaj.restore(place, tmp_path / "copy")
    with falaj.open(tmp_path / "copy") as copy, falaj.open(tmp_path / "store") as store:
        copy.topic("orders").append(b"two of the copy")
        store.topic("orders").append(b"two of the store")
        copy.ship(place, once=True)
        store.ship(place, once=True)
        with pytest.raises(UnknownOrigin):
            falaj.restore(place, tmp_path / "again")
        falaj.restore(place, tmp_path / "again", origin=copy._origin())
    with falaj.open(tmp_path / "again") as again:
        assert again.topic("orders", codec="bytes")[1].value == b"two of the copy"


def test_an_older_copy_of_the_store_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with falaj.open(tmp_path / "store") as store:
        orders = store.topic("orders")
        orders.append(b"one")
        store._origin()
        store.close()
    subprocess.run(["cp", "-a", tmp_path / "store", tmp_path / "old"], check=True)
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"two")
        store.ship(place, once=True)
    with falaj.open(tmp_path / "old") as old:
        with pytest.raises(PlaceRefused, match="more records of orders"):
            old.ship(place, once=True)
        old.topic("orders").append(b"another two")
        with pytest.raises(PlaceRefused, match="other records of orders"):
            old.ship(place, once=True)
        assert old.ship(place, once=True, new_origin=True)["flushes"] == 1


def test_each_number_restores_to_the_records_of_its_moment(tmp_path: Path) -> None:
    account: dict[int, dict[str, list[Any]]] = {}
    with falaj.open(tmp_path / "store") as store:
        one = store.topic("one", segment_bytes=1 << 16)
        two = store.topic("two", compacted=True, segment_bytes=1 << 16)
        shipper = Shipper(store, open_place(tmp_path / "place"), Options())
        shipper._claim()
        for step in range(25):
            one.extend([os.urandom(50) for _ in range(40 * (step % 4))])
            two.extend([(b"k%d" % (n % 3), os.urandom(200)) for n in range(60)])
            if step % 6 == 5:
                two.compact()
            if step % 8 == 7:
                one.trim(before_offset=one.end_offset // 2)
            shipper.turn()
            account[shipper.shipped.number] = records_of(store)
            shipper.care()
            if step % 7 == 6:
                shipper.checkpoint()
    for number, wanted in account.items():
        falaj.restore(tmp_path / "place", tmp_path / f"at{number}", to_number=number)
        with falaj.open(tmp_path / f"at{number}", read_only=True) as copy:
            assert records_of(copy) == wanted


def test_a_restore_that_meets_corruption_leaves_nothing(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").extend([os.urandom(100) for _ in range(1000)])
        store.ship(tmp_path / "place", once=True)
    (pack,) = (tmp_path / "place").glob("*/o/*/k/*")
    body = bytearray(pack.read_bytes())
    body[len(body) // 2] ^= 1
    pack.write_bytes(body)
    with pytest.raises(CorruptData, match="is corrupt at byte"):
        falaj.restore(tmp_path / "place", tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place", "store"]


def test_shipping_ends_in_order_and_what_came_last_is_there(tmp_path: Path) -> None:
    stop = threading.Event()
    with falaj.open(tmp_path / "store") as store:
        orders = store.topic("orders")
        shipping = threading.Thread(
            target=lambda: store.ship(tmp_path / "place", stop=stop), name="shipping"
        )
        shipping.start()
        orders.extend([b"%d" % n for n in range(1000)])
        stop.set()
        shipping.join(30)
        assert not shipping.is_alive()
    falaj.restore(tmp_path / "place", tmp_path / "copy")
    with falaj.open(tmp_path / "copy") as copy:
        assert len(copy.topic("orders")) == 1000


def test_sigterm_ends_the_command_after_a_last_flush(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"first")
        words = ["ship", "-s", str(tmp_path / "store"), "--json", str(tmp_path / "place")]
        command = [sys.executable, "-m", "falaj", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert b'"number": 2' in process.stdout.readline()
        store.topic("orders").append(b"last")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stdout.close()
    falaj.restore(tmp_path / "place", tmp_path / "copy")
    with falaj.open(tmp_path / "copy") as copy:
        assert len(copy.topic("orders")) == 2


def test_a_command_that_ends_before_the_place_has_all_says_so(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        for signal_, code in ((signal.SIGTERM, 4), (signal.SIGINT, -signal.SIGINT)):
            store.topic("orders").append(b"first")
            words = ["ship", "-s", str(tmp_path / "store"), "--json", str(tmp_path / "place")]
            process = subprocess.Popen(
                [sys.executable, "-m", "falaj", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert process.stdout is not None
            number = json.loads(process.stdout.readline())["number"]
            (tmp_path / "place").rename(tmp_path / "away")  # as where its disk is gone
            store.topic("orders").append(b"last")
            process.send_signal(signal_)
            _, said = process.communicate(timeout=60)
            assert process.returncode == code
            sentence = f"falaj: what changed since number {number} is not all in file://"
            (line,) = [each for each in said.splitlines() if each.startswith(sentence)]
            assert "run `falaj ship` again" in line
            (tmp_path / "away").rename(tmp_path / "place")


def test_a_remote_append_returns_once_the_place_has_it(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        orders = store.topic("orders", codec="bytes")
        with pytest.raises(NoShipper):
            orders.append(b"not shipped", sync="remote", timeout=10)
        words = ["ship", "-s", str(tmp_path / "store"), "--json", str(tmp_path / "place")]
        process = subprocess.Popen([sys.executable, "-m", "falaj", *words], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline()
        for number in range(5):
            orders.append(b"%d" % number, sync="remote", timeout=30)
        process.kill()
        process.wait()
        process.stdout.close()
        with pytest.raises(NoShipper):
            orders.append(b"again", sync="remote", timeout=10)
    falaj.restore(tmp_path / "place", tmp_path / "copy")
    with falaj.open(tmp_path / "copy") as copy:
        found = [record.value for record in copy.topic("orders", codec="bytes")]
        assert found == [b"0", b"1", b"2", b"3", b"4"]


def test_a_remote_append_in_a_loop_waits_for_no_interval_between_flushes(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        orders = store.topic("orders", codec="bytes")
        orders.append(b"first")
        stop, shipped = threading.Event(), threading.Event()
        shipper = Shipper(store, open_place(tmp_path / "place"), Options())
        shipper.stop = shipper.patience.stop = stop
        thread = threading.Thread(target=shipper.run, kwargs={"told": lambda _: shipped.set()})
        thread.start()
        assert shipped.wait(60)
        taken = []
        for number in range(12):
            begin = time.monotonic()
            orders.append(b"%d" % number, sync="remote", timeout=60)
            taken.append(time.monotonic() - begin)
        stop.set()
        thread.join()
    assert sorted(taken)[2] < 0.07  # the quick ones, since other programs run beside this


def test_a_remote_reader_that_waits_causes_no_flush_and_an_idle_shipper_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper_module, "FLUSH_S", 600.0)
    with falaj.open(tmp_path / "store") as store:
        orders = store.topic("orders", codec="bytes")
        orders.append(b"first")
        stop, shipped = threading.Event(), threading.Event()
        shipper = Shipper(store, open_place(tmp_path / "place"), Options())
        shipper.stop = shipper.patience.stop = stop
        looks = 0

        def turn(*, now: bool = True) -> bool:
            nonlocal looks
            looks += 1
            return Shipper.turn(shipper, now=now)

        monkeypatch.setattr(shipper, "turn", turn)
        thread = threading.Thread(target=shipper.run, kwargs={"told": lambda _: shipped.set()})
        thread.start()
        assert shipped.wait(60)
        orders.append(b"second", sync="remote", timeout=60)
        flushes, begun = shipper.flushes, looks
        seen: list[bytes | None] = []

        def read() -> None:
            for record in orders.follow(2, visibility="remote", timeout=60):
                seen.append(record.value)
                if record.value == b"last":
                    break

        reading = threading.Thread(target=read)
        reading.start()
        for number in range(20):
            orders.append(b"%d" % number)
            time.sleep(0.05)  # sleep: a shipper that a reader hurries flushes meanwhile
        assert shipper.flushes == flushes
        assert looks - begun <= 3
        orders.append(b"last", sync="remote", timeout=60)
        reading.join()
        stop.set()
        thread.join()
    assert seen == [*(b"%d" % number for number in range(20)), b"last"]


def test_a_second_process_that_ships_a_store_is_refused_while_the_first_lives(
    tmp_path: Path,
) -> None:
    with falaj.open(tmp_path / "store", lock_timeout=0.2) as store:
        store.topic("orders").append(b"one")
        with store._shipping(), pytest.raises(LockTimeout, match="ships the store"):
            store.ship(tmp_path / "place", once=True)
        assert store.ship(tmp_path / "place", once=True)["flushes"] == 1


@pytest.mark.parametrize("places", [1, 2])
def test_a_store_that_was_shipped_and_closed_keeps_no_file_open(
    tmp_path: Path, places: int
) -> None:
    named = [tmp_path / f"place{number}" for number in range(places)]
    gc.collect()
    gc.disable()
    try:
        with falaj.open(tmp_path / "events") as store:
            store.topic("orders").append(b"first")
            store.ship(named, once=True)
        links = (os.path.realpath(each.path) for each in os.scandir("/proc/self/fd"))
        assert not [link for link in links if link.startswith(os.fspath(tmp_path / "events"))]
    finally:
        gc.enable()
