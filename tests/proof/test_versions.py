"""Stores of other versions of the format: every call refuses them by name and changes nothing."""

import fcntl
import hashlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import falaj
from falaj.errors import MachineError, OutdatedFormat, UnsupportedVersion
from papers import DATA_FILTER
from proof.craft import change_settings

ARCHIVE = Path(__file__).with_name("version1") / "plain.tar.xz"
"""A store that a build of format version 1 wrote."""


def files(store: Path) -> dict[str, str]:
    """Hash each file; directories hash as nothing."""
    return {
        str(path.relative_to(store)): (
            path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest()
        )
        or ""
        for path in sorted(store.rglob("*"))
    }


def unpacked(place: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = DATA_FILTER
        archive.extractall(place)
    return place / "store"


WAYS: list[Callable[[Path], object]] = [
    falaj.open,
    lambda path: falaj.open(path, read_only=True),
    lambda path: falaj.open(path, read_only=True, io="pread"),
    falaj.verify,
    falaj.repair,
    lambda path: falaj.repair(path, dry_run=True),
]
COMMANDS = (
    ["topic", "list"],
    ["cat", "json"],
    ["append", "json"],
    ["info"],
    ["verify"],
    ["repair"],
    ["maintain"],
    ["backup", "elsewhere"],
)


def run(store: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    verb = [sys.executable, "-m", "falaj", *command, "-s", str(store)]
    return subprocess.run(
        verb, cwd=store.parent, capture_output=True, text=True, input="x\n", timeout=60
    )


def refuses(store: Path, kind: type[falaj.Error], *words: str) -> None:
    before = files(store)
    for way in WAYS:
        with pytest.raises(kind) as caught:
            way(store)
        assert all(word in str(caught.value) for word in words), caught.value
        assert isinstance(caught.value, MachineError)
        assert caught.value.path == str(store / "falaj.json")
    for command in COMMANDS:
        ended = run(store, command)
        assert ended.returncode == 3, (command, ended)
        assert all(word in ended.stderr for word in words), (command, ended.stderr)
    assert files(store) == before
    assert not (store.parent / "elsewhere").exists()


def test_a_store_of_version_1_is_refused_by_every_way_in_and_not_touched(place: Path) -> None:
    """Also while a process of the older build has it open."""
    store = unpacked(place)
    said = ("format version 1, and this falaj reads version 2", "append them to a new store")
    refuses(store, OutdatedFormat, *said)
    seat = os.open(store / "presence", os.O_RDONLY)
    slot = os.open(store / "slots/0", os.O_RDONLY)
    fcntl.flock(seat, fcntl.LOCK_SH)
    fcntl.flock(slot, fcntl.LOCK_EX)
    refuses(store, OutdatedFormat, *said)
    os.close(seat)
    os.close(slot)


def test_a_store_of_a_higher_version_is_refused_by_every_way_in_and_not_touched(
    place: Path,
) -> None:
    """Also while a process has it open that opened it before."""
    store = place / "store"
    with falaj.open(store) as opened:
        opened.topic("json", codec="json").append(1)
        change_settings(store / "falaj.json", format=3)
        refuses(store, UnsupportedVersion, "format version 3, and this falaj reads 2", "upgrade")
