"""Arrow arrays and NumPy arrays of the same bytes, without pandas.

`pyarrow.array` and `Array.to_numpy` import pandas at their first call, which takes each of Spark's
workers 0.3 seconds. The functions here share the buffers instead, and copy nothing but booleans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
import pyarrow

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["array_of", "bytes_of", "numbers_of", "slices_of"]


def array_of(values: numpy.ndarray) -> pyarrow.Array:
    """Make an Arrow array of numbers or booleans.

    Example:
        >>> array_of(numpy.array([3, 4])).to_pylist(), array_of(numpy.array([True])).to_pylist()
        ([3, 4], [True])
    """
    data = numpy.packbits(values, bitorder="little") if values.dtype == bool else values
    kind = pyarrow.from_numpy_dtype(values.dtype)
    buffers = [None, pyarrow.py_buffer(numpy.ascontiguousarray(data))]
    return pyarrow.Array.from_buffers(kind, len(values), buffers)


def numbers_of(array: pyarrow.Array) -> numpy.ndarray:
    """Make a NumPy array of an Arrow array of numbers, times or booleans that has no null.

    Example:
        >>> numbers_of(pyarrow.array([3, 4, 5])[1:]), numbers_of(pyarrow.array([True, False])[1:])
        (array([4, 5]), array([False]))
    """
    kind, place, count = array.type, array.offset, len(array)
    data = array.buffers()[1] or b""
    if pyarrow.types.is_boolean(kind):
        bits = numpy.unpackbits(numpy.frombuffer(data, numpy.uint8), bitorder="little")
        return bits[place : place + count].astype(bool)
    if pyarrow.types.is_timestamp(kind):
        kind = pyarrow.int64()
    return numpy.frombuffer(data, kind.to_pandas_dtype())[place : place + count]


def slices_of(values: numpy.ndarray, ends: numpy.ndarray) -> pyarrow.Array:
    """Make an Arrow array of the bytes of slices.

    Args:
        values: Numbers.
        ends: Where the first slice begins, and where each ends.
    """
    places = pyarrow.py_buffer((ends * values.itemsize).astype(numpy.int32))
    buffers = [None, places, pyarrow.py_buffer(numpy.ascontiguousarray(values))]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(ends) - 1, buffers)


def bytes_of(parts: Sequence[bytes]) -> pyarrow.Array:
    """Make an Arrow array of bytes.

    Example:
        >>> bytes_of([b"EWR", b"", b"JFK"]).to_pylist()
        [b'EWR', b'', b'JFK']
    """
    ends = numpy.cumsum([0, *map(len, parts)])
    return slices_of(numpy.frombuffer(b"".join(parts), numpy.uint8), ends)
