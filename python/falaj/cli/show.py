"""Forms of a record: columns for people, bare values in a pipe, JSON, raw, or a template.

Owns these forms, and what `--grep` searches. In a pipe nothing is added to a value unless the user
asks for it. JSON never loses a byte: bytes that are not UTF-8 are in a member `…_base64`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from falaj.cli.exits import Stop
from falaj.cli.paint import Paint, escaped
from falaj.cli.template import pieces_of, template
from falaj.cli.units import show_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from falaj._records import Record

    Show = Callable[[Record[Any]], bytes]

__all__ = ["Look", "Several", "matcher", "printer"]

_SPACE = " \t\r\n"
_IN_ONE_LINE = str.maketrans("\r\n", "  ")
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Look(NamedTuple):
    """How to show records; None depends on whether the output is a terminal."""

    as_json: bool = False
    raw: bool = False
    form: str | None = None
    offsets: bool | None = None
    keys: bool | None = None
    time: str | None = None

    def check(self) -> Look:
        """Check that the options go together.

        Raises:
            Stop: They name two forms, or a template that is not valid.
        """
        forms = [
            name
            for name, given in (
                ("--json", self.as_json),
                ("--raw", self.raw),
                ("--format", self.form is not None),
            )
            if given
        ]
        if len(forms) > 1:
            raise Stop(f"{' and '.join(forms)} are two forms: give one of them")
        if self.form is not None:
            pieces_of(self.form)
        return self

    def bare(self, terminal: bool) -> bool:
        """Whether the output is values alone, one on each line."""
        if self.as_json or self.raw or self.form is not None or terminal:
            return False
        return not (self.offsets or self.keys or self.time not in (None, "none"))


class Several(NamedTuple):
    """Whether columns show the topic and the partition; and the codec of each topic."""

    topics: bool
    partitions: bool
    codecs: dict[str, str]


def printer(look: Look, paint: Paint, several: Several) -> Show:
    """Make the function that turns a record into output, with its line end."""
    if look.as_json:
        form, codecs = look.time or "iso", several.codecs
        return lambda record: _as_json(record, form, codecs[record.topic]).encode()
    if look.raw:
        return lambda record: bytes(record.value or b"")
    if look.form is not None:
        return template(look.form, look.time or "iso", paint)
    if look.bare(paint.terminal):
        return lambda record: escaped(bytes(record.value or b"")).encode() + b"\n"
    return _columns(look, paint, several)


def _columns(look: Look, paint: Paint, several: Several) -> Show:
    offsets = paint.terminal if look.offsets is None else look.offsets
    keys = paint.terminal if look.keys is None else look.keys
    form = ("iso" if paint.terminal else "none") if look.time is None else look.time
    between = "  " if paint.terminal else "\t"
    # A column is one cell, so here even a pipe gets no tab or line end that is not ours.
    cell = Paint(colours=False, terminal=True).harmless

    def line(record: Record[Any]) -> bytes:
        cells = []
        if several.topics:
            cells.append(paint(record.topic, "bold"))
        if offsets:
            place = str(record.offset)
            if several.partitions:
                place = f"{record.partition}:{place}"
            cells.append(paint(place.rjust(8) if paint.terminal else place, "dim"))
        if form != "none":
            cells.append(paint(show_time(record.timestamp_ns, form), "green"))
        if keys:
            key = "" if record.key is None else cell(escaped(record.key)).replace("\t", "\\t")
            cells.append(paint(key or ("-" if paint.terminal else ""), "cyan"))
        value = record.value
        if value is None:
            cells.append(paint("(deleted)", "dim") if paint.terminal else "")
        else:
            cells.append(paint.harmless(escaped(bytes(value))))
        return (between.join(cells) + "\n").encode()

    return line


def _as_json(record: Record[Any], form: str, codec: str) -> str:
    members: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
    }
    if form != "none":
        members["time"] = (
            record.timestamp_ns if form == "ns" else show_time(record.timestamp_ns, form)
        )
    members |= _member("key", record.key)
    if record.headers:
        members["headers"] = [{"name": name} | _member("value", v) for name, v in record.headers]
    value = record.value
    raw = None if value is None else bytes(value)
    if raw is None:
        members["tombstone"] = True  # beside it `null` is JSON's
    if raw is None or codec != "json":
        return _dumps(members | _member("value", raw)) + "\n"
    document = _document(raw)
    if document is None:  # as text it would count as the JSON of that text
        return _dumps(members | {"value_base64": b64encode(raw).decode()}) + "\n"
    return f'{_dumps(members)[:-1]},"value":{document}}}\n'


def _document(raw: bytes) -> str | None:
    """Return the text of a JSON value on one line, as it was written; None if it is not JSON."""
    try:
        text = raw.decode().strip(_SPACE)
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return text.translate(_IN_ONE_LINE)  # a line end in JSON is only space: in text it is escaped


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _member(name: str, raw: bytes | None) -> dict[str, Any]:
    if raw is None:
        return {name: None}
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(raw).decode()}


def matcher(pattern: str | None) -> Callable[[Record[Any]], bool] | None:
    """Make the function that tells whether the value of a record matches; None if all match.

    Raises:
        Stop: The pattern is no regular expression.
    """
    if pattern is None:
        return None
    try:
        # Bytes that are no UTF-8 come as lone surrogates; they look for themselves.
        search = re.compile(pattern.encode("utf-8", "surrogateescape")).search
    except (re.error, OverflowError, RecursionError) as error:
        raise Stop(f"--grep takes a regular expression, and {pattern!r} is none: {error}") from None
    return lambda record: search(record.value or b"") is not None
