"""Windows of real flights, against plain Python; jobs that are stopped anywhere write each once."""

from __future__ import annotations

import json
import math
import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.demo import flights as data
from falaj.errors import (
    CorruptData,
    InvalidArgument,
    InvalidName,
    OffsetConflict,
    UnknownTopic,
)
from falaj.pipeline.streaming.aggregating import AggregateConfig, aggregate
from falaj.pipeline.streaming.outputs import Outputs
from falaj.spark.streaming.checkpoint import decode
from falaj.spark.streaming.stream import HAS_LIMITS
from spark.conftest import needs_limits
from spark.pipelines.conftest import TOPIC, Flown, Told, fill

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "carrier STRING, origin STRING, dep_delay INT, time_hour TIMESTAMP"
FIGURES = (
    "count",
    "sum(dep_delay) AS minutes",
    "mean(dep_delay)",
    "min(dep_delay)",
    "p90(dep_delay)",
)
HOUR = 3600


# --- The reference -------------------------------------------------------------------------------


@dataclass
class Reference:
    """Windows as plain Python sums them up, batch by batch, with Spark's word for the batches.

    Attributes:
        length: Of a window, in seconds.
        slide: How far apart they begin.
        delay: How long the watermark waits.
        waiting: Windows that are open: their flights by begin and carrier.
        closed: Those that are closed.
        late: How many flights came when a window of theirs was closed.
    """

    length: int
    slide: int
    delay: int
    waiting: dict[tuple[int, str], list[data.Flight]] = field(
        default_factory=lambda: defaultdict(list)
    )
    closed: dict[tuple[int, str], list[data.Flight]] = field(default_factory=dict)
    late: int = 0
    _newest: int = 0
    _marks: tuple[int, int] = (0, 0)

    def batch(self, flown: Iterable[data.Flight]) -> None:
        """Sum up a batch. It closes by what came before it; late is what that closed before."""
        self._marks = (self._marks[1], max(self._marks[1], self._newest - self.delay))
        before, mark = self._marks
        for flight in flown:
            when = seconds(flight["time_hour"])
            first = when - when % self.slide - self.length + self.slide
            begins = range(first, when + 1, self.slide)
            self.late += any(begin + self.length <= before for begin in begins)
            for begin in begins:
                if begin + self.length > before:
                    self.waiting[begin, flight["carrier"]].append(flight)
            self._newest = max(self._newest, when)
        for key in [key for key in self.waiting if key[0] + self.length <= mark]:
            self.closed[key] = self.waiting.pop(key)


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def figures(flown: list[data.Flight]) -> dict[str, Any]:
    delays = sorted(f["dep_delay"] for f in flown if f["dep_delay"] is not None)
    return {
        "count": len(flown),
        "minutes": sum(delays) if delays else None,
        "mean_dep_delay": sum(delays) / len(delays) if delays else None,
        "min_dep_delay": min(delays, default=None),
        # For so few Spark's approximate quantile is the exact one.
        "p90_dep_delay": delays[math.ceil(0.9 * len(delays)) - 1] if delays else None,
    }


def batches(flown: Flown, checkpoint: Path) -> Iterable[list[data.Flight]]:
    """Give the flights of each batch; Spark keeps in the checkpoint which those were."""
    with falaj.open(flown.store, read_only=True) as store:
        topic = store.any_topic(TOPIC)
        parts = [
            [json.loads(record.to_bytes()) for record in topic.partition(n)]
            for n in topic.partitions
        ]
    before = [0] * len(parts)
    logs = [path for path in (checkpoint / "query/offsets").iterdir() if path.name.isdecimal()]
    for log in sorted(logs, key=lambda path: int(path.name)):
        found = decode(json.loads(log.read_text().splitlines()[2]))[TOPIC].partitions
        ends = [found[n].offset for n in range(len(parts))]
        yield [f for part, a, b in zip(parts, before, ends, strict=True) for f in part[a:b]]
        before = ends


def refer(flown: Flown, config: AggregateConfig, length: int, slide: int, delay: int) -> Reference:
    reference = Reference(length, slide, delay)
    for batch in batches(flown, config.checkpoint):  # type: ignore[arg-type]
        reference.batch(batch)
    return reference


# --- What was written ----------------------------------------------------------------------------


Found = dict[tuple[int, str], dict[str, Any]]


def in_topic(config: AggregateConfig) -> list[tuple[bytes | None, dict[str, Any]]]:
    assert config.into is not None
    with falaj.open(config.store, read_only=True) as store:
        return [(record.key, record.value) for record in store.any_topic(config.into)]


def in_folder(config: AggregateConfig) -> list[dict[str, Any]]:
    """Read the folder as anybody does: without Spark."""
    import pyarrow.dataset

    assert config.parquet is not None
    table = pyarrow.dataset.dataset(config.parquet, partitioning="hive").to_table()
    return list(table.to_pylist())


def once(rows: Iterable[dict[str, Any]]) -> Found:
    """Give rows by window and carrier; each is there once."""
    found: Found = {}
    for row in rows:
        start, end = (_moment(row.pop(name)) for name in ("window_start", "window_end"))
        key = start, row.pop("carrier")
        assert end > start
        assert key not in found, key
        row.pop("batch", None)
        found[key] = row
    return found


def _moment(found: str | datetime) -> int:
    when = datetime.fromisoformat(found) if isinstance(found, str) else found
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


LATE = 60


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory, january_flights: list[data.Flight]) -> Flown:
    """Some days' flights; the first come last: those are late."""
    flights = [*january_flights[LATE:3_000], *january_flights[:LATE]]
    return fill(tmp_path_factory.mktemp("week") / "store", flights)


def job(flown: Flown, folder: Path, **given: Any) -> AggregateConfig:
    name = folder.name.replace("[", "-").replace("]", "")
    options: dict[str, Any] = {
        "store": flown.store,
        "topic": TOPIC,
        "checkpoint": folder / "checkpoint",
        "schema": SCHEMA,
        "into": f"into-{name}",
        "parquet": folder / "parquet",
        "window": "6 hours",
        "watermark": "30 minutes",
        "by": ("carrier",),
        "aggregates": FIGURES,
    }
    return AggregateConfig(**options | given)


def forget_the_last_commit(checkpoint: Path) -> None:
    """Take from Spark what it knows of the end of its last batch."""
    folder = checkpoint / "query/commits"
    last = max(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    for name in (f"{last}", f".{last}.crc"):
        (folder / name).unlink()


def compare(config: AggregateConfig, reference: Reference) -> None:
    wanted = {key: figures(flown) for key, flown in reference.closed.items()}
    assert once(in_folder(config)) == wanted
    assert once([value for _, value in in_topic(config)]) == wanted


# --- Tests ---------------------------------------------------------------------------------------


class Interrupting(Told):
    """A progress that ends the job as Ctrl-C does, at the first news."""

    def advance(self, steps: int) -> None:
        super().advance(steps)
        raise KeyboardInterrupt


@pytest.mark.release
@pytest.mark.timeout(300)  # on a machine that may be busy
@needs_limits
def test_a_job_that_stops_anywhere_writes_each_window_of_plain_python_once_and_counts_who_was_late(
    spark: SparkSession, week: Flown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    config = job(week, tmp_path, batch=1_000)
    happened = unlucky(monkeypatch)
    for when in ("before", "after"):
        with pytest.raises(Exception, match=f"the test's own, {when}"):  # Spark's
            aggregate(spark, config)
    result = aggregate(spark, config, progress=told)
    assert happened == ["before", "after"]
    reference = refer(week, config, length=6 * HOUR, slide=6 * HOUR, delay=HOUR // 2)
    compare(config, reference)
    assert len(reference.closed) > 100
    assert result.late == reference.late == LATE
    assert (told.said, told.totals) == ([f"reading {TOPIC}"], [told.done])
    assert 0 < result.records == told.done < week.records
    assert {(key or b"").decode() for key, _ in in_topic(config)} <= data.airlines().keys()
    # Spark's note of the last batch is lost: it comes again, and nothing is written.
    forget_the_last_commit(tmp_path / "checkpoint")
    going_on = AggregateConfig(**vars(config) | {"trigger": "1 second"})
    again = aggregate(spark, going_on, progress=Interrupting())
    assert (again.batches, again.records) == (1, 0)
    compare(config, reference)
    assert not list((tmp_path / "parquet/_staged").glob("*"))


def unlucky(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let jobs fail before batch 1 is in the topic, and after batch 2 is; tells what happened."""
    append = Outputs._append
    happened: list[str] = []

    def unlucky(outputs: Outputs, topic: str, number: int, rows: Any) -> None:
        for when in ("before", "after"):
            if number == {"before": 1, "after": 2}[when] and when not in happened:
                happened.append(when)
                if when == "after":
                    append(outputs, topic, number, rows)
                raise OSError(f"the test's own, {when}")
        append(outputs, topic, number, rows)

    monkeypatch.setattr(Outputs, "_append", unlucky)
    return happened


@pytest.mark.proof
def test_a_window_that_changed_is_told_again_and_the_last_word_is_right(
    spark: SparkSession, week: Flown, tmp_path: Path
) -> None:
    options = {"batch": 1_500} if HAS_LIMITS else {}
    config = job(week, tmp_path, slide="3 hours", mode="update", **options)
    result = aggregate(spark, config)
    reference = refer(week, config, length=6 * HOUR, slide=3 * HOUR, delay=HOUR // 2)
    wanted = {key: figures(f) for key, f in {**reference.closed, **reference.waiting}.items()}
    assert once(dict(in_topic(config)).values()) == wanted
    rows = sorted(in_folder(config), key=lambda row: int(row["batch"]))
    newest = {(row["window_start"], row["carrier"]): row for row in rows}
    assert once(newest.values()) == wanted
    assert result.late == reference.late


@pytest.mark.proof
def test_what_has_no_time_or_is_no_json_is_counted_or_fails(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    with falaj.open(path) as store, store.topic("t") as topic:
        for minute in range(4):
            topic.append(b'{"at": "2026-11-20T08:%02d:00Z", "n": %d}' % (minute, minute))
        topic.append(b'{"n": 5}')
        topic.append(b"no JSON")
        topic.flush()
    config = AggregateConfig(
        store=path,
        topic="t",
        checkpoint=tmp_path / "checkpoint",
        schema="at TIMESTAMP, n INT",
        into="sums",
        partitions=2,
        time="at",
        window="2 minutes",
        watermark="1 second",
        aggregates=("sum(n) AS n",),
    )
    with pytest.raises(InvalidArgument, match="the value at offset 5 is not JSON"):
        aggregate(spark, config)
    result = aggregate(spark, AggregateConfig(**vars(config) | {"on_corrupt": "skip"}))
    assert (result.records, result.untimed, result.rows_written) == (6, 1, 1)
    with falaj.open(path, read_only=True) as store:
        sums = store.any_topic("sums")
        assert (list(sums.partitions), [(r.key, r.value["n"]) for r in sums]) == (
            [0, 1],
            [(None, 1)],
        )


@pytest.mark.proof
def test_a_topic_that_was_made_anew_is_counted_from_its_beginning(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    config = AggregateConfig(
        store=path,
        topic="t",
        checkpoint=tmp_path / "checkpoint",
        schema="at TIMESTAMP, n INT",
        into="sums",
        time="at",
        window="1 minute",
        watermark="1 day",
        aggregates=("sum(n) AS n",),
        mode="update",
        on_loss="continue",
    )
    for partitions, records in ((1, 9), (3, 5), (3, 7)):
        with falaj.open(path) as store:
            if "t" in store.topics:
                store.delete_topic("t")
            with store.partitioned_topic("t", partitions=partitions) as topic:
                for n in range(records):
                    row = b'{"at": "2026-11-20T08:%02d:00Z", "n": 1}' % n
                    topic.append(row, partition=n % partitions)
                topic.flush()
        assert aggregate(spark, config).records == records
    with falaj.open(path, read_only=True) as store:
        assert max(record.value["n"] for record in store.any_topic("sums")) == 3


def test_a_checkpoint_and_a_folder_are_one_jobs(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    with falaj.open(path) as store:
        store.partitioned_topic("t", partitions=2)
    given: dict[str, Any] = {"store": path, "topic": "t", "parquet": tmp_path / "out"}
    first = AggregateConfig(checkpoint=tmp_path / "one", **given)
    aggregate(spark, first)
    with pytest.raises(
        InvalidArgument, match=r'whose window is "1 hour", not "2 hours": go on with'
    ):
        aggregate(spark, AggregateConfig(checkpoint=tmp_path / "one", window="2 hours", **given))
    with pytest.raises(
        InvalidArgument, match=r"written by the job whose checkpoint is .*one, and not"
    ):
        aggregate(spark, AggregateConfig(checkpoint=tmp_path / "two", **given))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(InvalidArgument, match="no checkpoint of a pipeline: it holds file"):
        aggregate(spark, AggregateConfig(checkpoint=tmp_path / "full", **given))
    given["parquet"] = tmp_path / "full"
    with pytest.raises(InvalidArgument, match="holds file, which no pipeline"):
        aggregate(spark, AggregateConfig(checkpoint=tmp_path / "three", **given))
    (tmp_path / "one/falaj.json").write_text("{}")
    with pytest.raises(CorruptData, match="is not what a pipeline wrote there"):
        aggregate(spark, first)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"into": None, "parquet": None}, "nothing says where results go"),
        ({"into": TOPIC}, "results cannot go into flights, which is read"),
        ({"window": "soon"}, "window is a span of time such as \"10 minutes\", not 'soon'"),
        ({"slide": "0 s"}, "slide is a span of time"),
        ({"watermark": "1 month"}, "watermark is a span of time"),
        ({"trigger": "now"}, 'trigger is "available-now" or a span of time'),
        ({"trigger": "batch"}, 'trigger is "available-now" or a span of time'),
        ({"batch": 0}, "batch is a whole number from 1 up, not 0"),
        ({"aggregates": ()}, "aggregates are missing"),
        ({"aggregates": ("count", "sum(x) AS count")}, "two results are called count"),
        ({"mode": "complete"}, 'mode is "append" or "update"'),
        ({"start": "yesterday"}, "'yesterday' is no ISO time"),
    ],
)
def test_a_config_that_cannot_be_right_says_what_would_be(
    given: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        job(Flown(tmp_path / "store", 0), tmp_path, **given)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ({"time": "carrier"}, InvalidArgument, "which is string and no timestamp: to_timestamp"),
        ({"time": "nothing"}, InvalidArgument, "time is nothing, which Spark does not take"),
        (
            {"aggregates": ("sum(nothing)",)},
            InvalidArgument,
            "Spark does not take by and aggregates",
        ),
        ({"schema": "carrier WORD"}, InvalidArgument, "not 'carrier WORD': Unsupported data type"),
        ({"schema": "record STRING"}, InvalidArgument, "the schema has a field 'record'"),
        ({"topic": "nobody"}, UnknownTopic, "nobody"),
    ],
)
def test_a_config_that_does_not_fit_the_topic_says_so(
    spark: SparkSession,
    week: Flown,
    tmp_path: Path,
    given: dict[str, Any],
    kind: type[Exception],
    sentence: str,
) -> None:
    with pytest.raises(kind, match=sentence):
        aggregate(spark, job(week, tmp_path, into=None, **given))


# --- Keys, names, and what cannot be written -----------------------------------------------------


AUTUMN = ("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z")
"""Both are half past two in Paris."""


def put(path: Path, *times: str, topic: str = "t") -> None:
    with falaj.open(path) as store, store.topic(topic) as opened:
        for time in times:
            opened.append(b'{"pageName": "a"}', timestamp=time)
        opened.flush()


def visits(path: Path, folder: Path, **given: Any) -> AggregateConfig:
    options: dict[str, Any] = {
        "store": path,
        "topic": "t",
        "checkpoint": folder / "checkpoint",
        "schema": "pageName STRING",
        "into": "sums",
        "mode": "update",
    }
    return AggregateConfig(**options | given)


def test_windows_at_the_change_of_clocks_have_keys_of_their_own_and_columns_their_names(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    put(path, *AUTUMN)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        aggregate(spark, visits(path, tmp_path))
        by = ("pageName", "record.timestamp AS at")
        aggregate(spark, visits(path, tmp_path / "by", by=by, into="by", mode="append"))
        aggregate(spark, visits(path, tmp_path / "up", by=by, into="up"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    windows = [b"2026-10-25T00:00:00Z", b"2026-10-25T01:00:00Z"]
    assert [key for key, _ in in_topic(visits(path, tmp_path))] == windows
    told = in_topic(visits(path, tmp_path, into="up"))
    assert [json.loads(key or b"") for key, _ in told] == [
        ["a", at, window.decode()] for at, window in zip(AUTUMN, windows, strict=True)
    ]
    assert [value["pageName"] for _, value in told] == ["a", "a"]


def test_names_that_spark_does_not_tell_apart_are_refused(path: Path, tmp_path: Path) -> None:
    assert visits(path, tmp_path, aggregates=("COUNT",)).sums == [("count(*)", "count")]
    for given in ({"by": ("pageName", "pagename")}, {"by": ("Window_Start",)}):
        with pytest.raises(InvalidArgument, match="two results are called"):
            visits(path, tmp_path, **given)


def test_what_can_never_be_written_is_refused_before_anything_is_made(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    put(path, *AUTUMN)
    with falaj.open(path) as store:
        store.topic("pickled", codec="pickle")
    file = tmp_path / "file"
    file.touch()
    for given, kind, sentence in (
        ({"key": "nothing"}, InvalidArgument, "key is nothing, which Spark does not take"),
        ({"key": "count"}, InvalidArgument, "key is count, which is bigint and neither text nor"),
        ({"key": "a b c"}, InvalidArgument, "key is a b c, which Spark does not take"),
        (
            {"aggregates": ("count(DISTINCT pageName)",)},
            InvalidArgument,
            "Spark does not take by and aggregates in a stream: Distinct aggregations",
        ),
        ({"into": "a b"}, InvalidName, "cannot name a topic"),
        ({"on_bad": "a/b"}, InvalidName, "cannot name a topic"),
        ({"into": "pickled"}, InvalidArgument, "topic pickled has the codec pickle"),
        ({"parquet": file}, InvalidArgument, "but .*file is no folder"),
        ({"parquet": file / "below"}, InvalidArgument, "but .*file is no folder"),
        ({"checkpoint": file}, InvalidArgument, "but .*file is no folder"),
    ):
        with pytest.raises(kind, match=sentence):
            aggregate(spark, visits(path, tmp_path, **given))
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "store"]
    with falaj.open(path, read_only=True) as store:
        assert sorted(store.topics) == ["pickled", "t"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"into": "x.dedupe"}, "into is x.dedupe, and topics whose names end with .dedupe are"),
        ({"on_bad": "x.imports"}, "on_bad is x.imports, and topics whose names end with .imports"),
        ({"parquet": "/x", "checkpoint": "/x/c"}, "the checkpoint /x/c lies in parquet"),
    ],
)
def test_a_place_that_is_of_something_else_is_refused(
    given: dict[str, Any], sentence: str, path: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        visits(path, tmp_path, **given)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize("where", ["into", "parquet"])
def test_a_checkpoint_that_was_put_back_from_a_backup_loses_nothing_in_silence(
    where: str, spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    given = {"into": "sums"} if where == "into" else {"into": None, "parquet": tmp_path / "out"}
    config = visits(path, tmp_path, **given)
    put(path, AUTUMN[0])
    aggregate(spark, config)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "backup")
    for _ in range(2):
        put(path, AUTUMN[0])
        aggregate(spark, config)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "backup", tmp_path / "checkpoint")
    put(path, AUTUMN[0])
    with pytest.raises(
        OffsetConflict, match=r"of this job, and now comes batch \d+: the checkpoint"
    ):
        aggregate(spark, config)
