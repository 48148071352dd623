"""Every golden store opens, gives the same answers as when it was made, and takes appends."""

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest

import falaj
from proof import beside, golden, reader

SOUND = [name for name in golden.names() if "-" not in name]
BESIDE = [name for name in SOUND if "beside" in golden.expected(name)]
KIB_MAX = 64


def test_golden_stores_are_small_and_of_every_kind() -> None:
    assert {"plain", "rolled", "pwrite", "recovered", "unrecovered", "compacted"} <= {*SOUND}
    assert {"tombstoned", "cutoff", "jobs", "consumers", "queues", "shared"} <= {*BESIDE}
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
    assert golden.answers(path, "r", io="pread") == kept["reading"]
    assert golden.worst(path) == kept["worst"]
    assert golden.answers(path, "w") == kept["writing"]
    assert golden.answers(path, "r") == kept["writing"] or "error" in str(kept["writing"])


def test_the_topics_of_a_golden_store_are_still_finished(place: Path) -> None:
    path = golden.unpack("finished", place)
    for read_only in (True, False):
        with falaj.open(path, read_only=read_only) as store:
            found = {topic["name"]: topic["finished"] for topic in store.info()["topics"]}
            assert found == {"day": True, "parts": True, "rest": False}
            if not read_only:
                with pytest.raises(falaj.errors.TopicFinished):
                    store.topic("day").append(b"late")


def test_a_golden_store_still_has_metadata_properties_and_expiring_producers(place: Path) -> None:
    path = golden.unpack("remembered", place)
    for read_only in (True, False):
        with falaj.open(path, read_only=read_only) as store:
            work = store.topic("work")
            assert work.properties == {"content-type": "text/csv", "größe": '"3"\n'}
            told = {
                group["name"]: [(one["committed"], one["metadata"]) for one in group["partitions"]]
                for group in store.info()["groups"]
            }
            assert told == {"billing": [(3, "invoice 17")], "adder": [(3, "sum 3")]}
            known = {each.sequence: each.expiring for each in work.producers()}
            assert known == {7: True, 0: False}
            if not read_only:
                session = falaj.ExpiringProducer("web-7f3a")
                assert work.append(b"again", producer=session, sequence=3) == 3


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


@pytest.mark.parametrize("name", BESIDE)
def test_what_stands_beside_the_records_is_as_it_was_kept(name: str, place: Path) -> None:
    """Read only, by the other reader, and opened for writing."""
    path = golden.unpack(name, place)
    kept = golden.expected(name)
    assert golden.beside(path, "r", kept) == kept["beside"]
    other = reader.read_store(path)
    assert [told_by(other, *asked) for asked in kept["tokens"]] == kept["beside"]["tokens"]
    for asked, offset in zip(kept["cursors"], kept["beside"]["cursors"], strict=True):
        cursor = log_of(other, asked[0]).facts.cursors.get(asked[1].encode())
        assert (cursor and cursor[0]) == offset
    for consumer, (_, cursors, _) in kept["beside"]["consumers"].items():
        assert cursors_of(other, path, consumer) == [told[:3] for told in cursors]
    for queue, numbers in kept["beside"]["queues"].items():
        found = beside.queue(path / "queues" / queue)
        told = dict(zip(golden.COUNTED, numbers, strict=True))
        ends = (found.topic, found.floor, found.floor + found.done, found.trimmed, found.dead)
        assert ends == tuple(told[of] for of in ("topic", "floor", "done", "trimmed", "dead"))
        assert found.ordered == (told["order"] == "key")
        states = told["done"] + told["in_flight"] + told["open"]
        assert states == len(other.topics[found.topic].partitions[0].records)
    assert golden.beside(path, "w", kept) == kept["beside"]


def log_of(store: reader.Store, topic: str) -> reader.Log:
    told = store.topics[topic].settings["log_generation"]
    return next(log for log in store.logs if log.generation.hex() == told)


def told_by(store: reader.Store, topic: str, token: str) -> int | None:
    number = store.topics[topic].settings["number"]
    found = log_of(store, topic).facts.tokens.get((number, token.encode()))
    return found and found[0]


def cursors_of(store: reader.Store, path: Path, name: str) -> list[list[Any]]:
    """Return topic, partition and offset of a group's cursors, wherever they are."""
    file = beside.consumer(path / "consumers" / name, store.settings["store"])
    if not any(file.log):
        return sorted([c.topic, c.partition, c.committed] for c in file.cursors)
    log = next(log for log in store.logs if log.generation == file.log)
    kept = {
        (c.topic, c.partition): f"{name}\0{c.generation.hex()}\0{c.partition}".encode()
        for c in file.cursors
    }
    return sorted([*of, log.facts.cursors[key][0]] for of, key in kept.items())


def test_consumers_queues_jobs_and_transactions_of_kept_stores_go_on(place: Path) -> None:
    for name in ("consumers", "queues", "jobs", "shared"):
        golden.unpack(name, place / name)
    with falaj.open(place / "consumers/store") as store:
        both = store.consumer("both", ["first", "second"])
        cursors = golden.expected("consumers")["beside"]["consumers"]["both"][1]
        left = sorted(topic for topic, _, _, lag in cursors for _ in range(lag))
        assert len(left) == 13
        assert sorted(record.topic for record in both) == left
        both.commit(sync="durable")
        late = store.consumer("late", "second")
        assert [record.offset for record in late] == [7]
        lost = store.consumer("lost", ["gone", "second"])
        assert sorted(record.topic for record in lost) == ["gone"] + ["second"] * 8
    with falaj.open(place / "queues/store") as store:
        plain = store.queue("plain", "work")
        done = {*range(10), *range(20, 25), plain.info()["floor"] - 1}
        taken: set[int] = set()
        while jobs := plain.take(
            100, timeout=0
        ):  # jobs that a dead process had begun are delivered alone
            taken |= {job.offset for job in jobs}
            jobs.ack()
        assert taken.isdisjoint(done)
        assert plain.info()["ready"] == 0
        ordered, left = store.queue("ordered", "work"), list[int]()
        while len(left) < 3 and (jobs := ordered.take(3 - len(left), timeout=0)):
            left += [job.offset for job in jobs]
            jobs.ack()
        assert left == [3, 4, 5]
    with falaj.open(place / "jobs/store") as store:
        orders = store.partitioned_topic("orders")
        with orders.bulk_load("again", idempotency_key=("nightly", 20_261_122)) as job:
            job.append(b"twice")
        assert (job.done, job.committed) == (True, False)
        with orders.bulk_load("next", idempotency_key=("nightly", 20_261_123)) as job:
            job.append(b"once")
        assert job.committed
        assert orders.append(b"again", producer="till", sequence=3, partition=1) == (1, 23)
    with falaj.open(place / "shared/store") as store:
        adder = store.consumer("adder", "orders", cursor_in="shop")
        assert [(record.partition, record.offset) for record in adder] == [
            (1, n) for n in range(8, 12)
        ]
        with store.transaction() as tx:
            tx.append("sums", b"4")
            tx.append("parts", "new")
            tx.commit_cursor(adder)
        assert (adder.lag, store.topic("sums").end_offset) == (0, 6)


def test_a_part_that_was_staged_and_kept_is_read_by_the_other_reader(place: Path) -> None:
    path = golden.unpack("jobs", place)
    [log] = reader.read_store(path).logs
    [file] = log.path.glob("staging/*/*")
    staged = beside.part(file, log.generation)
    assert (staged.whole, staged.token_version) == (True, 20_261_123)
    shown = [(p, record.key, record.value) for p, record in staged.records]
    assert shown == [(1, b"k", b"staged"), (2, None, b"staged, too")]


@pytest.mark.parametrize("name", SOUND)
def test_a_golden_store_goes_on(name: str, place: Path) -> None:
    path = golden.unpack(name, place)
    kept: dict[str, Any] = golden.expected(name)["writing"]
    with falaj.open(path) as store:
        for topic, partitions in kept.items():
            opened = store.any_topic(topic)
            if opened.codec != "bytes" or opened.finished:
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
                assert part[partition["end"]].to_bytes().startswith(b"new")
    assert falaj.verify(path)["sound"]


def test_an_archive_that_is_not_what_it_was_is_noticed(tmp_path: Path) -> None:
    """The tests above read what git gives them: xz has a checksum of its own."""
    data = bytearray((golden.FOLDER / "plain.tar.xz").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "bad.tar.xz").write_bytes(data)
    with pytest.raises(lzma.LZMAError), tarfile.open(tmp_path / "bad.tar.xz") as archive:
        archive.getmembers()
