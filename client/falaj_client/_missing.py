"""The calls that only a program on the server's machine has, and the sentence that says so."""

from __future__ import annotations

from typing import Any

from falaj_client.errors import NotOverHttp

__all__ = ["STORE", "TOPIC", "refuse"]

STORE = frozenset(
    [
        "backup",
        "configure",
        "id",
        "info",
        "maintain",
        "metrics",
        "path",
        "repair",
        "set_producer",
        "verify",
        "wait_for_topic",
        "await_for_topic",
        "writable",
    ]
)
TOPIC = frozenset(
    [
        "abort_bulk_load",
        "batches",
        "bulk_load",
        "commit_bulk_load",
        "cursor",
        "extend_arrow",
        "flush",
        "forget_idempotency_key",
        "forget_producer",
        "last_idempotency_key",
        "last_sequence",
        "latest",
        "producers",
        "scan",
        "stage",
        "sweep_bulk_loads",
        "to_arrow",
        "to_pandas",
        "to_polars",
        "to_reader",
        "wait_durable",
    ]
)


def refuse(handle: Any, name: str, known: frozenset[str]) -> AttributeError:
    """Make the error for an attribute that a handle does not have."""
    kind = type(handle).__name__
    if name in known:
        return NotOverHttp(
            f"{kind}.{name} is only for programs on the server's machine: open the store's "
            "directory there, with falaj.open()"
        )
    return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=handle)
