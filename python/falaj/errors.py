"""The errors of falaj, each a situation of the caller.

Each class derives from exactly one of five bases, which say what helps: `RetryableError`,
`ConflictError`, `UsageError`, `MachineError` and `CorruptionError`. It derives too from the
built-in exception that a Python user expects, so `except OSError` or `except IndexError` work as
they do elsewhere. The message is one sentence with what to do next. The compiled half raises these;
which one when is written in rust/py/src/errors.rs. The engine's variants have the same names.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AppendTooLarge",
    "ConflictError",
    "CorruptData",
    "CorruptionError",
    "CursorMoved",
    "DecodeFailed",
    "DuplicateSequence",
    "DurabilityUnknown",
    "EncodeFailed",
    "Error",
    "Fenced",
    "FilesRemoved",
    "HandleClosed",
    "HistoryDeleted",
    "InvalidArgument",
    "InvalidManifest",
    "InvalidName",
    "LeaseExpired",
    "LockFileReplaced",
    "LockTimeout",
    "LogTruncated",
    "MachineError",
    "MissingExtra",
    "NeedsRecovery",
    "NoShipper",
    "NoSpace",
    "NotAStore",
    "NotStaged",
    "NotWritable",
    "ObjectMissing",
    "OffsetConflict",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "OutdatedFormat",
    "PartitionNotAssigned",
    "PathNotFound",
    "PermissionDenied",
    "PlaceDenied",
    "PlaceError",
    "PlaceFull",
    "PlaceNotFound",
    "PlaceRefused",
    "PlaceUnreachable",
    "RecordCompacted",
    "RemoteTimeout",
    "RetryableError",
    "SettingsMismatch",
    "StoreNotFound",
    "SyncFailed",
    "SystemCallFailed",
    "TooManyWriters",
    "TopicDeleted",
    "TopicFinished",
    "TwinStore",
    "UnknownGroup",
    "UnknownOrigin",
    "UnknownQueue",
    "UnknownTopic",
    "UnsupportedFilesystem",
    "UnsupportedPlace",
    "UnsupportedVersion",
    "UsageError",
]

_HEX = frozenset("0123456789abcdef")


def shown(number: object, form: str = "") -> str:
    """Format a number for a sentence; Python converts none with thousands of digits."""
    try:
        return format(number, form)
    except ValueError:
        return "a number of thousands of digits"


def named(value: object) -> str:
    """Show an argument in a sentence: short text and numbers as they are, else the type."""
    is_plain = value is None or isinstance(value, (str, bytes, int, float))
    try:
        found = repr(value) if is_plain else ""
    except ValueError:  # Python makes no text of a number with thousands of digits
        found = ""
    return found if 0 < len(found) <= 80 else type(value).__name__


def _of_cache(path: str | None) -> str | None:
    """Return what to do about a missing file, if a reader of a place had it in its cache.

    The engine reads the directory there as any store, and so says what helps for a store.
    """
    cache, views, view = (path or "").rpartition("/views/")
    if not views or view[16:22] != "/store" or not _HEX.issuperset(view[:16]):
        return None
    return (
        f"the cache {cache} was removed, or a part of it, while a place was read: open the place "
        "again, which makes the cache again"
    )


class Error(Exception):
    """Anything that falaj raises on purpose, except the `TypeError` of a wrong argument.

    Attributes:
        path: The file or directory it is about, or None.
        position: The byte in that file, or None.
        offset: The record it is about, or None.
    """

    path: str | None = None
    position: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        """Return the message alone; `KeyError` and `OSError` would decorate it."""
        return str(self.args[0]) if self.args else type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message and the attributes, so that the error crosses processes."""
        return type(self), self.args, dict(self.__dict__)


class PlaceError(OSError):
    """A place, such as a bucket, refused or gave no answer.

    Each kind is a `falaj.Error` too, with the base that says what helps. No message of theirs has
    credentials.

    Attributes:
        url: The place.
        key: The object that the call is about, or None.
    """

    url: str | None = None
    key: str | None = None


class RetryableError(Error):
    """The same call may succeed later: wait, then repeat it."""


class ConflictError(Error):
    """The state that the call relied on has changed: read it again, decide again, make a new call.

    Repeating the same call fails again. Nothing was appended or committed.
    """


class UsageError(Error):
    """The call or its data cannot be right: change them."""


class MachineError(Error):
    """The machine refuses: free space, fix the disk, raise the limit or install what is missing."""


class CorruptionError(Error):
    """Bytes on disk are not those that were written: verify, restore a backup, or repair."""


# --- The same call may succeed later --------------------------------------------------------------


class LockTimeout(RetryableError, TimeoutError):
    """A lock was not free within `timeout=`; the message names the process that holds it."""


class NeedsRecovery(RetryableError, OSError):
    """The end of the log awaits recovery: open the store for writing once."""


class PlaceUnreachable(RetryableError, PlaceError, ConnectionError):
    """The place gave no answer, or one that says to come back later."""


# --- The state has changed ----------------------------------------------------------------------


class OffsetConflict(ConflictError, ValueError):
    """An append would get another offset than the one that it expected. Nothing was appended.

    Another append came first, or the expected offset lies beyond the end.

    Attributes:
        topic: Name of the topic.
        partition: The partition.
        expected: The offset that was expected.
        next: The offset that the next record gets.
    """

    topic: str
    partition: int
    expected: int
    next: int


class CursorMoved(ConflictError, ValueError):
    """Another process moved the cursor that a transaction commits. Nothing was appended."""


class PartitionNotAssigned(ConflictError, ValueError):
    """The partition is assigned to another member of the group. Nothing was committed.

    Attributes:
        topic: Name of the topic, or None if several partitions are meant.
        partition: The partition, or None.
    """

    topic: str | None = None
    partition: int | None = None


class LeaseExpired(ConflictError, ValueError):
    """The lease of a job has ended: another worker may have the job, so drop the result.

    `offset` is the record's. Nothing changed for the job.
    """


class TopicDeleted(ConflictError, LookupError):
    """The topic was deleted while in use.

    Attributes:
        topic: Name of the topic; None in a job of Spark's.
    """

    topic: str | None = None


class TopicFinished(ConflictError, ValueError):
    """The topic is finished: no record comes after those that are there. Nothing was appended.

    Attributes:
        topic: Name of the topic.
        partition: The partition that the first refused record was for.
    """

    topic: str
    partition: int


class TwinStore(ConflictError, PlaceError):
    """A copy of this store, of the running process too, ships to the same place."""


class PlaceRefused(ConflictError, PlaceError):
    """The place has another history than the store: nothing was shipped.

    The message names the topic, and the two ways on.
    """


class ObjectMissing(ConflictError, PlaceError, LookupError):
    """The place has no object under this key: it was deleted, or never written."""


# --- The call or its data cannot be right ---------------------------------------------------------


class InvalidArgument(UsageError, ValueError):
    """An argument cannot be right; the message says what would be."""


class EncodeFailed(InvalidArgument, TypeError):
    """The codec does not take a value, or could not give it back. Nothing was appended.

    `__cause__` is the codec's exception.

    Attributes:
        topic: Name of the topic.
        partition: The partition, or None where the key was to choose it.
    """

    topic: str
    partition: int | None


class InvalidName(UsageError, ValueError):
    """No topic, log, consumer group or queue can have this name."""


class AppendTooLarge(UsageError, ValueError):
    """A record, or the records of one append together, are larger than one append may be."""


class UnknownTopic(UsageError, KeyError):
    """There is no topic of this name, and none was created; the message lists the existing ones."""


class UnknownGroup(UsageError, KeyError):
    """There is no consumer group of this name; the message lists those there are."""


class UnknownOrigin(UsageError, PlaceError, LookupError):
    """The place has no such origin, or several to choose from; the message lists them."""


class UnknownQueue(UsageError, KeyError):
    """There is no queue of this name, and none was created; the message lists those there are."""


class SettingsMismatch(UsageError, ValueError):
    """The topic or store exists with another setting than the one asked for.

    Attributes:
        topic: Name of the topic, or path of the store.
        setting: Which setting, such as "codec".
        stored: What the store keeps, as text; empty where a call is for another kind of topic.
        asked: What was asked for, as text.
    """

    topic: str = ""
    setting: str = ""
    stored: str = ""
    asked: str = ""


class NotAStore(UsageError, OSError):
    """The path is not a falaj store, and does not become one."""


class StoreNotFound(NotAStore, FileNotFoundError):
    """There is no store at the path, and none was created; the message says what is missing."""


class UnsupportedFilesystem(UsageError, OSError):
    """The file system cannot keep falaj's promises."""


class PlaceNotFound(UsageError, PlaceError, FileNotFoundError):
    """There is no such bucket, container or directory: create it, or correct the URL."""


class UnsupportedPlace(UsageError, PlaceError):
    """The place cannot keep falaj's promises: it replaces objects, or lists old ones."""


class NotWritable(UsageError, PermissionError):
    """A write through a store that was opened for reading."""


class HandleClosed(UsageError, ValueError):
    """The handle was closed; open another."""


class OffsetOutOfRange(UsageError, IndexError):
    """No record has this offset: it is not written yet, or was deleted.

    Attributes:
        topic: Name of the topic.
        partition: The partition.
        first: Lowest offset that is left.
        end: Offset after the last one.
    """

    topic: str
    partition: int
    first: int
    end: int


class RecordCompacted(UsageError, LookupError):
    """Compaction removed this record; read the next offset.

    Attributes:
        topic: Name of the topic.
        offset: The record's offset.
    """

    topic: str


class DecodeFailed(UsageError, ValueError):
    """The codec cannot read a value: it was written with another codec, or in another shape.

    `__cause__` is the codec's exception.

    Attributes:
        topic: Name of the topic.
        partition: The partition.
        offset: The record's offset.
    """

    topic: str
    partition: int


class HistoryDeleted(UsageError, PlaceError, LookupError):
    """The place no longer has the numbers that a restore to that moment needs."""


class OutOfOrderSequence(UsageError, ValueError):
    """A producer skipped sequences. Nothing was appended.

    Attributes:
        topic: Name of the topic.
        partition: The partition, where sequences count in each alone; else the first one.
        next: The sequence that comes next, one above the highest known.
    """

    topic: str
    partition: int
    next: int


class DuplicateSequence(UsageError, ValueError):
    """A producer repeats a sequence older than its last five. Nothing was appended.

    The offset of the first append is no longer known, or the producer began with a later sequence.

    Attributes:
        topic: Name of the topic.
        partition: The partition, where sequences count in each alone; else the first one.
        highest: The highest known sequence of the producer.
    """

    topic: str
    partition: int
    highest: int


class LogTruncated(UsageError, LookupError):
    """The log no longer has what a consumer group had read: `seek` chooses where it resumes.

    The log lost its end, or is an older copy.

    Attributes:
        topic: Name of the topic.
        partition: The partition.
        offset: Up to where the group had read.
        end: Where the log ends.
    """

    topic: str
    partition: int
    end: int


class InvalidManifest(UsageError, ValueError):
    """The manifest of a part is corrupt, or of another load or topic. Nothing was committed."""


class NotStaged(UsageError, LookupError):
    """A part of a bulk load is gone: the load was committed or aborted, or its part was deleted."""


# --- The machine refuses --------------------------------------------------------------------------


class SystemCallFailed(MachineError, OSError):
    """The operating system refused; `errno` and `filename` say what and where."""


class PermissionDenied(SystemCallFailed, PermissionError):
    """The operating system does not let this user do that."""


class PathNotFound(SystemCallFailed, FileNotFoundError):
    """A file or directory, or a directory above it, does not exist."""

    def __str__(self) -> str:
        """Return the message, or what helps a reader of a place."""
        return _of_cache(self.path) or super().__str__()


class NoSpace(MachineError, OSError):
    """Disk, quota or inode table are full, or a file-size limit was hit; the message says which."""


class PlaceDenied(MachineError, PlaceError, PermissionError):
    """The place refuses these credentials: they are missing, wrong, expired or lack a right."""


class PlaceFull(NoSpace, PlaceError):
    """The place has no space left, or the quota of its owner is used up."""


class SyncFailed(MachineError, OSError):
    """A sync failed: reads succeed, and appends fail until the disk works again."""


class DurabilityUnknown(MachineError, OSError):
    """The append is visible from `offset` on, but not known to be on the disk."""


class NoShipper(MachineError, OSError):
    """No process ships the store, or the one that did has ended.

    Where `offset` is None, nothing was appended. Else the append is on this disk from that offset
    on, and whether it left the machine is unknown.
    """


class Fenced(MachineError, OSError):
    """The shipper stopped, because the process of another store claimed its place.

    `offset` is as for `NoShipper`. Find out which of the two stores is to continue.
    """


class RemoteTimeout(MachineError, TimeoutError):
    """The append is on this disk from `offset` on, and it is unknown whether it left the machine.

    Wait for it with `wait_remote`, and do not append it again.
    """


class TooManyWriters(MachineError, OSError):
    """As many processes have the store open for writing as it allows."""


class UnsupportedVersion(MachineError, OSError):
    """A newer version of falaj wrote this; upgrade to read it."""


class OutdatedFormat(MachineError, OSError):
    """An older format: print its records with the falaj that wrote it, then append them here."""


class MissingExtra(MachineError, ImportError):
    """A package is missing; the message says what to install: `pip install 'falaj[arrow]'`."""


class FilesRemoved(MachineError, FileNotFoundError):
    """The store's files were removed or moved away while in use: open the store again.

    Records appended since the last successful sync are only in the removed files.
    """

    def __str__(self) -> str:
        """Return the message, or what helps a reader of a place."""
        return _of_cache(self.path) or super().__str__()


def cache_removed(store: str) -> FilesRemoved:
    """Make the error of a reader of a place whose directory in the cache is gone."""
    error = FilesRemoved(f"{store} was removed while in use: open the place again")
    error.path = store
    return error


class LockFileReplaced(MachineError, OSError):
    """A lock or control file was replaced while in use."""


# --- Bytes are not those that were written --------------------------------------------------------


class CorruptData(CorruptionError, OSError):
    """Bytes are not those that were written; `falaj verify` says how many records are lost."""
