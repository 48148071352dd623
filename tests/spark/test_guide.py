"""docs/guide/spark.md tells the options and columns that there are, pipelines.md the pipelines."""

from __future__ import annotations

import re

import pytest

from falaj.cli.commands.pipeline import GROUP
from falaj.errors import InvalidArgument
from falaj.spark.reading.columns import schema
from falaj.spark.reading.options import ReadOptions
from falaj.spark.writing import columns as sink_columns
from falaj.spark.writing import options as sink_options
from house import ROOT, table_keys

GUIDE = (ROOT / "docs/guide/spark.md").read_text()


def test_the_guide_lists_the_options_that_there_are() -> None:
    with pytest.raises(InvalidArgument) as raised:
        ReadOptions.parse({"unknown": ""})
    _, _, options = str(raised.value).partition("takes ")
    assert table_keys(GUIDE, "Options") == options.split(", ")


def test_the_guide_lists_the_columns_that_there_are() -> None:
    asked = {"includeHeaders": "true", "includeOrigin": "true"}
    columns = schema(ReadOptions.parse({"store": "s", "subscribe": "t", **asked}))
    assert table_keys(GUIDE, "Columns") == columns.names
    for name in columns.names[:-1]:
        kind = columns[name].dataType.simpleString().replace("bigint", "long")
        assert f"| `{name}` | {kind} |" in GUIDE


def test_the_guide_lists_what_writing_takes() -> None:
    assert table_keys(GUIDE, "Writing") == [*sink_columns.NAMES, *sink_options.NAMES]


def test_the_guide_lists_the_pipelines_that_there_are() -> None:
    guide = (ROOT / "docs/guide/pipelines.md").read_text()
    listed = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \|", guide, re.M)
    assert {name for name, _ in listed} == set(GROUP.commands)
    for name, anchor in listed:
        assert anchor == name
        assert f"\n## {name.capitalize()}\n" in guide
