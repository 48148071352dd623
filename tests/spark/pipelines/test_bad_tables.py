"""Tables of a join with rows that cannot be read: named, or left out and reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from falaj.errors import InvalidArgument
from falaj.pipeline.streaming.lookup import Source

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    import falaj


def rows(frame: DataFrame) -> list[dict[str, object]]:
    return sorted((row.asDict() for row in frame.collect()), key=str)


FILES = {
    "broken.json": (
        b'{"id": 1, "n": "a"}\n{"id": 2,\n',
        [{"id": 1, "n": "a"}],
        r'1 row of the table .*/broken\.json cannot be read.*: \{"id": 2,',
    ),
    "bytes.json": (
        b'{"id": 1, "n": "a"}\n{"id": 2, "n": "caf\xe9"}\n',
        [{"id": 1, "n": "a"}],
        r"1 row of the table .*/bytes\.json cannot be read",
    ),
    "ragged.csv": (
        b"id,n\n1,a\n2,b,c\n3\n",
        [{"id": "1", "n": "a"}],
        r"2 rows of the table .*/ragged\.csv cannot be read.*: 2,b,c",
    ),
    "bytes.csv": (
        b"\xef\xbb\xbfid,caf\xc3\xa9\n1,\xc3\xa9\n2,caf\xe9\n3,-\n",
        [{"id": "1", "café": "é"}, {"id": "3", "café": None}],
        r"1 row of the table .*/bytes\.csv cannot be read",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_row_of_a_file_that_cannot_be_read_is_named_or_left_out_and_reported(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    content, wanted, sentence = FILES[name]
    (tmp_path / name).write_bytes(content)
    notes: list[str] = []
    with pytest.raises(InvalidArgument, match=f"{sentence}.*on_bad='skip'"):
        Source(path=tmp_path / name, null="-").read(spark, notes.append)
    assert notes == []
    frame = Source(path=tmp_path / name, null="-", fails=False).read(spark, notes.append)
    assert rows(frame) == wanted
    [note] = notes
    assert note.endswith("; they were left out")


@pytest.mark.parametrize("schema", ["n INT", None])
def test_a_bad_value_of_a_topic_counts_only_where_it_is_the_last_of_its_key(
    spark: SparkSession, store: falaj.Store, schema: str | None
) -> None:
    topic = store.topic("table")
    columns = ("CAST(record.key AS STRING) AS id", "n" if schema else "value AS n")
    source = Source(store=store.path, topic="table", schema=schema, columns=columns)
    notes: list[str] = []
    topic.append(b'"\xff', key=b"a")
    with pytest.raises(InvalidArgument, match=r"table cannot be read.* offset 0 of partition 0"):
        source.read(spark, notes.append)
    topic.append(b'{"n":1}' if schema else b"1", key=b"a")
    assert rows(source.read(spark, notes.append)) == [{"id": "a", "n": 1 if schema else "1"}]
    assert notes == []
    topic.append(b"\xff", key=b"b")
    skips = Source(store=store.path, topic="table", schema=schema, columns=columns, fails=False)
    assert [row["id"] for row in rows(skips.read(spark, notes.append))] == ["a"]
    [note] = notes
    assert "1 row of the table table cannot be read, the first: offset 2 of partition 0" in note
