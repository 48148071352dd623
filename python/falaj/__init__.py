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
from falaj._core import Batch, NewRecord, Receipts, Record, __version__
from falaj.codecs import Codec
from falaj.errors import Error
from falaj.lean import TYPE_CHECKING
from falaj.slices import Slice
from falaj.stores import Store, open  # noqa: A004  # falaj.open is how it reads
from falaj.topics import Topic

if TYPE_CHECKING:
    from falaj import logging as logging  # no standard library is hidden: `falaj.logging`
    from falaj.admin import repair, verify
    from falaj.records import Position
    from falaj.transactions import Cursor, Transaction
if not TYPE_CHECKING:
    from falaj.lean import later as __getattr__  # noqa: F401  # Python itself calls it

__all__ = [
    "Batch",
    "Codec",
    "Cursor",
    "Error",
    "NewRecord",
    "Position",
    "Receipts",
    "Record",
    "Slice",
    "Store",
    "Topic",
    "Transaction",
    "__version__",
    "errors",
    "open",
    "repair",
    "verify",
]
