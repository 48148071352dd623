"""Step 4: the PySpark job, a process of its own, as jobs are.

First it resumes the killed query, up to its end. Then it reads the topic `flights` through
`spark.read.format("falaj")` and joins airlines and weather. It writes delays by carrier and
scheduled hour to Parquet. Through the sink it writes a summary per carrier to the topic `delays`,
all carriers or none. Sums are whole numbers, so that they can be compared exactly.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

from falaj.demo import flights, late
from falaj.demo.follower import LATE_MINUTES
from falaj.demo.stream import TOPIC
from falaj.demo.submit import FIGURES, SUMMARY
from falaj.pipeline.streaming import lookup
from falaj.spark import session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["main"]

# The fields of a flight's JSON that the job needs.
SCHEMA = "carrier STRING, hour INT, dep_delay INT, origin STRING, time_hour STRING"


def read(spark: SparkSession, store: Path) -> DataFrame:
    """Read the topic; only the values, as the schema says."""
    topic = spark.read.format("falaj").option("store", str(store)).option("subscribe", TOPIC)
    return (
        topic.schema("value BINARY")
        .load()
        .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("flight"))
        .select("flight.*")
    )


def delays(spark: SparkSession, store: Path) -> DataFrame:
    """Join, and sum up by carrier and hour."""
    folder = flights.folder()
    names, rain = ("carrier", "name AS airline"), "CAST(precip AS DOUBLE) AS precip"
    airlines = lookup.files(spark, folder / "airlines.csv", names)
    weather = lookup.files(spark, folder / "weather.csv", ("origin", "time_hour", rain), null="NA")
    wet = F.col("precip") > 0
    return (
        read(spark, store)
        .join(F.broadcast(airlines), "carrier", "left")
        .join(F.broadcast(weather), ["origin", "time_hour"], "left")
        .groupBy("carrier", "airline", "hour")
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departed"),
            total(F.col("dep_delay").isNotNull(), "dep_delay").alias("minutes"),
            total(F.col("dep_delay") >= LATE_MINUTES).alias("late"),
            total(wet & F.col("dep_delay").isNotNull()).alias("wet"),
            total(wet & F.col("dep_delay").isNotNull(), "dep_delay").alias("wet_minutes"),
        )
        .orderBy("carrier", "hour")
    )


def total(where: Column, column: str | None = None) -> Column:
    """Sum a column, or count, where something holds; 0 where it never does."""
    return F.sum(F.when(where, F.col(column) if column else F.lit(1)).otherwise(0))


def summarize(by_hour: DataFrame, store: Path) -> None:
    """Write the sums of each carrier to the topic."""
    sums = [F.sum(name).alias(name) for name in FIGURES]
    rows = by_hour.groupBy("carrier", "airline").agg(*sums).orderBy("carrier")
    row = F.to_json(F.struct(*rows.columns), {"ignoreNullFields": "false"})
    records = rows.select(F.col("carrier").alias("key"), row.alias("value"))
    writer = records.write.format("falaj").mode("append")
    writer.options(store=str(store), topic=SUMMARY).save()


def main(store: Path, parquet: Path, checkpoint: Path, batch: int) -> None:
    """Run the job."""
    spark = session.local("falaj demo")
    late.copy(spark, store, checkpoint, batch)
    delays(spark, store).coalesce(1).write.mode("overwrite").parquet(str(parquet))
    summarize(spark.read.parquet(str(parquet)), store)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
