"""What a store of generate.py must hold: all that was acknowledged, and what became of it."""

from dataclasses import dataclass, field

Given = tuple[bytes, bytes | None, tuple[tuple[str, bytes | None], ...], int | None]
"""Value, key, headers, and event time in ns."""
Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int | None]
"""The same; a tombstone has no value."""


@dataclass
class Expected:
    """What a topic must hold, per partition."""

    codec: str
    partitions: list[dict[int, Record]]
    """By offset."""
    log: str
    compacted: bool
    tokens: dict[str, int] = field(default_factory=dict)
    """The last job of each series."""
    trimmed: dict[tuple[int, int], Record] = field(default_factory=dict)
    """What was trimmed, by partition and offset: a loss of power may bring it back."""


Topics = dict[str, Expected]
Places = list[tuple[str, int, int]]
"""Topics, partitions and offsets of what was appended as one."""


@dataclass
class Model:
    """What a store must hold."""

    topics: Topics = field(default_factory=dict)
    cursors: dict[str, dict[str, int]] = field(default_factory=dict)
    """Those that were moved by transactions, by log and name."""
    consumed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Those of consumers, by consumer, topic and partition."""
    queued: dict[str, tuple[str, set[int]]] = field(default_factory=dict)
    """For each queue its topic, and what is done of it."""
    whole: list[Places] = field(default_factory=list)
    """What was appended as one: all of it is there, or nothing."""
    cut: bool = False
    """Power was lost, or a sync failed: jobs that were done may be to be done again."""
