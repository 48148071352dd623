"""Members of JSON values as columns of scans: for pyarrow, Polars and DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow
import pyarrow.dataset
import pytest

from falaj.errors import DecodeFailed, InvalidArgument

if TYPE_CHECKING:
    import falaj

FIELDS = {"amount": "double", "item": "string"}
SALES = [
    b'{"item": "tea", "amount": 1.5, "more": [1]}',
    b'{"amount": 2}',
    b'{"item": null, "amount": null}',
    b'{"item": "coffee", "amount": 4.25}',
]


@pytest.fixture
def sales(store: falaj.Store) -> falaj.Topic[Any]:
    topic = store.topic("sales")
    topic.extend(SALES)
    topic.tombstone(b"k")
    return topic


def test_members_of_json_are_columns_and_what_a_value_lacks_is_null(
    sales: falaj.Topic[Any],
) -> None:
    scan = sales.scan(columns=["offset"], fields=FIELDS)
    assert scan.schema.names == ["offset", "amount", "item"]
    assert scan.to_table().to_pydict() == {
        "offset": [0, 1, 2, 3, 4],
        "amount": [1.5, 2.0, None, 4.25, None],
        "item": ["tea", None, None, "coffee", None],
    }
    assert scan.to_table(columns=["item"]).column_names == ["item"]
    assert scan.count_rows() == 5
    much = pyarrow.dataset.field("amount") > 1.75
    assert scan.to_table(columns=["offset"], filter=much)["offset"].to_pylist() == [1, 3]


def test_polars_and_duckdb_read_fields(sales: falaj.Topic[Any]) -> None:
    scan = sales.scan(fields=FIELDS)
    found = duckdb.sql('SELECT sum(amount) FROM scan WHERE "offset" < 3')
    assert found is not None
    assert found.fetchall() == [(3.5,)]
    lazy = scan.to_polars().filter(polars.col("amount") > 2)
    assert lazy.select("item", "value").collect().rows() == [("coffee", SALES[3])]
    assert lazy.select("offset").collect().rows() == [(3,)]


def test_types_of_pyarrow_reach_into_a_value(store: falaj.Store) -> None:
    topic = store.topic("orders")
    topic.append(b'{"order": {"id": 17}, "at": "2026-11-20T08:00:00Z"}')
    order = pyarrow.struct([("id", pyarrow.int64())])
    fields = {"order": order, "at": pyarrow.timestamp("us", tz="UTC")}
    [row] = topic.scan(columns=["key"], fields=fields).to_table().to_pylist()
    assert (row["order"], row["at"].isoformat()) == ({"id": 17}, "2026-11-20T08:00:00+00:00")


@pytest.mark.parametrize("bad", [b"no JSON", b'{"amount": "much"}', b"17", b""])
def test_a_value_that_is_no_such_json_fails_is_left_out_or_null(
    sales: falaj.Topic[Any], bad: bytes
) -> None:
    sales.append(bad)
    sales.append(b'{"amount": 9}')
    with pytest.raises(DecodeFailed, match="offset 5 is no JSON of the type") as raised:
        sales.scan(fields=FIELDS).to_table(columns=["amount"])
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("sales", 0, 5)

    skipping = sales.scan(columns=["offset"], fields=FIELDS, on_bad="skip")
    assert skipping.bad == 0
    assert skipping.to_table()["offset"].to_pylist() == [0, 1, 2, 3, 4, 6]
    assert skipping.bad == 1
    assert skipping.count_rows() == 6  # also where no field is read

    nulling = sales.scan(columns=["offset"], fields=FIELDS, on_bad="null")
    assert nulling.to_table().to_pylist()[4:] == [
        {"offset": 4, "amount": None, "item": None},
        {"offset": 5, "amount": None, "item": None},
        {"offset": 6, "amount": 9.0, "item": None},
    ]
    assert nulling.bad == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"fields": {"amount": "money"}}, "the field 'amount' cannot be money"),
        ({"fields": {"amount": pyarrow.binary()}}, "the field 'amount' cannot be binary"),
        ({"fields": {"offset": "int64"}}, "'offset' is a column and a field"),
        ({"fields": {"a": "int64"}, "on_bad": "drop"}, 'on_bad is "raise", "skip" or "null"'),
    ],
)
def test_fields_that_cannot_be_are_refused(
    sales: falaj.Topic[Any], given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        sales.scan(**given)


INT = pyarrow.int64()
UNREAD = [
    pyarrow.null(),
    pyarrow.float16(),
    pyarrow.time32("s"),
    pyarrow.time64("us"),
    pyarrow.date64(),
    pyarrow.duration("us"),
    pyarrow.month_day_nano_interval(),
    pyarrow.large_string(),
    pyarrow.string_view(),
    pyarrow.binary(),
    pyarrow.large_binary(),
    pyarrow.binary_view(),
    pyarrow.binary(4),
    pyarrow.large_list(INT),
    pyarrow.list_(INT, 3),
    pyarrow.list_view(INT),
    pyarrow.large_list_view(INT),
    pyarrow.map_(pyarrow.string(), INT),
    pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    pyarrow.run_end_encoded(pyarrow.int32(), INT),
    pyarrow.dense_union([pyarrow.field("a", INT)]),
    pyarrow.sparse_union([pyarrow.field("a", INT)]),
    pyarrow.json_(),
    pyarrow.uuid(),
    pyarrow.bool8(),
    pyarrow.struct([("a", INT), ("a", INT)]),
]
READ: list[tuple[pyarrow.DataType, str]] = [
    (pyarrow.bool_(), "true"),
    *[(each, "1") for each in (pyarrow.int8(), pyarrow.uint64(), pyarrow.float32())],
    (pyarrow.decimal32(5, 2), "1.50"),
    (pyarrow.decimal64(10, 2), "1.50"),
    (pyarrow.decimal128(20, 2), '"1.50"'),
    (pyarrow.decimal256(50, 2), "1.50"),
    (pyarrow.decimal128(5, -2), "100"),
    (pyarrow.string(), '"x"'),
    (pyarrow.date32(), '"2026-11-20"'),
    *[(pyarrow.timestamp(each), '"2026-11-20T08:00:00"') for each in ("s", "ms", "us", "ns")],
    (pyarrow.timestamp("us", "Europe/Paris"), '"2026-11-20T08:00:00Z"'),
    (pyarrow.list_(pyarrow.field("x", INT, nullable=False)), "[1]"),
    (pyarrow.struct([pyarrow.field("a", INT, nullable=False)]), '{"a": 1}'),
    (pyarrow.struct([]), "{}"),
]


def wrapped(kind: pyarrow.DataType, value: str) -> list[tuple[pyarrow.DataType, str]]:
    """A type by itself, and inside others."""
    inner = pyarrow.struct([("x", kind)])
    return [
        (kind, value),
        (pyarrow.list_(kind), f"[{value}]"),
        (inner, f'{{"x": {value}}}'),
        (pyarrow.list_(inner), f'[{{"x": {value}}}]'),
    ]


@pytest.mark.parametrize("kind", UNREAD, ids=str)
def test_a_type_that_is_not_read_is_refused_when_the_scan_is_made(
    sales: falaj.Topic[Any], kind: pyarrow.DataType
) -> None:
    for each, _ in wrapped(kind, ""):
        with pytest.raises(InvalidArgument, match="the field 'f' cannot be "):
            sales.scan(fields={"f": each})


@pytest.mark.parametrize(("kind", "value"), READ, ids=str)
def test_a_type_that_a_scan_takes_is_read(
    store: falaj.Store, kind: pyarrow.DataType, value: str
) -> None:
    for i, (each, text) in enumerate(wrapped(kind, value)):
        topic = store.topic(f"t{i}", codec="bytes")
        topic.extend([f'{{"f": {text}}}'.encode(), b"{}", b'{"f": null}'])
        found = topic.scan(columns=[], fields={"f": each}).to_table()
        found.validate(full=True)
        assert found.schema.field("f").type == each
        assert found["f"].is_valid().to_pylist() == [True, False, False]


def test_times_of_a_type_without_a_zone_are_in_utc(store: falaj.Store) -> None:
    topic = store.topic("times", codec="bytes")
    for text in ("2026-11-20T08:00:00", "2026-11-20T08:00:00Z", "2026-11-20T09:00:00+01:00"):
        topic.append(f'{{"at": "{text}"}}'.encode())
    found = topic.scan(columns=[], fields={"at": "timestamp[us]"}).to_table()
    assert [each.isoformat() for each in found["at"].to_pylist()] == ["2026-11-20T08:00:00"] * 3


def test_a_member_that_cannot_be_null_is_there_or_the_value_is_bad(store: falaj.Store) -> None:
    topic = store.topic("t", codec="bytes")
    topic.extend([b'{"f": {"a": 1}}', b"{}", b'{"f": {}}', b'{"f": {"a": null}}'])
    kind = pyarrow.struct([pyarrow.field("a", INT, nullable=False)])
    scan = topic.scan(columns=["offset"], fields={"f": kind}, on_bad="skip")
    assert scan.to_table()["offset"].to_pylist() == [0, 1]
    assert scan.bad == 2
