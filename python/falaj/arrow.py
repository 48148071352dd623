"""Topics as Arrow record batches, for pyarrow, Polars, DuckDB, pandas and other readers.

Owns which records and which columns are read; the compiled half fills the batches. A `falaj.Scan`
is read repeatedly. A `Reader` is read once, and has the Arrow PyCapsule interface, so it needs no
other package than the one that reads the batches. `to_arrow()` and scans need pyarrow (`pip install
'falaj[arrow]'`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from falaj import _core
from falaj._any_topic import GIVE_THE_PATH
from falaj._checks import choice, flag, mapping, text
from falaj._numbers import number, plain
from falaj.errors import InvalidArgument, MissingExtra, named, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow

    from falaj import AnyTopic, Batch, Topic
    from falaj._admin import Skipped
    from falaj._arguments import Start
    from falaj._scan import Scan
    from falaj._time import Time

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "COLUMNS",
    "Lane",
    "Reader",
    "chosen",
    "lanes",
    "of_batch",
    "read",
    "scan",
    "table",
]

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""All columns of a topic: the names and types of Spark's Kafka source."""

USUAL = ("partition", "offset", "timestamp", "key", "value")
"""The columns that are read by default."""

SCANNED = (*USUAL, "headers", "topic", "timestampType")
"""The columns of a scan by default: all, since it reads only requested ones. Counting rows requests
the first one, so that is a cheap one.
"""

Lane = tuple[int, int, int]
"""Records of a partition: its number, the first offset, and the offset after the last."""

BATCH_ROWS = 65_536
"""Rows of a batch, by default."""

BATCH_BYTES = 64 << 20
"""Bytes of keys, values and headers after which a batch ends, by default; its last record may
exceed them.
"""

SCAN_BYTES = 8 << 20
"""The same for scans: other libraries read dozens of batches ahead."""

BATCH_ROWS_MAX, BATCH_BYTES_MAX = 1 << 23, 1 << 30
"""The upper limits of a batch: Arrow counts the bytes of a column by 31 bits."""


class Reader:
    """A stream of record batches, to be read once.

    Any library that reads Arrow streams can read it:
    `pyarrow.RecordBatchReader.from_stream(reader)`, `polars.DataFrame(reader)`, `duckdb.sql("select
    … from reader")`. Or iterate over it, which needs pyarrow. It has the records that existed when
    it was made. Corruption ends it with an error that names the place, unless it was made to skip
    that. Through the interface such an error becomes one of the reading library; here it is falaj's
    own.

    Example:
        >>> orders = store.topic("orders")
        >>> _ = orders.extend([b"one", b"two"])
        >>> [batch.column("value").to_pylist() for batch in orders.to_reader()]
        [[b'one', b'two']]
    """

    def __init__(self, stream: _core.ArrowStream) -> None:
        self._stream = stream

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Pass the stream on, in a capsule.

        Raises:
            InvalidArgument: It was passed on before.
        """
        return self._stream.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Pass the schema on, in a capsule."""
        return self._stream.__arrow_c_schema__()

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema of all batches; needs pyarrow."""
        return _pyarrow().schema(self)

    @property
    def skipped(self) -> list[Skipped]:
        """The corrupt parts that were stepped over so far, with `on_corrupt="skip"`."""
        return self._stream._skipped()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a reader cannot be pickled or copied: {GIVE_THE_PATH}")

    def __contains__(self, _item: object) -> NoReturn:
        raise TypeError("`in` does not search a reader: it would read its batches")

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """Read one batch after the other; needs pyarrow.

        Raises:
            CorruptData: A record is corrupt; the batches before it were delivered.
            OffsetOutOfRange: The next records were trimmed meanwhile.
        """
        made = _pyarrow().record_batch
        for batch in self._stream:
            yield made(batch)


def read(
    topic: AnyTopic[Any],
    start: Start = "earliest",
    end: int | Time | None = None,
    *,
    columns: Sequence[str] = USUAL,
    views: bool = False,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    on_corrupt: Literal["raise", "skip"] = "raise",
) -> Reader:
    """Read a topic as record batches; `topic.to_reader(…)` is the same.

    Partitions are read one after the other, and no batch mixes them.

    Args:
        topic: The topic, or a partition of it.
        start: As for `follow`: "earliest", an offset, or a time.
        end: Where to end: before an offset (-10 leaves out the last ten existing records), before a
            time, or None for the present end.
        columns: The columns, from `COLUMNS`, in this order. Other columns are not decoded.
        views: Keys and values are not copied. The columns are of the type `binary_view` and show
            the mapped files, which stay mapped while a batch lives. Polars and DuckDB take them.
        batch_rows: Most rows of a batch, up to 8,388,608.
        batch_bytes: Bytes of keys, values and headers after which a batch ends, up to 1 GiB.
        on_corrupt: "raise", or "skip" to step over corruption and note it in `Reader.skipped`.

    Returns:
        A stream of batches, which are read on request.

    Raises:
        InvalidArgument: An unknown column, one named twice, or a batch of nothing or of too much.
        OffsetOutOfRange: `start` or `end` was deleted, or lies beyond the end.
    """
    return chosen(
        topic,
        start,
        end,
        columns=columns,
        views=views,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        on_corrupt=on_corrupt,
    )


def chosen(
    topic: AnyTopic[Any],
    start: Start,
    end: int | Time | None,
    *,
    columns: Sequence[str],
    views: bool = False,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    on_corrupt: Literal["raise", "skip"] = "raise",
    times: tuple[int, int] | None = None,
    keys: Sequence[bytes | None] | None = None,
) -> Reader:
    """Read as `read` does, only records of some times and keys: others are not copied.

    Args:
        topic: The topic, or a partition of it.
        start: Where to begin.
        end: Where to end.
        columns: The columns.
        views: Whether keys and values are views.
        batch_rows: Most rows of a batch.
        batch_bytes: Bytes after which a batch ends; those of excluded records count too, so a batch
            may have no rows.
        on_corrupt: As for `read`.
        times: The first and the last time, microseconds since 1970; None for all.
        keys: The keys, None among them for records without; None for all.

    Raises:
        InvalidArgument: As `read`.
        OffsetOutOfRange: As `read`.
    """
    check(batch_rows, batch_bytes, on_corrupt)
    names = names_of(columns)
    flag(views, "views")
    found = lanes(topic, start, end)
    return Reader(
        _core._arrow(
            topic,
            found,
            names,
            views,
            batch_rows,
            batch_bytes,
            on_corrupt == "skip",
            times,
            None if keys is None else list(keys),
            1,
        )
    )


def scan(
    *topics: AnyTopic[Any],
    start: Start = "earliest",
    end: int | Time | None = None,
    columns: Sequence[str] = SCANNED,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = SCAN_BYTES,
    on_corrupt: Literal["raise", "skip"] = "raise",
    fields: Mapping[str, Any] | None = None,
    on_bad: Literal["raise", "skip", "null"] = "raise",
) -> Scan:
    """Make a lazy table of one topic or several; `topic.scan(…)` is the same for one.

    Its records are fixed now. They are read on request: only the requested columns and, as far as
    the filter can tell, the requested records.

    Args:
        *topics: The topics, or partitions of them.
        start: As for `follow`: "earliest", an offset, or a time.
        end: Where to end: before an offset (-10 leaves out the last ten existing records), before a
            time, or None for the present end.
        columns: The columns, from `COLUMNS`, in this order.
        batch_rows: Most rows of a batch, up to 8,388,608.
        batch_bytes: Bytes of keys, values and headers after which a batch ends, up to 1 GiB. DuckDB
            and others may hold some 40 batches at a time.
        on_corrupt: "raise", or "skip" to step over corruption and note it in `Scan.skipped`.

        fields: Members of values that are JSON objects, as further columns: their names, and types
            of pyarrow or the names of these, as `{"amount": "double"}`. A member that a value lacks
            is null.
        on_bad: What to do with a value that is no JSON, or has a member of another type. With
            "raise" it is an error, with "skip" its record is left out, and with "null" its fields
            are null. `Scan.bad` counts such values.

    Returns:
        A dataset of pyarrow's, which DuckDB reads as a table, and which makes a LazyFrame of Polars
        and a DataFrame of pandas.

    Raises:
        MissingExtra: pyarrow is not installed.
        InvalidArgument: No topic, an unknown column, one named twice.
        OffsetOutOfRange: `start` or `end` was deleted, or lies beyond the end.
    """
    check(batch_rows, batch_bytes, on_corrupt)
    choice(on_bad, "on_bad", "raise", "skip", "null")
    columns = names_of(columns)
    _pyarrow()
    from falaj._scan import Records, Scan

    parts = [(topic, lane) for topic in topics for lane in lanes(topic, start, end)]
    skips = on_corrupt == "skip"
    members = None if fields is None else _members(fields, columns, on_bad)
    return Scan(Records(parts, tuple(columns), batch_rows, batch_bytes, skips, members, on_bad))


def _members(fields: Mapping[str, Any], columns: Sequence[str], on_bad: str) -> Any:
    from falaj import _json_columns

    for name in mapping(fields, "fields", "names and types of pyarrow"):
        if name in columns:
            raise InvalidArgument(
                f"{name!r} is a column and a field: name other columns= than this one, or no such "
                "field"
            )
    return _json_columns.struct_of(fields)


def lanes(topic: AnyTopic[Any], start: Start, end: int | Time | None) -> list[Lane]:
    """Choose the records to read: for each partition a first offset and one after the last.

    Raises:
        OffsetOutOfRange: `start` or `end` was deleted, or lies beyond the end.
    """
    if not isinstance(topic, _core.AnyTopic):
        raise TypeError(f"topic is an open topic, not {named(topic)}")
    found = []
    for part in topic._parts():
        # The end first: records that are appended meanwhile are in neither.
        stop = _stop(part, end)
        first = part._start(start)
        if first < part.start_offset:
            raise part._out_of_range(first)
        found.append((part.partitions[0], first, max(first, stop)))
    return found


def check(batch_rows: int, batch_bytes: int, on_corrupt: str) -> None:
    """Refuse arguments that make no batch.

    Raises:
        InvalidArgument: An empty batch, a larger one than Arrow can have, or another word than
            "raise" and "skip".
    """
    choice(on_corrupt, "on_corrupt", "raise", "skip")
    batch_rows = number(batch_rows, "batch_rows")
    batch_bytes = number(batch_bytes, "batch_bytes")
    if batch_rows < 1 or batch_bytes < 1:
        raise InvalidArgument("a batch has at least one row and one byte")
    if batch_rows > BATCH_ROWS_MAX:
        raise InvalidArgument(
            f"batch_rows is at most {BATCH_ROWS_MAX:,}, not {shown(batch_rows, ',')}"
        )
    if batch_bytes > BATCH_BYTES_MAX:
        raise InvalidArgument(
            f"batch_bytes is at most {BATCH_BYTES_MAX:,}, not {shown(batch_bytes, ',')}"
        )


def names_of(columns: object) -> list[str]:
    """Check a list of columns' names; the compiled half knows which there are.

    Raises:
        TypeError: It is no list of text.
    """
    if isinstance(columns, str | bytes) or not isinstance(columns, Iterable):
        raise TypeError(f"columns is a list of names of columns, not {named(columns)}")
    return [text(name, "the name of a column") for name in columns]


def table(topic: AnyTopic[Any], *arguments: Any, **named: Any) -> pyarrow.Table:
    """Read a topic into a pyarrow table; `topic.to_arrow(…)` is the same.

    Arguments as for `read`. All of it is then in memory.

    Raises:
        MissingExtra: pyarrow is not installed.
        CorruptData: A record is corrupt.
        OffsetOutOfRange: As `read`, and if a trim takes records meanwhile.
    """
    pyarrow = _pyarrow()
    reader = read(topic, *arguments, **named)
    # pyarrow would read the stream itself, but make an error of its own of each of ours.
    return pyarrow.Table.from_batches([*reader], reader.schema)


def of_batch(
    batch: Batch[Any], columns: Sequence[str] | None = None, views: bool = False
) -> pyarrow.Table:
    """Make a pyarrow table of a batch from `batches()`; `batch.to_arrow(…)` is the same.

    Args:
        batch: The records.
        columns: The columns, from `COLUMNS`, in this order; None for those that `read` has.
        views: As for `read`.

    Returns:
        A table of one chunk, or of several if one cannot have all bytes.

    Raises:
        MissingExtra: pyarrow is not installed.
        InvalidArgument: An unknown column, or one named twice.
        CorruptData: A record is corrupt.
    """
    if not isinstance(batch, _core.Batch):
        raise TypeError(f"batch is one of topic.batches(), not {named(batch)}")
    pyarrow = _pyarrow()
    names = names_of(USUAL if columns is None else columns)
    flag(views, "views")
    made = _core._arrow_of(batch, names, views, BATCH_ROWS_MAX, BATCH_BYTES_MAX)
    return pyarrow.Table.from_batches([pyarrow.record_batch(chunk) for chunk in made])


def _stop(part: Topic[Any], end: int | Time | None) -> int:
    if end is None:
        return part.end_offset
    at: Any = plain(end)
    if isinstance(at, int) and not isinstance(at, bool):
        stop = part.end_offset
        if at < 0:  # beyond the first record there is nothing, as in a slice
            return part._start_of_last(min(-at, stop), stop)
        if not part.start_offset <= at <= stop:
            raise part._out_of_range(at)
        return at
    return part._end_or_at(at, "end")


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise MissingExtra("this needs pyarrow: pip install 'falaj[arrow]'") from error
    return pyarrow
