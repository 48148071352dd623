"""Lets `spark.read.format("falaj")` work by itself.

Spark imports every top-level module whose name begins with `pyspark_` and registers its
`DefaultSource`. The source itself is in `falaj.spark`.
"""

from falaj.spark.source import FalajSource as DefaultSource

__all__ = ["DefaultSource"]
