"""The flights over HTTP, with a server that is killed in the middle: `make demo-server`.

Three clients send flights, one airport each: two by `falaj.connect`, one by `curl`. A fourth client
follows the topic. In the middle the server is killed with SIGKILL, and started again. Each client
repeats what was not answered: `falaj.connect` by itself, `curl` by a loop here. Invariant: a
request has a producer and a sequence number, so a repeated one is appended once. At the end the
store is compared with the file.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rich.console import Console
from rich.table import Table

import falaj
from falaj.demo import check, flights
from falaj.demo.failed import Failed
from falaj.errors import Error, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main", "run"]

TOPIC, STORE, CURL, CLIENT = "flights", "store", "curl.conf", "falaj.connect"
BATCH = 200
RECORDS = "application/vnd.falaj.records+ndjson"
# A server that is gone is asked again so often, and for so long.
_AGAIN_S, _PATIENCE_S = 0.05, 30.0
# curl could not connect, or its connection broke.
_CURL_BROKEN = {7, 18, 52, 55, 56}


#: A flight, and its number among those of its airport.
Numbered: TypeAlias = "tuple[int, flights.Flight]"


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
    repeated: int | None = None
    """Requests that were sent again; a client of `falaj.connect` does not tell."""


@dataclass
class Seen:
    """The figures of the client that follows."""

    flights: int = 0
    before_kill: int = 0


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


def _by_client(store: Any, origin: str, sequence: int, batch: list[Numbered]) -> None:
    """Send flights with `falaj.connect`, which repeats what is not answered."""
    records = [
        falaj.NewRecord(
            flights.encode(flight),
            flight["tailnum"],
            headers={"producer": origin, "seq": str(number)},
        )
        for number, flight in batch
    ]
    topic = store.topic(TOPIC, codec="bytes")
    topic.extend(records, producer=origin, sequence=sequence)


def _by_curl(door: Door, sent: Sent, sequence: int, batch: list[Numbered]) -> None:
    """Send flights with curl, and repeat what is not answered."""
    sent.repeated = sent.repeated or 0
    until = time.monotonic() + _PATIENCE_S
    while not _curl(door, sent.origin, sequence, _body(sent.origin, batch)):
        if time.monotonic() > until:
            raise Failed(f"the server at {door.address} does not answer")
        sent.repeated += 1
        time.sleep(_AGAIN_S)


def _body(origin: str, batch: list[Numbered]) -> bytes:
    lines = []
    for number, flight in batch:
        headers = [{"name": "producer", "value": origin}, {"name": "seq", "value": str(number)}]
        value = flights.encode(flight).decode()
        record = {"value": value, "key": flight["tailnum"], "headers": headers}
        lines.append(json.dumps(record))
    return "\n".join(lines).encode()


def _curl(door: Door, producer: str, sequence: int, body: bytes) -> bool:
    """Send a request with curl; say whether it was answered."""
    headers = (
        f"Content-Type: {RECORDS}",
        f"Falaj-Producer: {producer}",
        f"Falaj-Sequence: {sequence}",
    )
    # Other users can read a command line, so the token is in a file that they cannot.
    options = [word for header in headers for word in ("--header", header)]
    quiet = ["--silent", "--fail", "--output", "/dev/null", "--config", str(door.config)]
    command = ["curl", *quiet, *options, "--data-binary", "@-", door.records]
    done = subprocess.run(command, input=body, check=False)
    if done.returncode not in {0, *_CURL_BROKEN}:
        raise Failed(f"curl ended with {done.returncode}")
    return done.returncode == 0


def _send(
    door: Door, store: Any, sent: Sent, limit: int | None, seconds: float, total: int
) -> None:
    """Send the flights of one airport, spread over so many seconds."""
    begun = time.monotonic()
    numbered = enumerate(flights.flights(limit, sent.origin))
    batches = iter(lambda: list(islice(numbered, BATCH)), [])
    for sequence, batch in enumerate(batches):
        if sent.by == "curl":
            _by_curl(door, sent, sequence, batch)
        else:
            _by_client(store, sent.origin, sequence, batch)
        sent.requests += 1
        sent.flights += len(batch)
        ahead = begun + seconds * sent.flights / total - time.monotonic()
        time.sleep(max(0.0, ahead))


def _follow(store: Any, seen: Seen, total: int) -> None:
    """Follow the topic until all flights came; the client goes on where its stream broke."""
    with store.topic(TOPIC, codec="bytes").follow(timeout=_PATIENCE_S) as records:
        for record in records:
            if record.offset != seen.flights:
                raise Failed(f"record {seen.flights:,} of the stream has offset {record.offset}")
            seen.flights += 1
            if seen.flights == total:
                return
    raise Failed(f"the stream ended at {seen.flights:,} of {total:,} records")


def run(folder: Path, program: str, *, limit: int | None, seconds: float, say: Console) -> Figures:
    """Run it; return the figures.

    Raises:
        Failed: A flight is missing, there twice, or not what the file says.
        InvalidArgument: The folder holds something else.
    """
    path = _prepare(folder)
    begun = time.monotonic()
    by = "curl" if shutil.which("curl") else CLIENT
    counts = flights.count(limit)
    total = sum(counts.values())
    sent = [Sent(origin, by if origin == "LGA" else CLIENT) for origin in counts]
    seen = Seen()
    with ExitStack() as ends, ThreadPoolExecutor(len(sent) + 1) as pool:
        with served(program, path, "127.0.0.1:0") as (address, process):
            door = _door(address, path, folder)
            say.print(f"page   {address}/\ntoken  {path / 'server/token'}")
            store = ends.enter_context(
                falaj.connect(address, token=door.token, timeout=_PATIENCE_S)
            )
            store.topic(TOPIC, codec="bytes")  # before curl, which would name another codec
            running = [
                pool.submit(_send, door, store, one, limit, seconds, counts[one.origin])
                for one in sent
            ]
            running.append(pool.submit(_follow, store, seen, total))
            while sum(one.flights for one in sent) < total / 2 and not any(
                one.done() and one.exception() for one in running
            ):
                time.sleep(_AGAIN_S)
            killed_at, seen.before_kill = sum(one.flights for one in sent), seen.flights
            gone = time.monotonic()
            process.kill()
            process.wait()
        say.print(f"killed with SIGKILL when {killed_at:,} of {total:,} flights were acknowledged")
        with served(program, path, address.removeprefix("http://")):
            away_s = time.monotonic() - gone
            say.print(f"serving again after {away_s * 1e3:.0f} ms")
            for one in running:
                one.result()
    checked, _ = check.exactly_once(path, TOPIC, limit)
    return Figures(sent, seen, checked, killed_at, away_s, time.monotonic() - begun)


def show(figures: Figures, say: Console) -> None:
    """Print the table."""
    table = Table(title="Every flight exactly once, though the server was killed")
    for name in ("client", "flights", "requests", "repeated"):
        table.add_column(name, justify="left" if name == "client" else "right")
    for one in figures.sent:
        name = f"{one.origin}, by {one.by}"
        again = "" if one.repeated is None else f"{one.repeated:,}"
        table.add_row(name, f"{one.flights:,}", f"{one.requests:,}", again)
    table.add_row("a stream, to its follower", f"{figures.seen.flights:,}", "", "")
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
