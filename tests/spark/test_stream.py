"""The stream as plain Python: where it stands, what is gone, how much is admitted, cursors."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition

import falaj
from falaj.errors import (
    CorruptData,
    InvalidArgument,
    InvalidName,
    LogTruncated,
    OffsetOutOfRange,
    PermissionDenied,
    TopicDeleted,
    UnknownTopic,
)
from falaj.spark.streaming import checkpoint
from falaj.spark.streaming.stream import HAS_LIMITS
from spark.conftest import needs_limits
from spark.drivers import topic_of

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
else:  # PySpark 4.1 says nothing, where others say this

    def ReadAllAvailable() -> None:  # noqa: N802
        """Stand for all there is."""


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from falaj.spark.streaming.stream import FalajStreamReader

    Streams = Callable[..., FalajStreamReader]
    Offset = dict[str, Any]


def kept(offset: Offset) -> Offset:
    """Make what a checkpoint gives back."""
    again: Offset = json.loads(json.dumps(offset))
    return again


def step(
    stream: FalajStreamReader, start: Offset, most: int | None = None
) -> tuple[list[Any], Offset]:
    """Do one micro-batch as Spark does; return the values and where it ended."""
    if most is not None and not HAS_LIMITS:
        pytest.skip("NOT RUN: this PySpark knows no limits of micro-batches")
    limit = ReadAllAvailable() if most is None else ReadMaxRows(most)
    end = kept(stream.latestOffset(start, limit))
    return between(stream, start, end), end


def between(stream: FalajStreamReader, start: Offset, end: Offset) -> list[Any]:
    worker = pickle.loads(pickle.dumps(type(stream)(stream.options, stream.schema)))
    batches = [b for piece in stream.partitions(start, end) for b in worker.read(piece)]
    return [value for batch in batches for value in batch["value"].to_pylist()]


def offsets(offset: Offset) -> dict[str, list[int]]:
    return {
        name: [place["offset"] for place in standing["partitions"].values()]
        for name, standing in offset["topics"].items()
    }


def fill(path: Path, *numbers: int, topic: str = "t", partitions: int | None = None) -> None:
    with falaj.open(path) as store, topic_of(store, topic, partitions) as opened:
        for n in numbers:
            opened.append(b"%d" % n)
        opened.flush()


@pytest.fixture
def stream(path: Path, streams: Streams) -> Callable[..., FalajStreamReader]:
    def make(**options: str) -> FalajStreamReader:
        if "subscribePattern" not in options:
            options.setdefault("subscribe", "t")
        return streams(path, startingOffsets="earliest", **options)

    return make


# --- Where it stands ------------------------------------------------------------------------------


def test_batches_follow_each_other_without_gap_or_repeat(path: Path, stream: Any) -> None:
    fill(path, 1, 2, 3)
    reader = stream()
    start = kept(reader.initialOffset())
    first, middle = step(reader, start)
    fill(path, 4, 5)
    second, end = step(reader, middle)
    assert (first, second) == ([b"1", b"2", b"3"], [b"4", b"5"])
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert between(reader, end, end) == []


def test_a_batch_that_is_planned_again_after_a_restart_is_the_same(path: Path, stream: Any) -> None:
    fill(path, 1, 2, 3)
    reader = stream()
    start = kept(reader.initialOffset())
    values, end = step(reader, start)
    fill(path, 4)
    assert between(stream(), start, end) == values


def test_the_place_is_a_function_of_generation_and_offsets(path: Path, stream: Any) -> None:
    fill(path, 1, 2, partitions=2)
    fill(path, topic="a")
    end = step(reader := stream(subscribe="t,a"), kept(reader.initialOffset()))[1]
    with falaj.open(path, read_only=True) as store, store.any_topic("t") as topic:
        assert end["topics"]["t"]["generation"] == topic.generation
    assert offsets(end) == {"a": [0], "t": [1, 1]}
    assert end["topics"]["a"]["partitions"]["0"] == {"offset": 0, "after": ""}
    again = checkpoint.encode(checkpoint.decode(end), checkpoint.beginning(end))
    assert json.dumps(again) == json.dumps(end)


@pytest.mark.parametrize(
    ("offset", "sentence"),
    [
        ({"version": 2, "topics": {}}, "holds places of version 2, and this falaj knows version 1"),
        ({"orders": {"0": 17}}, "new checkpointLocation, and startingTimestamp where"),
        ({"version": 1, "topics": {"t": {"generation": "x"}}}, "does not hold places of a falaj"),
        ({"version": 1, "topics": []}, "does not hold places of a falaj stream"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    path: Path, stream: Any, offset: Offset, sentence: str
) -> None:
    fill(path, 1)
    with pytest.raises(InvalidArgument, match=sentence):
        stream().latestOffset(offset, ReadAllAvailable())


def test_a_stream_begins_where_it_is_told(path: Path, streams: Streams) -> None:
    fill(path, 1, 2, 3, 4)
    with falaj.open(path) as store:
        times = [record.timestamp_ns // 1_000_000 for record in store.any_topic("t")]
    for options, begins in (
        ({}, 4),
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": '{"t": {"0": 3}}'}, 3),
        ({"startingOffsets": '{"t": {"0": -1}}'}, 4),
        ({"startingTimestamp": str(times[0])}, 0),
        ({"startingOffsetsByTimestamp": json.dumps({"t": {"0": times[0]}})}, 0),
    ):
        stream = streams(path, subscribe="t", **options)
        assert offsets(stream.initialOffset()) == {"t": [begins]}
    with pytest.raises(OffsetOutOfRange, match="says 9 for topic t, partition 0, which is not wr"):
        streams(path, subscribe="t", startingOffsets='{"t": {"0": 9}}').initialOffset()
    with pytest.raises(InvalidArgument, match="must name every topic, and t is missing"):
        streams(path, subscribePattern="t", startingOffsets="{}").initialOffset()
    with pytest.raises(UnknownTopic):
        streams(path, subscribe="nobody").initialOffset()


@pytest.mark.parametrize(
    ("starting", "first"), [("latest", [b"3"]), ("earliest", [b"1", b"2", b"3"])]
)
def test_a_first_batch_that_was_not_done_is_the_same_after_a_restart(
    path: Path, streams: Streams, starting: str, first: list[bytes]
) -> None:
    options = {"subscribe": "t", "startingOffsets": starting}
    fill(path, 1, 2)
    died = streams(path, **options)
    begin = kept(died.initialOffset())
    if starting == "latest":
        assert died.latestOffset(begin, ReadAllAvailable()) == begin
    fill(path, 3)
    end = step(died, begin)[1]
    fill(path, 4)
    again = streams(path, **options)
    assert between(again, kept(again.initialOffset()), end) == first
    assert not again.partitions(end, end)
    following = step(again, end)[1]
    assert kept(again.latestOffset(following, ReadAllAvailable())) == following
    assert between(streams(path, **options), end, following) == [b"4"]


def test_what_power_may_take_back_is_not_read_unless_that_is_asked_for(
    path: Path, stream: Any
) -> None:
    with falaj.open(path) as store:
        topic = store.topic("t", sync_interval_ms=60_000)
        topic.append(b"kept", sync="durable")
        topic.append(b"perhaps", sync="none")
        careful, bold = stream(), stream(visibility="visible")
        start = kept(careful.initialOffset())
        assert step(careful, start)[0] == [b"kept"]
        values, ahead = step(bold, start)
        assert values == [b"kept", b"perhaps"]
        # Told to be careful from now on it waits, and reads nothing twice.
        assert careful.latestOffset(ahead, ReadAllAvailable()) == ahead


def test_topics_that_begin_to_match_are_read_from_their_first_record(
    path: Path, stream: Any
) -> None:
    fill(path, 1, topic="orders-eu")
    reader = stream(subscribePattern="orders-.*")
    _, place = step(reader, kept(reader.initialOffset()))
    fill(path, 2, 3, topic="orders-us")
    fill(path, 4, topic="bills")
    values, place = step(reader, place)
    assert values == [b"2", b"3"]
    assert offsets(place) == {"orders-eu": [1], "orders-us": [2]}


def test_a_pattern_that_matches_nothing_yet_waits(path: Path, stream: Any) -> None:
    fill(path, 1, topic="bills")
    reader = stream(subscribePattern="orders-.*")
    values, place = step(reader, kept(reader.initialOffset()))
    assert (values, offsets(place)) == ([], {})
    fill(path, 2, topic="orders-us")
    assert step(reader, place)[0] == [b"2"]


# --- What is gone ---------------------------------------------------------------------------------


def trim(path: Path, before: int) -> None:
    with falaj.open(path) as store:
        store.topic("t").trim(before_offset=before)


def make_anew(path: Path, *numbers: int) -> None:
    with falaj.open(path) as store:
        store.delete_topic("t")
    fill(path, *numbers)


def goes_on(
    stream: Any, caplog: pytest.LogCaptureFixture, place: Offset
) -> tuple[list[Any], list[str]]:
    """Read as a query that may lose records, in all batches to come; return what it says too."""
    reader = stream(failOnDataLoss="false")
    found, again = step(reader, place)
    assert step(reader, again)[0] == []
    told = [record.getMessage() for record in caplog.records if record.name == "falaj.spark"]
    assert all(sentence.endswith("; the query goes on from what is there") for sentence in told)
    return found, told


@pytest.fixture
def read_three(path: Path, stream: Any) -> Offset:
    """A place behind three of six records."""
    fill(path, 1, 2, 3, 4, 5, 6)
    reader = stream()
    values, place = step(reader, kept(reader.initialOffset()), most=3)
    assert values == [b"1", b"2", b"3"]
    return place


CHOICES = (
    ": start the query with a new checkpointLocation, or let it go on from what is there with "
    ".option('failOnDataLoss', 'false')"
)


def test_records_trimmed_before_they_were_read(
    path: Path, stream: Any, read_three: Offset, caplog: pytest.LogCaptureFixture
) -> None:
    trim(path, 3)  # all of them were read
    assert step(stream(), read_three)[0] == [b"4", b"5", b"6"]
    trim(path, 5)
    with pytest.raises(OffsetOutOfRange) as raised:
        stream().latestOffset(read_three, ReadAllAvailable())
    sentence = "topic t, partition 0: records 3 to 5 were trimmed before they were read"
    assert str(raised.value) == sentence + CHOICES
    values, [told] = goes_on(stream, caplog, read_three)
    assert values == [b"6"]
    assert told.startswith(sentence)


def test_trimming_what_was_read_makes_no_batch(path: Path, stream: Any, read_three: Offset) -> None:
    _, place = step(stream(), read_three)
    trim(path, 6)
    assert stream().latestOffset(place, ReadAllAvailable()) == place


def test_damage_before_a_place_does_not_keep_the_stream_from_going_on(
    path: Path, stream: Any, read_three: Offset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: Any) -> tuple[int, int]:
        raise CorruptData("the block before it")

    monkeypatch.setattr(checkpoint, "position_of", damaged)
    fresh = stream()
    values, place = step(fresh, kept(fresh.initialOffset()))
    assert len(values) == 6
    assert place["topics"]["t"]["partitions"]["0"] == {"offset": 6, "after": ""}


def test_records_trimmed_between_the_end_of_a_batch_and_its_planning(
    path: Path, stream: Any, read_three: Offset, caplog: pytest.LogCaptureFixture
) -> None:
    reader, lenient = stream(), stream(failOnDataLoss="false")
    end = kept(reader.latestOffset(read_three, ReadAllAvailable()))
    trim(path, 5)
    with pytest.raises(OffsetOutOfRange, match="records 3 to 5 were trimmed"):
        reader.partitions(read_three, end)
    assert between(lenient, read_three, end) == [b"6"]
    assert "records 3 to 5 were trimmed" in caplog.text


def test_a_topic_made_anew(
    path: Path, stream: Any, read_three: Offset, caplog: pytest.LogCaptureFixture
) -> None:
    make_anew(path, 7, 8, 9, 10)
    with pytest.raises(TopicDeleted) as raised:
        stream().latestOffset(read_three, ReadAllAvailable())
    sentence = (
        "topic t was deleted and created again, and what the query did not read of the old one"
    )
    assert str(raised.value).startswith(sentence)
    assert str(raised.value).endswith(CHOICES)
    values, [told] = goes_on(stream, caplog, read_three)
    assert values == [b"7", b"8", b"9", b"10"]
    assert told.startswith(sentence)


def test_a_topic_made_anew_between_the_end_of_a_batch_and_its_planning(
    path: Path, stream: Any, read_three: Offset
) -> None:
    reader, lenient = stream(), stream(failOnDataLoss="false")
    end = kept(reader.latestOffset(read_three, ReadAllAvailable()))
    make_anew(path, 7, 8)
    with pytest.raises(TopicDeleted, match="topic t was deleted and created again"):
        reader.partitions(read_three, end)
    assert between(lenient, read_three, end) == []
    assert step(lenient, end)[0] == [b"7", b"8"]


def test_a_topic_deleted(
    path: Path, stream: Any, read_three: Offset, caplog: pytest.LogCaptureFixture
) -> None:
    with falaj.open(path) as store:
        store.delete_topic("t")
    with pytest.raises(TopicDeleted, match="topic t was deleted, and what the query did not"):
        stream().latestOffset(read_three, ReadAllAvailable())
    with pytest.raises(TopicDeleted, match="topic t was deleted, and what the query did not"):
        stream().partitions(read_three, read_three)
    values, [told] = goes_on(stream, caplog, read_three)
    assert values == []
    assert told.startswith("topic t was deleted")


def test_a_topic_that_is_left_out_of_subscribe_keeps_its_place(
    path: Path, stream: Any, read_three: Offset, caplog: pytest.LogCaptureFixture
) -> None:
    fill(path, 7, topic="other")
    values, place = step(stream(subscribe="other"), read_three)
    assert (values, offsets(place)) == ([b"7"], {"other": [1], "t": [3]})
    assert "topic t is in the checkpoint and not read: the query keeps its place" in caplog.text
    assert step(stream(subscribe="other,t"), place)[0] == [b"4", b"5", b"6"]


@pytest.mark.parametrize("left", [{"subscribe": "other"}, {"subscribePattern": "o.*"}])
def test_a_topic_that_is_left_out_may_be_deleted_and_is_missed_when_it_returns(
    path: Path, stream: Any, read_three: Offset, left: dict[str, str]
) -> None:
    fill(path, 7, topic="other")
    place = step(stream(**left), read_three)[1]
    with falaj.open(path) as store:
        store.delete_topic("t")
    fill(path, 8, topic="other")
    values, place = step(stream(**left), place)
    assert values == [b"8"]
    with pytest.raises(TopicDeleted, match="topic t was deleted, and what the query did not"):
        step(stream(subscribe="other,t"), place)
    fill(path, 9, topic="t")
    with pytest.raises(TopicDeleted, match="topic t was deleted and created again"):
        step(stream(subscribe="other,t"), place)


def test_a_batch_that_was_planned_with_a_topic_is_the_same_without_it(
    path: Path, stream: Any, read_three: Offset
) -> None:
    fill(path, 7, topic="other")
    end = kept(stream().latestOffset(read_three, ReadAllAvailable()))
    assert between(stream(subscribe="other"), read_three, end) == [b"4", b"5", b"6"]


def older_copy(path: Path, stream: Any, *numbers: int) -> Offset:
    """Read behind a copy, put the copy back, and append other records to it."""
    fill(path, 1, 2)
    shutil.copytree(path, path.with_name("copy"))
    fill(path, 3, 4)
    reader = stream()
    place = step(reader, kept(reader.initialOffset()))[1]
    shutil.rmtree(path)
    path.with_name("copy").rename(path)
    fill(path, *numbers)
    return place


def test_a_log_that_lost_its_end(path: Path, stream: Any, caplog: pytest.LogCaptureFixture) -> None:
    place = older_copy(path, stream, 5)
    with pytest.raises(LogTruncated) as raised:
        stream().latestOffset(place, ReadAllAvailable())
    sentence = "topic t, partition 0 ends at 3, and the query has read up to 4: its log lost its"
    assert str(raised.value).startswith(sentence)
    reader = stream(failOnDataLoss="false")
    values, place = step(reader, place)
    assert values == []
    assert sentence in caplog.text
    fill(path, 6, 7)  # from the end on nothing is passed over
    assert step(reader, place)[0] == [b"6", b"7"]


def test_a_log_that_holds_other_records_where_the_query_was(
    path: Path, stream: Any, caplog: pytest.LogCaptureFixture
) -> None:
    place = older_copy(path, stream, 5, 6, 7)
    with pytest.raises(LogTruncated) as raised:
        stream().latestOffset(place, ReadAllAvailable())
    sentence = "topic t, partition 0 holds other records before offset 4 than those that the query"
    assert str(raised.value).startswith(sentence)
    with pytest.raises(LogTruncated, match="holds other records before offset 4"):
        stream().partitions(place, place)
    values, [told] = goes_on(stream, caplog, place)
    assert values == [b"7"]
    assert told.startswith(sentence)


# --- How much is admitted -------------------------------------------------------------------------


@needs_limits
def test_batches_are_limited_and_spark_is_told_of_it(path: Path, stream: Any) -> None:
    fill(path, *range(10), partitions=2)
    reader = stream(maxOffsetsPerTrigger="4")
    assert reader.getDefaultReadLimit() == ReadMaxRows(4)
    assert stream().getDefaultReadLimit() == ReadAllAvailable()
    place, sizes = kept(reader.initialOffset()), []
    while (found := step(reader, place, most=4))[0]:
        sizes.append(len(found[0]))
        place = found[1]
    assert sizes == [4, 4, 2]
    # Spark may want all of it, whatever the option says.
    assert len(step(stream(maxOffsetsPerTrigger="4"), kept(reader.initialOffset()))[0]) == 10


@needs_limits
def test_available_now_ends_at_what_there_was(path: Path, stream: Any) -> None:
    fill(path, 1, 2, 3, topic="orders-eu")
    reader = stream(subscribePattern="orders-.*")
    place = kept(reader.initialOffset())
    reader.prepareForTriggerAvailableNow()
    fill(path, 4, topic="orders-eu")
    fill(path, 5, topic="orders-us")
    first, place = step(reader, place, most=2)
    second, place = step(reader, place, most=2)
    third, place = step(reader, place, most=2)
    assert (first, second, third) == ([b"1", b"2"], [b"3"], [])
    assert reader.latestOffset(place, ReadMaxRows(2)) == place
    assert step(stream(subscribePattern="orders-.*"), place)[0] == [b"4", b"5"]


def test_a_micro_batch_is_cut_into_as_many_tasks_as_asked_for(path: Path, stream: Any) -> None:
    fill(path, *range(100))
    reader = stream(minPartitions="4")
    start = kept(reader.initialOffset())
    end = kept(reader.latestOffset(start, ReadAllAvailable()))
    assert len(reader.partitions(start, end)) == 4
    assert list(reader.read(InputPartition(None))) == []


def test_a_pyspark_without_limits_reads_all_there_is(path: Path) -> None:
    fill(path, 1, 2, 3)
    program = f"""
import sys, pyspark.sql.datasource
sys.modules["pyspark.sql.streaming.datasource"] = None  # as in PySpark 4.1
from falaj.errors import InvalidArgument
from falaj.spark.source import FalajSource
def stream(**options):
    given = dict(store={str(path)!r}, subscribe="t", startingOffsets="earliest")
    source = FalajSource(given | options)
    return source.streamReader(source.schema())
reader = stream()
start, end = reader.initialOffset(), reader.latestOffset()
[piece] = reader.partitions(start, end)
print(sum(batch.num_rows for batch in reader.read(piece)))
try:
    stream(maxOffsetsPerTrigger="5")
except InvalidArgument as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert (done.stdout.splitlines() or done.stderr) == [
        "3",
        "option maxOffsetsPerTrigger needs PySpark 4.2 or newer: upgrade it",
    ]


# --- Cursors --------------------------------------------------------------------------------------


def cursors(path: Path, name: str = "spark") -> dict[tuple[str, int], int]:
    with falaj.open(path, read_only=True) as store:
        [found] = [c for c in store.info()["groups"] if c["name"] == name]
        return {(c["topic"], c["partition"]): c["committed"] for c in found["partitions"]}


@needs_limits
def test_cursors_follow_the_stream_from_where_it_starts(path: Path, stream: Any) -> None:
    fill(path, *range(6), partitions=2)
    reader = stream(consumer="spark")
    place = kept(reader.initialOffset())
    _, place = step(reader, place, most=2)
    assert cursors(path) == {("t", 0): 0, ("t", 1): 0}
    reader.commit(place)
    assert cursors(path) == {("t", 0): 1, ("t", 1): 1}
    _, last = step(reader, place)
    assert cursors(path) == {("t", 0): 1, ("t", 1): 1}
    reader.latestOffset(last, ReadAllAvailable())  # Spark asks for more: it is done with that
    assert cursors(path) == {("t", 0): 3, ("t", 1): 3}
    reader.stop()
    # Started again, also from an older place, they are where the stream is.
    again = stream(consumer="spark")
    again.latestOffset(place, ReadAllAvailable())
    assert cursors(path) == {("t", 0): 1, ("t", 1): 1}
    again.stop()


def test_cursors_follow_to_topics_that_are_new(path: Path, stream: Any) -> None:
    fill(path, 1, topic="orders-eu")
    reader = stream(subscribePattern="orders-.*", consumer="spark")
    _, place = step(reader, kept(reader.initialOffset()))
    fill(path, 2, 3, topic="orders-us")
    _, place = step(reader, place)
    reader.commit(place)
    assert cursors(path) == {("orders-eu", 0): 1, ("orders-us", 0): 2}
    reader.stop()


def test_partitions_of_another_member_are_told_and_the_stream_goes_on(
    path: Path, stream: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fill(path, *range(4), partitions=2)
    with falaj.open(path) as store, store.consumer("spark", "t") as other:
        other.pause()
        reader = stream(consumer="spark")
        values, place = step(reader, kept(reader.initialOffset()))
        reader.commit(place)
        assert len(values) == 4
        assert "consumer spark: cursors do not follow the stream, which goes on: other members" in (
            caplog.text
        )
        assert "t/0" in caplog.text
        assert cursors(path)["t", 0] == 0
        other.close()
        reader.latestOffset(place, ReadAllAvailable())  # what became free follows at once
        assert cursors(path) == {("t", 0): 2, ("t", 1): 2}
    reader.stop()


def test_members_that_read_other_topics_are_told_and_the_stream_goes_on(
    path: Path, stream: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fill(path, 1)
    fill(path, 2, topic="other")
    with falaj.open(path) as store, store.consumer("spark", "other"):
        reader = stream(consumer="spark")
        values, place = step(reader, kept(reader.initialOffset()))
        reader.commit(place)
        assert values == [b"1"]
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert told
    assert all("cursors do not follow the stream" in record.getMessage() for record in told)
    reader.stop()


def test_a_consumer_that_cannot_be_had_at_all_fails_the_query_as_it_starts(
    path: Path, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path, 1)
    reader = stream(consumer="not/a name")
    place = kept(reader.initialOffset())
    with pytest.raises(InvalidName):
        reader.latestOffset(place, ReadAllAvailable())
    really = falaj.open

    def refuse(at: Path, read_only: bool = False, **options: Any) -> falaj.Store:
        if not read_only:
            raise PermissionDenied("no right to write")
        return really(at, read_only=True, **options)

    monkeypatch.setattr(falaj, "open", refuse)
    with pytest.raises(PermissionDenied):
        stream(consumer="spark").latestOffset(place, ReadAllAvailable())


def test_options_for_brokers_get_one_warning_a_query(path: Path, streams: Streams) -> None:
    fill(path, 1)
    options = {"kafka.bootstrap.servers": "x:9092"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reader = streams(path, subscribe="t", **options)
        place = kept(reader.initialOffset())
        for _ in range(3):
            _, place = step(reader, place)
    assert len(caught) == 1
