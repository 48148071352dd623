"""Values to append: those that each codec must accept, and those that it may refuse.

The rule of all codecs: a value that `append` takes comes back equal, except that JSON and msgpack
return tuples as lists. Otherwise `append` refuses it, and nothing was appended.
"""

from array import array
from typing import Any

from hypothesis import strategies as st

REFUSALS = (TypeError, ValueError, OverflowError, RecursionError)
"""Errors that `append` may raise for a value that a codec does not take."""

_text = st.text(max_size=6)
_plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _text
)
_trees = st.recursive(
    _plain,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_text, inner, max_size=2),
    max_leaves=4,
)
_strange_keys = st.none() | st.booleans() | st.integers(0, 99) | st.floats(0, 1) | _text
_strange = st.one_of(
    st.dictionaries(_strange_keys, _plain, min_size=1, max_size=2),
    st.lists(st.dictionaries(_strange_keys, _plain, max_size=1), min_size=1, max_size=2),
    st.tuples(_plain, st.tuples(_plain)),
    st.sampled_from([float("nan"), float("inf"), 2**70, b"bytes", {1, 2}, "\ud800"]),
)
_buffers = st.sampled_from([array("I", [1, 2]), array("d", [0.5]), "text", 12, None])

GOOD: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(max_size=8),
    "str": _text,
    "json": _trees,
    "msgpack": _trees,
}
"""Values that each codec must accept."""
STRANGE: dict[str, st.SearchStrategy[Any]] = {
    "bytes": _buffers,
    "str": st.sampled_from([b"bytes", None, 12, "\ud800"]),
    "json": _strange,
    "msgpack": _strange,
}
"""Values that it may accept or refuse."""


def large(codec: str, n: int) -> Any:
    """Make a value of a fifth of a file of the log."""
    return bytes([97 + n]) * 12_000 if codec == "bytes" else chr(97 + n) * 12_000


def given_back(value: Any) -> Any:
    """Return the value that a read gives for an accepted value."""
    if isinstance(value, list | tuple):
        return [given_back(each) for each in value]
    if isinstance(value, dict):
        return {key: given_back(each) for key, each in value.items()}
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value


def copied(record: Any, codec: str, into: str) -> Any:
    """Return a record's copy in a topic of another codec: its bytes, or its value."""
    if record.raw is None:
        return None
    return record.to_bytes() if into == "bytes" else given_back(record.value)


def same(a: Any, b: Any) -> bool:
    """True if two values are equal and of one type: in Python 1, 1.0 and True are equal."""
    if isinstance(a, memoryview):
        a = bytes(a)
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(k, m) and same(v, w) for (k, v), (m, w) in zip(a.items(), b.items(), strict=True)
        )
    return repr(a) == repr(b) if isinstance(a, float) else bool(a == b)
