"""Pipelines in Spark, each against a plain-Python reference, on real flights."""
