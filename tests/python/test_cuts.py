"""Cuts of a store from Python: the compiled objects, for the code that ships a store."""

import re
from pathlib import Path

import pytest

import falaj
from falaj import errors


def test_a_cut_has_the_bytes_and_ends_of_a_store(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "s") as store:
        orders = store.topic("orders", sync="none")
        store.topic("empty")
        orders.extend([b"a" * 100] * 50)
        first = store._cut()
        assert first.store == store.id
        log = next(log for log in first.logs if log.directory.startswith("orders@"))
        assert log.directory.endswith(log.generation)
        (segment,) = log.segments
        assert (segment.sealed, segment.compaction, len(segment.header)) == (False, 0, 512)
        assert segment.extents(0) == [(8192, segment.length)]
        assert segment.end == segment.length
        file = tmp_path / "s" / "logs" / log.directory / f"{segment.sequence:020}.log"
        on_disk = file.read_bytes()
        assert on_disk[:512] == segment.header
        read = first.read(log.directory, segment.sequence, 8192, segment.length)
        assert read == on_disk[8192 : segment.length]
        ends = {end.name: end for each in first.logs for end in each.ends}
        assert (ends["orders"].next, ends["empty"].next) == (50, 0)
        assert (ends["empty"].checksum, ends["empty"].time_us) == (0, 0)
        assert ends["orders"].time_us > 1_700_000_000_000_000
        files = {each.path: each for each in first.files}
        assert {"falaj.json", "topics/orders/topic.json", "topics/empty/topic.json"} <= files.keys()
        settings = files["topics/orders/topic.json"]
        assert settings.parts == ((0, (tmp_path / "s" / settings.path).read_bytes()),)

        orders.append(b"more")
        second = store._cut(first)
        grown = next(each for each in second.logs if each.generation == log.generation)
        assert grown.segments[0].extents(segment.length) == [
            (segment.length, grown.segments[0].length)
        ]
        end = ends["orders"]
        place = (log.directory, end.topic, end.partition)
        assert store._contains(*place, end.next, end.checksum)
        assert not store._contains(*place, end.next, end.checksum ^ 1)
        assert not store._contains(*place, 52, end.checksum)
        assert "orders" in repr(grown.ends[0])
        assert "Cut" in repr(second)


def test_an_origin_is_made_once_and_a_copy_has_another(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "s") as store:
        origin = store._origin()
        assert re.fullmatch("[0-9a-f]{32}", origin)
        store.backup(tmp_path / "copy")
    with falaj.open(tmp_path / "s", read_only=True) as reader:
        assert reader._origin() == origin
        with pytest.raises(errors.NotWritable):
            reader._cut()
    with falaj.open(tmp_path / "copy") as copy:
        assert copy._origin() != origin


def test_what_no_cut_has_is_refused(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "s") as store:
        store.topic("orders").append(b"a")
        cut = store._cut()
        directory = cut.logs[0].directory
        for log, sequence, start, stop in [
            ("other@00", 0, 8192, 8200),
            (directory, 7, 8192, 8200),
            (directory, 0, 0, 100),
            (directory, 0, 8192, 1 << 40),
        ]:
            with pytest.raises(errors.InvalidArgument):
                cut.read(log, sequence, start, stop)
        with pytest.raises(errors.InvalidArgument, match="32 hexadecimal digits"):
            store._contains(directory, "zz", 0, 0, 0)


def test_closing_the_store_ends_what_its_cuts_keep_open(tmp_path: Path) -> None:
    store = falaj.open(tmp_path / "s")
    store.topic("orders").append(b"a")
    cut = store._cut()
    store.close()
    with pytest.raises(errors.HandleClosed):
        store._cut(cut)
    # The bytes are there all the same.
    log = cut.logs[0]
    assert cut.read(log.directory, 0, 8192, log.segments[0].length)
    with falaj.open(tmp_path / "s") as again:
        assert again._cut(cut).logs[0].ends[0].next == 1
