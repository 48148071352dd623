"""Requests that are repeated until they are answered, or until their time is over.

A request is repeated when its answer is lost, when it did not arrive, and when the server is busy.
Once it may have arrived, it is repeated only if a repeat is harmless. Appends carry a producer and
a sequence (`Producers`), so theirs is. Waits between repeats grow. Each is shortened at random, so
that not all clients of a restarted server come at once.
"""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from falaj_client._numbers import is_word, natural
from falaj_client._own_errors import named
from falaj_client._times import milliseconds_of, seconds, span
from falaj_client._wire import Answer, Broken, Open, Sent, Shut, Sleep
from falaj_client.errors import InvalidArgument, ServerUnavailable, of_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from falaj_client._times import Duration
    from falaj_client._wire import Call, Operation

__all__ = [
    "LONGER",
    "Patience",
    "Producers",
    "call",
    "is_unknown",
    "named_append",
    "open_stream",
    "remote_patience",
    "remote_wait",
]

_FIRST_S, _LONGEST_S = 0.05, 2.0
#: One try takes at most this part of the whole time, so that a lost answer leaves time for another.
_TRY = 1 / 3
#: The remedy where the time was too short; the commands name their own option instead.
LONGER = "give connect() a longer timeout="
#: Longer waits are as good as these, and no socket takes them.
_YEAR_S = 365 * 86_400.0
_BUSY = {429, 502, 503, 504}
_SYNCS = ("none", "interval", "durable", "remote")


@dataclass
class Patience:
    """How long calls may take, repeats included.

    Attributes:
        timeout: Seconds, at most a year.
        draws: Where the waits between repeats come from.
    """

    timeout: float = 30.0
    draws: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.timeout = min(self.timeout, _YEAR_S)


def call(patience: Patience, asked: Call) -> Operation[Answer]:
    """Send a request until it is answered.

    Raises:
        ServerUnavailable: The time is over.
        Error: The server refused; the class says why.
    """
    answer = yield from _until_answered(patience, asked, None)
    return answer


def open_stream(patience: Patience, asked: Call, read: float) -> Operation[Answer]:
    """Send a request until its answer begins; `Piece` reads it, and waits `read` seconds."""
    answer = yield from _until_answered(patience, asked, read)
    return answer


def _until_answered(patience: Patience, asked: Call, read: float | None) -> Operation[Answer]:
    end = time.monotonic() + patience.timeout + asked.wait
    part = _TRY if asked.is_repeatable else 1.0
    may_have_happened, tries, longest = False, 0, max(patience.timeout * part, 0.001) + asked.wait
    while True:
        left = max(end - time.monotonic(), 0.001)
        limit = min(left, longest)
        sent = Sent(asked, limit) if read is None else Open(asked, limit, read)
        wanted = 0.0
        try:
            answer: Answer = yield sent
        except Broken as error:
            why, arrived = str(error), error.has_arrived
        else:
            if answer.status < 400:
                return answer
            document = answer.json if isinstance(answer.json, dict) else {}
            refused = of_problem(answer.status, document)
            kind = str(document.get("type", "")).rpartition(":")[2]
            is_lost = kind in ("outcome-unknown", "interrupted") or not document
            if answer.status not in _BUSY and kind != "outcome-unknown":
                _mark(refused, may_have_happened)
                raise refused
            why, arrived = str(refused), is_lost
            wanted = _retry_after(answer)
        may_have_happened |= arrived
        wait = max(wanted, min(_LONGEST_S, _FIRST_S * 2**tries))
        wait *= patience.draws.uniform(1.0, 1.5) if wanted else patience.draws.uniform(0.5, 1.0)
        tries += 1
        may_repeat = asked.is_repeatable or not arrived
        if not may_repeat or time.monotonic() + wait >= end:
            raise _unavailable(why, patience, asked, may_have_happened)
        yield Shut()
        yield Sleep(wait)


def _unavailable(
    why: str, patience: Patience, asked: Call, may_have_happened: bool
) -> ServerUnavailable:
    changes = asked.method != "GET"
    outcome = ": it may have been carried out" if changes and may_have_happened else ""
    error = ServerUnavailable(
        f"no answer to {asked.method} {asked.path} within {patience.timeout:g} s{outcome}: {why}; "
        f"try again, or {LONGER}"
    )
    error.may_have_happened = changes and may_have_happened
    return error


def _mark(error: Exception, may_have_happened: bool) -> None:
    """Note on an error that an earlier try of the same request got no answer."""
    error.__dict__["_after_lost_answer"] = may_have_happened


def is_unknown(error: BaseException) -> bool:
    """True if a request that ended with this error may arrive later, or has had its effect."""
    if getattr(error, "may_have_happened", False) or not isinstance(error, Exception):
        return True
    return bool(error.__dict__.get("_after_lost_answer", False))


def _retry_after(answer: Answer) -> float:
    try:
        return min(60.0, max(0.0, float(answer.headers.get("retry-after", "0"))))
    except ValueError:
        return 0.0


def remote_patience(
    patience: Patience, sync: str | None, timeout: Duration | None
) -> dict[str, str]:
    """Check a mode of appends, and return how long the server waits for the place, as a query.

    Raises:
        InvalidArgument: There is no such mode, or it waits for no place.
    """
    if sync is not None and not is_word(sync, *_SYNCS):
        raise InvalidArgument(f"sync is one of {', '.join(_SYNCS)}, not {named(sync)}")
    if sync != "remote":
        if timeout is not None:
            raise InvalidArgument(
                'timeout= limits the wait of sync="remote": leave it out, or name that mode'
            )
        return {}
    wait = patience.timeout if timeout is None else seconds(timeout, "timeout")
    return {"timeout": span(min(wait, _YEAR_S))}


def remote_wait(patience: Mapping[str, str]) -> float:
    """Return the seconds of `remote_patience`."""
    return milliseconds_of(patience["timeout"]) / 1000 if patience else 0.0


class Producers:
    """Producers of a handle: names with the sequence that comes next.

    An append takes a free one, and returns it once it knows its outcome. So appends of several
    threads each have one, and no sequence is left out. One whose last append may still arrive is
    never used again. Sequences count in each topic, and in a partition that a request names: each
    of those has its own. The server forgets these names a day after their last append.
    """

    def __init__(self) -> None:
        self._free: dict[Any, list[tuple[str, int]]] = {}

    def send(self, patience: Patience, asked: Call, of: Any) -> Operation[Answer]:
        """Send an append with the next sequence of a producer of this topic or partition."""
        free = self._free.setdefault(of, [])
        try:
            name, sequence = free.pop()
        except IndexError:
            name, sequence = f"client-{uuid.uuid4().hex}", 0
        headers = {"Falaj-Producer": name, "Falaj-Sequence": str(sequence)}
        numbered = replace(asked, headers={**asked.headers, **headers})
        try:
            answer = yield from call(patience, numbered)
        except Exception as error:
            if not is_unknown(error):
                free.append((name, sequence))
            raise
        free.append((name, sequence + 1))
        return answer


def named_append(producer: Any, sequence: Any) -> dict[str, str]:
    """Write a producer and a sequence of the caller's own as headers; none without them."""
    if (producer is None) != (sequence is None):
        raise InvalidArgument("producer= and sequence= go together")
    if producer is None:
        return {}
    name = producer if isinstance(producer, str) else getattr(producer, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"producer is a name, not {type(producer).__name__}")
    if not name or not name.isascii() or not name.isprintable() or name != name.strip():
        raise InvalidArgument(
            "over HTTP the name of a producer is printable ASCII without spaces around it, not "
            f"{named(name)}: choose another one"
        )
    return {"Falaj-Producer": name, "Falaj-Sequence": str(natural(sequence, "sequence"))}
