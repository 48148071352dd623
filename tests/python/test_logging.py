"""Many processes log into one topic: no line is lost or corrupt, whatever ends a process."""

import logging
import logging.config
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from children import Child, child

import falaj
from falaj.errors import InvalidArgument, NotWritable, TopicFinished
from falaj.logging import Handler

PROCESSES = 4
LINES = 2000
# Reports its progress whenever a line's call has returned.
SERVICE = """
import logging
from falaj.logging import Handler
me, lines = hear().split()
log = logging.getLogger(me)
log.addHandler(Handler(falaj.open(path).topic("log", codec="json")))
say("ready"); hear()
for n in range(int(lines)):
    log.warning("line %d", n)
    say(n)
say("done"); hear()
"""


def lines_of(path: Path) -> dict[str, list[int]]:
    """Numbers of the lines of each logger, in the order of the log."""
    found: dict[str, list[int]] = {}
    for record in falaj.open(path, read_only=True).topic("log"):
        value = record.value
        assert record.key == value["logger"].encode()
        found.setdefault(value["logger"], []).append(int(value["message"].removeprefix("line ")))
    return found


def start(stack: ExitStack, path: Path, me: str, lines: int = LINES) -> Child:
    service = stack.enter_context(child(path, SERVICE))
    service.tell(f"{me} {lines}")
    assert service.hear() == "ready"
    return service


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., logging.Logger]]:
    """A logger that logs only into a topic, and raises every error."""
    used: list[tuple[logging.Logger, logging.Handler]] = []

    def fail(_handler: object, record: logging.LogRecord) -> None:
        raise AssertionError(record) from sys.exc_info()[1]

    def to(topic: falaj.Topic[Any], name: str = "") -> logging.Logger:
        logger, handler = logging.getLogger(f"falaj.tests{name}"), falaj.logging.Handler(topic)
        if not any(logger is known for known, _ in used):
            logger.propagate = False
            logger.addHandler(handler)
            used.append((logger, handler))
        return logger

    monkeypatch.setattr(falaj.logging.Handler, "handleError", fail)
    yield to
    for logger, handler in used:
        logger.removeHandler(handler)


def test_no_line_of_many_processes_is_lost_when_one_of_them_is_killed(path: Path) -> None:
    with ExitStack() as stack:
        services = {f"p{n}": start(stack, path, f"p{n}") for n in range(1, PROCESSES)}
        victim = start(stack, path, "p0", lines=10**9)  # it never gets there
        for service in [victim, *services.values()]:
            service.tell()
        returned = [victim.hear() for _ in range(LINES // 4)]
        victim.kill()
        assert victim.process.stdout is not None
        # Its reports until then, without a word that the kill cut off.
        returned += [line for line in victim.process.stdout.read().split("\n")[:-1] if line]
        for service in services.values():
            while service.hear() != "done":
                pass
            service.tell()
    found = lines_of(path)
    assert {me: found[me] for me in services} == {me: list(range(LINES)) for me in services}
    assert found["p0"] == list(range(len(found["p0"])))
    assert len(found["p0"]) >= len(returned) >= LINES // 4


def test_a_handler_that_was_made_before_a_fork_works_on_both_sides(
    path: Path, store: falaj.Store
) -> None:
    program = """
import logging
from falaj.logging import Handler
log = logging.getLogger("parent")
log.addHandler(Handler(falaj.open(path).topic("log", codec="json")))
log.warning("line 0")
children = []
for me in range(4):
    child = os.fork()
    if child == 0:
        mine = logging.getLogger(f"parent.{me}")
        for n in range(50):
            mine.warning("line %d", n)
        os._exit(0)
    children.append(child)
for n in range(1, 50):
    log.warning("line %d", n)
say(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""
    with child(path, program) as service:
        assert service.hear() == "0 0 0 0"
    loggers = ["parent", *(f"parent.{me}" for me in range(4))]
    assert lines_of(path) == {logger: list(range(50)) for logger in loggers}


def test_a_store_without_room_breaks_nothing_and_is_logged_to_again_when_there_is_some(
    path: Path,
) -> None:
    program = """
import logging, resource
from falaj.logging import Handler
log = logging.getLogger("full")
handler = Handler(falaj.open(path).topic("log", codec="json", segment_bytes=1 << 16))
log.addHandler(handler)
errors = []
handler.handleError = lambda record: errors.append(sys.exc_info()[1])
written = 0
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, unlimited[1]))
while not errors:
    log.warning("line %d", written)
    written += not errors
say(type(errors[0]).__name__, isinstance(errors[0], OSError))
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
log.warning("line %d", written)
say(len(errors), written + 1)
"""
    with child(path, program) as service:
        assert service.hear() == "NoSpace True"
        errors, written = map(int, service.hear().split())
    assert errors == 1
    assert lines_of(path) == {"full": list(range(written))}


def test_a_closed_store_is_handed_to_handle_error_and_the_service_goes_on(
    store: falaj.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("falaj.tests.closed")
    log.propagate = False
    handler = falaj.logging.Handler(store.topic("log", codec="json"))
    log.addHandler(handler)
    handed_on: list[Any] = []
    monkeypatch.setattr(handler, "handleError", handed_on.append)
    store.close()
    log.warning("too late")
    handler.close()
    assert [record.getMessage() for record in handed_on] == ["too late"]


def test_all_that_a_record_tells_is_in_the_dict(
    store: falaj.Store, log: Callable[..., logging.Logger]
) -> None:
    topic = store.topic("log", codec="json")
    itself: list[object] = ["x"]
    itself.append(itself)
    extra = {
        "order": 17,
        "level": {"of": ("water", 2.5, None)},
        "when": datetime(2026, 11, 22, tzinfo=UTC),
        "raw": b"\xff",
        "many": float("inf"),
        "half": "\ud83d",
        "itself": itself,
        "nothing": None,
    }
    try:
        raise ValueError("\udcff")
    except ValueError:
        log(topic).exception("%s \ud83d", "half", extra=extra, stack_info=True)
    log(topic).warning("nothing but a message")
    told, plain = (record.value for record in topic)
    assert told["message"] == "half \\ud83d"
    assert told["exception"].endswith("ValueError: \\udcff")
    assert told["stack"].startswith("Stack (most recent call last):")
    assert told["extra"] == {
        "order": 17,
        "level": {"of": ["water", 2.5, None]},
        "when": "2026-11-22 00:00:00+00:00",
        "raw": "b'\\xff'",
        "many": "inf",
        "half": "\\ud83d",
        "itself": "['x', [...]]",
        "nothing": None,
    }
    assert sorted(plain) == ["level", "logger", "message", "process", "thread"]


class Broken:
    """An object of a user's class that cannot be shown."""

    def __str__(self) -> str:
        raise OSError("no such row")

    __repr__ = __str__


class Gone(dict[str, object]):
    """A row whose columns no longer exist."""

    def items(self) -> Any:
        raise OSError("no such row")


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_an_extra_that_cannot_be_shown_costs_no_line(
    store: falaj.Store, log: Callable[..., logging.Logger], codec: str
) -> None:
    topic = store.topic("log", codec=codec)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    lists: list[object] = []
    for _ in range(600):
        lists = [lists]
    extra = {
        "order": Broken(),
        "orders": [1, {"of": Broken()}, {Broken(): 2}],
        "row": Gone(a=1),
        "deep": deep,
        "lists": lists,
        "many": 2**64,
        "digits": -(10**5000),
        "most": [2**64 - 1, -(2**63)],
    }
    log(topic).warning("it is there", extra=extra)
    (told,) = (record.value for record in topic)
    broken = "<Broken that cannot be shown>"
    assert told["message"] == "it is there"
    assert told["extra"] == {
        "order": broken,
        "orders": [1, {"of": broken}, {broken: 2}],
        "row": "<Gone that cannot be shown>",
        "deep": "<list that cannot be shown>",
        "lists": "[" * 601 + "]" * 601,
        "many": "18446744073709551616",
        "digits": "<int that cannot be shown>",
        "most": [2**64 - 1, -(2**63)],
    }


@pytest.mark.parametrize("codec", ["bytes", "str"])
def test_a_line_that_utf_8_cannot_tell_is_escaped_and_not_lost(
    store: falaj.Store, log: Callable[..., logging.Logger], codec: str
) -> None:
    topic = store.topic("log", codec=codec)
    log(topic, ".\udcff").warning("%s é", "\ud83d")
    assert [(record.key, record.to_bytes()) for record in topic] == [
        (b"falaj.tests.\\udcff", "\\ud83d é".encode())
    ]


@pytest.mark.parametrize("how", ["import falaj.logging", "import falaj"])
def test_the_standard_library_is_not_hidden_by_the_module_of_the_same_name(how: str) -> None:
    program = (
        f"import logging; {how}; logging.warning('x'); print(falaj.logging.Handler.__mro__[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=os.fspath(Path(falaj.__file__).parents[1]),
    )
    assert (done.stdout, done.returncode) == ("<class 'logging.Handler'>\n", 0), done.stderr


def test_a_configuration_of_text_alone_opens_store_and_topic(path: Path) -> None:
    settings = {"class": "falaj.logging.Handler", "store": str(path), "topic": "log"}
    log = logging.getLogger("configured")
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {"falaj": settings},
            "loggers": {"configured": {"handlers": ["falaj"], "level": "INFO", "propagate": False}},
        }
    )
    (handler,) = log.handlers
    assert isinstance(handler, Handler)
    log.info("hello")
    handler.close()
    log.removeHandler(handler)
    assert handler.topic.closed
    assert handler.topic.store.closed
    with falaj.open(path) as store:
        assert [record.value["message"] for record in store.topic("log")] == ["hello"]


def test_a_handler_checks_store_and_topic_when_it_is_made(path: Path) -> None:
    with falaj.open(path) as store:
        store.topic("text", codec="str")
        handler = Handler("text", store=store)
        assert handler.topic.codec == "str"
        handler.close()
        assert not store.closed
    for topic, given, said in (
        (5, None, "a handler takes a topic, or the name of one and store=, not int"),
        ("log", None, "the topic 'log' is a name: give store= as well"),
    ):
        with pytest.raises(TypeError, match=said):
            Handler(topic, store=given)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="nowhere"):
        Handler("log", store=path / "nowhere" / "store")


@dataclass
class Order:
    """The value of a record of orders."""

    apples: int


def test_a_handler_refuses_a_topic_that_would_refuse_its_lines(store: falaj.Store) -> None:
    store.topic("finished", codec="json").finish()
    for topic in (store.topic("finished"), store.partitioned_topic("parts", partitions=2)):
        topic.finish()
        with pytest.raises(TopicFinished, match="log into another topic"):
            Handler(topic)
    with pytest.raises(InvalidArgument, match="topic 'orders' of codec json takes no log records"):
        Handler(store.topic("orders", codec=Order))
    for codec in ("json", "str", "bytes", "msgpack", "pickle", None):
        topic = store.topic(f"log.{codec}", codec=codec)
        Handler(topic)
        assert len(topic) == 0


def test_a_configuration_with_another_argument_is_refused_in_a_sentence(path: Path) -> None:
    for settings, said in (
        ({"topic": "log", "codec": "json"}, "takes topic, level and store, not codec"),
        ({}, "takes topic, level and store: topic is missing"),
    ):
        handler = {"class": "falaj.logging.Handler", "store": str(path), **settings}
        with pytest.raises(ValueError, match="falaj") as raised:
            logging.config.dictConfig({"version": 1, "handlers": {"falaj": handler}})
        assert said in str(raised.value.__cause__)
    assert not path.exists()


@pytest.mark.parametrize("harm", ["store.close()", "store.delete_topic('log')"])
def test_a_handler_is_silent_while_python_ends(path: Path, harm: str) -> None:
    program = f"""
import atexit, logging, falaj
atexit.register(lambda: logging.getLogger("shop").error("late"))
from falaj.logging import Handler
store = falaj.open({str(path)!r})
topic = store.topic("log", codec="json")
logging.getLogger("shop").addHandler(Handler(topic))
{harm}
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""


def test_a_flush_or_a_close_that_fails_is_handed_to_handle_error_and_others_go_on(
    store: falaj.Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_on: list[Any] = []
    monkeypatch.setattr(
        falaj.logging.Handler,
        "handleError",
        lambda _handler, record: handed_on.append((record.getMessage(), sys.exc_info()[0])),
    )
    given = falaj.logging.Handler(store.topic("log", codec="json"))
    own = falaj.logging.Handler("own", store=path)
    store.delete_topic("log")
    given.flush()
    given.close()

    def fail() -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(own, "_close_opened", fail)
    own.close()
    assert handed_on == [
        ("cannot flush the topic log", falaj.errors.TopicDeleted),
        ("cannot close the topic own", OSError),
    ]
    monkeypatch.undo()
    own.close()
    assert own.topic.closed


def test_a_shutdown_of_logging_flushes_what_comes_after_a_deleted_topic(path: Path) -> None:
    program = f"""
import logging, falaj
from falaj.logging import Handler
class Later(logging.Handler):
    def flush(self):
        print("flushed")
later = Later()
store = falaj.open({str(path)!r})
handler = Handler(store.topic("log", codec="json"))
try:
    Handler("x")
except TypeError as error:
    kept = error
store.delete_topic("log")
logging.shutdown()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("flushed\n")
    assert "TopicDeleted" in done.stderr


def test_a_handler_for_a_place_names_the_place(store: falaj.Store, tmp_path: Path) -> None:
    store.topic("log", codec="json")
    store.ship(tmp_path / "place", once=True)
    with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as place:
        with pytest.raises(NotWritable) as raised:
            Handler("log", store=place)
        assert str(raised.value).startswith(
            f"nothing is logged to {place.place.url}, which is a place that is read"
        )
    reader = falaj.open(store.path, read_only=True)
    with pytest.raises(NotWritable, match=f"{store.path} is open for reading"), reader:
        Handler("log", store=reader)
