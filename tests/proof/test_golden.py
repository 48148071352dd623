"""Every store that was kept opens, reads as it did when it was made, and can be appended to."""

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest

import falaj
from proof import golden, reader

SOUND = [name for name in golden.names() if "-" not in name]
KIB_MAX = 64


def test_golden_stores_are_small_and_of_every_kind() -> None:
    assert {"plain", "rolled", "pwrite", "recovered", "unrecovered", "compacted"} <= {*SOUND}
    assert sum(name.startswith("damaged-") for name in golden.names()) >= 6
    assert sum(name.startswith("newer-") for name in golden.names()) >= 8
    for path in golden.FOLDER.iterdir():
        assert path.stat().st_size < KIB_MAX << 10, path


@pytest.mark.parametrize("name", golden.names())
def test_a_golden_store_gives_the_answers_that_were_kept(name: str, place: Path) -> None:
    """Read only, with and without maps, and then opened for writing, which recovers it."""
    path = golden.unpack(name, place)
    kept = golden.expected(name)
    assert golden.answers(path, "r") == kept["reading"]
    assert golden.answers(path, "r", read="pread") == kept["reading"]
    assert falaj.verify(path)["worst"] == kept["worst"]
    assert golden.answers(path, "w") == kept["writing"]
    assert golden.answers(path, "r") == kept["writing"] or "error" in str(kept["writing"])


@pytest.mark.parametrize("name", SOUND)
def test_the_other_reader_reads_the_same(name: str, place: Path) -> None:
    path = golden.unpack(name, place)
    if name == "unrecovered":
        golden.answers(path, "w")  # it reads closed stores
    other = reader.read_store(path)
    kept = golden.expected(name)["writing"]
    assert other.topics.keys() == kept.keys()
    for topic, partitions in kept.items():
        for read, partition in zip(other.topics[topic].partitions, partitions, strict=True):
            shown = json.loads(json.dumps([golden.shown(record) for record in read.records]))
            assert shown == partition["records"]
    if name == "recovered":
        assert min(other.seen[kind] for kind in ("void", "supersedes", "group")) > 0


@pytest.mark.parametrize("name", SOUND)
def test_a_golden_store_goes_on(name: str, place: Path) -> None:
    path = golden.unpack(name, place)
    kept: dict[str, Any] = golden.expected(name)["writing"]
    with falaj.open(path) as store:
        for topic, partitions in kept.items():
            if (opened := store.topic(topic)).codec != "bytes":
                continue
            for p, partition in enumerate(partitions):
                part = opened.partition(p)
                for n in range(10):  # enough to roll
                    assert part.append(b"new" + bytes(9000)) == partition["end"] + n
                records = list(part)
                assert len(records) == len(partition["records"]) + 10
                assert [r.offset for r in records[-10:]] == list(
                    range(partition["end"], partition["end"] + 10)
                )
                assert part.at(records[-1].timestamp) is not None
                assert part[partition["end"]].bytes().startswith(b"new")
    assert falaj.verify(path)["sound"]


def test_an_archive_that_is_not_what_it_was_is_noticed(tmp_path: Path) -> None:
    """The tests above read what git gives them: xz has a checksum of its own."""
    data = bytearray((golden.FOLDER / "plain.tar.xz").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "bad.tar.xz").write_bytes(data)
    with pytest.raises(lzma.LZMAError), tarfile.open(tmp_path / "bad.tar.xz") as archive:
        archive.getmembers()
