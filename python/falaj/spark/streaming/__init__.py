"""Topics as streams of Spark: micro-batches, checkpoints, open topics and lag."""
