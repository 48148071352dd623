"""Fixtures for tests and docstring examples: a store of their own."""

import doctest
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--proof`, for the large budgets of tests that try to break something, and the like."""
    parser.addoption("--proof", action="store_true", help="large budgets, as for a push")
    parser.addoption(
        "--release", action="store_true", help="also tests that do not run on every push"
    )
    parser.addoption("--first-seed", type=int, default=0, help="start random tests at another seed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests marked `proof` or `release` unless they are asked for: they take minutes."""
    marks = [mark for mark in ("proof", "release") if not config.getoption(f"--{mark}")]
    left_out = [item for item in items if any(map(item.get_closest_marker, marks))]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Exclude what all tests share from garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes of tests, also behind a shell's `&`, which ignores it.

    Hundreds of processes import numpy and multiply no matrices, so none needs its threads.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture
def budget(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """Choose the number of cases: the first, or with `--proof` the second."""
    return lambda few, many: many if request.config.getoption("--proof") else few


@pytest.fixture
def first_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed from which random tests count; a soak chooses others."""
    first: int = request.config.getoption("--first-seed")
    return first


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a directory without a store."""
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[falaj.Store]:
    """Open a new store."""
    with falaj.open(path) as opened:
        yield opened


@pytest.fixture
def topic(store: falaj.Store) -> falaj.Topic[memoryview]:
    """Open a new topic of bytes."""
    return store.topic("orders", codec="raw")


@pytest.fixture(autouse=True)
def _examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    """Give docstring examples `falaj`, a `path` and a `store`."""
    if isinstance(getattr(request.node, "dtest", None), doctest.DocTest):
        doctest_namespace["falaj"] = falaj
        doctest_namespace["path"] = request.getfixturevalue("tmp_path") / "another"
        doctest_namespace["store"] = request.getfixturevalue("store")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Wait for the timers of a test: they use its folder, which goes away behind it."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(30)
