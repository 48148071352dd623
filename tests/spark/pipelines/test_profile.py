"""The figures of a topic's profile, against the same by plain Python, and its page."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falaj
from demo.test_report import Tags
from falaj.errors import InvalidArgument, OffsetOutOfRange, SystemCallFailed
from falaj.pipeline import ProfileConfig, ProfileResult, profile
from falaj.pipeline.profiling import figures
from falaj.pipeline.profiling import run as profiling
from falaj.pipeline.profiling.figures import US, Bucket
from spark.pipelines.conftest import TOPIC

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark.pipelines.conftest import Flown

HOUR_NS = 3_600 * 10**9


@pytest.fixture(scope="module")
def found(
    spark: SparkSession, january: Flown, tmp_path_factory: pytest.TempPathFactory
) -> ProfileResult:
    html = tmp_path_factory.mktemp("profile") / "january.html"
    return profile(spark, ProfileConfig(store=january.store, topic=TOPIC, top=5, html=html))


def records_of(flown: Flown) -> list[Any]:
    with falaj.open(flown.store, read_only=True) as store:
        topic = store.any_topic(TOPIC)
        return [record for p in topic.partitions for record in topic.partition(p)]


def gini(counts: list[int]) -> float:
    """By its definition: the mean difference of all pairs, by twice the mean."""
    n, mean = len(counts), sum(counts) / len(counts)
    return sum(abs(a - b) for a in counts for b in counts) / (2 * n * n * mean)


def held_against(found: ProfileResult, records: list[Any]) -> None:
    """Compare all figures with those of plain Python."""
    sizes = sorted(len(record) for record in records)
    payload = [len(r) + len(r.key or b"") for r in records]
    assert (found.records, found.bytes) == (len(records), sum(payload))
    assert (found.first, found.last) == (
        min(r.timestamp for r in records),
        max(r.timestamp for r in records),
    )
    hours = Counter(r.timestamp_ns // HOUR_NS for r in records)
    assert [(hour.start.timestamp() // 3600, hour.records) for hour in found.hours] == sorted(
        hours.items()
    )
    assert sum(hour.bytes for hour in found.hours) == sum(payload)
    empty = set(range(min(hours), max(hours) + 1)) - set(hours)
    assert sum(each.hours for each in found.missing) == len(empty)
    held_against_keys(found, records)
    assert found.sizes is not None
    assert found.sizes.mean == pytest.approx(statistics.mean(sizes))
    assert found.sizes.largest == sizes[-1]
    assert found.sizes.median == sizes[(len(sizes) - 1) // 2]
    assert found.sizes.p99 == sizes[-(-99 * len(sizes) // 100) - 1]
    times = sorted(r.timestamp_ns for r in records)
    longest = sorted((b - a for a, b in pairwise(times)), reverse=True)
    assert [round(p.seconds * 10**9) for p in found.pauses] == longest[: len(found.pauses)]
    late = 0
    for partition in found.partitions:
        mine = [r for r in records if r.partition == partition.partition]
        newest = list(accumulate((r.timestamp_ns for r in mine), max))
        behind = [top - r.timestamp_ns for top, r in zip(newest, mine, strict=True)]
        assert partition.records == len(mine)
        assert partition.late == sum(map(bool, behind))
        assert round(partition.latest * 10**9) == max(behind)
        late += partition.late
    assert found.late == late


def held_against_keys(found: ProfileResult, records: list[Any]) -> None:
    keys = Counter(r.key for r in records if r.key is not None)
    assert found.keys.distinct == len(keys)
    assert found.keys.without == sum(r.key is None for r in records)
    by_count = sorted(keys.items(), key=lambda item: (-item[1], item[0]))
    assert [(k.key.encode(), k.records) for k in found.keys.top] == by_count[: len(found.keys.top)]
    assert found.keys.top[0].share == pytest.approx(by_count[0][1] / len(records))
    assert found.keys.gini == pytest.approx(gini(list(keys.values())))


def test_figures_of_january_are_those_of_plain_python(found: ProfileResult, january: Flown) -> None:
    held_against(found, records_of(january))
    assert len(found.pauses) == 5
    assert found.late > 1_000, "flights of the file are not in the order of their schedule"
    assert all(each.ratio > 3 for each in found.compression)
    assert json.loads(json.dumps(found.to_dict()))["keys"]["distinct"] == found.keys.distinct
    names = dict(found.rows())
    assert names["records"] == f"{january.records:,}"
    assert names["partition 2"].startswith(f"{found.partitions[2].records:,} records")


def test_the_page_is_whole_and_takes_nothing_from_elsewhere(found: ProfileResult) -> None:
    assert found.html is not None
    page = found.html.read_text("utf-8")
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not re.search(r"@import|url\((?!#)|https?://(?!www\.w3\.org)", page)
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) == 5
    for drawing in drawings:
        ElementTree.fromstring(drawing.replace("xlink:", ""))
        assert not re.search(r"#(?!fff)[0-9a-f]{6}\b", re.sub(r'(href="|url\()#\w+', "", drawing))
    used = set(re.findall(r"var\((--[\w-]+)\)", page))
    assert used <= set(re.findall(r"(--[\w-]+): light-dark\(", page))
    text = re.sub(r"<[^>]+>", " ", page)
    assert found.keys.top[0].key in text
    assert f"{found.records:,}" in text
    assert list(found.html.parent.iterdir()) == [found.html]


def test_odd_records_are_counted_and_their_keys_are_no_markup(
    spark: SparkSession, store: falaj.Store, tmp_path: Path
) -> None:
    topic = store.partitioned_topic("odd", partitions=2)
    topic.append(b"", key=b"<b>$x$\x00", timestamp_ns=10 * 10**9, partition=1)
    topic.append(b"x" * 70_000, key=b"<b>$x$\x00", timestamp_ns=-5_500_000_000, partition=1)
    topic.append(
        b"x", headers=[("h", b"12"), ("i", None)], timestamp_ns=10_002_000_000, partition=1
    )
    with topic.bulk_load("tombstone") as job:
        job.tombstone(b"\xff", timestamp_ns=7 * 10**9, partition=1)
    html = tmp_path / "odd.html"
    found = profile(spark, ProfileConfig(store=store.path, topic="odd", html=html))
    assert (found.records, found.bytes, found.tombstones) == (4, 70_020, 1)
    assert [p.records for p in found.partitions] == [0, 4]
    assert (found.late, found.latest) == (2, 15.5)
    assert found.partitions[1].first == datetime(1969, 12, 31, 23, 59, 54, 500_000, tzinfo=UTC)
    assert [round(p.seconds, 3) for p in found.pauses] == [12.5, 3, 0.002]
    assert [hour.records for hour in found.hours] == [1, 3]
    assert found.keys.without == 1
    assert [key.key for key in found.keys.top] == ["<b>$x$\\x00", "\\xff"]
    page = html.read_text("utf-8")
    assert "<b>$x$" not in page
    assert "&lt;b&gt;$x$\\x00" in page
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(drawing.replace("xlink:", ""))


def test_an_empty_range_has_a_profile_too(
    spark: SparkSession, january: Flown, tmp_path: Path
) -> None:
    html = tmp_path / "none.html"
    asked = ProfileConfig(store=january.store, topic=TOPIC, start="2031-01-01T00:00Z", html=html)
    found = profile(spark, asked)
    assert (found.records, found.first, found.sizes, found.keys.gini) == (0, None, None, None)
    assert found.rows()[1] == ("records", "0")
    assert "No record is in the range" in html.read_text()


def test_what_cannot_be_right_is_refused(
    spark: SparkSession, january: Flown, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument, match="top is how many"):
        ProfileConfig(store="s", topic="t", top=0)
    with pytest.raises(OffsetOutOfRange):
        profile(spark, ProfileConfig(store=january.store, topic=TOPIC, start=10**9))
    for html, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "no/page.html", "there is no folder"),
    ):
        for check in (ProfileConfig.expect, lambda wanted: profile(spark, wanted)):
            with pytest.raises(InvalidArgument, match=f"html is {html}.*{said}"):
                check(ProfileConfig(store=january.store, topic=TOPIC, html=html))
    file = tmp_path / "nowhere" / "page.html"
    with pytest.raises(SystemCallFailed, match="cannot write the page") as raised:
        profiling._write(file, "<html>")
    assert raised.value.path == str(file)


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**6) | st.integers(200, 300), min_size=1))
def test_each_size_is_in_one_bar(sizes: list[int]) -> None:
    found = figures.sizes(Counter(sizes).items())
    assert found is not None
    for low, high, count in found.histogram:
        assert count == sum(low <= size < high for size in sizes) > 0
    assert sum(count for *_, count in found.histogram) == len(sizes)


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60))
def test_gini_and_lorenz_are_those_of_their_definitions(counts: list[int]) -> None:
    found = figures.keys(Counter(counts).items(), 0, (), points=10_000)
    assert found.gini == pytest.approx(gini(counts), abs=1e-12)
    rising = sorted(counts)
    for share, records in found.lorenz:
        assert records == pytest.approx(sum(rising[: round(share * len(rising))]) / sum(rising))


@settings(deadline=None)
@given(st.lists(st.integers(0, 400_000), min_size=1, max_size=50), st.integers(1, 20))
def test_pauses_of_buckets_are_the_longest_of_records(times: list[int], top: int) -> None:
    step, times = 1_000, sorted(times)
    buckets: dict[int, Bucket] = {}
    for at in times:
        known = buckets.get(at // step, Bucket(at - at % step, 0, 0, at, at))
        buckets[at // step] = known._replace(records=known.records + 1, last=at)
    spans = [b - a for a, b in pairwise(times) if b - a >= step]
    found = figures.pauses(buckets.values(), step, top)
    assert [round(pause.seconds * US) for pause in found] == sorted(spans, reverse=True)[:top]


def test_bars_over_time_are_not_too_many_whatever_the_span() -> None:
    for span in (0, 1, 10, 3_600, 86_400 * 3, 86_400 * 365, 86_400 * 365 * 60):
        step = figures.step_for(span * US)
        width = max(span * US // 50 // step * step, step)
        buckets = [Bucket(at, 1, 1, at, at) for at in range(0, span * US + 1, width)]
        seconds, bars = figures.slots(buckets, step)
        assert seconds * US >= step
        assert span / seconds <= figures.SLOTS_MAX
        assert sum(bar.records for bar in bars) == len(buckets)
    assert figures.slots([], US) == (3_600.0, ())
    assert figures.moment(0) + timedelta(hours=1) == figures.moment(3_600 * US)


@pytest.mark.release
def test_figures_of_the_year_are_those_of_plain_python(spark: SparkSession, flights: Flown) -> None:
    held_against(
        profile(spark, ProfileConfig(store=flights.store, topic=TOPIC)), records_of(flights)
    )
