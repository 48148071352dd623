"""Spark reads topics: rules without a JVM, and real queries in one shared session."""
