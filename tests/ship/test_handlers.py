"""Exceptions of signal handlers: they come through unchanged, and at once."""

import functools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import PlaceUnreachable
from falaj.ship import fetching, lanes
from falaj.ship.directory import DirectoryPlace
from falaj.ship.handlers import ignored, is_handlers, pass_on, remove_tree
from falaj.ship.objects import Patience, Stopped
from falaj.ship.origin import Origin
from falaj.ship.past import look_back
from falaj.ship.peer import PeerPlace
from falaj.ship.restore import restore
from falaj.ship.shapes import object_key
from ship.test_reader import SEGMENT

KINDS = [TimeoutError, FileNotFoundError, BlockingIOError, ValueError, KeyboardInterrupt]


class Deadline:
    """A handler with a method, an object that is called, and others."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def meets(self, number: int, frame: object) -> None:
        raise self.kind("the deadline of the test")

    def __call__(self, *given: object) -> None:
        self.deeper()

    def deeper(self) -> None:
        raise self.kind("the deadline of the test")


def handlers(kind: type[BaseException]) -> list[Callable[..., Any]]:
    def plain(number: int, frame: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        raise kind("the deadline of the test")

    return [
        plain,
        Deadline(kind),
        Deadline(kind).meets,
        functools.partial(lambda extra, *given: plain(*given), 1),
    ]


@contextmanager
def handled(handler: Callable[..., Any]) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fail() -> None:
    """Fail as a system call does."""
    os.stat("/proc/none")


def alarm() -> None:
    """Meet a handler, as where a signal comes during a call."""
    signal.raise_signal(signal.SIGALRM)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", range(4))
def test_the_exception_of_a_handler_is_known(kind: type[BaseException], which: int) -> None:
    with handled(handlers(kind)[which]):
        with pytest.raises(kind, match="deadline") as raised:
            alarm()
        assert is_handlers(raised.value)
    everything = ignored(OSError, ValueError, KeyboardInterrupt)
    with handled(handlers(kind)[which]), pytest.raises(kind, match="deadline"), everything:
        alarm()


def test_errors_of_calls_are_no_handlers() -> None:
    for call in (fail, lambda: socket.create_connection(("127.0.0.1", 1), 1)):
        with pytest.raises(OSError, match="Errno") as raised:
            call()
        pass_on(raised.value)
    with ignored(FileNotFoundError):
        fail()


def test_a_handler_ends_the_removal_of_a_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").touch()
    unlink = os.unlink

    def unlink_and_alarm(*given: Any, **named: Any) -> None:
        unlink(*given, **named)
        alarm()

    monkeypatch.setattr(os, "unlink", unlink_and_alarm)
    with handled(Deadline(TimeoutError)), pytest.raises(TimeoutError, match="deadline"):
        remove_tree(tmp_path / "tree")
    monkeypatch.undo()
    remove_tree(tmp_path / "tree")
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


# --- Calls that a signal interrupts ---------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A place with a log of several segments."""
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(300):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
    return tmp_path / "place"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["open", "stat", "scandir", "pread"])
def test_a_place_in_a_directory_passes_on_what_a_handler_raised(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException], name: str
) -> None:
    opened, call = DirectoryPlace(str(place)), getattr(os, name)
    key = next(opened.list_after("")).key

    def call_and_alarm(*given: Any, **named: Any) -> Any:
        alarm()
        return call(*given, **named)

    def read() -> None:
        opened.get(key)
        list(opened.list_after(""))

    monkeypatch.setattr(os, name, call_and_alarm)
    with handled(Deadline(kind)), pytest.raises(kind, match="deadline"):
        read()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["open", "link", "scandir"])
def test_a_cache_passes_on_what_a_handler_raised(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[BaseException],
    name: str,
) -> None:
    with falaj.open_place(place, cache=tmp_path / "cache", follow=False) as reader:
        orders, call = reader.topic("orders"), getattr(os, name)

        def call_and_alarm(*given: Any, **named: Any) -> Any:
            alarm()
            return call(*given, **named)

        monkeypatch.setattr(os, name, call_and_alarm)
        with handled(Deadline(kind)), pytest.raises(kind, match="deadline"):
            list(orders)
        monkeypatch.undo()
        assert len(list(orders)) == 300, "the reader goes on"


@pytest.mark.parametrize("call", ["list_origins", "open_place", "restore", "look_back"])
def test_a_handler_that_raises_while_a_listing_is_closed_comes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    place = tmp_path / "place"
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"a")
        store.ship(place, once=True)
        origin = Origin(DirectoryPlace(str(place)), store.id, store._origin())
        origin.put_new(object_key("k", 1, "0" * 64), b"of this claim")
    closes, left = os.close, [1]

    def close(file: int) -> None:
        closes(file)
        if left and isinstance(sys.exc_info()[1], GeneratorExit):
            left.clear()
            signal.raise_signal(signal.SIGALRM)

    calls: dict[str, Callable[[], object]] = {
        "list_origins": lambda: falaj.list_origins(place),
        "open_place": lambda: falaj.open_place(place, cache=tmp_path / "cache"),
        "restore": lambda: falaj.restore(place, tmp_path / "copy"),
        "look_back": lambda: look_back(origin, 0, 1, set(), Patience(1.0, threading.Event())),
    }
    monkeypatch.setattr(os, "close", close)
    with handled(Deadline(TimeoutError)), pytest.raises(TimeoutError, match="of the test"):
        calls[call]()
    assert not left


# Python itself drops what a handler raises in a callback of a weak reference. It also lets a thread
# fail whose start was interrupted.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", [TimeoutError, ValueError])
def test_deadlines_at_any_moment_come_through_while_a_place_is_read(
    place: Path, tmp_path: Path, kind: type[Exception]
) -> None:
    came = 0
    for turn in range(20):
        with falaj.open_place(place, cache=tmp_path / f"{turn}", follow=False) as reader:
            orders = reader.topic("orders")
            with handled(Deadline(kind)):
                signal.setitimer(signal.ITIMER_REAL, 0.001 + turn / 2000)
                try:
                    list(orders)
                except kind as error:
                    came += "the deadline of the test" in str(error)
                signal.setitimer(signal.ITIMER_REAL, 0)
    assert came


class Silent(DirectoryPlace):
    """A place that gives no pieces."""

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        raise PlaceUnreachable("the place gives no answer")


@pytest.mark.parametrize("kind", [TimeoutError, KeyboardInterrupt])
@pytest.mark.parametrize("does", ["reads", "refreshes", "restores"])
def test_a_dead_place_holds_up_no_handler(
    place: Path, tmp_path: Path, kind: type[BaseException], does: str
) -> None:
    with falaj.open_place(place, cache=tmp_path / "cache", follow=False) as reader:
        orders = reader.topic("orders")
        calls: dict[str, Callable[[], object]] = {
            "reads": lambda: orders[0],
            "refreshes": reader.refresh,
            "restores": lambda: restore(Silent(str(place)), str(tmp_path / "copy")),
        }
        if does != "restores":
            place.rename(tmp_path / "away")
        began = time.monotonic()
        with handled(Deadline(kind)), pytest.raises(kind, match="deadline"):
            soon(calls[does])
        assert time.monotonic() - began < 10
        reader_ = reader._reader
        assert reader_ is not None
        assert not isinstance(reader_.error, kind), "what a handler raised is no state of a place"
    assert not any(map(hung, fetching_threads()))


def soon(call: Callable[[], object]) -> None:
    """Make a call during which a signal comes."""
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    call()


def fetching_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if "falaj-fetch" in each.name]


def hung(thread: threading.Thread) -> bool:
    thread.join(5)
    return thread.is_alive()


def test_a_fetch_that_was_interrupted_writes_no_more(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on, after = threading.Event(), threading.Event(), list[str]()
    given = DirectoryPlace.get_range

    def slow(self: DirectoryPlace, key: str, start: int, stop: int) -> bytes:
        began.set()
        go_on.wait(30)
        return given(self, key, start, stop)

    write = os.pwrite

    def late(*given: Any) -> int:
        after.append("late")
        return write(*given)

    with falaj.open_place(place, cache=tmp_path / "cache", follow=False) as reader:
        orders = reader.topic("orders")
        monkeypatch.setattr(DirectoryPlace, "get_range", slow)
        with handled(Deadline(TimeoutError)), pytest.raises(TimeoutError, match="deadline"):
            soon(lambda: orders[0])
        assert began.is_set()
        monkeypatch.setattr(os, "pwrite", late)
        go_on.set()
        assert not any(map(hung, fetching_threads()))
        assert after == [], "the file was closed: another may have its number"
        monkeypatch.undo()
        assert len(list(orders)) == 300


def test_writes_end_before_who_waits_for_them() -> None:
    writes, order = fetching.Writes(), list[str]()
    began = threading.Event()

    def work() -> None:
        with writes:
            began.set()
            time.sleep(0.1)  # sleep: a write takes time
            order.append("written")

    thread = threading.Thread(target=work)
    thread.start()
    began.wait(10)
    writes.end()
    order.append("ended")
    thread.join()
    assert order == ["written", "ended"]
    with pytest.raises(Stopped), writes:
        order.append("late")
    assert order == ["written", "ended"]


def test_the_note_of_a_shipper_hides_no_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"one")
        main = threading.main_thread()

        def note(*given: Any, **named: Any) -> None:
            if threading.current_thread() is main:
                alarm()

        monkeypatch.setattr(lanes, "write_note", note)
        with handled(Deadline(TimeoutError)), pytest.raises(TimeoutError, match="deadline"):
            store.ship(tmp_path / "place", once=True)


# --- Peers ----------------------------------------------------------------------------------------


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/x"


@pytest.mark.parametrize("kind", KINDS)
def test_a_mute_peer_holds_up_no_handler(mute: str, kind: type[BaseException]) -> None:
    peer, began = PeerPlace(mute, token="x" * 32), time.monotonic()
    with handled(Deadline(kind)), pytest.raises(kind, match="deadline"):
        soon(lambda: peer.get("a/b"))
    with handled(Deadline(kind)), pytest.raises(kind, match="deadline"):
        soon(lambda: peer.put_new("a/b", b"x"))
    assert time.monotonic() - began < 5


def test_a_handler_ends_the_search_for_an_address(
    mute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(mute.split(":")[2].split("/")[0])
    found = socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: found * 2)
    settimeout = socket.socket.settimeout

    class Alarming(socket.socket):
        def settimeout(self, value: float | None) -> None:
            settimeout(self, value)
            alarm()

    monkeypatch.setattr(socket, "socket", Alarming)
    met: list[int] = []

    def once(number: int, frame: object) -> None:
        met.append(number)
        if len(met) == 1:
            raise TimeoutError("the deadline of the test")

    with handled(once), pytest.raises(TimeoutError, match="deadline"):
        PeerPlace(mute, token="x" * 32, timeout=0.2).get("a/b")
