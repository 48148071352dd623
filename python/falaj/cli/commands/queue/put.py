"""`falaj queue put`: lines become jobs."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.appending import BATCH_RECORDS, Appending
from falaj.cli.arguments import Argument, Command, Option
from falaj.cli.commands.append import header
from falaj.cli.lines import check_readable
from falaj.cli.paint import is_terminal
from falaj.cli.queues import NOT_BEFORE, QUEUE, expect_queue
from falaj.cli.stores import one_partition, raw_topic
from falaj.cli.values import Line, Made, Maker, maker_of
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from falaj._topic import Topic
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "put"]

_DELAY_LIMIT = 2**32


def put(
    access: Access,
    queue: str,
    files: list[str],
    key: str | None,
    headers: list[tuple[str, bytes | None]] | None,
    delay: float,
    as_json: bool,
) -> None:
    """Put jobs into a queue."""
    with access.store() as opened:
        expect_queue(opened, queue)
    with (
        access.store(writes=True) as opened,
        raw_topic(opened, expect_queue(opened, queue)) as topic,
    ):
        work = _lines(one_partition(topic), files, key, headers, delay)
    if as_json:
        print(json.dumps(work.figures()))
    elif is_terminal(sys.stdout):
        print(work.summary())


def _lines(
    topic: Topic[Any],
    files: Sequence[str],
    key: str | None,
    headers: list[tuple[str, bytes | None]] | None,
    delay: float,
) -> Appending:
    """Append lines as jobs; with a delay, each says when it may be delivered."""
    sources = list(files) or ["-"]
    for source in sources:
        check_readable(source)
    line = Line(key=key, headers=headers)
    maker = maker_of(topic.codec, line)
    if delay:
        skips_blank = maker.skips_blank

        def make(text: bytes) -> Made:
            ready_us = (time.time_ns() + int(delay * 1e9)) // 1000
            at = [*(headers or ()), (NOT_BEFORE, str(ready_us).encode())]
            return maker_of(topic.codec, line._replace(headers=at)).make(text)

        maker = Maker(make, skips_blank)
    work = Appending(topic, maker, None, BATCH_RECORDS)
    work.all_of(sources)
    return work


def _delay(text: str) -> float:
    if (delay := options.span_from(text)) < _DELAY_LIMIT:
        return delay
    raise InvalidArgument(f"a delay is less than {_DELAY_LIMIT} seconds, not {text}")


_FILES = Argument(
    "files",
    "FILE",
    "Files to read; none, or -, is standard input.",
    many=True,
    needed=False,
    read=options.path,
)
COMMAND = Command(
    put,
    "Put jobs into a queue: each line is one.",
    (QUEUE, _FILES),
    (
        *options.ACCESS,
        Option("--key", "key", "Key of every job.", "KEY", str),
        Option(
            "--header",
            "headers",
            "Header of every job; may be repeated.",
            "NAME=VALUE",
            header,
            many=True,
        ),
        Option(
            "--delay",
            "delay",
            "Do not deliver a job before so long: 10m.",
            "SPAN",
            _delay,
            0.0,
        ),
        options.AS_JSON._replace(help="Print what was put, as JSON."),
    ),
)
