"""Concurrent clients over HTTP and native processes on one topic, which are killed and cut off.

All their answers are held against the log in the end (`history`).
"""

import contextlib
import random
import subprocess
import sys
import time
from pathlib import Path

import falaj
from server.crowd import Crowd, Unknown
from server.doors import Server
from server.history import NEVER, Append, Look, Reading, check
from server.lossy import Lossy

SEED = 20261127
CLIENTS = ("plain", "once", "once", "expect", "expect")
SERVERS, WRITERS = 5, 6
"""Lives of the server, and of native writers: each but the last ends by a kill."""
RECORDS_OF_A_LIFE = 60
RECORDS = "/v1/topics/shared/records"


class Appenders(Crowd):
    """All clients of a test, and their answers."""

    def __init__(self, store: Path, door: Lossy) -> None:
        super().__init__(store, door)
        self.appends: list[Append] = []
        self.looks: list[Look] = []
        self.readings: list[Reading] = []
        self.counts = dict.fromkeys(("refused", "repeated", "unknown"), 0)

    def post(self, value: bytes, **headers: str) -> tuple[int, dict[str, object]]:
        """Append a value once; note and return the answer."""
        asked = time.monotonic()
        try:
            status, answer = self.request("POST", RECORDS, value, **headers)
        except Unknown:
            self.counts["unknown"] += 1
            self.appends.append(Append(value, asked))
            raise
        now = time.monotonic()
        if status == 201:
            self.appends.append(Append(value, asked, now, _number(answer["first"])))
        elif status in {412, 503}:
            self.counts["refused"] += 1
            self.appends.append(Append(value, asked, is_refused=True))
            if status == 412:
                self.looks.append(Look(_number(answer["next"]), asked, now))
        else:
            raise AssertionError(f"{status} {answer}")
        return status, answer

    def plain(self, who: str) -> None:
        """Append, and never repeat: what got no answer may be there."""
        number = 0
        while not self.ended.is_set():
            with contextlib.suppress(Unknown):
                self.post(f"{who}-{number}".encode())
            number += 1

    def expect(self, who: str) -> None:
        """Append only where the log ends, as far as this client knows."""
        number = 0
        while not self.ended.is_set():
            with contextlib.suppress(Unknown):
                asked = time.monotonic()
                status, told = self.request("GET", "/v1/topics/shared")
                if status != 200:
                    continue
                end = _number(told["partitions"][0]["end_offset"])
                self.looks.append(Look(end, asked, time.monotonic()))
                number += 1
                self.post(f"{who}-{number}".encode(), If_Next=str(end))

    def once(self, who: str) -> None:
        """Append as a producer, and repeat each request until it is answered."""
        sequence = 0
        while not self.ended.is_set():
            value, asked = f"{who}-{sequence}".encode(), time.monotonic()
            for attempt in range(10_000):
                named = {"Falaj_Producer": who, "Falaj_Sequence": str(sequence)}
                try:
                    status, told = self.request("POST", RECORDS, value, **named)
                except Unknown:
                    if self.ended.is_set():
                        self.appends.append(Append(value, asked))
                        return
                    continue
                if status == 503:
                    continue
                assert status == 201, told
                self.counts["repeated"] += attempt > 0
                offset = _number(told["first"])
                self.appends.append(Append(value, asked, time.monotonic(), offset))
                break
            sequence += 1

    def read(self) -> None:
        """Follow over HTTP from the beginning, through all failures."""
        values: list[bytes] = []
        while not self.ended.is_set():
            with contextlib.suppress(Unknown):
                path = f"{RECORDS}?from={len(values)}&limit=50&wait=200ms"
                status, told = self.request("GET", path)
                if status == 200:
                    for record in told["records"]:
                        assert _number(record["offset"]) == len(values)
                        values.append(record["value"].encode())
        self.readings.append(Reading(0, values))

    def read_natively(self) -> None:
        with falaj.open(self.store, read_only=True) as store:
            topic = store.topic("shared")
            values: list[bytes] = []
            while not self.ended.is_set():
                with topic.follow(start=len(values), timeout=0.1) as follower:
                    values += [bytes(record.value) for record in follower]
            self.readings.append(Reading(0, values))

    def write_natively(self, draws: random.Random) -> None:
        """Start native writers, one after the other, and kill each."""
        program = Path(__file__).with_name("native_writer.py")
        for life in range(WRITERS):
            command: list[str | Path] = [
                sys.executable,
                program,
                self.store,
                "shared",
                f"native{life}",
            ]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
                assert writer.stdout is not None
                lines = iter(writer.stdout.readline, b"")
                told = [next(lines).decode() for _ in range(draws.randrange(100, 300))]
                writer.kill()
                self._take_down([*told, *(line.decode() for line in lines)])

    def _take_down(self, lines: list[str]) -> None:
        asked, value = 0.0, b""
        for line in lines:
            word, *told, at = line.split()
            match word:
                case "look":
                    asked = float(at)
                case "ask":
                    asked, value = float(at), told[0].encode()
                case "ok":
                    self.appends.append(Append(value, asked, float(at), int(told[0])))
                    value = b""
                case "refused":
                    self.counts["refused"] += 1
                    self.appends.append(Append(value, asked, is_refused=True))
                    value = b""
            if word in {"end", "refused"}:
                self.looks.append(Look(int(told[0]), asked, float(at)))
        if value:
            self.appends.append(Append(value, asked))


def _number(told: object) -> int:
    return int(str(told))


def test_what_clients_are_told_holds_through_kills_and_lost_replies(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        store.topic("shared")
    draws = random.Random(SEED)
    with Lossy(SEED, share=0.1) as door:
        crowd = Appenders(path, door)
        for life in range(SERVERS):
            with Server(path) as server:
                crowd.token, door.behind = server.token, server.port
                if life == 0:
                    for number, kind in enumerate(CLIENTS):
                        crowd.start(getattr(crowd, kind), f"{kind}{number}")
                    crowd.start(crowd.read)
                    crowd.start(crowd.read_natively)
                    crowd.start(crowd.write_natively, draws)
                enough = len(crowd.appends) + RECORDS_OF_A_LIFE
                while len(crowd.appends) < enough and not crowd.failed:
                    crowd.ended.wait(0.01)
                if life + 1 == SERVERS:
                    crowd.join()
                else:
                    server.process.kill()
                door.behind = 0
    assert crowd.failed == []
    with falaj.open(path) as store:
        log = [bytes(record.value) for record in store.topic("shared")]
    assert check(log, crowd.appends, crowd.looks, crowd.readings) == []
    # All that this test is about has happened.
    assert all(crowd.counts.values()), crowd.counts
    assert all(door.lost.values()), door.lost
    assert all(len(reading.values) > SERVERS * RECORDS_OF_A_LIFE / 2 for reading in crowd.readings)


def a_history() -> tuple[list[bytes], list[Append], list[Look]]:
    log = [b"a", b"b", b"c"]
    appends = [Append(b"a", 0, 1, 0), Append(b"b", 0, 3, 1), Append(b"c", 2, NEVER)]
    return log, appends, [Look(0, 0, 0.5), Look(1, 2, 2.5), Look(3, 4, 5)]


def test_a_history_that_holds_is_found_sound() -> None:
    log, appends, looks = a_history()
    readings = [Reading(0, log), Reading(1, [b"b"]), Reading(0, [])]
    assert check(log, appends, looks, readings) == []


def test_each_kind_of_wrong_history_is_found() -> None:
    log, appends, looks = a_history()

    def wrong(
        log: list[bytes] = log,
        more: list[Append] = appends,
        looked: list[Look] = looks,
        *readings: Reading,
    ) -> str:
        (sentence,) = check(log, more, looked, readings)
        return sentence

    assert "is not there" in wrong([b"a"], appends, [])  # a lost record
    assert "2 times" in wrong([b"a", b"b", b"c", b"b"])
    assert "no client appended" in wrong([*log, b"d"])
    refused = [*appends[:2], Append(b"c", 2, is_refused=True)]
    assert "was refused" in wrong(log, refused)
    assert "got b'c'" in wrong(log, appends, looks, Reading(0, [b"a", b"c"]))
    assert "behind the end" in wrong(log, appends, looks, Reading(2, [b"c", b"d"]))
    # "b" was acknowledged before "a" was asked for, and comes after it.
    swapped = [Append(b"a", 2, 3, 0), Append(b"b", 0, 1, 1), appends[2]]
    assert "before what came first" in wrong(log, swapped, [])
    # An answer gave the end 1 after "b" was acknowledged there.
    assert "b'b' was acknowledged before" in wrong(log, appends, [Look(1, 3.5, 4)])
    # The end was 2 before "b" was asked for.
    late = [appends[0], Append(b"b", 4, 5, 1), appends[2]]
    assert "told of the end 2, after" in wrong(log, late, [Look(2, 1, 2)])
    assert "the log ends at 3" in wrong(log, appends, [Look(4, 5, 6)])
