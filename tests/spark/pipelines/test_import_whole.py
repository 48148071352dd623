"""Imports alter and lose no part of a file: no row, no text of a line, no digit, no folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest

import falaj
from falaj.errors import InvalidArgument, SettingsMismatch
from falaj.pipeline import ImportConfig, ImportResult, import_files
from falaj.pipeline.streaming.lookup import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Do = Callable[..., ImportResult]


@pytest.fixture
def do(spark: SparkSession, tmp_path: Path) -> Do:
    """Import `in/` into `sales`."""

    def run(**changed: Any) -> ImportResult:
        given = {"store": tmp_path / "s", "into": "sales", "source": tmp_path / "in", **changed}
        return import_files(spark, ImportConfig(**given))

    return run


def records(folder: Path, topic: str = "sales") -> list[tuple[bytes | None, bytes]]:
    with falaj.open(folder / "s", read_only=True) as store, store.any_topic(topic) as opened:
        return [(record.key, record.to_bytes()) for record in opened]


def topics(folder: Path) -> list[str]:
    with falaj.open(folder / "s", read_only=True) as store:
        return list(store.topics)


def put(folder: Path, name: str, content: str | bytes) -> str:
    file = folder / "in" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(file)


@pytest.mark.parametrize(
    "name",
    [
        "pathGlobFilter",
        "MODIFIEDAFTER",
        "modifiedBefore",
        "ignoreMissingFiles",
        "ignorecorruptfiles",
        "recursiveFileLookup",
        "mode",
        "columnNameOfCorruptRecord",
        "inferSchema",
        "basePath",
    ],
)
def test_an_option_by_which_spark_would_leave_out_files_or_rows_is_refused_by_name(
    name: str,
) -> None:
    with pytest.raises(InvalidArgument, match=f"^options has {name}, which an import decides"):
        ImportConfig(store="s", into="t", source="in", options={name: "x"})


def test_a_column_twice_in_columns_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="columns has a twice"):
        ImportConfig(store="s", into="t", source="in", columns=("a", "b", "a"))


def test_files_whose_names_spark_ignores_are_left_out_by_patterns_and_refused_by_name(
    do: Do, tmp_path: Path
) -> None:
    hidden = put(tmp_path, "_x.csv", "n\n1\n")
    put(tmp_path, "_tmp/y.csv", "n\n2\n")
    put(tmp_path, "d/z.csv", "n\n3\n")
    assert do(source=str(tmp_path / "in/**/*.csv"), schema="n INT").files == 1
    with pytest.raises(InvalidArgument, match=r"_x\.csv has a name that Spark ignores"):
        do(source=hidden, schema="n INT")


def test_a_session_that_ignores_corrupt_files_still_fails_the_import(
    do: Do, spark: SparkSession, tmp_path: Path
) -> None:
    file = put(tmp_path, "a.json.gz", b"\x1f\x8b\x08\x00 this is no gzip")
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        with pytest.raises(InvalidArgument, match=f"{file} cannot be read"):
            do(schema="n INT")
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


CUT = [
    '{"a":1}{"a":2}',
    '{"a":3} trailing',
    '{"a":1},{"a":2}',
    '{"a":1},"x":2',
    '{"a":1}],"x":[{"a":2}',
    '{"a":1}]} {',
    '[{"a":1}] 5',
    r'{"m":{"x":"\ud800"}}',
    r'{"m":{"x":"\\\uDC00\ud83d"}}',
    r'[{"m":{"\udead":"\ud83d\ude00"}}]',
]
"""Lines that Spark reads, though it drops or alters text in them."""
FINE = ['{"a":1}', ' {"a":2,"b":{"c":[1.5,null]},"m":{"x":"y}{"}} \t', "", "  "]
TYPES = "a DOUBLE, b STRUCT<c: ARRAY<DOUBLE>>, m MAP<STRING, STRING>"


ODD: list[str | bytes] = [
    "null",
    "5",
    '"x"',
    "[]",
    "[null]",
    "[1]",
    '[{"a":11},{"a":12}]',
    '[{"a":"x"}]',
    '{"a":"x"}',
    '{"a":13',
    "{}",
    "{'a':14}",
    '{"a":NaN}',
    '{"a":15,"a":16}',
    '{"a":1e400}',
    '{"A":17}',
    '{"m":{"x":null}}',
    '{"b":{"c":[1,"x"]}}',
    "// 18",
    "\xa0",
    r'{"m":{"x":"\ud83d\ude00 \\ud800 \\\\udc00"}}',
    b'{"m":{"x":"\xff"}}',
]
"""Other lines."""


def test_a_line_with_text_behind_its_value_is_malformed_and_no_other_line_is(
    do: Do, tmp_path: Path
) -> None:
    file = put(tmp_path, "a.json", "\n".join([*CUT, *FINE, '{"a":']))
    whole = put(tmp_path, "b.json", '{"a":5}')
    with pytest.raises(InvalidArgument, match=rf"^{len(CUT) + 1} malformed row\(s\).*{file}"):
        do(schema=TYPES)
    assert records(tmp_path) == []
    done = do(schema=TYPES, on_bad="rejected")
    assert (done.records, done.bad) == (3, {file: len(CUT) + 1})
    assert [json.loads(value)["a"] for _, value in records(tmp_path)] == [1, 2, 5]
    assert json.loads(records(tmp_path)[1][1])["b"] == {"c": [1.5, None]}
    rejected = records(tmp_path, "rejected")
    assert rejected == [(file.encode(), line.encode()) for line in [*CUT, '{"a":']]
    assert whole not in done.bad
    assert do(schema=TYPES, on_bad="skip").files == 0


def test_lines_beside_such_a_line_are_read_as_they_are_without_it(do: Do, tmp_path: Path) -> None:
    odd = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in ODD)
    for name, content in (("plain", odd), ("torn", odd + b"\n" + CUT[0].encode())):
        put(tmp_path, f"{name}/a.json", content)
        do(
            source=tmp_path / "in" / name,
            into=name,
            schema="a DOUBLE, b STRUCT<c: ARRAY<DOUBLE>>, m MAP<STRING, STRING>",
            on_bad=f"{name}.bad",
        )
    assert records(tmp_path, "torn") == records(tmp_path, "plain")
    plain, torn = (
        [value for _, value in records(tmp_path, f"{name}.bad")] for name in ("plain", "torn")
    )
    assert torn == [*plain, CUT[0].encode()]


def test_folders_are_columns_of_lines_beside_such_a_line(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "shop=01/value=a/a.json", '{"n":1}\n{"n":2} x\n{"n":3}\n')
    put(tmp_path, "shop=02/value=b/a.json", '{"n":4}\n')
    do(schema="shop STRING, n INT", on_bad="skip")
    assert [value for _, value in records(tmp_path)] == [
        b'{"n":1,"shop":"01","value":"a"}',
        b'{"n":3,"shop":"01","value":"a"}',
        b'{"n":4,"shop":"02","value":"b"}',
    ]


def test_numbers_that_no_double_reaches_are_malformed_at_any_depth(do: Do, tmp_path: Path) -> None:
    far = ['{"b":{"c":[1.5,1e400]}}', '{"m":{"x":-1e400}}', '{"s":[{"d":1e999}]}']
    file = put(tmp_path, "a.json", "\n".join([*far, '{"m":{"x":1}}']))
    types = "b STRUCT<c: ARRAY<DOUBLE>>, m MAP<STRING, DOUBLE>, s ARRAY<STRUCT<d: FLOAT>>"
    assert do(schema=types, on_bad="skip").bad == {file: len(far)}


def test_a_file_of_several_lines_with_a_second_value_is_malformed(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", '[{"a":1},\n{"a":2}]\n')
    options = {"multiLine": "true"}
    assert do(schema="a INT", options=options).records == 2
    bad = put(tmp_path, "b.json", '{"a":3}\n{"a":4}\n')
    with pytest.raises(InvalidArgument, match=f"1 malformed.*{bad}"):
        do(schema="a INT", options=options)
    put(tmp_path, "c.json", '{"a":\n5}')
    done = do(schema="a INT", options=options, on_bad="rejected")
    assert (done.records, done.bad) == (1, {bad: 1})
    assert records(tmp_path, "rejected") == [(bad.encode(), b'{"a":3}\n{"a":4}\n')]


def test_json_of_another_encoding_is_searched_for_text_behind_values(
    do: Do, tmp_path: Path
) -> None:
    options = {"encoding": "ISO-8859-1", "lineSep": "\n"}
    put(tmp_path, "a.json", '{"a":"é"}\n'.encode("latin-1"))
    do(options=options)
    assert [value.decode() for _, value in records(tmp_path)] == ['{"a":"é"}']
    bad = put(tmp_path, "b.json", '{"a":"è"} x\n'.encode("latin-1"))
    with pytest.raises(InvalidArgument, match="1 malformed"):
        do(options=options)
    put(tmp_path, "c.json", '{"a":"ü"}\n{"a":"ö"} x\n'.encode("latin-1"))
    assert do(options=options, on_bad="rejected").bad.keys() == {bad, str(tmp_path / "in/c.json")}
    assert records(tmp_path)[1][1].decode() == '{"a":"ü"}'
    assert [value.decode() for _, value in records(tmp_path, "rejected")] == [
        '{"a":"è"} x',
        '{"a":"ö"} x',
    ]


def test_a_table_of_json_has_no_text_behind_values_and_no_number_out_of_reach(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = put(tmp_path, "t.json", "\n".join([*CUT, FINE[0]]))
    notes: list[str] = []
    table = Source(path=tmp_path / "in/t.json", fails=False)
    assert [row["a"] for row in table.read(spark, notes.append).collect()] == [1]
    assert notes[0].startswith(f"{len(CUT)} rows of the table")
    assert '[{"a":1}] 5' in notes[0]
    strict = Source(path=tmp_path / "in/t.json")
    with pytest.raises(InvalidArgument, match=f"^{len(CUT)} rows of the table.*{file}"):
        strict.read(spark, notes.append)
    far = ['{"a":1e400}', '{"b":{"c":[1e400]}}']
    put(tmp_path, "t.json", "\n".join([*far, '{"a":1,"b":{"c":[1.0]}}']))
    assert [row["a"] for row in table.read(spark, notes.append).collect()] == [1]
    assert "2 rows of the table" in notes[1]


def test_keys_of_csv_without_a_schema_are_the_texts_of_the_file(do: Do, tmp_path: Path) -> None:
    texts = ["01234", "1234", "+1234", "9"]
    put(tmp_path, "a.csv", "id,b\n" + "".join(f"{text},TRUE\n" for text in texts))
    do(key="id", order_by="id")
    assert [key for key, _ in records(tmp_path)] == [b"9", *(t.encode() for t in texts[:3])]
    do(key="b", into="truths")
    assert {key for key, _ in records(tmp_path, "truths")} == {b"TRUE"}


def test_times_that_differ_are_different_keys_without_a_schema(do: Do, tmp_path: Path) -> None:
    times = ["2026-11-20T08:00:00.000000001Z", "2026-11-20T09:00:00+01:00", "2026-11-20 08:00:00"]
    put(tmp_path, "a.csv", "at,n\n" + "".join(f"{time},1\n" for time in times))
    do(key="at")
    assert [key for key, _ in records(tmp_path)] == [time.encode() for time in times]
    put(tmp_path, "a.json", json.dumps({"at": times[0]}))
    with pytest.raises(InvalidArgument, match="key='at' would be read as a timestamp"):
        do(
            key="at",
            into="j",
            source=str(tmp_path / "in/a.json"),
            options={"inferTimestamp": "true"},
        )


def test_a_folder_that_is_the_key_keeps_its_text(do: Do, tmp_path: Path) -> None:
    for name in ("01", "1"):
        at = tmp_path / f"in/shop={name}/a.parquet"
        at.parent.mkdir(parents=True)
        pyarrow.parquet.write_table(pyarrow.table({"n": [1]}), at)
    do(key="shop")
    assert [key for key, _ in records(tmp_path)] == [b"01", b"1"]


def test_times_in_values_are_in_utc_to_the_microsecond_in_any_zone(
    do: Do, spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "a.json", '{"at":"2026-11-20T09:00:00.123456+01:00","n":"2026-11-20T08:00:00.5"}')
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        do(schema="at TIMESTAMP, n TIMESTAMP_NTZ", key="at")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert records(tmp_path) == [
        (
            b"2026-11-20T08:00:00.123456Z",
            b'{"at":"2026-11-20T08:00:00.123456Z","n":"2026-11-20T08:00:00.500000"}',
        )
    ]


def test_another_number_of_partitions_than_the_topic_has_is_refused(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", '{"a":1}\n')
    with falaj.open(tmp_path / "s") as store:
        store.topic("sales")
    with pytest.raises(SettingsMismatch, match="topic sales has 1 partition, not 3"):
        do(schema="a INT", partitions=3)
    assert do(schema="a INT", partitions=1).records == 1


def test_an_import_that_is_refused_leaves_no_topic_behind(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.json", '{"a":1}\n')
    for given in ({"key": "b"}, {"schema": "a WHAT"}, {"time": "a"}):
        with pytest.raises(InvalidArgument):
            do(**{"schema": "a INT", "on_bad": "rejected", **given})
    assert topics(tmp_path) == []
    do(schema="a INT")
    put(tmp_path, "b.json", '{"a":2}\n')
    with pytest.raises(InvalidArgument):
        do(schema="a INT", key="b", on_bad="rejected")
    assert sorted(topics(tmp_path)) == ["sales", "sales.imports"]


@pytest.mark.parametrize(
    ("name", "content", "given", "sentence"),
    [
        ("a.json", '{"a":"1","a":"2"}', {}, "^the files have a column twice, or two that differ"),
        ("a.json", '{"A":"1","a":"2"}', {}, "^the files have a column twice, or two that differ"),
        ("a.csv", "_metadata,b\n1,2\n", {}, "a column _metadata, a name that Spark needs"),
        ("a.csv", "a,b\n1,2\n", {"schema": "a VARCHAR(4), b INT"}, "no varchar.*: write STRING"),
        ("a.csv", "a,A,b\n1,2,3\n", {}, "the heading of .* has one name twice, a and A"),
        ("a.csv", "a,a\n1,2\n", {}, "the heading of .* has one name twice, a and a"),
    ],
)
def test_names_and_types_that_spark_cannot_have_are_refused_in_a_sentence(
    name: str, content: str, given: dict[str, Any], sentence: str, do: Do, tmp_path: Path
) -> None:
    put(tmp_path, name, content)
    with pytest.raises(InvalidArgument, match=sentence):
        do(**given)


def test_a_heading_that_only_looks_renamed_is_read(do: Do, tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "a0,a1\n1,2\n")
    do()
    assert records(tmp_path) == [(None, b'{"a0":1,"a1":2}')]


def test_folders_below_a_pattern_are_columns_and_those_that_it_names_are_noted(
    do: Do, tmp_path: Path
) -> None:
    file = put(tmp_path, "x=1/a.csv", "n\n1\n")
    put(tmp_path, "x=2/a.csv", "n\n2\n")
    folder = tmp_path / "in"
    assert do(source=str(folder / "*/a.csv")).notes == ()
    values = [b'{"n":1,"x":1}', b'{"n":2,"x":2}']
    assert [value for _, value in records(tmp_path)] == values
    do(source=(str(folder / "x=1"), str(folder / "x=2")), into="two")
    assert [value for _, value in records(tmp_path, "two")] == values
    [note] = do(source=file, into="one").notes
    assert note.startswith("x=1: no column of the records")
    assert [value for _, value in records(tmp_path, "one")] == [b'{"n":1}']


def test_columns_of_folders_are_known_before_spark_starts_only_where_they_are_columns(
    tmp_path: Path,
) -> None:
    at = tmp_path / "in/x=1/a.parquet"
    at.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({"n": [1]}), at)
    for source in (tmp_path / "in", str(tmp_path / "in/*/a.parquet")):
        ImportConfig(store="s", into="t", source=source, key="x").expect()
    with pytest.raises(InvalidArgument, match="no column 'x'"):
        ImportConfig(store="s", into="t", source=at, key="x").expect()
