"""The program that reads a harmed store, as a process of its own, which may crash or hang.

Owns the questions. A line of JSON asks about one store; a line answers with all results by
question, and the errors. Nothing is judged here except what needs the bytes. Values are reported by
their hash. An exception that is not falaj's is reported as `strange`. Memory is limited, and its
peak is reported.
"""

import hashlib
import json
import re
import resource
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import falaj

NEW = b"something new"
MEMORY = 1 << 30
"""Address space beyond what was in use at the start."""
FILE_MAX = 64 << 20
"""Bytes of a file: a forged length may ask for gigabytes of disk, and some is refused."""
LANES = 4
"""Partitions of a topic that are asked about: their number may be forged."""


class Asking:
    """Asks one store, and keeps the answers."""

    def __init__(self, path: str, read: Any) -> None:
        self.path, self.how = path, read
        self.told: dict[str, Any] = {}
        self.errors: list[tuple[str, str, str]] = []
        self.strange: list[str] = []

    def ask(self, name: str, question: Callable[..., Any], *given: Any) -> None:
        try:
            self.told[name] = question(*given)
        except falaj.Error as error:
            self._error(name, type(error).__name__, error)
        except Exception:  # noqa: BLE001  # an exception of any other kind is a finding
            self.strange.append(f"{name}: {traceback.format_exc()}")

    def _error(self, name: str, kind: str, error: falaj.Error) -> None:
        self.errors.append((name, kind, f"{error} [errno {getattr(error, 'errno', None)}]"))

    def damage(self, name: str, said: str | None) -> bool:
        """Count an error that is reported in an answer as an error."""
        if said is not None:
            self.errors.append((name, "CorruptData", said))
        return said is not None

    def records(self, name: str, store: falaj.Store) -> None:
        """Ask everything about a topic's records."""
        topic = store.any_topic(name)
        for number in topic.partitions[:LANES]:
            lane, of = topic.partition(number), f"{name} {number}"
            self.ask(f"{of} len", len, lane)
            self._read(of, lane)
            for i in (0, 7, 19, -1):
                self.ask(f"{of} [{i}]", item, lane, i)
            self.ask(f"{of} slice", part, lane)
            for time in (0, 4_000_000_000):
                self.ask(f"{of} at {time}", at, lane, time)

    def _read(self, of: str, lane: Any) -> None:
        # Records that were read before an error count too.
        seen = self.told[f"{of} seen"] = []

        def read() -> int:
            seen.extend(shown(record) for record in lane)
            return len(seen)

        self.ask(f"{of} read", read)

    def beside(self, store: falaj.Store) -> None:
        """Ask about the parts beside the records."""
        info = store.info()
        for one in info["groups"]:
            if not self.damage(one["name"], one["error"]):
                self.told[f"consumer {one['name']}"] = [
                    one["cursor_in"],
                    [[c["topic"], c["partition"], c["committed"]] for c in one["partitions"]],
                ]
        for queue in info["queues"]:
            if not self.damage(queue["name"], queue["error"]):
                self.told[f"queue {queue['name']}"] = [queue["topic"], queue["floor"]]
        # If a file is corrupt, it does not name the topic; the question above did.
        self.told["queues"] = sorted(store.queues)

    def reading(self) -> None:
        def everything() -> None:
            with falaj.open(self.path, read_only=True, io=self.how) as store:
                self.told["topics"] = list(store.topics)
                for name in ("orders", "shop"):
                    self.ask(name, self.records, name, store)
                self.ask("beside", self.beside, store)

        self.ask("store", everything)
        self.ask("verify", self._verify)

    def _verify(self) -> dict[str, Any]:
        found = falaj.verify(self.path)
        findings = found["findings"] + [one for log in found["logs"] for one in log["findings"]]
        outside = [one["path"] for one in findings if not one["path"].startswith(self.path)]
        return {"sound": found["sound"], "worst": found["worst"], "outside": outside}

    def writing(self) -> None:
        """Append, resume what was begun, and read it again."""
        appended = self.told["appended"] = dict[str, int]()

        def everything() -> None:
            with falaj.open(self.path, io=self.how, lock_timeout=2.0) as store:
                for name in ("orders", "shop"):
                    self.ask(f"{name} new", append, store, name, appended)
                    self.ask(name, self.records, name, store)
                self.ask("reader", self._consume, store, "reader", "shop", None)
                self.ask("kept", self._consume, store, "kept", "orders", "shop")
                self.ask("work", self._work, store)

        self.ask("store", everything)
        self.ask("later", self._later, appended)

    def _consume(self, store: falaj.Store, name: str, topic: str, home: str | None) -> None:
        # A group that starts over at the end would skip records that it has not read.
        with store.consumer(name, [topic], start="latest", cursor_in=home) as member:
            for of, number in member.partitions[:LANES]:
                self.told[f"{name} begins {of} {number}"] = member.committed(of, number)
            taken = self.told[f"{name} polled"] = []
            while records := member.poll(1000, timeout=0):
                taken += [[r.topic, r.partition, *shown(r)] for r in records]
            member.commit(sync="durable")
            for of, number in member.partitions[:LANES]:
                self.told[f"{name} ends {of} {number}"] = member.committed(of, number)

    def _work(self, store: falaj.Store) -> None:
        with store.queue("work", "orders") as queue:
            taken = self.told["work taken"] = []
            while jobs := queue.take(1000, timeout=0):
                taken += [shown(job.record) for job in jobs]
                jobs.ack()
            self.told["work done"] = True

    def _later(self, appended: dict[str, int]) -> None:
        with falaj.open(self.path, read_only=True) as store:
            for name, offset in appended.items():
                lane = store.any_topic(name).partition(0)
                self.ask(f"{name} found", is_new, lane, offset)
            for one in store.info()["groups"]:
                for c in one["partitions"]:
                    where = f"{c['topic']} {c['partition']}"
                    self.told[f"{one['name']} found {where}"] = c["committed"]


def shown(record: Any) -> list[Any]:
    """A record's offset, and a hash of the rest, without the hash for a new record."""
    parts = [None if part is None else bytes(part) for part in (record.raw, record.key)]
    headers = [(name, value and bytes(value)) for name, value in record.headers]
    if parts == [NEW, None]:
        return [record.offset, "new"]
    whole = repr([*parts, record.timestamp_ns, headers])
    return [record.offset, hashlib.sha256(whole.encode()).hexdigest()[:12]]


def at(lane: Any, time: float) -> int | None:
    found = lane.at(datetime.fromtimestamp(time, UTC))
    return None if found is None else found.offset


def item(lane: Any, index: int) -> list[Any]:
    return shown(lane[index])


def part(lane: Any) -> list[list[Any]]:
    return [shown(record) for record in lane[3:9]]


def append(store: falaj.Store, name: str, appended: dict[str, int]) -> list[Any]:
    lane: Any = store.any_topic(name).partition(0)
    try:
        appended[name] = lane.append(NEW, sync="durable")
    except falaj.errors.DurabilityUnknown as error:
        # It is there all the same.
        appended[name] = error.offset or 0
        raise
    return shown(lane[appended[name]])


def is_new(lane: Any, offset: int) -> bool:
    return bool(lane[offset].raw == NEW)


def mend(path: str) -> bool:
    return falaj.repair(path, dry_run=False, lock_timeout=2.0)["complete"]


def most_memory() -> int:
    """Read how much memory this process has used at most, in bytes.

    Only of this program: `getrusage` starts with the parent's memory at the fork.
    """
    status = Path("/proc/self/status").read_text()
    [kilobytes] = re.findall(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) << 10


def answers(path: str, read: str, write: str | None, repair: bool) -> dict[str, Any]:
    """Ask a store for reading, and a copy of it for writing."""
    told = Asking(path, read)
    told.reading()
    found = {"read": vars(told)}
    if write is not None:
        told = Asking(write, read)
        if repair:
            told.ask("repair", mend, write)
        told.writing()
        found["write"] = vars(told)
    peak = most_memory()
    return {**found, "peak": peak}


def main() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_MAX, FILE_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answers(**json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
