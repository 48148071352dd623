"""A bucket that takes requests and never answers holds up no signal, no close and no reader."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

import falaj
from falaj.errors import PlaceUnreachable
from falaj.ship import reader, requests, shipper
from falaj.ship.bucket import PART, _whole
from falaj.ship.objects import Patience, Stopped
from falaj.ship.place import open_place
from falaj.ship.requests import NoAnswer, Waits, ask, with_waits_of_this_thread
from ship.conftest import Started
from ship.servers import BUCKET, VARIABLES
from ship.test_handlers import Deadline, handled
from ship.test_reader import SEGMENT

SOON_S = 15.0
"""Far less than the 60 seconds of obstore, and enough for a busy machine."""
LONG_S = 30.0


class Between:
    """A server in front of another one, or of none: it can swallow what it gets."""

    def __init__(self, to: int | None = None) -> None:
        self._to, self.swallows, self.is_over = to, to is None, False
        self.swallowed = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                taken, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(taken,), daemon=True).start()

    def _carry(self, taken: socket.socket) -> None:
        with taken, socket.socket() as other:
            ends = {taken: other}
            if self._to is not None:
                other.connect(("127.0.0.1", self._to))
                ends[other] = taken
            while not self.is_over:
                for each in select.select(list(ends), [], [], 0.1)[0]:
                    if not (data := each.recv(1 << 16)):
                        return
                    if self.swallows:
                        self.swallowed.set()
                    else:
                        ends[each].sendall(data)

    def swallow(self) -> None:
        """Answer nothing from now on, and return when a request is lost."""
        self.swallowed.clear()
        self.swallows = True
        assert self.swallowed.wait(LONG_S)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.is_over = True
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    """Give a bucket that never answers."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    with Between() as server:
        yield server


@pytest.fixture
def between(started: Started) -> Iterator[Between]:
    """Give a bucket that answers until it swallows."""
    with Between(started("moto").port) as server:
        yield server


def seconds_of(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.monotonic()
    call()
    return time.monotonic() - began


def shipped(tmp_path: Path, between: Between, records: int = 10) -> str:
    """Ship a store with several segments, and return where it is."""
    url = f"s3://{BUCKET}/{tmp_path.name}"
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(records):
            topic.append(b"%d" % n * 1000)
        store.ship(url, once=True, endpoint=between.endpoint)
    return url


# --- Signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["open_place", "list_origins", "restore", "get", "put", "delete"])
def test_the_exception_of_a_handler_comes_though_a_bucket_is_silent(
    silent: Between, tmp_path: Path, call: str
) -> None:
    url, endpoint = "s3://shop/x", silent.endpoint
    place = open_place(url, endpoint=endpoint)
    calls: dict[str, Callable[[], object]] = {
        "open_place": lambda: falaj.open_place(url, cache=tmp_path / "cache", endpoint=endpoint),
        "list_origins": lambda: falaj.list_origins(url, endpoint=endpoint),
        "restore": lambda: falaj.restore(url, tmp_path / "copy", endpoint=endpoint),
        "get": lambda: place.get("key"),
        "put": lambda: place.put_new("key", b"body"),
        "delete": lambda: place.delete(["key"]),
    }

    def wait() -> None:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(TimeoutError, match="the test"):
            calls[call]()

    with handled(Deadline(TimeoutError)):
        assert seconds_of(wait) < SOON_S


@pytest.mark.parametrize("command", ["list", "restore"])
def test_ctrl_c_ends_a_command_though_a_bucket_is_silent(
    silent: Between, tmp_path: Path, command: str
) -> None:
    url = "s3://shop/x"
    arguments = {"list": ["place", "list", url], "restore": ["restore", url, "-s", "copy"]}
    with subprocess.Popen(
        [sys.executable, "-m", "falaj", *arguments[command]],
        cwd=tmp_path,
        env=os.environ | {"AWS_ENDPOINT_URL": silent.endpoint},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert silent.swallowed.wait(LONG_S), process.poll()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SOON_S)
        finally:
            process.kill()
    assert process.returncode in (-signal.SIGINT, 130)


def test_shipping_that_is_to_stop_leaves_a_silent_bucket(
    silent: Between, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper, "LAST_S", 1.0)
    stop = threading.Event()
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"one")

        def set_soon() -> None:
            silent.swallowed.wait(LONG_S)
            stop.set()

        threading.Thread(target=set_soon).start()
        took = seconds_of(lambda: store.ship("s3://shop/x", endpoint=silent.endpoint, stop=stop))
    assert took < SOON_S


# --- Readers --------------------------------------------------------------------------------------


def test_close_does_not_wait_for_a_silent_bucket(tmp_path: Path, between: Between) -> None:
    url, cache = shipped(tmp_path, between), tmp_path / "cache"
    place = falaj.open_place(url, cache=cache, endpoint=between.endpoint)
    everyone = falaj.open_origins(url, cache=cache, endpoint=between.endpoint)
    views = [place.path, *(store.path for store in everyone.values())]
    between.swallow()
    assert seconds_of(place.close) < SOON_S
    assert seconds_of(everyone.close) < SOON_S
    between.swallows = False  # the late answers change nothing
    assert not any(view.exists() for view in views)


def test_a_reader_and_a_follower_wait_for_a_missing_segment_as_long_as_they_say(
    tmp_path: Path, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PATIENCE_S", 3.0)
    url, endpoint = shipped(tmp_path, between, 300), between.endpoint
    place = falaj.open_place(url, cache=tmp_path / "one", endpoint=endpoint)
    everyone = falaj.open_origins(url, cache=tmp_path / "two", endpoint=endpoint)
    with place, everyone, everyone.follow("orders", timeout=0) as follower:
        orders = place.topic("orders")
        assert orders[-1].to_bytes() == b"299" * 1000
        between.swallow()

        def read() -> None:
            with pytest.raises(PlaceUnreachable, match="no answer for"):
                orders[0]

        assert seconds_of(read) < SOON_S
        assert seconds_of(lambda: [*follower]) < SOON_S
        assert [type(each) for each in follower.errors.values()] == [PlaceUnreachable]


# --- Requests -------------------------------------------------------------------------------------


def bucket_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "falaj-bucket"]


def test_requests_one_after_the_other_share_a_thread() -> None:
    mine = {ask(lambda _: threading.get_ident()) for _ in range(50)}
    assert len(mine) == 1
    assert mine != {threading.get_ident()}
    assert all(each.daemon for each in bucket_threads())


def test_a_request_raises_in_its_caller() -> None:
    def fail(_: object) -> None:
        raise FileNotFoundError("of the test")

    with pytest.raises(FileNotFoundError, match="of the test"):
        ask(fail)


def test_a_request_that_takes_long_is_left_alone_and_its_answer_is_dropped() -> None:
    goes_on, answered = threading.Event(), threading.Event()

    def send(_: object) -> None:
        goes_on.wait(LONG_S)
        answered.set()

    with pytest.raises(NoAnswer), Waits(0.2, 0.0, lambda: False):
        ask(send)
    assert not answered.is_set()
    goes_on.set()
    assert answered.wait(LONG_S)
    assert ask(lambda _: "another") == "another"


def test_an_answer_that_comes_in_parts_is_no_silence() -> None:
    never = threading.Event()

    def send(heard: Callable[[], None]) -> str:
        for _ in range(10):
            never.wait(0.1)
            heard()
        return "whole"

    with Waits(0.5, 0.0, lambda: False):
        assert ask(send) == "whole"


def test_a_long_body_is_heard_of_before_it_is_whole() -> None:
    class Found:
        range = (0, 3 * PART)

        def stream(self, min_chunk_size: int) -> Iterator[bytes]:
            return iter([b"x" * min_chunk_size] * 3)

    heard = list[None]()
    assert _whole(Found(), lambda: heard.append(None)) == b"x" * 3 * PART
    assert len(heard) == 3


def test_a_write_is_left_when_its_caller_is_to_stop_and_not_for_silence() -> None:
    goes_on, stop = threading.Event(), threading.Event()

    def send(_: object) -> bool:
        return goes_on.wait(LONG_S)

    threading.Timer(0.5, goes_on.set).start()
    assert Patience(0.1, stop)(lambda: ask(send, writes=True))
    goes_on.clear()
    stop.set()
    with pytest.raises(Stopped):
        Patience(None, stop)(lambda: ask(send, writes=True))
    goes_on.set()


def test_a_last_request_may_end_though_its_caller_is_to_stop() -> None:
    stop, never = threading.Event(), threading.Event()
    stop.set()
    last = Patience(None, stop, last_s=LONG_S)
    assert last(lambda: ask(lambda _: not never.wait(0.5), writes=True))


def test_the_waits_of_a_thread_hold_in_the_threads_that_work_for_it() -> None:
    seen = list[bytes]()

    def work(given: bytes) -> None:
        with pytest.raises(NoAnswer):
            ask(lambda _: threading.Event().wait(1.0))
        seen.append(given)

    with Waits(0.2, 0.0, lambda: False):
        thread = threading.Thread(target=with_waits_of_this_thread(work), args=(b"given",))
    thread.start()
    thread.join()
    assert seen == [b"given"]


def test_a_longer_timeout_than_usual_is_no_silence_before_it_ended() -> None:
    never = threading.Event()
    with Waits(0.1, 0.0, lambda: False):
        assert ask(lambda _: not never.wait(0.5), least_s=LONG_S)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_begins_threads_of_its_own() -> None:
    ask(lambda _: None)
    child = os.fork()
    if child == 0:
        signal.alarm(int(LONG_S))
        os._exit(0 if ask(lambda _: 7) == 7 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "IDLE_S", 0.1)
    monkeypatch.setattr(requests, "_idle", [])
    mine = ask(lambda _: threading.current_thread())
    mine.join(LONG_S)
    assert not mine.is_alive()
    assert ask(lambda _: "another") == "another"
