"""Frames: a page of records as bytes, the form that costs the least to read.

Owns how a frame is read; the server's guide says what its bytes mean. Invariant: a page holds whole
frames, and what is cut off is refused.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeVar

from falaj_client.errors import ServerUnavailable
from falaj_client.records import Record

if TYPE_CHECKING:
    from falaj_client.codecs import Codec

T = TypeVar("T")

__all__ = ["FRAMES", "records_of"]

#: The type of a body with a record a frame.
FRAMES = "application/octet-stream"

#: Length of the rest, offset, time; lengths of the key, of the headers and of the value.
_HEAD = struct.Struct("<IQqIII")
_HEADER = struct.Struct("<II")
#: The length of what is not there.
_NONE = 2**32 - 1


def records_of(body: bytes, topic: str, partition: int, codec: Codec[T]) -> list[Record[T]]:
    """Read the frames of a page.

    Raises:
        ServerUnavailable: The page ends inside a frame.
    """
    found = list[Record[T]]()
    at, end, unpack = 0, len(body), _HEAD.unpack_from
    while at < end:
        try:
            rest, offset, time, key_len, headers, value_len = unpack(body, at)
        except struct.error:
            raise _cut(topic, at) from None
        here = at + _HEAD.size
        at += 4 + rest
        if at > end:
            raise _cut(topic, here - _HEAD.size)
        key: bytes | None = None
        if key_len != _NONE:
            key = body[here : here + key_len]
            here += key_len
        raw: bytes | None = None
        if value_len != _NONE:
            raw = body[here : here + value_len]
            here += value_len
        named: Any = _headers(body, here, headers) if headers else ()
        found.append(Record(topic, partition, offset, time, key, named, raw, codec))
    return found


def _headers(body: bytes, at: int, count: int) -> tuple[tuple[str, bytes | None], ...]:
    found = list[tuple[str, bytes | None]]()
    for _ in range(count):
        name_len, value_len = _HEADER.unpack_from(body, at)
        at += _HEADER.size
        name = body[at : at + name_len].decode()
        at += name_len
        value: bytes | None = None
        if value_len != _NONE:
            value = body[at : at + value_len]
            at += value_len
        found.append((name, value))
    return tuple(found)


def _cut(topic: str, at: int) -> ServerUnavailable:
    return ServerUnavailable(
        f"the answer with records of topic {topic!r} ends inside the frame at byte {at}: read again"
    )
