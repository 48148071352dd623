"""JSON text that is stored as it is: lines of the shell, and what models make of themselves.

Owns which text has to be looked at, so that none is stored whose value the codec json would refuse.
Such text is rare, and most of it is only searched.
"""

from __future__ import annotations

import re

__all__ = ["is_odd"]

#: Half characters, and numbers that may be too large or are none.
_ODD = re.compile(rb"\\u[dD]|NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{200}")
_BRACKETS = 128  # fewer are no deeper than a value may be
_BYTES = 4300  # shorter text has no whole number that is too long


def is_odd(document: bytes) -> bool:
    """Return whether JSON, in UTF-8, may have a value that the codec json refuses.

    Example:
        >>> is_odd(b'{"a": [1, 2.5]}'), is_odd(b"[1e999]")
        (False, True)
    """
    return (
        len(document) > _BYTES
        or document.count(b"[") + document.count(b"{") > _BRACKETS
        or _ODD.search(document) is not None
    )
