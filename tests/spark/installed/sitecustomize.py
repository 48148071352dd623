"""Let Spark's Python processes import the PySpark that is installed, and not collect it as garbage.

Python runs this first where `spark.drivers.ON_PATH` is on PYTHONPATH. It takes from the path what
Spark puts in front: the same sources, but without bytecode. Each process would compile them for
half a second, and the tests have hundreds.

PySpark collects garbage after each task, and each time goes through all that was ever imported: a
tenth of the tests' time. The next collections here pass over what one left alive.
"""

import gc
import sys

sys.path[:] = [
    place for place in sys.path if "/pyspark/" not in place or not place.endswith((".zip", ".jar"))
]

_collect = gc.collect


def collect(generation: int = 2) -> int:
    """Collect as `gc.collect` does, and let what is alive be."""
    found = _collect(generation)
    gc.freeze()
    return found


gc.collect = collect
