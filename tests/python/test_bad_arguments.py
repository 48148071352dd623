"""Every public call refuses every wrong argument: by name, in a sentence, before anything changes.

The calls come from the modules themselves, so a new one is tried as well. `calls` says what each
argument may be.
"""

import asyncio
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import calls
import pytest
from calls import Kind, World
from state import state
from surface import LEFT_OUT, MADE_BY_USERS, Call, classes, surface

import falaj

SURFACE = surface()

#: Phrases of errors of Python and PyO3 that no person would write.
FROM_THE_DEPTHS = re.compile(
    r"object cannot be|cannot be (?:converted|interpreted|cast)|can't convert|out of range integral"
    r"|bytes-like object is required|has no attribute|too (?:large|big) to|unsupported operand"
    r"|not supported between|embedded null|codec can't|Panic|must be real number|is not iterable"
    r"|unhashable|not subscriptable|not callable|missing \d+ required|invalid literal|unpack"
    r"|Traceback|surrogates not allowed|integer string conversion|NaN to integer|an instance of"
    r"|truth value"
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return World.template(tmp_path_factory.mktemp("world") / "template")


def ended(result: Any) -> None:
    """Go on with what a call returned, as its user would: take a step, or wait for it."""
    if inspect.isawaitable(result):
        asyncio.run(_awaited(result))
    elif hasattr(result, "__anext__"):
        asyncio.run(_awaited(anext(result)))
    elif isinstance(result, falaj.BulkLoad):
        with result:
            pass
    elif inspect.isgenerator(result) or isinstance(result, Iterator):
        next(result, None)


async def _awaited(result: Any) -> None:
    with suppress(StopAsyncIteration):
        await result


def complaint(
    error: BaseException, call: Call, parameter: str, label: str, kind: Kind
) -> str | None:
    """Say what is wrong with an error; None if it is as it should be."""
    said = str(error)
    if isinstance(error, IndexError) and parameter == "at":
        return None  # as of any sequence
    if not isinstance(error, TypeError | ValueError | falaj.Error):
        return "is no error for a wrong argument"
    if isinstance(error, UnicodeError):
        return "is not falaj's"
    if FROM_THE_DEPTHS.search(said):
        return "comes from the depths"
    if "\n" in said or not said or (len(said) > 400 and label != "long text"):
        return "is no sentence"
    usual = (TypeError, ValueError, falaj.errors.InvalidArgument, falaj.errors.EncodeFailed)
    is_usage = type(error) in usual
    if is_usage and label not in kind.fine and not re.search(kind.takes, said, re.IGNORECASE):
        return f"does not say what {parameter} may be, {kind.takes}"
    word = parameter.rstrip("s").replace("_", "[_ -]?")
    if is_usage and label not in kind.fine and not re.search(rf"\b{word}|{kind.noun}", said):
        return f"does not name {parameter}"
    return None


def tried(world: World, call: Call, parameter: str, label: str, kind: Kind) -> str | None:
    """Try a value; return what is wrong with the answer."""
    method = calls.found_in(world, call)
    others = calls.arguments(world, call, parameter)
    value = calls.VALUES[label](world)
    before = world.before
    places = [name for name in call.parameters if name in call.positional]
    given = {**others, parameter: value}
    positional = [given.pop(name) for name in places]
    try:
        ended(method(*positional, **given))
    except Exception as error:  # noqa: BLE001  # which ones are right is what is asked
        if label == "a class" and label in kind.fine:
            return None  # the error of the class itself, which was called
        wrong = complaint(error, call, parameter, label, kind)
        if wrong:
            return f"{type(error).__name__}, which {wrong}: {error}"[:300]
    else:
        if label not in kind.fine:
            return "succeeds"
        return None
    if state(world.folder) != before:
        return "was refused, and something changed"
    return None


@pytest.mark.parametrize("title", list(SURFACE))
def test_a_wrong_argument_is_refused_by_name_in_a_sentence_and_changes_nothing(
    title: str, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = SURFACE[title]
    found = []
    turn = 0
    for parameter in call.parameters:
        kind = call.of(calls.KINDS, parameter)
        assert kind is not None, f"calls.KINDS does not say what {title}({parameter}=) may be"
        world = None
        for label in calls.VALUES:
            if world is None:
                turn += 1
                world = World(template, tmp_path / str(turn))
                monkeypatch.chdir(world.folder / "here")
            wrong = tried(world, call, parameter, label, kind)
            if wrong:
                found.append(f"{title}({parameter}={label}) {wrong}")
            if wrong or label in kind.fine:  # it may have been used up
                world.close()
                world = None
        if world is not None:
            world.close()
    assert not found, "\n" + "\n".join(found)


def test_each_public_class_is_tried_or_left_out_for_a_reason() -> None:
    known = MADE_BY_USERS | set(calls.OBJECTS) | set(LEFT_OUT)
    assert classes() <= known, "add new classes to OBJECTS or MADE_BY_USERS of calls.py"
