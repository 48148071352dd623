"""An event log that many processes on one machine share: a directory, no broker, no daemon.

Example:
    >>> import falaj
    >>> store = falaj.open(path)
    >>> orders = store.topic("orders", codec="json")
    >>> orders.append({"id": 1}, key=b"eu")
    0
    >>> [order.value for order in orders]
    [{'id': 1}]
"""

from falaj import errors
from falaj._core import __version__
from falaj.admin import repair, verify
from falaj.codecs import Codec
from falaj.errors import Error
from falaj.records import Batch, NewRecord, Position, Record
from falaj.slices import Slice
from falaj.stores import Store, open  # noqa: A004  # falaj.open is how it reads
from falaj.topics import Topic

__all__ = [
    "Batch",
    "Codec",
    "Error",
    "NewRecord",
    "Position",
    "Record",
    "Slice",
    "Store",
    "Topic",
    "__version__",
    "errors",
    "open",
    "repair",
    "verify",
]
