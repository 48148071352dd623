"""Backup: a whole copy while others write, or none."""

import os
import stat
from pathlib import Path

import pytest
from children import child

import falaj
from falaj.errors import InvalidArgument

AT_LEAST = 2_000


def test_a_backup_is_a_prefix_of_what_others_write_meanwhile(
    path: Path, store: falaj.Store, tmp_path: Path
) -> None:
    topic = store.topic("orders", codec="raw", segment_bytes=1 << 18)
    program = """
topic = falaj.open(path).topic("orders")
i = 0
while True:
    topic.extend([b"%d" % i, b"%d" % i])
    i += 1
"""
    with child(path, program) as writer:
        while len(topic) < AT_LEAST:
            assert writer.process.poll() is None
        before = len(topic)
        assert store.backup(tmp_path / "copy")["bytes"] > 0
        after = len(topic)
    with falaj.open(tmp_path / "copy") as copy:
        copied = copy.topic("orders", codec="raw")
        assert before <= len(copied) <= after
        assert len(copied) % 2 == 0
        assert [record.to_bytes() for record in copied] == [
            b"%d" % (i // 2) for i in copied_range(copied)
        ]
        assert copied.generation == topic.generation
        assert copied.append(b"goes on") == len(copied) - 1


def copied_range(topic: falaj.Topic[memoryview]) -> range:
    return range(topic.start_offset, topic.end_offset)


def test_a_backup_over_something_or_into_the_store_is_refused(
    store: falaj.Store, topic: falaj.Topic[memoryview], tmp_path: Path
) -> None:
    topic.append(b"x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    for wrong in (tmp_path / "full", store.path / "inside"):
        with pytest.raises(InvalidArgument):
            store.backup(wrong)
    assert (tmp_path / "full" / "mine").read_text() == "mine"
    assert not (store.path / "inside").exists()


def test_a_backup_of_a_closed_store_is_refused(store: falaj.Store, tmp_path: Path) -> None:
    store.close()
    with pytest.raises(ValueError, match="closed"):
        store.backup(tmp_path / "copy")


def test_what_a_killed_backup_leaves_the_next_one_removes(
    path: Path, topic: falaj.Topic[memoryview], store: falaj.Store, tmp_path: Path
) -> None:
    topic.extend([b"x" * 1000] * 1000)
    program = """
def told(done, total):
    say("half")
    hear()
falaj.open(path).backup(os.path.dirname(path) + "/copies/copy", told)
"""
    copies = tmp_path / "copies"
    copies.mkdir()
    with child(path, program) as builder:
        assert builder.hear() == "half"
        (left,) = copies.iterdir()
        assert left.name.endswith(".tmp")
        store.backup(copies / "copy")
        assert left.is_dir(), "it lives"
        builder.kill()
    (copies / "copy").rename(copies / "before")
    store.backup(copies / "copy")
    assert sorted(p.name for p in copies.iterdir()) == ["before", "copy"]


def test_a_copy_has_the_modes_of_the_store_whatever_the_umask(path: Path, tmp_path: Path) -> None:
    with falaj.open(path, permissions=0o770) as store:
        store.topic("orders").append(b"x")
        umask = os.umask(0o077)
        try:
            store.backup(tmp_path / "copy")
        finally:
            os.umask(umask)

        def modes(of: Path) -> dict[str, int]:
            found = {str(p.relative_to(of)): p.stat().st_mode for p in [of, *of.rglob("*")]}
            return {name: stat.S_IMODE(mode) for name, mode in found.items()}

        copied = modes(tmp_path / "copy")
        assert len(copied) > 10
        assert copied.items() <= modes(path).items()
