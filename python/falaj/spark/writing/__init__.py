"""Writing topics from Spark: options, columns, and the sink that stages and commits."""
