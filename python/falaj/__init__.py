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

from typing import TYPE_CHECKING

from falaj import errors
from falaj._any_topic import AnyTopic
from falaj._core import Batch, NewRecord, Receipts, Record, __version__
from falaj._slice import Slice
from falaj._store import Store, open  # noqa: A004  # falaj.open is how it reads
from falaj._topic import PartitionedTopic, Topic
from falaj.codecs import RAW, Codec
from falaj.errors import Error

if TYPE_CHECKING:
    from falaj import logging as logging  # no standard library is hidden: `falaj.logging`
    from falaj._admin import (
        BackupReport,
        Finding,
        GroupInfo,
        GroupPartitionInfo,
        LockInfo,
        LogInfo,
        LogRepair,
        LogReport,
        MemberInfo,
        PartitionInfo,
        PlaceInfo,
        RepairReport,
        SegmentInfo,
        Skipped,
        SkippedOfTopic,
        SlotInfo,
        Step,
        StoreInfo,
        TopicInfo,
        TopicReach,
        TrimReport,
        Verification,
        repair,
        verify,
    )
    from falaj._arguments import BulkLoadReport, QueueInfo
    from falaj._bulk import BulkLoad
    from falaj._compaction import CompactReport, Last
    from falaj._connect import aconnect, connect
    from falaj._consumer import Consumer
    from falaj._core import ExpiringProducer, Follower, Job, Part
    from falaj._jobs import Jobs
    from falaj._origins import OriginInfo, Origins, list_origins, open_origins
    from falaj._origins_follower import OriginsFollower
    from falaj._place import PlaceReport, RestoreReport, ShipReport, restore
    from falaj._place_store import PlaceState, PlaceStore, open_place
    from falaj._producers import Producer
    from falaj._queue import Queue
    from falaj._records import Position, Receipt
    from falaj._retention import Cut, LogMaintenance, Maintenance, TopicRetention
    from falaj._transaction import Cursor, Transaction
    from falaj._wait import AsyncConsumer, AsyncFollower
    from falaj.codecs import JSON
if not TYPE_CHECKING:
    from falaj._lazy import __dir__, __getattr__  # noqa: F401  # Python itself calls them

__all__ = [
    "JSON",
    "RAW",
    "AnyTopic",
    "AsyncConsumer",
    "AsyncFollower",
    "BackupReport",
    "Batch",
    "BulkLoad",
    "BulkLoadReport",
    "Codec",
    "CompactReport",
    "Consumer",
    "Cursor",
    "Cut",
    "Error",
    "ExpiringProducer",
    "Finding",
    "Follower",
    "GroupInfo",
    "GroupPartitionInfo",
    "Job",
    "Jobs",
    "Last",
    "LockInfo",
    "LogInfo",
    "LogMaintenance",
    "LogRepair",
    "LogReport",
    "Maintenance",
    "MemberInfo",
    "NewRecord",
    "OriginInfo",
    "Origins",
    "OriginsFollower",
    "Part",
    "PartitionInfo",
    "PartitionedTopic",
    "PlaceInfo",
    "PlaceReport",
    "PlaceState",
    "PlaceStore",
    "Position",
    "Producer",
    "Queue",
    "QueueInfo",
    "Receipt",
    "Receipts",
    "Record",
    "RepairReport",
    "RestoreReport",
    "SegmentInfo",
    "ShipReport",
    "Skipped",
    "SkippedOfTopic",
    "Slice",
    "SlotInfo",
    "Step",
    "Store",
    "StoreInfo",
    "Topic",
    "TopicInfo",
    "TopicReach",
    "TopicRetention",
    "Transaction",
    "TrimReport",
    "Verification",
    "__version__",
    "aconnect",
    "connect",
    "errors",
    "list_origins",
    "open",
    "open_origins",
    "open_place",
    "repair",
    "restore",
    "verify",
]
