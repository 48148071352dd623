"""The Spark connector: a topic is a table and a stream, through PySpark's Python data sources.

Owns `format("falaj")`, and a local session that works without an installed Java. The options and
columns of the format are those of Spark's Kafka source and sink. The connector reads and writes
through the public package (`falaj.open`, topics, bulk loads), which owns the form of a record.

Needs the extra `spark`. `falaj.spark.session` makes sessions. Spark finds `falaj.spark.source`
through the package `pyspark_falaj`. Importing this module loads neither PySpark nor Arrow.

Example:
    >>> import falaj.spark.session
    >>> spark = falaj.spark.session.local("delays")                             # doctest: +SKIP
    >>> spark.read.format("falaj").option("store", "events").option("subscribe", "orders").load()
    ... # doctest: +SKIP
"""
