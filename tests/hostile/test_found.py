"""Bugs that harmed stores found through Python, each as small as possible."""

import itertools
import struct
from pathlib import Path

import pytest

import falaj
from hostile import pieces
from hostile.asker import Asker
from proof import craft, layout
from proof.craft import Craft
from proof.layout import Record


def test_a_cursor_in_the_entry_of_another_partition_moves_no_group(path: Path) -> None:
    """Two sectors were swapped: seed 1."""
    with falaj.open(path) as store:
        topic = store.partitioned_topic("shop", partitions=2)
        for _ in range(20):
            # One append, so that at each offset both have the same bytes and the same time.
            with store.transaction() as tx:
                tx.append(topic, b"x", partition=0)
                tx.append(topic, b"x", partition=1)
        with store.consumer("reader", "shop") as reader:
            for offset in (10, 20):
                reader.commit(offset, topic="shop", partition=0)
            reader.commit(5, topic="shop", partition=1)
    file = path / "consumers/reader"
    content = bytearray(file.read_bytes())
    # The newer cursor of the first entry, which says 20, and that of the second one, 5.
    a, b = slice(8704, 9216), slice(10752, 11264)
    content[a], content[b] = content[b], content[a]
    file.write_bytes(content)
    with falaj.open(path) as store, store.consumer("reader", "shop") as reader:
        assert reader.committed("shop", 0) == 10
        assert reader.committed("shop", 1) == 0
        assert len(reader.poll(timeout=0)) == 30


def test_a_staged_frame_that_says_it_has_gigabytes_takes_none(path: Path) -> None:
    """Seed 7, harm 1432, and seed 20261121, harm 2091."""
    with falaj.open(path) as store, store.topic("t").stage("job", "0") as part:
        part.append(b"x")
        part.finish()
    [file] = path.glob("logs/*/staging/*/*.part")
    content = bytearray(file.read_bytes())
    frame = pieces.of_part(bytes(content))[1]
    pieces.put(content, frame.at + 8, 4, 2**32 - 1)
    frame.redo(content)
    file.write_bytes(content)
    asker = Asker()
    told = asker.ask(path, "a frame of gigabytes")
    asker.end()
    assert told["read"]["told"]["verify"]["worst"] == "damage"


def test_a_block_whose_offsets_fall_before_it_is_cut_off_has_an_end(path: Path) -> None:
    """A span that no writer made, with valid checksums: seed 1234, harm 2838."""
    with falaj.open(path) as store:
        store.topic("t", segment_bytes=1 << 16).append(b"first")
    made = Craft(path, "t")
    records = [Record(delta, b"x", None, (), None) for delta in (5, 1)]
    body = b"".join(craft.record(one, layout.SPARSE) for one in records)
    # It claims three records.
    made.block(layout.DATA, body, 1, 3, layout.SPARSE, struct.pack("<I", 200))
    made.finish()
    with falaj.open(path, read_only=True) as store, pytest.raises(falaj.errors.CorruptData):
        list(itertools.islice(store.topic("t"), 1000))
