"""The steps of an operation, without input or output: requests to send, and times to wait.

An operation is a generator. It yields steps and gets their results: `Sent` gets an `Answer`, so
does `Open`, and `Piece` the next bytes of its body. `Give` passes records on to the program.
`Begin` starts another operation beside this one, and `Finish` waits for its result. A driver
(`_drivers`) does the steps, with or without asyncio, so each rule of the client is written once. If
a step fails, `Broken` is thrown into the operation, or the error of what it had begun.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from falaj_client._own_errors import named
from falaj_client.errors import InvalidName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

__all__ = [
    "LINES",
    "Answer",
    "Begin",
    "Broken",
    "Call",
    "Finish",
    "Give",
    "Open",
    "Operation",
    "Piece",
    "Sent",
    "Shut",
    "Sleep",
    "Step",
    "path_of",
]

#: The type of a body with a record a line.
LINES = "application/vnd.falaj.records+ndjson"


@dataclass(frozen=True)
class Call:
    """A request.

    Attributes:
        method: Its method.
        path: Its path, encoded.
        query: Its query; a value of None is left out.
        headers: Its headers, without those of the connection.
        content: Its body.
        wait: Seconds that the server may wait before it answers, beside the usual ones.
        is_repeatable: True if a repeat is harmless, and has the same answer. Other requests are
            given the whole time at once.
    """

    method: str
    path: str
    query: Mapping[str, str | int | None] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    wait: float = 0.0
    is_repeatable: bool = True

    @property
    def target(self) -> str:
        """Path and query."""
        query = {name: value for name, value in self.query.items() if value is not None}
        return f"{self.path}?{urlencode(query)}" if query else self.path


@dataclass(frozen=True)
class Answer:
    """An answer; the names of its headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; an empty object where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return {}


class Broken(Exception):
    """A step failed: there is no answer.

    Attributes:
        has_arrived: True if the request arrived, perhaps.
        is_late: True if there is no answer yet.
    """

    def __init__(self, why: str, *, has_arrived: bool, is_late: bool = False) -> None:
        super().__init__(why)
        self.has_arrived, self.is_late = has_arrived, is_late


class Open(NamedTuple):
    """Send a request, and keep its answer open; a refusal is read whole.

    `read` is how many seconds each `Piece` waits: then it is `Broken`, and late.
    """

    call: Call
    patience: float
    read: float


class Sent(NamedTuple):
    """Send a request, and read its answer, within so many seconds."""

    call: Call
    patience: float


class Piece(NamedTuple):
    """Read more of the open answer: no bytes at its end."""


class Shut(NamedTuple):
    """Close the open answer, if there is one."""


class Sleep(NamedTuple):
    """Wait so many seconds."""

    seconds: float


class Give(NamedTuple):
    """Pass these on to the program."""

    items: Sequence[Any]


class Begin(NamedTuple):
    """Start an operation beside this one; the result is what `Finish` takes."""

    operation: Operation[Any]


class Finish(NamedTuple):
    """Wait for what `Begin` started, and get its result."""

    begun: Any


Step: TypeAlias = Sent | Open | Piece | Shut | Sleep | Give | Begin | Finish
Operation: TypeAlias = Generator[Step, Any, T]


def path_of(*parts: str) -> str:
    """Make the path of an API call; a name in it cannot leave its place.

    Raises:
        InvalidName: Nothing is called so.
        TypeError: A name is no text.
    """
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"a name is text, not {type(part).__name__}")
        if part in ("", ".", "..") or "/" in part or any("\ud800" <= c <= "\udfff" for c in part):
            raise InvalidName(f"nothing is called {named(part)}: a name is of A-Z a-z 0-9 . _ -")
    return "/v1/" + "/".join(quote(part, safe=":") for part in parts)
