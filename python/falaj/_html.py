"""HTML tables of topics and scans for notebooks.

Invariant: the contents of a record are escaped and cut off, so no record can put markup into a
page. Showing never raises: an error is shown in place of the table.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from falaj._any_topic import AnyTopic
    from falaj._core import Record
    from falaj._scan import Scan

__all__ = ["of_scan", "of_topic"]

_ROWS = 10
_TEXT_MAX = 80


def of_topic(topic: AnyTopic[Any]) -> str:
    """Show the last records of a topic, of each of its partitions."""
    names = ("partition", "offset", "timestamp", "key", "value")
    try:
        rows = [
            (record.partition, record.offset, record.timestamp, record.key, _value(record))
            for part in topic._parts()
            for record in part.last(_ROWS)
        ]
    except Exception as error:  # noqa: BLE001  # a page shows what it can
        return _page(repr(topic), f"<p>{escape(str(error))}</p>")
    return _page(repr(topic), _table(names, rows))


def of_scan(scan: Scan) -> str:
    """Show the first rows of a scan."""
    try:
        head = scan.scanner(batch_size=_ROWS).head(_ROWS)
        rows = [tuple(row.values()) for row in head.to_pylist()]
        return _page("falaj scan", _table(head.column_names, rows))
    except Exception as error:  # noqa: BLE001  # a page shows what it can
        return _page("falaj scan", f"<p>{escape(str(error))}</p>")


def _value(record: Record[Any]) -> object:
    try:
        value: object = record.value
    except ValueError:  # the codec cannot read it
        return record.to_bytes()
    return bytes(value) if isinstance(value, memoryview) else value


def _page(title: str, body: str) -> str:
    return f"<div><code>{escape(title)}</code>{body}</div>"


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = ("".join(f"<td>{_cell(each)}</td>" for each in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    text = str(value)
    return escape(text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "…")
