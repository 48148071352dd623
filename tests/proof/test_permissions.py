"""Permissions: modes, the umask, and a reader of another user, which can stop no other process.

The other user is a child that drops its rights: these tests need root, else they are skipped.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from children import Child, child

import falaj
from falaj.errors import PermissionDenied
from proof.forks import forked
from proof.generate import write_through

NOBODY = 65534
SEGMENT_BYTES = 1 << 16
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def use(path: Path, mode: int | None = None) -> None:
    """Do everything that creates files."""
    with falaj.open(path, permissions=mode) as store:
        topic = store.topic("t", segment_bytes=SEGMENT_BYTES)
        for _ in range(9):
            topic.append(bytes(15_000))
        store.topic("gone").append(b"x")
        store.delete_topic("gone")
        for index in path.glob("logs/*/*00.idx"):
            index.unlink()
        assert len(list(topic)) == len(topic)
        if not path.with_name("copy").exists():
            store.backup(path.with_name("copy"))
    falaj.repair(path, dry_run=False)


def modes(path: Path) -> dict[str, set[int]]:
    """The permission bits of directories, lock files and other files."""
    found: dict[str, set[int]] = {"directories": set(), "locks": set(), "files": set()}
    for at in [path, *path.rglob("*")]:
        told = at.lstat().st_mode
        is_lock = at.name in ("claim", "presence", "lock", "lock.append", "lock.sync")
        kind = (
            "directories"
            if stat.S_ISDIR(told)
            else "locks"
            if is_lock or at.parent.name == "slots"
            else "files"
        )
        found[kind].add(stat.S_IMODE(told))
    return found


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o027, 0o077])
@pytest.mark.parametrize("through", [False, True], ids=["mapped", "pwrite"])
def test_a_store_is_its_owners_alone_whatever_the_umask(
    path: Path, mask: int, through: bool
) -> None:
    with umask(mask):
        if through:
            write_through(path)
        use(path)
        use(path)
    expected = {"directories": {0o700}, "locks": {0o600}, "files": {0o600}}
    assert modes(path) == expected
    assert modes(path.with_name("copy")) == expected


@pytest.mark.parametrize("mask", [0o177, 0o277, 0o477, 0o777])
@pytest.mark.parametrize("through", [False, True], ids=["mapped", "pwrite"])
def test_no_umask_takes_from_the_owner_what_a_store_cannot_do_without(
    place: Path, mask: int, through: bool
) -> None:
    """The default gives others nothing, and its owner needs all of it."""
    path = place / "theirs" / "store"
    path.parent.mkdir()
    if os.geteuid() == 0:
        os.chown(path.parent, NOBODY, NOBODY)

    def use_it() -> dict[str, set[int]]:
        if os.geteuid() == 0:
            become_nobody()  # root may do everything whatever the modes say
        with umask(mask):
            if through:
                write_through(path)
            use(path)
            use(path)
        return modes(path)

    assert forked(use_it) == {"directories": {0o700}, "locks": {0o600}, "files": {0o600}}


@pytest.mark.parametrize(
    ("asked", "mask", "directories", "files", "locks"),
    [
        (0o750, 0o022, 0o750, 0o640, 0o600),
        (0o770, 0o007, 0o770, 0o660, 0o660),
        (0o755, 0o000, 0o755, 0o644, 0o600),
        (0o777, 0o000, 0o777, 0o666, 0o666),
    ],
)
def test_a_store_has_the_mode_that_was_asked_for_in_all_its_parts(
    path: Path, asked: int, mask: int, directories: int, files: int, locks: int
) -> None:
    with umask(mask):
        use(path, asked)
    with umask(0o077):  # what others add later has the store's mode, not theirs
        use(path)
    assert modes(path) == {"directories": {directories}, "locks": {locks}, "files": {files}}


def test_what_is_asked_for_by_name_is_given_whatever_the_umask(path: Path) -> None:
    with umask(0o077):
        use(path, 0o755)
    assert modes(path) == {"directories": {0o755}, "locks": {0o600}, "files": {0o644}}


def become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def read_as_nobody(path: Path, read: Any) -> list[bytes]:
    become_nobody()
    with falaj.open(path, read_only=True, io=read) as store:
        topic = store.topic("t")
        values = [record.to_bytes() for record in topic.follow(timeout=0)]
        assert values == [record.to_bytes() for record in topic]
        assert store.verify()["sound"]
        for call in (lambda: topic.append(b"x"), lambda: store.delete_topic("t"), topic.flush):
            with pytest.raises(PermissionError):
                call()
    return values


def told(path: Path) -> tuple[int, ...]:
    """Everything about a file except when it was read."""
    found = path.lstat()
    return found.st_mode, found.st_uid, found.st_ino, found.st_size, found.st_mtime_ns


@needs_root
@pytest.mark.parametrize("read", ["mmap", "pread"])
def test_a_user_who_may_not_write_reads_all_of_it(place: Path, read: str) -> None:
    path = place / "store"
    with umask(0):
        use(path, 0o755)
    before = {p: told(p) for p in path.rglob("*")}
    assert forked(lambda: read_as_nobody(path, read)) == [bytes(15_000)] * 9
    assert {p: told(p) for p in path.rglob("*")} == before


@needs_root
def test_a_user_who_may_not_even_read_gets_that_error(place: Path) -> None:
    path = place / "store"
    use(path)

    def try_it() -> list[str]:
        become_nobody()
        told = []
        for mode in ("r", "w"):
            with pytest.raises(PermissionDenied) as raised:
                falaj.open(path, read_only=mode == "r")
            told.append(raised.value.filename)
        return told

    assert all(os.fspath(path) in told for told in forked(try_it))


GREEDY = f"""
import fcntl
os.setgroups([])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
store = falaj.open(path, read_only=True)
topic = store.topic("t")
held, locked = [], 0
for at, directories, files in os.walk(path):
    for name in [".", *files]:
        try:
            held.append(os.open(os.path.join(at, name), os.O_RDONLY))
        except PermissionError:
            continue
        for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            try:
                fcntl.flock(held[-1], kind | fcntl.LOCK_NB)
                locked += 1
                break
            except BlockingIOError:
                pass
follower = topic.follow("latest")
say(locked)
n = 0
for record in follower:
    n += 1
    if record.to_bytes() == b"end":
        break
say(n)
hear()
"""


@contextmanager
def greedy(path: Path) -> Iterator[Child]:
    """A reader of another user that locks every file that it can open, and keeps the locks."""
    with child(path, GREEDY) as started:
        assert int(started.hear()) > 5
        yield started


@needs_root
@pytest.mark.parametrize("through", [False, True], ids=["mapped", "pwrite"])
def test_a_reader_of_another_user_who_locks_all_it_can_blocks_no_writer(
    place: Path, through: bool
) -> None:
    path = place / "store"
    with umask(0):
        if through:
            write_through(path, 0o755)
        use(path, 0o755)
    with greedy(path) as reader:
        for _ in range(2):
            with falaj.open(path, lock_timeout=1) as store:  # alone again: it recovers
                topic = store.topic("t")
                assert [topic.append(bytes(15_000)) for _ in range(9)]
                topic.append(b"durable", sync="durable")
                store.topic("new").append(b"x")
                store.delete_topic("new")
                if through:
                    assert (path / next(iter(path.glob("logs/t@*"))) / "lock.append").exists()
        assert falaj.repair(path, dry_run=False, lock_timeout=1)["complete"]
        with falaj.open(path, lock_timeout=1) as store:
            store.topic("t").append(b"end")
        assert int(reader.hear()) == 21
        reader.tell()
        assert reader.end()[0] == 0


@needs_root
def test_lock_files_that_readers_could_open_would_be_found_by_these_tests(place: Path) -> None:
    """The claim above is not empty: with another mode the same reader stops a writer."""
    path = place / "store"
    with umask(0):
        use(path, 0o755)
    (path / "claim").chmod(0o644)
    with greedy(path), pytest.raises(falaj.errors.LockTimeout):
        falaj.open(path, lock_timeout=0.2)
    with (path / "claim").open() as claim:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
