"""A reader of the frames of `application/octet-stream`, by the guide's description alone."""

import struct
from typing import NamedTuple

FRAME, HEADER = struct.Struct("<IQqIII"), struct.Struct("<II")
NONE = 2**32 - 1


class Framed(NamedTuple):
    """A record of a frame."""

    offset: int
    time_ns: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def read(answer: bytes) -> list[Framed]:
    """Read all frames of an answer."""
    records, begin = [], 0
    while begin < len(answer):
        length, offset, time_ns, key, headers, value = FRAME.unpack_from(answer, begin)
        parts = Parts(answer, begin + FRAME.size)
        record = Framed(offset, time_ns, parts.take(key), parts.take(value), [])
        for _ in range(headers):
            name_len, value_len = HEADER.unpack(parts.take(HEADER.size) or b"")
            name = (parts.take(name_len) or b"").decode()
            record.headers.append((name, parts.take(value_len)))
        begin += 4 + length
        assert parts.at <= begin <= len(answer), "a frame goes beyond its length"
        records.append(record)
    return records


class Parts:
    """The parts of a frame, one after the other."""

    def __init__(self, answer: bytes, at: int) -> None:
        self.answer, self.at = answer, at

    def take(self, length: int) -> bytes | None:
        """Take so many bytes; None where the part is not there."""
        if length == NONE:
            return None
        begin, self.at = self.at, self.at + length
        return self.answer[begin : self.at]
