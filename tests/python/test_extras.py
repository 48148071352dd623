"""The logging handler and the pytest fixture."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.logging import Handler


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.getLogger("falaj.tests")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.handlers.clear()


def test_what_is_logged_is_appended_with_its_logger_and_its_time(
    store: falaj.Store, log: logging.Logger
) -> None:
    topic = store.topic("log", codec="json")
    log.addHandler(Handler(topic, logging.INFO))
    log.debug("not kept")
    log.warning("%d apples", 3)
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        log.exception("failed")
    warning, failure = topic
    assert warning.value["message"] == "3 apples"
    assert (warning.value["level"], warning.key) == ("WARNING", b"falaj.tests")
    assert abs((warning.timestamp - datetime.now(UTC)).total_seconds()) < 60
    assert "ZeroDivisionError" in failure.value["exception"]


@pytest.mark.parametrize("codec", ["bytes", "str"])
def test_a_topic_of_text_gets_the_formatted_line(
    store: falaj.Store, log: logging.Logger, codec: str
) -> None:
    topic = store.topic("log", codec=codec)
    handler = Handler(topic)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    log.addHandler(handler)
    log.info("line")
    handler.flush()
    assert topic[0].to_bytes() == b"INFO: line"
    assert topic.durable_offset == 1


def test_logging_into_a_closed_topic_breaks_nothing(
    store: falaj.Store, log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = store.topic("log", codec="json")
    handler = Handler(topic)
    log.addHandler(handler)
    topic.close()
    handed_on: list[Any] = []
    monkeypatch.setattr(handler, "handleError", handed_on.append)
    log.info("too late")
    handler.flush()
    assert len(handed_on) == 1


def test_the_fixture_is_found_by_pytest_and_gives_a_store(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        "def test_it(falaj_store):\n    assert falaj_store.topic('x').append(b'1') == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--basetemp=stores", "test_user.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_importing_falaj_loads_none_of_the_extras() -> None:
    heavy = [
        "msgpack",
        "pyarrow",
        "pandas",
        "polars",
        "pyspark",
        "rich",
        "pytest",
        "asyncio",
    ]
    program = f"import sys, falaj; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
