"""Peers: outcomes of creates, repeats, tokens, connections; on scripted and real servers."""

import hashlib
import json
import os
import pickle
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trustme

from falaj.errors import (
    CorruptData,
    InvalidArgument,
    PlaceDenied,
    PlaceFull,
    PlaceNotFound,
    PlaceUnreachable,
    UnsupportedPlace,
)
from falaj.ship.directory import DirectoryPlace
from falaj.ship.peer import PeerPlace
from falaj.ship.place import open_place
from ship.conftest import Started
from ship.scripted import Answer, Asked, Scripted
from ship.servers import Peer

TOKEN = "hunter2" * 9
BODY = 3 << 20


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FALAJ_TOKEN", raising=False)


def told(status: int, kind: str, detail: str = "no") -> Answer:
    """Answer as a server of falaj refuses."""
    text = json.dumps({"type": f"urn:falaj:problem:{kind}", "status": status, "detail": detail})
    return Answer(status, text.encode(), (("Content-Type", "application/problem+json"),))


def opened(server: Scripted, **options: Any) -> PeerPlace:
    """Open a place of the server."""
    return PeerPlace(f"{server.endpoint}/x", **options)


# --- Creates --------------------------------------------------------------------------------------

UNKNOWN = [
    told(412, "object-exists"),
    told(408, "slow-body"),
    told(503, "busy"),
    told(500, "engine"),
    Answer(409),
    Answer(429),
    Answer(500),
    Answer(502),
    Answer(504),
    Answer(200),
    Answer(204),
    Answer(0),
    Answer(-1),
]


@pytest.mark.parametrize("size", [1, BODY])
@pytest.mark.parametrize("answer", UNKNOWN, ids=lambda it: f"{it.status}{it.body[26:40]!r}")
def test_a_create_without_a_201_is_unknown_and_sent_once(answer: Answer, size: int) -> None:
    with Scripted(lambda _: answer) as server:
        assert opened(server, timeout=0.5).put_new("n/1", bytes(size)) is False
        assert [asked.method for asked in server.asked] == ["PUT"]


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (told(401, "unauthenticated"), PlaceDenied, "FALAJ_TOKEN"),
        (told(403, "forbidden"), PlaceDenied, "principals"),
        (told(403, "place-denied"), PlaceDenied, "user"),
        (told(421, "unknown-host"), PlaceDenied, r"access\.hosts"),
        (told(404, "no-place"), PlaceNotFound, "--place"),
        (told(404, "unknown-path"), PlaceNotFound, "URL"),
        (Answer(404), PlaceNotFound, "URL"),
        (Answer(405), PlaceNotFound, "URL"),
        (Answer(301), PlaceNotFound, "URL"),
        (told(413, "body-too-large"), UnsupportedPlace, r"limits\.body"),
        (told(500, "unsupported-place"), UnsupportedPlace, "log"),
        (told(409, "key-conflict"), UnsupportedPlace, "folder"),
        (told(507, "no-space"), PlaceFull, "free space"),
        (Answer(507), PlaceFull, "free space"),
        # A create whose name may not be on stable storage must be repeated, not looked for.
        (told(500, "place-failed"), PlaceUnreachable, "again"),
    ],
    ids=lambda it: str(it.status) if isinstance(it, Answer) else "",
)
def test_a_create_that_is_refused_for_certain_raises(
    answer: Answer, kind: type[OSError], said: str
) -> None:
    with Scripted(lambda _: answer) as server:
        place = opened(server)
        with pytest.raises(kind, match=said) as refused:
            place.put_new("n/1", b"x")
        assert (refused.value.url, refused.value.key) == (place.url, "n/1")  # type: ignore[attr-defined]
        assert len(server.asked) == 1


def test_a_create_is_one_request_with_its_condition() -> None:
    with Scripted(lambda _: Answer(201)) as server:
        assert opened(server, token=TOKEN).put_new("n/1", bytes(BODY))
        (asked,) = server.asked
    assert (asked.method, asked.path, len(asked.body)) == ("PUT", "/v1/place/x/n/1", BODY)
    assert asked.headers["if-none-match"] == "*"
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"


def test_a_create_that_no_server_hears_is_unknown() -> None:
    with Scripted(lambda _: Answer(201)) as server:
        place = opened(server)
    assert place.put_new("n/1", b"x") is False
    with pytest.raises(PlaceUnreachable, match="no connection"):
        place.get("n/1")


# --- Other requests -------------------------------------------------------------------------------


def failing(times: int, answer: Answer, then: Answer) -> Any:
    """Answer some times like this, then like that."""
    number = count()
    return lambda _: answer if next(number) < times else then


@pytest.mark.parametrize(
    "answer", [told(503, "busy"), told(500, "place-failed"), Answer(0)], ids=lambda it: it.status
)
def test_reads_are_repeated_while_there_is_no_answer_that_helps(answer: Answer) -> None:
    with Scripted(failing(2, answer, Answer(200, b"abc"))) as server:
        assert opened(server).get("n/1") == b"abc"
        assert len(server.asked) == 3
    with Scripted(lambda _: answer) as server:
        with pytest.raises(PlaceUnreachable):
            opened(server).get("n/1")
        assert 1 < len(server.asked) < 10


def requests_of(place: PeerPlace) -> list[Callable[[], object]]:
    """List calls of each kind but creates."""
    return [
        lambda: place.get("n/1"),
        lambda: place.get_range("n/1", 0, 1),
        lambda: list(place.list_after("n")),
        lambda: place.delete(["n/1"]),
    ]


def test_what_no_repeat_helps_is_sent_once() -> None:
    with Scripted(lambda _: told(403, "forbidden")) as server:
        for number, call in enumerate(requests_of(opened(server)), 1):
            with pytest.raises(PlaceDenied):
                call()
            assert len(server.asked) == number


@pytest.mark.parametrize("kind", ["no-place", "unknown-path", ""])
def test_a_server_without_a_place_looks_not_like_an_empty_one(kind: str) -> None:
    with Scripted(lambda _: told(404, kind) if kind else Answer(404)) as server:
        for call in requests_of(opened(server)):
            with pytest.raises(PlaceNotFound):
                call()


def test_a_pause_in_an_answer_ends_a_read() -> None:
    with Scripted(lambda _: Answer(-1)) as server:
        before = time.monotonic()
        with pytest.raises(PlaceUnreachable, match="timed out"):
            opened(server, timeout=0.1).get("n/1")
        assert time.monotonic() - before < 20


def test_the_range_of_an_object_that_is_shorter_is_corrupt() -> None:
    for number in range(2):
        answer = failing(number, told(416, "range-not-satisfiable"), Answer(206, b"ab"))
        with Scripted(answer) as server, pytest.raises(CorruptData):
            opened(server).get_range("n/1", 0, 3)
    with Scripted(lambda _: Answer(200, b"0123")) as server:  # a proxy that knows no ranges
        assert opened(server).get_range("n/1", 1, 3) == b"12"


@pytest.mark.parametrize(
    "page",
    [
        b"no",
        b"[]",
        b'{"objects": [{}], "next": null}',
        b'{"objects": [{"key": "x/../a", "size": 1, "modified_us": 1}], "next": null}',
        b'{"objects": [{"key": "y/a", "size": 1, "modified_us": 1}], "next": null}',
        b'{"objects": [{"key": "x/a", "size": 1, "modified_us": 1}], "next": "x/a"}',
    ],
)
def test_a_listing_that_is_none_is_refused_and_never_goes_on_without_end(page: bytes) -> None:
    with Scripted(lambda _: Answer(200, page)) as server:
        with pytest.raises(PlaceUnreachable, match="no listing"):
            list(opened(server).list_after(""))
        assert len(server.asked) < 5


# --- Tokens, URLs, options ------------------------------------------------------------------------


def test_no_message_has_the_token_even_if_the_server_repeats_it() -> None:
    def repeating(asked: Asked) -> Answer:
        return told(403, "forbidden", f"not you, {asked.headers['authorization']}!\n\x1b[31m")

    with Scripted(repeating) as server:
        place = opened(server, token=TOKEN)
        for call in (
            lambda: place.get("n/1"),
            lambda: place.put_new("n/1", b"x"),
            lambda: list(place.list_after("n")),
            lambda: place.delete(["n/1"]),
        ):
            with pytest.raises(PlaceDenied, match="not you") as refused:
                call()
            said = "".join(traceback.format_exception(refused.value)) + repr(refused.value)
            assert TOKEN not in said
            assert "\x1b" not in str(refused.value)
        assert TOKEN not in repr(place) + repr(vars(place))
        with pytest.raises(TypeError, match="open it by its URL"):
            pickle.dumps(place)


def test_the_token_comes_from_the_call_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALAJ_TOKEN", "of-environment")
    file = tmp_path / "token"
    file.write_text("of-file\n")
    with Scripted(lambda _: Answer(200, b"x")) as server:
        for place, expected in (
            (open_place(server.endpoint), "of-environment"),
            (open_place(f"{server.endpoint}?token_file={file}"), "of-file"),
            (open_place(server.endpoint, token=file), "of-file"),
            (open_place(f"{server.endpoint}?token_file={file}", token="of-call"), "of-call"),
        ):
            place.get("a")
            assert server.asked[-1].headers["authorization"] == f"Bearer {expected}"
            assert place.url == server.endpoint
        monkeypatch.delenv("FALAJ_TOKEN")
        open_place(server.endpoint).get("a")
        assert "authorization" not in server.asked[-1].headers
    for token in ("two words", "ä", tmp_path / "none", tmp_path):
        with pytest.raises(InvalidArgument):
            open_place("http://127.0.0.1:1", token=token)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@127.0.0.1/x",
        "http://127.0.0.1?token=hunter2",
        "http://127.0.0.1?certificate",
        "http://127.0.0.1?allow_http=yes",
        "http:/127.0.0.1",
        "http://",
        "http://127.0.0.1:hunter2",
        "http://127.0.0.1/../x",
        "http://127.0.0.1/a//b",
        "http://127.0.0.1/x#hunter2",
        "http://machine.example:4437/x",
    ],
)
def test_a_url_that_cannot_be_right_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        open_place(url)
    assert "hunter2" not in str(refused.value)


def test_a_url_names_the_server_and_a_folder_of_its_place() -> None:
    for url, named in (
        ("http://127.0.0.1:4437", "http://127.0.0.1:4437"),
        ("http://localhost/", "http://localhost"),
        ("http://[::1]:1/a/b/", "http://[::1]:1/a/b"),
        ("http://127.0.0.1:1/v1/place", "http://127.0.0.1:1"),
        ("http://127.0.0.1:1/v1/place/a", "http://127.0.0.1:1/a"),
        ("https://machine.example/a", "https://machine.example/a"),
        ("http://machine.example/a?allow_http=1", "http://machine.example/a"),
    ):
        assert open_place(url).url == named


def test_other_options_are_refused() -> None:
    for options in ({"timeout": 0}, {"timeout": -1}):
        with pytest.raises(InvalidArgument):
            open_place("http://127.0.0.1", **options)
    with pytest.raises(InvalidArgument, match="certificate"):
        open_place("https://127.0.0.1", certificate="/nowhere")
    for wrong in ({"token": 7}, {"allow_http": "no"}):
        with pytest.raises(TypeError):
            open_place("http://127.0.0.1", **wrong)
    with pytest.raises(InvalidArgument, match="region"):
        open_place("http://127.0.0.1", region="eu")


def test_tls_to_a_server_without_it_is_refused_at_once() -> None:
    with Scripted(lambda _: Answer(200)) as server:
        place = open_place(server.endpoint.replace("http:", "https:"))
        for call in (
            lambda: place.get("n/1"),
            lambda: place.put_new("n/1", b"x"),
            lambda: list(place.list_after("n")),
            lambda: place.delete(["n/1"]),
        ):
            with pytest.raises(PlaceNotFound, match="write http:// instead of https://"):
                call()
        assert server.asked == []


# --- Real servers ---------------------------------------------------------------------------------


@pytest.fixture
def peer(tmp_path: Path, started: Started) -> Iterator[Peer]:
    """Start a server of its own for a test, which may kill it."""
    started("peer")  # the test is skipped without the program
    with Peer(tmp_path) as server:
        yield server


def restart(peer: Peer) -> None:
    """Kill the server, and start it again at the same address."""
    peer.stop()
    peer.start()


def test_a_token_that_the_server_does_not_know_is_refused_also_in_a_large_create(
    peer: Peer,
) -> None:
    for size in (1, 30 << 20):
        with pytest.raises(PlaceDenied, match="FALAJ_TOKEN"):
            peer.open(token="wrong").put_new("n/1", bytes(size))
    with pytest.raises(UnsupportedPlace, match=r"limits\.body"):
        peer.open().put_new("n/1", bytes(65 << 20))
    assert peer.open().get("n/1") is None


def test_a_certificate_is_trusted_only_if_it_is_named(tmp_path: Path, started: Started) -> None:
    started("peer")
    issuer = trustme.CA()
    made = issuer.issue_cert("127.0.0.1")
    folder = tmp_path / "tls"
    folder.mkdir()
    chain, key, trusted = folder / "chain.pem", folder / "key.pem", folder / "issuer.pem"
    made.cert_chain_pems[0].write_to_path(chain)
    made.private_key_pem.write_to_path(key)
    issuer.cert_pem.write_to_path(trusted)
    flags = "--tls-certificate", os.fspath(chain), "--tls-key", os.fspath(key)
    with Peer(folder, *flags) as server:
        with pytest.raises(PlaceUnreachable, match="certificate is not trusted"):
            server.open().get("a")
        place = server.open(f"x?certificate={trusted}")
        assert place.url == f"{server.endpoint}/x"
        assert place.put_new("a", b"x")
        assert server.open("x", certificate=trusted).get("a") == b"x"


def test_an_object_of_many_bytes_comes_back_whole(peer: Peer) -> None:
    place, body = peer.open("large"), os.urandom(1 << 20) * 12
    assert place.put_new("s/1", body)
    assert place.get("s/1") == body
    assert place.get_range("s/1", 5 << 20, 7 << 20) == body[5 << 20 : 7 << 20]


def test_a_connection_that_the_server_closed_meanwhile_makes_no_outcome_unknown(
    peer: Peer,
) -> None:
    place = peer.open()
    for number in range(3):
        assert place.put_new(f"n/{number}", b"x")
        restart(peer)


def test_a_forked_child_uses_connections_of_its_own(peer: Peer) -> None:
    place = peer.open()
    assert isinstance(place, PeerPlace)
    idle = place._connections._idle

    def port() -> int:
        ((connection, _),) = idle
        assert connection.sock is not None
        return int(connection.sock.getsockname()[1])

    assert place.put_new("a", b"of the parent")
    before = port()
    child = os.fork()
    if not child:
        is_right = place.get("a") == b"of the parent" and port() != before
        os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert place.get("b") is None
    assert port() == before


def test_an_object_that_is_awaited_comes_at_once(peer: Peer) -> None:
    place = peer.open("shop")
    assert isinstance(place, PeerPlace)
    assert place.get_when_there("n/1", 0.05) is None
    found = list[bytes | None]()
    waiting = threading.Thread(target=lambda: found.append(place.get_when_there("n/1", 50)))
    waiting.start()
    assert place.put_new("n/1", b"x")
    waiting.join(20)
    assert found == [b"x"]


def test_a_listing_goes_on_behind_each_page(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falaj.ship.peer.PAGE", 3)
    monkeypatch.setattr("falaj.ship.peer.DELETED_AT_ONCE", 4)
    place = peer.open("shop")
    keys = [f"n/{number:02}" for number in range(9)] + ["n/09/x", "n/1"]
    for key in keys:
        place.put_new(key, b"x")
    assert [one.key for one in place.list_after("n")] == sorted(keys)
    place.delete(keys)
    assert list(place.list_after("")) == []


def test_what_was_acknowledged_survives_kills_of_the_server_whole(
    peer: Peer, first_seed: int, budget: Callable[[int, int], int]
) -> None:
    kills, chance = budget(8, 200), random.Random(first_seed)
    over, created = threading.Event(), dict[str, bytes]()

    def write(writer: int) -> None:
        place, own = peer.open(timeout=5), random.Random(first_seed + writer)
        for number in count():
            if over.is_set():
                return
            body = own.randbytes(own.choice((10, 1000, 400_000)))
            digest = hashlib.sha256(body).hexdigest()
            key = f"{number % 3}/{writer}/{number}-{digest}"
            if place.put_new(key, body):
                created[key] = body

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for one in writers:
        one.start()
    try:
        for _ in range(kills):
            time.sleep(chance.random() * 0.3)  # sleep: the moment of the kill is the chance
            restart(peer)
    finally:
        over.set()
        for one in writers:
            one.join()
    assert len(created) > kills
    place, beside = peer.open(), DirectoryPlace(os.fspath(peer.folder / "place"))
    found = [one.key for one in place.list_after("")]
    assert set(created) <= set(found)
    for key in found:
        body = place.get(key)
        assert body is not None
        assert key.endswith(hashlib.sha256(body).hexdigest())
        assert beside.get(key) == body
    restart(peer)
    assert os.listdir(peer.folder / "place" / ".new") == []
