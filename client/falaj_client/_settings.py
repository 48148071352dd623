"""The settings of a new topic, as keyword arguments and as the API takes them; and the token."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from falaj_client._numbers import plain, whole
from falaj_client._times import milliseconds_of, seconds, span
from falaj_client.errors import InvalidArgument, NotOverHttp

if TYPE_CHECKING:
    from falaj_client._times import Duration

__all__ = ["Retention", "Settings", "changes", "given", "limits_of", "token_of"]


class Settings(TypedDict, total=False):
    """The keyword arguments of `Store.topic`, without the codec."""

    create: bool
    log: str | None
    segment_bytes: int | None
    sync_interval_ms: int | None
    compacted: bool | None
    retention_bytes: int | None
    retention_age: Duration | None
    retention_records: int | None
    retention_waits: bool
    retention_protected: bool
    visibility: str | None


class Retention(TypedDict, total=False):
    """The keyword arguments of `Topic.configure`, but for `compacted`."""

    retention_bytes: int | None
    retention_age: Duration | None
    retention_records: int | None
    retention_waits: bool
    retention_protected: bool


_NATIVE = {"sync", "verify"}
_WHOLE = {"segment_bytes", "sync_interval_ms", "retention_bytes", "retention_records"}


def given(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the client does with a topic, and the topic's settings as the API has them.

    The first are whether to create it, and how far the handle reads.

    Raises:
        TypeError: There is no such setting.
        NotOverHttp: Only a native handle has it.
    """
    sent, retention = dict[str, Any](), dict[str, Any]()
    for name, value in settings.items():
        if name in _NATIVE:
            raise NotOverHttp(
                f"{name}= is a setting of a handle on the server's machine: leave it out here"
            )
        if name not in Settings.__annotations__:
            raise TypeError(f"topic() got an unexpected keyword argument {name!r}")
        if value is not None and name in _WHOLE:
            value = whole(value, name)
        if name == "sync_interval_ms":
            sent["sync_interval"] = None if value is None else f"{value}ms"
        elif name == "retention_age":
            retention["age"] = None if value is None else span(seconds(value, name))
        elif name.startswith("retention_"):
            retention[name.removeprefix("retention_")] = value
        elif name not in ("create", "visibility"):
            sent[name] = value
    if kept := {name: value for name, value in retention.items() if value is not None}:
        sent["retention"] = kept
    own = {"create": settings.get("create", True), "visibility": settings.get("visibility")}
    return own, sent


def changes(
    settings: Mapping[str, Any], compacted: bool | None, properties: Any = None
) -> dict[str, Any]:
    """Return changed settings of a topic as the API has them; None lifts a limit.

    Raises:
        TypeError: There is no such setting, or it is of another type.
        InvalidArgument: A limit is less than 1, or a text holds half a character.
    """
    if compacted is not None and not isinstance(compacted, bool):
        raise TypeError(f"compacted is True or False, not {compacted!r}")
    limits = dict[str, Any]()
    for name, value in settings.items():
        if name not in Retention.__annotations__:
            raise TypeError(f"configure() has no setting {name!r}")
        limits[name.removeprefix("retention_")] = _limit(name, value)
    sent: dict[str, Any] = {"retention": limits} if limits else {}
    if properties is not None:
        sent["properties"] = _texts(properties)
    return sent if compacted is None else {**sent, "compacted": compacted}


def _texts(properties: Any) -> dict[str, str | None]:
    if not isinstance(properties, Mapping):
        raise TypeError(f"properties is a mapping of texts by name, not {properties!r}")
    for name, value in properties.items():
        for text in (name,) if value is None else (name, value):
            if not isinstance(text, str):
                raise TypeError(f"properties are texts by name, and {text!r} is no text")
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InvalidArgument(
                    "properties are kept as UTF-8, which has no half characters"
                ) from None
    return dict(properties)


def _limit(name: str, value: Any) -> Any:
    if name in ("retention_waits", "retention_protected"):
        if not isinstance(value, bool):
            raise TypeError(f"{name} is True or False, not {value!r}")
        return value
    if value is None:
        return None
    if name == "retention_age":
        if (age := seconds(value, name)) < 0.001:
            raise InvalidArgument(
                f"{name} is at least a millisecond, or None for no limit, not {value!r}"
            )
        return span(age)
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, or None for no limit, not {value!r}")
    if not 1 <= value < 2**63:
        raise InvalidArgument(f"{name} is 1 to 2**63 - 1, or None for no limit, not {value}")
    return value


def limits_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Read the limits in a description, as `Topic.configure` returns them."""
    kept = found["retention"]
    limits = {
        name: None if kept[name] is None else int(kept[name]) for name in ("bytes", "records")
    }
    age = None if kept["age"] is None else milliseconds_of(kept["age"])
    return {**limits, "age_ms": age, "waits": kept["waits"], "protected": kept["protected"]}


def token_of(token: str | os.PathLike[str] | None) -> str | None:
    """Find the token: the argument, a file that it names, or the environment's.

    Raises:
        InvalidArgument: The file cannot be read, or holds none.
    """
    if token is None:
        return os.environ.get("FALAJ_TOKEN") or None
    if isinstance(token, str):
        found = token.strip()
    elif isinstance(token, os.PathLike):
        try:
            found = Path(token).read_text().strip()
        except (OSError, ValueError) as error:
            raise InvalidArgument(
                f"no token can be read from {os.fspath(token)}: {error}"
            ) from None
    else:
        raise TypeError(f"token is text or the path of a file, not {type(token).__name__}")
    if not found.isascii() or not found.isprintable() or " " in found:
        raise InvalidArgument("a token is one word of ASCII characters")
    return found
