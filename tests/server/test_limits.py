"""Clients that send too much, too slowly or nothing: each is cut off, and memory stays bounded."""

import gzip
import random
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from server.doors import Reply, Server

SHORT = ("--limits-header-timeout", "500ms", "--limits-body-timeout", "500ms")
PEAK = 256 << 20
MIB = 1 << 20


def until_closed(client: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    got = b""
    try:
        while piece := client.recv(1 << 16):
            got += piece
    except ConnectionResetError:
        pass
    return got


def test_a_body_larger_than_allowed_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with Server(tmp_path / "events", "--limits-body", "1KiB") as server:
        refused = server.post("/v1/topics/a/records", b"x" * 1025)
        assert (refused.status, refused.problem) == (413, "body-too-large")
        assert refused.json["limit"] == 1024
        head = server.head("/v1/topics/a/records")
        with server.socket() as client:
            client.sendall(f"{head}Content-Length: {1 << 40}\r\n\r\n".encode())
            assert b" 413 " in client.recv(1 << 16).split(b"\r\n")[0]
        with server.socket() as client:
            chunks = b"400\r\n" + b"x" * 1024 + b"\r\n1\r\nx\r\n"
            client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks)
            assert b" 413 " in client.recv(1 << 16).split(b"\r\n")[0]
        assert server.get("/v1/topics").json == {"topics": []}


def test_each_refusal_of_a_limit_names_its_setting(tmp_path: Path) -> None:
    limits = {"body": "2KiB", "decoded-body": "4KiB", "record": "1KiB", "batch": "2"}
    flags = [f"--limits-{name}={value}" for name, value in limits.items()]
    objects, lines = "application/vnd.falaj.records+ndjson", "application/x-ndjson"
    large = b'{"value": "%s"}' % (b"x" * 1025)
    parts = b'{"parts": [{"topic": "t", "records": [%s]}]}' % large
    with Server(tmp_path / "events", "--place", str(tmp_path / "place"), *flags) as server:
        server.request("PUT", "/v1/topics/t", b'{"codec": "str"}')
        path = "/v1/topics/t/records"
        for setting, limit, reply in (
            ("body", 2048, server.post(path, b"x" * 2049)),
            ("body", 2048, server.request("PUT", "/v1/place/a", b"x" * 2049)),
            (
                "decoded_body",
                4096,
                server.post(path, gzip.compress(b"x" * 4097), Content_Encoding="gzip"),
            ),
            ("record", 1024, server.post(path, b"x" * 1025)),
            ("record", 1024, server.post(path, b"a\n" + b"x" * 1025, Content_Type="text/plain")),
            ("record", 1024, server.post(path, large, Content_Type=objects)),
            ("record", 1024, server.post("/v1/append", parts)),
            ("record", 1024, server.post("/v1/queues/t/put", b"x" * 1025)),
            ("batch", 2, server.post(path, b"1\n2\n3", Content_Type=lines)),
        ):
            assert (reply.status, bool(reply.problem)) == (413, True), (setting, reply)
            assert f"limits.{setting} allows" in reply.json["detail"], reply
            assert reply.json["limit"] == limit
        assert server.get("/v1/topics/t").json["partitions"][0]["end_offset"] == 0


def test_a_small_body_that_unpacks_into_a_large_one_is_refused_and_its_memory_given_back(
    tmp_path: Path,
) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(2048)) + packer.flush()
    assert len(bomb) < 4 * MIB
    with Server(tmp_path / "events") as server:
        replies: list[Reply] = []

        def send() -> None:
            replies.append(server.post("/v1/topics/a/records", bomb, Content_Encoding="gzip"))

        threads = [threading.Thread(target=send) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(replies) == 20
        assert {reply.problem for reply in replies} <= {"body-too-large", "busy"}
        assert server.peak_rss() < PEAK
        # Each thread kept tens of MiB of them.
        wait(lambda: server.anonymous() < 32 * MIB)
        good = server.post("/v1/topics/a/records", gzip.compress(b"x"), Content_Encoding="gzip")
        assert good.status == 201
        cut = server.post(
            "/v1/topics/a/records", gzip.compress(b"x" * 99)[:-9], Content_Encoding="gzip"
        )
        assert (cut.status, cut.problem) == (400, "bad-request")
        for coding in ("br", "gzip, gzip", "gzip;q=1"):
            refused = server.post("/v1/topics/a/records", b"x", Content_Encoding=coding)
            assert (refused.status, refused.problem) == (415, "unknown-coding")


def test_a_compressed_body_as_large_as_the_limits_comes_in_with_the_least_budget(
    tmp_path: Path,
) -> None:
    flags = [
        word for name in ("body", "decoded-body", "record") for word in (f"--limits-{name}", "1MiB")
    ]
    value = random.Random(1).randbytes(MIB - 1024)  # no secret
    packed = gzip.compress(value)
    assert MIB - 1024 < len(packed) <= MIB
    with Server(tmp_path / "events", *flags, "--limits-bytes-in-flight", "2MiB") as server:
        sent = server.post("/v1/topics/a/records", packed, Content_Encoding="gzip")
        assert sent.status == 201, sent
    with pytest.raises(AssertionError, match="could wait without end"):
        Server(tmp_path / "events", *flags, "--limits-bytes-in-flight", "2047KiB")


def test_a_zstd_frame_that_wants_a_window_of_gigabytes_is_refused(tmp_path: Path) -> None:
    # Magic number; no size, no checksum; a window of 2^31 bytes; a last block of 2^17 equal bytes
    # (RFC 8878, section 3.1.1).
    block = struct.pack("<I", 1 | 1 << 1 | (1 << 17) << 3)[:3] + b"x"
    bomb = bytes.fromhex("28b52ffd 00 a8") + block
    small = bytes.fromhex("28b52ffd 00 38") + block
    with Server(tmp_path / "events") as server:
        path = "/v1/topics/a/records"
        refused = server.post(path, bomb, Content_Encoding="zstd")
        assert (refused.status, refused.problem) == (400, "bad-request")
        assert server.post(path, small, Content_Encoding="zstd").status == 201
        assert server.peak_rss() < PEAK


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"POST /v1/topics/a/records HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"PRI * HTTP/2.0\r\n",
    ],
)
def test_a_client_that_stops_before_its_head_is_whole_is_cut_off(
    tmp_path: Path, begin: bytes
) -> None:
    with Server(tmp_path / "events", *SHORT) as server, server.socket() as client:
        client.sendall(begin)
        until_closed(client)
        assert server.get("/healthz").status == 200


def test_a_client_that_stops_in_its_body_is_told_so(tmp_path: Path) -> None:
    with Server(tmp_path / "events", *SHORT) as server, server.socket() as client:
        head = server.head("/v1/topics/a/records")
        client.sendall(f"{head}Content-Length: 10\r\n\r\n12345".encode())
        assert b" 408 " in until_closed(client).split(b"\r\n")[0]
        assert server.get("/v1/topics").json == {"topics": []}


@pytest.mark.parametrize("endless", [b"X: " + b"y" * 4096 + b"\r\n", b"X: y\r\n"])
def test_headers_without_end_are_refused(tmp_path: Path, endless: bytes) -> None:
    with Server(tmp_path / "events") as server, server.socket() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")

        def send() -> None:
            try:
                while True:
                    client.sendall(endless)
            except OSError:
                pass

        sender = threading.Thread(target=send)
        sender.start()
        assert b" 431 " in until_closed(client).split(b"\r\n")[0]
        client.close()
        sender.join()
        assert server.peak_rss() < PEAK


def test_a_client_that_never_reads_is_cut_off_and_costs_bounded_memory(tmp_path: Path) -> None:
    small = ("--limits-body", "32MiB", "--limits-decoded-body", "32MiB")
    flags = ("--limits-write-timeout", "500ms", "--limits-bytes-in-flight", "64MiB", *small)
    with Server(tmp_path / "events", *flags) as server:
        line = b'"' + b"x" * 1000 + b'"\n'
        for _ in range(2):
            sent = server.post(
                "/v1/topics/a/records", line * 10_000, Content_Type="application/x-ndjson"
            )
            assert sent.status == 201
        ask = (
            "GET /v1/topics/a/records?limit=100000&bytes=4194304 HTTP/1.1\r\n"
            f"Host: localhost\r\nAuthorization: Bearer {server.token}\r\n\r\n"
        ).encode()
        clients = [server.socket() for _ in range(30)]
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(ask * 3)
        # A client that reads is served, though all others have stalled.
        assert server.get("/v1/topics/a/records?limit=1").status == 200
        wait(lambda: gauge(server, "connections") == 1)
        for client in clients:
            client.close()
        assert server.peak_rss() < PEAK


def gauge(server: Server, name: str) -> int:
    """Ask the server for one of its gauges."""
    lines = server.get("/metrics").body.decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"falaj_server_{name} "))


def wait(true: Callable[[], bool]) -> None:
    """Wait until this is true."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)  # sleep: the server tells nothing when a connection ends


def test_one_connection_too_many_is_told_so_and_the_others_go_on(tmp_path: Path) -> None:
    with Server(tmp_path / "events", "--limits-connections", "3") as server:
        first = server.connect()
        first.request("GET", "/healthz")
        assert first.getresponse().read()
        others = [server.socket(), server.socket()]
        wait(lambda: b"503" in _head(server))
        first.request("GET", "/healthz")
        assert first.getresponse().status == 200
        for other in others:
            other.close()
        wait(lambda: b"200" in _head(server))
        first.close()


def _head(server: Server) -> bytes:
    with server.socket() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return until_closed(client).split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/topics/a/records?sync=sometimes", {}),
        ("/v1/topics/a/records?nonsense=1", {}),
        ("/v1/topics/a/records?partition=-1", {}),
        ("/v1/topics/a/records?timeout=5", {}),
        ("/v1/topics/..%2f..%2fetc/records", {}),
        ("/v1/topics/%00/records", {}),
        ("/v1/topics/%ff/records", {}),
        ("/v1/topics/" + "x" * 250 + "/records", {}),
        ("/v1/topics/a/records", {"If_Next": "soon"}),
        ("/v1/topics/a/records", {"Falaj_Producer": "p"}),
        ("/v1/topics/a/records", {"Falaj_Sequence": "1"}),
        ("/v1/topics/a/records", {"Falaj_Producer": "p", "Falaj_Sequence": "-1"}),
        ("/v1/topics/a/records", {"Content_Type": "application/x-ndjson"}),
    ],
)
def test_a_request_with_a_mistake_is_told_which_and_appends_nothing(
    tmp_path: Path, path: str, headers: dict[str, str]
) -> None:
    with Server(tmp_path / "events") as server:
        refused = server.post(path, b"{x", **headers)
        assert refused.status == 400, refused
        assert refused.problem in ("bad-request", "invalid-name", "invalid-argument")
        assert server.get("/v1/topics").json == {"topics": []}
