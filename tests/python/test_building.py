"""Stores that are built from pieces of another one, as from a place that may be wrong."""

import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj._core import StoreBuilder
from falaj.errors import CorruptData, HandleClosed, InvalidArgument, LockTimeout

PAGES = 8192
END_BLOCK = 56
NONE = 2**64 - 1
PARENT = "0123456789abcdef" * 2


@dataclass
class Segment:
    log: str
    sequence: int
    header: bytes
    end: int
    length: int
    sealed: bool
    data: bytes

    def begin(self, builder: StoreBuilder) -> None:
        builder.segment(self.log, self.header, self.end, self.length, self.sealed)

    def write(self, builder: StoreBuilder, piece: int = 30_000) -> None:
        for start in range(PAGES, self.length, piece):
            data = self.data[start : min(start + piece, self.length)]
            builder.write(self.log, self.sequence, start, data)


def segments(log: Path) -> Iterator[Segment]:
    """The segments of a log that was closed in order, newest first."""
    files = {int(file.stem): file.read_bytes() for file in log.glob("*.log")}
    sequence, sealed, named = max(files), False, False
    marks = (struct.unpack_from("<8sQQ", files[sequence], at) for at in (512, 4608))
    end = max((serial, position) for magic, serial, position in marks if magic == b"FALAJMRK")[1]
    while True:
        data = files[sequence]
        length = end + (END_BLOCK if named else 0)
        yield Segment(log.name, sequence, data[:512], end, length, sealed, data)
        (flags,) = struct.unpack_from("<I", data, 12)
        before, _salt, end = struct.unpack_from("<QQQ", data, 48)
        if before == NONE:
            return
        sequence, sealed, named = before, True, not flags & 1


@pytest.fixture
def orders(path: Path) -> Path:
    """A closed store of several segments, with a group."""
    with falaj.open(path) as store:
        topic = store.topic("orders", codec="json", segment_bytes=1 << 16)
        for i in range(400):
            topic.append({"id": i, "text": "x" * 500})
        with store.consumer("billing", ["orders"]) as consumer:
            for _ in range(7):
                consumer.poll(max_records=1, timeout=0)
            consumer.commit()
    return path


def give_files(builder: StoreBuilder, path: Path) -> None:
    for file in ["falaj.json", *(f"{kind}/*" for kind in ("topics/*", "consumers", "queues"))]:
        for found in path.glob(file):
            data = found.read_bytes()
            builder.file(str(found.relative_to(path)), len(data), [(0, data)])


def all_segments(path: Path) -> list[Segment]:
    return [segment for log in (path / "logs").iterdir() for segment in segments(log)]


def give_all(builder: StoreBuilder, path: Path) -> None:
    give_files(builder, path)
    for segment in all_segments(path):
        segment.begin(builder)
        segment.write(builder)


def test_a_built_store_has_everything_and_goes_on(orders: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    builder = StoreBuilder(copy)
    assert builder.path == copy
    assert not copy.exists()
    give_all(builder, orders)
    told: list[tuple[int, int]] = []
    report = builder.finish(
        parent=PARENT, number=12, progress=lambda done, total: told.append((done, total))
    )
    assert told[-1][0] == told[-1][1] > 200_000
    assert report["topics"] == report["logs"] == 1
    assert report["segments"] == len(all_segments(orders)) > 2
    assert report["problems"] == []
    assert len(report["origin"]) == 32
    assert PARENT in (copy / "origin").read_text()
    assert falaj.verify(copy)["sound"]
    with falaj.open(copy) as store, falaj.open(orders) as original:
        assert store.id == original.id
        topic = store.topic("orders")
        assert [record.value["id"] for record in topic] == list(range(400))
        assert topic.append({"id": 400}) == 400
        with store.consumer("billing", ["orders"]) as consumer:
            assert [record.offset for record in consumer.poll(max_records=1, timeout=0)] == [7]
    assert [entry.name for entry in tmp_path.iterdir() if ".tmp" in entry.name] == []


def test_threads_write_pieces_of_any_kind_of_bytes_at_once(orders: Path, tmp_path: Path) -> None:
    with StoreBuilder(tmp_path / "copy", permissions=0o750) as builder:
        give_files(builder, orders)
        found = all_segments(orders)
        kinds = [bytes, bytearray, memoryview]

        def work(segment: Segment, kind: type) -> None:
            builder.segment(
                segment.log, kind(segment.header), segment.end, segment.length, segment.sealed
            )
            data = kind(segment.data[PAGES : segment.length])
            builder.write(segment.log, segment.sequence, PAGES, data)

        threads = [
            threading.Thread(target=work, args=(segment, kinds[i % 3]))
            for i, segment in enumerate(found)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        builder.finish()
    assert falaj.verify(tmp_path / "copy")["sound"]
    assert (tmp_path / "copy" / "logs").stat().st_mode & 0o777 == 0o750


def test_a_corrupt_piece_is_an_error_with_its_file_and_nothing_is_left(
    orders: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    before = sorted(tmp_path.iterdir())
    builder = StoreBuilder(copy)
    give_files(builder, orders)
    for segment in all_segments(orders):
        if segment.sequence == 1:
            data = bytearray(segment.data)
            data[20_000] ^= 1
            segment.data = bytes(data)
        segment.begin(builder)
        segment.write(builder)
    with pytest.raises(CorruptData, match="nothing was built") as told:
        builder.finish()
    name = f"{1:020}.log"
    assert str(told.value.path).endswith(name)
    assert 19_000 < (told.value.position or 0) <= 20_000
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(HandleClosed):
        builder.finish()


def test_a_builder_that_is_over_takes_nothing(orders: Path, tmp_path: Path) -> None:
    segment = all_segments(orders)[0]
    with StoreBuilder(tmp_path / "copy") as builder:
        segment.begin(builder)
        assert "unfinished" in repr(builder)
        building = [entry for entry in tmp_path.iterdir() if entry.name.startswith("copy.")]
        assert len(building) == 1
    assert "over" in repr(builder)
    assert not building[0].exists()
    builder.discard()
    for call in (
        lambda: give_files(builder, orders),
        lambda: segment.begin(builder),
        lambda: segment.write(builder),
        builder.finish,
    ):
        with pytest.raises(HandleClosed):
            call()


def test_pieces_that_no_store_has_are_refused(orders: Path, tmp_path: Path) -> None:
    segment = all_segments(orders)[0]
    with StoreBuilder(tmp_path / "copy") as builder:
        for bad in ("../x", "/x", "logs/x", "origin", "topics/a/b", ""):
            with pytest.raises(InvalidArgument):
                builder.file(bad, 1, [(0, b"x")])
        with pytest.raises(InvalidArgument, match="not begun"):
            segment.write(builder)
        segment.begin(builder)
        with pytest.raises(InvalidArgument, match="begun before"):
            segment.begin(builder)
        segment.write(builder)
        with pytest.raises(InvalidArgument, match="written before"):
            builder.write(segment.log, segment.sequence, PAGES, b"x")
        with pytest.raises(InvalidArgument, match="hexadecimal"):
            builder.segment("../orders", segment.header, 9000, 9000, False)
        with pytest.raises(CorruptData):
            builder.segment(segment.log, segment.header[:-1], 9000, 9000, False)
        for parent, number in ((PARENT, None), (None, 1), ("x", 1)):
            with pytest.raises(InvalidArgument):
                builder.finish(parent=parent, number=number)
        wrong: Any = builder
        with pytest.raises(TypeError):
            wrong.write(segment.log, segment.sequence, PAGES, "text")
        with pytest.raises(TypeError):
            wrong.write(segment.log, "0", PAGES, b"x")
        with pytest.raises((TypeError, ValueError)):
            wrong.file("falaj.json", 1, [b"x"])
        with pytest.raises(TypeError):
            wrong.file("falaj.json", 1, None)
    with pytest.raises(InvalidArgument, match="exists already"):
        StoreBuilder(orders)
    with pytest.raises(InvalidArgument, match="0o700"):
        StoreBuilder(tmp_path / "copy", permissions=0o600)


def test_an_exception_of_the_progress_ends_it_and_nothing_is_left(
    orders: Path, tmp_path: Path
) -> None:
    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    builder = StoreBuilder(tmp_path / "copy")
    give_all(builder, orders)
    with pytest.raises(KeyboardInterrupt):
        builder.finish(progress=stop)
    assert not (tmp_path / "copy").exists()
    assert [entry.name for entry in tmp_path.iterdir() if ".tmp" in entry.name] == []


def test_a_builder_with_a_key_goes_on_where_the_last_one_was(orders: Path, tmp_path: Path) -> None:
    def fill(builder: StoreBuilder, pieces: int) -> tuple[int, int]:
        """Write so many pieces; return how many there were before, and how many are written."""
        give_files(builder, orders)
        kept = written = 0
        for segment in all_segments(orders):
            is_left = builder.segment(
                segment.log, segment.header, segment.end, segment.length, segment.sealed
            )
            for start in range(PAGES, segment.length, 30_000):
                stop = min(start + 30_000, segment.length)
                at = segment.log, segment.sequence, start
                crc = zlib.crc32(segment.data[start:stop])
                if builder.keep(*at, stop - start, crc):
                    assert is_left
                    kept += 1
                elif written < pieces:
                    assert not builder.write_checked(*at, segment.data, start, stop, crc ^ 1)
                    assert builder.write_checked(*at, segment.data, start, stop, crc)
                    written += 1
        return kept, written

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    first = StoreBuilder(tmp_path / "copy", resume=PARENT)
    assert fill(first, 3) == (0, 3)
    with pytest.raises(LockTimeout):
        StoreBuilder(tmp_path / "copy", resume=PARENT)
    assert first.leave()
    second = StoreBuilder(tmp_path / "copy", resume=PARENT)
    kept, written = fill(second, 1000)
    assert kept == 3
    with pytest.raises(KeyboardInterrupt):
        second.finish(progress=stop)
    assert second.leave()
    third = StoreBuilder(tmp_path / "copy", resume=PARENT)
    assert fill(third, 1000) == (kept + written, 0)
    third.finish(parent=PARENT, number=4)
    assert not third.leave()
    assert falaj.verify(tmp_path / "copy")["worst"] in (None, "note", "rebuildable")
    without = StoreBuilder(tmp_path / "other")
    assert not without.leave()
    assert [entry.name for entry in tmp_path.iterdir() if ".tmp" in entry.name] == []


def test_parts_and_keys_that_cannot_be_are_refused(orders: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="32 hexadecimal digits"):
        StoreBuilder(tmp_path / "copy", resume="x")
    segment = all_segments(orders)[0]
    with StoreBuilder(tmp_path / "copy") as builder:
        segment.begin(builder)
        at = segment.log, segment.sequence, PAGES
        for start, end in ((0, 4), (3, 2), (9, 9 << 40)):
            with pytest.raises(InvalidArgument, match="outside of the data"):
                builder.write_checked(*at, b"abc", start, end, 0)
        wrong: Any = builder
        with pytest.raises(TypeError):
            wrong.write_checked(*at, "text", 0, 1, 0)
        assert not builder.keep(*at, 10, 0)
