"""Lazy scans: Polars, DuckDB, pandas and pyarrow get what a plain read gives, and read less."""

import operator
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.dataset as ds
import pytest
from damaging import flip
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import falaj
from falaj import _predicates, arrow
from falaj._scan import Records
from falaj.errors import CorruptData, InvalidArgument, MissingExtra, OffsetOutOfRange

DAY = datetime(2026, 11, 20, tzinfo=UTC)
KEYS = [None, b"", b"a", b"b", b"a key that is longer than a view"]


@dataclass
class Known:
    """A scan of two topics, and all their records."""

    scan: Any
    table: pyarrow.Table
    frame: polars.DataFrame
    sql: duckdb.DuckDBPyConnection


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    """Blocks of plain values, and of records with everything; times that rise and fall."""
    with falaj.open(tmp_path_factory.mktemp("scans") / "store") as store:
        topics: list[Any] = [
            store.topic("one", codec="raw"),
            store.partitioned_topic("two", partitions=2),
        ]
        for topic in topics:
            for i in range(24):
                where: Any = {} if topic.name == "one" else {"partition": i % 2}
                if i % 6 == 5:  # their times are now: late, so that times are searched before them
                    topic.extend([b"plain %d" % i, b""], **where)
                at = DAY + timedelta(hours=i * 7 % 24, microseconds=i % 3)
                topic.append(b"%d" % i * 9, key=KEYS[i % 5], timestamp=at, **where)
        parts = [part.to_arrow(columns=list(TYPES)) for topic in topics for part in topic._parts()]
        table = pyarrow.concat_tables(parts)
        sql = duckdb.connect()
        sql.execute("set timezone = 'UTC'")
        yield Known(arrow.scan(*topics), table, polars.DataFrame(table), sql)
        sql.close()


# --- Predicates, random and written in three languages --------------------------------------------


@dataclass(frozen=True)
class Compare:
    column: str
    how: str
    value: Any

    def polars(self) -> Any:
        return HOW[self.how](polars.col(self.column), polars.lit(written(self)))

    def arrow(self) -> Any:
        return HOW[self.how](ds.field(self.column), written(self))

    def sql(self) -> str:
        return f'"{self.column}" {self.how.replace("==", "=")} {in_sql(self, self.value)}'


@dataclass(frozen=True)
class OneOf:
    column: str
    values: tuple[Any, ...]

    def polars(self) -> Any:
        return polars.col(self.column).is_in([written(self, value) for value in self.values])

    def arrow(self) -> Any:
        typed = pyarrow.array([written(self, v) for v in self.values], TYPES[self.column])
        return ds.field(self.column).isin(typed)

    def sql(self) -> str:
        return f'"{self.column}" in ({", ".join(in_sql(self, value) for value in self.values)})'


@dataclass(frozen=True)
class IsNull:
    column: str

    def polars(self) -> Any:
        return polars.col(self.column).is_null()

    def arrow(self) -> Any:
        return ds.field(self.column).is_null()

    def sql(self) -> str:
        return f'"{self.column}" is null'


@dataclass(frozen=True)
class Not:
    inner: Any

    def polars(self) -> Any:
        return ~self.inner.polars()

    def arrow(self) -> Any:
        return ~self.inner.arrow()

    def sql(self) -> str:
        return f"not ({self.inner.sql()})"


@dataclass(frozen=True)
class Both:
    joined: str
    left: Any
    right: Any

    def polars(self) -> Any:
        return JOINED[self.joined](self.left.polars(), self.right.polars())

    def arrow(self) -> Any:
        return JOINED[self.joined](self.left.arrow(), self.right.arrow())

    def sql(self) -> str:
        return f"({self.left.sql()}) {self.joined} ({self.right.sql()})"


HOW: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
JOINED: dict[str, Callable[[Any, Any], Any]] = {"and": operator.and_, "or": operator.or_}
TYPES = {
    "topic": pyarrow.string(),
    "partition": pyarrow.int32(),
    "offset": pyarrow.int64(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
    "key": pyarrow.binary(),
    "value": pyarrow.binary(),
}


def written(of: Any, value: Any = None) -> Any:
    value = of.value if isinstance(of, Compare) else value
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=value) if (
        of.column == "timestamp"
    ) else value  # fmt: skip


def in_sql(of: Any, value: Any) -> str:
    match of.column:
        case "timestamp":
            return f"make_timestamptz({value})"
        case "key" | "value":
            return "'" + "".join(f"\\x{byte:02x}" for byte in value) + "'::blob"
        case "topic":
            return f"'{value}'"
        case _:
            return str(value)


def values_of(column: str) -> st.SearchStrategy[Any]:
    us = int(DAY.timestamp()) * 1_000_000
    made: dict[str, st.SearchStrategy[Any]] = {
        "topic": st.sampled_from(["one", "two", "three"]),
        "partition": st.integers(-1, 2),
        "offset": st.integers(-1, 34),
        "timestamp": st.builds(
            lambda hour, more: us + hour * 3_600_000_000 + more,
            st.integers(-1, 25),
            st.integers(-1, 3),
        ),
        "key": st.sampled_from([*KEYS[1:], b"c"]),
        "value": st.sampled_from([b"", b"plain 5", b"1" * 9]),
    }
    return made[column]


COLUMN = st.sampled_from(list(TYPES))
ONE = st.one_of(
    COLUMN.flatmap(
        lambda c: st.builds(Compare, st.just(c), st.sampled_from(list(HOW)), values_of(c))
    ),
    COLUMN.flatmap(
        lambda c: st.builds(OneOf, st.just(c), st.lists(values_of(c), min_size=1).map(tuple))
    ),
    st.builds(IsNull, st.sampled_from(["key", "value", "offset"])),
)
PREDICATES = st.recursive(
    ONE,
    lambda inner: st.one_of(
        st.builds(Not, inner), st.builds(Both, st.sampled_from(list(JOINED)), inner, inner)
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(predicate=PREDICATES)
@example(Both("or", Compare("key", "==", b"a"), IsNull("key")))
@example(Both("or", Compare("offset", "<", 3), Compare("offset", ">", 9)))
@example(Both("and", Compare("timestamp", ">", 0), Compare("timestamp", "<=", 2**50)))
@example(Not(OneOf("key", (b"a",))))
def test_a_scan_gives_what_the_same_condition_leaves_of_all_that_was_read(
    known: Known, predicate: Any
) -> None:
    columns = list(TYPES)
    lazy = known.scan.to_polars().filter(predicate.polars())
    assert lazy.select(columns).collect().equals(known.frame.filter(predicate.polars()))
    some = lazy.select("offset").collect()["offset"]
    assert some.equals(known.frame.filter(predicate.polars())["offset"])
    wanted = known.table.filter(predicate.arrow())
    assert known.scan.to_table(columns, predicate.arrow()).equals(wanted)
    assert known.scan.to_table(["value"], predicate.arrow()).equals(wanted.select(["value"]))
    assert known.scan.count_rows(predicate.arrow()) == wanted.num_rows
    scan, plain = known.scan, known.table  # queries find these by their names
    where = f"where {predicate.sql()} order by all"
    names = ", ".join(f'"{name}"' for name in columns)
    found = known.sql.sql(f"select {names} from scan {where}").fetchall()
    assert found == known.sql.sql(f"select {names} from plain {where}").fetchall()
    assert scan.schema.names[0] == "partition"
    assert plain.num_rows == 64


# --- Pushed-down parts, which are not read --------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[str], _predicates.Wanted]]:
    """Note the columns and the range of records that are read."""
    noted: list[tuple[set[str], _predicates.Wanted]] = []
    read = Records.read

    def note(self: Records, columns: Any, wanted: Any, rows: int, **options: Any) -> Any:
        noted.append((set(columns), wanted))
        return read(self, columns, wanted, rows, **options)

    monkeypatch.setattr(Records, "read", note)
    return noted


AT = int(DAY.timestamp()) * 1_000_000
CASES: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (Compare("offset", ">=", 3), {"offset": (3, _predicates.HIGHEST)}, {}),
    (
        Both("and", Compare("offset", ">", 3), Compare("offset", "<", 9)),
        {"offset": (4, 8)},
        {},
    ),
    (Compare("timestamp", ">=", AT), {"timestamp": (AT, _predicates.HIGHEST)}, {}),
    (
        Both("and", Compare("partition", "==", 1), Compare("key", "==", b"a")),
        {"partition": (1, 1)},
        {"key": {b"a"}},
    ),
    (OneOf("key", (b"a", b"b")), {}, {"key": {b"a", b"b"}}),
    (Compare("topic", "==", "two"), {}, {"topic": {"two"}}),
    (IsNull("key"), {}, {"key": {None}}),
]


@pytest.mark.parametrize(("predicate", "spans", "sets"), CASES)
def test_bounds_and_columns_are_handed_down(
    known: Known,
    asked: list[tuple[set[str], _predicates.Wanted]],
    predicate: Any,
    spans: dict[str, Any],
    sets: dict[str, Any],
) -> None:
    scan = known.scan
    scan.to_polars().filter(predicate.polars()).select("value").collect()
    scan.to_table(columns=["value"], filter=predicate.arrow())
    known.sql.sql(f"select value from scan where {predicate.sql()}").fetchall()
    assert len(asked) == 3
    for columns, wanted in asked:
        assert (wanted.spans, wanted.sets) == (spans, sets)
        assert columns <= {"value", *spans, *sets}
    for columns, wanted in asked[1:]:
        # No engine checks again, so the columns of the condition are not even read.
        assert (columns, wanted.exact) == ({"value"}, True)


def test_a_filter_that_is_a_function_is_left_to_polars(known: Known) -> None:
    late = polars.col("offset").map_batches(lambda of: of > 2, return_dtype=polars.Boolean)
    lazy = known.scan.to_polars().filter(late).select("topic", "offset")
    assert lazy.collect().equals(known.frame.filter(late).select("topic", "offset"))


def test_only_as_many_rows_are_read_as_are_asked_for(
    known: Known, asked: list[tuple[set[str], _predicates.Wanted]]
) -> None:
    lazy = known.scan.to_polars()
    assert lazy.head(5).select("offset").collect()["offset"].to_list() == [0, 1, 2, 3, 4]
    assert lazy.head(5).filter(polars.col("offset") > 2).collect()["offset"].to_list() == [3, 4]
    assert lazy.select(polars.len()).collect().item() == known.table.num_rows
    assert next(columns for columns, _ in asked) == {"offset"}
    assert len(asked[-1][0]) == 1
    scan = known.scan
    (count,) = known.sql.sql("select count(*) from scan").fetchall()
    assert scan is known.scan
    assert count == (known.table.num_rows,)
    assert asked[-1][0] == {"partition"}


def test_an_index_finds_where_times_begin(store: falaj.Store) -> None:
    topic = store.topic("t", segment_bytes=65_536)
    for i in range(2_000):
        topic.append(b"x" * 100, timestamp=DAY + timedelta(seconds=i))
    scan = topic.scan()
    since = ds.field("timestamp") >= DAY + timedelta(seconds=1_990)
    topic.trim(before_offset=1_500)
    with pytest.raises(OffsetOutOfRange):
        scan.to_table(columns=["offset"], filter=since)
    found = topic.scan().to_table(columns=["offset"], filter=since)
    assert found["offset"].to_pylist() == list(range(1_990, 2_000))
    tail = scan.to_table(columns=["offset"], filter=ds.field("offset") >= 1_998)
    assert tail["offset"].to_pylist() == [1_998, 1_999]


def test_the_end_of_a_scan_is_that_of_when_it_was_made(topic: falaj.Topic[memoryview]) -> None:
    topic.extend([b"a", b"b", b"c"])
    scan, late = topic.scan(1), topic.scan(end=2)
    lazy = scan.to_polars()
    topic.append(b"d")
    for _ in range(2):
        assert lazy.collect()["value"].to_list() == [b"b", b"c"]
        assert duckdb.execute("select value from scan").fetchall() == [(b"b",), (b"c",)]
    assert late.count_rows() == 2
    assert topic.scan().count_rows() == 4


def test_an_empty_topic_is_an_empty_table_with_all_columns(topic: falaj.Topic[memoryview]) -> None:
    scan = topic.scan()
    assert scan.to_table().num_rows == scan.count_rows() == 0
    frame = scan.to_polars().filter(polars.col("offset") > 1).collect()
    assert (frame.height, set(frame.columns)) == (0, set(arrow.COLUMNS))
    assert duckdb.execute("select count(*), sum(octet_length(value)) from scan").fetchall() == [
        (0, None)
    ]


def test_values_in_polars_are_the_mapped_bytes_and_outlive_the_files(path: Path) -> None:
    store = falaj.open(path)
    topic = store.topic("orders", segment_bytes=65_536)
    values = [b"%05d" % i * 20 for i in range(3_000)]
    for at in range(0, len(values), 50):
        topic.extend(values[at : at + 50])
    frame = topic.scan().to_polars().select("value").collect()
    topic.delete()
    store.close()
    assert frame["value"].to_list() == values


def test_pandas_has_the_columns_in_its_types_or_in_those_of_arrow(
    topic: falaj.Topic[memoryview],
) -> None:
    topic.extend([(b"k", b"one"), b"two"])
    topic.append(b"three", headers=[("a", b"1")])
    frame = topic.scan().to_pandas()
    assert list(frame.columns) == list(arrow.SCANNED)
    assert frame["value"].tolist() == [b"one", b"two", b"three"]
    assert str(frame["timestamp"].dtype) == "datetime64[us, UTC]"
    few = topic.scan().to_pandas(
        ["key", "offset"], ds.field("offset") > 0, types_mapper=pandas.ArrowDtype
    )
    assert [str(kind) for kind in few.dtypes] == ["binary[pyarrow]", "int64[pyarrow]"]
    assert few["offset"].tolist() == [1, 2]


def test_damage_fails_with_place_and_remedy_or_is_skipped_and_told(path: Path) -> None:
    with falaj.open(path) as store:
        topic = store.topic("orders")
        for i in range(300):
            topic.append(b"%05d" % i * 20)
        topic.flush()
    (segment,) = path.glob("logs/*/*.log")
    flip(segment, 8192 + 150 * 136)
    with falaj.open(path, read_only=True) as store:
        scan = store.topic("orders").scan()
        says = f"{segment} is corrupt at byte .*falaj verify"
        with pytest.raises(CorruptData, match=says) as told:
            scan.to_table()
        assert told.value.__notes__ == ["step over corruption with on_corrupt='skip'"]
        with pytest.raises(CorruptData, match=says):
            scan.to_polars().collect()
        with pytest.raises(duckdb.Error, match=says):
            duckdb.execute("select sum(octet_length(value)) from scan").fetchall()
        skipping = store.topic("orders").scan(on_corrupt="skip")
        for _ in range(2):
            assert skipping.to_polars().collect().height == skipping.count_rows() == 299
        (lost,) = skipping.skipped
        (first, _) = lost["offsets"]
        before = scan.to_table(columns=["offset"], filter=ds.field("offset") < first)
        assert before.num_rows == first


def test_what_asks_past_a_scan_fails_and_does_not_find_it_empty(
    topic: falaj.Topic[memoryview],
) -> None:
    topic.append(b"x")
    scan = topic.scan()
    pasts: list[Callable[[], Any]] = [
        lambda: ds.UnionDataset(scan.schema, [scan]).to_table(),
        lambda: scan.filter(ds.field("offset") > 1),
        scan.get_fragments,
        lambda: scan.replace_schema(scan.schema),
        lambda: ds.dataset([scan]),
    ]
    for past in pasts:
        with pytest.raises((InvalidArgument, FileNotFoundError), match="scan"):
            past()
    with pytest.raises(TypeError, match="make one where it is needed"):
        pickle.dumps(scan)
    assert scan.sort_by("offset").to_table().num_rows == 1
    few = topic.scan(columns=["offset"])
    assert few.join(few, "offset").to_table().num_rows == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": ["values"]}, "no column"),
        ({"batch_rows": 0}, "at least one row"),
        ({"batch_rows": 10**10}, "at most 8,388,608"),
        ({"on_corrupt": "ignore"}, "on_corrupt"),
    ],
)
def test_bad_arguments_say_what_is_wrong(
    topic: falaj.Topic[memoryview], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        topic.scan(**options)
    with pytest.raises(InvalidArgument, match="one topic at least"):
        arrow.scan()


def test_a_filter_that_leaves_little_frees_memory_in_between(
    topic: falaj.Topic[memoryview],
) -> None:
    """So that Ctrl-C works in the middle of a scan that finds nothing."""
    for i in range(100):
        topic.append(b"x" * 100, key=b"%d" % i)
    scan = topic.scan(batch_bytes=1_000)
    batches = list(
        scan._records.read(["key"], _predicates.Wanted(sets={"key": frozenset([b"99"])}), 10)
    )
    assert len(batches) > 5
    sizes = [pyarrow.record_batch(batch).num_rows for batch in batches]
    assert (sum(sizes), sizes[0]) == (1, 0)


@pytest.fixture
def read_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each batch that a scan read."""
    rows: list[int] = []
    read = Records.read

    def noting(self: Records, *arguments: Any, **options: Any) -> Iterator[pyarrow.RecordBatch]:
        for batch in map(pyarrow.record_batch, read(self, *arguments, **options)):
            rows.append(len(batch))
            yield batch

    monkeypatch.setattr(Records, "read", noting)
    return rows


def test_a_batch_is_read_when_it_is_asked_for(
    topic: falaj.Topic[memoryview], read_rows: list[int]
) -> None:
    topic.extend([b"%d" % i for i in range(100)])
    scan = topic.scan(batch_rows=10)
    batches = scan.to_batches(columns=["value"], filter=ds.field("value") != b"3")
    for batch in range(1, 11):
        assert next(batches).schema.names == ["value"]
        assert read_rows == [10] * batch
    assert next(batches, None) is None


def test_the_first_rows_cost_no_more_than_themselves(
    topic: falaj.Topic[memoryview], read_rows: list[int]
) -> None:
    topic.extend([b"%d" % i for i in range(100)])
    scan = topic.scan()
    assert scan.head(3, columns=["offset"]).to_pydict() == {"offset": [0, 1, 2]}
    assert read_rows == [3]
    some = {"columns": {"twice": ds.field("offset") + ds.field("offset")}}
    assert scan.head(3, filter=ds.field("value") >= b"97", **some).to_pydict() == {
        "twice": [194, 196, 198]
    }
    assert scan.head(2, filter=ds.field("offset") >= 7)["offset"].to_pylist() == [7, 8]
    assert scan.head(500, batch_size=10).equals(scan.to_table())
    assert scan.head(0, **some).schema.names == ["twice"]
    with pytest.raises(InvalidArgument, match="from 0 on, not -1"):
        scan.head(-1)
    text: Any = "5"
    with pytest.raises(TypeError, match="how many rows"):
        scan.head(text)
    with pytest.raises(TypeError, match="readahead"):
        scan.head(1, readahead=4)


def test_batches_have_the_records_of_a_table_in_any_size(topic: falaj.Topic[memoryview]) -> None:
    topic.extend([b"%d" % i for i in range(100)])
    scan = topic.scan()
    chosen: dict[str, Any] = {"columns": ["value"], "filter": ds.field("value") > b"5"}
    for size in (1, 7, 1_000):
        batches = list(scan.to_batches(batch_size=size, **chosen))
        assert all(0 < len(batch) <= size for batch in batches)
        assert pyarrow.Table.from_batches(batches).equals(scan.to_table(**chosen).combine_chunks())


def test_without_pyarrow_the_error_says_how_to_get_it(path: Path) -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None; import falaj\n"
        f"falaj.open({str(path)!r}).topic('t').scan()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'falaj[arrow]'" in done.stderr


def test_without_polars_the_error_says_how_to_get_it(
    topic: falaj.Topic[memoryview], monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = topic.scan()
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtra, match="falaj\\[polars\\]"):
        scan.to_polars()
