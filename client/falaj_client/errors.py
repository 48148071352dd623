"""The errors of a client: the classes of `falaj.errors`, by meaning.

Where the package falaj is installed, these are its own classes, so `except falaj.Error` catches
what a server refuses. Without it, they are the classes of `_own_errors`: the same file, which the
wheel has too. It also has the classes that an older falaj does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from falaj_client import _own_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from falaj_client._own_errors import *  # noqa: F403  # the same names, for type checkers
    from falaj_client._own_errors import RetryableError, UsageError  # noqa: TC004  # as above
else:
    try:
        from falaj import errors as _found
    except ImportError:
        _found = _own_errors
    for _name in _own_errors.__all__:
        globals()[_name] = getattr(_found, _name, None) or getattr(_own_errors, _name)

__all__ = [*_own_errors.__all__, "NotOverHttp", "ServerUnavailable"]


class ServerUnavailable(RetryableError, ConnectionError):
    """The server gave no answer within `timeout=`, or was too busy all the while.

    Attributes:
        may_have_happened: True if a request arrived, perhaps, and its answer did not.
    """

    may_have_happened: bool = False


class NotOverHttp(UsageError, AttributeError):
    """Only a program on the server's machine can do this; the message says what to call."""


#: The class of each kind of problem document, which ends its `type`.
_KINDS: Mapping[str, str] = {
    "append-too-large": "AppendTooLarge",
    "bad-request": "InvalidArgument",
    "batch-too-large": "AppendTooLarge",
    "body-too-large": "AppendTooLarge",
    "corrupt-data": "CorruptData",
    "cursor-moved": "CursorMoved",
    "duplicate-sequence": "DuplicateSequence",
    "durability-unknown": "DurabilityUnknown",
    "fenced": "Fenced",
    "forbidden": "PermissionDenied",
    "foreign-origin": "PermissionDenied",
    "invalid-argument": "InvalidArgument",
    "invalid-name": "InvalidName",
    "lease-expired": "LeaseExpired",
    "lease-lost": "LeaseExpired",
    "lock-timeout": "LockTimeout",
    "needs-recovery": "NeedsRecovery",
    "no-shipper": "NoShipper",
    "no-space": "NoSpace",
    "offset-conflict": "OffsetConflict",
    "offset-out-of-range": "OffsetOutOfRange",
    "out-of-order-sequence": "OutOfOrderSequence",
    "group-in-use": "InvalidArgument",
    "partition-lost": "PartitionNotAssigned",
    "partition-not-assigned": "PartitionNotAssigned",
    "remote-timeout": "RemoteTimeout",
    "read-only": "NotWritable",
    "record-compacted": "RecordCompacted",
    "session-ended": "PartitionNotAssigned",
    "settings-mismatch": "SettingsMismatch",
    "sync-failed": "SyncFailed",
    "too-many-writers": "TooManyWriters",
    "topic-deleted": "TopicDeleted",
    "topic-finished": "TopicFinished",
    "topic-recreated": "TopicDeleted",
    "subscription-differs": "InvalidArgument",
    "unauthenticated": "PermissionDenied",
    "unknown-group": "UnknownGroup",
    "unknown-host": "InvalidArgument",
    "unknown-queue": "UnknownQueue",
    "unknown-topic": "UnknownTopic",
    "unknown-values": "InvalidArgument",
}
#: Members of a problem document that are attributes of an error under another name.
_MEMBERS: Mapping[str, str] = {
    "start_offset": "first",
    "end_offset": "end",
    "next_sequence": "next",
    "highest_sequence": "highest",
}
#: Remedies of whole groups of errors: the engine's sentence says better what helps.
_GENERAL = {"change the request", "try again", "read what is there now, and decide again"}
_NUMBERS = {"next", "first", "end", "offset", "partition", "highest", "expected"}


def of_problem(status: int, document: Mapping[str, Any]) -> Exception:
    """Make the error that a problem document stands for; its sentence ends with the remedy.

    Args:
        status: The status of the answer.
        document: The document, or an empty one where the answer had none.
    """
    kind = str(document.get("type", "")).rpartition(":")[2]
    usual = "UsageError" if 400 <= status < 500 else "MachineError"
    usual = "AppendTooLarge" if status == 413 else usual
    name = _KINDS.get(kind, "ServerUnavailable" if status in (429, 502, 503, 504) else usual)
    sentence = str(document.get("detail") or f"the server answered with status {status}")
    remedy = document.get("remedy")
    made: type[Exception] = globals()[name]
    error = made(sentence if remedy is None or remedy in _GENERAL else f"{sentence}: {remedy}")
    error.__dict__["_kind"] = kind
    if name in ("NoShipper", "Fenced"):
        error.offset = None  # type: ignore[attr-defined]
    if kind == "forbidden" and name == "PermissionDenied":
        error.errno = 13  # type: ignore[attr-defined]
    for member, value in document.items():
        attribute = _MEMBERS.get(member, member)
        if member == "topic" or attribute in _NUMBERS:
            setattr(error, attribute, int(value) if attribute in _NUMBERS else value)
    return error
