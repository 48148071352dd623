"""`--format`: what is printed of a record, as a template of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from falaj.cli.exits import Stop
from falaj.cli.paint import Paint, escaped
from falaj.cli.units import show_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from falaj._records import Record

__all__ = ["PARTS", "pieces_of", "template"]

#: The letters behind `%`, and what each stands for; docs/cli.md has them in a table.
PARTS = ("%t", "%p", "%o", "%k", "%K", "%v", "%V", "%T", "%h", "%%")
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def pieces_of(form: str) -> list[str | bytes]:
    r"""Split a template into parts, such as `%k`, and the bytes between.

    Raises:
        Stop: It has a part or an escape that there is not.

    Example:
        >>> pieces_of(r"%k\t100%%\n")
        ['%k', b'\t100%\n']
    """
    found: list[str | bytes] = []
    text = b""
    letters = iter(form)
    for letter in letters:
        if letter not in "%\\":
            text += letter.encode("utf-8", "surrogateescape")
            continue
        after = next(letters, "")
        if letter == "\\":
            text += _escape(after, letters)
        elif after == "%":
            text += b"%"
        elif f"%{after}" in PARTS:
            found += [text, f"%{after}"] if text else [f"%{after}"]
            text = b""
        else:
            raise Stop(f"--format has no part %{after}: it takes {' '.join(PARTS)}")
    return [*found, text] if text else found


def _escape(after: str, letters: Any) -> bytes:
    if after == "x":
        digits = next(letters, "") + next(letters, "")
        try:
            return bytes.fromhex(digits)
        except ValueError:
            raise Stop(f"--format takes two hexadecimal digits in \\x{digits}") from None
    if after not in _ESCAPES:
        raise Stop(f"--format has no escape \\{after}: it takes \\n \\t \\r \\0 \\\\ and \\xNN")
    return _ESCAPES[after]


def template(form: str, time: str, paint: Paint) -> Callable[[Record[Any]], bytes]:
    """Make the function that fills a template; on a terminal no byte of a record is obeyed."""
    pieces = pieces_of(form)

    def shown(raw: bytes | memoryview | None) -> bytes:
        if raw is None:
            return b""
        whole = bytes(raw)
        return paint.harmless(escaped(whole)).encode() if paint.terminal else whole

    def headers(record: Record[Any]) -> bytes:
        pairs = ((name.encode(), value) for name, value in record.headers)
        return b",".join(
            shown(name if value is None else name + b"=" + value) for name, value in pairs
        )

    parts: dict[str, Callable[[Record[Any]], bytes]] = {
        "%t": lambda record: record.topic.encode(),
        "%p": lambda record: str(record.partition).encode(),
        "%o": lambda record: str(record.offset).encode(),
        "%k": lambda record: shown(record.key),
        "%K": lambda record: _length(record.key),
        "%v": lambda record: shown(record.value),
        "%V": lambda record: _length(record.value),
        "%T": lambda record: (
            b"" if time == "none" else show_time(record.timestamp_ns, time).encode()
        ),
        "%h": headers,
    }
    fills = [piece if isinstance(piece, bytes) else parts[piece] for piece in pieces]

    def fill(record: Record[Any]) -> bytes:
        return b"".join(each if isinstance(each, bytes) else each(record) for each in fills)

    return fill


def _length(raw: bytes | memoryview | None) -> bytes:
    """Bytes of a key or a value; -1 where there is none, as for Kafka's tools."""
    return b"-1" if raw is None else str(len(raw)).encode()
