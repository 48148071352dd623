"""Records: `Record` as it is read, `NewRecord` to be appended, `Position`; and their lines of JSON.

A line is the object that `falaj cat --json` prints. Bytes that are no text stand in a member that
ends in `_base64`. In a topic of JSON, `value` is the document as it was written. Pages come as
frames instead, which `_frames` reads.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from falaj_client._own_errors import named
from falaj_client._plain import is_record, plain_bytes, text_or_bytes
from falaj_client._times import Time, from_ns, iso, ns_of, to_ns
from falaj_client.codecs import is_built_in
from falaj_client.errors import DecodeFailed, EncodeFailed, InvalidArgument

if TYPE_CHECKING:
    from datetime import datetime

    from falaj_client.codecs import Codec

T = TypeVar("T")
Key = str | bytes | bytearray | memoryview
Headers = Mapping[str, Key | None] | Iterable[tuple[str, Key | None]]

__all__ = [
    "Headers",
    "Key",
    "NewRecord",
    "Position",
    "Record",
    "line_of",
    "new_records",
    "record_of",
]


class Position(NamedTuple):
    """The place of a record in a topic of several partitions."""

    partition: int
    offset: int


class Record(Generic[T]):
    """A record that was read: a copy, which needs neither its topic nor the server.

    Attributes:
        topic: Name of its topic.
        partition: Number of its partition.
        offset: Its number in its partition.
        timestamp_ns: When it happened, or else was appended, in nanoseconds since 1970.
        key: The key, or None.
        headers: Names and values, in order; a name may stand twice.
        raw: The bytes of the value; None for a tombstone.
    """

    __slots__ = ("_codec", "headers", "key", "offset", "partition", "raw", "timestamp_ns", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ns: int,
        key: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        raw: bytes | None,
        codec: Codec[T],
    ) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset
        self.timestamp_ns, self.key, self.headers = timestamp_ns, key, headers
        self.raw, self._codec = raw, codec

    @property
    def is_tombstone(self) -> bool:
        """True for a record without a value, which deletes its key."""
        return self.raw is None

    @property
    def timestamp(self) -> datetime:
        """The same as a datetime in UTC, in microseconds."""
        return from_ns(self.timestamp_ns)

    @property
    def value(self) -> T:
        """The value, as the topic's codec reads it; None for a tombstone.

        Raises:
            DecodeFailed: The codec cannot read it; `raw` has its bytes.
        """
        raw = self.raw
        if raw is None:
            return None  # type: ignore[return-value]  # as a native record
        try:
            return self._codec.decode(raw)
        except Exception as error:
            failed = DecodeFailed(
                f"the codec {self._codec.name} cannot read record {self.offset} of topic "
                f"{self.topic!r}, partition {self.partition}: {error}"
            )
            failed.topic, failed.partition = self.topic, self.partition
            failed.offset = self.offset
            raise failed from error

    def to_bytes(self) -> bytes:
        """The bytes of the value; none for a tombstone."""
        return self.raw or b""

    def __bytes__(self) -> bytes:
        return self.to_bytes()

    def __len__(self) -> int:
        return len(self.to_bytes())

    def __bool__(self) -> bool:
        return True

    def _content(self) -> tuple[Any, ...]:
        place = (self.topic, self.partition, self.offset, self.timestamp_ns)
        return (*place, self.key, self.headers, self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        several = f"[{self.partition}]" if self.partition else ""
        return f"<Record {self.topic}{several}[{self.offset}] {self.raw!r}>"


def record_of(line: str | bytes, fields: Mapping[str, Any], codec: Codec[T]) -> Record[T]:
    """Read a record from its line of JSON.

    Args:
        line: The line; only in a topic of JSON is it looked at.
        fields: Its members.
        codec: The codec of its topic.
    """
    raw: bytes | None = None
    if not fields.get("tombstone", False):
        is_document = codec.name == "json" and "value" in fields
        raw = _document(line) if is_document else _bytes_of(fields, "value")
    headers = tuple((each["name"], _bytes_of(each, "value")) for each in fields.get("headers", ()))
    return Record(
        fields["topic"],
        fields["partition"],
        int(fields["offset"]),
        to_ns(fields["time"]),
        _bytes_of(fields, "key"),
        headers,
        raw,
        codec,
    )


def _bytes_of(fields: Mapping[str, Any], name: str) -> bytes | None:
    text = fields.get(name)
    if text is not None:
        return str(text).encode()
    coded = fields.get(f"{name}_base64")
    return None if coded is None else b64decode(coded)


_SCAN = json.JSONDecoder().raw_decode


def _document(line: str | bytes) -> bytes:
    """Find the text of the member `value` of a line: a document keeps the text that it had."""
    text = line.decode() if isinstance(line, bytes) else line
    at = 1
    while True:
        name, at = _SCAN(text, at)
        begin = at + 1
        _, at = _SCAN(text, begin)
        if name == "value":
            return text[begin:at].encode()
        at += 1


class NewRecord:
    """A record to be appended, with all its parts, for `Topic.extend`.

    Args:
        value: As for `Topic.append`.
        key, headers, timestamp, timestamp_ns: Likewise.

    Example:
        >>> NewRecord({"id": 1}, "eu", headers={"trace": "7"}).headers
        [('trace', b'7')]
    """

    __slots__ = ("headers", "is_tombstone", "key", "timestamp_ns", "value")

    def __init__(
        self,
        value: Any,
        key: Key | None = None,
        *,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
    ) -> None:
        self.value = value
        self.key = None if key is None else text_or_bytes(key, "a key")
        self.headers = _headers(headers)
        self.timestamp_ns = ns_of(timestamp, timestamp_ns)
        self.is_tombstone = False

    @staticmethod
    def tombstone(
        key: Key,
        *,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
    ) -> NewRecord:
        """Make a record without a value, which deletes its key.

        Args:
            key, headers, timestamp, timestamp_ns: As for `Topic.tombstone`.
        """
        text_or_bytes(key, "the key of a tombstone")
        made = NewRecord(None, key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns)
        made.is_tombstone = True
        return made


def _headers(given: Any) -> list[tuple[str, bytes | None]]:
    if given is None:
        return []
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"headers is a dict, or pairs of a name and a value, not {named(given)}")
    found = list[tuple[str, bytes | None]]()
    for pair in given.items() if isinstance(given, Mapping) else given:
        try:
            name, value = pair
        except (TypeError, ValueError):
            name = value = None
        if not isinstance(name, str):
            raise TypeError("a header is a pair of a name (str) and a value: str, bytes or None")
        plain = None if value is None else text_or_bytes(value, "the value of a header")
        found.append((text_or_bytes(name, "the name of a header").decode(), plain))
    return found


def new_records(records: Iterable[Any]) -> Iterator[NewRecord]:
    """Read what `extend` takes: values, pairs of key and value, new records, and records.

    Rows of a table are tuples too: one that cannot be a pair is refused, so it loses no column.

    Raises:
        TypeError: It is one record, or a table, or one of them is a tuple that is no pair.
    """
    for each in _several(records):
        if isinstance(each, NewRecord):
            yield each
        elif isinstance(each, tuple):
            if type(each) is not tuple or len(each) != 2 or each[0] is None:
                raise TypeError(_PAIR)
            made = NewRecord(each[1])
            made.key = text_or_bytes(each[0], _PAIR_KEY)
            yield made
        elif is_record(each):
            made = NewRecord(each.value, each.key, headers=each.headers)
            made.timestamp_ns, made.is_tombstone = each.timestamp_ns, each.is_tombstone
            yield made
        else:
            yield NewRecord(each)


_PAIR = (
    "a tuple in extend() is a pair (key, value), whose key is not None. Put a value that is a "
    "tuple (a row, a named tuple) into a NewRecord. Pass a value without a key by itself"
)
_PAIR_KEY = "the first of a pair is its key (a value that is a tuple goes into a NewRecord), which"


def _several(records: Any) -> Iterator[Any]:
    if isinstance(records, str | bytes | bytearray | memoryview | Mapping):
        remedy = "append() takes one"
    elif is_record(records):
        remedy = "give [record] for one"
    elif hasattr(type(records), "columns"):
        remedy = "give the rows of a table as a list of dicts"
    else:
        try:
            return iter(records)
        except TypeError:
            remedy = "give [value] for one"
    kind = type(records).__name__
    raise TypeError(f"extend() takes an iterable of records, not {kind}; {remedy}")


def line_of(
    record: NewRecord,
    codec: Codec[Any],
    topic: str,
    partition: int | None = None,
    *,
    names_partition: bool = False,
) -> str:
    """Write a record as a line of JSON, without its end.

    Args:
        record: The record.
        codec: The codec of the topic.
        topic: The name of the topic, for errors.
        partition: The partition that it goes to, if that is known.
        names_partition: Write the partition, too.

    Raises:
        EncodeFailed: The codec does not take the value, or could not give it back.
    """
    members: dict[str, Any] = {}
    if names_partition and partition is not None:
        members["partition"] = partition
    if record.timestamp_ns is not None:
        members["time"] = iso(record.timestamp_ns)
    if record.key is not None:
        members |= _member("key", record.key)
    if record.headers:
        members["headers"] = [
            {"name": name} | ({"value": None} if value is None else _member("value", value))
            for name, value in record.headers
        ]
    if record.is_tombstone:
        return json.dumps(members | {"tombstone": True})
    raw = _encoded(record.value, codec, topic, partition)
    if codec.name != "json":
        return json.dumps(members | _member("value", raw, is_text=codec.name == "str"))
    # The document as it is, and last: its text stays what the codec made of it.
    before = json.dumps(members)[:-1]
    return f'{before}{", " if members else ""}"value": {raw.decode()}}}'


def _encoded(value: Any, codec: Codec[Any], topic: str, partition: int | None) -> bytes:
    """Encode a value. Ctrl-C and a lack of memory are no failures of the codec."""
    try:
        return plain_bytes(codec.encode(value), "what the codec makes of a value")
    except MemoryError:
        raise
    except Exception as error:
        where = f", partition {partition}" if partition else ""
        begin = f'topic "{topic}"{where} (codec "{codec.name}") does not take this '
        failed = EncodeFailed(f"{begin}{type(value).__name__} value{_reason(error, codec)}")
        failed.topic, failed.partition = topic, partition
        raise failed from error


def _reason(error: Exception, codec: Codec[Any]) -> str:
    if is_built_in(codec.name) and isinstance(error, TypeError | InvalidArgument):
        return f": {error}"
    return (
        f" ({type(error).__name__}: {error}): give what `encode` of the codec takes, or mend that"
    )


def _member(name: str, raw: bytes, *, is_text: bool = False) -> dict[str, str]:
    try:
        if is_text or name == "key":
            return {name: raw.decode()}
    except UnicodeDecodeError:
        pass
    return {f"{name}_base64": b64encode(raw).decode()}
