"""The main job on real input, for a newcomer to watch: `falaj demo`.

Owns five steps: three processes append the flights that left New York in 2013 while a fourth
follows, and one of them is killed on the way; a count that every flight is there exactly once; a
streaming query in Spark, which is killed too; the query's rest and a PySpark job over the topic,
held against plain Python; a report. It uses the package as anybody would, and raises `Failed`
where a figure is not what it has to be.

Needs the extra `demo`. Importing this loads nothing of it.

Example:
    >>> import falaj.demo
    >>> report = falaj.demo.run("falaj-demo")                                   # doctest: +SKIP
"""

from falaj.demo.failed import Failed
from falaj.demo.steps import run

__all__ = ["Failed", "run"]
