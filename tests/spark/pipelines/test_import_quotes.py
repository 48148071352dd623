"""Quotes in files of CSV: values are those that were written, or the file is refused."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.errors import InvalidArgument
from falaj.pipeline import ImportConfig, ImportResult, import_files
from falaj.pipeline.streaming.lookup import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Do = Callable[..., ImportResult]

VALUES = [
    'He said "hi"',
    '"',
    '""',
    '"all"',
    'x,"y"',
    '5" pipe',
    "a\\b",
    "ends\\",
    '\\"',
    "\\\\",
    " padded ",
    "'single'",
    "#hash",
    "é",
]
LINES = ["two\nlines", 'a\r\n"b",\nc\\', "\n"]


@pytest.fixture
def do(spark: SparkSession, tmp_path: Path) -> Do:
    """Import `a.csv` into `sales`."""

    def run(**changed: Any) -> ImportResult:
        given = {"store": tmp_path / "s", "into": "sales", "source": tmp_path / "a.csv", **changed}
        return import_files(spark, ImportConfig(**{"schema": "s STRING, n INT", **given}))

    return run


def put(folder: Path, text: str) -> str:
    file = folder / "a.csv"
    file.write_bytes(text.encode())
    return str(file)


def written(values: list[str], **form: Any) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, **{"lineterminator": "\n", **form})
    writer.writerow(["s", "n"])
    writer.writerows([value, number] for number, value in enumerate(values))
    return out.getvalue()


def read(folder: Path) -> list[str]:
    with falaj.open(folder / "s", read_only=True) as store, store.any_topic("sales") as topic:
        return [json.loads(record.to_bytes())["s"] for record in topic]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_values_are_those_that_were_written(do: Do, tmp_path: Path, quoting: int, end: str) -> None:
    put(tmp_path, written(VALUES, quoting=quoting, lineterminator=end))
    do()
    assert read(tmp_path) == VALUES


def test_values_of_several_lines_need_an_option_and_are_those_that_were_written(
    do: Do, tmp_path: Path
) -> None:
    file = put(tmp_path, written([*VALUES, *LINES]))
    for given in ({}, {"schema": None}, {"on_bad": "skip"}):
        with pytest.raises(InvalidArgument, match=rf"{file} has \d lines .* multiLine 'true'"):
            do(**given)
    do(options={"multiline": "true"})
    assert read(tmp_path) == [*VALUES, *LINES]


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ({"delimiter": "\t"}, {"sep": "\\t"}),
        ({"delimiter": "|"}, {"delimiter": "|"}),
        ({"quotechar": "'"}, {"quote": "'"}),
        ({"doublequote": False, "escapechar": "\\", "quoting": csv.QUOTE_ALL}, {"escape": "\\"}),
    ],
)
def test_options_say_how_values_are_quoted(
    do: Do, tmp_path: Path, form: dict[str, Any], options: dict[str, str]
) -> None:
    # Spark keeps a backslash that is itself escaped as two.
    values = [value for value in VALUES if "\\" not in value or "escape" not in options]
    put(tmp_path, written(values, **form))
    do(options=options)
    assert read(tmp_path) == values


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('"He said \\"hi\\"",1', {}),
        ('"x"y,1', {}),
        ('"open,1', {}),
        ('a,"1', {}),
        ('"x" y,1', {}),
        ('"He said ""hi""",1', {"escape": "\\"}),
        ('"ends\\",1', {"escape": "\\"}),
        ('"open,1', {"multiLine": "true"}),
        ('"x"y,1', {"multiLine": "true"}),
        ("'x'y,1", {"quote": "'"}),
    ],
)
def test_quotes_that_do_not_match_are_refused_with_what_helps(
    do: Do, tmp_path: Path, text: str, options: dict[str, str]
) -> None:
    file = put(tmp_path, f"s,n\nfine,2\n{text}\n")
    for given in ({}, {"schema": None}, {"on_bad": "rejected"}):
        with pytest.raises(InvalidArgument, match=r"a quote that does not match.* twice") as told:
            do(options=options, **given)
        assert file in str(told.value) or "one of the files" in str(told.value)
    with falaj.open(tmp_path / "s", read_only=True) as store:
        assert "sales" not in store.topics or not list(store.any_topic("sales"))


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "UTF-16"])
def test_quotes_match_in_each_encoding(do: Do, tmp_path: Path, encoding: str) -> None:
    options = {"multiLine": "true", "encoding": encoding}
    (tmp_path / "a.csv").write_bytes('s,n\n"é ""q""",1\n'.encode(encoding))
    do(options=options)
    assert read(tmp_path) == ['é "q"']
    (tmp_path / "b.csv").write_bytes('n,s\n1,"é open\n2,x\n'.encode(encoding))
    with pytest.raises(InvalidArgument, match=r"b\.csv has 1 line with a quote that does not"):
        do(options=options, source=tmp_path / "b.csv", schema="n INT, s STRING")


def test_quotes_are_text_where_no_value_begins_with_one_or_none_is_a_quote(
    do: Do, tmp_path: Path
) -> None:
    put(tmp_path, 's,n\n5" pipe,1\n a"b"c,2\n')
    do(options={"multiLine": "true"})
    assert read(tmp_path) == ['5" pipe', ' a"b"c']
    put(tmp_path, 's,n\n"open,1\n')
    do(options={"quote": ""}, on_changed="fail", into="none")
    with falaj.open(tmp_path / "s", read_only=True) as store, store.any_topic("none") as topic:
        assert json.loads(next(iter(topic)).to_bytes())["s"] == '"open'


def test_a_long_value_in_quotes_needs_no_stack(do: Do, tmp_path: Path) -> None:
    value = 'a "quoted" word, ' * 100_000
    put(tmp_path, written([value]))
    do()
    assert read(tmp_path) == [value]


def test_a_table_of_csv_has_the_values_that_were_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, written(VALUES))
    table = Source(path=tmp_path / "a.csv")
    notes: list[str] = []
    assert [row["s"] for row in table.read(spark, notes.append).collect()] == VALUES
    file = put(tmp_path, written(LINES))
    with pytest.raises(InvalidArgument, match=f"the table {file}: .*a quote that does not match"):
        table.read(spark, notes.append)
    assert notes == []
