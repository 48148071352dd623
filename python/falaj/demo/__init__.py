"""The main job on real input, for a newcomer to watch: `falaj demo`.

Owns five steps:

1. Three processes append the flights that left New York in 2013 while a fourth follows; one of the
   three is killed on the way.
2. A count checks that every flight is there exactly once.
3. A streaming query in Spark copies late flights, and is killed too.
4. The query finishes, and a PySpark job over the topic is compared with plain Python.
5. The demo writes a report.

It uses only the package's public calls, and raises `Failed` where a figure is wrong.

Needs the extra `demo`. Importing this loads nothing of it.

Example:
    >>> import falaj.demo
    >>> report = falaj.demo.run("falaj-demo")                                   # doctest: +SKIP
"""

from falaj.demo.failed import Failed
from falaj.demo.steps import run

__all__ = ["Failed", "run"]
