"""The flights over HTTP, with a server that is killed in the middle: `make demo-server`.

Three clients send flights, one airport each: two by Python's own HTTP, one by `curl`. A fourth
client follows the stream of events. In the middle the server is killed with SIGKILL, and started
again. Each client repeats what was not answered. Invariant: a request is a producer and a sequence
number, so a repeated one is appended once. At the end the store is compared with the file.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rich.console import Console
from rich.table import Table

from falaj.demo import check, flights
from falaj.demo.failed import Failed
from falaj.errors import Error, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main", "run"]

TOPIC, STORE, CURL = "flights", "store", "curl.conf"
BATCH = 200
RECORDS = "application/vnd.falaj.records+ndjson"
# A server that is gone is asked again so often, and for so long.
_AGAIN_S, _PATIENCE_S = 0.05, 30.0
# curl could not connect, or its connection broke.
_CURL_BROKEN = {7, 18, 52, 55, 56}


class Door(NamedTuple):
    """Where the server is."""

    address: str
    token: str
    config: Path
    """The token as curl reads it."""

    @property
    def records(self) -> str:
        """Address of the topic's records."""
        return f"{self.address}/v1/topics/{TOPIC}/records"


@dataclass
class Sent:
    """The figures of a client that sends."""

    origin: str
    by: str
    flights: int = 0
    requests: int = 0
    repeated: int = 0


@dataclass
class Seen:
    """The figures of the client that follows."""

    events: int = 0
    connections: int = 0


class Figures(NamedTuple):
    """The outcome."""

    sent: list[Sent]
    seen: Seen
    flights: int
    killed_at: int
    away_s: float
    seconds: float


@contextmanager
def served(program: str, store: Path, address: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start the server; yield its address once it is ready."""
    command = [program, str(store), "--http", address, "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.startswith("http "):
                raise Failed(f"the server {program} did not start")
            yield line.removeprefix("http ").strip(), process
        finally:
            process.kill()


def _prepare(folder: Path) -> Path:
    """Create the folder, or empty one that the demo left; return the path of the store."""
    folder.mkdir(parents=True, exist_ok=True)
    if other := sorted(entry.name for entry in folder.iterdir() if entry.name not in (STORE, CURL)):
        raise InvalidArgument(
            f"{folder} has {other[0]} in it, which the demo did not put there: name a folder that "
            "is empty or not there yet"
        )
    store = folder / STORE
    shutil.rmtree(store, ignore_errors=True)
    return store


def _door(address: str, store: Path, folder: Path) -> Door:
    token, config = (store / "server/token").read_text().strip(), folder / CURL
    config.touch(0o600)
    config.write_text(f'header = "Authorization: Bearer {token}"\n')
    return Door(address, token, config)


def _body(origin: str, batch: list[tuple[int, flights.Flight]]) -> bytes:
    lines = []
    for number, flight in batch:
        headers = [{"name": "producer", "value": origin}, {"name": "seq", "value": str(number)}]
        value = flights.encode(flight).decode()
        record = {"value": value, "key": flight["tailnum"], "headers": headers}
        lines.append(json.dumps(record))
    return "\n".join(lines).encode()


def _by_python(door: Door, headers: dict[str, str], body: bytes) -> bool:
    """Send a request; say whether it was answered."""
    allowed = {"Authorization": f"Bearer {door.token}"}
    asked = Request(door.records, body, headers | allowed, method="POST")
    try:
        with urlopen(asked, timeout=_PATIENCE_S) as answer:
            answer.read()
    except HTTPError as refused:
        raise Failed(f"the server refused: {refused.read().decode()}") from None
    except (OSError, http.client.HTTPException):
        return False
    return True


def _by_curl(door: Door, headers: dict[str, str], body: bytes) -> bool:
    """Send a request with curl; say whether it was answered."""
    # Other users can read a command line, so the token is in a file that they cannot.
    options = [word for name, value in headers.items() for word in ("--header", f"{name}: {value}")]
    quiet = ["--silent", "--fail", "--output", "/dev/null", "--config", str(door.config)]
    command = ["curl", *quiet, *options, "--data-binary", "@-", door.records]
    done = subprocess.run(command, input=body, check=False)
    if done.returncode not in {0, *_CURL_BROKEN}:
        raise Failed(f"curl ended with {done.returncode}")
    return done.returncode == 0


def _send(door: Door, sent: Sent, limit: int | None, seconds: float, total: int) -> None:
    """Send the flights of one airport, spread over so many seconds; repeat what is unanswered."""
    post = _by_curl if sent.by == "curl" else _by_python
    begun = time.monotonic()
    numbered = enumerate(flights.flights(limit, sent.origin))
    batches = iter(lambda: list(islice(numbered, BATCH)), [])
    for sequence, batch in enumerate(batches):
        body = _body(sent.origin, batch)
        headers = {
            "Content-Type": RECORDS,
            "Falaj-Producer": sent.origin,
            "Falaj-Sequence": str(sequence),
        }
        until = time.monotonic() + _PATIENCE_S
        while not post(door, headers, body):
            if time.monotonic() > until:
                raise Failed(f"the server at {door.address} does not answer")
            sent.repeated += 1
            time.sleep(_AGAIN_S)
        sent.requests += 1
        sent.flights += len(batch)
        ahead = begun + seconds * sent.flights / total - time.monotonic()
        time.sleep(max(0.0, ahead))


def _follow(door: Door, seen: Seen, total: int) -> None:
    """Follow the stream until all flights came; resume behind the last event that came."""
    last = coming = ""
    until = time.monotonic() + _PATIENCE_S
    while seen.events < total:
        if time.monotonic() > until:
            raise Failed(f"the stream ended at {seen.events:,} of {total:,} events")
        headers = {"Authorization": f"Bearer {door.token}", "Accept": "text/event-stream"}
        if last:
            headers["Last-Event-ID"] = last
        try:
            with urlopen(Request(door.records, headers=headers), timeout=_PATIENCE_S) as stream:
                seen.connections += 1
                for line in stream:
                    if line.startswith(b"id: "):
                        coming = line[4:].strip().decode()
                    elif line.startswith(b"data: "):
                        offset = json.loads(line[6:])["offset"]
                        if offset != seen.events:
                            raise Failed(f"event {seen.events:,} of the stream has offset {offset}")
                        last, seen.events = coming, seen.events + 1
                        until = time.monotonic() + _PATIENCE_S
                        if seen.events == total:
                            return
        except (OSError, http.client.HTTPException):
            time.sleep(_AGAIN_S)


def run(folder: Path, program: str, *, limit: int | None, seconds: float, say: Console) -> Figures:
    """Run it; return the figures.

    Raises:
        Failed: A flight is missing, there twice, or not what the file says.
        InvalidArgument: The folder holds something else.
    """
    store = _prepare(folder)
    begun = time.monotonic()
    by = "curl" if shutil.which("curl") else "Python"
    counts = flights.count(limit)
    total = sum(counts.values())
    sent = [Sent(origin, by if origin == "LGA" else "Python") for origin in counts]
    seen = Seen()
    with ThreadPoolExecutor(len(sent) + 1) as pool:
        with served(program, store, "127.0.0.1:0") as (address, process):
            door = _door(address, store, folder)
            say.print(f"page   {address}/\ntoken  {store / 'server/token'}")
            running = [
                pool.submit(_send, door, one, limit, seconds, counts[one.origin]) for one in sent
            ]
            running.append(pool.submit(_follow, door, seen, total))
            while sum(one.flights for one in sent) < total / 2 and not any(
                one.done() and one.exception() for one in running
            ):
                time.sleep(_AGAIN_S)
            killed_at = sum(one.flights for one in sent)
            gone = time.monotonic()
            process.kill()
            process.wait()
        say.print(f"killed with SIGKILL when {killed_at:,} of {total:,} flights were acknowledged")
        with served(program, store, address.removeprefix("http://")):
            away_s = time.monotonic() - gone
            say.print(f"serving again after {away_s * 1e3:.0f} ms")
            for one in running:
                one.result()
    checked, _ = check.exactly_once(store, TOPIC, limit)
    return Figures(sent, seen, checked, killed_at, away_s, time.monotonic() - begun)


def show(figures: Figures, say: Console) -> None:
    """Print the table."""
    table = Table(title="Every flight exactly once, though the server was killed")
    for name in ("client", "flights", "requests", "repeated"):
        table.add_column(name, justify="left" if name == "client" else "right")
    for one in figures.sent:
        name = f"{one.origin}, by {one.by}"
        table.add_row(name, f"{one.flights:,}", f"{one.requests:,}", f"{one.repeated:,}")
    again = f"{figures.seen.connections - 1:,}"
    table.add_row("a stream of events", f"{figures.seen.events:,}", "", again)
    table.add_row("in the store, as the file has them", f"{figures.flights:,}", "", "")
    say.print(table)
    say.print(f"{figures.seconds:.0f} s in all")


def main() -> int:
    """Read the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(prog="make demo-server", description=run.__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("falaj-demo-server"))
    parser.add_argument("--program", default="falaj-server", help="the server")
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the clients take")
    asked = parser.parse_args()
    say = Console(highlight=False)
    try:
        program = asked.program
        show(run(asked.folder, program, limit=asked.flights, seconds=asked.seconds, say=say), say)
    except Error as error:
        sys.stderr.write(f"falaj: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
