"""Parts of all pipelines: configs refuse what cannot be right, jobs move a bar and fail clearly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import falaj
from falaj.errors import CorruptData, InvalidArgument, NotAStore
from falaj.pipeline.base.frame import Config, Result, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.pipelines.conftest import Flown, Told


@dataclass(frozen=True, kw_only=True)
class Sample(Config):
    """A config with a field of each kind."""

    topic: str
    start: int | str | datetime = "earliest"
    columns: tuple[str, ...] | None = None
    form: Literal["parquet", "delta"] = "parquet"
    rate: float = 1.0
    whole: bool = False


def test_a_config_from_a_file_is_the_one_that_is_written_in_python() -> None:
    read = Sample.from_mapping({"store": "s", "topic": "t", "columns": ["key"], "rate": 2})
    assert read == Sample(store="s", topic="t", columns=("key",), rate=2)
    assert read.store == Path.cwd() / "s"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"topik": "t"}, "there is no 'topik': did you mean topic?"),
        ({"zzz": 1}, "there is no 'zzz': There are store, topic, start"),
        ({"store": "s"}, "topic is missing"),
        ({"store": "s", "topic": 3}, "topic is text, not 3"),
        ({"store": 3, "topic": "t"}, "store is a path, not 3"),
        ({"store": "s", "topic": "t", "whole": 1}, "whole is true or false, not 1"),
        ({"store": "s", "topic": "t", "rate": True}, "rate is a number, not true"),
        ({"store": "s", "topic": "t", "columns": [1]}, "columns is a list, each text, not (1,)"),
        ({"store": "s", "topic": "t", "form": "csv"}, 'form is "parquet" or "delta", not \'csv\''),
        (
            {"store": "s", "topic": "t", "start": [1]},
            "start is a whole number or text or a time, not (1,)",
        ),
    ],
)
def test_what_cannot_be_right_is_named(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        Sample.from_mapping(given)
    assert str(raised.value).startswith(sentence)


def test_dashes_in_names_are_taken_as_the_shell_writes_them() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Dashed(Config):
        on_bad: str

    assert Dashed.from_mapping({"store": "s", "on-bad": "skip"}).on_bad == "skip"


def test_a_result_is_rows_for_people_and_json_for_programs() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Done(Result):
        into: Path
        until: datetime
        ends: dict[int, tuple[int, int]]

    when = datetime(2013, 1, 1, tzinfo=UTC)
    done = Done(records=1200, bytes=5, seconds=0.25, into=Path("x"), until=when, ends={0: (1, 2)})
    assert done.rows()[0] == ("records", "1,200")
    assert json.loads(json.dumps(done.to_dict())) == {
        "records": 1200,
        "bytes": 5,
        "seconds": 0.25,
        "into": "x",
        "until": "2013-01-01T00:00:00+00:00",
        "ends": {"0": [1, 2]},
    }


def test_tasks_of_a_job_move_the_bar_to_its_end(
    spark: SparkSession, january: Flown, told: Told
) -> None:
    reader = spark.read.format("falaj").options(store=str(january.store), subscribe="flights")
    with watched(spark, told, "counting"):
        assert reader.load().count() == january.records
    assert told.said == ["counting"]
    assert told.done == told.totals[-1] > 0
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_a_planning_error_of_falaj_comes_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.read.format("falaj").options(store=str(tmp_path), subscribe="t")
    with pytest.raises(NotAStore, match="is not a falaj store"), watched(spark, None, "counting"):
        reader.load().count()


def test_a_task_that_meets_damage_fails_with_the_place(spark: SparkSession, tmp_path: Path) -> None:
    with falaj.open(tmp_path / "s") as store, store.topic("t") as topic:
        for first in (0, 100, 200):
            topic.extend([b"number %03d" % n for n in range(first, first + 100)])
    [log] = (tmp_path / "s/logs").glob("t@*/*0.log")
    data = log.read_bytes()
    log.write_bytes(data.replace(b"number 150", b"Number 150"))
    reader = spark.read.format("falaj").options(store=str(tmp_path / "s"), subscribe="t")
    with pytest.raises(CorruptData) as raised, watched(spark, None, "counting"):
        reader.schema("value BINARY").load().collect()
    said = str(raised.value)
    assert said.startswith("topic t, partition 0, offsets 100 to 199: ")
    assert f"{log} is corrupt at byte" in said
    assert said.endswith('with on_corrupt="skip", where the pipeline takes it')
