"""Lazy tables of topics: Polars, DuckDB, pandas and pyarrow read only what they need.

A `Scan` is a dataset of pyarrow's. DuckDB uses it as a table by the name of its variable and pushes
down columns and filters. `to_polars` makes a LazyFrame that does the same, `to_pandas` a DataFrame.
Invariant: its records are fixed when it is made, so every reading sees the same, or fails.
`falaj._predicates` reads filters. Records that they do not certainly exclude are read, and the
library filters them again.

This module needs pyarrow: `falaj.arrow.scan` imports it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

import pyarrow
import pyarrow.dataset

from falaj import _core, _json_columns, _predicates
from falaj._numbers import number
from falaj.errors import CorruptData, DecodeFailed, InvalidArgument, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas
    import polars
    from pyarrow import compute

    from falaj import AnyTopic
    from falaj._admin import Skipped
    from falaj._predicates import Wanted
    from falaj.arrow import Lane

    _Columns = Sequence[str] | Mapping[str, compute.Expression] | None

__all__ = ["Records", "Scan"]

THREADS_MAX = 8
"""Threads that read batches ahead; one a core, if there are fewer cores."""

_US = 1_000
"""Nanoseconds."""


@dataclass
class Records:
    """The records of a scan, and how to read them.

    Attributes:
        parts: Topics with a range of one of their partitions.
        columns: The columns.
        batch_rows: Most rows of a batch.
        batch_bytes: Bytes of keys, values and headers after which a batch ends.
        skips: Whether corruption is stepped over.
        fields: Members of values that are JSON, as a struct; None for none.
        on_bad: What a value does that has not these members.
        skipped: The corrupt parts that were stepped over so far.
        bad: How many values were left out or null because they are no such JSON.
    """

    parts: list[tuple[AnyTopic[Any], Lane]]
    columns: tuple[str, ...]
    batch_rows: int
    batch_bytes: int
    skips: bool
    fields: pyarrow.StructType | None = None
    on_bad: Literal["raise", "skip", "null"] = "raise"
    skipped: list[Skipped] = field(default_factory=list)
    bad: int = 0

    def schema(self) -> pyarrow.Schema:
        """Return the schema; keys and values are copied."""
        if not self.parts:
            raise InvalidArgument("a scan is of one topic at least")
        plain = pyarrow.schema(self._stream(self.parts[0][0], [], self.columns, _predicates.ALL))
        return plain if self.fields is None else pyarrow.schema([*plain, *self.fields])

    def read(
        self,
        columns: Sequence[str],
        wanted: Wanted,
        rows: int,
        *,
        views: bool = False,
        ahead: bool = True,
    ) -> Iterator[_core.ArrowBatch | pyarrow.RecordBatch]:
        """Read batches, one partition after the other.

        Args:
            columns: The columns to read.
            wanted: The box of records to read.
            rows: Most rows of a batch.
            views: Whether keys and values are views of the mapped files.
            ahead: Whether threads fill batches before they are asked for.

        Returns:
            An iterator of batches; some may have no rows.

        Raises:
            CorruptData: A record is corrupt; the batches before it were delivered.
            OffsetOutOfRange: The next records were trimmed since the scan was made.
        """
        for topic, lane in self.parts:
            left = _cut(topic, lane, wanted)
            if left is None:
                continue
            decodes = self._decodes(columns)
            needed = columns
            if decodes:
                plain = [name for name in columns if name in self.columns]
                needed = [*dict.fromkeys([*plain, "value", "offset"])]
            stream = self._stream(topic, [left], needed, wanted, rows, views, ahead)
            try:
                for batch in stream:
                    yield self._with_fields(topic, lane, batch, columns) if decodes else batch
            except CorruptData as error:
                error.add_note("step over corruption with on_corrupt='skip'")
                raise
            finally:
                self.skipped += [lost for lost in stream._skipped() if lost not in self.skipped]

    def _decodes(self, columns: Sequence[str]) -> bool:
        """Whether values are read as JSON: for a field, or to know which are left out."""
        if self.fields is None:
            return False
        return self.on_bad == "skip" or any(name not in self.columns for name in columns)

    def _with_fields(
        self, topic: AnyTopic[Any], lane: Lane, made: _core.ArrowBatch, columns: Sequence[str]
    ) -> pyarrow.RecordBatch:
        """Read fields of a batch's values, and leave out or refuse what is no such JSON.

        Raises:
            DecodeFailed: A value is no such JSON, and that is an error.
        """
        batch = pyarrow.record_batch(made)
        found, bad = _json_columns.decode(batch["value"], "json", self.fields)
        if bad and self.on_bad == "raise":
            raise self._refused(topic, lane, batch["offset"][bad[0]].as_py())
        self.bad += len(bad)
        if bad:
            missing, left = set(bad), iter(range(len(found)))
            places = [None if row in missing else next(left) for row in range(len(batch))]
            if self.on_bad == "skip":
                batch = batch.filter(pyarrow.array([place is not None for place in places]))
            else:
                found = found.take(pyarrow.array(places, pyarrow.int64()))
        # Members are null where the value is: `flatten` sees to that, `field` does not.
        fields = dict(zip((each.name for each in self.fields or ()), found.flatten(), strict=True))
        arrays = [fields[name] if name in fields else batch[name] for name in columns]
        if not columns:  # rows without columns have a number alone
            return batch.select([])
        return pyarrow.RecordBatch.from_arrays(arrays, names=list(columns))

    def _refused(self, topic: AnyTopic[Any], lane: Lane, offset: int) -> DecodeFailed:
        error = DecodeFailed(
            f"topic {topic.name}, partition {lane[0]}: the value at offset {offset} is no JSON of "
            f"the type {self.fields}: leave such records out with on_bad='skip', or have nulls "
            "there with on_bad='null'"
        )
        error.topic, error.partition, error.offset = topic.name, lane[0], offset
        return error

    def _stream(
        self,
        topic: AnyTopic[Any],
        lanes: Sequence[Lane],
        columns: Sequence[str],
        wanted: Wanted,
        rows: int | None = None,
        views: bool = False,
        ahead: bool = False,
    ) -> _core.ArrowStream:
        times = wanted.spans.get("timestamp")
        keys = wanted.sets.get("key")
        return _core._arrow(
            topic,
            lanes,
            list(columns),
            views,
            min(rows or self.batch_rows, self.batch_rows),
            self.batch_bytes,
            self.skips,
            times,
            None if keys is None else list(keys),
            min(len(os.sched_getaffinity(0)), THREADS_MAX) if ahead else 1,
        )


def _cut(topic: AnyTopic[Any], lane: Lane, wanted: Wanted) -> Lane | None:
    """Cut a range of a partition to the wanted part; None if that is empty.

    Raises:
        OffsetOutOfRange: Some of it was trimmed since the scan was made.
    """
    partition, first, end = lane
    lowest, highest = wanted.span("partition")
    if wanted.empty or not lowest <= partition <= highest or not wanted.has("topic", topic.name):
        return None
    low, high = wanted.span("offset")
    first, end = max(first, low), min(end, high + 1)
    if first >= end:
        return None
    part = topic.partition(partition)
    since = wanted.span("timestamp")[0] * _US
    found: int | None = first
    if since > _predicates.HIGHEST:
        return None
    if since >= _predicates.LOWEST:
        # Times go up and down, so the last one does not tell where to end.
        found = part.offset_at(time_ns=since)
    if part.start_offset > first:  # read after the search, which may have missed deleted records
        raise part._out_of_range(first)
    if found is None or max(found, first) >= end:
        return None
    return partition, max(found, first), end


class _Reading:
    """The batches of one reading. pyarrow asks for them in threads of its own.

    It makes an error of its own kind of each of ours, so the first one is kept.
    """

    def __init__(
        self, schema: pyarrow.Schema, batches: Iterator[_core.ArrowBatch | pyarrow.RecordBatch]
    ) -> None:
        self.schema, self._batches = schema, batches
        self._failed: BaseException | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return _core._arrow_stream(self.schema, self)

    def __iter__(self) -> _Reading:
        return self

    def __next__(self) -> _core.ArrowBatch | pyarrow.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self._failed = error
            raise

    def told(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Read by pyarrow, with our own errors."""
        try:
            return read(*arguments)
        except Exception:
            if self._failed is None:
                raise
            raise self._failed from None


class _Plan(NamedTuple):
    """The part of a scan that is read, and what pyarrow does with it.

    Attributes:
        needed: The columns that are read.
        wanted: The records that are read.
        columns: The columns that are asked for.
        filter: The condition that is left, if one is.
    """

    needed: list[str]
    wanted: Wanted
    columns: _Columns
    filter: compute.Expression | None

    @property
    def has_left(self) -> bool:
        """Whether what is read is not yet what is asked for."""
        return self.filter is not None or self.columns not in (None, self.needed)

    def left(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a scanner that does what is left."""
        return {**options, "columns": self.columns, "filter": self.filter}


def _scanner_of(
    part: pyarrow.RecordBatch | pyarrow.Table, options: Mapping[str, Any]
) -> pyarrow.dataset.Scanner:
    return pyarrow.dataset.InMemoryDataset(part).scanner(**options)


class Scan(pyarrow.dataset.UnionDataset):  # type: ignore[misc] # pyarrow has no types
    """A lazy table of one topic or several.

    As a dataset of pyarrow's it has `schema`, `scanner`, `to_table`, `to_batches`, `head`, `take`
    and `count_rows`, with `columns=` and `filter=`. Any library that reads datasets uses these.
    DuckDB does when a query names the variable that holds it.

    Only the requested columns are decoded. If literals bound `offset`, `timestamp`, `partition`,
    `topic` or `key`, the index or the compiled half selects the records before anything is copied.
    The library applies all other conditions. It has the records that existed when it was made: make
    another one for later records.

    Threads may share it.

    Example:
        >>> orders = store.topic("orders")
        >>> _ = orders.extend([(b"eu", b"two coffees"), (b"us", b"one tea")])
        >>> scan = orders.scan()
        >>> scan.count_rows(), scan.schema.names[:3]
        (2, ['partition', 'offset', 'timestamp'])
        >>> scan.to_pandas(columns=["offset", "key"])["key"].tolist()
        [b'eu', b'us']
    """

    def __init__(self, records: Records) -> None:
        schema = records.schema()
        # Arrow's C++ half has a dataset of its own behind this one, and some of its functions
        # bypass our methods. They find a missing file there, whose name says what to do: so they
        # fail, and do not treat a topic as empty.
        kind = pyarrow.dataset.IpcFileFormat()
        nowhere = kind.make_fragment(_NOWHERE, pyarrow.fs.LocalFileSystem())
        empty = pyarrow.dataset.FileSystemDataset([nowhere], schema, kind)
        super().__init__(schema, [empty])
        self._records = records

    @property
    def skipped(self) -> list[Skipped]:
        """The corrupt parts that all readings stepped over, with `on_corrupt="skip"`."""
        return list(self._records.skipped)

    @property
    def bad(self) -> int:
        """How many values were left out, or null, in all that was read: `on_bad` says which."""
        return self._records.bad

    def scanner(
        self,
        columns: _Columns = None,
        filter: compute.Expression | None = None,  # noqa: A002
        **options: Any,
    ) -> pyarrow.dataset.Scanner:
        """Choose columns and records, to be read once; `to_table` and the like use it.

        Args:
            columns: The columns, in this order; or expressions by name. None for all.
            filter: A condition on records, such as `pyarrow.dataset.field("offset") > 9`.
            **options: Other options of pyarrow's.

        Returns:
            A scanner of pyarrow's. Its errors are pyarrow's, with the text of ours.
        """
        return self._scanner(columns, filter, **options)[0]

    def _scanner(
        self,
        columns: _Columns = None,
        filter: compute.Expression | None = None,  # noqa: A002
        **options: Any,
    ) -> tuple[pyarrow.dataset.Scanner, _Reading]:
        """Make a scanner, and what it reads."""
        plan = self._plan(columns, filter)
        reading = self._reading(plan, options.pop("batch_size", None))
        reader = pyarrow.RecordBatchReader.from_stream(reading)
        return pyarrow.dataset.Scanner.from_batches(reader, **plan.left(options)), reading

    def _plan(self, columns: _Columns, filter: compute.Expression | None) -> _Plan:  # noqa: A002
        """Choose what is read, and what is left for pyarrow to do."""
        wanted = _predicates.ALL if filter is None else _predicates.of_arrow(filter)
        names = self.schema.names
        if isinstance(columns, dict) or (columns is not None and not set(columns) <= set(names)):
            needed = names
        else:
            chosen = set(names if columns is None else columns)
            if not wanted.exact:
                chosen |= _predicates.columns_of(filter, names)
            needed = [name for name in names if name in chosen]
        return _Plan(needed, wanted, columns, None if wanted.exact else filter)

    def _reading(self, plan: _Plan, rows: int | None, *, ahead: bool = True) -> _Reading:
        schema = pyarrow.schema([self.schema.field(name) for name in plan.needed])
        rows = self._records.batch_rows if rows is None else rows
        return _Reading(schema, self._records.read(plan.needed, plan.wanted, rows, ahead=ahead))

    def to_table(self, *chosen: Any, **options: Any) -> pyarrow.Table:
        """Read into a table of pyarrow. Arguments as for `scanner`.

        Raises:
            CorruptData: A record is corrupt.
            OffsetOutOfRange: Some of it was trimmed since the scan was made.
        """
        scanner, reading = self._scanner(*chosen, **options)
        return reading.told(scanner.to_table)

    def to_batches(
        self,
        columns: _Columns = None,
        filter: compute.Expression | None = None,  # noqa: A002
        **options: Any,
    ) -> Iterator[pyarrow.RecordBatch]:
        """Read one batch after the other. Arguments as for `scanner`, errors as `to_table`.

        A few batches are in memory at a time.
        """
        plan = self._plan(columns, filter)
        reading = self._reading(plan, options.pop("batch_size", None))
        return self._batches(plan, reading, plan.left(options))

    def _batches(
        self, plan: _Plan, reading: _Reading, left: Mapping[str, Any]
    ) -> Iterator[pyarrow.RecordBatch]:
        """Read batches, and let pyarrow do what is left with each. Its scanner would hold dozens.

        The first scanner reads nothing: it refuses options that pyarrow does not know.
        """
        _scanner_of(pyarrow.Table.from_batches([], reading.schema), left)
        return (
            batch
            for made in map(pyarrow.record_batch, reading)
            for batch in (_scanner_of(made, left).to_batches() if plan.has_left else (made,))
            if len(batch)
        )

    def head(
        self,
        num_rows: int,
        columns: _Columns = None,
        filter: compute.Expression | None = None,  # noqa: A002
        **options: Any,
    ) -> pyarrow.Table:
        """Read the first rows, and no more.

        Other arguments as for `scanner`, errors as for `to_table`.
        """
        num_rows = number(num_rows, "how many rows to read")
        if num_rows < 0:
            raise InvalidArgument(f"num_rows is how many to read, from 0 on, not {num_rows}")
        plan = self._plan(columns, filter)
        rows = options.pop("batch_size", None) or self._records.batch_rows
        ahead = plan.filter is not None or num_rows > rows
        reading = self._reading(plan, rows if ahead else max(1, num_rows), ahead=ahead)
        left = plan.left(options)
        found, missing = list[pyarrow.RecordBatch](), num_rows
        for batch in self._batches(plan, reading, left):
            found.append(batch[:missing])
            missing -= len(found[-1])
            if missing <= 0:
                break
        empty = pyarrow.Table.from_batches([], reading.schema)
        return pyarrow.Table.from_batches(found, _scanner_of(empty, left).projected_schema)

    def take(self, indices: Any, *chosen: Any, **options: Any) -> pyarrow.Table:
        """Read rows by their places in the scan, as `head` does the first ones."""
        scanner, reading = self._scanner(*chosen, **options)
        return reading.told(scanner.take, indices)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Pass all of it to a library that reads Arrow streams: pyarrow, Polars, DuckDB, deltalake.

        Batches are read on request.

        Example:
            >>> import polars
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([b"one", b"two"])
            >>> polars.DataFrame(orders.scan(columns=["value"])).rows()
            [(b'one',), (b'two',)]
        """
        reading = self._reading(self._plan(None, None), None)
        return reading.__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Show the first ten rows as a table, in a notebook."""
        from falaj import _html  # for notebooks alone

        return _html.of_scan(self)

    def count_rows(self, filter: compute.Expression | None = None, **options: Any) -> int:  # noqa: A002
        """Count the records, or those that meet a condition."""
        scanner, reading = self._scanner(self.schema.names[:1], filter, **options)
        counted: int = reading.told(scanner.count_rows)
        return counted

    def to_polars(self) -> polars.LazyFrame:
        """Make a LazyFrame of Polars.

        Polars pushes down columns, predicate and the number of rows. Keys and values are views of
        the mapped files, which stay mapped while a frame has them.

        Raises:
            MissingExtra: Polars is not installed.

        Example:
            >>> import polars
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([(b"eu", b"two coffees"), (b"us", b"one tea")])
            >>> late = orders.scan().to_polars().filter(polars.col("offset") >= 1)
            >>> late.select("key", "value").collect().rows()
            [(b'us', b'one tea')]
        """
        try:
            import polars
            from polars.io.plugins import register_io_source
        except ModuleNotFoundError as error:
            raise MissingExtra("this needs Polars: pip install 'falaj[polars]'") from error
        records = self._records

        def source(
            with_columns: list[str] | None,
            predicate: polars.Expr | None,
            n_rows: int | None,
            batch_size: int | None,
        ) -> Iterator[polars.DataFrame]:
            columns = self.schema.names if with_columns is None else with_columns
            wanted = _predicates.ALL
            # The first rows are counted before any is left out.
            if predicate is not None and n_rows is None:
                wanted = _predicates.of_polars(predicate)
            rows = min(batch_size or records.batch_rows, n_rows or records.batch_rows)
            left = n_rows
            yield empty.select(columns)
            for batch in records.read(
                columns, wanted, max(1, rows), views=True, ahead=n_rows is None
            ):
                frame = polars.DataFrame(batch)
                if left is not None:
                    frame = frame.head(left)
                    left -= len(frame)
                yield frame if predicate is None else frame.filter(predicate)
                if left == 0:
                    return

        empty = polars.DataFrame(self.schema.empty_table())
        # Corrupt parts that are stepped over are noted; the iterator gives only records.
        return register_io_source(source, schema=empty.schema, is_pure=not records.skips)

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: compute.Expression | None = None,  # noqa: A002
        **options: Any,
    ) -> pandas.DataFrame:
        """Read into a DataFrame of pandas, by way of Arrow.

        Args:
            columns: The columns, in this order; None for all.
            filter: A condition on records, such as `pyarrow.dataset.field("offset") > 9`.
            **options: Options of pyarrow's `Table.to_pandas`: `types_mapper=pandas.ArrowDtype`
                keeps Arrow's types; otherwise keys and values are Python objects.

        Returns:
            A DataFrame; all of it is in memory.
        """
        return self.to_table(columns=columns, filter=filter).to_pandas(**options)

    def filter(self, expression: compute.Expression) -> NoReturn:
        """Refuse: a scan takes its filter when it is read."""
        raise InvalidArgument("a scan takes its filter when it is read: scan.to_table(filter=…)")

    def get_fragments(self, filter: compute.Expression | None = None) -> NoReturn:  # noqa: A002
        """Refuse: a topic has no files that Arrow could read."""
        raise InvalidArgument("a scan has no fragments: read it with to_batches() or to_table()")

    def replace_schema(self, schema: pyarrow.Schema) -> NoReturn:
        """Refuse: the types of a topic's columns are fixed."""
        raise InvalidArgument(
            "a scan keeps its schema: name columns= when it is made, and cast what is read"
        )

    def sort_by(self, sorting: Any, **options: Any) -> Any:
        """Read all of it and sort that."""
        return self._in_memory().sort_by(sorting, **options)

    def join(self, right_dataset: Any, *arguments: Any, **options: Any) -> Any:
        """Read all of it and join that."""
        return self._in_memory().join(_read(right_dataset), *arguments, **options)

    def join_asof(self, right_dataset: Any, *arguments: Any, **options: Any) -> Any:
        """Read all of it and join that by the nearest value."""
        return self._in_memory().join_asof(_read(right_dataset), *arguments, **options)

    def __reduce__(self) -> NoReturn:
        """Refuse: open topics stay in their process."""
        raise TypeError("a scan is of open topics: make one where it is needed")

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def _in_memory(self) -> Any:
        return pyarrow.dataset.InMemoryDataset(self.to_table())


_NOWHERE = (
    "a scan of falaj is read through its own methods: hand on scan.to_table(), or scan.scanner()"
)


def _read(other: Any) -> Any:
    return other._in_memory() if isinstance(other, Scan) else other
