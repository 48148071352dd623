"""A driver that runs `aggregate` and `join` is killed; another goes on, and all is there once.

It takes a second Spark, and `test_aggregate`, `test_join` and `test_killed` have deaths for each
push: `make test-spark-all` runs this.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import islice
from typing import TYPE_CHECKING

import pytest

import falaj
from falaj.demo import flights as data
from falaj.pipeline.streaming.aggregating import aggregate
from falaj.pipeline.streaming.joining import join
from spark.conftest import needs_limits
from spark.drivers import environment
from spark.pipelines import test_aggregate, test_join
from spark.pipelines.conftest import TOPIC, fill

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from falaj.pipeline.streaming.aggregating import AggregateConfig
    from falaj.pipeline.streaming.joining import JoinConfig

pytestmark = [pytest.mark.release, needs_limits]

BATCH = 1_500
DRIVER = """
import pickle, sys, threading
import falaj.spark.session
from falaj.pipeline.streaming.aggregating import aggregate
from falaj.pipeline.streaming.joining import join
summing, joining = pickle.loads(bytes.fromhex(sys.argv[1]))
spark = falaj.spark.session.local("killed", cores=2, spark_sql_shuffle_partitions="1")
threading.Thread(target=aggregate, args=(spark, summing)).start()
join(spark, joining)
"""


def run_until_killed(summing: AggregateConfig, joining: JoinConfig, folder: Path) -> None:
    """Run both jobs; kill all of it when each is done with a batch, and has written of another."""
    import pickle

    log = folder / "log"
    with falaj.open(summing.store) as store:
        for topic in (summing.into, joining.into):
            store.topic(str(topic), codec="json").close()
    with log.open("wb") as words:
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, pickle.dumps((summing, joining)).hex()],
            env=environment(),
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
    try:
        with falaj.open(summing.store, read_only=True) as store:
            # A batch comes into sight at once: Spark does not know of its end yet.
            for topic, count in ((summing.into, 1), (joining.into, BATCH + 1)):
                records = store.any_topic(str(topic)).follow(timeout=100)
                found = next(islice(records, count - 1, None), None)
                assert found is not None, log.read_text(errors="replace")[-3_000:]
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


@pytest.mark.timeout(300)  # it starts a second Spark, on a machine that may be busy
def test_a_driver_that_is_killed_is_followed_by_one_that_writes_each_result_once(
    spark: SparkSession, tmp_path: Path, january_flights: list[data.Flight]
) -> None:
    flown = fill(tmp_path / "store", january_flights[:8_000])
    folders = [tmp_path / name for name in ("aggregate", "join")]
    summing = test_aggregate.job(flown, folders[0], batch=BATCH)
    weather = {"table": data.folder() / "weather.csv", "null": "NA", "on": ("origin", "time_hour")}
    columns = ("origin", "time_hour", "CAST(precip AS DOUBLE) AS precip")
    joining = test_join.job(flown, folders[1], batch=BATCH, table_columns=columns, **weather)
    run_until_killed(summing, joining, tmp_path)
    summed, joined = aggregate(spark, summing), join(spark, joining)
    assert 0 < summed.records < flown.records
    assert 0 < joined.records < flown.records
    reference = test_aggregate.refer(flown, summing, length=6 * 3_600, slide=6 * 3_600, delay=1_800)
    test_aggregate.compare(summing, reference)
    rows = test_join.in_folder(joining)
    assert test_join.same(test_join.in_topic(joining), test_join.without_record(rows))
    with falaj.open(flown.store, read_only=True) as store:
        source = store.any_topic(TOPIC)
        wanted = [(n, record.offset) for n in source.partitions for record in source.partition(n)]
    found = [(row["record"]["partition"], row["record"]["offset"]) for row in rows]
    assert sorted(found) == wanted
