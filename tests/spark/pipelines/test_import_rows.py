"""Rows that are malformed are counted, named and kept, and none is altered into another one."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.errors import InvalidArgument, InvalidName
from falaj.pipeline import ImportConfig, ImportResult, import_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Do = Callable[..., ImportResult]


@pytest.fixture
def do(spark: SparkSession, tmp_path: Path) -> Do:
    """Import `in/` into `sales`."""
    (tmp_path / "in").mkdir()

    def run(**changed: Any) -> ImportResult:
        given = {"store": tmp_path / "s", "into": "sales", "source": tmp_path / "in", **changed}
        return import_files(spark, ImportConfig(**given))

    return run


def records(folder: Path, topic: str = "sales") -> list[tuple[bytes | None, bytes]]:
    with falaj.open(folder / "s", read_only=True) as store, store.any_topic(topic) as opened:
        return [(record.key, record.to_bytes()) for record in opened]


def put(folder: Path, name: str, content: bytes) -> str:
    (folder / "in" / name).write_bytes(content)
    return str(folder / "in" / name)


def test_csv_that_is_not_utf8_is_malformed_and_makes_no_keys_equal(do: Do, tmp_path: Path) -> None:
    file = put(tmp_path, "a.csv", b"id,n\ncaf\xe9,1\ncaf\xe8,2\ncaf\xc3\xa9,3\n")
    fine = put(tmp_path, "b.csv", b"id,n\n\xef\xbf\xbd,4\n")  # U+FFFD itself
    with pytest.raises(InvalidArgument, match=r"2 malformed row\(s\).*a\.csv"):
        do(key="id", schema="id STRING, n INT")
    result = do(key="id", schema="id STRING, n INT", on_bad="skip")
    assert result.bad == {file: 2}
    assert fine not in result.bad
    assert [key for key, _ in records(tmp_path)] == ["café".encode(), "\ufffd".encode()]


def test_csv_of_another_encoding_is_read_by_it(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.csv", b"id,n\ncaf\xe9,1\n")
    assert do(key="id", schema="id STRING, n INT", options={"encoding": "ISO-8859-1"}).bad == {}
    assert records(tmp_path)[0][0] == "café".encode()


BROKEN = b'{"id":1,"n":"caf\xe9"}'


def test_json_that_is_not_utf8_is_malformed_and_kept_byte_for_byte(do: Do, tmp_path: Path) -> None:
    file = put(tmp_path, "a.json", BROKEN + b'\n{"id":2,"n":"ok"}\n')
    with pytest.raises(InvalidArgument, match=r"1 malformed row\(s\)"):
        do(schema="id INT, n STRING")
    with falaj.open(tmp_path / "s") as store:
        store.topic("texts", codec="str")
    with pytest.raises(InvalidArgument, match="not UTF-8, which topic texts of the codec str"):
        do(schema="id INT, n STRING", on_bad="texts")
    assert do(schema="id INT, n STRING", on_bad="rejected").bad == {file: 1}
    assert records(tmp_path, "rejected") == [(file.encode(), BROKEN)]
    assert [value for _, value in records(tmp_path)] == [b'{"id":2,"n":"ok"}']


def test_a_column_of_the_schema_that_no_row_has_is_noted(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", b'{"carrier":"AA","delay":5}\n' * 3)
    result = do(schema="Carrier STRING, delay INT")
    assert len(result.notes) == 1
    assert "Carrier is in none of the 3" in result.notes[0]
    assert "did you mean 'carrier'?" in result.notes[0]


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN"])
def test_a_number_that_a_double_does_not_reach_is_malformed(
    number: str, do: Do, tmp_path: Path
) -> None:
    file = put(tmp_path, "a.json", b'{"x":%s}\n{"x":1.5}\n' % number.encode())
    assert do(on_bad="skip").bad == {file: 1}
    assert [value for _, value in records(tmp_path)] == [b'{"x":1.5}']


def test_keys_that_would_be_rounded_are_refused_and_are_exact_as_text(
    do: Do, tmp_path: Path
) -> None:
    one, other = "1" * 45, "1" * 44 + "2"
    put(tmp_path, "a.json", f'{{"id":{one}}}\n{{"id":{other}}}\n{{"id":1e400}}\n'.encode())
    with pytest.raises(InvalidArgument, match="key='id' would be read as a double"):
        do(key="id")
    assert do(key="id", schema="id STRING").bad == {}
    assert [key for key, _ in records(tmp_path)] == [one.encode(), other.encode(), b"1e400"]


@pytest.mark.parametrize("value", ['{"a":1}', "[1,2]"])
def test_an_object_or_an_array_is_no_key(value: str, do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", f'{{"id":{value}}}\n'.encode())
    with pytest.raises(InvalidArgument, match="whose text is no key"):
        do(key="id")


@pytest.mark.parametrize("time", ["2500-01-01T00:00:00Z", "1500-01-01", "12:30", "T10:00", "soon"])
def test_what_is_no_time_of_a_record_is_malformed(time: str, do: Do, tmp_path: Path) -> None:
    file = put(tmp_path, "a.json", f'{{"at":"{time}"}}\n{{"at":"2026-01-01"}}\n'.encode())
    assert do(time="at", schema="at STRING", on_bad="skip").bad == {file: 1}
    assert len(records(tmp_path)) == 1


def test_a_timestamp_beyond_nanoseconds_is_malformed(do: Do, tmp_path: Path) -> None:
    file = put(tmp_path, "a.json", b'{"at":"2500-01-01T00:00:00Z"}\n')
    assert do(time="at", schema="at TIMESTAMP", on_bad="skip").bad == {file: 1}


@pytest.mark.parametrize("partition", ['"x"', '"1.9"', '"-1"', '""', "3000000000", "2"])
def test_what_is_no_partition_is_malformed(partition: str, do: Do, tmp_path: Path) -> None:
    file = put(tmp_path, "a.json", f'{{"p":{partition}}}\n{{"p":1}}\n'.encode())
    assert do(partition="p", partitions=2, on_bad="skip").bad == {file: 1}
    assert len(records(tmp_path)) == 1


@pytest.mark.parametrize("partition", ["1.9", "true"])
def test_a_column_of_fractions_or_truths_is_no_partition(
    partition: str, do: Do, tmp_path: Path
) -> None:
    put(tmp_path, "a.json", f'{{"p":{partition}}}\n'.encode())
    with pytest.raises(InvalidArgument, match="which is no number of a partition"):
        do(partition="p")


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_an_empty_file_has_no_records(name: str, do: Do, tmp_path: Path) -> None:
    put(tmp_path, name, b"")
    assert do().records == 0


def test_a_file_without_a_good_row_is_malformed_row_by_row(do: Do, tmp_path: Path) -> None:
    file = put(tmp_path, "a.json", b"nonsense\n\n[\n")
    with pytest.raises(InvalidArgument, match="2 malformed"):
        do()
    assert do(on_bad="skip").bad == {file: 2}


def test_a_file_that_cannot_be_read_is_named_with_the_reason(do: Do, tmp_path: Path) -> None:
    file = put(tmp_path, "a.json.gz", gzip.compress(b'{"id":1}\n' * 1000)[:-12])
    with pytest.raises(InvalidArgument, match=f"^{file} cannot be read: Unexpected end"):
        do(schema="id INT")


def test_a_heading_unlike_the_schema_is_told_with_both(do: Do, tmp_path: Path) -> None:
    file = put(tmp_path, "a.csv", b"n,id\n1,2\n")
    with pytest.raises(InvalidArgument, match=rf"^{file} cannot be read: .*Header: n, id Schema"):
        do(schema="id INT, n INT")


def test_a_name_that_spark_cannot_read_is_refused(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "c:d.json", b"{}\n")
    with pytest.raises(InvalidArgument, match=r"c:d\.json has a colon in its name"):
        do()


def test_rows_come_in_the_order_of_the_paths_whatever_is_in_the_names(
    do: Do, tmp_path: Path
) -> None:
    for number, name in enumerate(["a b", "a!b", "a%20b", "a+b", "aéb"]):
        put(tmp_path, f"{name}.json", b'{"n":%d}\n' % number)
    do(schema="n INT")
    assert [value for _, value in records(tmp_path)] == [b'{"n":%d}' % n for n in range(5)]


def test_a_key_that_is_a_time_is_that_of_utc_in_any_zone(
    do: Do, spark: SparkSession, tmp_path: Path
) -> None:
    times = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00.5Z", "1960-01-01T00:00:00Z"]
    put(tmp_path, "a.json", "".join(f'{{"at":"{time}"}}\n' for time in times).encode())
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        do(key="at", schema="at TIMESTAMP")
        do(key=("at", "at"), schema="at TIMESTAMP", into="both")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert [(key or b"").decode() for key, _ in records(tmp_path)] == times
    assert records(tmp_path, "both")[0][0] == f'["{times[0]}","{times[0]}"]'.encode()


def test_a_name_that_cannot_be_leaves_no_topic_behind(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", b"{}\n")
    with pytest.raises(InvalidName):
        do(on_bad="a b")
    with falaj.open(tmp_path / "s", read_only=True) as store:
        assert list(store.topics) == []
