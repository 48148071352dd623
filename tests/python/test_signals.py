"""Signals while the main thread waits for news: none is missed, and no thread polls for them."""

import signal
import socket
from pathlib import Path

import pytest
from children import child, run

import falaj

# Runs in the child: interrupt the main thread without waking it in the kernel.
HELPERS = """
import signal, threading, time
begun = []
def interrupt():
    # The handler runs in the thread that gets the signal: the main thread sleeps on.
    begun.append(time.monotonic_ns())
    signal.raise_signal(signal.SIGINT)
def sleeps():
    for line in open("/proc/self/status"):
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
"""


@pytest.mark.parametrize("mode", ["r", "w"])
def test_a_signal_that_another_thread_takes_ends_a_follow_within_50_ms(
    path: Path, topic: falaj.Topic[memoryview], mode: str
) -> None:
    topic.append(b"x")
    program = f"""
topic = falaj.open(path, read_only={mode == "r"}).topic("orders")
for _ in range(3):
    follower = topic.follow("latest")
    timer = threading.Timer(0.3, interrupt)
    timer.start()
    try:
        next(follower)
    except KeyboardInterrupt:
        say((time.monotonic_ns() - begun[-1]) / 1e6)
    timer.join()
say(signal.set_wakeup_fd(-1))
"""
    with child(path, HELPERS + program) as follower:
        for _ in range(3):
            assert float(follower.hear()) < 100  # 50 ms, and the delays of a busy machine
        assert follower.hear() == "-1", "the wait's setting must be undone"
        assert follower.end()[0] == 0


def test_handlers_run_while_a_follow_goes_on(path: Path, topic: falaj.Topic[memoryview]) -> None:
    topic.append(b"x")
    program = """
topic = falaj.open(path).topic("orders")
signal.signal(signal.SIGUSR1, lambda *_: say("handled"))
follower = topic.follow("latest")
say("ready")
say(next(follower).to_bytes().decode())
"""
    with child(path, HELPERS + program) as follower:
        assert follower.hear() == "ready"
        for _ in range(3):
            follower.process.send_signal(signal.SIGUSR1)
            assert follower.hear() == "handled"
        topic.append(b"news")
        assert follower.hear() == "news"


def test_the_main_thread_sleeps_through_while_nothing_comes(
    path: Path, topic: falaj.Topic[memoryview]
) -> None:
    topic.append(b"x")
    program = """
topic = falaj.open(path).topic("orders")
before = []
def look():
    time.sleep(0.3)  # sleep: until the main thread is asleep
    before.append(sleeps())
    time.sleep(1.5)  # sleep: the time in which it should sleep
    say(sleeps() - before[0])
    topic.append(b"news")
threading.Thread(target=look).start()
say(next(topic.follow("latest")).to_bytes().decode())
"""
    with child(path, HELPERS + program) as follower:
        # Once a second it checks that the control file is still in its place.
        assert int(follower.hear()) <= 6
        assert follower.hear() == "news"


def test_who_has_signals_written_elsewhere_keeps_that(
    path: Path, topic: falaj.Topic[memoryview]
) -> None:
    topic.append(b"x")
    here, there = socket.socketpair()
    with here, there:
        there.setblocking(False)
        before = signal.set_wakeup_fd(there.fileno())
        try:
            assert list(topic.follow("latest", timeout=0.2)) == []
        finally:
            assert signal.set_wakeup_fd(before) == there.fileno()


def test_a_forked_child_looks_out_for_itself(path: Path, topic: falaj.Topic[memoryview]) -> None:
    topic.append(b"x")
    program = """
topic = falaj.open(path).topic("orders")
assert list(topic.follow("latest", timeout=0.2)) == []  # the parent has looked
pid = os.fork()
if pid == 0:
    timer = threading.Timer(0.3, interrupt)
    timer.start()
    try:
        next(topic.follow("latest"))
    except KeyboardInterrupt:
        say((time.monotonic_ns() - begun[-1]) / 1e6)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
say(list(topic.follow("latest", timeout=0.2)))
"""
    with child(path, HELPERS + program) as parent:
        assert float(parent.hear()) < 100
        assert parent.hear() == "[]"
        assert parent.end()[0] == 0


WHOLE = {
    "a list of a topic": "iter(topic)",
    "batches": "topic.batches(10)",
    "a follower": "topic.follow(timeout=0)",
    "a consumer": "store.consumer('g', 'orders').follow(timeout=0)",
}


@pytest.mark.parametrize("records", WHOLE.values(), ids=WHOLE)
def test_a_handler_ends_a_loop_that_runs_no_bytecode(
    path: Path, topic: falaj.Topic[memoryview], records: str
) -> None:
    """`list` asks for all records in C, where Python itself never looks for signals."""
    for _ in range(10_000):
        topic.extend([b"x"] * 40)
    program = f"""
import signal
def handler(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
store = falaj.open(path)
topic = store.topic("orders")
records = {records}
try:
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    list(records)
except KeyboardInterrupt:
    say(len(list(records)) > 0)
"""
    assert run(path, program) == "True\n"


def test_a_handler_ends_the_staging_of_a_long_stream(
    path: Path, topic: falaj.Topic[memoryview]
) -> None:
    topic.extend([b"x"] * 400_000)
    program = """
import signal
def handler(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
store = falaj.open(path)
reader = store.topic("orders").to_reader(columns=["value"], batch_rows=1000)
part = store.topic("copies").stage("load", "part")
try:
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    part.append_arrow(reader)
except KeyboardInterrupt:
    say("400000 records" in repr(part))
    part.append_arrow(store.topic("orders").to_arrow(end=1, columns=["value"]))
    part.abort()
"""
    assert run(path, program) == "False\n"
