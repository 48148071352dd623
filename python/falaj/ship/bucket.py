"""`BucketPlace`: a place in a bucket of S3, Google Cloud Storage or Azure, or of a server like S3.

Owns the requests, which the package obstore sends, and their options. Each object is one request
with the condition that no such object exists. Creates are never repeated here: a repeat whose
first reply was lost would report the caller's own object as another's. Other requests are
repeated for some seconds. Each is sent by `requests`, so that no caller hangs with it.
`refusals` reads errors. Credentials stay in obstore: no attribute,
message or pickle here has them. Prose: docs/PLACE.md, "Places".
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

from falaj._checks import flag, function, text
from falaj._numbers import seconds
from falaj._paths import local_path
from falaj.errors import (
    CorruptData,
    HandleClosed,
    InvalidArgument,
    MissingExtra,
    ObjectMissing,
    PlaceUnreachable,
    named,
)
from falaj.ship.handlers import pass_on
from falaj.ship.place import Listed, check_key, check_prefix, error, is_loopback, is_name
from falaj.ship.refusals import Refusal, read
from falaj.ship.requests import NoAnswer, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from falaj._time import Duration

    T = TypeVar("T")

__all__ = ["BucketPlace"]

TIMEOUT_S = 30.0
SMALL_BODY = 1 << 20
PART = 256 << 10
"""Bytes of an answer after which it is heard of; shorter ones come whole."""
LONG_S = 900.0
"""Longest time of a request with a large body: 64 MiB at 75 KiB a second."""
RETRIES = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}
PAUSES_S = (0.2, 1.0)
"""How long a create waits before it asks for credentials again: obstore repeats nothing for it."""
_IN_URLS = {"endpoint", "region", "account", "certificate"}
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_PREFIXES = {"s3": ("AWS_",), "gs": ("GOOGLE_",), "az": ("AZURE_",)}
_KEY_FILES = (
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_APPLICATION_CREDENTIALS",
)


class BucketPlace:
    """A place in a bucket.

    Credentials come from the environment, a role of the machine or container, or `credentials=`,
    and are renewed before they expire.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`. Its query may
            have `endpoint`, `region`, `account` and `certificate`, as in
            `s3://bucket/shop?region=eu-west-1`.
        endpoint: URL of the server, for servers other than the provider's own. By default the
            provider's variable, such as `AWS_ENDPOINT_URL_S3`.
        region: Region of the bucket, for S3; by default `AWS_REGION`.
        account: Storage account, for Azure; by default `AZURE_STORAGE_ACCOUNT_NAME`.
        certificate: File with certificates in PEM to trust beside the system's.
        allow_http: Let an endpoint be `http://`, where all bytes go unencrypted. On this machine
            it always may.
        timeout: How long one request may take, or one pause of an answer. A request with a large
            body may take 15 minutes.
        credentials: A function that returns credentials as obstore expects them, such as a
            `Boto3CredentialProvider` of `obstore.auth.boto3`.

    Raises:
        InvalidArgument: The URL or an option cannot be right.
        MissingExtra: The package obstore is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        account: str | None = None,
        certificate: str | os.PathLike[str] | None = None,
        allow_http: bool = False,
        timeout: Duration = TIMEOUT_S,
        credentials: Callable[[], Any] | None = None,
    ) -> None:
        scheme, bucket, self._root, asked = _parsed(text(url, "url"))
        function(credentials, "credentials")
        flag(allow_http, "allow_http")
        given = {
            "endpoint": endpoint,
            "region": region,
            "account": account,
            "certificate": (
                None
                if certificate is None or (isinstance(certificate, str) and not certificate)
                else local_path(certificate, "certificate")
            ),
        }
        options = asked | {name: text(value, name) for name, value in given.items() if value}
        self.url = f"{scheme}://{bucket}/{self._root}".rstrip("/")
        timeout_s = seconds(timeout, "timeout")
        if not timeout_s:
            raise InvalidArgument("timeout is longer than 0 seconds: a request takes time")
        # A longer one than usual was chosen for a slow place: no patience ends a request before.
        self._least_s = timeout_s if timeout_s > TIMEOUT_S else 0.0
        client = _client(scheme, options, allow_http)
        quick = {**client, "timeout": timedelta(seconds=timeout_s)}
        long = {
            **client,
            "timeout": timedelta(seconds=max(timeout_s, LONG_S)),
            "read_timeout": timedelta(seconds=timeout_s),
        }
        once = {"max_retries": 0}
        self._quick = _store(scheme, bucket, options, quick, once, credentials)
        self._long = _store(scheme, bucket, options, long, once, credentials)
        self._patient = _store(scheme, bucket, options, long, RETRIES, credentials)

    def __repr__(self) -> str:
        return f"<BucketPlace {self.url}>"

    def __reduce__(self) -> NoReturn:
        """Refuse: what obstore pickles has credentials in it."""
        raise TypeError(f"{self!r} is not pickled: open it by its URL where it is used")

    def get(self, key: str) -> bytes | None:
        """Return an object, or None if there is none under this key."""
        obstore = _obstore()
        path = self._root + check_key(key)
        try:
            return self._ask(lambda heard: _whole(obstore.get(self._patient, path), heard), key)
        except _failures() as failed:
            pass_on(failed)
            if (refusal := read(failed)).is_missing:
                return None
            self._refuse(refusal, key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes of an object from `start` up to `stop`.

        Raises:
            ObjectMissing: There is no object under this key.
            CorruptData: The object ends before `stop`.
        """
        obstore = _obstore()
        path = self._root + check_key(key)
        if start >= stop:
            return b""
        try:
            if stop - start <= PART:
                found = self._ask(
                    lambda _: bytes(obstore.get_range(self._patient, path, start=start, end=stop)),
                    key,
                )
            else:
                part: Any = {"range": (start, stop)}
                found = self._ask(
                    lambda heard: _whole(obstore.get(self._patient, path, options=part), heard),
                    key,
                )
        except _failures() as failed:
            pass_on(failed)
            refusal = read(failed)
            if refusal.is_missing:
                text = f"{self.url} has no object {key}"
                raise error(ObjectMissing, text, self.url, key) from None
            if not refusal.is_behind_the_end:
                self._refuse(refusal, key)
            found = b""
        if len(found) < stop - start:
            raise CorruptData(
                f"object {key} of {self.url} ends before byte {stop}, and more was written:"
                " restore it from another place"
            )
        return found

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object, unless there is one under this key; `Place` says what False means."""
        obstore = _obstore()
        store = self._quick if len(body) <= SMALL_BODY else self._long
        path = self._root + check_key(key)
        for pause_s in (*PAUSES_S, None):
            try:
                ask(
                    lambda _: obstore.put(store, path, body, mode="create", use_multipart=False),
                    writes=True,
                )
            except _failures() as failed:
                pass_on(failed)
                refusal = read(failed, creates=True)
                if refusal.is_unsent and pause_s is not None:
                    time.sleep(pause_s)
                    continue
                if refusal.is_certain:
                    self._refuse(refusal, key)
                return False
            return True
        raise AssertionError("the last round returns or raises")

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List the objects below a folder, in order of their keys.

        Objects that no key can name are left out, such as those that stand for a folder.
        """
        obstore = _obstore()
        folder = (self._root + check_prefix(prefix)).removesuffix("/")
        offset = self._root + after.rstrip("/") if after else None
        try:
            pages = iter(obstore.list(self._patient, prefix=folder or None, offset=offset))
            while (page := self._ask(lambda _: next(pages, None), None)) is not None:
                for found in page:
                    key = found["path"].removeprefix(self._root)
                    if key > after and all(map(is_name, key.split("/"))):
                        at = int(found["last_modified"].timestamp() * 1_000_000)
                        yield Listed(key, found["size"], at)
        except _failures() as failed:
            pass_on(failed)
            self._refuse(read(failed, lists=True), None)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, many in one request where the server can; missing ones are no error."""
        obstore = _obstore()
        paths = [self._root + check_key(key) for key in keys]
        try:
            if paths:
                ask(lambda _: obstore.delete(self._patient, paths), writes=True)
        except _failures() as failed:
            pass_on(failed)
            if not (refusal := read(failed)).is_missing:
                self._refuse(refusal, None)
            for path in paths:  # such a server stops at the first that is missing
                self._delete_one(path)

    def _delete_one(self, path: str) -> None:
        obstore = _obstore()
        try:
            ask(lambda _: obstore.delete(self._patient, path), writes=True)
        except _failures() as failed:
            pass_on(failed)
            if not (refusal := read(failed)).is_missing:
                self._refuse(refusal, path.removeprefix(self._root))

    def _ask(self, send: Callable[[Callable[[], None]], T], key: str | None) -> T:
        """Send a request that reads."""
        try:
            return ask(send, least_s=self._least_s)
        except NoAnswer as left:
            text = f"the place gave no answer for {left.seconds:g} seconds; try again later"
            at = self.url if key is None else f"{self.url}/{key}"
            raise error(PlaceUnreachable, f"{at}: {text}", self.url, key) from None

    def _refuse(self, refusal: Refusal, key: str | None) -> NoReturn:
        """Raise the error of a refusal, without its cause, whose text may name credentials."""
        at = self.url if key is None else f"{self.url}/{key}"
        raise error(refusal.kind, f"{at}: {refusal.text}", self.url, key) from None


def _whole(found: Any, heard: Callable[[], None]) -> bytes:
    """Read the body of an answer, which may be long on its way."""
    start, stop = found.range
    if stop - start <= PART:
        return bytes(found.bytes())
    parts = list[Any]()
    for part in found.stream(min_chunk_size=PART):
        heard()
        parts.append(part)
    return b"".join(parts)


_used_in: int | None = None
"""The process that sent the first request: obstore's threads do not live on in a forked child."""


def _obstore() -> Any:
    """Return obstore; refuse it in a forked child, where it would wait without end."""
    global _used_in
    import obstore

    if _used_in is None:
        _used_in = os.getpid()
    elif _used_in != os.getpid():
        raise HandleClosed(
            "a forked child uses no bucket after its parent did: start the process with"
            ' multiprocessing.get_context("spawn"), or let only the child use buckets'
        )
    return obstore


def _failures() -> tuple[type[Exception], ...]:
    """Return what obstore raises when a request fails."""
    from obstore.exceptions import BaseError

    return BaseError, FileNotFoundError


def _parsed(url: str) -> tuple[str, str, str, dict[str, str]]:
    """Take a URL apart: scheme, bucket, prefix with a slash at its end, options."""
    try:
        parts = urlsplit(url)
    except ValueError as failed:
        pass_on(failed)
        raise InvalidArgument("the URL of a bucket is such as s3://bucket/prefix") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument(
            "the URL of a place has no credentials in it: put them into the environment"
        )
    if not url.startswith(f"{parts.scheme}://") or not parts.netloc or parts.fragment:
        raise InvalidArgument("the URL of a bucket is such as s3://bucket/prefix")
    try:
        asked = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError as failed:
        pass_on(failed)
        raise InvalidArgument("a URL's query is such as ?region=eu-west-1") from None
    if wrong := sorted(asked.keys() - _IN_URLS):
        raise InvalidArgument(
            f"the URL of a place takes {', '.join(sorted(_IN_URLS))}, not {named(wrong[0])};"
            " credentials belong into the environment"
        )
    return parts.scheme, parts.netloc, check_prefix(parts.path.strip("/")), asked


def _client(scheme: str, options: dict[str, str], allow_http: bool) -> dict[str, Any]:
    """Make the options of the HTTP client; refuse what would send bytes unencrypted."""
    client: dict[str, Any] = {"connect_timeout": timedelta(seconds=5)}
    found = ((name, os.environ[name]) for name in _ENDPOINTS[scheme] if os.environ.get(name))
    given = options.get("endpoint")
    name, endpoint = ("endpoint", given) if given else next(found, ("", ""))
    if endpoint:
        parts = _endpoint(name, endpoint)
        if parts.scheme == "http":
            if not (allow_http or is_loopback(parts.hostname or "")):
                raise InvalidArgument(
                    f"the endpoint {parts.scheme}://{parts.netloc} takes bytes unencrypted: use"
                    " https, or allow_http=True in a network that you trust"
                )
            client["allow_http"] = True
    if path := options.get("certificate"):
        try:
            client["root_certificate"] = Path(local_path(path, "certificate")).read_bytes()
        except OSError as refused:
            pass_on(refused)
            raise InvalidArgument(f"certificate: {path}: {refused.strerror}") from None
    return client


def _endpoint(name: str, endpoint: str) -> SplitResult:
    """Take the URL of a server apart; `name` says where it was given."""
    try:
        parts = urlsplit(endpoint)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as failed:
        pass_on(failed)
        parts, is_one = SplitResult("", "", "", "", ""), False
    if is_one and not parts.username:
        return parts
    shown = "one with credentials" if "@" in endpoint else named(endpoint.partition("?")[0])
    raise InvalidArgument(f"{name} is a URL such as https://s3.example.com:9000, not {shown}")


def _store(
    scheme: str,
    bucket: str,
    options: dict[str, str],
    client: dict[str, Any],
    retries: dict[str, Any],
    credentials: Callable[[], Any] | None,
) -> Any:
    """Make a client of obstore; its environment says the rest."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store
    except ImportError:
        raise MissingExtra("buckets need a package: pip install 'falaj[s3]'") from None
    kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
    names = {
        "s3": {"endpoint": "aws_endpoint_url_s3", "region": "region"},
        "gs": {"endpoint": "base_url"},
        "az": {"endpoint": "endpoint", "account": "account_name"},
    }[scheme]
    if wrong := sorted(options.keys() - names.keys() - {"certificate"}):
        raise InvalidArgument(f"{wrong[0]} is no option of {scheme}:// places")
    config = {name: options[option] for option, name in names.items() if option in options}
    if scheme == "s3":
        config["conditional_put"] = "etag"  # the environment could switch it off
    try:
        return kind(
            bucket,
            config=config,
            client_options=client,
            retry_config=retries,
            credential_provider=credentials,
        )
    except (BaseError, ValueError) as failed:
        pass_on(failed)
        said = str(failed).partition("\n")[0]
        wrong_one = _wrong_setting(scheme, said, options.get("certificate"))
        raise InvalidArgument(f"{scheme}://{bucket}: {wrong_one}") from None


def _wrong_setting(scheme: str, said: str, certificate: str | None) -> str:
    """Say which option or variable obstore does not take; no value, which may be a secret."""
    if "Account" in said:
        return "name the storage account: account=, or AZURE_STORAGE_ACCOUNT_NAME"
    if certificate is not None and "certificate" in said:
        return f"certificate={certificate} has no certificates in PEM: name a file that does"
    if "service account file" in said:
        of = next((name for name in _KEY_FILES if os.environ.get(name)), "")
        path = f"{of} names {os.environ[of]}, which" if of else "the key file of gcloud"
        return f"{path} is no key file that can be read: correct the path, or the file"
    mine = [name for name in os.environ if name.upper().startswith(_PREFIXES[scheme])]
    quoted = [name for name in mine if os.environ[name] and f'"{os.environ[name]}"' in said]
    names = ", ".join(sorted(quoted or mine)) or "the options"
    return f"a setting cannot be right; look at {names}"
