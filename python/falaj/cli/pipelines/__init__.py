"""The verbs of `falaj pipeline`: a room for each, which has its `NAME` and the function `verb`.

Every module of this package is a verb, found by being here. It owns the verb's options and turns
them into a config; `falaj.cli.piping` has what they share, and `falaj.pipeline` does the work. None
of them imports that before it runs: it would load PySpark.
"""
