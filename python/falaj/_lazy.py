"""The public names whose modules are imported when a program uses them.

Importing all of falaj takes ten times as long as importing what every program needs.
`falaj/__init__.py` has the list of all public names.
"""

import sys

__all__ = ["LAZY", "__dir__", "__getattr__"]

LAZY = {
    "JSON": "codecs",
    "AsyncConsumer": "_wait",
    "AsyncFollower": "_wait",
    "BackupReport": "_admin",
    "BulkLoad": "_bulk",
    "BulkLoadReport": "_arguments",
    "CompactReport": "_compaction",
    "Consumer": "_consumer",
    "Cursor": "_transaction",
    "Cut": "_retention",
    "ExpiringProducer": "_core",
    "Finding": "_admin",
    "Follower": "_core",
    "GroupInfo": "_admin",
    "GroupPartitionInfo": "_admin",
    "Job": "_core",
    "Jobs": "_jobs",
    "Last": "_compaction",
    "LockInfo": "_admin",
    "LogInfo": "_admin",
    "LogMaintenance": "_retention",
    "LogRepair": "_admin",
    "LogReport": "_admin",
    "Maintenance": "_retention",
    "MemberInfo": "_admin",
    "OriginInfo": "_origins",
    "Origins": "_origins",
    "OriginsFollower": "_origins_follower",
    "Part": "_core",
    "PartitionInfo": "_admin",
    "PlaceInfo": "_admin",
    "PlaceReport": "_place",
    "PlaceState": "_place_store",
    "PlaceStore": "_place_store",
    "Position": "_records",
    "Producer": "_producers",
    "Queue": "_queue",
    "QueueInfo": "_arguments",
    "Receipt": "_records",
    "RepairReport": "_admin",
    "RestoreReport": "_place",
    "SegmentInfo": "_admin",
    "ShipReport": "_place",
    "Skipped": "_admin",
    "SkippedOfTopic": "_admin",
    "SlotInfo": "_admin",
    "Step": "_admin",
    "StoreInfo": "_admin",
    "TopicInfo": "_admin",
    "TopicReach": "_admin",
    "TopicRetention": "_retention",
    "Transaction": "_transaction",
    "TrimReport": "_admin",
    "Verification": "_admin",
    "aconnect": "_connect",
    "connect": "_connect",
    "list_origins": "_origins",
    "open_origins": "_origins",
    "open_place": "_place_store",
    "repair": "_admin",
    "restore": "_place",
    "verify": "_admin",
}
"""Public names, and the module that each comes from."""


def __getattr__(name: str) -> object:
    """Import a public name of the package; Python calls this for a name that is not loaded yet."""
    if name != "logging" and name not in LAZY:
        raise AttributeError(f"module 'falaj' has no attribute {name!r}")
    from importlib import import_module  # few programs need it

    if name == "logging":
        return import_module("falaj.logging")
    value: object = getattr(import_module(f"falaj.{LAZY[name]}"), name)
    setattr(sys.modules["falaj"], name, value)
    return value


def __dir__() -> list[str]:
    """List the public names of the package, imported or not."""
    return sorted([*sys.modules["falaj"].__all__, "logging"])
