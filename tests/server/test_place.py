"""The place of a server: objects over HTTP, hostile keys and bodies, grants, waits, kills."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from falaj.ship.directory import DirectoryPlace
from server.doors import Reply, Server
from server.test_limits import until_closed

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


class Holder(Server):
    """A server with a place, beside its store."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.place = folder / "place"
        super().__init__(folder / "store", "--place", os.fspath(self.place), *flags)

    def put(self, key: str, body: bytes, *, token: str | None = None, **headers: str) -> Reply:
        """Create an object."""
        return self.request("PUT", f"/v1/place/{key}", body, token=token, tls=None, **headers)

    def object(self, key: str, *, token: str | None = None, **headers: str) -> Reply:
        """Read an object."""
        return self.get(f"/v1/place/{key}", token=token, **headers)

    def keys(self, query: str = "") -> list[str]:
        """List keys."""
        return [one["key"] for one in self.get(f"/v1/place{query}").json["objects"]]

    @property
    def drafts(self) -> list[str]:
        """Files of creates that have not ended."""
        return os.listdir(self.place / ".new")


def test_an_object_is_created_once_read_in_parts_listed_and_deleted(tmp_path: Path) -> None:
    with Holder(tmp_path) as server:
        assert server.put("shop/n/1", b"0123456789", If_None_Match="*").status == 201
        again = server.put("shop/n/1", b"other")
        assert (again.status, again.problem) == (412, "object-exists")
        whole = server.object("shop/n/1")
        assert (whole.status, whole.body) == (200, b"0123456789")
        assert whole.headers["content-type"] == "application/octet-stream"
        for asked, status, body in (
            ("bytes=3-6", 206, b"3456"),
            ("bytes=8-99", 206, b"89"),
            ("bytes=-3", 206, b"789"),
            ("bytes=3-4,7-8", 200, b"0123456789"),
        ):
            part = server.object("shop/n/1", Range=asked)
            assert (part.status, part.body) == (status, body), asked
        assert server.object("shop/n/1", Range="bytes=3-6").headers["content-range"] == (
            "bytes 3-6/10"
        )
        behind = server.object("shop/n/1", Range="bytes=10-")
        assert (behind.status, behind.problem) == (416, "range-not-satisfiable")
        assert (behind.json["size"], behind.headers["content-range"]) == (10, "bytes */10")
        missing = server.object("shop/n/2")
        assert (missing.status, missing.problem) == (404, "object-not-found")
        server.put("shop/k/2", b"")
        first = server.get("/v1/place?prefix=shop&limit=1").json
        assert first["next"] == first["objects"][0]["key"] == "shop/k/2"
        rest = server.get(f"/v1/place?prefix=shop/&after={first['next']}").json
        assert rest["next"] is None
        (listed,) = rest["objects"]
        assert (listed["key"], listed["size"]) == ("shop/n/1", 10)
        assert abs(listed["modified_us"] / 1e6 - time.time()) < 60
        metrics = server.get("/metrics").body.decode()
        for line in ("created_objects_total 2", "created_bytes_total 10", "read_bytes_total 33"):
            assert f"falaj_server_place_{line}" in metrics
        assert server.request("DELETE", "/v1/place/shop/n/1").status == 204
        assert server.request("DELETE", "/v1/place/shop/n/1").status == 204
        gone = server.post("/v1/place", b'{"delete": ["shop/k/2", "shop/k/none"]}')
        assert (gone.status, gone.json) == (200, {"deleted": 2})
        assert server.keys() == []
        assert server.drafts == []


def test_the_directory_is_a_place_of_its_own_at_the_same_time(tmp_path: Path) -> None:
    with Holder(tmp_path) as server:
        beside = DirectoryPlace(os.fspath(server.place))
        server.put("a/b", b"x")
        assert beside.get("a/b") == b"x"
        assert not beside.put_new("a/b", b"y")
        assert beside.put_new("a/c", b"z")
        assert server.put("a/c", b"y").status == 412
        assert server.object("a/c").body == b"z"
        assert server.keys() == [one.key for one in beside.list_after("")] == ["a/b", "a/c"]


def test_objects_of_any_size_come_back_byte_for_byte(tmp_path: Path) -> None:
    with Holder(tmp_path) as server:
        for size in (0, 1, 256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, 5 * MIB + 7):
            body = os.urandom(size)
            assert server.put(f"s/{size}", body).status == 201
            assert server.object(f"s/{size}").body == body
            if size > 10:
                part = server.object(f"s/{size}", Range=f"bytes=3-{size - 3}")
                assert part.body == body[3 : size - 2]
        assert server.drafts == []


# --- Hostile requests -----------------------------------------------------------------------------

KEYS = [
    "../store/server/token",
    "a/../../store/server/token",
    "%2e%2e/store/server/token",
    "a%2f..%2f..%2fstore",
    "..%2fstore%2fserver%2ftoken",
    ".new/x",
    "a/.hidden",
    "a//b",
    "a/",
    "%2fetc%2fpasswd",
    "a%00b",
    "a%0ab",
    "%ff",
    "a%252fb",
    "a%20b",
    "x" * 513,
    "x" * 256,
]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_is_none_reaches_no_file(tmp_path: Path, key: str) -> None:
    with Holder(tmp_path) as server:
        for method in ("GET", "PUT", "DELETE"):
            with server.socket() as client:
                head = server.head("").replace("POST  ", f"{method} /v1/place/{key} ")
                client.sendall(f"{head}Content-Length: 1\r\nConnection: close\r\n\r\nx".encode())
                told = until_closed(client)
            assert told.split(b" ")[1] in (b"400", b"404"), (method, told)
            assert server.token.encode() not in told
        assert server.token == (tmp_path / "store" / "server" / "token").read_text()
        assert sorted(os.listdir(tmp_path)) == ["place", "store"]
        assert os.listdir(server.place) == [".new"]
        listed = server.get(f"/v1/place?prefix={key}")
        assert listed.status == 400 or listed.json["objects"] == []
        body = b'{"delete": ["ok", "../store/server/token"]}'
        assert server.post("/v1/place", body).problem == "invalid-key"


def test_a_key_that_is_a_folder_of_others_is_refused_as_such(tmp_path: Path) -> None:
    with Holder(tmp_path) as server:
        assert server.put("dir/one", b"x").status == 201
        for _ in range(2):
            refused = server.put("dir", b"x")
            assert (refused.status, refused.problem) == (409, "key-conflict"), refused
            assert server.object("dir").problem == "object-not-found"
            assert server.request("DELETE", "/v1/place/dir/one").status == 204
        assert server.put("dir/one", b"y").status == 201
        assert server.drafts == []


def test_a_part_of_a_key_that_no_file_system_has_is_refused_with_the_bound(tmp_path: Path) -> None:
    with Holder(tmp_path) as server:
        assert server.put("n/" + "x" * 255, b"x").status == 201
        for key in ("x" * 256, "n/" + "x" * 256, "x" * 256 + "/n"):
            for method in ("GET", "PUT", "DELETE"):
                refused = server.request(method, f"/v1/place/{key}", b"x" * (method == "PUT"))
                assert (refused.status, refused.problem) == (400, "invalid-key")
                assert "255 in a part" in refused.json["detail"]


def test_what_a_create_cannot_heed_is_refused(tmp_path: Path) -> None:
    with Holder(tmp_path) as server:
        for status, headers in (
            (400, {"If_None_Match": '"x"'}),
            (400, {"If_Match": "*"}),
            (400, {"Content_Range": "bytes 0-0/2"}),
            (415, {"Content_Encoding": "gzip"}),
        ):
            assert server.put("a", b"x", **headers).status == status, headers
        assert server.keys() == []


def test_a_body_too_large_too_slow_or_cut_off_leaves_nothing(tmp_path: Path) -> None:
    flags = ("--limits-body", "1MiB", "--limits-body-timeout", "500ms")
    with Holder(tmp_path, *flags) as server:
        assert server.put("a", bytes(MIB)).status == 201
        head = server.head("/v1/place/b").replace("POST", "PUT")
        with server.socket() as client:
            client.sendall(f"{head}Content-Length: {1 << 40}\r\n\r\n".encode())
            assert b" 413 " in client.recv(1 << 16).split(b"\r\n")[0]
        with server.socket() as client:
            client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            for _ in range(5):
                client.sendall(b"40000\r\n" + bytes(1 << 18) + b"\r\n")
            assert b" 413 " in client.recv(1 << 16).split(b"\r\n")[0]
        with server.socket() as client:
            client.sendall(f"{head}Content-Length: 600000\r\n\r\n".encode() + bytes(500_000))
            assert b" 408 " in until_closed(client).split(b"\r\n")[0]
        with server.socket() as client:
            client.sendall(f"{head}Content-Length: 600000\r\n\r\n".encode() + bytes(500_000))
        end = time.monotonic() + 60
        while server.drafts:
            assert time.monotonic() < end
            time.sleep(0.02)  # sleep: the server tells nothing when it deletes a draft
        assert server.keys() == ["a"]


def test_large_objects_take_bounded_memory_also_where_clients_stall(tmp_path: Path) -> None:
    limits = {"bytes-in-flight": "16MiB", "body": "12MiB", "decoded-body": "1MiB", "record": "1MiB"}
    limits["write-timeout"] = "1s"
    flags = [word for name, most in limits.items() for word in (f"--limits-{name}", most)]
    body = os.urandom(8 * MIB)
    with Holder(tmp_path, *flags) as server:
        with ThreadPoolExecutor(12) as pool:
            sent = list(pool.map(lambda n: server.put(f"s/{n}", body).status, range(12)))
        assert set(sent) <= {201, 503}
        assert 201 in sent
        key = server.keys()[0]
        ask = (
            f"GET /v1/place/{key} HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {server.token}\r\n\r\n"
        ).encode()
        clients = [server.socket() for _ in range(40)]
        for client in clients:
            client.sendall(ask)
        with ThreadPoolExecutor(8) as pool:
            found = set(pool.map(lambda _: sha256(server.object(key).body).digest(), range(8)))
        assert found == {sha256(body).digest()}
        assert server.peak_rss() < 96 * MIB
        for client in clients:
            client.close()


# --- Access ---------------------------------------------------------------------------------------

TOKENS = {"shipper": "s" * 64, "reader": "r" * 64, "topics": "t" * 64}


def principals(path: Path) -> Path:
    """Write principals: one that ships below `shop`, one that reads there, one for topics."""
    grants = {
        "shipper": 'place = "shop/*"\nallow = ["read", "create", "delete"]',
        "reader": 'place = "shop/*"\nallow = ["read"]',
        "topics": 'topic = "*"\ngroup = "*"\n'
        'allow = ["read", "append", "create", "delete", "admin"]',
    }
    text = ""
    for name, grant in grants.items():
        digest = sha256(TOKENS[name].encode()).hexdigest()
        text += f'[[principal]]\nname = "{name}"\ntokens = ["{digest}"]\n'
        text += f"[[principal.grants]]\n{grant}\n"
    path.write_text(text)
    return path


def test_a_grant_of_the_place_is_none_of_topics_and_the_other_way_round(tmp_path: Path) -> None:
    file = principals(tmp_path / "principals.toml")
    with Holder(tmp_path, "--access-principals", str(file)) as server:
        assert server.post("/v1/topics/orders/records", b"x", token=TOKENS["topics"]).status == 201
        shipper, reader, topics = TOKENS["shipper"], TOKENS["reader"], TOKENS["topics"]
        assert server.put("shop/n/1", b"x", token=shipper).status == 201
        assert server.object("shop/n/1", token=reader).body == b"x"
        assert server.get("/v1/place?prefix=shop", token=reader).status == 200
        for method, path, body, token in (
            ("GET", "/v1/topics/orders/records", None, shipper),
            ("GET", "/metrics", None, shipper),
            ("POST", "/v1/topics/orders/records", b"x", shipper),
            ("GET", "/v1/place/shop/n/1", None, topics),
            ("PUT", "/v1/place/shop/n/2", b"x", topics),
            ("GET", "/v1/place", None, topics),
            ("PUT", "/v1/place/shop/n/2", b"x", reader),
            ("DELETE", "/v1/place/shop/n/1", None, reader),
            ("POST", "/v1/place", b'{"delete": ["shop/n/1"]}', reader),
            ("POST", "/v1/place", b'{"delete": ["shop/n/1", "other/n/1"]}', shipper),
            ("GET", "/v1/place", None, shipper),
            ("GET", "/v1/place?prefix=shopping", None, shipper),
            ("GET", "/v1/place/other/n/1", None, shipper),
            ("PUT", "/v1/place/other/n/1", b"x", shipper),
        ):
            refused = server.request(method, path, body, token=token)
            assert (refused.status, refused.problem) == (403, "forbidden"), (method, path)
        assert server.object("shop/n/1", token="").status == 401
        assert server.keys() == ["shop/n/1"]


def test_without_a_place_each_request_says_so(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        for method, path, body in (
            ("GET", "/v1/place/a", None),
            ("PUT", "/v1/place/a", b"x"),
            ("DELETE", "/v1/place/a", None),
            ("GET", "/v1/place", None),
            ("POST", "/v1/place", b'{"delete": []}'),
        ):
            refused = server.request(method, path, body)
            assert (refused.status, refused.problem) == (404, "no-place"), method


@pytest.mark.parametrize("place", ["store", "store/place", ".", "no/such/place"])
def test_a_place_that_would_hold_secrets_or_has_no_disk_is_refused(
    tmp_path: Path, place: str
) -> None:
    with Server(tmp_path / "store"):
        pass
    with pytest.raises(AssertionError, match=r"side by side|directory that exists"):
        Server(tmp_path / "store", "--place", os.fspath(tmp_path / place))
    assert not (tmp_path / ".new").exists()


# --- Waits ----------------------------------------------------------------------------------------


def test_a_read_waits_for_an_object_of_any_process(tmp_path: Path) -> None:
    with Holder(tmp_path) as server:
        started = time.monotonic()
        assert server.object("n/1?wait=200ms").status == 404
        assert time.monotonic() - started >= 0.2
        beside = DirectoryPlace(os.fspath(server.place))
        creates: dict[str, Callable[[], bool]] = {
            "n/2": lambda: server.put("n/2", b"x").status == 201,
            "n/3": lambda: beside.put_new("n/3", b"x"),
        }
        for key, create in creates.items():
            with ThreadPoolExecutor(3) as pool:
                waiting = [pool.submit(server.object, f"{key}?wait=50s") for _ in range(3)]
                wait_for_followers(server, 3)
                assert server.put("n/other", b"x").status in (201, 412)
                assert create()
                replies = [one.result(20) for one in waiting]
            assert [(one.status, one.body) for one in replies] == [(200, b"x")] * 3
        assert server.object("n/3?wait=1").problem == "bad-request"


def test_a_server_that_ends_answers_those_who_wait(tmp_path: Path) -> None:
    with Holder(tmp_path) as server:
        replies = list[Reply]()
        waiting = threading.Thread(target=lambda: replies.append(server.object("n/1?wait=50s")))
        waiting.start()
        wait_for_followers(server, 1)
        assert server.stop(signal.SIGTERM)[0] == 0
        waiting.join(20)
        assert [one.problem for one in replies] == ["object-not-found"]


def wait_for_followers(server: Server, count: int) -> None:
    """Wait until so many requests wait."""
    end = time.monotonic() + 60
    while f"falaj_server_followers {count}\n" not in server.get("/metrics").body.decode():
        assert time.monotonic() < end
        time.sleep(0.02)  # sleep: a request that waits says nothing


# --- Disks ----------------------------------------------------------------------------------------


def test_a_disk_that_is_gone_is_an_error_and_not_an_empty_place(tmp_path: Path) -> None:
    with Holder(tmp_path) as server:
        server.put("n/1", b"x")
        server.place.rename(tmp_path / "unplugged")
        server.place.mkdir()
        for method, path, body in (
            ("GET", "/v1/place/n/1", None),
            ("PUT", "/v1/place/n/2", b"x"),
            ("GET", "/v1/place", None),
            ("DELETE", "/v1/place/n/1", None),
        ):
            refused = server.request(method, path, body)
            assert (refused.status, refused.problem) == (500, "place-failed"), method
            assert str(tmp_path) not in refused.json["detail"]
        server.place.rmdir()
        (tmp_path / "unplugged").rename(server.place)
        assert server.object("n/1").body == b"x"


def test_symbolic_links_and_odd_files_are_no_objects(tmp_path: Path) -> None:
    with Holder(tmp_path) as server:
        server.put("n/1", b"x")
        (server.place / "out").symlink_to(tmp_path / "store" / "server")
        (server.place / "file").symlink_to(tmp_path / "store" / "server" / "token")
        os.mkfifo(server.place / "n" / "pipe")
        for method, key in (("GET", "out/token"), ("GET", "file"), ("DELETE", "out/token")):
            refused = server.request(method, f"/v1/place/{key}")
            assert (refused.status, refused.problem) == (500, "unsupported-place"), key
        assert server.put("out/new", b"x").problem == "unsupported-place"
        assert server.object("n/pipe").problem == "object-not-found"
        assert server.object("n").problem == "object-not-found"
        below = server.put("n/1/x", b"x")
        assert (below.status, below.problem) == (409, "key-conflict")
        assert server.keys() == ["n/1"]
        assert os.listdir(tmp_path / "store" / "server") == ["token"]
