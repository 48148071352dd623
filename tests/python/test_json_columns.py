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
