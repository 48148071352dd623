"""Reading topics in Spark: options, ranges of offsets, and columns as record batches."""
