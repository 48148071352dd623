"""Buckets: unknown and certain outcomes, repeats, options, credentials; on scripted servers."""

import os
import pickle
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from falaj.errors import (
    CorruptData,
    InvalidArgument,
    MissingExtra,
    ObjectMissing,
    PlaceDenied,
    PlaceFull,
    PlaceNotFound,
    PlaceUnreachable,
)
from falaj.ship.place import Place, open_place
from ship.scripted import Answer, Asked, Scripted
from ship.servers import SECRET, USER, VARIABLES

pytestmark = pytest.mark.usefixtures("_variables")

ETAG = (("ETag", '"x"'), ("Last-Modified", "Fri, 27 Nov 2026 21:00:00 GMT"))


@pytest.fixture
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


def coded(status: int, code: str) -> Answer:
    """Answer as S3 refuses."""
    return Answer(status, f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode())


def opened(server: Scripted, **options: Any) -> Place:
    """Open a bucket of the server."""
    return open_place("s3://shop/x", endpoint=server.endpoint, **options)


# --- Creates --------------------------------------------------------------------------------------

UNKNOWN = [
    coded(409, "ConditionalRequestConflict"),
    coded(412, "PreconditionFailed"),
    coded(429, "TooManyRequests"),
    coded(500, "InternalError"),
    coded(503, "SlowDown"),
    coded(400, "RequestTimeout"),
    Answer(0),
    Answer(-1),
]


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        *((answer, 1) for answer in UNKNOWN),
        *(
            (answer, 3 << 20) for answer in UNKNOWN if answer.status >= 0
        ),  # no 15 minutes of silence
    ],
    ids=lambda value: str(getattr(value, "status", value)),
)
def test_a_create_without_a_success_is_unknown_and_sent_once(answer: Answer, size: int) -> None:
    with Scripted(lambda _: answer) as server:
        place = opened(server, timeout=0.5)
        assert place.put_new("n/1", bytes(size)) is False
        assert [asked.method for asked in server.asked] == ["PUT"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (coded(403, "AccessDenied"), PlaceDenied),
        (coded(403, "SignatureDoesNotMatch"), PlaceDenied),
        (coded(401, "Unauthorized"), PlaceDenied),
        (coded(400, "ExpiredToken"), PlaceDenied),
        (coded(404, "NoSuchBucket"), PlaceNotFound),
        (Answer(404), PlaceNotFound),
        (coded(301, "PermanentRedirect"), PlaceNotFound),
        (coded(507, "XMinioStorageFull"), PlaceFull),
    ],
    ids=lambda value: str(getattr(value, "body", "")),
)
def test_a_create_that_is_refused_for_certain_raises(answer: Answer, kind: type[OSError]) -> None:
    with Scripted(lambda _: answer) as server:
        with pytest.raises(kind) as refused:
            opened(server).put_new("n/1", b"x")
        assert refused.value.url == "s3://shop/x"  # type: ignore[attr-defined]
        assert refused.value.key == "n/1"  # type: ignore[attr-defined]
        assert len(server.asked) == 1


def test_a_create_that_no_server_hears_is_unknown() -> None:
    with Scripted(lambda _: Answer(200)) as server:
        place = opened(server)
    assert place.put_new("n/1", b"x") is False
    with pytest.raises(PlaceUnreachable, match="no connection"):
        place.get("n/1")


@pytest.mark.parametrize("size", [0, 1, 20 << 20])
def test_a_create_is_one_request_with_its_condition(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    with Scripted(lambda _: Answer(200, headers=ETAG)) as server:
        assert opened(server).put_new("n/1", bytes(size))
        (asked,) = server.asked
    assert (asked.method, asked.path, len(asked.body)) == ("PUT", "/shop/x/n/1", size)
    assert asked.headers["if-none-match"] == "*"


def test_creates_of_google_and_azure_have_their_conditions() -> None:
    def token() -> dict[str, object]:
        return {"token": "a", "expires_at": None}

    with Scripted(lambda _: Answer(201, headers=ETAG)) as server:
        google_place = open_place("gs://shop/x", endpoint=server.endpoint, credentials=token)
        assert google_place.put_new("n/1", b"x")
        assert open_place("az://shop/x", endpoint=server.endpoint).put_new("n/1", b"x")
        google, azure = server.asked
    assert google.headers["x-goog-if-generation-match"] == "0"
    assert azure.headers["if-none-match"] == "*"


# --- Other requests -------------------------------------------------------------------------------


def failing(times: int, answer: Answer, then: Answer) -> Any:
    """Answer some times like this, then like that."""
    number = count()
    return lambda _: answer if next(number) < times else then


def test_reads_are_repeated_while_the_server_is_busy() -> None:
    with Scripted(failing(2, coded(503, "SlowDown"), Answer(200, b"abc", ETAG))) as server:
        assert opened(server).get("n/1") == b"abc"
        assert len(server.asked) == 3


@pytest.mark.parametrize("answer", [coded(500, "InternalError"), Answer(0)], ids=["500", "reset"])
def test_reads_that_get_no_answer_say_that_the_place_is_unreachable(answer: Answer) -> None:
    with Scripted(lambda _: answer) as server:
        with pytest.raises(PlaceUnreachable):
            opened(server).get("n/1")
        assert 1 < len(server.asked) < 10


def test_a_pause_in_an_answer_ends_a_read() -> None:
    with Scripted(lambda _: Answer(-1)) as server:
        before = datetime.now(UTC)
        with pytest.raises(PlaceUnreachable, match="timed out"):
            opened(server, timeout=0.3).get("n/1")
        assert datetime.now(UTC) - before < timedelta(seconds=20)


def test_the_range_of_an_object_that_is_shorter_is_corrupt() -> None:
    short = Answer(206, b"ab", (*ETAG, ("Content-Range", "bytes 0-1/2")))
    for number in range(2):
        answer = failing(number, coded(416, "InvalidRange"), short)
        with Scripted(answer) as server, pytest.raises(CorruptData):
            opened(server).get_range("n/1", 0, 3)


# --- Credentials and options ----------------------------------------------------------------------


def test_no_message_has_credentials_even_if_the_server_repeats_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-token-of-the-tests")

    def repeating(asked: Asked) -> Answer:
        said = (
            f"<Error><Code>AccessDenied</Code><Message>{asked.headers} {SECRET}</Message></Error>"
        )
        return Answer(403, said.encode())

    with Scripted(repeating) as server:
        place = opened(server)
        for call in (
            lambda: place.get("n/1"),
            lambda: place.get_range("n/1", 0, 1),
            lambda: place.put_new("n/1", b"x"),
            lambda: list(place.list_after("n")),
            lambda: place.delete(["n/1"]),
        ):
            with pytest.raises(PlaceDenied, match="AccessDenied") as refused:
                call()
            said = "".join(traceback.format_exception(refused.value)) + repr(refused.value)
            for secret in (USER, SECRET, "session-token", "Signature"):
                assert secret not in said
        assert SECRET not in repr(place) + repr(vars(place))
        with pytest.raises(TypeError, match="open it by its URL"):
            pickle.dumps(place)


def test_credentials_are_renewed_before_they_expire() -> None:
    number = count()

    def provider() -> dict[str, object]:
        soon = datetime.now(UTC) + timedelta(seconds=1)
        return {
            "access_key_id": f"key{next(number)}",
            "secret_access_key": SECRET,
            "token": None,
            "expires_at": soon,
        }

    with Scripted(lambda _: Answer(200, b"x", ETAG)) as server:
        place = opened(server, credentials=provider)
        place.get("n/1")
        time.sleep(0.2)  # sleep: obstore asks for credentials at most every 100 ms
        place.get("n/1")
        first, second = (asked.headers["authorization"] for asked in server.asked)
    assert "Credential=key0/" in first
    assert "Credential=key1/" in second


def test_without_credentials_the_error_says_where_they_belong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name)
    with Scripted(lambda _: Answer(404)) as server:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", server.endpoint)
        place = opened(server)
        calls = (lambda: place.get("n/1"), lambda: list(place.list_after("n")))
        for call in (*calls, lambda: place.put_new("n/1", b"x"), lambda: place.delete(["n/1"])):
            with pytest.raises(PlaceDenied, match=r"no credentials .* set AWS_ACCESS_KEY_ID and"):
                call()


@pytest.mark.parametrize("url", ["s3://shop", "gs://shop", "az://shop?account=a"])
@pytest.mark.parametrize("said", ["certificate", "status 404 <Code>NoSuchBucket</Code>", "Connect"])
def test_an_error_of_the_function_for_credentials_is_named_by_its_type_alone(
    url: str, said: str
) -> None:
    def credentials() -> None:
        raise LookupError(f"the vault: {said}")

    place = open_place(url, credentials=credentials)
    for call in (lambda: place.get("a"), lambda: [*place.list_after("")]):
        with pytest.raises(PlaceDenied) as refused:
            call()
        told = str(refused.value)
        assert "credentials= raised LookupError; call it" in told
        assert not any(each in told for each in ("AWS", "GOOGLE", "trusted", "NoSuch", "no such"))


def test_a_create_asks_for_credentials_again_before_it_is_sent() -> None:
    number = count()

    def provider() -> dict[str, object]:
        if next(number) == 0:
            raise ConnectionError("hunter2")
        return {
            "access_key_id": USER,
            "secret_access_key": SECRET,
            "token": None,
            "expires_at": None,
        }

    with Scripted(lambda _: Answer(200, headers=ETAG)) as server:
        assert opened(server, credentials=provider).put_new("n/1", b"x")
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "url",
    [
        "s3://user:hunter2@shop/x",
        "s3://shop/x?secret_access_key=hunter2",
        "s3://shop/x?region",
        "s3:/shop/x",
        "s3://",
        "s3://shop/../x",
        "s3://shop/a//b",
        "az://shop/x?region=eu",
        "gs://shop/x?account=a",
        "s3://shop/x#hunter2",
    ],
)
def test_a_url_that_cannot_be_right_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        open_place(url)
    assert "hunter2" not in str(refused.value)


def test_an_endpoint_without_encryption_is_refused_except_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for endpoint in ("http://127.0.0.1:9", "http://[::1]:9", "http://localhost:9", "https://a.b"):
        assert open_place("s3://shop", endpoint=endpoint).url == "s3://shop"
    with pytest.raises(InvalidArgument, match="unencrypted"):
        open_place("s3://shop?endpoint=http://store.example:9000")
    open_place("s3://shop", endpoint="http://store.example:9000", allow_http=True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store.example:9000")
    with pytest.raises(InvalidArgument, match="unencrypted"):
        open_place("s3://shop")


def test_the_endpoint_comes_from_the_call_the_url_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Scripted(lambda _: Answer(200, b"x", ETAG)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        assert open_place("s3://shop/x").get("a") == b"x"
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
        assert open_place("s3://shop/x", endpoint=server.endpoint).get("a") == b"x"
        url = f"s3://shop/x?endpoint={server.endpoint}&region=eu-west-1"
        assert open_place(url).get("a") == b"x"
        assert "/eu-west-1/s3/" in server.asked[-1].headers["authorization"]
        assert open_place(url).url == "s3://shop/x"


@pytest.mark.parametrize("given", ["foo", "https://", "http://[x", "http://a:b", "ftp://a"])
def test_an_endpoint_that_is_no_url_is_shown_with_the_name_of_its_source(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    shown = f"is a URL such as https://s3.example.com:9000, not {given!r}"
    for url, options in (
        ("s3://shop", {"endpoint": given}),
        (f"s3://shop?endpoint={given}", {}),
    ):
        with pytest.raises(InvalidArgument) as refused:
            open_place(url, **options)
        assert str(refused.value) == f"endpoint {shown}"
    for scheme, name in (
        ("s3", "AWS_ENDPOINT_URL"),
        ("gs", "GOOGLE_BASE_URL"),
        ("az", "AZURE_STORAGE_ENDPOINT"),
    ):
        monkeypatch.setenv(name, given)
        with pytest.raises(InvalidArgument) as refused:
            open_place(f"{scheme}://shop")
        assert str(refused.value) == f"{name} {shown}"
    with pytest.raises(InvalidArgument, match="not one with credentials") as refused:
        open_place("s3://shop", endpoint="https://me:hunter2@a.b")
    assert "hunter2" not in str(refused.value)


def test_a_file_or_variable_that_cannot_be_right_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("hunter2")
    with pytest.raises(InvalidArgument, match=f"certificate={file} has no certificates in PEM"):
        open_place("s3://shop", certificate=file)
    for path in (file, "/nosuch.json"):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", os.fspath(path))
        with pytest.raises(InvalidArgument) as refused:
            open_place("gs://shop")
        named = f"gs://shop: GOOGLE_APPLICATION_CREDENTIALS names {path}, which is no key file"
        assert str(refused.value).startswith(named)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "hunter2")
    with pytest.raises(InvalidArgument) as refused:
        open_place("s3://shop")
    said = "s3://shop: a setting cannot be right; look at AWS_SKIP_SIGNATURE"
    assert str(refused.value) == said


def test_tls_to_a_server_without_it_is_refused_at_once() -> None:
    with Scripted(lambda _: Answer(200, b"x", ETAG)) as server:
        place = open_place("s3://shop", endpoint=server.endpoint.replace("http:", "https:"))
        for call in (
            lambda: place.get("n/1"),
            lambda: place.put_new("n/1", b"x"),
            lambda: list(place.list_after("n")),
            lambda: place.delete(["n/1"]),
        ):
            with pytest.raises(PlaceNotFound, match="write http:// in it instead"):
                call()
        assert server.asked == []


def test_other_options_are_refused() -> None:
    for options in ({"timeout": 0}, {"timeout": -1}, {"certificate": "/nowhere"}, {"account": "a"}):
        with pytest.raises(InvalidArgument):
            open_place("s3://shop", **options)
    with pytest.raises(TypeError):
        open_place("s3://shop", region=7)
    with pytest.raises(TypeError):
        open_place("s3://shop", credentials="secret")


def test_azure_needs_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    with pytest.raises(InvalidArgument, match="AZURE_STORAGE_ACCOUNT_NAME"):
        open_place("az://shop")


def test_buckets_need_an_extra_and_nothing_else_does(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["obstore"] = sys.modules["obstore.exceptions"] = None
from falaj.ship.place import open_place
from falaj.errors import MissingExtra
open_place(sys.argv[1]).put_new("a", b"x")
try:
    open_place("s3://shop")
except MissingExtra as missing:
    print(missing)
"""
    command = [sys.executable, "-c", program, os.fspath(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "buckets need a package: pip install 'falaj[s3]'\n"
    assert issubclass(MissingExtra, ImportError)


def test_a_forked_child_is_refused_and_does_not_wait_without_end() -> None:
    program = """
import os, signal
from falaj.errors import HandleClosed
from falaj.ship.place import open_place

place = open_place("s3://shop", endpoint="http://127.0.0.1:1")
assert place.put_new("a", b"x") is False
child = os.fork()
if child == 0:
    signal.alarm(20)
    for again in (place, open_place("s3://shop", endpoint="http://127.0.0.1:1")):
        try:
            again.put_new("a", b"x")
        except HandleClosed as refused:
            print(refused, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("a forked child uses no bucket") == 2


# --- Real servers ---------------------------------------------------------------------------------


def test_a_bucket_that_is_not_there_is_an_error_of_every_call(server: Any) -> None:
    place = open_place(f"{server.scheme}://nobucket/x", endpoint=server.endpoint)
    for call in (
        lambda: place.get("n/1"),
        lambda: place.get_range("n/1", 0, 1),
        lambda: place.put_new("n/1", b"x"),
        lambda: list(place.list_after("n")),
        lambda: place.delete(["n/1"]),
    ):
        with pytest.raises(PlaceNotFound, match="no such bucket"):
            call()


def test_a_listing_has_more_objects_than_a_page_and_leaves_others_out(server: Any) -> None:
    import obstore

    place = server.open("pages")
    keys = [f"n/{number:020}" for number in range(1100)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda key: place.put_new(key, b"x"), keys))
    obstore.put(place._patient, "pages/n/.hidden", b"x")
    assert [one.key for one in place.list_after("n")] == keys
    assert [one.key for one in place.list_after("n", keys[700])] == keys[701:]
    place.delete(["n/none", *keys])
    assert list(place.list_after("n")) == []


def test_wrong_credentials_are_refused(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if type(server).__name__ == "Moto":
        pytest.skip("moto checks no signatures")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "YW5vdGhlcg==")
    place = server.open("x")
    for call in (
        lambda: place.get("n/1"),
        lambda: place.put_new("n/1", b"x"),
        lambda: list(place.list_after("n")),
        lambda: place.delete(["n/1"]),
    ):
        with pytest.raises(PlaceDenied):
            call()


def test_an_object_of_many_bytes_comes_back_whole(server: Any) -> None:
    place = server.open("large")
    body = os.urandom(1 << 20) * 12
    assert place.put_new("s/1", body)
    assert place.get("s/1") == body
    assert place.get_range("s/1", 5 << 20, 7 << 20) == body[5 << 20 : 7 << 20]
    with pytest.raises(ObjectMissing):
        place.get_range("s/2", 0, 1)
