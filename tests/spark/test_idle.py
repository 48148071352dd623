"""A stream without news costs little, and a stream's progress says how far it is behind."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import falaj
from falaj.spark.streaming.stream import HAS_LIMITS
from spark.test_stream import fill, kept, offsets, stream

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import ReadMaxRows

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

__all__ = ["stream"]  # a fixture


def test_progress_tells_how_far_topics_reach_and_how_far_behind_the_query_is(
    path: Path, stream: Any
) -> None:
    fill(path, 1, 2, 3)
    reader = stream()
    place = kept(reader.initialOffset())
    assert reader.reportLatestOffset() == {
        "lag": 0,
        "topics": {"t": {"0": {"offset": 3, "lag": 0}}},
    }
    reader.latestOffset(place, ReadMaxRows(2) if HAS_LIMITS else None)
    fill(path, 4)
    lag = 2 if HAS_LIMITS else 1
    assert reader.reportLatestOffset() == {
        "lag": lag,
        "topics": {"t": {"0": {"offset": 4, "lag": lag}}},
    }


def test_a_stream_without_news_opens_nothing(
    path: Path, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path, 1, 2, 3)
    reader = stream()
    place = kept(reader.latestOffset(kept(reader.initialOffset())))

    def opened(*_: Any, **__: Any) -> None:
        raise AssertionError("the store was opened")

    with monkeypatch.context() as patched:
        patched.setattr(falaj, "open", opened)
        patched.setattr(falaj.Store, "topic", opened)
        assert reader.latestOffset(place) == place
        reader.reportLatestOffset()
    again = pickle.loads(pickle.dumps(reader))
    fill(path, 4)
    assert offsets(reader.latestOffset(place)) == offsets(again.latestOffset(place)) == {"t": [4]}
