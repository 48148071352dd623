"""Let Spark's Python processes import the PySpark that is installed, not the one in its zip.

Python runs this first where `spark.drivers.ON_PATH` is on PYTHONPATH. It takes from the path what
Spark puts in front: the same sources, but without bytecode. Each process would compile them for
half a second, and the tests have hundreds.
"""

import sys

sys.path[:] = [
    place for place in sys.path if "/pyspark/" not in place or not place.endswith((".zip", ".jar"))
]
