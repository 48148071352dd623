"""What tests and docstring examples find at hand: a store of their own."""

import doctest
import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj


def pytest_addoption(parser: pytest.Parser) -> None:
    """Know `--proof`, with which tests that try to break something try long, and its like."""
    parser.addoption("--proof", action="store_true", help="large budgets, as for a push")
    parser.addoption("--release", action="store_true", help="also what is not of every push")
    parser.addoption("--first-seed", type=int, default=0, help="other random tests than usual")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `proof` or `release` unless that is asked for: it takes minutes."""
    marks = [mark for mark in ("proof", "release") if not config.getoption(f"--{mark}")]
    left_out = [item for item in items if any(map(item.get_closest_marker, marks))]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Pass over what all tests are made of whenever garbage is collected."""
    gc.collect()
    gc.freeze()


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start, also behind a shell's `&`, which has it ignored.

    Hundreds of processes import numpy and multiply no matrices: none needs threads for that.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture
def budget(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """Choose how much is tried: the first number, or with `--proof` the second."""
    return lambda few, many: many if request.config.getoption("--proof") else few


@pytest.fixture
def first_seed(request: pytest.FixtureRequest) -> int:
    """Name the seed from which random tests count theirs; a soak asks for others."""
    first: int = request.config.getoption("--first-seed")
    return first


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name a directory in which no store is yet."""
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
