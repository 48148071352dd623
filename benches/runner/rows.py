"""The rows of the table: what is compared with what, and the target of each.

Where there is a lower bound, the ratio to it decides. Absolute targets (`about`) were seen on the
reference machine, and only orient where there is no ratio. Times, shares and sizes have limits.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["rate", "time", "number"]


@dataclass(frozen=True)
class Bar:
    """The target of a row; every part of it that is given must be met."""

    ratio_min: float | None = None
    about_per_s: float | None = None
    """Records a second on the reference machine; decides only where nothing else does."""
    most: float | None = None
    """Nanoseconds, or in the row's unit."""
    least: float | None = None


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    key: str
    title: str
    kind: Kind
    floor: str
    """The lower bound, in a word; empty if there is none."""
    bar: Bar


US, MS = 1_000.0, 1_000_000.0

ROWS = (
    Row("python_append", "Python append, one per call", "rate", "P",
        Bar(ratio_min=0.50, about_per_s=7e6)),
    Row("python_extend", "Python extend, 1,000 at a time", "rate", "P, batch form",
        Bar(ratio_min=0.60, about_per_s=10e6)),
    Row("rust_append", "Rust append, one per call", "rate", "R",
        Bar(ratio_min=0.70, about_per_s=12e6)),
    Row("rust_append_key", "… with a key", "rate", "without", Bar(ratio_min=0.85)),
    Row("rust_append_partition", "… to partition 3", "rate", "partition 0",
        Bar(ratio_min=0.85)),
    Row("python_iterate_batched", "Python iteration, first byte of every value", "rate",
        "a list of bytes", Bar(about_per_s=5e6)),
    Row("python_iterate_single", "… of records appended singly", "rate",
        "a list of bytes", Bar(about_per_s=5e6)),
    Row("python_batches_batched", "Python batches(), first byte of every view", "rate",
        "a list of bytes", Bar(about_per_s=7e6)),
    Row("python_batches_single", "… of records appended singly", "rate",
        "a list of bytes", Bar(about_per_s=7e6)),
    Row("python_to_list_batched", "Python batch.to_list()", "rate",
        "slices of one bytes", Bar(about_per_s=10e6)),
    Row("python_to_list_single", "… of records appended singly", "rate",
        "slices of one bytes", Bar(about_per_s=10e6)),
    Row("rust_scan_verified", "Rust scan by the iterator, verified", "rate", "bare walk",
        Bar(about_per_s=20e6)),
    Row("rust_blocks_verified", "… its blocks alone, verified", "rate", "bare walk",
        Bar(about_per_s=20e6)),
    Row("rust_scan_unverified", "… its blocks alone, unverified", "rate", "bare walk",
        Bar(ratio_min=0.40, about_per_s=60e6)),
    Row("rust_durable", "durable append, one Rust thread", "rate", "F",
        Bar(ratio_min=0.90, about_per_s=8e3)),
    Row("python_durable", "durable append, one Python thread", "rate", "F",
        Bar(ratio_min=0.90, about_per_s=8e3)),
    Row("python_durable_together", "durable append, 8 processes together", "rate", "one of them",
        Bar(ratio_min=3.0)),
    Row("two_processes", "two Python processes, one per call, together", "rate", "one alone",
        Bar(about_per_s=2.5e6)),
    Row("two_processes_share", "… share of the slower one", "number", "",
        Bar(least=1 / 3)),
    Row("queue_one", "a work queue: take and ack, 100 at a time", "rate", "",
        Bar(about_per_s=300e3)),
    Row("queue_four", "… four processes together", "rate", "one alone", Bar(ratio_min=1.0)),
    Row("follow_p50", "follower in another process, writer at 1 kHz: p50", "time", "a pipe",
        Bar(most=25 * US)),
    Row("follow_p99", "… p99", "time", "a pipe", Bar(most=150 * US)),
    Row("follow_cpu", "… the follower's CPU, of a core", "number", "", Bar(most=0.05)),
    Row("follow_idle", "… its CPU per second when idle", "time", "", Bar(most=1 * MS)),
    Row("disk_single", "disk bytes per payload byte, sealed, appended singly", "number", "",
        Bar(most=1.42)),
    Row("disk_batched", "… by extend(1,000)", "number", "", Bar(most=1.07)),
    Row("python_lookup_single", "random topic[i] of 1 M records appended singly", "time",
        "list[i]", Bar(most=2 * US)),
    Row("python_lookup_batched", "… by extend(1,000)", "time", "list[i]", Bar(most=3 * US)),
    Row("lookup_grown", "… of a topic of 200 segments, warm", "time", "", Bar(most=10 * US)),
    Row("scan_resident", "resident share after iterating over 200 segments", "number",
        "", Bar(most=0.05)),
    Row("create_topics", "creating 200 topics", "time", "", Bar(most=2000 * MS)),
    Row("create_topics_disk", "… MiB of disk", "number", "", Bar(most=100)),
    Row("start", "new process: import, open, first append", "time", "", Bar(most=40 * MS)),
    Row("start_many_segments", "… the extra time for a topic of 1,000 segments", "time", "",
        Bar(most=5 * MS)),
    Row("open_many_topics", "opening from Rust, first append: 10,000 topics in one log", "time",
        "one topic, empty", Bar(most=20 * MS)),
    Row("open_large_segment", "… a full active segment, closed in an orderly way", "time",
        "one topic, empty", Bar(most=15 * MS)),
    Row("take_over", "take-over from a killed writer", "time", "a killed flock",
        Bar(most=50 * MS)),
    Row("transaction", "a transaction: a record to each of two topics", "time", "",
        Bar(most=3 * US)),
    Row("transaction_durable", "a transaction, durable", "rate", "F", Bar(ratio_min=1 / 1.3)),
    Row("consumer_iterate", "iteration with a consumer group", "rate", "a plain for",
        Bar(ratio_min=0.70)),
    Row("consumer_commit", "… commit after a record, not durable", "time", "", Bar(most=1 * US)),
    Row("consumer_hand_over", "… until a killed member's partition is read again", "time", "",
        Bar(most=50 * MS)),
)  # fmt: skip

# The rows of `make bench-spark`. Where a ratio to Parquet is the target, the file holds the same
# columns, uncompressed; one session reads all, in turns.
SPARK_ROWS = (
    Row("spark_sum", "Spark: sum(length(value))", "rate", "Parquet", Bar(ratio_min=0.35)),
    Row("spark_group", "Spark: groupBy(key).count()", "rate", "Parquet", Bar(ratio_min=0.60)),
    Row("spark_all", "Spark: all columns to noop", "rate", "Parquet", Bar(ratio_min=0.90)),
    Row("spark_keys", "Spark: keys alone to noop", "rate", "all our columns",
        Bar(ratio_min=1.3)),
    Row("spark_rust", "… compiled share of the time of all columns", "number", "",
        Bar(most=0.15)),
    Row("spark_tiny", "… count() of 1,000 records, warm", "time", "", Bar(most=300 * MS)),
    Row("spark_sink", "Spark: write all columns", "rate", "Parquet", Bar(ratio_min=1.0)),
    Row("arrow_8k", "Arrow batches of 8,192 rows, all columns, views", "rate", "",
        Bar(about_per_s=30e6)),
    Row("arrow_64k", "… of 65,536 rows", "rate", "", Bar(about_per_s=30e6)),
    Row("polars_sum", "Polars: sum of lengths of values", "rate", "Parquet", Bar(ratio_min=0.70)),
    Row("polars_group", "Polars: count by key", "rate", "Parquet", Bar(ratio_min=0.70)),
    Row("duckdb_sum", "DuckDB: sum of lengths of values", "rate", "Parquet", Bar(ratio_min=0.70)),
    Row("duckdb_group", "DuckDB: count by key", "rate", "Parquet", Bar(ratio_min=0.70)),
)  # fmt: skip

# The speed that Python's data source API allows, with ready-made batches or a sink that drops
# its input. These rows have no target.
SPARK_REFERENCES = (
    Row("spark_sum_ready", "sum(length(value)) of ready-made batches", "rate", "Parquet", Bar()),
    Row("spark_group_ready", "groupBy(key).count() of ready-made batches", "rate", "Parquet",
        Bar()),
    Row("spark_all_ready", "all columns of ready-made batches to noop", "rate", "Parquet", Bar()),
    Row("spark_sink_dropped", "write all columns to a sink that drops them", "rate", "Parquet",
        Bar()),
    Row("arrow_copied", "Arrow batches of 10,000 rows, all columns, copied", "rate", "", Bar()),
    Row("polars_filter", "Polars: one key of 10,000", "rate", "Parquet", Bar()),
    Row("duckdb_filter", "DuckDB: one key of 10,000", "rate", "Parquet", Bar()),
)  # fmt: skip

# Measured too, for orientation; no target.
REFERENCES = (
    Row("rust_append_fresh", "Rust append, one per call, beside a floor on fresh pages", "rate",
        "R on fresh pages", Bar()),
    Row("memcpy", "memcpy of 100 bytes at its speed for large blocks", "time", "", Bar()),
    Row("fdatasync", "mapped store and fdatasync (F)", "time", "", Bar()),
    Row(
        "transaction_with_cursor", "a transaction that moves a group's cursor", "time", "", Bar()
    ),
    Row(
        "consumer_commit_durable", "a group's durable commit, with its record", "time", "", Bar()
    ),
)  # fmt: skip
