"""Rows of an outbox that cannot be records: the reason, and the dead letter."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from falaj._checks import writable
from falaj._core import AnyTopic, NewRecord
from falaj.errors import InvalidArgument, named, shown

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from falaj._topic import EitherTopic

__all__ = ["Refusal", "letter", "opened_for_letters"]

_REASON_MAX = 500


class Refusal(Exception):
    """The reason why a row cannot be a record: its column, if known, and the error."""

    def __init__(self, column: str | None, error: Exception) -> None:
        """Keep them."""
        super().__init__(column, error)
        self.column = column
        self.error = error

    def __str__(self) -> str:
        """Describe it in a few words, without half characters."""
        why = f"{self.error}" or "it was refused"
        if not isinstance(self.error, ValueError | TypeError):
            why = f"{type(self.error).__name__}: {why}"
        why = why if len(why) <= _REASON_MAX else why[:_REASON_MAX] + "…"
        why = why.encode("utf-8", "backslashreplace").decode()
        return why if self.column is None else f'column "{self.column}": {why}'

    def told(self, row: int, table: str, topic: str) -> str:
        """Describe it with the row."""
        return f"row {shown(row)} of {table} cannot be a record of topic {topic!r}: {self}"


def opened_for_letters(topic: EitherTopic, where: EitherTopic | str | None) -> EitherTopic:
    """Open the topic of dead letters of an outbox.

    Args:
        topic: The topic of the outbox.
        where: The topic, or its name; None for the usual name.

    Raises:
        InvalidArgument: It cannot have the dead letters.
        NotWritable, TopicFinished: No record can be appended to it.
    """
    if where is None or isinstance(where, str):
        store, name = topic.store, f"{topic.name}.dead" if where is None else where
        is_there = name in store.topics
        where = store.any_topic(name) if is_there else store.topic(name, codec="json")
    if not isinstance(where, AnyTopic):
        raise TypeError(f"dead_letter is a topic, or its name, not {named(where)}")
    where._expect()
    if where.codec not in ("json", "bytes"):
        raise InvalidArgument(
            f"dead letters are JSON, and topic {where.name!r} holds {where.codec}: give one "
            'with the codec "json" or "bytes"'
        )
    if where.generation == topic.generation:
        raise InvalidArgument(
            f"dead_letter= is topic {where.name!r}, the outbox's own: name another"
        )
    writable(where, "dead_letter")
    return where


def letter(
    row: sqlite3.Row, tags: Mapping[str, str], codec: str, *, whole: bool = True
) -> NewRecord:
    """Make a dead letter of a row, whose first column is its id.

    Args:
        row: The row.
        tags: Additional headers.
        codec: The codec of the topic of dead letters, json or bytes.
        whole: Whether to keep the columns; else the value is JSON's null.
    """
    id_, *_ = row
    names = row.keys()[1:]
    columns = (
        {n: _as_json(v) for n, v in zip(names, tuple(row)[1:], strict=True)} if whole else None
    )
    value: Any = columns if codec == "json" else json.dumps(columns).encode()
    headers = {f"falaj-{name}": text.encode() for name, text in tags.items()}
    return NewRecord(value, str(id_).encode(), headers=headers | {"falaj-id": str(id_).encode()})


def _as_json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            value = value.encode("utf-8", "surrogateescape")
    return {"base64": b64encode(value).decode()} if isinstance(value, bytes) else value
