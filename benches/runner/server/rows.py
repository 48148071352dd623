"""The rows of the server's table, and the target of each.

A rate is of records. Processor time is that of the server alone: the load shares the machine with
it, so this figure decides where the load is the limit.
"""

from runner.rows import MS, Bar, Row

BARE, CHUKCHA, PIPE = "bare handler", "chukcha", "a pipe"

ROWS = (
    Row("post_many", "POST of 1,000 records, 4 connections", "rate", BARE, Bar(ratio_min=0.50)),
    Row("post_many_cpu", "… processor time of a record", "time", BARE, Bar(ratio_min=0.50)),
    Row("post_many_chukcha", "… beside chukcha", "rate", CHUKCHA, Bar(ratio_min=2)),
    Row("post_many_chukcha_cpu", "… processor time of a record", "time", CHUKCHA, Bar(ratio_min=2)),
    Row("post_one", "POST of one record, 16 connections", "rate", BARE, Bar(ratio_min=0.60)),
    Row("post_one_cpu", "… processor time of a record", "time", BARE, Bar(ratio_min=0.60)),
    Row("post_one_chukcha", "… beside chukcha", "rate", CHUKCHA, Bar(ratio_min=2)),
    Row("post_one_chukcha_cpu", "… processor time of a record", "time", CHUKCHA, Bar(ratio_min=2)),
    Row(
        "stream_p50",
        "native append at 1 kHz to a stream's client: p50",
        "time",
        PIPE,
        Bar(ratio_min=2 / 3),
    ),
    Row("idle_memory", "an idle follower, KiB of memory", "number", "", Bar(most=16)),
    Row("idle_cpu", "… processor time of all, of a core", "number", "", Bar(most=0.01)),
    Row(
        "start",
        "start to the first acknowledged record, 1,000 topics",
        "time",
        "",
        Bar(most=100 * MS),
    ),
    Row("start_memory", "… MB of memory then", "number", "", Bar(most=50)),
    Row(
        "restart",
        "killed under load: restart to an acknowledged record",
        "time",
        "",
        Bar(most=200 * MS),
    ),
)
# Figures without a target.
REFERENCES = (
    Row("post_json", "POST of 1,000 records as JSON lines, 4 connections", "rate", BARE, Bar()),
    Row("post_json_cpu", "… processor time of a record", "time", BARE, Bar()),
    Row("stream_p99", "native append at 1 kHz to a stream's client: p99", "time", PIPE, Bar()),
    Row("idle_wake", "one append answers all idle followers", "time", "", Bar()),
)
