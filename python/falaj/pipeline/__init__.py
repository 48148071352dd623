"""Jobs in Spark over topics: each a function, its config and its result.

`falaj pipeline VERB` is the same from a shell. A pipeline takes a session, of `falaj.spark.session`
or one of your own, and a config that has checked itself; it returns what it did. Each has a folder
or module of its own, and `base` is what they share. Needs the extra `spark`: importing this package
imports PySpark.

Example:
    >>> import falaj.pipeline, falaj.spark.session                              # doctest: +SKIP
    >>> spark = falaj.spark.session.local("nightly")                            # doctest: +SKIP
    >>> config = falaj.pipeline.ExportConfig(store="events", topic="orders", into="lake/orders")
    ... # doctest: +SKIP
    >>> falaj.pipeline.export(spark, config).records                            # doctest: +SKIP
    2
"""

from falaj.pipeline.base.frame import Config, Progress, Result
from falaj.pipeline.compacting import CompactConfig, CompactResult, compact
from falaj.pipeline.deduping.run import DedupeConfig, DedupeResult, dedupe
from falaj.pipeline.exporting.exported import exported_files, read_exported
from falaj.pipeline.exporting.run import ExportConfig, ExportResult, export
from falaj.pipeline.importing.run import ImportConfig, ImportResult, import_files
from falaj.pipeline.profiling.run import ProfileConfig, ProfileResult, profile
from falaj.pipeline.replaying.run import ReplayConfig, ReplayResult, replay
from falaj.pipeline.streaming.aggregating import AggregateConfig, AggregateResult, aggregate
from falaj.pipeline.streaming.joining import JoinConfig, JoinResult, join

__all__ = [
    "AggregateConfig",
    "AggregateResult",
    "CompactConfig",
    "CompactResult",
    "Config",
    "DedupeConfig",
    "DedupeResult",
    "ExportConfig",
    "ExportResult",
    "ImportConfig",
    "ImportResult",
    "JoinConfig",
    "JoinResult",
    "ProfileConfig",
    "ProfileResult",
    "Progress",
    "ReplayConfig",
    "ReplayResult",
    "Result",
    "aggregate",
    "compact",
    "dedupe",
    "export",
    "exported_files",
    "import_files",
    "join",
    "profile",
    "read_exported",
    "replay",
]
