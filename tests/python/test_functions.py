"""Functions that users give: one that only makes a coroutine or a generator is refused."""

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import Error
from falaj.outbox import Outbox


async def later(*_given: Any) -> None:
    raise AssertionError("no caller awaits it")


def step(*_given: Any) -> Any:
    yield
    raise AssertionError("no caller iterates over it")


async def steps(*_given: Any) -> Any:
    yield
    raise AssertionError("no caller iterates over it")


class Later:
    async def __call__(self, *_given: Any) -> None:
        raise AssertionError("no caller awaits it")

    async def method(self, *_given: Any) -> None:
        raise AssertionError("no caller awaits it")


class Awaited:
    def __await__(self) -> Any:
        raise AssertionError("no caller awaits it")


KNOWN = [
    later,
    step,
    steps,
    Later(),
    Later().method,
    partial(later, 1),
    partial(Later(), 1),
    partial(partial(step)),
]
"""Functions that are known to do nothing when they are called."""

FOUND_OUT: list[Callable[..., Any]] = [
    lambda *given: later(*given),
    lambda *given: step(*given),
    lambda *given: steps(*given),
    lambda *_given: Awaited(),
]
"""Functions that are plain, and return what has yet to run."""

PLAIN = "it is a plain function, not"
YET = "returned .*, which has yet to run"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    made = tmp_path / "shop.db"
    shop = sqlite3.connect(made)
    with shop:
        shop.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT)")
        shop.execute("INSERT INTO outbox (value) VALUES ('one')")
    shop.close()
    return made


@pytest.mark.parametrize("handler", KNOWN)
def test_work_refuses_a_function_that_would_not_run_and_takes_nothing(
    store: falaj.Store, handler: Any
) -> None:
    queue = store.queue("jobs", max_attempts=1)
    queue.put(b"a")
    with pytest.raises(TypeError, match=f"the handler is called without await.* {PLAIN}"):
        queue.work(handler, timeout=0)
    with pytest.raises(TypeError, match="on_error is called without await"):
        queue.work(print, timeout=0, on_error=handler)
    assert [job.attempt for job in queue.take(timeout=0)] == [1]


@pytest.mark.parametrize("handler", FOUND_OUT)
def test_a_job_whose_handler_returns_what_has_yet_to_run_fails(
    store: falaj.Store, handler: Any
) -> None:
    queue, told = store.queue("jobs", max_attempts=1), list[str]()
    queue.put(b"a")
    assert queue.work(handler, timeout=0, on_error=lambda _, error: told.append(str(error))) == 0
    [said] = told
    assert said.startswith("the handler returned ")
    assert queue.dead is not None
    assert len(queue.dead) == 1


def test_a_future_that_is_awaited_is_no_end_of_a_job(store: falaj.Store) -> None:
    queue, told = store.queue("jobs"), list[Exception]()
    queue.put(b"a")

    async def main() -> None:
        made = asyncio.get_running_loop().create_future()
        queue.work(
            lambda job: made, timeout=0, backoff=(9, 9), on_error=lambda _, e: told.append(e)
        )

    asyncio.run(main())
    assert [type(error).__mro__[1] for error in told] == [TypeError]


@pytest.mark.parametrize("report", FOUND_OUT)
def test_a_report_of_an_error_that_has_yet_to_run_is_raised_and_keeps_no_job(
    store: falaj.Store, report: Any
) -> None:
    queue = store.queue("jobs", backoff=(0, 0))
    queue.put(b"a")
    with pytest.raises(TypeError, match=f"on_error {YET}"):
        queue.work(lambda job: 1 // 0, timeout=0, on_error=report)
    assert queue.info()["in_flight"] == 0


@pytest.mark.parametrize("backoff", [*KNOWN, *FOUND_OUT])
def test_a_backoff_that_would_not_run_is_refused_from_the_start(
    store: falaj.Store, backoff: Any
) -> None:
    with pytest.raises(TypeError, match="backoff returned"):
        store.queue("jobs", backoff=backoff)
    with pytest.raises(TypeError, match="backoff returned"):
        store.queue("jobs").work(print, timeout=0, backoff=backoff)


@pytest.mark.parametrize("row", KNOWN)
def test_an_outbox_refuses_a_row_function_that_would_not_run(
    store: falaj.Store, database: Path, row: Any
) -> None:
    with pytest.raises(TypeError, match=f"row is called without await.* {PLAIN}"):
        Outbox(database, store.topic("orders", codec="json"), row=row, on_bad="skip")


@pytest.mark.parametrize("row", FOUND_OUT)
def test_a_row_function_that_returns_what_has_yet_to_run_makes_no_bad_row(
    store: falaj.Store, database: Path, row: Any
) -> None:
    topic = store.topic("orders", codec="json")
    with Outbox(database, topic, row=row, on_bad="skip") as outbox:
        for _ in range(2):
            with pytest.raises(TypeError, match=f"row {YET}"):
                outbox.relay()
        assert outbox.refused == 0
    with Outbox(database, topic, row=lambda row: row["value"], on_bad="skip") as outbox:
        assert outbox.relay() == 1


@pytest.mark.parametrize("given", KNOWN)
def test_a_codec_of_functions_that_would_not_run_is_refused(given: Any) -> None:
    makers: list[tuple[str, Callable[[], object]]] = [
        ("encode", lambda: falaj.Codec("own", given, bytes)),
        ("decode", lambda: falaj.Codec("own", bytes, given)),
        ("default", lambda: falaj.JSON(default=given)),
    ]
    for what, make in makers:
        with pytest.raises(TypeError, match=f"{what} is called without await.* {PLAIN}"):
            make()


@pytest.mark.parametrize("default", FOUND_OUT)
def test_a_default_of_json_that_returns_what_has_yet_to_run_is_refused(
    store: falaj.Store, default: Any
) -> None:
    topic = store.topic("days", codec=falaj.JSON(default=default))
    with pytest.raises((TypeError, Error), match=f"default {YET}"):
        topic.append([object()])
    assert len(topic) == 0


@pytest.mark.parametrize("given", KNOWN)
def test_a_callback_that_would_not_run_is_refused(store: falaj.Store, given: Any) -> None:
    topic, copy = store.topic("orders"), store.path.with_name("copy")
    calls: dict[str, Callable[[], object]] = {
        "on_assign": lambda: store.consumer("billing", topic, on_assign=given),
        "on_revoke": lambda: store.consumer("billing", topic, on_revoke=given),
    }
    watched: list[Callable[[], object]] = [
        lambda: store.verify(progress=given),
        lambda: falaj.verify(store.path, progress=given),
        lambda: store.backup(copy, progress=given),
        lambda: topic.compact(progress=given),
        lambda: falaj.restore(store.path.with_name("place"), copy, progress=given),
    ]
    for call in watched:
        with pytest.raises(TypeError, match="progress is called without await"):
            call()
    for what, call in calls.items():
        with pytest.raises(TypeError, match=f"{what} is called without await"):
            call()
    assert not copy.exists()


@pytest.mark.parametrize("given", FOUND_OUT)
def test_a_callback_that_returns_what_has_yet_to_run_ends_the_call(
    store: falaj.Store, given: Any
) -> None:
    topic = store.topic("orders")
    topic.append(b"one")
    with (
        store.consumer("billing", topic, on_assign=given) as billing,
        pytest.raises(TypeError, match=f"on_assign {YET}"),
    ):
        billing.poll(timeout=0)
    with pytest.raises(TypeError, match=f"progress {YET}"):
        store.verify(progress=given)
