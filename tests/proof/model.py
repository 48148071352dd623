"""The expected content of a store of generate.py: all that was acknowledged, and later changes."""

from dataclasses import dataclass, field

Given = tuple[bytes, bytes | None, tuple[tuple[str, bytes | None], ...], int | None]
"""Value, key, headers, and event time in ns."""
Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int | None]
"""The same; a tombstone has no value."""


@dataclass
class Expected:
    """The expected content of a topic, by partition."""

    codec: str
    partitions: list[dict[int, Record]]
    """By offset."""
    log: str
    compacted: bool
    tokens: dict[str, int] = field(default_factory=dict)
    """The last bulk load of each series."""
    trimmed: dict[tuple[int, int], Record] = field(default_factory=dict)
    """Trimmed records, by partition and offset: a power failure may bring them back."""


Topics = dict[str, Expected]
Places = list[tuple[str, int, int]]
"""Topics, partitions and offsets of records that were appended as one."""


@dataclass
class Model:
    """The expected content of a store."""

    topics: Topics = field(default_factory=dict)
    cursors: dict[str, dict[str, int]] = field(default_factory=dict)
    """Cursors that transactions moved, by log and name."""
    consumed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Cursors of groups, by group, topic and partition."""
    queued: dict[str, tuple[str, set[int]]] = field(default_factory=dict)
    """For each queue its topic, and its finished jobs."""
    whole: list[Places] = field(default_factory=list)
    """Records that were appended as one: all of them are there, or none."""
    cut: bool = False
    """The power failed, or a sync failed: finished jobs may be delivered again."""
