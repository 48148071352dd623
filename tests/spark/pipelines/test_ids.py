"""The ids that `dedupe` makes of records, without Spark."""

from __future__ import annotations

import pyarrow
import pytest

from falaj.errors import InvalidArgument
from falaj.pipeline.deduping import ids

HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))


def members(field: str, *values: bytes | None) -> list[bytes | None]:
    batch = pyarrow.record_batch({"value": pyarrow.array(values, pyarrow.binary())})
    found: list[bytes | None] = ids.ids(f"json:{field}", batch).to_pylist()
    return found


@pytest.mark.parametrize(
    "value",
    [
        b'{"id":"caf\xe9"}',
        b'{"id":1,"n":"\xe8"}',
        b'\xef\xbb\xbf{"id":1}',
        b"{'id':5}",
        b"{id:5}",
        b'{"id":1}x',
        b'{"id":1} {"id":2}',
        b'{"id":1',
        b'{"id":01}',
        b'{"id":NaN}',
        b'{"id":1,"n":-Infinity}',
        b'{"id":"a\nb"}',
        b'{"id":"\\x"}',
        b'{"id":1,}',
        b"[" * 100_000,
        b"",
        b"7",
        b'[{"id":7}]',
        b'{"id":null}',
        b'{"n":{"id":7}}',
        None,
    ],
)
def test_a_value_that_is_no_json_or_lacks_the_member_has_no_id(value: bytes | None) -> None:
    assert members("id", value) == [None]


def test_a_member_of_json_is_the_text_that_is_written() -> None:
    values = {
        b'{"id":"caf\xc3\xa9"}': b'"caf\xc3\xa9',
        b'{"id":"caf\\u00e9"}': b'"caf\xc3\xa9',
        b'{"id":"\\ud800"}': b'"\xed\xa0\x80',
        b'{"id":"\\ud801"}': b'"\xed\xa0\x81',
        b' {"id" : 1.10 } ': b"1.10",
        b'{"id":1e400}': b"1e400",
        b'{"id":-0}': b"-0",
        b'{"id":true}': b"true",
        b'{"id":""}': b'"',
        b'{"id":7,"id":8}': b"8",  # the last counts, as for every other reader of JSON here
        b'{"id":{"b": 1.50, "a": ["1", 1, null, "\xc3\xa9"]}}': (
            b'{"b":1.50,"a":["1",1,null,"\\u00e9"]}'
        ),
        b'{"id":%s}' % (b"9" * 5000): b"9" * 5000,
    }
    assert members("id", *values) == list(values.values())


def test_members_of_two_kinds_are_no_copies_of_each_other() -> None:
    written = [
        b"1",
        b'"1"',
        b"true",
        b'"true"',
        b"[]",
        b'"[]"',
        b'""',
        b'"\\""',
        b'{"a":1}',
        b"false",
    ]
    written += [b'"false"', b'{"a":"1"}', b'"{\\"a\\":1}"', b"1.0", b"1.10", b"1.1", b'"null"']
    found = members("id", *(b'{"id":%s}' % each for each in written))
    assert None not in found
    assert len(set(found)) == len(written)
    shown = [ids.bare("json:id", each) for each in found if each is not None]
    assert shown[:4] == [b"1", b"1", b"true", b"true"]


def test_a_path_names_members_and_places() -> None:
    value = b'{"order":{"id":1,"the.id":2},"lines":[{"id":3},[4]],"$x":5}'
    for field, wanted in {
        "order.id": b"1",
        "order['the.id']": b"2",
        "$.order.id": b"1",
        "$['order'].id": b"1",
        "lines[0].id": b"3",
        "$.lines[1][0]": b"4",
        "$.lines[2].id": None,
        "lines.id": None,
        "order[0]": None,
        "$['$x']": b"5",
        "order.id.more": None,
    }.items():
        assert members(field, value) == [wanted], field
    assert members("$", b"[1, 2.50]") == [b"[1,2.50]"]


@pytest.mark.parametrize("field", ["$.", "a..b", "a[b]", "a[*]", "$.*", "a[0", "$a", "a['']"])
def test_a_path_that_names_no_single_member_is_refused(field: str) -> None:
    with pytest.raises(InvalidArgument, match="names no member of JSON"):
        ids.check(f"json:{field}")


@pytest.mark.parametrize("by", ["", "offset", "header:", "json:", "keys", "header"])
def test_what_no_record_can_be_told_by_is_refused(by: str) -> None:
    with pytest.raises(InvalidArgument, match="by is key, value"):
        ids.check(by)


def test_the_first_header_of_a_name_is_the_id_whatever_slice_a_batch_is() -> None:
    rows = [
        [("other", b"0"), ("id", b"1"), ("id", b"2")],
        None,
        [],
        [("id", None), ("id", b"3")],
        [("ID", b"4")],
        [("id", b"\xff")],
    ]
    wanted = [b"1", None, None, None, None, b"\xff"]
    named = [row and [{"key": k, "value": v} for k, v in row] for row in rows]
    batch = pyarrow.record_batch({"headers": pyarrow.array(named, HEADERS)})
    for start in range(len(rows) + 1):
        found = ids.ids("header:id", batch.slice(start)).to_pylist()
        assert found == wanted[start:]
