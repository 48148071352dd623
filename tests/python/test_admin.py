"""Backup, verify, repair and info, as Python sees them."""

import json
import os
from pathlib import Path

import pytest

import falaj
from falaj import errors


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        orders = store.topic("orders", segment_bytes=1 << 16)
        for i in range(300):
            orders.append(b"%d" % i * 200)
    return path


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def segment(path: Path, number: int) -> Path:
    (log,) = (path / "logs").iterdir()
    return log / f"{number:020}.log"


def test_a_backup_is_a_store_and_tells_its_progress(filled: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with falaj.open(filled) as store:
        report = store.backup(tmp_path / "copy", lambda done, total: told.append((done, total)))
        store.topic("orders").append(b"later")
    assert report["topics"] == 1
    assert told[-1] == (report["bytes"], report["bytes"])
    with falaj.open(tmp_path / "copy", read_only=True) as copy:
        assert len(copy.topic("orders")) == 300
        assert copy.verify()["sound"]


def test_verification_reports_all_of_it_in_the_end_and_never_goes_back(filled: Path) -> None:
    told: list[tuple[int, int]] = []
    with falaj.open(filled) as store:
        for name in ("payments", "refunds"):  # each with a segment that is allocated and empty
            store.topic(name).append(b"one")
        store.verify(progress=lambda done, total: told.append((done, total)))
    done, total = told[-1]
    assert done == total > 0
    assert told == sorted(told)


def test_what_a_progress_raises_ends_a_backup_and_leaves_nothing(
    filled: Path, tmp_path: Path
) -> None:
    def stop(done: int, total: int) -> None:
        raise LookupError(total)

    with falaj.open(filled, read_only=True) as store, pytest.raises(LookupError):
        store.backup(tmp_path / "copy", stop)
    assert os.listdir(tmp_path) == ["events"]


def test_a_backup_into_the_store_is_refused(filled: Path) -> None:
    with falaj.open(filled) as store, pytest.raises(errors.InvalidArgument, match="inside"):
        store.backup(filled / "copy")


def test_damage_is_told_with_its_place_and_its_records(filled: Path) -> None:
    flip(segment(filled, 1), 20_000)
    found = falaj.verify(filled)
    assert (found["sound"], found["worst"]) == (False, "damage")
    (finding,) = (f for log in found["logs"] for f in log["findings"] if f["severity"] == "damage")
    assert finding["path"] == os.fspath(segment(filled, 1))
    assert 0 < finding["position"] <= 20_000
    assert finding["topic"] == "orders"
    assert finding["offsets"] is not None
    assert finding["offsets"][1] - finding["offsets"][0] == 1
    assert json.loads(json.dumps(found)) is not None


def test_a_store_that_does_not_open_is_verified(filled: Path) -> None:
    flip(filled / "falaj.json", 20)
    with pytest.raises(errors.CorruptData):
        falaj.open(filled, read_only=True)
    found = falaj.verify(filled)
    assert found["findings"][0]["path"] == os.fspath(filled / "falaj.json")
    assert found["logs"][0]["records"] == 300


def test_repair_tells_before_it_does(filled: Path) -> None:
    index = segment(filled, 0).with_suffix(".idx")
    index.unlink()
    told = falaj.repair(filled)
    assert (told["dry_run"], told["in_use"], told["complete"]) == (True, False, True)
    assert [step["action"] for step in told["logs"][0]["steps"]] == ["rebuild index"]
    assert not index.exists()
    done = falaj.repair(filled, dry_run=False)
    assert done["logs"][0]["steps"] == told["logs"][0]["steps"]
    assert index.exists()
    assert not falaj.repair(filled)["logs"][0]["steps"]


def test_info_tells_offsets_sizes_and_who_is_there(filled: Path) -> None:
    with falaj.open(filled) as store:
        store.topic("orders")
        info = store.info()
    (topic,) = info["topics"]
    (log,) = info["logs"]
    assert topic["partitions"] == [{"partition": 0, "first": 0, "end": 300, "durable": 300}]
    assert log["reserved"] >= log["live"] > 300 * 200
    assert log["segments"][0]["sequence"] == 0
    assert [slot["process"] for slot in info["slots"] if slot["alive"]] == [os.getpid()]
    assert (info["format"], info["write_mode"] in ("mapped", "pwrite")) == (2, True)
    assert json.loads(json.dumps(info)) is not None


def test_read_by_pread_sees_what_maps_show(filled: Path) -> None:
    with (
        falaj.open(filled, read_only=True) as mapped,
        falaj.open(filled, read_only=True, io="pread") as unmapped,
    ):
        values = [record.to_bytes() for record in mapped.topic("orders")]
        assert values == [record.to_bytes() for record in unmapped.topic("orders")]
    with pytest.raises(errors.InvalidArgument, match="pread"):
        falaj.open(filled, io="x")  # type: ignore[arg-type]


def test_a_truncated_segment_is_an_error_for_who_reads_by_pread(filled: Path) -> None:
    os.truncate(segment(filled, 1), 8192)
    with (
        falaj.open(filled, read_only=True, io="pread") as store,
        pytest.raises(errors.CorruptData) as raised,
    ):
        list(store.topic("orders"))
    assert raised.value.path == os.fspath(segment(filled, 1))
