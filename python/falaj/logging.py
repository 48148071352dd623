"""`Handler`: log records of `logging` as records of a topic.

A service logs into a topic, and whoever wants to follows it: `for record in topic.follow(): …`. Any
number of processes share the log; no line is torn, and none whose call returned is lost when a
process is killed. There are no files to rotate: how much is kept is the topic's affair.
"""

from __future__ import annotations

import logging  # the standard library's: imports in this package are absolute
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from falaj.topics import Topic

__all__ = ["Handler"]


class Handler(logging.Handler):
    """Appends what is logged to a topic.

    The value is a dict (`level`, `logger`, `message`, `process`, `thread`, and `exception` if there
    is one) where the topic has a codec for that, such as "json"; else the formatted line. The key
    is the logger's name, so that a logger's records stay in order; the event time is when it was
    logged.

    What cannot be appended (the disk is full, the store closed, a lock held for too long) goes to
    `logging.Handler.handleError`, as with any handler: logging never breaks the service, and works
    again when there is room. A forked child may go on with it.

    Args:
        topic: Where to; any codec.
        level: Least severity that is kept.

    Example:
        >>> import logging
        >>> from falaj.logging import Handler
        >>> audit = store.topic("audit", codec="json")
        >>> log = logging.getLogger("shop")
        >>> log.addHandler(Handler(audit))
        >>> log.warning("%d apples left", 3)
        >>> audit[0].value["level"], audit[0].value["message"]
        ('WARNING', '3 apples left')
    """

    def __init__(self, topic: Topic[Any], level: int | str = logging.NOTSET) -> None:
        super().__init__(level)
        self.topic = topic

    def emit(self, record: logging.LogRecord) -> None:
        """Append one record."""
        try:
            self.topic.append(
                self._value(record), key=record.name.encode(), time=float(record.created)
            )
        except Exception:  # noqa: BLE001  # a handler hands every error on to handleError
            self.handleError(record)

    def flush(self) -> None:
        """Put what was logged on the medium."""
        if not self.topic.closed:
            self.topic.flush()

    def _value(self, record: logging.LogRecord) -> Any:
        if self.topic.codec == "bytes":
            return self.format(record).encode()
        if self.topic.codec == "str":
            return self.format(record)
        value = {
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            "thread": record.threadName,
        }
        if record.exc_info:
            formatter = self.formatter or logging.Formatter()
            value["exception"] = formatter.formatException(record.exc_info)
        return value
