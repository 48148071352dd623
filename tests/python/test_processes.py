"""Other processes: fork, spawn, forkserver, a dead writer, Ctrl-C, the interpreter's exit."""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from children import child, ends_within, run, stop_in_the_middle_of_an_append

import falaj

EACH = 500
SOON_S = 10.0


def append_some(path: Path, name: str) -> None:
    """Append from a process of multiprocessing, which imports this by name."""
    with falaj.open(path) as store:
        topic = store.topic("orders")
        for i in range(EACH):
            topic.append(b"%d" % i, key=name.encode())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_every_kind_append_to_one_topic(
    path: Path, topic: falaj.Topic[memoryview], method: str
) -> None:
    context: Any = multiprocessing.get_context(method)
    names = ["a", "b", "c"]
    workers = [context.Process(target=append_some, args=(path, name)) for name in names]
    for worker in workers:
        worker.start()
    topic.extend([(b"parent", b"%d" % i) for i in range(EACH)])
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    of = Counter(record.key for record in topic)
    assert of == dict.fromkeys([b"a", b"b", b"c", b"parent"], EACH)
    for key in of:
        assert [r.to_bytes() for r in topic if r.key == key] == [b"%d" % i for i in range(EACH)]


def test_a_forked_child_goes_on_with_every_handle_it_inherits(path: Path) -> None:
    said = run(
        path,
        """
store = falaj.open(path)
topic = store.topic("orders", codec="str")
topic.extend(["0", "1", "2"])
records, follower, batches = iter(topic), topic.follow(timeout=0), topic.batches(1)
next(records), next(follower)
view = topic[0].raw
child = os.fork()
if child == 0:
    assert topic.append("3 from the child") == 3
    assert [r.value for r in records] == ["1", "2"]
    assert [r.value for r in follower] == ["1", "2", "3 from the child"]
    assert [v for b in batches for v in b.to_list()] == [b"0", b"1", b"2"]
    assert bytes(view) == b"0" and topic[3].value == "3 from the child"
    assert store.topic("more", codec="str").append("x") == 0
    topic.flush()
    topic.close()
    store.close()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert topic.append("4 from the parent") == 4
say(*[r.value for r in topic][3:])
""",
    )
    assert said == "3 from the child 4 from the parent\n"


def test_a_forked_child_may_exit_and_close_without_harm_to_its_parent(path: Path) -> None:
    said = run(
        path,
        """
store = falaj.open(path)
topic = store.topic("orders")
topic.append(b"0")
for how in ("exit", "close", "collect"):
    child = os.fork()
    if child == 0:
        if how == "close":
            topic.close(); store.close()
        if how == "collect":
            del topic, store
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    topic.append(b"x")
    topic.flush()
say(len(topic))
""",
    )
    assert said == "4\n"


def test_a_child_forked_while_threads_wait_and_append_works(path: Path) -> None:
    said = run(
        path,
        """
import threading
store = falaj.open(path)
topic = store.topic("orders")
stop = threading.Event()
def write():
    while not stop.is_set():
        topic.append(b"x")
def sync():
    while not stop.is_set():
        topic.flush()
threads = [threading.Thread(target=work) for work in (write, sync)]
follower = topic.follow("latest")
threads.append(threading.Thread(target=lambda: list(follower)))
for thread in threads:
    thread.start()
for i in range(20):
    child = os.fork()
    if child == 0:
        topic.append(b"child")
        assert topic.last()[0].to_bytes()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop.set()
follower.close()
for thread in threads:
    thread.join()
say(sum(r.to_bytes() == b"child" for r in topic))
""",
    )
    assert said == "20\n"


def test_an_idle_forked_child_of_a_killed_writer_blocks_no_process(
    path: Path, topic: falaj.Topic[memoryview]
) -> None:
    program = """
topic = falaj.open(path).topic("orders")
topic.append(b"from the one who dies")
child = os.fork()
if child == 0:
    os.read(0, 1)
    os._exit(0)
say(child)
while True:
    topic.append(b"x" * 1000)
"""
    with child(path, program) as writer:
        idle = int(writer.hear())
        while len(topic) < 100:
            assert writer.process.poll() is None
        writer.kill()
        begin = time.monotonic()
        offset = topic.append(b"after")
        took = time.monotonic() - begin
        assert topic[offset].to_bytes() == b"after"
        os.kill(idle, 0)  # it still lives
        os.kill(idle, signal.SIGKILL)
    assert took < 1.0
    assert all(record.to_bytes() in (b"after", b"x" * 1000) for record in topic[1:])


def test_a_writer_killed_at_any_moment_leaves_a_log_that_others_go_on_with(
    path: Path, topic: falaj.Topic[memoryview]
) -> None:
    program = """
topic = falaj.open(path).topic("orders")
say("ready")
i = 0
while True:
    topic.extend([b"%d" % i] * 3)
    i += 1
"""
    for round_ in range(5):
        with child(path, program) as writer:
            writer.hear()
            before = len(topic)
            while len(topic) < before + 30 * (round_ + 1):
                assert writer.process.poll() is None
            writer.kill()
        topic.append(b"mine")
    runs = [record.to_bytes() for record in topic]
    assert runs.count(b"mine") == 5
    parts = b",".join(runs).split(b"mine")
    for part in parts:
        numbers = [int(n) for n in part.strip(b",").split(b",") if n]
        assert numbers == [i for i in range(len(numbers) // 3) for _ in range(3)]


@pytest.mark.parametrize("mode", ["r", "w"])
def test_ctrl_c_ends_a_follow_within_50_ms(
    path: Path, topic: falaj.Topic[memoryview], mode: str
) -> None:
    program = f"""
import time
topic = falaj.open(path, read_only={mode == "r"}).topic("orders")
say("ready")
try:
    for record in topic.follow():
        say("record")
except KeyboardInterrupt:
    say(time.monotonic_ns())
"""

    def end() -> float:
        with child(path, program) as follower:
            assert [follower.hear(), follower.hear()] == ["ready", "record"]
            time.sleep(0.2)  # sleep: it must be in the middle of its wait
            begin = time.monotonic_ns()
            follower.process.send_signal(signal.SIGINT)
            took = (int(follower.hear()) - begin) / 1e9
            assert follower.end()[0] == 0
        return took

    topic.append(b"x")
    assert ends_within(0.05, end)


def test_ctrl_c_ends_the_wait_for_a_lock_and_nothing_was_appended(
    path: Path, topic: falaj.Topic[memoryview]
) -> None:
    holder = (
        "topic = falaj.open(path).topic('orders')\nsay('ready')\nwhile True: topic.append(b'x')"
    )
    waiter = """
import time
topic = falaj.open(path, lock_timeout=60).topic("orders")
say("ready")
hear()
try:
    while True:
        topic.append(b"mine")
except KeyboardInterrupt:
    say(time.monotonic_ns())
    hear()
"""
    with child(path, holder) as stopped, child(path, waiter) as waiting:
        stopped.hear()
        waiting.hear()
        stop_in_the_middle_of_an_append(stopped.process.pid, topic)
        before = len(topic)
        waiting.tell()
        time.sleep(0.3)  # sleep: it must be in the middle of its wait
        begin = time.monotonic_ns()
        waiting.process.send_signal(signal.SIGINT)
        assert (int(waiting.hear()) - begin) / 1e6 < 200
        assert len(topic) == before
        waiting.tell()
        assert waiting.end()[0] == 0


def test_a_lock_not_had_within_the_timeout_is_an_error_that_names_the_holder(
    path: Path, topic: falaj.Topic[memoryview]
) -> None:
    holder = (
        "topic = falaj.open(path).topic('orders')\nsay('ready')\nwhile True: topic.append(b'x')"
    )
    program = """
import time
topic = falaj.open(path, lock_timeout=0.3).topic("orders")
say("ready")
hear()
begin = time.monotonic()
for call in (lambda: topic.append(b"x"), lambda: topic.extend([b"x", (b"k", b"v")])):
    try:
        call()
    except TimeoutError as error:
        say(isinstance(error, falaj.errors.RetryableError), type(error).__name__, error)
say(0.6 <= time.monotonic() - begin < 5)
"""
    with child(path, holder) as stopped, child(path, program) as waiting:
        stopped.hear()
        waiting.hear()
        stop_in_the_middle_of_an_append(stopped.process.pid, topic)
        before = len(topic)
        waiting.tell()
        for _ in range(2):
            said = waiting.hear()
            assert said.startswith("True LockTimeout")
            assert str(stopped.process.pid) in said or "slot" in said
        assert waiting.hear() == "True"
        assert len(topic) == before
        # A stopped process is alive: its lock is never taken from it, and it continues.
        os.kill(stopped.process.pid, signal.SIGCONT)
        offset = topic.append(b"after")
        assert isinstance(offset, int)
        assert offset >= before


EXITS = {
    "nothing closed": "",
    "in the middle of an iteration": "records = iter(topic); next(records)",
    "a daemon thread follows": """
import threading, time
thread = threading.Thread(target=lambda: list(topic.follow()), daemon=True)
thread.start()
time.sleep(0.1)  # sleep: the thread must be in its wait
""",
    "daemon threads append and sync": """
import threading
def work():
    while True:
        topic.append(b"x", sync="durable")
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
""",
    "a daemon thread decodes while it follows": """
import threading
json = store.topic("json", codec="json")
json.extend(range(1000))
def work():
    while True:
        for record in json.follow(timeout=0):
            record.value
threading.Thread(target=work, daemon=True).start()
""",
    "asyncio follows in a daemon thread": """
import asyncio, threading, time
async def main():
    async for record in topic.afollow():
        pass
threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
time.sleep(0.1)  # sleep: the thread must be in its wait
""",
    "an atexit function appends": """
import atexit
atexit.register(lambda: topic.append(b"last"))
""",
    "a finalizer appends": """
class Last:
    def __del__(self):
        topic.append(b"last")
last = Last()
""",
    "the handles are in a cycle": "cycle = [topic, store]; cycle.append(cycle); del topic, store",
}


# Python code that falaj calls in a daemon thread: `pause()` in it returns when the interpreter is
# shutting down, so that the thread then needs the interpreter that no longer lets it in.
CALLS = {
    "a codec decodes": """
own = store.topic("own", codec=falaj.Codec("own", bytes, lambda raw: pause()))
own.append(b"x")
work = lambda: own[0].value
""",
    "a codec encodes": """
own = store.topic("own", codec=falaj.Codec("own", lambda value: pause(), bytes))
work = lambda: own.append(1)
""",
    "a module is imported": """
class Finder:
    def find_spec(self, name, *_):
        if name == "falaj._time":
            pause()
sys.modules.pop("falaj._time", None)
sys.meta_path.insert(0, Finder())
work = lambda: topic[0].timestamp
""",
    "a generator yields": """
work = lambda: topic.extend(pause() for _ in range(1))
""",
    "a slice begins": """
class Number:
    def __index__(self):
        pause()
work = lambda: topic[Number():]
""",
}


@pytest.mark.parametrize("call", list(CALLS))
def test_a_daemon_thread_in_python_code_that_falaj_calls_ends_quietly_with_the_interpreter(
    path: Path, call: str
) -> None:
    program = f"""
import os, sys, threading, time
begun = threading.Event()
ends = os.pipe()
def pause():
    begun.set()
    os.read(ends[0], 1)
class Last:
    def __del__(self, write=os.write, end=ends[1], sleep=time.sleep):
        write(end, b"x")
        sleep(0.2)  # sleep: the thread must have come back from its call
sys.modules["last"] = Last()  # these are cleared once no other thread may run
store = falaj.open(path)
topic = store.topic("orders")
topic.append(b"x")
{CALLS[call]}
threading.Thread(target=work, daemon=True).start()
begun.wait()
say("end")
"""
    with child(path, program) as process:
        assert process.end() == (0, "end\n", "")


@pytest.mark.parametrize("how", list(EXITS))
def test_the_interpreter_exits_cleanly_with_open_handles(path: Path, how: str) -> None:
    program = f"""
store = falaj.open(path)
topic = store.topic("orders")
topic.append(b"x")
{EXITS[how]}
say("end")
"""
    begin = time.monotonic()
    with child(path, program) as process:
        code, out, err = process.end()
    assert (code, out, err) == (0, "end\n", "")
    assert time.monotonic() - begin < SOON_S
    assert falaj.open(path).topic("orders")[0].to_bytes() == b"x"


def test_the_interpreter_may_exit_while_a_daemon_thread_begins_to_follow(path: Path) -> None:
    how = EXITS["asyncio follows in a daemon thread"]
    for delay_ms in range(10):
        begins = how.replace(
            "sleep(0.1)  # sleep: the thread must be in its wait", f"sleep({delay_ms / 1000})"
        )
        program = f"""
topic = falaj.open(path).topic("orders")
topic.append(b"x")
{begins}
say("end")
"""
        with child(path, program) as process:
            assert process.end() == (0, "end\n", ""), f"after {delay_ms} ms"


def test_os_exit_loses_nothing_that_was_acknowledged(path: Path) -> None:
    program = """
topic = falaj.open(path).topic("orders", sync="none")
for i in range(10_000):
    topic.append(b"%d" % i)
os._exit(3)
"""
    with child(path, program) as process:
        assert process.end()[0] == 3
    records = falaj.open(path).topic("orders")
    assert [int(record.to_bytes()) for record in records] == list(range(10_000))


def test_threads_append_and_read_one_topic_at_once(topic: falaj.Topic[memoryview]) -> None:
    complaints: list[BaseException] = []

    def write(name: bytes) -> None:
        try:
            for i in range(EACH):
                offset = topic.append(b"%d" % i, key=name)
                assert topic[offset].key == name
        except BaseException as error:  # noqa: BLE001  # reported below
            complaints.append(error)

    names = [b"a", b"b", b"c", b"d"]
    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        offsets = [record.offset for record in topic]
        assert offsets == list(range(len(offsets)))
    assert complaints == []
    for name in names:
        assert [int(r.to_bytes()) for r in topic if r.key == name] == list(range(EACH))
