"""HTTP/2 clients that misuse its frames: each is cut off, and memory stays bounded."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server.doors import Server
from server.test_limits import PEAK, gauge, until_closed, wait

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
# :method GET, :scheme http, :path /, :authority localhost (RFC 7541, static table).
ROOT = b"\x82\x86\x84\x41\x09localhost"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Make a frame (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def setting(number: int, value: int) -> bytes:
    return struct.pack(">HI", number, value)


def field(name: bytes, value: bytes) -> bytes:
    """Encode a field as a literal that is not remembered (RFC 7541, section 6.2.2)."""
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


def asking(server: Server, path: str, method: bytes = b"\x82") -> bytes:
    """Encode the fields of a request with the store's token."""
    return (
        method
        + b"\x86\x41\x09localhost"
        + field(b":path", path.encode())
        + field(b"authorization", f"Bearer {server.token}".encode())
    )


@contextlib.contextmanager
def speaking(server: Server, settings: bytes = b"") -> Iterator[socket.socket]:
    """Open a connection, and begin to speak HTTP/2."""
    with server.socket() as client:
        client.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
        yield client


def flood(client: socket.socket, frames: Iterator[bytes] | Callable[[], bytes]) -> None:
    """Send without end, until the server closes the connection."""
    with contextlib.suppress(OSError):
        if callable(frames):
            while True:
                client.sendall(frames())
        for each in frames:
            client.sendall(each)


FLOODS: dict[str, bytes] = {
    "settings": frame(SETTINGS, 0, 0, setting(4, 65_535)) * 100,
    "pings": frame(PING, 0, 0, b"12345678") * 100,
    "continuations": frame(CONTINUATION, 0, 1, field(b"x-a", b"b" * 100) * 100),
    "empty continuations": frame(CONTINUATION, 0, 1) * 100,
    "large fields": frame(CONTINUATION, 0, 1, field(b"x-a", b"b" * 120) * 130),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_frames_is_cut_off_within_memory(tmp_path: Path, kind: str) -> None:
    # This client never reads, so answers to its frames pile up at its own end.
    flags = ("--limits-write-timeout", "500ms")
    with Server(tmp_path / "events", *flags) as server, speaking(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        if "settings" not in kind and "pings" not in kind:
            client.sendall(frame(HEADERS, END_STREAM, 1, ROOT))
        sender = threading.Thread(target=flood, args=(client, lambda: FLOODS[kind]))
        sender.start()
        sender.join()
        assert server.get("/healthz").status == 200
        wait(lambda: gauge(server, "connections") == 1)
        assert server.peak_rss() < PEAK


def test_a_client_that_asks_and_resets_without_end_is_cut_off(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, speaking(server) as client:
        ended = END_STREAM | END_HEADERS
        rapid = (
            frame(HEADERS, ended, stream, ROOT) + frame(RESET, 0, stream, b"\0\0\0\x08")
            for stream in range(1, 2_000_001, 2)
        )
        sender = threading.Thread(target=flood, args=(client, rapid))
        sender.start()
        until_closed(client)
        client.close()
        sender.join()
        assert server.get("/healthz").status == 200
        assert server.peak_rss() < PEAK


def test_a_body_of_empty_frames_ends_with_the_time_for_bodies(tmp_path: Path) -> None:
    flags = ("--limits-body-timeout", "300ms")
    with Server(tmp_path / "events", *flags) as server, speaking(server) as client:
        fields = asking(server, "/v1/topics/a/records", b"\x83")
        client.sendall(frame(HEADERS, END_HEADERS, 1, fields))
        got = b""
        with contextlib.suppress(ConnectionError):
            while b"urn:falaj:problem:slow-body" not in got:
                client.sendall(frame(DATA, 0, 1) * 10)
                client.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    got += client.recv(1 << 16)
        assert b"urn:falaj:problem:slow-body" in got
        assert server.get("/v1/topics").json == {"topics": []}


def fill(server: Server) -> None:
    line = b'"' + b"x" * 1000 + b'"\n'
    path, body = "/v1/topics/a/records", line * 1000
    assert server.post(path, body, Content_Type="application/x-ndjson").status == 201


READ = "/v1/topics/a/records?limit=100000"
# An answer takes a sixteenth of the budget.
BUDGET = (
    *("--limits-write-timeout", "500ms", "--limits-bytes-in-flight", "4MiB"),
    *("--limits-body", "1MiB", "--limits-decoded-body", "1MiB", "--limits-record", "1MiB"),
)


def test_a_client_that_gives_its_streams_no_window_is_cut_off(tmp_path: Path) -> None:
    with Server(tmp_path / "events", *BUDGET) as server:
        fill(server)
        with speaking(server, setting(4, 0)) as client:
            ended = END_STREAM | END_HEADERS
            for stream in range(1, 200, 2):
                client.sendall(frame(HEADERS, ended, stream, asking(server, READ)))
            # It blocks no write, reads all the time, and answers.
            until_closed(client)
        wait(lambda: gauge(server, "bytes_in_flight") == 0)
        assert server.get("/v1/topics/a/records?limit=1").status == 200


def test_streams_that_are_never_read_cost_what_the_budget_allows(tmp_path: Path) -> None:
    with Server(tmp_path / "events", *BUDGET) as server:
        fill(server)
        clients = []
        for _ in range(5):
            client = server.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            most = (1 << 31) - 1
            client.sendall(PREFACE + frame(SETTINGS, 0, 0, setting(4, most)))
            client.sendall(frame(WINDOW, 0, 0, struct.pack(">I", most - 65_535)))
            for stream in range(1, 200, 2):
                ended = END_STREAM | END_HEADERS
                client.sendall(frame(HEADERS, ended, stream, asking(server, READ)))
            clients.append(client)
        wait(lambda: gauge(server, "connections") == 1)
        for client in clients:
            client.close()
        assert server.peak_rss() < PEAK
        wait(lambda: gauge(server, "bytes_in_flight") == 0)
