"""Every public name is documented, and the examples in compiled docstrings run.

pytest itself runs the examples of Python modules (`--doctest-modules`), but not those of the
compiled one.
"""

import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj import _core

PUBLIC = [
    _core.Store,
    _core.AnyTopic,
    _core.Topic,
    _core.PartitionedTopic,
    _core.Record,
    _core.NewRecord,
    _core.Batch,
    _core.Follower,
]


def members(cls: type) -> Iterator[tuple[str, Any]]:
    yield cls.__name__, cls
    for name, member in vars(cls).items():
        if not name.startswith("_"):
            yield f"{cls.__name__}.{name}", member


DOCUMENTED = dict(pair for cls in PUBLIC for pair in members(cls))
WITH_EXAMPLES = [name for name, m in DOCUMENTED.items() if ">>>" in (m.__doc__ or "")]


@pytest.mark.parametrize("name", list(DOCUMENTED))
def test_every_public_name_of_the_compiled_module_is_documented(name: str) -> None:
    assert (DOCUMENTED[name].__doc__ or "").strip()


def test_the_main_calls_have_examples() -> None:
    wanted = {"Topic.append", "Topic.extend", "Record", "NewRecord", "Batch", "Follower"}
    assert wanted <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_the_compiled_module_run(name: str, store: falaj.Store, path: Path) -> None:
    found = {"falaj": falaj, "store": store, "path": path.parent / "another"}
    text = inspect.cleandoc(DOCUMENTED[name].__doc__)
    test = doctest.DocTestParser().get_doctest(text, found, name, None, None)
    assert test.examples
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert result.failed == 0, "".join(said)
