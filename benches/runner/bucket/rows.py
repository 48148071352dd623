"""The rows of the table of places, and the target of each.

A rate is of megabytes of log, each counted once, though shipping sends each twice. Processor time
is that of our process alone: a server on the same machine takes much of the rest.
"""

from runner.rows import Bar, Row

PUTS, PUT = "raw puts, 4 in flight", "a raw put"
GETS, FILE = "ranged GETs and checksums, 8 in flight", "the same GETs into a synced file"


def _moving(kind: str, where: str) -> tuple[Row, ...]:
    ship, back = Bar(ratio_min=0.40), Bar(ratio_min=0.80)
    return (
        Row(f"{kind}_ship", f"{where}: ship a log that grows, KB", "rate", PUTS, ship),
        Row(f"{kind}_backlog", "… ship it at once", "rate", PUTS, ship),
        Row(f"{kind}_restore", "… restore it", "rate", FILE, back),
        Row(f"{kind}_scan", "… read it where nothing is cached", "rate", GETS, back),
    )


def _processor(kind: str, where: str) -> tuple[Row, ...]:
    named = f"{where}: our processor time of a KB"
    return (
        Row(f"{kind}_ship_cpu", f"{named}, shipped as it grows", "time", PUTS, Bar()),
        Row(f"{kind}_backlog_cpu", f"{named}, shipped at once", "time", PUTS, Bar()),
        Row(f"{kind}_restore_cpu", f"{named}, restored", "time", FILE, Bar()),
        Row(f"{kind}_restore_bare", f"{where}: restore, KB", "rate", GETS, Bar()),
    )


ROWS = (
    *_moving("server", "bucket"),
    *_moving("directory", "directory"),
    Row("alone", 'append(sync="remote") alone, 30 ms a put: p50', "time", PUT,
        Bar(ratio_min=1 / 1.3)),
    Row("loop", "… in a loop", "time", PUT, Bar(ratio_min=1 / 1.8)),
    Row("busy", "… by 8 threads in loops", "time", PUT, Bar(ratio_min=1 / 1.8)),
    Row("idle_requests", "requests of an idle shipper in 5 s", "number", "", Bar(most=0)),
    Row("objects", "objects after 2,000 small flushes, no history", "number", "", Bar(most=800)),
    Row("memory", "memory beside an idle process, MB, 67 MB in flight", "number", "",
        Bar(most=64 + 67)),
)  # fmt: skip
# Figures without a target.
REFERENCES = (
    *_processor("server", "bucket"),
    *_processor("directory", "directory"),
    Row("near_alone", 'append(sync="remote") alone, no delay: p50', "time", PUT, Bar()),
    Row("idle_shipper_cpu", "an idle shipper: share of a core", "number", "", Bar()),
)
