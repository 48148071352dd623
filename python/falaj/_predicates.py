"""Predicates as ranges: the offsets, times, partitions, topics and keys that a filter selects.

Owns how the filters of Polars and of Arrow are read. A `Wanted` is a box: one bound or set for each
column that the engine can look up. Invariant: every record that a predicate selects lies in its
box; a part that is not understood widens the box. If the box selects exactly the same records, it
is `exact`, and no library needs to filter again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars
    import pyarrow
    from pyarrow import compute

__all__ = ["ALL", "NOTHING", "Wanted", "columns_of", "of_arrow", "of_polars"]

LOWEST, HIGHEST = -(2**63), 2**63 - 1
"""The range of a column of numbers."""

SPANS = frozenset({"offset", "timestamp", "partition"})
"""Columns that are bounded by a first and a last value; times in microseconds since 1970."""

SETS = frozenset({"topic", "key"})
"""Columns that are looked up by single values."""

Span = tuple[int, int]


@dataclass(frozen=True)
class Wanted:
    """A box of records.

    Attributes:
        spans: By column of `SPANS`, the first and the last value; a missing column is not bounded.
        sets: By column of `SETS`, the values; None among the keys stands for records without one.
        exact: Whether all records in it are wanted.
        empty: Whether nothing is wanted.
    """

    spans: dict[str, Span] = field(default_factory=dict)
    sets: dict[str, frozenset[Any]] = field(default_factory=dict)
    exact: bool = True
    empty: bool = False

    def span(self, column: str) -> Span:
        """Return the first and the last value of a column."""
        return self.spans.get(column, (LOWEST, HIGHEST))

    def has(self, column: str, value: Any) -> bool:
        """Return whether records with this value of a column of `SETS` may be wanted."""
        return column not in self.sets or value in self.sets[column]

    def __and__(self, other: Wanted) -> Wanted:
        """Keep the records of both."""
        if self.empty or other.empty:
            return NOTHING
        spans, sets = dict(self.spans), dict(self.sets)
        for column in other.spans:
            (low, high), (first, last) = self.span(column), other.span(column)
            spans[column] = max(low, first), min(high, last)
        for column, values in other.sets.items():
            sets[column] = values & sets.get(column, values)
        if any(low > high for low, high in spans.values()) or not all(sets.values()):
            return NOTHING
        return Wanted(spans, sets, self.exact and other.exact)

    def __or__(self, other: Wanted) -> Wanted:
        """Keep the records of either, and all in between: a box has no hole."""
        if self.empty or other.empty:
            return self if other.empty else other
        spans, sets = {}, {}
        for column in self.spans.keys() & other.spans.keys():
            (low, high), (first, last) = self.span(column), other.span(column)
            spans[column] = min(low, first), max(high, last)
        for column in self.sets.keys() & other.sets.keys():
            sets[column] = self.sets[column] | other.sets[column]
        return Wanted(spans, sets, self.exact and other.exact and self._is_beside(other))

    def _is_beside(self, other: Wanted) -> bool:
        """Return whether both together have no hole: they touch, and at most one column differs."""
        columns = (self.spans.keys() | other.spans.keys()) - {
            column for column in SPANS if self.span(column) == other.span(column)
        }
        named = {column for column in SETS if self.sets.get(column) != other.sets.get(column)}
        if len(columns) + len(named) > 1:
            return False
        for column in columns:
            (low, high), (first, last) = self.span(column), other.span(column)
            if max(low, first) - 1 > min(high, last):
                return False
        return True


ALL = Wanted()
NOTHING = Wanted(empty=True)
UNKNOWN = Wanted(exact=False)


# --- Common to both -------------------------------------------------------------------------------


def _compare(column: str, how: str, value: Any) -> Wanted:
    """Read `column how value`; the value is of the column's own type, times are integers."""
    if column in SETS:
        return Wanted(sets={column: frozenset([value])}) if how == "==" else UNKNOWN
    bounds = {
        "==": (value, value),
        "<": (LOWEST, value - 1),
        "<=": (LOWEST, value),
        ">": (value + 1, HIGHEST),
        ">=": (value, HIGHEST),
    }
    return Wanted({column: bounds[how]}) & ALL if how in bounds else UNKNOWN


def _one_of(column: str, values: list[Any]) -> Wanted:
    found = NOTHING
    if column in SETS:
        return Wanted(sets={column: frozenset(values)}) & ALL
    for value in sorted(values):
        found |= _compare(column, "==", value)
    return found


def _is_null(column: str) -> Wanted:
    return Wanted(sets={"key": frozenset([None])}) if column == "key" else UNKNOWN


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


# --- Polars ---------------------------------------------------------------------------------------

_POLARS = {"Eq": "==", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_CLOSED = {
    "Both": (">=", "<="),
    "Left": (">=", "<"),
    "Right": (">", "<="),
    "None": (">", "<"),
}


def of_polars(predicate: polars.Expr) -> Wanted:
    """Read a predicate of Polars.

    It reads the form in which Polars serializes expressions, which may change with the version:
    then less is understood, and Polars filters by itself. It understands comparisons, `is_in`,
    `is_between` and `is_null`, joined by `&` and `|`. The other side must be a literal of the
    column's own type, as Polars makes them.

    Args:
        predicate: The condition on records.

    Returns:
        A box around them.
    """
    try:
        return _polars(json.loads(predicate.meta.serialize(format="json")))
    except (ValueError, TypeError, KeyError, RecursionError):
        return UNKNOWN


def _polars(node: Any) -> Wanted:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            return _polars(left) & _polars(right)
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            return _polars(left) | _polars(right)
        case {"BinaryExpr": {"left": {"Column": str(column)}, "op": op, "right": right}}:
            return _polars_compare(column, _POLARS.get(op), right)
        case {"BinaryExpr": {"left": left, "op": op, "right": {"Column": str(column)}}}:
            return _polars_compare(column, _FLIPPED.get(_POLARS.get(op, "")), left)
        case {
            "Function": {"input": [{"Column": str(column)}, *rest], "function": {"Boolean": how}}
        }:
            return _polars_test(column, how, rest)
        case _:
            return UNKNOWN


def _polars_compare(column: str, how: str | None, literal: Any) -> Wanted:
    values = None if how is None else _polars_values(column, literal)
    if how is None or values is None:
        return UNKNOWN
    (value,) = values
    return NOTHING if value is None else _compare(column, how, value)


def _polars_test(column: str, how: Any, rest: list[Any]) -> Wanted:
    match how, rest:
        case "IsNull", []:
            return _is_null(column)
        case {"IsBetween": {"closed": closed}}, [low, high]:
            since, until = _CLOSED[closed]
            return _polars_compare(column, since, low) & _polars_compare(column, until, high)
        case {"IsIn": {"nulls_equal": bool(equal)}}, [literal]:
            values = _polars_values(column, literal, many=True)
            if values is None:
                return UNKNOWN
            return _one_of(column, [value for value in values if value is not None or equal])
        case _:
            return UNKNOWN


def _polars_values(column: str, node: Any, many: bool = False) -> list[Any] | None:
    """Read a literal, if it is of the type of the column: another one may mean something else."""
    import io

    import polars

    if "Literal" not in node:
        return None
    literal = polars.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")
    found = polars.select(literal).to_series()
    if many:
        if not isinstance(found.dtype, polars.List | polars.Array) or len(found) != 1:
            return None
        found = found.explode()
    elif len(found) != 1:
        return None
    if column in ("offset", "partition"):
        return found.to_list() if found.dtype.is_integer() else None
    if column == "timestamp":
        is_same = found.dtype == polars.Datetime("us", "UTC")
        return found.cast(polars.Int64).to_list() if is_same else None
    kind: Any = {"key": polars.Binary, "topic": polars.String}.get(column)
    return found.to_list() if kind is not None and found.dtype == kind else None


# --- Arrow ----------------------------------------------------------------------------------------

_ARROW = {
    "equal": "==",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_TOKEN = re.compile(r"^(call|end|field_ref|literal|options): '(.*)'$", re.M)
_METADATA = "-- schema metadata --\n"


def of_arrow(predicate: compute.Expression) -> Wanted:
    """Read an expression of Arrow, as pyarrow's users and DuckDB make them.

    It reads the form in which pyarrow pickles expressions: a record batch of the literals, and
    metadata that say how they are combined.

    Args:
        predicate: The condition on records.

    Returns:
        A box around them.
    """
    try:
        batch, found = _tokens(predicate)
        tokens = iter(found)
        return _arrow(_node(tokens, *next(tokens)), batch)
    except (ValueError, TypeError, LookupError, StopIteration, RecursionError):
        return UNKNOWN  # errors of pyarrow are among these


def columns_of(predicate: compute.Expression, columns: list[str]) -> set[str]:
    """Return the columns that an expression of Arrow may use: all of them if that is not clear."""
    try:
        _, tokens = _tokens(predicate)
    except (ValueError, TypeError, LookupError):
        return set(columns)
    named = {name for kind, name in tokens if kind == "field_ref"}
    return named if named <= set(columns) else set(columns)


def _tokens(predicate: compute.Expression) -> tuple[pyarrow.RecordBatch, list[tuple[str, str]]]:
    """Split a pickled expression of pyarrow into its literals and operations, in order."""
    import pyarrow

    reduced: Any = predicate.__reduce__()
    batch = pyarrow.ipc.open_file(reduced[1][0]).get_batch(0)
    text = batch.schema.to_string(truncate_metadata=False).partition(_METADATA)[2]
    if _TOKEN.sub("", text).strip():
        raise ValueError("an expression with parts of another kind")
    return batch, _TOKEN.findall(text)


@dataclass(frozen=True)
class _Call:
    """A function and its arguments: other calls, ("field_ref", name) or ("literal", place)."""

    name: str
    arguments: list[Any]
    options: int | None = None


def _node(tokens: Iterator[tuple[str, str]], kind: str, text: str) -> Any:
    if kind != "call":
        return kind, text
    arguments: list[Any] = []
    options = None
    for inner, name in tokens:
        if (inner, name) == ("end", text):
            return _Call(text, arguments, options)
        if inner == "options":
            options = int(name)
        else:
            arguments.append(_node(tokens, inner, name))
    raise ValueError(f"{text} has no end")


def _arrow(node: Any, literals: pyarrow.RecordBatch) -> Wanted:
    def read(inner: Any) -> Wanted:
        return _arrow(inner, literals)

    match node:
        case _Call("and_kleene" | "and", [left, right]):
            return read(left) & read(right)
        case _Call("or_kleene" | "or", [left, right]):
            return read(left) | read(right)
        case _Call("if_else", [condition, then, ("literal", place)]):
            # Null is not true: a record has to meet both.
            is_null = not literals[int(place)][0].is_valid
            return _both(condition, read(condition), read(then)) if is_null else UNKNOWN
        case _Call("is_valid", [("field_ref", column)]):
            return UNKNOWN if column not in SPANS | {"topic"} else ALL
        case _Call("is_null", [("field_ref", column)]):
            return _is_null(column)
        case _Call("is_in", [("field_ref", column)], int(place)):
            return _arrow_one_of(column, literals[place][0])
        case _Call(name, [("field_ref", column), ("literal", place)]) if name in _ARROW:
            return _arrow_compare(column, _ARROW[name], literals[int(place)][0])
        case _Call(name, [("literal", place), ("field_ref", column)]) if name in _ARROW:
            return _arrow_compare(column, _FLIPPED[_ARROW[name]], literals[int(place)][0])
        case _:
            return UNKNOWN


def _both(condition: Any, found: Wanted, then: Wanted) -> Wanted:
    match condition:
        case _Call("is_valid", [("field_ref", "key")]) if not then.has("key", None):
            return then  # which is explicit as well
        case _:
            return found & then


def _arrow_compare(column: str, how: str, literal: pyarrow.Scalar) -> Wanted:
    value = _arrow_value(column)
    if value is None or not literal.is_valid:
        return UNKNOWN
    found = value(literal)
    return UNKNOWN if found is None else _compare(column, how, found)


def _arrow_one_of(column: str, options: pyarrow.StructScalar) -> Wanted:
    value = _arrow_value(column)
    if value is None:
        return UNKNOWN
    values = [value(one) if one.is_valid else None for one in options["value_set"]]
    if any(found is None for found in values) and column != "key":
        return UNKNOWN
    if any(one.is_valid and value(one) is None for one in options["value_set"]):
        return UNKNOWN
    # Whether null equals null is an option, which the library knows when it filters again.
    found = _one_of(column, values)
    return found & UNKNOWN if None in values else found


def _arrow_value(column: str) -> Callable[[pyarrow.Scalar], Any] | None:
    """Choose how literals of a column are converted; None means another type."""
    import pyarrow
    from pyarrow import types

    def time(literal: pyarrow.Scalar) -> int | None:
        kind = literal.type
        is_same = types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None
        return int(literal.value) if is_same else None

    def number(literal: pyarrow.Scalar) -> int | None:
        return int(literal.as_py()) if types.is_integer(literal.type) else None

    def text(kind: pyarrow.DataType) -> Callable[[pyarrow.Scalar], Any]:
        return lambda literal: literal.as_py() if literal.type == kind else None

    return {
        "offset": number,
        "partition": number,
        "timestamp": time,
        "key": text(pyarrow.binary()),
        "topic": text(pyarrow.string()),
    }.get(column)
