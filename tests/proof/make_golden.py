"""Make golden stores that are missing: `PYTHONPATH=tests python -m proof.make_golden`.

Whoever adds one adds a function here, runs this, and reads the JSON that comes of it: it is what
every later version is held to. Stores that are there are left as they are.
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
from proof.golden import FOLDER, answers, pack
from proof.layout import Record

SEGMENT_BYTES = 1 << 16
RICH = layout.RICH
HELD: list[object] = []
"""Handles that are open when their process is killed."""


def topic_in(store: falaj.Store, name: str = "t") -> falaj.Topic[memoryview]:
    return store.topic(name, codec="bytes", segment_bytes=SEGMENT_BYTES)


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
        three = opened.topic("three", partitions=3, segment_bytes=SEGMENT_BYTES)
        three.extend([(b"key %d" % n, b"value %d" % n) for n in range(30)])
        rich = topic_in(opened, "rich")
        rich.append(b"", b"", [("a", None), ("a", b""), ("\N{SNOWMAN}", b"1")])
        rich.append(b"early", time=-1_000_000)
        rich.append(b"late", time=4_000_000_000)
        rich.extend([falaj.NewRecord(b"x" * n, b"k", {"h": b"v"}, n) for n in range(5)])
        rich.append(b"")
        opened.topic("empty.tmp", codec="str", segment_bytes=SEGMENT_BYTES)


def rolled(store: Path) -> None:
    values(store, 12, 12_000)


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
    kinds = entry(4, struct.pack("<IQQQ", 0, 77, 1, made.next - 1))
    kinds += entry(5, struct.pack("<QQ", 1, 2) + b"token")
    kinds += entry(6, struct.pack("<QQ", 3, 4) + b"consumer")
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
    """Retention took the first segment."""
    values(store, 12, 12_000)
    made = Craft(store, "t")
    second = reader.segments(made.log)[1]
    assert second is not None
    told = dict(layout.entries(layout.block(second.data, 4096, second.header.salt).body))  # type: ignore[union-attr]
    first = told[1].next  # type: ignore[union-attr]
    made.block(layout.META, entry(3, struct.pack("<IQ", 0, first)))
    made.finish()
    for path in made.log.glob("00000000000000000000.*"):
        path.unlink()


# --- Damaged, and newer --------------------------------------------------------------------------


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
    change_settings(store / "falaj.json", format=2)


def newer_member(store: Path) -> None:
    values(store)
    change_settings(store / "topics/t/topic.json", retention_ms=1)


STORES: dict[str, Callable[[Path], None]] = {
    "plain": plain,
    "rolled": rolled,
    "pwrite": written_through,
    "recovered": recovered,
    "unrecovered": unrecovered,
    "tombstones": tombstones,
    "compacted": compacted,
    "trimmed": trimmed,
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
    "newer-entry": newer(lambda craft: craft.block(layout.META, entry(7, b"?"))),
    "newer-staged": newer(
        lambda craft: craft.block(layout.END, struct.pack("<QQQ", 1, 2, 1) + bytes(32))
    ),
}


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
            told["worst"] = falaj.verify(store)["worst"]
            told["writing"] = answers(store, "w")
            (FOLDER / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
