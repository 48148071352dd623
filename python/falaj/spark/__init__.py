"""The Spark connector: a topic is a table and a stream, through PySpark's Python data sources.

Owns the options and columns of `format("falaj")`, which are those of Spark's Kafka source and sink,
and a local session that needs no Java to be installed. It reads and writes through the public
package (`falaj.open`, topics, jobs), and leaves what a record is to it.

Needs the extra `spark`. `falaj.spark.session` makes sessions, `falaj.spark.source` is what Spark
finds through the package `pyspark_falaj`; importing this module loads neither PySpark nor Arrow.

Example:
    >>> import falaj.spark.session
    >>> spark = falaj.spark.session.local("delays")                             # doctest: +SKIP
    >>> spark.read.format("falaj").option("store", "events").option("subscribe", "orders").load()
    ... # doctest: +SKIP
"""
