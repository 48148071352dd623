"""A client of falaj's server: a documented subset of `falaj.Store`, over HTTP, on any machine.

Example:
    with falaj_client.connect("http://127.0.0.1:4437") as store:
        orders = store.topic("orders", codec="json")
        orders.append({"id": 1}, key="eu")
"""

from falaj_client import errors, protocols
from falaj_client.aio import (
    AsyncAnyTopic,
    AsyncPartitionedTopic,
    AsyncSlice,
    AsyncStore,
    AsyncTopic,
    AsyncTransaction,
    aconnect,
)
from falaj_client.codecs import RAW, Codec
from falaj_client.errors import Error
from falaj_client.groups import AsyncConsumer, Consumer
from falaj_client.queues import AsyncJob, AsyncQueue, Job, Queue
from falaj_client.records import NewRecord, Position, Record
from falaj_client.store import Store, Transaction, connect
from falaj_client.topics import AnyTopic, PartitionedTopic, Slice, Topic

__all__ = [
    "RAW",
    "AnyTopic",
    "AsyncAnyTopic",
    "AsyncConsumer",
    "AsyncJob",
    "AsyncPartitionedTopic",
    "AsyncQueue",
    "AsyncSlice",
    "AsyncStore",
    "AsyncTopic",
    "AsyncTransaction",
    "Codec",
    "Consumer",
    "Error",
    "Job",
    "NewRecord",
    "PartitionedTopic",
    "Position",
    "Queue",
    "Record",
    "Slice",
    "Store",
    "Topic",
    "Transaction",
    "aconnect",
    "connect",
    "errors",
    "protocols",
]
