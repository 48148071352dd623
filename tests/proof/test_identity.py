"""Processes that are easily confused: the same pid, forks, containers, copies of their store.

The lock of a slot and its generation tell processes apart; a pid is for people only.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from children import child

import falaj
from falaj.errors import LockFileReplaced, LockTimeout
from proof import reader

SEGMENT_BYTES = 1 << 16
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child")
"""A command that makes a process the first of its pid namespace, as in a container."""


def may_unshare() -> bool:
    try:
        return subprocess.run([*CONTAINER, "true"], capture_output=True, timeout=60).returncode == 0
    except FileNotFoundError:
        return False


needs_unshare = pytest.mark.skipif(
    not may_unshare(), reason="needs the right to make pid namespaces (root)"
)

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def booted_as(place: Path, boot_id: str) -> tuple[str, ...]:
    """Run a program where the kernel seems to have another boot id: on a clone, or later."""
    fake = place / boot_id
    fake.write_text(f"{boot_id}\n")
    mount = f'mount --bind "{fake}" {BOOT_ID} && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", mount, "sh")


def may_fake_boot_ids() -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        command = [*booted_as(Path(scratch), "x"), "cat", BOOT_ID]
        try:
            return subprocess.run(command, capture_output=True, timeout=60).stdout == b"x\n"
        except FileNotFoundError:
            return False


HALF_A_BLOCK = """
import random
from proof.generate import Maker
maker = Maker(Path(path), seed=1)
maker.opened().topic("t").append(b"before")
maker.model.topics = {"t": None}
maker.leave_half_a_block()
say(os.getpid())
hear()
"""
TESTS = str(Path(__file__).parents[1])
PROOF = f"""
import sys
from pathlib import Path
sys.path.insert(0, {TESTS!r})
"""


def topic_of(store: falaj.Store) -> falaj.Topic[memoryview]:
    return store.topic("t", codec="raw", segment_bytes=SEGMENT_BYTES)


@needs_unshare
def test_a_dead_process_is_dead_although_another_has_its_pid_and_its_slot(path: Path) -> None:
    with falaj.open(path, lock_timeout=5) as store:
        topic = topic_of(store)
        for n in range(3):
            with child(path, PROOF + HALF_A_BLOCK, before=CONTAINER) as dead:
                assert dead.hear() == "1"
            alive = "topic = falaj.open(path).topic('t')\nsay(os.getpid())\nhear()\n"
            with child(path, alive, before=CONTAINER) as same:
                assert same.hear() == "1"
                slots = [s for s in store.info()["slots"] if s["process"] == 1]
                assert [slot["alive"] for slot in slots] == [True]  # the slot of the dead one, too
                assert topic.append(b"after") == 2 * n + 1
                same.tell()
                assert same.end()[0] == 0
    assert reader.read_store(path).seen["void"] == 3


@pytest.mark.parametrize("before", [(), pytest.param(CONTAINER, marks=needs_unshare)])
def test_a_writer_that_stands_still_in_an_append_keeps_its_lock_as_long_as_it_lives(
    path: Path, before: tuple[str, ...]
) -> None:
    with falaj.open(path, lock_timeout=0.3) as store:
        topic = topic_of(store)
        topic.append(b"first")
        with child(path, PROOF + HALF_A_BLOCK, before=before) as still:
            pid = still.hear()
            for _ in range(3):
                with pytest.raises(LockTimeout, match=rf"process {pid}\b.*\(slot \d+\)"):
                    topic.append(b"too early")
                assert [record.to_bytes() for record in topic] == [b"first", b"before"]
            still.kill()
        # A container's process dies a moment after the command that made it.
        for record in (b"then", b"there"):
            while True:
                with suppress(LockTimeout):
                    topic.append(record)
                    break
        assert [record.to_bytes() for record in topic][2:] == [b"then", b"there"]
    assert reader.read_store(path).seen["void"] == 1


NUMBERS = """
store = falaj.open(path, lock_timeout=60)
topic = store.topic("t")
name = hear().encode()
for n in range({each}):
    topic.append(b"%d" % n, key=name)
say(os.getpid())
"""


def are_in_order(topic: falaj.Topic[memoryview], each: int | None = None) -> dict[bytes, int]:
    """Each writer's numbers are in its order, each once, and no offset is missing."""
    numbers = defaultdict(list)
    for offset, record in enumerate(topic):
        assert record.offset == offset
        numbers[record.key].append(int(record.to_bytes()))
    for key, found in numbers.items():
        assert found == list(range(len(found))), key
        assert each is None or len(found) == each
    return {key or b"": len(found) for key, found in numbers.items()}


@pytest.mark.skipif(not may_fake_boot_ids(), reason="needs the right to mount (root)")
def test_boot_ids_decide_nothing_neither_who_is_alive_nor_whether_to_recover(
    path: Path, place: Path
) -> None:
    """A machine is restarted, or cloned, or neither: only the kernel's locks decide."""
    went_on = f"say(open({BOOT_ID!r}).read().strip())\n" + PROOF + HALF_A_BLOCK
    append = "say(falaj.open(path, lock_timeout=0.3).topic('t').append(b'after'))\n"
    waited = "try:\n    {}except falaj.errors.LockTimeout:\n    say('waits')\n"
    for n, machine in enumerate(("a", "b")):
        # Another boot id, and its writer lives: it keeps its lock. It dies: it counts as dead.
        with child(path, went_on, before=booted_as(place, f"{machine}-1")) as writer:
            assert writer.hear() == f"{machine}-1"
            writer.hear()
            with child(
                path, waited.format(append), before=booted_as(place, f"{machine}-2")
            ) as other:
                assert other.hear() == "waits"
            writer.kill()
        with child(path, append, before=booted_as(place, f"{machine}-3")) as heir:
            assert int(heir.hear()) == 2 * n + 1
    assert falaj.verify(path)["sound"]
    with falaj.open(path, read_only=True) as store:
        values = [record.to_bytes() for record in store.topic("t")]
    assert values == [b"before", b"after"] * 2


@needs_unshare
def test_containers_share_a_store_although_all_their_writers_have_pid_1(
    path: Path, budget: Callable[[int, int], int]
) -> None:
    each = budget(1000, 20_000)
    with falaj.open(path) as store:
        topic = topic_of(store)
        program = NUMBERS.format(each=each)
        with (
            child(path, program, before=CONTAINER) as a,
            child(path, program, before=CONTAINER) as b,
        ):
            a.tell("a")
            b.tell("b")
            for n in range(each):
                topic.append(b"%d" % n, key=b"host")
            assert (a.hear(), b.hear()) == ("1", "1")
        assert are_in_order(topic, each).keys() == {b"a", b"b", b"host"}


CLONES = """
import threading, time
store = falaj.open(path, sync="none")
topic = store.topic("t")
ready = threading.Event()
def work():
    n = 0
    while True:
        topic.append(b"%d" % n, key=b"parent")
        n += 1
        ready.set()
        time.sleep(0.0002)  # sleep: otherwise most of the log would be the parent's
threading.Thread(target=work, daemon=True).start()
ready.wait()
clones = []
for i in range(6):
    clone = os.fork()
    if clone == 0:
        for n in range({each}):
            topic.append(b"%d" % n, key=b"clone %d" % i)
        os.read(0, 1)
        os._exit(0)
    clones.append(clone)
say(*clones)
while True:
    hear()
"""


def test_clones_of_a_process_that_appends_are_writers_of_their_own(
    path: Path, budget: Callable[[int, int], int]
) -> None:
    each = budget(200, 5_000)
    with falaj.open(path) as store:
        topic = topic_of(store)
        with child(path, CLONES.format(each=each)) as parent:
            clones = [int(pid) for pid in parent.hear().split()]
            wait_for(topic, each * len(clones))
            parent.kill()  # its clones live on, and keep none of its locks
            assert isinstance(topic.append(b"0", key=b"me"), int)
            for pid in clones:
                os.kill(pid, 9)
        counts = are_in_order(topic)
        assert counts.pop(b"parent") > 0
        assert counts.pop(b"me") == 1
        assert set(counts.values()) <= {each}


def wait_for(topic: falaj.Topic[memoryview], of_clones: int) -> None:
    for record in topic.follow():
        of_clones -= (record.key or b"").startswith(b"clone")
        if of_clones == 0:
            return


# --- Copies --------------------------------------------------------------------------------------


def copy(path: Path, to: Path, *, is_in_use: bool = False) -> None:
    """Copy as a user would; files that disappear meanwhile cause errors."""
    command = ["cp", "-a", "--reflink=never", str(path), str(to)]
    subprocess.run(command, check=not is_in_use, capture_output=is_in_use)


def numbered(topic: falaj.Topic[memoryview]) -> int:
    values = [int(record.to_bytes()) for record in topic]
    assert values == list(range(len(values)))
    return len(values)


def go_on(path: Path, count: int) -> int:
    with falaj.open(path) as store:
        topic = topic_of(store)
        begin = numbered(topic)
        for n in range(begin, begin + count):
            assert topic.append(b"%0500d" % n) == n
    return begin


def test_a_copy_of_a_closed_store_and_the_store_are_two(path: Path, place: Path) -> None:
    go_on(path, 300)
    copy(path, place / "copy")
    with falaj.open(path) as one, falaj.open(place / "copy") as other:
        for n in range(300, 600):
            assert topic_of(one).append(b"%0500d" % n) == n
            assert topic_of(other).append(b"%0500d" % n) == n
    for where in (path, place / "copy"):
        assert go_on(where, 1) == 600
        assert falaj.verify(where)["sound"]
        reader.read_store(where)


WRITES_ON = """
import time
topic = falaj.open(path).topic("t")
for n in range(len(topic), 10**9):
    topic.append(b"%0500d" % n)
    time.sleep(0.0001)  # sleep: otherwise it grows by more than can be copied and read
    if n % 300 == 0:
        say(n)
"""


@pytest.mark.timeout(600)
def test_a_copy_of_a_store_in_use_tells_no_lies_and_leaves_the_store_alone(
    path: Path, place: Path, budget: Callable[[int, int], int]
) -> None:
    """Each file of it is of another moment. If its writer was stopped, it is a crash like any."""
    for n in range(budget(6, 60)):
        go_on(path, 10)
        taken, stopped = place / f"copy-{n}", n % 2 == 0
        with child(path, WRITES_ON) as writer:
            writer.hear()
            if stopped:
                writer.process.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, writer.process.pid, os.WSTOPPED | os.WNOWAIT)
            copy(path, taken, is_in_use=not stopped)
            writer.kill()
        for mode in ("r", "w"):
            with (
                suppress(*(() if stopped else (falaj.Error,))),
                falaj.open(taken, read_only=mode == "r") as store,
            ):
                assert numbered(topic_of(store)) >= 10
        with suppress(*(() if stopped else (falaj.errors.CorruptData,))):
            assert go_on(taken, 50) >= 10
            assert go_on(taken, 1) >= 60
        with falaj.open(path) as store:
            numbered(topic_of(store))
        for used in (taken, path):
            shutil.rmtree(used)


def test_a_writer_does_not_write_into_an_older_copy_that_was_put_back(
    path: Path, place: Path
) -> None:
    go_on(path, 10)
    copy(path, place / "older")
    with falaj.open(path, lock_timeout=2) as store:
        topic = topic_of(store)
        for n in range(10, 20):
            topic.append(b"%0500d" % n)
        path.rename(place / "away")
        (place / "older").rename(path)
        with pytest.raises(LockFileReplaced):
            list(map(topic.append, (b"%0500d" % n for n in range(20, 400))))
        acknowledged = len(topic)
        for call, name in ((store.topic, "another"), (store.delete_topic, "t")):
            with pytest.raises(LockFileReplaced):
                call(name)
        assert go_on(path, 200) == 10  # while it is still there
        assert numbered(topic) == acknowledged
        topic.flush()
    assert go_on(path, 1) == 210
    assert falaj.verify(path)["sound"]
    assert go_on(place / "away", 1) == acknowledged


def test_a_log_of_a_store_that_was_put_back_has_no_writer_of_the_one_before(
    path: Path, place: Path
) -> None:
    """A log that is opened first after the change would be recovered while its writers use it."""
    go_on(path, 10)
    copy(path, place / "older")
    with falaj.open(path, lock_timeout=2) as store:
        store.topic("u")
        path.rename(place / "away")
        (place / "older").rename(path)
        with child(path, WRITES_ON) as writer:
            writer.hear()
            with pytest.raises(LockFileReplaced):
                topic_of(store).append(b"from another time")
            writer.hear()
            writer.kill()
    assert go_on(path, 1) > 300


def test_a_reader_gets_an_error_after_an_older_copy_was_put_back(path: Path, place: Path) -> None:
    go_on(path, 10)
    copy(path, place / "older")
    go_on(path, 10)
    with falaj.open(path, read_only=True) as store:
        topic = topic_of(store)
        follower = topic.follow(15)
        assert [int(next(follower).to_bytes()) for _ in range(5)] == list(range(15, 20))
        path.rename(place / "away")
        (place / "older").rename(path)
        with pytest.raises(LockFileReplaced):
            next(follower)
        assert numbered(topic) == 20  # its mapped part stays as it was
    assert go_on(path, 5) == 10
    with falaj.open(path, read_only=True) as store, pytest.raises(falaj.errors.OffsetOutOfRange):
        topic_of(store).follow(16)
