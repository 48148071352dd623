"""`Handler`: log records of `logging` as records of a topic.

A service logs into a topic, and any program can follow it: `for record in topic.follow(): …`. Any
number of processes share the log; no line is torn, and no line whose call returned is lost when a
process is killed. There are no files to rotate: the topic's retention decides how much is kept.
"""

from __future__ import annotations

import atexit
import logging  # the standard library's: imports in this package are absolute
import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn

from falaj import _core
from falaj.errors import (
    EncodeFailed,
    InvalidArgument,
    NotWritable,
    SettingsMismatch,
    TopicFinished,
    named,
)

if TYPE_CHECKING:
    import os
    from typing import Never

    from falaj._store import Store
    from falaj._topic import EitherTopic

__all__ = ["Handler"]

_DEPTH_MAX = 100
#: The attributes of a record without `extra=`; a formatter adds the last two.
_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime"}


#: Not empty while Python ends.
_ended: list[bool] = []
atexit.register(_ended.append, True)


class Handler(logging.Handler):
    """Appends log records to a topic.

    If the topic's codec has dicts, such as "json", the value is a dict. It has `level`, `logger`,
    `message`, `process` and `thread`, and if present `exception`, `stack` and `extra`. `extra` is a
    dict of the attributes given as `extra=`. A value that JSON lacks becomes its `str` or, if that
    fails, a placeholder that names its type; whole numbers beyond 64 bits become text. For other
    codecs the value is the formatted line. Half a surrogate pair, which UTF-8 lacks, is escaped
    with a backslash. The key is the logger's name, so that a logger's records stay in order; the
    event time is the time of the log call.

    An append that fails (a full disk, a closed store, a lock held too long) goes to
    `logging.Handler.handleError`, as with any handler. Logging never breaks the service, and works
    again when there is space. A forked child may continue to use it.

    The handler checks this when it is made: it opens the store, and refuses a topic that it cannot
    write to. While Python shuts down, it silently drops a line that it cannot append.

    Args:
        topic: The topic to append to, of any codec; or its name, if `store` is given.
        level: Least severity that is kept.
        store: The store, or its path, for a configuration that is all text. The handler then opens
            the topic, with the codec "json" unless it has another, and closes what it opened.

    Raises:
        TypeError: `topic` is no topic, nor a name beside `store`; or there is another argument.
        InvalidArgument: The topic's codec takes no log records, such as that of a class.
        NotWritable: The store is open for reading.
        TopicFinished: The topic is finished.

    Example:
        >>> import logging
        >>> from falaj.logging import Handler
        >>> audit = store.topic("audit", codec="json")
        >>> log = logging.getLogger("shop")
        >>> log.addHandler(Handler(audit))
        >>> log.warning("%d apples left", 3)
        >>> audit[0].value["level"], audit[0].value["message"]
        ('WARNING', '3 apples left')

        As `logging.config.dictConfig` makes it: `{"class": "falaj.logging.Handler", "store":
        "/var/lib/shop", "topic": "log"}`.
    """

    def __init__(
        self,
        topic: EitherTopic | str | None = None,
        level: int | str = logging.NOTSET,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        **unknown: Never,
    ) -> None:
        if not isinstance(level, int | str):
            raise TypeError(f"level is a number or a word such as WARNING, not {named(level)}")
        super().__init__(level)
        self._opened: list[Store | EitherTopic] = []
        if unknown or topic is None:
            wrong = f", not {', '.join(unknown)}" if unknown else ": topic is missing"
            raise TypeError(f"a log handler takes topic, level and store{wrong}")
        try:
            self.topic = self._open(topic, store)
            self._expect_lines()
        except BaseException:
            self._close_opened()
            raise

    def _open(
        self,
        topic: EitherTopic | str,
        store: Store | str | os.PathLike[str] | None,
    ) -> EitherTopic:
        if not isinstance(topic, str):
            if store is not None or not isinstance(topic, _core.AnyTopic):
                raise TypeError(
                    "a handler takes a topic, or the name of one and store=, not "
                    f"{type(topic).__name__}"
                )
            topic._expect()
            found = topic
        elif store is None:
            raise TypeError(f"the topic {topic!r} is a name: give store= as well, or an open topic")
        else:
            found = self._of_names(topic, store)
        if not found.store.writable:
            raise _unwritable(found.store)
        return found

    def _of_names(self, topic: str, store: Store | str | os.PathLike[str]) -> EitherTopic:
        if not isinstance(store, _core.Store):
            from falaj import _store  # opening is for a handler that is made of text

            store = _store.open(store)
            self._opened.append(store)
        try:
            found: EitherTopic = store.topic(topic, codec="json")
        except SettingsMismatch:
            found = store.any_topic(topic)
        self._opened.append(found)
        return found

    def _expect_lines(self) -> None:
        """Refuse a topic that no line could be appended to."""
        topic = self.topic
        if topic.finished:
            raise TopicFinished(f"topic {topic.name!r} is finished: log into another topic")
        try:
            _core._expect_record(topic, ("logger", self._value(logging.makeLogRecord({}))))
        except (TypeError, EncodeFailed) as error:
            raise InvalidArgument(
                f"topic {topic.name!r} of codec {topic.codec} takes no log records: log into one "
                f"of codec json, str or bytes ({error})"
            ) from error

    def _close_opened(self) -> None:
        with ExitStack() as closing:  # one that fails keeps no other open
            for opened in self._opened:
                closing.callback(opened.close)
            self._opened.clear()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a log handler cannot be pickled or copied: make one where it is needed")

    def emit(self, record: logging.LogRecord) -> None:
        """Append one record."""
        try:
            key, created_ns = _utf8(record.name).encode(), round(record.created * 1e9)
            self.topic.append(self._value(record), key=key, timestamp_ns=created_ns)
        except Exception:  # noqa: BLE001  # a handler passes every error on to handleError
            if not _ended:
                self.handleError(record)

    def flush(self) -> None:
        """Sync the logged records to disk. An error goes to `handleError`, as that of an append."""
        topic: EitherTopic | None = getattr(self, "topic", None)  # none if making it failed
        if topic is None:
            return
        try:
            if not topic.closed:
                topic.flush()
        except Exception:  # noqa: BLE001  # `logging.shutdown` flushes the other handlers, too
            self._hand_on("cannot flush the topic %s", topic.name)

    def close(self) -> None:
        """Close what the handler opened itself; a topic that it was given stays open."""
        try:
            self._close_opened()
        except Exception:  # noqa: BLE001  # `logging.shutdown` closes the other handlers, too
            self._hand_on("cannot close the topic %s", self.topic.name)
        finally:
            super().close()

    def _hand_on(self, said: str, topic: str) -> None:
        """Hand the error of a call without a record to `handleError`, with a record of its own."""
        if not _ended:
            values = {"name": __name__, "levelno": logging.ERROR, "levelname": "ERROR"}
            self.handleError(logging.makeLogRecord({**values, "msg": said, "args": (topic,)}))

    def _value(self, record: logging.LogRecord) -> Any:
        if self.topic.codec == "bytes":
            return _utf8(self.format(record)).encode()
        if self.topic.codec == "str":
            return _utf8(self.format(record))
        value: dict[str, Any] = {
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            "thread": record.threadName,
        }
        formatter = self.formatter or logging.Formatter()
        if record.exc_info:
            value["exception"] = formatter.formatException(record.exc_info)
        elif record.exc_text:  # another handler made it, before the record came here
            value["exception"] = record.exc_text
        if record.stack_info:
            value["stack"] = formatter.formatStack(record.stack_info)
        if extra := {key: each for key, each in vars(record).items() if key not in _OWN}:
            value["extra"] = {_text(key): _told(each) for key, each in extra.items()}
        return _plain(value)


def _unwritable(store: Store) -> NotWritable:
    from falaj._place_store import PlaceStore  # a mistake alone needs it

    if isinstance(store, PlaceStore):
        return NotWritable(
            f"nothing is logged to {store.place.url}, which is a place that is read: log into the "
            "store that is shipped there"
        )
    return NotWritable(f"{store.path} is open for reading: open it for writing")


def _told(value: object) -> object:
    """Convert a value; a failing `__str__` of another class does not lose the line."""
    try:
        return _plain(value)
    except RecursionError:  # it holds itself, or lists in lists without an end
        return _text(value)
    except Exception:  # noqa: BLE001  # a dict or list whose items cannot be had
        return _placeholder(value)


def _plain(value: object, depth: int = 0) -> object:
    """Convert a value to one that JSON has, and no deeper than codecs accept."""
    if depth > _DEPTH_MAX:
        raise RecursionError
    if value is None or (isinstance(value, int) and -(1 << 63) <= value < 1 << 64):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, dict):
        return {_text(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    return _text(value)


def _text(value: object) -> str:
    try:
        return _utf8(str(value))
    except Exception:  # noqa: BLE001  # what a class of somebody's raises there
        return _placeholder(value)


def _placeholder(value: object) -> str:
    return f"<{_utf8(type(value).__qualname__)} that cannot be shown>"


def _utf8(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
