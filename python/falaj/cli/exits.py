"""How a command ends: the exit codes, and the one sentence on stderr.

Invariant: an error of the user, the machine or the disk never shows a traceback. docs/cli.md, "Exit
codes", explains the codes.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

from falaj import errors
from falaj.cli.paint import Paint
from falaj.errors import ConflictError, CorruptionError, MachineError, RetryableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import NoReturn, TextIO

    from falaj.errors import Error

__all__ = [
    "Exit",
    "Stop",
    "code_of",
    "end_by_signal",
    "interrupt_after",
    "read_failed",
    "say",
    "swallow_output",
    "told",
    "worst",
]


class Exit(IntEnum):
    """Exit codes; what helps decides which."""

    DONE = 0
    CORRUPTION = 1
    USAGE = 2
    MACHINE = 3
    AGAIN = 4
    FENCED = 5
    TWIN = 6
    REFUSED = 7
    INTERRUPTED = 130


_BY_BASE: dict[type[Error], Exit] = {
    CorruptionError: Exit.CORRUPTION,
    UsageError: Exit.USAGE,
    MachineError: Exit.MACHINE,
    RetryableError: Exit.AGAIN,
    ConflictError: Exit.AGAIN,
}


_OF_ITS_OWN: dict[type[Error], Exit] = {
    errors.TopicFinished: Exit.USAGE,  # a conflict, but no repeat of the command will ever help
    errors.Fenced: Exit.FENCED,
    errors.TwinStore: Exit.TWIN,
    errors.PlaceRefused: Exit.REFUSED,
}
_SHIPPING = (Exit.FENCED, Exit.TWIN, Exit.REFUSED)
_BY_WEIGHT = (Exit.DONE, Exit.AGAIN, *_SHIPPING, Exit.USAGE, Exit.MACHINE, Exit.CORRUPTION)


class Stop(Exception):
    """End the command with a sentence and an exit code."""

    def __init__(self, sentence: str, code: Exit = Exit.USAGE) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code

    @classmethod
    def silent(cls, code: Exit) -> Stop:
        """End with a code, after everything was reported."""
        return cls("", code)


def code_of(error: Error) -> Exit:
    """Exit code of one of falaj's errors.

    Example:
        >>> from falaj.errors import InvalidArgument
        >>> code_of(InvalidArgument("an argument that cannot be right"))
        <Exit.USAGE: 2>
    """
    return _code(type(error))


def _code(kind: type[Error]) -> Exit:
    known = _OF_ITS_OWN | _BY_BASE
    codes = [code for base, code in known.items() if issubclass(kind, base)]
    return codes[0] if codes else Exit.USAGE


def worst(one: Exit, other: Exit) -> Exit:
    """Choose the code of a command that met both: a retry does not help while data is corrupt."""
    return max(one, other, key=_BY_WEIGHT.index)


def told(problems: Iterable[tuple[str | None, str | None]]) -> Exit:
    """Report each problem once, and return the code that shows what helps.

    Args:
        problems: Sentences and their classes in `falaj.errors`; None stands for no problem.
    """
    code = Exit.DONE
    for sentence, name in dict.fromkeys(problems):
        if sentence is not None and name is not None:
            say(sentence)
            code = worst(code, _code(getattr(errors, name)))
    return code


def read_failed(path: str, error: OSError) -> Stop:
    """Make the end of a command whose input file cannot be read."""
    return Stop(f"cannot read {path}: {error.strerror}; check the path", Exit.USAGE)


def say(sentence: str) -> None:
    """Write a sentence to stderr, on one line, without anything that a terminal obeys.

    Where it cannot be written, the exit code alone tells what happened.
    """
    try:
        sys.stdout.flush()
    except OSError:  # the sentence is about what came first
        swallow_output()
    paint = Paint.of(sys.stderr)
    plain = " ".join(sentence.split())
    try:
        print(f"{paint('falaj:', 'red')} {paint.harmless(plain)}", file=sys.stderr, flush=True)
    except OSError:
        _swallow(sys.stderr)


def swallow_output() -> None:
    """Discard all further output: its reader is gone, and flushing at exit must not fail."""
    _swallow(sys.stdout)


def _swallow(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def interrupt_after() -> Iterator[None]:
    """Delay Ctrl-C until the block has ended; a second one acts at once."""
    came = False

    def remember(_signal: int, _frame: object) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def end_by_signal() -> NoReturn:
    """End as Ctrl-C ends programs, so that a shell stops its loop too; it sees 130."""
    sys.stderr.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    sys.exit(Exit.INTERRUPTED)  # where SIGINT is blocked
