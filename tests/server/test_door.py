"""Requests that get in or not: tokens, principals, names of hosts, pages of other origins."""

import hashlib
import signal
from pathlib import Path

import pytest

import falaj
from server.doors import Server

TOKENS = {"ingest": "1" * 64, "viewer": "2" * 64}


def principals(path: Path) -> Path:
    """Write a file with a principal that appends and one that reads."""
    path.write_text(
        "".join(
            f'[[principal]]\nname = "{name}"\ntokens = ["{_hash(TOKENS[name])}"]\n'
            f'[[principal.grants]]\ntopic = "orders*"\nallow = [{allowed}]\n'
            for name, allowed in (("ingest", '"append", "create"'), ("viewer", '"read"'))
        )
    )
    return path


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def test_without_a_token_only_health_is_answered(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        assert server.get("/healthz", token="").json == {"status": "alive"}
        assert server.get("/readyz", token="").json["status"] == "ready"
        for path in ("/v1/topics", "/v1/topics/a", "/v1/topics/a/records", "/metrics", "/nowhere"):
            for token in ("", "0" * 64):
                refused = server.get(path, token=token)
                assert (refused.status, refused.problem) == (401, "unauthenticated"), path
                assert refused.headers["www-authenticate"].startswith("Bearer")
        assert server.get("/v1/topics").json == {"topics": []}


def test_a_server_whose_store_was_moved_away_or_replaced_is_not_ready(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        assert server.get("/readyz").status == 200
        (tmp_path / "events").rename(tmp_path / "moved")
        for _ in range(2):
            reply = server.get("/readyz", token="")
            assert (reply.status, reply.json) == (503, {"status": "store removed"})
            (tmp_path / "events").mkdir(exist_ok=True)
        (tmp_path / "events").rmdir()
        (tmp_path / "moved").rename(tmp_path / "events")
        assert server.get("/readyz").status == 200


def test_the_token_is_for_its_owner_and_stays_the_same(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        first = server.token
        path = tmp_path / "events" / "server" / "token"
        assert path.stat().st_mode & 0o777 == 0o600
        _, said = server.stop(signal.SIGTERM)
        assert first not in said
    with Server(tmp_path / "events") as server:
        assert server.token == first


def test_open_lets_programs_in_and_pages_of_other_origins_not(tmp_path: Path) -> None:
    with Server(tmp_path / "events", "--open") as server:
        assert server.post("/v1/topics/a/records", b"x", token="").status == 201
        for header in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            refused = server.post("/v1/topics/a/records", b"x", token="", **header)
            assert (refused.status, refused.problem) == (403, "foreign-origin")
        assert server.get("/v1/topics/a", token="").json["partitions"][0]["end_offset"] == 1
        _, said = server.stop(signal.SIGTERM)
        assert "every local user" in said


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
def test_a_name_that_leads_here_by_a_foreign_dns_server_gets_nothing(
    tmp_path: Path, host: str
) -> None:
    with Server(tmp_path / "events", "--open") as server:
        for path in ("/", "/healthz", "/v1/topics"):
            refused = server.get(path, Host=host)
            assert (refused.status, refused.problem) == (421, "unknown-host")
        assert server.get("/healthz", Host="localhost:1").status == 200


def test_pages_of_a_configured_origin_may_ask_and_read(tmp_path: Path) -> None:
    flags = ("--access-origins", "https://app.example")
    with Server(tmp_path / "events", *flags) as server:
        asked = server.request(
            "OPTIONS",
            "/v1/topics/a/records",
            token="",
            Origin="https://app.example",
            Access_Control_Request_Method="POST",
        )
        assert asked.status == 204
        assert asked.headers["access-control-allow-origin"] == "https://app.example"
        answered = server.post("/v1/topics/a/records", b"x", Origin="https://app.example")
        assert answered.status == 201
        assert answered.headers["access-control-allow-origin"] == "https://app.example"
        other = server.get("/v1/topics", Origin="https://evil.example")
        assert "access-control-allow-origin" not in other.headers


def test_principals_do_what_they_are_granted_and_learn_of_nothing_else(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store:
        store.topic("orders").append(b"0")
        store.topic("secret").append(b"0")
    file = principals(tmp_path / "principals.toml")
    with Server(tmp_path / "events", "--access-principals", str(file)) as server:
        ingest, viewer = TOKENS["ingest"], TOKENS["viewer"]
        assert server.post("/v1/topics/orders/records", b"1", token=ingest).status == 201
        assert server.post("/v1/topics/orders-eu/records", b"1", token=ingest).status == 201
        assert server.get("/v1/topics/orders/records", token=viewer).status == 200
        assert server.get("/v1/topics", token=viewer).json == {"topics": ["orders", "orders-eu"]}
        for method, path, token in (
            ("GET", "/v1/topics/orders/records", ingest),
            ("POST", "/v1/topics/orders/records", viewer),
            ("POST", "/v1/topics/secret/records", ingest),
            ("GET", "/v1/topics/secret", viewer),
            ("GET", "/v1/topics/no-such-topic", viewer),
            ("GET", "/metrics", viewer),
        ):
            refused = server.request(method, path, b"x" if method == "POST" else None, token=token)
            assert (refused.status, refused.problem) == (403, "forbidden"), path
        gone = server.get("/v1/topics/orders-us/records", token=viewer)
        assert (gone.status, gone.problem) == (404, "unknown-topic")
        assert "secret" not in gone.json["detail"]


def test_no_refusal_says_where_the_store_is_or_which_groups_and_queues_it_has(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "events"
    with falaj.open(folder) as store:
        store.topic("orders").append(b"0")
        store.consumer("payroll-secret", ["orders"]).close()
        store.queue("payroll-queue", store.topic("payroll"))
        store.queue("orders-queue", store.topic("payroll"))
    file = principals(tmp_path / "principals.toml")
    grants = ("read", "append", "create", "delete", "admin")
    allowed = ", ".join(f'"{grant}"' for grant in grants)
    with file.open("a") as added:
        for kind, name in (("group", "billing"), ("group", "orders*"), ("topic", "orders*")):
            added.write(f'[[principal.grants]]\n{kind} = "{name}"\nallow = [{allowed}]\n')
    seek = b'{"topic": "orders", "to": "earliest"}'
    asked: list[tuple[int, str, str, bytes | None]] = [
        (404, "GET", "/v1/groups/billing", None),
        (404, "DELETE", "/v1/groups/billing", None),
        (404, "POST", "/v1/groups/billing/seek", seek),
        (404, "POST", "/v1/groups/billing/forget", b'{"topic": "orders"}'),
        (404, "GET", "/v1/queues/billing", None),
        (404, "POST", "/v1/queues/billing/ack", b'{"jobs": []}'),
        (404, "GET", "/v1/topics/orders-us", None),
        (409, "POST", "/v1/topics/orders/records?sync=remote", b"x"),
        (409, "PUT", "/v1/queues/orders-queue", b'{"topic": "orders"}'),
    ]
    flags = ("--access-principals", str(file), "--log-level", "debug")
    with Server(folder, *flags) as server:
        token = TOKENS["viewer"]
        for status, method, path, body in asked:
            refused = server.request(method, path, body, token=token)
            assert (refused.status, bool(refused.problem)) == (status, True), (path, refused)
            for part in (str(folder), "payroll"):
                assert part.encode() not in refused.body, (path, refused)
        # The file of its settings cannot be read.
        settings = folder / "topics" / "orders" / "topic.json"
        good = settings.read_bytes()
        settings.write_bytes(b"no JSON")
        failed = server.request("GET", "/v1/topics/orders", token=token)
        assert failed.status == 500, failed
        assert b"topics/orders" in failed.body
        assert str(folder).encode() not in failed.body
        assert str(settings) in server.until_said("a request failed")
        settings.write_bytes(good)
    with Server(folder, *flags, "--read-only") as server:
        for path, body in (
            ("/v1/queues/orders-queue/put", b"x"),
            ("/v1/groups/billing/seek", seek),
        ):
            refused = server.post(path, body, token=token)
            assert refused.status >= 400
            assert str(folder).encode() not in refused.body, refused
        refused = server.post("/v1/topics/orders/records", b"x", token=token)
        assert (refused.status, refused.problem) == (403, "read-only")
        assert str(folder).encode() not in refused.body, refused


def test_a_signal_has_principals_read_again_and_a_mistake_changes_nothing(tmp_path: Path) -> None:
    file = principals(tmp_path / "principals.toml")
    with Server(tmp_path / "events", "--access-principals", str(file)) as server:
        token = TOKENS["viewer"]
        assert server.get("/v1/topics", token=token).status == 200
        file.write_text("[[principal]]\nname = 5\n")
        server.process.send_signal(signal.SIGHUP)
        # The next line of the log says that it was looked at.
        assert server.process.stderr is not None
        while "principals stay" not in (line := server.process.stderr.readline()):
            assert line
        assert server.get("/v1/topics", token=token).status == 200
        file.write_text("")
        server.process.send_signal(signal.SIGHUP)
        while "read again" not in (line := server.process.stderr.readline()):
            assert line
        assert server.get("/v1/topics", token=token).status == 401


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (("--http", "0.0.0.0:0"), "tls.certificate"),
        (("--http", "0.0.0.0:0", "--plaintext"), "access.principals"),
        (("--http", "0.0.0.0:0", "--plaintext", "--open"), "everybody"),
        (("--http", "off"), "off"),
        (("--http", "nowhere.invalid:1"), "nowhere.invalid"),
        (("--tls-certificate", "no.pem", "--tls-key", "no.pem"), "no.pem"),
        (("--log-level", "no=such=level"), "log.level"),
    ],
)
def test_what_nothing_protects_is_not_served_and_leaves_no_store(
    tmp_path: Path, flags: tuple[str, ...], part: str
) -> None:
    with pytest.raises(AssertionError) as refused:
        Server(tmp_path / "events", *flags)
    assert part in str(refused.value)
    assert not (tmp_path / "events").exists()
