"""Pipelines write bytes past the codec, so a topic whose codec could not read them is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from falaj.errors import InvalidArgument
from falaj.pipeline import ImportConfig, import_files
from falaj.pipeline.base.places import like

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    import falaj


def test_a_target_of_another_codec_is_refused_and_both_codecs_are_named(
    store: falaj.Store,
) -> None:
    source = store.topic("source", codec="json")
    for codec in ("msgpack", "str", "pickle"):
        store.topic(codec, codec=codec)
        with pytest.raises(
            InvalidArgument, match=f"topic {codec} has the codec {codec}.* codec json"
        ):
            like(store, codec, source)
    for codec in ("json", "bytes"):
        store.topic(codec, codec=codec)
        assert like(store, codec, source).codec == codec
    assert like(store, "new", source).codec == "json"


def test_rows_as_json_are_not_imported_into_a_topic_that_cannot_read_json(
    spark: SparkSession, store: falaj.Store, tmp_path: Path
) -> None:
    (tmp_path / "rows.json").write_text('{"a": 1}\n')
    store.topic("packed", codec="msgpack")
    told = ImportConfig(store=store.path, into="packed", source=tmp_path / "rows.json")
    with pytest.raises(InvalidArgument, match="topic packed has the codec msgpack"):
        import_files(spark, told)
    assert len(store.any_topic("packed")) == 0
