"""Make golden stores that are missing: `PYTHONPATH=tests python -m proof.make_golden`.

To add a store, add a function here, run this, and check the JSON that it writes: every later
version must give the same answers. Existing stores are left unchanged.
"""

import json
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import falaj
from proof import generate, layout, reader
from proof.craft import Craft, change_settings, counted, entry, varint
from proof.forks import forked
from proof.golden import FOLDER, answers, beside, pack, worst
from proof.layout import Record

SEGMENT_BYTES = 1 << 16
RICH = layout.RICH
HELD: list[object] = []
"""Handles that are open when their process is killed."""


def topic_in(store: falaj.Store, name: str = "t") -> falaj.Topic[memoryview]:
    return store.topic(name, codec="raw", segment_bytes=SEGMENT_BYTES)


def values(store: Path, n: int = 5, size: int = 0) -> None:
    with falaj.open(store) as opened:
        topic = topic_in(opened)
        for i in range(n):
            topic.append(b"value %d" % i + bytes([i]) * size)


def plain(store: Path) -> None:
    """Topics, partitions, codecs, groups, keys, headers, event times."""
    with falaj.open(store) as opened:
        json_topic = opened.topic("json", codec="json", segment_bytes=SEGMENT_BYTES)
        json_topic.extend([{"n": n} for n in range(20)])
        three = opened.partitioned_topic("three", partitions=3, segment_bytes=SEGMENT_BYTES)
        three.extend([(b"key %d" % n, b"value %d" % n) for n in range(30)])
        rich = topic_in(opened, "rich")
        rich.append(b"", b"", headers=[("a", None), ("a", b""), ("\N{SNOWMAN}", b"1")])
        rich.append(b"early", timestamp_ns=-1_000_000 * 10**9)
        rich.append(b"late", timestamp_ns=4_000_000_000 * 10**9)
        rich.extend(
            [
                falaj.NewRecord(b"x" * n, b"k", headers={"h": b"v"}, timestamp_ns=n * 10**9)
                for n in range(5)
            ]
        )
        rich.append(b"")
        opened.topic("empty.tmp", codec="str", segment_bytes=SEGMENT_BYTES)


def rolled(store: Path) -> None:
    values(store, 12, 12_000)


def finished(store: Path) -> None:
    """Topics that were finished: alone and with records, in meta blocks and in snapshots."""
    with falaj.open(store) as opened:
        day = opened.topic("day", log="days", segment_bytes=SEGMENT_BYTES)
        parts = opened.partitioned_topic(
            "parts", log="days", partitions=2, segment_bytes=SEGMENT_BYTES
        )
        rest = opened.topic("rest", log="days", segment_bytes=SEGMENT_BYTES)
        day.append(b"the last one")
        day.finish()
        for n in range(8):
            rest.append(b"%d" % n * 9_000)
        with opened.transaction() as tx:
            tx.append(parts, b"the last one", partition=1)
            tx.append(rest, b"not the last one")
            tx.finish(parts)


def remembered(store: Path) -> None:
    """Expiring producers, metadata of commits in a file and in a log, and properties of a topic."""
    with falaj.open(store) as opened:
        work = opened.topic("work", segment_bytes=SEGMENT_BYTES)
        sums = opened.topic("sums", segment_bytes=SEGMENT_BYTES)
        work.configure(properties={"content-type": "text/csv", "größe": '"3"\n'})
        session = falaj.ExpiringProducer("web-7f3a")
        for n in range(8):
            work.append(b"%d" % n * 9_000, producer=session, sequence=n)
        work.append(b"by a named one", producer="web-7f3a", sequence=0)
        with opened.consumer("billing", "work") as billing:
            billing.commit(3, metadata="invoice 17")
        with opened.consumer("adder", "work", cursor_in=sums) as adder:
            adder.commit(2, metadata="before a roll: é")
            for n in range(8):
                sums.append(b"%d" % n * 9_000)
            next(iter(adder))
            with opened.transaction() as tx:
                tx.append(sums, b"a sum")
                tx.commit_cursor(adder, metadata="sum 3")


def written_through(store: Path) -> None:
    generate.write_through(store)
    values(store, 12, 12_000)


def recovered(store: Path) -> None:
    """Void blocks, cuts, carried-over blocks, quarantine: seeds that have them."""
    maker = generate.Maker(store, 21)
    make, both = maker.create, maker.extend
    for move in (make, make, both, both, maker.die_half_way, maker.latch, maker.lose_power):
        maker.moves(4)
        move()
    maker.close()


def unrecovered(store: Path) -> None:
    """Left by a killed writer that had not synced."""
    values(store)

    def work() -> None:
        opened = falaj.open(store, sync="none")
        topic = topic_in(opened)
        topic.extend([b"not synced"] * 3)
        HELD.extend([opened, topic])

    forked(work, last=lambda: None)


def tombstones(store: Path) -> None:
    """Tombstones, needless zero bytes in varints, producers, and entries of later versions."""
    values(store)
    made = Craft(store, "t")
    made.records([Record(0, None, b"gone", (), None), Record(1, b"", b"", (), -5)], RICH, base=7)
    made.block(layout.DATA, varint(3, 2) + b"abc", made.next - made.base, 1)
    made.next += 1
    made.records([Record(0, b"of a producer", None, (), None)], 0, producer=(77, 1))
    kinds = entry(4, struct.pack("<IIQqQQI", 0, 1, 77, 5, 1, made.next - 1, 1))
    kinds += entry(5, struct.pack("<IQq", 0, 2, 1_790_000_000_000) + b"token")
    kinds += entry(6, struct.pack("<QQH", 3, 4, 8) + b"consumer")
    made.block(layout.META, kinds)
    made.records([Record(0, b"after", None, (("h", None),), 2**62)], RICH)
    made.finish()


def compacted(store: Path) -> None:
    """Offsets with gaps."""
    values(store)
    made = Craft(store, "t")
    made.records(
        [Record(1, b"six", None, (), None), Record(4, b"nine", b"k", (), None)], RICH, span=7
    )
    made.records([Record(0, b"twelve", None, (), None)], 0)
    made.finish()
    change_settings(store / "topics/t/topic.json", compacted=True)


def trimmed(store: Path) -> None:
    """Retention deleted the first segment."""
    values(store, 12, 12_000)
    made = Craft(store, "t")
    second = reader.segments(made.log)[1]
    assert second is not None
    snapshot = layout.block(second.data, layout.FIRST_BLOCK, second.header.salt)
    told = dict(layout.entries(snapshot.body))  # type: ignore[union-attr]
    first = told[1].next  # type: ignore[union-attr]
    made.block(layout.META, entry(3, struct.pack("<IQ", 0, first)))
    made.finish()
    for path in made.log.glob("00000000000000000000.*"):
        path.unlink()


# --- Written by compaction, trims, bulk loads, groups and transactions
# --------------------------------


def tombstoned(store: Path) -> None:
    """Compacted twice, with tombstones and a producer's records, then written to again."""
    with falaj.open(store) as opened:
        prices = opened.partitioned_topic(
            "prices", partitions=2, segment_bytes=SEGMENT_BYTES, compacted=True, sync="none"
        )
        for n in range(300):
            prices.append(b"price %d" % n + bytes(300), b"%d" % (n % 17))
        for n in range(5):
            prices.append(
                b"by a producer", b"%d" % n, headers={"n": b"h"}, producer="till", sequence=n
            )
        prices.tombstone(b"3")
        prices.append(b"no key", partition=1)
        prices.compact(seal=True)
        prices.extend([(b"%d" % n, b"again") for n in range(9)])
        prices.tombstone(b"4")
        prices.compact(seal=True, delete_retention=0)
        prices.append(b"last", b"3", timestamp_ns=1_790_000_000 * 10**9)


def cut_off(store: Path) -> None:
    """Trimmed: within a segment, one partition alone, everything; and written to again."""
    with falaj.open(store) as opened:
        topic = topic_in(opened)
        for n in range(12):
            topic.append(b"value %d" % n + bytes(12_000))
        topic.trim(before_offset=6)
        topic.trim(before_offset=7)
        topic.append(b"behind it")
        parts = opened.partitioned_topic("parts", partitions=2, segment_bytes=SEGMENT_BYTES)
        for n in range(20):
            parts.append(b"part %d" % n, partition=n % 2)
        parts.partition(1).trim(before_offset=4)
        everything = opened.topic("everything", segment_bytes=SEGMENT_BYTES)
        everything.extend([b"gone"] * 3)
        everything.trim(before_offset=3)


def jobs(store: Path) -> None:
    """Committed bulk loads, small and as a segment; idempotency keys; parts that were never
    committed.
    """
    with falaj.open(store) as opened:
        orders = opened.partitioned_topic("orders", partitions=3, segment_bytes=SEGMENT_BYTES)
        for night in range(3):
            with orders.bulk_load("import", idempotency_key=("nightly", 20_261_120 + night)) as job:
                for n in range(5):
                    job.append(b"order %d" % n, key=b"%d" % n, headers={"night": b"%d" % night})
        with orders.bulk_load("large", idempotency_key=("large", 1)) as job:
            for n in range(40):
                job.append(b"large %d" % n + bytes(3000), partition=n % 3, timestamp_ns=n * 10**9)
            job.tombstone(b"3")
        with orders.bulk_load("once", idempotency_key=("forgotten", 7)) as job:
            job.append(b"once")
        orders.forget_idempotency_key("forgotten")
        orders.append(b"by a producer", producer="till", sequence=3, partition=1)
        part = orders.stage("left", "0", idempotency_key=("nightly", 20_261_123))
        part.append(b"staged", key=b"k")
        part.append(b"staged, too", partition=2, timestamp_ns=5 * 10**9)
        part.finish()


def consumers(store: Path) -> None:
    """Groups with cursors in their files, durable and not, and of a deleted topic."""
    with falaj.open(store) as opened:
        first = opened.partitioned_topic("first", partitions=3, segment_bytes=SEGMENT_BYTES)
        first.extend([(b"%d" % n, b"value %d" % n) for n in range(30)])
        second = opened.topic("second", codec="str", segment_bytes=SEGMENT_BYTES)
        second.extend(["text"] * 8)
        gone = opened.topic("gone", segment_bytes=SEGMENT_BYTES)
        gone.extend([b"gone"] * 3)
        with opened.consumer("both", ["first", "second"]) as both:
            both.poll(20, timeout=0)
            both.commit(sync="durable")
            both.poll(5, timeout=0)
            both.commit()
        with opened.consumer("late", [second], start=-2) as late:
            late.poll(1, timeout=0)
            late.commit()
        with opened.consumer("lost", [gone, second], auto_commit=True) as lost:
            lost.poll(2, timeout=0)
        opened.delete_topic("gone")
        opened.topic("gone", segment_bytes=SEGMENT_BYTES).append(b"another of this name")


def queues(store: Path) -> None:
    """Queues, one of them ordered: jobs that are done, leased, given back, delayed, dead."""
    with falaj.open(store) as opened:
        work = opened.topic("work", segment_bytes=SEGMENT_BYTES)
        work.extend([(b"%d" % (n % 4), b"job %d" % n) for n in range(50)])
        with opened.queue("plain", work, max_attempts=2) as plain:
            taken = plain.take(25, lease=3600)
            for job in taken[:10]:
                job.ack()
            for job in taken[20:]:
                job.ack()
            taken[10].nack()
            taken[11].nack(delay=10**9)
            for _ in range(2):
                for job in plain.take(1, lease=3600):
                    job.nack()
            assert len(list(plain.take(9, lease=3600))) == 9
        with opened.queue("ordered", work, order="key") as ordered:
            for job in ordered.take(3, lease=3600):
                job.ack()
            assert len(list(ordered.take(2, lease=3600))) == 2
        opened.queue("untouched", work).close()


def shared(store: Path) -> None:
    """A log of several topics, transactions over them that move cursors, and a deleted topic."""
    with falaj.open(store) as opened:
        orders = opened.partitioned_topic("orders", partitions=2, segment_bytes=SEGMENT_BYTES)
        orders.extend([(b"%d" % n, b"%d" % n) for n in range(20)])
        sums = opened.topic("sums", log="shop", segment_bytes=SEGMENT_BYTES)
        parts = opened.partitioned_topic("parts", log="shop", partitions=3, codec="str")
        gone = opened.topic("gone", log="shop")
        gone.append(b"gone")
        adder = opened.consumer("adder", [orders], cursor_in="shop")
        for n in range(4):
            handed = adder.poll(4, timeout=0)
            with opened.transaction() as tx:
                tx.append(sums, b"%d" % len(handed), key=b"sum")
                tx.extend(parts, [f"part {n}", f"{n}" * 9000])
                tx.append(gone, b"too")
                tx.commit_cursor(adder)
                tx.commit_cursor(falaj.Cursor("by hand", n * 10))
        with opened.transaction() as tx:
            tx.commit_cursor(falaj.Cursor("alone", 5), into=sums)
        adder.close()
        with opened.consumer("unmoved", [orders], cursor_in=sums):
            pass
        opened.consumer("deleted", [orders], cursor_in=sums).close()
        opened.delete_group("deleted")
        opened.delete_topic("gone")
        with sums.bulk_load("bulk", idempotency_key=("bulk", 1)) as job:
            job.append(b"of a job")


# --- Corrupt, and newer --------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def segment(store: Path, n: int) -> Path:
    return next(store.glob(f"logs/t@*/{n:020}.log"))


def bad_value(store: Path) -> None:
    values(store)
    path = segment(store, 0)
    flip(path, path.read_bytes().index(b"value 3"))


def bad_header(store: Path) -> None:
    values(store, 12, 12_000)
    flip(segment(store, 1), 40)


def bad_settings(store: Path) -> None:
    values(store)
    flip(store / "topics/t/topic.json", 20)


def missing_segment(store: Path) -> None:
    values(store, 12, 12_000)
    segment(store, 1).unlink()


def torn_tail(store: Path) -> None:
    unrecovered(store)
    path = segment(store, 0)
    flip(path, path.read_bytes().index(b"not synced"))


def zeros_below_the_mark(store: Path) -> None:
    values(store)
    path = segment(store, 0)
    data = path.read_bytes()
    path.write_bytes(data[:4300] + bytes(len(data) - 4300))


def newer(make: Callable[[Craft], object]) -> Callable[[Path], None]:
    def made(store: Path) -> None:
        values(store)
        craft = Craft(store, "t")
        make(craft)
        craft.finish()

    return made


def newer_format(store: Path) -> None:
    values(store)
    change_settings(store / "falaj.json", format=3)


def newer_member(store: Path) -> None:
    values(store)
    change_settings(store / "topics/t/topic.json", retention_ms=1)


def newer_partitioner(store: Path) -> None:
    values(store)
    change_settings(store / "topics/t/topic.json", partitioner="murmur2")


STORES: dict[str, Callable[[Path], None]] = {
    "plain": plain,
    "rolled": rolled,
    "finished": finished,
    "remembered": remembered,
    "pwrite": written_through,
    "recovered": recovered,
    "unrecovered": unrecovered,
    "tombstones": tombstones,
    "compacted": compacted,
    "trimmed": trimmed,
    "tombstoned": tombstoned,
    "cutoff": cut_off,
    "jobs": jobs,
    "consumers": consumers,
    "queues": queues,
    "shared": shared,
    "damaged-value": bad_value,
    "damaged-header": bad_header,
    "damaged-settings": bad_settings,
    "damaged-missing-segment": missing_segment,
    "damaged-torn-tail": torn_tail,
    "damaged-zeros": zeros_below_the_mark,
    "newer-format": newer_format,
    "newer-member": newer_member,
    "newer-kind": newer(lambda craft: craft.block(9, b"?")),
    "newer-flag": newer(lambda craft: craft.block(layout.DATA, counted(b"?"), 5, 1, 1 << 12)),
    "newer-codec": newer(lambda craft: craft.block(layout.DATA, b"?", 5, 1, 1)),
    "newer-attribute": newer(lambda craft: craft.block(layout.DATA, b"\x80\1?", 5, 1, RICH)),
    "newer-entry": newer(lambda craft: craft.block(layout.META, entry(9, b"?"))),
    "newer-producer": newer(
        lambda craft: craft.block(layout.META, entry(4, struct.pack("<IIQq", 0, 2, 7, 0)))
    ),
    "newer-partitioner": newer_partitioner,
    "newer-staged": newer(
        lambda craft: craft.block(layout.END, struct.pack("<QQQ", 1, 2, 1) + bytes(32))
    ),
}


BESIDE = {"remembered", "tombstoned", "cutoff", "jobs", "consumers", "queues", "shared"}
"""Stores whose parts beside the records are kept too."""
TOKENS = {
    "jobs": [["orders", name] for name in ("nightly", "large", "forgotten", "never")],
    "shared": [["sums", "bulk"]],
}
CURSORS = {"shared": [["parts", "by hand"], ["sums", "alone"], ["sums", "never"]]}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, make in STORES.items():
        if (FOLDER / f"{name}.json").exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "store"
            make(store)
            pack(store, name)
            told: dict[str, Any] = {
                "about": (make.__doc__ or "").strip(),
                "reading": answers(store, "r"),
            }
            if name in BESIDE:
                told["tokens"], told["cursors"] = TOKENS.get(name, []), CURSORS.get(name, [])
                told["beside"] = beside(store, "r", told)
            told["worst"] = worst(store)
            told["writing"] = answers(store, "w")
            (FOLDER / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
