"""The kinds of arguments of falaj's public calls, and an object for each call.

`surface` lists the calls from the modules themselves. A call whose object or argument is not listed
here is an error, so this file grows with the surface.
"""

import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from state import state
from surface import MODULES, Call

import falaj
import falaj.arrow
import falaj.codecs
import falaj.logging
import falaj.metrics
import falaj.outbox

# --- Values ---------------------------------------------------------------------------------------


class Array:
    """Numbers as NumPy, pandas and Polars hold them: comparisons give arrays, and have no truth."""

    def __iter__(self) -> Any:
        return iter([1.5, 2.5])

    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: Any) -> Any:
        return [1.5, 2.5][at]

    def __eq__(self, _other: object) -> Any:
        return Array()

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("The truth value of an array with more than one element is ambiguous.")


#: The values that are passed for each argument, by a word for each.
VALUES: dict[str, Callable[["World"], Any]] = {
    "none": lambda _: None,
    "text": lambda _: "walnut",
    "a number as text": lambda _: "5",
    "bytes": lambda _: b"5",
    "a number": lambda _: 5,
    "negative": lambda _: -1,
    "far negative": lambda _: -(2**63) - 1,
    "2**63": lambda _: 2**63,
    "2**64": lambda _: 2**64,
    "thousands of digits": lambda _: 10**5000,
    "a fraction": lambda _: 1.5,
    "nan": lambda _: float("nan"),
    "infinity": lambda _: float("inf"),
    "a bool": lambda _: True,
    "a list": lambda _: [],
    "a dict": lambda _: {},
    "a set of lists": lambda _: [[1, 2, 3]],
    "an array": lambda _: Array(),
    "an object": lambda _: object(),
    "a class": lambda _: int,
    "empty text": lambda _: "",
    "a zero in text": lambda _: "a\0b",
    "half a character": lambda _: "\ud800",
    "long text": lambda _: "x" * 5000,
    "a closed topic": lambda world: world.closed_topic,
    "a closed store": lambda world: world.closed_store,
}
NUMBERS = {"a number", "negative", "far negative", "2**63", "2**64", "thousands of digits"}
TEXTS = {"text", "a number as text", "empty text", "a zero in text", "long text"}


@dataclass(frozen=True)
class Kind:
    """A kind of argument: what an error says that it may be, and which values are no mistake."""

    takes: str
    """A regular expression that is in the error about a wrong value."""
    fine: dict[str, str] = field(default_factory=dict)
    """The values that may be right, each with the reason."""
    noun: str = "(?!)"
    """A regular expression for what an error may call the argument, beside its name."""

    def __or__(self, other: "Kind") -> "Kind":
        fine = {**self.fine, **other.fine}
        return Kind(f"{self.takes}|{other.takes}", fine, f"{self.noun}|{other.noun}")


def _fine(values: set[str] | str, why: str) -> dict[str, str]:
    return dict.fromkeys({values} if isinstance(values, str) else values, why)


NOTHING = Kind("None", _fine("none", "as if it was not given"))
NAME = Kind(
    r"text|\bname\b",
    _fine({"text", "a number as text"}, "all of its characters may be in a name"),
    r"name|pattern",
)
TEXT = Kind(r"text|UTF-8|name", _fine(TEXTS, "any text"), "name")
KEY = Kind("text|bytes|buffer", _fine(TEXTS | {"bytes"}, "text is stored as UTF-8"), "key")
VALUE = Kind("bytes|buffer|codec", _fine({"bytes"}, "a value of a topic of bytes"), "value")
NUMBER = Kind("number|from 0|from 1|at least|mode", _fine({"a number"}, "a number"))
COUNT = Kind(
    "number|how many|at least|at most|1 to|bytes",
    _fine(NUMBERS - {"negative", "far negative"}, "so many at most"),
    "how many|a batch|a segment|memory",
)
OFFSET = Kind(
    "offset|number",
    _fine(NUMBERS, "an offset; a negative one counts back; beyond the end there is none"),
    "offset",
)
PLACE = OFFSET | Kind("whole number", _fine("a bool", "as a list takes it"), "place")
SECONDS = Kind(
    "seconds",
    _fine({"a number", "a fraction"}, "so many seconds")
    | _fine({"2**63", "2**64"}, "longer than a person waits"),
    "timeout|lease|delay",
)
FLAG = Kind("True or False", _fine("a bool", "one of the two"))
CHOICE = Kind('"')
TIME = Kind("datetime|ISO|nanoseconds", {}, "a time")
NANOSECONDS = Kind(
    "nanoseconds|whole number|1677",
    _fine({"a number", "negative"}, "so many nanoseconds after or before 1970"),
    "lies beyond the years",
)
CURSOR = Kind("text|bytes", KEY.fine, "name of a cursor")
HEADERS = Kind("pairs|header", _fine({"a list", "a dict"}, "no headers"), "header")
FUNCTION = Kind("function", _fine("a class", "a class can be called"))
PATH = Kind(
    "path|os.PathLike",
    _fine(TEXTS - {"a zero in text"} | {"bytes"}, "any text without a zero can be a path"),
    "path|store|directory",
)
CODEC = Kind("codec", _fine("none", "the codec of the topic"))
ARROW = Kind("Arrow|__arrow_c_stream__", {}, "record batches")
COLUMNS = Kind("column", _fine({"a list", "a dict"}, "rows without columns"))
PARTITION = Kind("partition|number", {}, "partition")
START = Kind('"earliest"|offset', OFFSET.fine, "offset|start")
RECORDS = Kind("records|bytes", _fine("a list", "no records"), "records|value")


#: The kind of each argument: by its name, or by class, method and name.
KINDS: dict[str, Kind] = {
    "allow_network_fs": FLAG,
    "arrow.scan.topics": Kind("topic"),
    "Cursor.name": CURSOR,
    "PartitionedTopic.cursor.name": CURSOR,
    "Topic.cursor.name": CURSOR,
    "Batch.to_arrow.columns": NOTHING | COLUMNS,
    "Codec.name": TEXT,
    "ExpiringProducer.name": TEXT,
    "Handler.store": NOTHING | PATH,
    "Job.nack.reason": NOTHING | TEXT | Kind("", _fine("half a character", "for people to read")),
    "Jobs.nack.reason": NOTHING | TEXT | Kind("", _fine("half a character", "for people to read")),
    "NewRecord.value": Kind("", _fine(set(VALUES), "it is encoded when it is appended")),
    "Outbox.name": NOTHING | TEXT,
    "Queue.work.handler": Kind("function of a job", _fine("a class", "can be called"), "work"),
    "arrow.of_batch.batch": Kind(r"topic\.batches\(\)"),
    "arrow.of_batch.columns": NOTHING | COLUMNS,
    "at": PLACE,
    "auto_commit": FLAG | SECONDS,
    "backoff": NOTHING | SECONDS | FUNCTION,
    "batch": ARROW,
    "batch_bytes": COUNT,
    "batch_rows": COUNT,
    "before_offset": NOTHING | OFFSET,
    "before_time": NOTHING | TIME,
    "checksum": NUMBER,
    "cache": NOTHING | PATH,
    "cache_bytes": NOTHING | COUNT,
    "codec": NOTHING | CODEC,
    "columns": COLUMNS,
    "compacted": NOTHING | FLAG,
    "create": FLAG,
    "cursor_in": NOTHING | Kind("topic|log", _fine("text", "a name")),
    "cursors": Kind("Cursor", _fine({"a list", "a dict"}, "no cursor"), "cursor"),
    "data": ARROW,
    "database": PATH,
    "dead_letter": NOTHING | NAME,
    "decode": FUNCTION,
    "default": FUNCTION,
    "delay": NOTHING | SECONDS,
    "delete": FLAG,
    "delete_retention": SECONDS,
    "dry_run": FLAG,
    "encode": FUNCTION,
    "end": NOTHING | OFFSET,
    "expect": NOTHING | NUMBER | Kind("partition", _fine("2**63", "an offset")),
    "fields": NOTHING | Kind("field", _fine("a dict", "no fields")),
    "group": NAME,
    "handler": FUNCTION,
    "headers": NOTHING | HEADERS,
    "idempotency_key": NOTHING | Kind("pair|name of a series", {}, "series"),
    "id": TEXT | Kind("column"),
    "into": NOTHING | NAME,
    "io": CHOICE,
    "jobs": Kind("job", _fine({"a list", "a dict", "empty text"}, "no jobs")),
    "key": NOTHING | KEY,
    "last": NOTHING | Kind("Last", _fine("a dict", "no partition")),
    "lease": SECONDS,
    "level": Kind(
        "level|Level", _fine(NUMBERS | {"a bool"}, "any number is a level of Python's"), "evel"
    ),
    "limit": NOTHING | COUNT,
    "lock_timeout": SECONDS,
    "log": NOTHING | NAME,
    "max_attempts": NOTHING | COUNT,
    "max_records": COUNT,
    "memory": COUNT,
    "metadata": NOTHING | TEXT,
    "n": COUNT,
    "name": NAME,
    "offset": NOTHING | OFFSET,
    "older_than": SECONDS,
    "on_assign": NOTHING | FUNCTION,
    "on_bad": CHOICE,
    "on_corrupt": CHOICE,
    "on_error": NOTHING | FUNCTION,
    "on_revoke": NOTHING | FUNCTION,
    "order": NOTHING | CHOICE,
    "part": NAME,
    "partition": NOTHING | PARTITION,
    "partitions": NOTHING | NUMBER,
    "parts": Kind("manifest", _fine("a list", "a load of no records")),
    "history": NOTHING | SECONDS,
    "new_origin": FLAG,
    "follow": FLAG,
    "PlaceStore.refresh.number": NOTHING
    | Kind("number", _fine(NUMBERS, "a number of the place"), "number"),
    "once": FLAG,
    "origin": NOTHING | TEXT | Kind("origin|store"),
    "origins": NOTHING | Kind("list|origin", _fine("a list", "no origins"), "origin"),
    "path": PATH,
    "places": Kind("path|directory|place|URL|os.PathLike", PATH.fine, "path|store|directory|place"),
    "place": Kind("path|directory|place|URL|os.PathLike", PATH.fine, "path|store|directory|place"),
    "pattern": NOTHING | TEXT | Kind("pattern"),
    "permissions": NOTHING | NUMBER,
    "poll": SECONDS,
    "producer": NOTHING | TEXT,
    "producers": TEXT,
    "progress": NOTHING | FUNCTION,
    "properties": NOTHING | Kind("dict", _fine("a dict", "no properties")),
    "read_only": FLAG,
    "reason": NOTHING | TEXT,
    "records": RECORDS,
    "retention_age": NOTHING | SECONDS,
    "retention_bytes": NOTHING | COUNT,
    "retention_protected": NOTHING | FLAG,
    "retention_records": NOTHING | COUNT,
    "retention_waits": NOTHING | FLAG,
    "row": NOTHING | FUNCTION,
    "seal": FLAG,
    "segment_bytes": NOTHING | COUNT,
    "ship_backlog_bytes": NOTHING | COUNT,
    "ship_min_sync": NOTHING | COUNT,
    "series": TEXT,
    "size": COUNT,
    "sequence": NOTHING | Kind("number|go together", _fine(NUMBERS, "a number"), "sequence"),
    "Origins.follow.start": START | Kind("", _fine("a dict", "no origin was read yet")),
    "Origins.records.start": START | Kind("", _fine("a dict", "no origin was read yet")),
    "start": NOTHING | START,
    "stop": NOTHING | Kind("Event"),
    "sync": NOTHING | CHOICE,
    "sync_interval_ms": NOTHING | COUNT,
    "table": TEXT | Kind("table"),
    "time": NOTHING | TIME,
    "time_ns": NOTHING | NANOSECONDS,
    "timeout": NOTHING | SECONDS,
    "timestamp": NOTHING | TIME,
    "timestamp_ns": NOTHING | NANOSECONDS,
    "to": START,
    "to_number": NOTHING
    | NUMBER
    | Kind("number", _fine(NUMBERS, "a number that the place may lack")),
    "to_time": NOTHING | TIME,
    "token": NOTHING | Kind("token|text", _fine(TEXTS, "one word is a token"), "token"),
    "topic": NOTHING | NAME | Kind("topic"),
    "topics": NOTHING | NAME | Kind("topic"),
    "url": Kind("URL", {}, "URL"),
    "value": VALUE,
    "values": RECORDS,
    "verify": NOTHING | FLAG,
    "views": FLAG,
    "visibility": NOTHING | CHOICE,
}


# --- Objects --------------------------------------------------------------------------------------


class World:
    """A store in which a call is tried, with an object of each class."""

    def __init__(self, template: Path, folder: Path) -> None:
        shutil.copytree(template, folder)
        self.folder = folder
        self.store = falaj.open(folder / "store", sync="none")
        self.topic = self.store.topic("orders")
        self.many = self.store.partitioned_topic("clicks")

    @staticmethod
    def template(folder: Path) -> Path:
        """Make what the folders of all worlds begin with: copying it needs no syncs."""
        folder.mkdir()
        (folder / "here").mkdir()
        with falaj.open(folder / "store") as store:
            orders = store.topic("orders", codec="bytes")
            orders.extend([("a", b"one"), ("b", b"two"), ("a", b"three")], sync="durable")
            clicks = store.partitioned_topic("clicks", partitions=2, codec="bytes", compacted=True)
            store.topic("prices", codec="bytes", compacted=True).append(b"3", key=b"tea")
            clicks.append(b"home", partition=1, sync="durable")
            store.topic("other", codec="bytes")
            store.queue("jobs", max_attempts=3).put(b"resize 1.png")
            store.consumer("idle", "orders").close()
        with sqlite3.connect(folder / "shop.db") as shop:
            shop.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT)")
            shop.execute("INSERT INTO outbox (value) VALUES ('10 apples')")
        shop.close()
        return folder

    @property
    def database(self) -> Path:
        """A database with a table of an outbox."""
        return self.folder / "shop.db"

    @cached_property
    def before(self) -> Any:
        """The contents of the store, before the first call that is tried."""
        return state(self.folder)

    @cached_property
    def closed_topic(self) -> falaj.Topic[Any]:
        """A handle that was closed."""
        topic = self.store.topic("other")
        topic.close()
        return topic

    @cached_property
    def closed_store(self) -> falaj.Store:
        """A handle that was closed."""
        store = falaj.open(self.folder / "store")
        store.close()
        return store

    def close(self) -> None:
        """Close all handles, and end the transaction without its records."""
        if "transaction" in vars(self):
            self.transaction.__exit__(Exception, Exception(), None)
        if "origins" in vars(self):
            self.origins.close()
        if "place_store" in vars(self):
            self.place_store.close()
        self.store.close()

    @cached_property
    def queue(self) -> falaj.Queue[Any]:
        """A queue with a job that is ready."""
        return self.store.queue("jobs", max_attempts=3)

    @cached_property
    def consumer(self) -> falaj.Consumer[Any]:
        """A member that has read a record."""
        consumer = self.store.consumer("billing", "orders")
        consumer.poll(1, timeout=0)
        return consumer

    @cached_property
    def part(self) -> falaj.Part:
        """A part that is open."""
        return self.topic.stage("load", "0")

    @cached_property
    def place_store(self) -> falaj.PlaceStore:
        """The store as it was shipped, read from there; its cache lies outside of the world."""
        place = self.folder / "place"
        self.store.ship(place, once=True)
        cache = self.folder.with_name(f"{self.folder.name}-cache")
        return falaj.open_place(place, cache=cache, follow=False)

    @cached_property
    def origins(self) -> falaj.Origins:
        """The store as the only origin."""
        self.store._origin()
        return falaj.open_origins(self.store)

    @cached_property
    def jobs(self) -> falaj.Jobs[Any]:
        """Jobs in flight."""
        return self.queue.take()

    @cached_property
    def load(self) -> falaj.BulkLoad:
        """A bulk load that has begun."""
        load = self.topic.bulk_load("bulk")
        return load.__enter__()

    @cached_property
    def transaction(self) -> falaj.Transaction:
        """A transaction that has begun."""
        return self.store.transaction().__enter__()

    @cached_property
    def outbox(self) -> falaj.outbox.Outbox:
        """An outbox with a row."""
        return falaj.outbox.Outbox(self.database, self.topic)


OBJECTS: dict[str, Callable[[World], Any]] = {
    "AsyncConsumer": lambda world: world.consumer.afollow(),
    "AsyncFollower": lambda world: world.topic.afollow(),
    "Batch": lambda world: next(world.topic.batches()),
    "BulkLoad": lambda world: world.load,
    "Codec": lambda world: falaj.RAW,
    "Consumer": lambda world: world.consumer,
    "Cursor": lambda world: falaj.Cursor("a", 1),
    "Follower": lambda world: world.topic.follow(),
    "Handler": lambda world: falaj.logging.Handler(world.topic),
    "JSON": lambda world: falaj.JSON(default=str),
    "Job": lambda world: world.jobs[0],
    "Jobs": lambda world: world.jobs,
    "NewRecord": lambda world: falaj.NewRecord(b"x"),
    "Origins": lambda world: world.origins,
    "OriginsFollower": lambda world: world.origins.follow("orders"),
    "Outbox": lambda world: world.outbox,
    "Part": lambda world: world.part,
    "PlaceStore": lambda world: world.place_store,
    "PartitionedTopic": lambda world: world.many,
    "Queue": lambda world: world.queue,
    "Reader": lambda world: world.topic.to_reader(),
    "Receipts": lambda world: falaj.Receipts(),
    "Record": lambda world: world.topic[0],
    "Slice": lambda world: world.topic[0:2],
    "Store": lambda world: world.store,
    "Topic": lambda world: world.topic,
    "Topic.compact": lambda world: world.store.topic("prices"),
    "Transaction": lambda world: world.transaction,
}

#: The right values of arguments that are not being tried; by name, or by call and name.
GIVEN: dict[str, Callable[[World], Any]] = {
    "arrow.scan.topics": lambda world: world.topic,
    "Queue.ack.jobs": lambda world: world.jobs,
    "arrow.of_batch.batch": lambda world: next(world.topic.batches()),
    "Topic.read.start": lambda _: 0,
    "Store.delete_group.name": lambda _: "idle",
    "Store.delete_queue.name": lambda _: "jobs",
    "Store.any_topic.name": lambda _: "orders",
    "Store.wait_for_topic.name": lambda _: "orders",
    "Store.await_for_topic.name": lambda _: "orders",
    "Store.topic.name": lambda _: "fresh",
    "Store.partitioned_topic.name": lambda _: "fresh",
    "Store.partitioned_topic.partitions": lambda _: 2,
    "Store.delete_topic.name": lambda _: "other",
    "Store.backup.path": lambda world: world.folder / "copy",
    "Store.ship.place": lambda world: world.folder / "place",
    "Store.ship.once": lambda _: True,
    "falaj.restore.place": lambda world: world.folder / "nothing",
    "PlaceStore.refresh.number": lambda _: 1,
    "Origins.follow.topic": lambda _: "orders",
    "Origins.records.topic": lambda _: "orders",
    "Origins.follow.start": lambda _: "earliest",
    "Origins.records.start": lambda _: "earliest",
    "falaj.list_origins.place": lambda world: world.folder / "nothing",
    "falaj.open_origins.places": lambda world: world.folder / "nothing",
    "falaj.open_place.place": lambda world: world.folder / "nothing",
    "falaj.restore.path": lambda world: world.folder / "copy",
    "Store.configure.retention_bytes": lambda _: 1 << 30,
    # It goes with sync="remote" alone.
    "Store.transaction.timeout": lambda _: None,
    "Topic.append.timeout": lambda _: None,
    "Topic.extend.timeout": lambda _: None,
    "Topic.tombstone.timeout": lambda _: None,
    "PartitionedTopic.append.timeout": lambda _: None,
    "PartitionedTopic.extend.timeout": lambda _: None,
    "PartitionedTopic.tombstone.timeout": lambda _: None,
    "Store.seek_group.topic": lambda _: "orders",
    "Store.forget_topic.topic": lambda _: "orders",
    "Store.consumer.topics": lambda _: "orders",
    "Store.verify.topic": lambda _: None,
    "Topic.trim.before_offset": lambda _: 1,
    "Topic.commit_bulk_load.parts": lambda _: [],
    "PartitionedTopic.commit_bulk_load.parts": lambda _: [],
    "PartitionedTopic.trim.before_time": lambda _: "2020-01-01T00:00:00Z",
    "Topic.compact.delete_retention": lambda _: 0,
    "at": lambda _: 0,
    "batch": lambda _: _table(),
    "cursors": lambda _: falaj.Cursor("c", 1),
    "data": lambda _: _table(),
    "database": lambda world: world.database,
    "decode": lambda _: bytes,
    "default": lambda _: str,
    "encode": lambda _: bytes,
    "group": lambda _: "idle",
    "handler": lambda world: lambda job: world.queue.close(),
    "jobs": lambda world: world.jobs,
    "key": lambda _: "a",
    "name": lambda _: "load",
    "offset": lambda _: 0,
    "n": lambda _: 1,
    "part": lambda _: "p",
    "partition": lambda _: 0,
    "path": lambda world: world.folder / "store",
    "producer": lambda _: "till",
    "producers": lambda _: "till",
    "records": lambda _: [b"x"],
    "series": lambda _: "nightly",
    "start": lambda _: 0,
    "time": lambda _: "2026-11-20T08:00:00Z",
    "timeout": lambda _: 0,
    "to": lambda _: "earliest",
    "topic": lambda world: world.topic,
    "url": lambda _: "http://127.0.0.1:9",
    "value": lambda _: b"x",
    "values": lambda _: [b"x"],
}

#: Arguments that only mean something beside another one.
BESIDE: dict[str, dict[str, Callable[[World], Any]]] = {
    "dead_letter": {"max_attempts": lambda _: 3},
    "Outbox.dead_letter": {"on_bad": lambda _: "dead-letter"},
    "sequence": {"producer": lambda _: "till"},
    "producer": {"sequence": lambda _: 1},
    "cursor_in": {"topics": lambda _: "orders"},
    "on_bad": {"fields": lambda _: {"amount": "double"}},
    "Outbox.on_bad": {},
    "Handler.store": {"topic": lambda _: "orders"},
    "Topic.offset_at.time_ns": {"time": lambda _: None},
    "Topic.trim.before_time": {"before_offset": lambda _: None},
    "pattern": {"topics": lambda _: None},
}


def _table() -> Any:
    import pyarrow

    return pyarrow.table({"value": [b"x"]})


# --- Calls ---------------------------------------------------------------------------------------


def found_in(world: World, call: Call) -> Callable[..., Any]:
    """The call itself, on an object of the world."""
    if not call.name:
        module = next(module for module in MODULES if call.owner in module.__all__)
        made: Callable[..., Any] = getattr(module, call.owner)
        return made
    for module in MODULES:
        if module.__name__.removeprefix("falaj.") == call.owner:
            function: Callable[..., Any] = getattr(module, call.name)
            return function
    method: Callable[..., Any] = getattr(call.of_call(OBJECTS)(world), call.name)
    return method


def arguments(world: World, call: Call, parameter: str) -> dict[str, Any]:
    """Right values for the other arguments: what the call needs, and no waiting."""
    always = {name for name in call.parameters if f"{call.title}.{name}" in GIVEN}
    others = {name: call.of(GIVEN, name) for name in call.required | always | {"timeout"}}
    others |= call.of(BESIDE, parameter, {})
    return {
        name: make(world)
        for name, make in others.items()
        if name != parameter and name in call.parameters
    }
