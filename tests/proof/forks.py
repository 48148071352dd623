"""A function in a forked child, and its result; the child may be killed at its end."""

import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def forked(work: Callable[[], T], last: Callable[[], None] | None = None) -> T:
    """Run `work` in a child, and return its result.

    With `last`, the child then calls that and kills itself, so that none of its handles is closed.
    """
    out, into = os.pipe()
    with warnings.catch_warnings():  # of threads at a fork: falaj's are prepared for it
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.close(out)
            told = pickle.dumps(work())
            if last is not None:
                last()
            with os.fdopen(into, "wb") as pipe:
                pipe.write(told)
        except BaseException:  # noqa: BLE001  # a child must not continue as a parent
            os.write(2, traceback.format_exc().encode())
            os._exit(1)
        if last is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code == (0 if last is None else -signal.SIGKILL), f"the child ended with {code}"
    return pickle.loads(data)  # type: ignore[no-any-return]
