"""Misuse and corruption: a typed error that names the path, the place and a remedy."""

import asyncio
import os
import shutil
import stat
import tempfile
import zlib
from array import array
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from children import run

import falaj
from falaj._compaction import Last
from falaj._consumer import position_of
from falaj._producers import Producer
from falaj.errors import (
    CorruptData,
    CorruptionError,
    InvalidArgument,
    InvalidName,
    NotAStore,
    OffsetOutOfRange,
    SettingsMismatch,
    TopicDeleted,
    UnknownTopic,
    UnsupportedVersion,
)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "../a", "a\0b", "a b", "é", "x" * 250, "/", "-\n", "\ud800", "a\udcff"],
)
def test_a_name_that_no_topic_can_have_is_refused_before_a_path_is_made(
    store: falaj.Store, path: Path, name: str
) -> None:
    before = sorted(path.rglob("*"))
    with pytest.raises(InvalidName) as caught:
        store.topic(name)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(InvalidName):
        store.delete_topic(name)
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize("name", ["a", "x" * 249, "A-Z_0.9", "...", "-"])
def test_any_other_name_is_a_topics(store: falaj.Store, name: str) -> None:
    store.topic(name).append(b"x")
    assert list(store.topics) == [name]
    store.delete_topic(name)


@pytest.mark.parametrize("name", [b"bytes", 5, None])
def test_a_name_of_the_wrong_type_is_a_type_error(store: falaj.Store, name: Any) -> None:
    with pytest.raises(TypeError):
        store.topic(name)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"segment_bytes": 4096}, "65536"),
        ({"segment_bytes": 2**63}, "34359734272"),
        ({"sync_interval_ms": 0}, "3600000"),
        ({"sync": "sometimes"}, "durable"),
        ({"sync": 5}, "durable"),
    ],
)
def test_a_setting_beyond_its_limits_is_refused_and_the_limit_named(
    store: falaj.Store, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        store.topic("orders", **settings)
    assert list(store.topics) == []


def test_an_unknown_setting_is_an_error(store: falaj.Store, path: Path) -> None:
    with pytest.raises(TypeError, match="retention"):
        store.topic("orders", retention=5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="fsync"):
        falaj.open(path, fsync=False)  # type: ignore[call-arg]


def test_settings_that_differ_are_refused_by_name(store: falaj.Store) -> None:
    store.topic("orders", segment_bytes=1 << 20, sync_interval_ms=50)
    for setting, value in (("segment_bytes", 1 << 21), ("sync_interval_ms", 100)):
        with pytest.raises(SettingsMismatch, match=setting):
            store.topic("orders", **{setting: value})  # type: ignore[call-overload]
    assert len(store.topic("orders", segment_bytes=1 << 20)) == 0


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf")])
def test_a_timeout_that_is_none_is_refused(path: Path, timeout: float) -> None:
    with pytest.raises(InvalidArgument, match="timeout"):
        falaj.open(path, lock_timeout=timeout)


def test_something_else_in_the_directory_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    file = tmp_path / "notes.txt"
    for place in (tmp_path, file):
        with pytest.raises(NotAStore) as caught:
            falaj.open(place)
        assert os.fspath(place) in str(caught.value)
        assert caught.value.path is not None
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_directory_that_is_missing_above_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere") as caught:
        falaj.open(tmp_path / "nowhere" / "store")
    assert isinstance(caught.value, falaj.Error)
    assert "nowhere" in str(caught.value.path)


def test_a_newer_store_says_to_upgrade(path: Path) -> None:
    falaj.open(path).close()
    settings = path / "falaj.json"
    newer = settings.read_text().replace('"format":2', '"format":9').rpartition(',"checksum"')[0]
    settings.write_text(f'{newer},"checksum":"{zlib.crc32(newer.encode()):08x}"}}\n')
    with pytest.raises(UnsupportedVersion, match="upgrade") as caught:
        falaj.open(path)
    assert caught.value.path == os.fspath(settings)


def test_reports_say_what_helps_beside_what_is_wrong(path: Path) -> None:
    with falaj.open(path) as store:
        with store.topic("hurt") as topic:
            topic.append(b"x")
            store.consumer("c", [topic]).close()
        store.topic("newer")
        assert [each["error_class"] for each in store.info()["topics"]] == [None, None]
    settings = path / "topics/newer/topic.json"
    newer = settings.read_text().replace('"format":2', '"format":9').rpartition(',"checksum"')[0]
    settings.write_text(f'{newer},"checksum":"{zlib.crc32(newer.encode()):08x}"}}\n')
    (path / "topics/hurt/topic.json").write_text("{}")
    (consumer,) = (path / "consumers").iterdir()
    consumer.write_bytes(b"")
    wanted = ["CorruptData", "UnsupportedVersion"]
    with falaj.open(path) as store:
        info = store.info()
        assert [each["error_class"] for each in info["topics"]] == wanted
        assert [each["error_class"] for each in info["groups"]] == ["CorruptData"]
        wanted.append("CorruptData")  # the group's file, which they check too
        assert store.maintain()["error_classes"] == wanted
    repair = falaj.repair(path)
    assert (repair["error_classes"], len(repair["problems"])) == (wanted, 3)


@pytest.mark.parametrize("text", ["", "{}", "null", "\0" * 100, '{"format":2}'])
def test_a_damaged_settings_file_is_named(path: Path, text: str) -> None:
    falaj.open(path).close()
    (path / "falaj.json").write_text(text)
    with pytest.raises((CorruptData, NotAStore), match=r"falaj\.json"):
        falaj.open(path)


def damaged(path: Path) -> falaj.Topic[memoryview]:
    """Write 300 records and corrupt one in the middle, on the disk."""
    with falaj.open(path) as store, store.topic("orders", codec="raw") as topic:
        for i in range(300):
            topic.append(b"record %03d" % i)
    (segment,) = path.glob("logs/*/*.log")
    at = segment.read_bytes().index(b"record 150")
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(b"RECORD")
    return falaj.open(path).topic("orders", codec="raw")


def test_damage_is_told_with_file_and_position_and_never_skipped(path: Path) -> None:
    topic = damaged(path)
    records = iter(topic)
    assert [next(records).offset for _ in range(150)] == list(range(150))
    with pytest.raises(CorruptData) as caught:
        next(records)
    assert isinstance(caught.value, CorruptionError)
    assert str(caught.value.path).endswith(".log")
    assert caught.value.position
    with pytest.raises(CorruptData):
        topic[150]
    with pytest.raises(CorruptData):
        [batch.to_list() for batch in topic.batches()]
    assert topic[149].to_bytes() == b"record 149"
    assert topic[151].to_bytes() == b"record 151"
    assert topic.append(b"after") == 300


def hurt(path: Path, before: bytes, with_: bytes) -> None:
    """Overwrite the bytes right before a value, on the disk."""
    (segment,) = path.glob("logs/*/*.log")
    at = segment.read_bytes().index(before) - len(with_)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(with_)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("key", [None, b"key"])
def test_batches_hand_out_what_is_sound_before_they_tell_of_damage(
    path: Path, verify: bool, together: bool, key: bytes | None
) -> None:
    values = [b"record %03d" % i for i in range(300)]
    with falaj.open(path) as store:
        topic = store.topic("orders", codec="raw")
        if together:
            for part in (values[:100], values[100:]):
                topic.extend(part if key is None else [(key, value) for value in part])
        else:
            for value in values:
                topic.append(value, key=key)
    # The length of a value: without checksums a record can reach past its block.
    hurt(path, values[150], b"\xff")
    batches = falaj.open(path, verify=verify).topic("orders", codec="raw").batches()
    seen: list[bytes | None] = []

    def read() -> None:
        for batch in batches:
            assert len(batch) == len(batch.values) == len(list(batch))
            seen.extend(batch.to_list())

    with pytest.raises(CorruptData) as caught:
        read()
    # With checksums a block is valid or not.
    assert seen == values[: 100 if together and verify else 150]
    for _ in range(2):
        with pytest.raises(CorruptData, match=f"byte {caught.value.position}:"):
            next(batches)


def test_a_reader_goes_on_behind_damage_when_it_says_so(path: Path) -> None:
    topic = damaged(path)
    records, seen, damage, lost = iter(topic), [], [], []
    while True:
        try:
            seen.append(next(records).offset)
        except CorruptData as error:
            damage.append(error)
            lost += records.skip_damage()
        except StopIteration:
            break
    assert seen == [*range(150), *range(151, 300)]
    (where,) = damage
    place = {"path": str(where.path), "position": where.position}
    assert lost == [{**place, "partition": 0, "offsets": (150, 151)}]


def test_a_reader_that_goes_on_where_nothing_is_damaged_loses_nothing(path: Path) -> None:
    topic = damaged(path)
    records = iter(topic)
    seen = [next(records).offset]
    for _ in range(149):
        assert records.skip_damage() == []
        seen.append(next(records).offset)
    assert seen == list(range(150))


def test_a_reader_without_checksums_gets_the_bytes_as_they_are(path: Path) -> None:
    damaged(path)
    topic = falaj.open(path, verify=False).topic("orders")
    assert topic[150].to_bytes() == b"RECORD 150"


def test_a_store_deleted_under_an_open_handle_crashes_nothing(path: Path) -> None:
    topic = falaj.open(path).topic("orders", codec="raw")
    topic.append(b"x" * 100)
    record = topic[0]
    shutil.rmtree(path)
    assert bytes(record.value) == b"x" * 100
    for call in (lambda: topic.append(b"y"), topic.flush, lambda: list(topic)):
        with suppress(falaj.Error):
            call()
    with pytest.raises(falaj.Error):
        falaj.open(path, read_only=True)


def test_the_attributes_of_an_offset_out_of_range_tell_the_range(
    topic: falaj.Topic[memoryview],
) -> None:
    topic.extend([b"x"] * 3)
    with pytest.raises(OffsetOutOfRange, match="offsets 0 to 2") as caught:
        topic[3]
    assert (caught.value.offset, caught.value.first, caught.value.end) == (3, 0, 3)


def test_deleting_what_is_not_there_is_a_key_error(
    store: falaj.Store, topic: falaj.Topic[memoryview]
) -> None:
    with pytest.raises(UnknownTopic):
        store.delete_topic("missing")
    topic.delete()
    with pytest.raises(TopicDeleted):
        topic.delete()
    with pytest.raises(KeyError):
        store.delete_topic("orders")


@pytest.mark.parametrize(("mode", "files"), [(0o750, 0o640), (0o770, 0o660), (0o700, 0o600)])
def test_a_mode_in_digits_says_who_else_may_read_and_write(
    path: Path, mode: int, files: int
) -> None:
    umask = os.umask(0o077)  # the mode is the store's, for all its users
    try:
        with falaj.open(path, permissions=mode) as store:
            store.topic("orders").append(b"x")
    finally:
        os.umask(umask)
    bits = {p: stat.S_IMODE(p.stat().st_mode) for p in [path, *path.rglob("*")]}
    assert {bits[p] for p in bits if p.is_dir()} == {mode}
    shared = [p for p in bits if p.suffix in (".log", ".json") or p.name == "control"]
    assert len(shared) == 4
    assert {bits[p] & 0o777 for p in shared} == {files}
    # Only writers may open lock files: an exclusive flock needs only read permission.
    assert all(bits[p] & 0o040 == 0 or mode & 0o020 for p in path.glob("slots/*"))


@pytest.mark.parametrize("mode", [0, 0o400, 0o1777, -1, 2**40])
def test_permission_bits_that_make_no_store_are_refused(path: Path, mode: int) -> None:
    with pytest.raises(InvalidArgument):
        falaj.open(path, permissions=mode)
    assert not path.exists()


def moved(store: falaj.Store, topic: falaj.Topic[Any], *cursors: Any) -> None:
    with store.transaction() as tx:
        tx.commit_cursor(cursors, into=topic)


WRONG: dict[str, Callable[[falaj.Store, falaj.Topic[Any]], object]] = {
    "partitions": lambda store, _: store.partitioned_topic("new", partitions=-1),
    "segment": lambda store, _: store.topic("new", segment_bytes=2**70),
    "interval": lambda store, _: store.topic("new", sync_interval_ms=-(2**70)),
    "sync": lambda store, _: store.topic("new", sync="often"),  # type: ignore[call-overload]
    "visibility": lambda _, topic: topic.follow(visibility="all"),  # type: ignore[arg-type]
    "append": lambda _, topic: topic.append(b"x", partition=-1),
    "mode": lambda _, topic: topic.append(b"x", sync="soon"),  # type: ignore[call-overload]
    "extend": lambda _, topic: topic.extend([b"x"], partition=2**32),
    "tombstone": lambda _, topic: topic.tombstone(b"x", partition=-1),
    "expect": lambda _, topic: topic.append(b"x", expect=2**64),
    "sequence": lambda _, topic: topic.append(b"x", producer="p", sequence=-1),
    "transaction": lambda store, topic: store.transaction().append(topic, b"x", partition=-1),
    "token": lambda _, topic: topic.commit_bulk_load("j", [], idempotency_key=("t", -1)),
    "view": lambda _, topic: topic.partition(10**5000),
    "position": lambda store, _: store.partitioned_topic("orders", partitions=1)[-1, 0],
    "offset": lambda _, topic: topic[2**200],
    "wait": lambda _, topic: topic.wait_durable(-1),
    "batches": lambda _, topic: topic.batches(2**70),
    "start": lambda store, topic: store.consumer("c", [topic], start=2**63),
    "seek": lambda store, topic: store.consumer("c", [topic]).seek(-(2**64)),
    "commit": lambda store, topic: store.consumer("c", [topic]).commit(-1),
    "consumed": lambda store, topic: store.consumer("c", [topic]).position(partition=-1),
    "poll": lambda store, topic: store.consumer("c", [topic]).poll(2**64, timeout=0),
    "take": lambda store, topic: store.queue("q", topic).take(2**64),
    "slice": lambda _, topic: topic[::2].batches(),
    "reset": lambda store, _: store.seek_group("c", "orders", "latest", partition=-1),
    "reset far": lambda store, _: store.seek_group("c", "orders", 0, partition=2**70),
    "reset to": lambda store, _: store.seek_group("c", "orders", 10**5000),
    "trim": lambda _, topic: topic.trim(before_offset=2**127),
    "read": lambda _, topic: topic.read(2**127, 1),
    "read back": lambda _, topic: topic.read(-(2**128), 1),
    "follow": lambda _, topic: topic.follow(2**127),
    "end": lambda _, topic: topic.to_reader(end=2**127),
    "place": lambda _, topic: position_of(topic, 0, -1),
    "place of": lambda _, topic: position_of(topic, 2**32, 0),
    "cursor": lambda _, topic: topic.cursor("\ud800"),
    "cursor at": lambda _, topic: falaj.Cursor("c", 10**5000),
    "lease": lambda store, topic: store.queue("q", topic).take(lease=10**5000, timeout=0),
    "patience": lambda store, topic: store.queue("q", topic).take(timeout=10**5000),
    "attempts": lambda store, topic: store.queue("q", topic, max_attempts=10**5000),
    "silence": lambda _, topic: topic.follow(timeout=10**5000),
    "lock": lambda store, _: falaj.open(store.path, lock_timeout=10**5000),
    "automatic": lambda store, topic: store.consumer("c", [topic], auto_commit=10**5000),
    "kept": lambda store, _: store.topic("new", retention_records=10**5000),
    "age": lambda store, _: store.topic("new", retention_age=10**5000),
    "moment": lambda _, topic: topic.append(b"x", timestamp_ns=10**5000),
    "memory": lambda _, topic: topic.compact(memory=2**64),
    "lasts": lambda _, topic: topic.compact(last={-1: Last(0, array("Q"))}),
    "last end": lambda _, topic: topic.compact(last={0: Last(2**64, array("Q"))}),
    "known id": lambda _, topic: topic.forget_producer(Producer("f" * 17, 0, 0, 0, None)),
    "cursors": lambda store, topic: moved(store, topic, ("c", 2**64, 0)),
    "checksum": lambda store, topic: moved(store, topic, (b"c", 0, -1)),
    "nameless": lambda _, topic: topic.bulk_load("").__enter__(),
    "rows": lambda _, topic: topic.to_reader(batch_rows=10**5000),
    "producer": lambda _, topic: topic.append(b"x", producer="\ud800", sequence=0),
    "known": lambda _, topic: topic.last_sequence("\udcff"),
    "forgotten": lambda _, topic: topic.forget_producer("\udcff"),
    "header": lambda _, topic: topic.append(b"x", headers={"\ud800": b""}),
    "pair": lambda _, topic: topic.append(b"x", headers=[("\ud800", b"")]),
    "series": lambda _, topic: topic.commit_bulk_load("j", [], idempotency_key=("\ud800", 1)),
    "last": lambda _, topic: topic.last_idempotency_key("\ud800"),
    "job": lambda _, topic: topic.stage("\ud800", "p"),
    "codec": lambda store, _: store.topic("new", codec="\ud800"),
    "column": lambda _, topic: topic.to_reader(columns=["\ud800"]),
    "path": lambda *_: falaj.open("\ud800"),
    "no path": lambda *_: falaj.open(""),
    "nul": lambda *_: falaj.open("a\0b", read_only=True),
    "verified": lambda *_: falaj.verify(""),
    "repaired": lambda *_: falaj.repair("a\0b"),
    "backup": lambda store, _: store.backup(""),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_argument_that_cannot_be_is_an_error_of_falaj(
    store: falaj.Store, topic: falaj.Topic[str], what: str
) -> None:
    with pytest.raises(InvalidArgument):
        WRONG[what](store, topic)
    assert (list(store.topics), topic.end_offset) == (["orders"], 0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda store, _: store.consumer("c", [5]), "reads topics, or names of topics, not int"),
        (
            lambda _, topic: topic.stage("j", "p", idempotency_key=("a",)),
            "idempotency_key is a pair of the name",
        ),
        (
            lambda _, topic: topic.stage("j", "p", idempotency_key=5),
            "idempotency_key is a pair of the name",
        ),
        (
            lambda _, topic: topic.compact(last={0: Last(0, array("q", [1]))}),
            "unsigned 64-bit numbers, as array",
        ),
    ],
)
def test_an_argument_of_another_type_is_a_type_error_that_says_what_it_is(
    store: falaj.Store, topic: falaj.Topic[Any], call: Callable[[Any, Any], object], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        call(store, topic)


def test_the_longest_span_there_is_is_as_good_as_for_ever(store: falaj.Store) -> None:
    topic = store.topic("t", compacted=True)
    assert topic.tombstone(b"key") == 0
    kept = topic.compact(delete_retention=timedelta.max, seal=True)
    assert (kept["records"], kept["removed"]) == (1, 0)


NOWHERE: dict[str, Callable[[falaj.Store, falaj.Topic[Any]], object]] = {
    "trim": lambda _, topic: topic.trim(before_offset=2**64),
    "trim by hand": lambda _, topic: topic.trim(before_offset=1, dry_run=True),
    "read": lambda _, topic: topic.read(2**64, 1),
    "read back": lambda _, topic: topic.read(1 - 2**127, 1),
    "follow": lambda _, topic: topic.follow(2**127 - 1),
    "durable": lambda _, topic: topic.wait_durable(2**64 - 1),
}


@pytest.mark.parametrize("what", NOWHERE)
def test_an_offset_that_no_record_has_is_out_of_range_however_large_it_is(
    store: falaj.Store, topic: falaj.Topic[str], what: str
) -> None:
    with pytest.raises(OffsetOutOfRange):
        NOWHERE[what](store, topic)


def test_a_refused_name_is_told_with_what_it_was_to_name(
    store: falaj.Store, topic: falaj.Topic[str]
) -> None:
    for name in ("a b", "", "\udcff"):
        with pytest.raises(InvalidName, match="cannot name a consumer: "):
            store.consumer(name, [topic])
        with pytest.raises(InvalidName, match="cannot name a consumer: "):
            store.delete_group(name)
        with pytest.raises(InvalidName, match="cannot name a queue: "):
            store.queue(name, topic)
        with pytest.raises(InvalidName, match="cannot name a log: "):
            store.topic("new", log=name)
        with pytest.raises(InvalidName, match="cannot name a topic: "):
            falaj.verify(store.path, topic=name)


def test_a_record_that_is_waited_for_and_is_not_there_is_the_one_that_is_named(
    topic: falaj.Topic[memoryview],
) -> None:
    topic.extend([b"x"] * 3)
    assert topic.wait_durable(2)
    for missing in (3, 7, 2**64 - 1):
        with pytest.raises(OffsetOutOfRange, match=f"has no record {missing}: ") as caught:
            topic.wait_durable(missing)
        assert (caught.value.offset, caught.value.end) == (missing, 3)


NOBODY = 65534


def test_a_directory_one_may_not_write_to_is_a_permission_error(tmp_path: Path) -> None:
    program = f"""
import falaj.errors
if os.geteuid() == 0:
    os.setuid({NOBODY})
try:
    falaj.open(path)
except PermissionError as error:
    say(type(error).__name__, error.errno, error.filename)
"""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o555)
        said = run(Path(place) / "store", program).split()
    assert said[:-1] == ["PermissionDenied", "13"]
    assert said[-1].startswith(place)


def test_a_setting_that_there_is_not_is_refused_by_the_name_of_the_call(
    store: falaj.Store,
) -> None:
    for value in (3, None):
        wrong: Any = {"partitons": value}
        with pytest.raises(TypeError, match=r"'partitons': did you mean 'partitions'\?$"):
            store.topic("t", **wrong)
    assert "t" not in store.topics
    wrong = {"partitions": 3}
    with pytest.raises(TypeError, match=r"^configure\(\) has no setting 'partitions'; it has ret"):
        store.topic("t").configure(**wrong)
    wrong = {"retention_byte": 1}
    with pytest.raises(
        TypeError, match=r"^store\.configure\(\) has no .*mean 'retention_bytes'\?$"
    ):
        store.configure(**wrong)


def test_partitions_that_a_call_does_not_take_are_named_in_the_call_that_takes_them(
    store: falaj.Store,
) -> None:
    wrong: Any = {"partitions": 3}
    for call in (store.topic, store.any_topic):
        with pytest.raises(TypeError, match=r"store\.partitioned_topic\('t', partitions=3\)$"):
            call("t", **wrong)


def test_an_expected_offset_needs_a_partition_to_be_of(store: falaj.Store) -> None:
    topic = store.partitioned_topic("t", partitions=4)
    with pytest.raises(InvalidArgument, match="expected of several partitions"):
        topic.append(b"x", expect=0)
    with pytest.raises(InvalidArgument, match="expected of several partitions"):
        topic.extend([b"x", b"y"], expect=0)
    assert len(topic) == 0
    assert topic.append(b"x", expect=0, partition=2) is not None
    assert topic.append(b"x", expect=0, producer="p", sequence=0) is not None
    assert store.topic("one").append(b"x", expect=0) == 0


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf")])
def test_a_timeout_that_is_none_is_refused_from_asyncio_too(
    store: falaj.Store, timeout: float
) -> None:
    topic = store.topic("t")

    async def wait() -> None:
        with pytest.raises(InvalidArgument, match="a timeout is a number of seconds from 0 on"):
            await anext(aiter(topic.afollow(timeout=timeout)))
        with pytest.raises(InvalidArgument, match="a timeout is a number of seconds from 0 on"):
            await store.queue("jobs").atake(timeout=timeout)
        with store.consumer("c", topics=[topic]) as consumer:
            with pytest.raises(InvalidArgument, match="a timeout is a number of seconds from 0 on"):
                await consumer.apoll(1, timeout=timeout)
            wrong: Any = [1]
            with pytest.raises(TypeError, match="seconds, a timedelta or text"):
                await consumer.apoll(1, timeout=wrong)

    asyncio.run(wait())
