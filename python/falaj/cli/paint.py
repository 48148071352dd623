"""Colours, and text that is harmless on a terminal.

Owns the decision whether a stream is a terminal and wants colours (NO_COLOR, TERM=dumb), and the
escaping of bytes that are not text. Invariant: a terminal never obeys the bytes of a record.
"""

from __future__ import annotations

import os
from typing import IO, NamedTuple

__all__ = ["Paint", "escaped", "is_terminal", "width_of"]

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
# Terminals obey these: C0 but for the tab, DEL and C1; and characters that only mislead a reader.
_OBEYED = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != ord("\t")
} | {ord("\n"): "\\n", ord("\r"): "\\r"}
_REORDERING = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
# Bytes of a path that are not UTF-8.
_NO_TEXT = {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
_HARMLESS = _OBEYED | _REORDERING | _NO_TEXT


def is_terminal(stream: IO[str]) -> bool:
    """Tell whether a stream is a terminal."""
    return stream.isatty()


def width_of(stream: IO[str]) -> int:
    """Return the columns of a terminal: `COLUMNS`, else its own answer, else 80.

    `shutil` has such a function, too, but its import takes a tenth of the start of a command.
    """
    try:
        return int(os.environ.get("COLUMNS", "")) or 80
    except ValueError:
        pass
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def escaped(raw: bytes) -> str:
    r"""Turn bytes into text: UTF-8 unchanged, everything else as `\xNN`.

    Example:
        >>> print(escaped(b"caf\xc3\xa9 \xff"))
        café \xff
    """
    return raw.decode("utf-8", "backslashreplace")


class Paint(NamedTuple):
    """Paint text for a stream, or leave it as it is."""

    colours: bool
    terminal: bool

    @classmethod
    def of(cls, stream: IO[str]) -> Paint:
        """Choose colours, or none, as this stream wants."""
        terminal = is_terminal(stream)
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(terminal and wanted, terminal)

    def __call__(self, text: str, style: str) -> str:
        """Wrap text in a style."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.colours else text

    def harmless(self, text: str) -> str:
        r"""Escape what a terminal would obey, if the stream is one.

        Example:
            >>> print(Paint(colours=True, terminal=True).harmless("a\x1b[2Jb"))
            a\x1b[2Jb
        """
        return text.translate(_HARMLESS) if self.terminal else text
