"""Places to begin to read: a word, an offset or a time, as queries and as members of the API."""

from __future__ import annotations

from typing import Any

from falaj_client._numbers import LARGEST, plain
from falaj_client._own_errors import shown
from falaj_client._times import iso, to_ns
from falaj_client.errors import InvalidArgument

__all__ = ["place_of", "start_query"]


def start_query(start: Any) -> dict[str, str | int | None]:
    """Turn a place to begin into a query."""
    if isinstance(start, str) and start in ("earliest", "latest"):
        return {} if start == "earliest" else {"last": 0}
    number = plain(start)
    if isinstance(number, int) and not isinstance(number, bool):
        return {"from": number} if number >= 0 else {"last": -number}
    return {"at": iso(to_ns(start))}


def place_of(start: Any) -> Any:
    """Turn a place to begin into a member of the API."""
    start = plain(start)
    if isinstance(start, int) and not isinstance(start, bool):
        if start > LARGEST:
            raise InvalidArgument(f"no record of any topic has the offset {shown(start)}")
        return start if start >= 0 else {"last": min(-start, LARGEST)}
    if isinstance(start, str) and start in ("earliest", "latest"):
        return start
    return {"time": iso(to_ns(start))}
