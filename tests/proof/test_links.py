"""Symbolic links planted in a store: no call follows them out of it.

Every place that falaj may read is replaced by a link to something outside. The target is a forged
copy of the original, a file or directory of another owner, or nothing. Then every operation is
tried on the store. Outside nothing may be created, changed or removed. Every answer must be the
store's: a link is refused, or counts as missing.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import falaj
from proof.generate import FLAGS, LATCHED, store_word

SEGMENT_BYTES = 1 << 16
TRUE, FALSE = bytes(15_000), b"\x01" * 15_000
RECORDS = 9
LOG, FIRST, MIDDLE, LAST, NEXT = "logs/LOG", *(f"{n:020}" for n in range(4))
KEYED = "logs/KEYED"
"""The log of a compacted topic."""
SPOTS = [
    *("falaj.json", "falaj.json.tmp", "claim", "presence", "wake", "wake.tmp"),
    *("settled", "slots", "slots/0", "slots/1", "topics", "topics/t", "logs"),
    *("consumers", "consumers/c", "consumers/c@tmp", "queues", "queues/q", "queues/q~"),
    *(f"topics/t/topic.json{suffix}" for suffix in ("", ".tmp", ".deleted")),
    *(f"topics/new{suffix}" for suffix in ("", "/topic.json", "/topic.json.tmp")),
    *(LOG, f"{LOG}.tmp", "logs/old@" + "0" * 32, "logs/old@" + "0" * 32 + ".tmp"),
    *(f"{LOG}/{name}.log" for name in (FIRST, MIDDLE, LAST, NEXT)),
    *(f"{LOG}/{name}.idx" for name in (FIRST, LAST, NEXT)),
    *(f"{LOG}/{name}" for name in ("control", "control.tmp", "lock", "lock.append", "lock.sync")),
    *(f"{LOG}/{name}.tmp" for name in ("next.0", "next.0.idx", "supersede", f"{LAST}.idx")),
    *(f"{LOG}/quarantine", f"{LOG}/quarantine/{NEXT}.log", f"{LOG}/reindex.0.tmp"),
    *(f"{LOG}/staging", f"{LOG}/staging/done@0", f"{LOG}/staging/begun@0"),
    *(KEYED, f"{KEYED}/{FIRST}.log", f"{KEYED}/lock.compact", f"{KEYED}/compact.tmp"),
]
KINDS = ["forged", "own", "nothing"]
OWN = (
    *(f"{FIRST}.log", f"{NEXT}.log", "control", "next.0.tmp", "diary"),
    *("c", "c@tmp", "c@gone", "q", "q~", f"part.{7:016x}.part", f"part.{7:016x}.tmp"),
)
"""Files of another owner, named like those that falaj creates and removes."""
MANIFEST = "manifest"
"""Staged part of the load `done`, kept beside the stores."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and one with the same names but other records."""
    folder = tmp_path_factory.mktemp("links")
    with falaj.open(folder / "true") as store, store.topic("t", segment_bytes=SEGMENT_BYTES) as t:
        t.append(TRUE)
        store.topic("u", segment_bytes=SEGMENT_BYTES, compacted=True).append(TRUE, key=b"k")
        part = t.stage("done", "part")
        part.append(TRUE)
        (folder / MANIFEST).write_bytes(part.finish())
    shutil.copytree(folder / "true", folder / "forged")
    for name, value in {"true": TRUE, "forged": FALSE}.items():
        with falaj.open(folder / name) as store, store.topic("t") as topic:
            for _ in range(RECORDS - 1):
                topic.append(value)
                store.topic("u").append(value, key=b"k")
            assert len(store.info()["logs"][0]["segments"]) == 3
            with store.consumer("c", "t") as consumer:
                consumer.poll(3, timeout=0)
                consumer.commit()
            with store.queue("q", topic="t") as queue:
                queue.ack(queue.take(3, timeout=0))
    assert (next(logs_of(folder / "true", "t")) / "staging/done@0").is_dir()
    return folder


def logs_of(store: Path, topic: str) -> Iterator[Path]:
    """Find the directory of a topic's log, or the link in its place; there may be none."""
    return (store / "logs").glob(f"{topic}@" + "[0-9a-f]" * 32)


class Planted:
    """A copy of the store with a link in it, beside files that must not change."""

    def __init__(self, stores: Path, folder: Path, spot: str, kind: str) -> None:
        self.path, self.outside = folder / "store", folder / "outside"
        shutil.copytree(stores / "true", self.path)
        shutil.copy(stores / MANIFEST, folder)
        self.outside.mkdir()
        (log,), (keyed,) = (logs_of(self.path, topic) for topic in "tu")
        spot = spot.replace("LOG", log.name).replace("KEYED", keyed.name)
        self.link, self.target = self.path / spot, self.outside / "it"
        self.link.parent.mkdir(exist_ok=True)
        self._make(kind, stores / "forged" / spot)
        if self.link.is_dir():
            shutil.rmtree(self.link)
        else:
            self.link.unlink(missing_ok=True)
        self.link.symlink_to(self.target)
        self.before = content(self.outside)

    def _make(self, kind: str, forged: Path) -> None:
        directory = self.link.is_dir() or "." not in self.link.name.replace(".tmp", "")
        directory &= self.link.parent.name not in ("slots", "consumers", "queues")
        directory &= self.link.name not in (
            "claim",
            "presence",
            "wake",
            "settled",
            "control",
            "lock",
        )
        if kind == "forged" and forged.is_dir():
            shutil.copytree(forged, self.target)
        elif kind == "forged" and forged.exists():
            shutil.copyfile(forged, self.target)
        elif kind != "nothing" and directory:
            self.target.mkdir()
            for name in OWN:
                (self.target / name).write_bytes(b"my own")
        elif kind != "nothing":
            self.target.write_bytes(b"my own")

    def nothing_happened_outside(self) -> None:
        assert content(self.outside) == self.before


def content(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    """List everything in a directory with its state, to see that nothing changed."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        stat = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        told = stat.st_mode, stat.st_nlink, stat.st_mtime_ns, hashlib.sha256(data).hexdigest()
        found[os.fspath(path.relative_to(folder))] = told
    return found


def read(path: Path) -> None:
    with falaj.open(path, read_only=True) as store:
        expect(store)


def read_without_maps(path: Path) -> None:
    with falaj.open(path, read_only=True, io="pread") as store:
        expect(store)


def expect(store: falaj.Store, end: int | None = None) -> None:
    values = [record.to_bytes() for record in store.topic("t")]
    assert set(values) <= {TRUE}
    assert len(values) == (end or RECORDS)


def append(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store:
        topic = store.topic("t")
        for _ in range(RECORDS):
            topic.append(TRUE)
        topic.flush()
        expect(store, topic.end_offset)


def create(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store:
        assert store.topic("new", segment_bytes=SEGMENT_BYTES).append(b"x") == 0


def recover(path: Path) -> None:
    """Resume after a failed sync and a torn tail, which moves files and makes new ones."""
    for log in logs_of(path, "t"):
        control, last, after = log / "control", log / f"{LAST}.log", log / f"{NEXT}.log"
        if log.is_symlink() or log.parent.is_symlink():
            continue
        if control.is_file() and not control.is_symlink():
            with control.open("r+b") as page:
                store_word(page, FLAGS, LATCHED)
        if last.is_file() and not last.is_symlink() and not os.path.lexists(after):
            shutil.copyfile(last, after)
    append(path)


def back_up(path: Path) -> None:
    copy = path.with_name("copy")
    with falaj.open(path, read_only=True) as store:
        store.backup(copy)
    assert not any(found.is_symlink() for found in copy.rglob("*"))
    assert not any(b"my own" in f.read_bytes() for f in copy.rglob("*") if f.is_file())
    read(copy)


def verify(path: Path) -> None:
    falaj.verify(path)


def repair(path: Path) -> None:
    falaj.repair(path)
    falaj.repair(path, dry_run=False, lock_timeout=1)


def consume(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store, store.consumer("c", "t") as consumer:
        assert {record.to_bytes() for record in consumer.poll(3, timeout=0)} == {TRUE}
        consumer.commit()


def reset(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store:
        store.seek_group("c", "t", "earliest")


def forget_consumer(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store:
        store.delete_group("c")


def look_beside(path: Path) -> None:
    """List groups and queues, as a reader without write permission does."""
    with falaj.open(path, read_only=True) as store:
        list(store.queues)
        store.metrics()
        store.info()


def work(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store, store.queue("q", topic="t") as queue:
        jobs = queue.take(3, timeout=0)
        assert {bytes(job.value) for job in jobs} == {TRUE}
        queue.ack(jobs)


def forget_queue(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store:
        store.delete_queue("q")


def stage(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store:
        part = store.topic("t").stage("begun", "part")
        part.append(TRUE)
        part.finish()


def commit_bulk_load(path: Path) -> None:
    manifest = path.with_name(MANIFEST)
    with falaj.open(path, lock_timeout=1) as store:
        topic = store.topic("t")
        topic.commit_bulk_load("done", [manifest.read_bytes()])
    (log,) = logs_of(path, "t")
    assert not (log / "staging").is_symlink(), "a load was read through a link"
    assert not (log / "staging/done@0").is_symlink()


def abort_jobs(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store:
        for job in ("begun", "done"):
            store.topic("t").abort_bulk_load(job)


def sweep_bulk_loads(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store:
        store.topic("t").sweep_bulk_loads(older_than=0)


def maintain(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store:
        store.topic("t").configure(retention_bytes=SEGMENT_BYTES)
        store.maintain()


def compact(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store:
        topic = store.topic("u")
        topic.compact(seal=True)
        assert [record.to_bytes() for record in topic] == [TRUE]


def delete(path: Path) -> None:
    with falaj.open(path, lock_timeout=1) as store:
        store.delete_topic("t")


def sweep(path: Path) -> None:
    """Open it as the only process, which removes unfinished leftovers."""
    falaj.open(path, lock_timeout=1).close()


MOVES: list[Callable[[Path], None]] = [
    *(read, read_without_maps, look_beside, verify, back_up, sweep, recover, append, create),
    *(consume, reset, work, stage, commit_bulk_load, sweep_bulk_loads, abort_jobs, compact, repair),
    *(forget_consumer, forget_queue, maintain, delete),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spot", SPOTS)
def test_a_link_in_a_store_is_not_followed_out_of_it(
    stores: Path, place: Path, spot: str, kind: str, budget: Callable[[int, int], int]
) -> None:
    # In a small budget all moves run on one copy; otherwise each move has its own.
    parts = [MOVES] if budget(1, len(MOVES)) == 1 else [[move] for move in MOVES]
    for n, moves in enumerate(parts):
        folder = place / str(n)
        folder.mkdir()
        planted = Planted(stores, folder, spot, kind)
        for move in moves:
            with suppress(falaj.Error):
                move(planted.path)
            planted.nothing_happened_outside()
        shutil.rmtree(folder)


@pytest.mark.parametrize("spot", [LOG, "logs", "topics"])
def test_verification_does_not_call_a_store_sound_whose_directories_are_links(
    stores: Path, place: Path, spot: str
) -> None:
    planted = Planted(stores, place, spot, "forged")
    with suppress(falaj.errors.SystemCallFailed):
        assert not falaj.verify(planted.path)["sound"]


def test_a_store_that_is_reached_through_a_link_is_the_store(stores: Path, place: Path) -> None:
    shutil.copytree(stores / "true", place / "store")
    (place / "link").symlink_to("store")
    shutil.copy(stores / MANIFEST, place)
    # Without a link inside, all of the operations above work.
    for move in MOVES:
        move(place / "link")
    (place / "empty").mkdir()
    (place / "to-empty").symlink_to("empty")
    create(place / "to-empty")
    assert (place / "empty/falaj.json").exists()


@pytest.fixture
def strange(stores: Path, path: Path) -> Path:
    shutil.copytree(stores / "true", path)
    shutil.copy(stores / MANIFEST, path.with_name(MANIFEST))
    return path


@pytest.mark.parametrize(
    "spot", ["falaj.json", "claim", "slots/0", f"{LOG}/{LAST}.log", f"{LOG}/control"]
)
def test_a_pipe_in_the_place_of_a_file_blocks_no_call(strange: Path, spot: str) -> None:
    (log,) = logs_of(strange, "t")
    path = strange / spot.replace("LOG", log.name)
    path.unlink()
    os.mkfifo(path)
    for move in MOVES:
        with suppress(falaj.Error):
            move(strange)
        if not path.exists():
            break
