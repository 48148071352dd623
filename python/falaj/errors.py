"""What can go wrong, told as the caller's situation.

Every class derives from `Error` and from the built-in exception that a Python user expects, so
`except OSError` or `except IndexError` work as they do elsewhere. The message is one sentence with
the remedy. The compiled half raises these; which one when is written in rust/py/src/errors.rs.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "BadManifest",
    "BadName",
    "Closed",
    "Compacted",
    "Conflict",
    "Corrupt",
    "DuplicateUnknownOffset",
    "DurabilityUnknown",
    "Error",
    "FilesRemoved",
    "FilesystemRefused",
    "IOFailed",
    "Invalid",
    "Latched",
    "LeaseOver",
    "LockFileReplaced",
    "LockTimeout",
    "LogRewound",
    "NeedsRecovery",
    "Newer",
    "NoSlot",
    "NoSpace",
    "NoSuchConsumer",
    "NoSuchTopic",
    "NotAStore",
    "NotOwner",
    "NotPermitted",
    "NotStaged",
    "OffsetOutOfRange",
    "Older",
    "OutOfSequence",
    "ReadOnly",
    "SettingsMismatch",
    "TooLarge",
    "TopicDeleted",
]


def shown(number: object, form: str = "") -> str:
    """Write a number into a sentence: of one with thousands of digits Python makes no text."""
    try:
        return format(number, form)
    except ValueError:
        return "a number of thousands of digits"


class Error(Exception):
    """Anything that falaj raises on purpose, but for `TypeError`.

    Attributes:
        remedy: What helps: "retry", "fix the input", "fix the machine", "repair", "upgrade" or
            "reopen".
        path: The file or directory it is about, or None.
        position: The byte in that file, or None.
        offset: The record it is about, or None.
    """

    remedy: str = "fix the input"
    path: str | None = None
    position: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        """Tell the message alone: `KeyError` and `OSError` would dress it up."""
        return str(self.args[0]) if self.args else type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message and the attributes, so that it crosses processes."""
        return type(self), self.args, dict(self.__dict__)


class IOFailed(Error, OSError):
    """The operating system refused; `errno` and `filename` say what and where."""


class NotPermitted(IOFailed, PermissionError):
    """The operating system did not allow it."""


class NoSpace(Error, OSError):
    """Disk, quota or inode table are full, or a file-size limit was hit; what helps is said."""


class NotAStore(Error, OSError):
    """The path is not a falaj store, and is not made one."""


class Newer(Error, OSError):
    """A newer version of falaj wrote this; upgrade to read it."""


class Older(Error, OSError):
    """It is of an older format: print its records with the falaj that wrote it, and append them."""


class Corrupt(Error, OSError):
    """Bytes are not what was written; `falaj verify` tells how much is hurt."""


class NeedsRecovery(Error, OSError):
    """The log was not recovered since a crash; open the store for writing once."""


class Latched(Error, OSError):
    """A sync failed: reads go on, appends do not until the disk is mended."""


class LockTimeout(Error, TimeoutError):
    """A lock was not had within `timeout=`; the message names the holder."""


class LockFileReplaced(Error, OSError):
    """A lock or control file was replaced while in use."""


class FilesRemoved(Error, FileNotFoundError):
    """The store's files were removed or moved away while in use: open the store again.

    Records appended since the last successful sync are only in the removed files.
    """


class NoSlot(Error, OSError):
    """As many processes write to the store as can."""


class FilesystemRefused(Error, OSError):
    """The file system cannot keep falaj's promises."""


class BadName(Error, ValueError):
    """No topic, log, consumer or queue can have this name."""


class Invalid(Error, ValueError):
    """An argument cannot be right; the message says what would be."""


class TooLarge(Error, ValueError):
    """A record or batch is larger than one append may be."""


class NoSuchTopic(Error, KeyError):
    """There is no topic of this name, and the store was opened for reading."""


class TopicDeleted(Error, LookupError):
    """The topic was deleted while in use."""


class SettingsMismatch(Error, ValueError):
    """The topic or store exists with another setting than the one asked for."""


class OffsetOutOfRange(Error, IndexError):
    """No record has this offset: not written yet, or gone.

    Attributes:
        topic: Name of the topic.
        partition: Which partition.
        first: Lowest offset that is there.
        end: Offset behind the last one.
    """

    topic: str
    partition: int
    first: int
    end: int


class Compacted(Error, LookupError):
    """Compaction removed this record; read the next offset."""


class Conflict(Error, ValueError):
    """Somebody was faster: the offset that an append expected is taken. Nothing was appended.

    Attributes:
        expected: The offset that was expected.
        next: The offset that the next record gets.
    """

    expected: int
    next: int


class OutOfSequence(Error, ValueError):
    """A producer left sequences out. Nothing was appended.

    Attributes:
        next: The sequence that comes next.
    """

    next: int


class DuplicateUnknownOffset(Error, ValueError):
    """A sequence before those that are remembered of the producer. Nothing was appended.

    Remembered are the last five. It is the repeat of an append of which the offset is not known any
    more, or comes before the producer's first.
    """


class LogRewound(Error, LookupError):
    """What a consumer had read is not what its log holds there now: `seek` says where to go on.

    The log lost its end, or is an older copy.

    Attributes:
        topic: Name of the topic.
        partition: Which partition.
        offset: Up to where the consumer had read.
        end: Where the log ends.
    """

    topic: str
    partition: int
    end: int


class NotOwner(Error, ValueError):
    """Another member of the consumer has the partition. Nothing was committed."""


class NoSuchConsumer(Error, KeyError):
    """There is no consumer of this name."""


class LeaseOver(Error, ValueError):
    """The right to a job of a queue is over: somebody else may work on it, so drop the result.

    `offset` is the record's. Nothing changed for the job.
    """


class BadManifest(Error, ValueError):
    """The manifest of a part is damaged, or of another job or topic. Nothing was committed."""


class NotStaged(Error, LookupError):
    """A part of a job is gone: the job was committed or aborted, or what it staged was swept."""


class ReadOnly(Error, PermissionError):
    """Writing through a store that was opened for reading."""


class Closed(Error, ValueError):
    """The handle was closed; open another."""


class DurabilityUnknown(Error, OSError):
    """The append is visible from `offset` on, but not known to be on the medium."""
