"""Compacted stores, read by the reader that was written from the documents alone."""

from pathlib import Path

import falaj
from proof import reader


def test_the_reader_made_from_the_documents_reads_compacted_stores(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        prices = store.topic("prices", codec="str", segment_bytes=1 << 16, compacted=True)
        for i in range(1500):
            prices.append(f"{i:0300}", key=b"%d" % (i % 40), sync="none")
        prices.extend((b"%d" % i, "v" * (i % 50)) for i in range(100))
        prices.compact(seal=True)
        prices.append("after", key=b"3")
        prices.compact(seal=True)
        prices.append("last", key=b"4")
        wanted = [(r.offset, r.key, r.to_bytes(), r.timestamp_ns) for r in prices]
    read = reader.read_store(tmp_path / "store")
    [partition] = read.topics["prices"].partitions
    got = [(r.offset, r.key, r.value, r.timestamp_ns) for r in partition.records]
    assert got == wanted
    assert any(segment.header.is_compacted for log in read.logs for segment in log.chain)
