"""Making a record of a line of input.

Owns which codecs a line fits, and where its key comes from. A JSON line is checked and stored as it
was written: numbers are not rounded, and members are not reordered. The same holds for a key that
is a member of the line. A value that Python could not read back is refused.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from falaj._records import NewRecord
from falaj.cli.documents import check_document, check_text, json_key, value_of
from falaj.cli.exits import Exit, Stop
from falaj.codecs import resolver
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    Pair = tuple[bytes | None, bytes | None]  # a key, and a value: None deletes the key
    Headers = list[tuple[str, bytes | None]]

__all__ = ["Line", "Made", "Maker", "maker_of", "packed"]


class Made(NamedTuple):
    """A record for `Topic.extend`, the bytes of its value, and the partition that it asks for."""

    record: Any
    size: int
    partition: int | None = None


class Maker(NamedTuple):
    """How lines become records.

    `make` raises ValueError with the reason. `skips_blank` says that blank lines are between
    records, and no records.
    """

    make: Callable[[bytes], Made]
    skips_blank: bool


class Line(NamedTuple):
    """The options that apply to each line."""

    ndjson: bool = False
    records: bool = False
    tombstone: bool = False
    key: str | None = None
    key_field: str | None = None
    key_delimiter: str | None = None
    headers: Headers | None = None
    timestamp: datetime | None = None

    @property
    def is_json(self) -> bool:
        """Whether a topic that is created for such lines gets the codec json."""
        return self.ndjson or self.key_field is not None

    def check(self) -> None:
        """Check that the options go together.

        Raises:
            Stop: Two of them contradict each other.
        """
        keys = [
            name
            for name, given in (
                ("--key", self.key),
                ("--key-field", self.key_field),
                ("--key-delimiter", self.key_delimiter),
            )
            if given is not None
        ]
        if len(keys) > 1:
            all_of_them = "both" if len(keys) == 2 else "all"
            raise Stop(f"{' and '.join(keys)} {all_of_them} say where the key is: give one of them")
        if self.tombstone and self.key_delimiter is not None:
            raise Stop("with --tombstone a line has no value: leave out --key-delimiter")
        if self.key_delimiter == "":
            raise Stop("--key-delimiter is empty: give what ends the key, such as ':'")
        if not self.records:
            return
        others = (
            *keys,
            *(["--tombstone"] if self.tombstone else ()),
            *(["--header"] if self.headers else ()),
            *(["--timestamp"] if self.timestamp is not None else ()),
            *(["--ndjson"] if self.ndjson else ()),
        )
        if others:
            raise Stop(f"--records takes all of a record from its line: leave out {others[0]}")


def maker_of(codec: str, line: Line) -> Maker:
    """Choose how lines become records of a topic.

    Raises:
        Stop: Lines cannot become values of this topic.
    """
    if line.records:
        from falaj.cli.loading import loader  # only dumps need it

        return Maker(loader(codec), True)
    pair, skips_blank = _pairs(codec, line)
    if line.headers or line.timestamp is not None:
        return Maker(_dressed(pair, line), skips_blank)
    return Maker(_plain(pair), skips_blank)


def _plain(pair: Callable[[bytes], Pair]) -> Callable[[bytes], Made]:
    def make(line: bytes) -> Made:
        key, value = pair(line)
        if value is None:
            return Made(NewRecord.tombstone(key or b""), 0)
        return Made(value if key is None else (key, value), len(value))

    return make


def _dressed(pair: Callable[[bytes], Pair], line: Line) -> Callable[[bytes], Made]:
    headers, time = line.headers, line.timestamp

    def make(text: bytes) -> Made:
        key, value = pair(text)
        if value is None:
            return Made(NewRecord.tombstone(key or b"", headers=headers, timestamp=time), 0)
        return Made(NewRecord(value, key, headers=headers, timestamp=time), len(value))

    return make


def _pairs(codec: str, line: Line) -> tuple[Callable[[bytes], Pair], bool]:
    """Make the function that splits a line into key and value; say whether it skips blank ones."""
    if line.tombstone:
        return _tombstone(line.key_field), True
    value, skips_blank = _value(codec, line)
    if line.key is not None:
        key = os.fsencode(line.key)
        return lambda text: (key, value(text)), skips_blank
    if line.key_field is not None:
        field = line.key_field
        return lambda text: (json_key(text, field), value(text)), skips_blank
    if line.key_delimiter is not None:
        return _delimited(os.fsencode(line.key_delimiter), value), skips_blank
    return lambda text: (None, value(text)), skips_blank


def _value(codec: str, line: Line) -> tuple[Callable[[bytes], bytes], bool]:
    if codec == "msgpack":
        return _msgpack(), True
    if codec not in ("bytes", "str", "json"):
        raise Stop(
            f"the topic holds {codec} values, which the command line cannot make: append them from "
            "Python"
        )
    if codec == "json":
        return _document, True
    if line.is_json:
        return _any_document, True
    return (check_text if codec == "str" else bytes), False


def _delimited(delimiter: bytes, value: Callable[[bytes], bytes]) -> Callable[[bytes], Pair]:
    def pair(line: bytes) -> Pair:
        key, found, rest = line.partition(delimiter)
        if not found:
            raise ValueError(f"has no {os.fsdecode(delimiter)!r} that ends a key")
        return key, value(rest)

    return pair


def _document(line: bytes) -> bytes:
    check_document(line)
    return line.strip()


def _any_document(line: bytes) -> bytes:
    json_key(line, None)
    return line.strip()


def _tombstone(key_field: str | None) -> Callable[[bytes], Pair]:
    if key_field is None:
        return lambda line: (line, None)

    def pair(line: bytes) -> Pair:
        key = json_key(line, key_field)
        if key is None:
            raise ValueError(f"has no field {key_field!r}, so it names no key to delete")
        return key, None

    return pair


def packed() -> Any:
    """Import msgpack.

    Raises:
        Stop: It is not installed.
    """
    try:
        import msgpack
    except ModuleNotFoundError:
        raise Stop(
            "the codec msgpack needs a package: pip install 'falaj[msgpack]'", Exit.MACHINE
        ) from None
    return msgpack


def _msgpack() -> Callable[[bytes], bytes]:
    packed()
    encode: Any = resolver("msgpack")[1]("msgpack")[0]

    def value(line: bytes) -> bytes:
        try:
            made: bytes = encode(value_of(line))
        except InvalidArgument as error:
            raise ValueError(f"does not fit msgpack ({error})") from None
        return made

    return value
