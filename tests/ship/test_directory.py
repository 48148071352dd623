"""A place in a directory: killed at any point, on a disk that fails or is gone, with odd files."""

import errno
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from falaj.errors import (
    PlaceDenied,
    PlaceFull,
    PlaceNotFound,
    PlaceUnreachable,
    UnsupportedPlace,
)
from falaj.ship.directory import NEW, DirectoryPlace

# Creates objects whose keys are the hashes of their bodies. It is killed before its CALLth call
# of the functions that change files, or by the test.
WRITER = """
import hashlib, itertools, os, random, signal, sys
from falaj.ship.directory import DirectoryPlace

place = DirectoryPlace(sys.argv[1])
chance = random.Random(sys.argv[2])
left = itertools.count(int(sys.argv[3]), -1)

def killing(call):
    def counted(*args, **named):
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **named)
    return counted

for name in ("mkdir", "open", "write", "fsync", "link", "unlink"):
    setattr(os, name, killing(getattr(os, name)))
print("ready", flush=True)
for number in itertools.count() if len(sys.argv) < 5 else range(int(sys.argv[4])):
    body = chance.randbytes(chance.randint(0, 300_000))
    key = f"{number % 3}/x/{number}-{hashlib.sha256(body).hexdigest()}"
    assert place.put_new(key, body)
    print(key, flush=True)
"""
POINTS = 45
"""More than the calls of the first three creates."""


def start(root: Path, seed: int, calls: int, creates: int | None = None) -> subprocess.Popen[str]:
    """Start a writer, and wait until it begins."""
    options = [str(seed), str(calls), *([] if creates is None else [str(creates)])]
    command = [sys.executable, "-c", WRITER, os.fspath(root), *options]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    return writer


def judge(root: Path, created: list[str]) -> None:
    """Check that all objects are whole, those that were acknowledged too, and nothing is left."""
    place = DirectoryPlace(os.fspath(root))
    place.put_new("last", b"")
    found = [one.key for one in place.list_after("") if one.key != "last"]
    assert set(created) <= set(found)
    for key in found:
        body = place.get(key)
        assert body is not None
        assert key.endswith(hashlib.sha256(body).hexdigest())
    assert os.listdir(root / NEW) == []


@pytest.mark.parametrize("point", range(POINTS))
def test_killed_before_any_call_an_object_is_whole_or_absent(tmp_path: Path, point: int) -> None:
    with start(tmp_path / "place", point, point, 3) as writer:
        said, _ = writer.communicate()
    assert writer.returncode in (-signal.SIGKILL, 0)
    judge(tmp_path / "place", said.splitlines())


def test_the_points_reach_behind_the_last_call_of_a_create(tmp_path: Path) -> None:
    with start(tmp_path / "place", 1, POINTS, 3) as writer:
        said, _ = writer.communicate()
    assert len(said.splitlines()) >= 2


def test_killed_at_random_with_others_running_each_object_is_whole(
    tmp_path: Path, first_seed: int, budget: Callable[[int, int], int]
) -> None:
    root, kills = tmp_path / "place", budget(12, 200)
    chance = Random(first_seed)
    created = list[str]()
    with start(root, first_seed, -1) as other:
        for kill in range(kills):
            with start(root, first_seed + 1 + kill, -1) as writer:
                time.sleep(chance.random() * 0.05)  # sleep: the moment of the kill is the chance
                writer.kill()
                said, _ = writer.communicate()
                created += [line for line in said.splitlines() if len(line) > 64]
        other.kill()
        said, _ = other.communicate()
        created += said.splitlines()[:-1]
    assert created
    judge(root, created)


def test_a_file_that_a_live_process_writes_is_not_swept(tmp_path: Path) -> None:
    place = DirectoryPlace(os.fspath(tmp_path))
    place.put_new("a", b"x")
    for name in ("alive", "dead"):
        (tmp_path / NEW / name).write_bytes(b"half")
    with (tmp_path / NEW / "alive").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        DirectoryPlace(os.fspath(tmp_path)).put_new("b", b"y")
        assert os.listdir(tmp_path / NEW) == ["alive"]


def test_a_create_whose_file_was_swept_is_unknown_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = DirectoryPlace(os.fspath(tmp_path))
    place.put_new("a", b"x")
    synced = os.fsync

    def swept(file: int) -> None:
        for name in os.listdir(tmp_path / NEW):
            (tmp_path / NEW / name).unlink()
        synced(file)

    monkeypatch.setattr(os, "fsync", swept)
    assert not place.put_new("b", b"y")
    assert place.get("b") is None


def test_what_is_created_is_synced_before_it_has_a_name_and_its_folders_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[str]()
    real_sync, real_link = os.fsync, os.link

    def sync(file: int) -> None:
        steps.append(f"sync {os.readlink(f'/proc/self/fd/{file}')}")
        real_sync(file)

    def link(*args: str, **named: int) -> None:
        steps.append("link")
        real_link(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "link", link)
    root = tmp_path / "place"
    place = DirectoryPlace(os.fspath(root))
    place.put_new("a/b/c", b"x")
    bare = [f"sync {path}" for path in (root, tmp_path, root, root / "a")]
    assert steps[:4] == bare
    assert steps[4].startswith(f"sync {root / NEW}/")
    assert steps[5:] == ["link", f"sync {root / 'a' / 'b'}"]
    steps.clear()
    assert not place.put_new("a/b/c", b"y")
    assert steps[1:] == ["link", f"sync {root / 'a' / 'b'}"]
    steps.clear()
    DirectoryPlace(os.fspath(root)).put_new("a/b/d", b"y")
    assert steps[:2] == bare[2:], "another process may have been killed before it synced these"


# --- Odd files ------------------------------------------------------------------------------------


def test_no_symbolic_link_leads_out_of_the_place(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "place"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    place = DirectoryPlace(os.fspath(root))
    place.put_new("n/1", b"x")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    for call in (
        lambda: place.get("folder/secret"),
        lambda: place.get("file"),
        lambda: place.get_range("folder/secret", 0, 1),
        lambda: place.put_new("folder/new", b"x"),
        lambda: place.delete(["folder/secret"]),
    ):
        with pytest.raises(UnsupportedPlace, match="symbolic link"):
            call()
    assert not place.put_new("file", b"x")
    assert [one.key for one in place.list_after("")] == ["n/1"]
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_the_root_itself_may_be_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "place").symlink_to(tmp_path / "disk")
    place = DirectoryPlace(os.fspath(tmp_path / "place"))
    assert place.put_new("a", b"x")
    assert (tmp_path / "disk" / "a").read_bytes() == b"x"


def test_files_that_no_key_names_are_no_objects(tmp_path: Path) -> None:
    place = DirectoryPlace(os.fspath(tmp_path))
    place.put_new("n/1", b"x")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "n" / ".2.swp").write_bytes(b"x")
    os.mkfifo(tmp_path / "n" / "pipe")
    assert [one.key for one in place.list_after("")] == ["n/1"]
    assert place.get("n/pipe") is None


# --- A disk that is gone, full, or read-only ------------------------------------------------------


def test_a_directory_is_an_empty_place_until_something_is_created_in_it(tmp_path: Path) -> None:
    place = DirectoryPlace(os.fspath(tmp_path / "place"))
    assert place.get("a") is None
    assert list(place.list_after("")) == []
    place.delete(["a"])
    assert place.put_new("a", b"x")
    assert (tmp_path / "place" / "a").exists()


def test_a_directory_in_one_that_does_not_exist_is_no_place(tmp_path: Path) -> None:
    place = DirectoryPlace(os.fspath(tmp_path / "no" / "place"))
    for call in (lambda: place.get("a"), lambda: place.put_new("a", b"x")):
        with pytest.raises(PlaceNotFound, match=r"create the (one|directory) above it"):
            call()
    with pytest.raises(PlaceNotFound):
        list(place.list_after(""))


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_place_that_was_removed_is_made_by_a_process_that_starts_again(
    tmp_path: Path, is_made_again: bool
) -> None:
    root = tmp_path / "place"
    place = DirectoryPlace(str(root))
    assert place.put_new("a", b"1")
    shutil.rmtree(root)
    if is_made_again:
        root.mkdir()
    for call in (lambda: place.get("a"), lambda: place.put_new("a", b"1")):
        with pytest.raises(PlaceUnreachable, match=r"mount its disk; .* start this process again"):
            call()
    again = DirectoryPlace(str(root))
    assert again.get("a") is None
    assert again.put_new("a", b"2")


def test_a_disk_that_is_unmounted_is_unreachable_and_not_an_empty_place(tmp_path: Path) -> None:
    root = tmp_path / "mounted"
    place = DirectoryPlace(os.fspath(root))
    place.put_new("n/1", b"x")
    root.rename(tmp_path / "unplugged")
    for is_mount_point in (False, True):
        if is_mount_point:
            root.mkdir()
        for call in (
            lambda: place.get("n/1"),
            lambda: place.put_new("n/2", b"y"),
            lambda: list(place.list_after("")),
            lambda: place.delete(["n/1"]),
        ):
            with pytest.raises(PlaceUnreachable):
                call()
    root.rmdir()
    (tmp_path / "unplugged").rename(root)
    assert place.get("n/1") == b"x"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, PlaceFull),
        (errno.EDQUOT, PlaceFull),
        (errno.EACCES, PlaceDenied),
        (errno.EROFS, PlaceDenied),
        (errno.EIO, PlaceUnreachable),
        (errno.ESTALE, PlaceUnreachable),
    ],
)
@pytest.mark.parametrize("name", ["open", "write", "fsync"])
def test_a_call_that_fails_is_an_error_of_the_place_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, kind: type[OSError]
) -> None:
    place = DirectoryPlace(os.fspath(tmp_path))
    place.put_new("n/1", b"x")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(os, name, fail)
        with pytest.raises(kind, match="n/2") as refused:
            place.put_new("n/2", b"y")
    assert (refused.value.url, refused.value.key) == (place.url, "n/2")  # type: ignore[attr-defined]
    assert place.get("n/2") is None
    assert os.listdir(tmp_path / NEW) == []


def test_a_file_system_without_hard_links_is_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UnsupportedPlace, match="makes no hard links"):
        DirectoryPlace(os.fspath(tmp_path)).put_new("a", b"x")


def test_a_folder_that_may_not_be_read_is_named_with_the_right_that_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = DirectoryPlace(os.fspath(tmp_path))
    for key in ("a/n/1", "a/o/1", "b"):
        place.put_new(key, b"x")
    closed, opens = os.stat(tmp_path / "a" / "o").st_ino, os.open

    def refuse(name: str, flags: int, *mode: int, **at: int) -> int:
        """Open what is no file in the closed folder, as for a user without rights there."""
        file = opens(name, flags, *mode, **at)
        if os.fstat(file).st_ino == closed:
            os.close(file)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return file

    monkeypatch.setattr(os, "open", refuse)
    for prefix in ("", "a", "a/o"):
        with pytest.raises(PlaceDenied) as refused:
            list(place.list_after(prefix))
        said = "/a/o: Permission denied; give this user the right to read there"
        assert str(refused.value) == f"{tmp_path}{said}"
    with pytest.raises(PlaceDenied, match=r"a/o/1: .* the right to read there"):
        place.get("a/o/1")
    for call in (lambda: place.put_new("a/o/2", b"x"), lambda: place.delete(["a/o/1"])):
        with pytest.raises(PlaceDenied, match=r"a/o/.: .* the rights to read and write there"):
            call()
    assert [each.key for each in place.list_after("a/n")] == ["a/n/1"]
