"""Another reader, written from docs/FORMAT.md alone, reads every record that falaj wrote."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import falaj
from proof import beside, generate, reader
from proof.layout import Damage, UnsupportedVersion
from proof.model import Model

Contents = dict[str, list[list[reader.Read]]]
"""The records of each topic and partition."""

RICH = {
    *("void", "supersedes", "group", "segments", "orphans", "quarantined", "backups"),
    *("keys", "headers", "event times", "empty", "index entries", "clean ends", "controls"),
    *("succeeded", "pwrite", "tombstones", "compacted", "producers", "trimmed", "shared"),
    *("tokens", "cursors", "consumers", "kept cursors", "queues", "done", "staged"),
}
"""Features that a corpus must contain."""


def by_falaj(path: Path) -> Contents:
    with falaj.open(path, read_only=True) as store:
        return {
            name: [
                [as_read(record) for record in topic.partition(p)]
                for topic in [store.any_topic(name)]
                for p in topic.partitions
            ]
            for name in store.topics
        }


def as_read(record: Any) -> reader.Read:
    raw = record.raw
    value = None if raw is None else bytes(raw)
    return reader.Read(record.offset, record.timestamp_ns, record.key, record.headers, value)


def by_the_other(store: reader.Store) -> Contents:
    return {name: [p.records for p in topic.partitions] for name, topic in store.topics.items()}


def is_expected(model: Model, found: Contents) -> None:
    assert found.keys() == model.topics.keys()
    for name, topic in model.topics.items():
        for records, expected in zip(found[name], topic.partitions, strict=True):
            assert {r.offset: (r.value, r.key, r.headers) for r in records} == {
                offset: r[:3] for offset, r in expected.items()
            }
            for read in records:
                time = expected[read.offset][3]
                assert time is None or time == read.timestamp_ns


def stands_beside(path: Path, model: Model, other: reader.Store) -> None:
    """Compare the parts beside the records with what was acknowledged, as both readers see them."""
    seen = other.seen
    logs = {log.generation.hex(): log for log in other.logs}
    homes = {name: topic.settings for name, topic in other.topics.items()}
    with falaj.open(path, read_only=True) as store:
        told = store.info()
        for name, expected in model.topics.items():
            opened, home = store.any_topic(name), homes[name]
            facts = logs[home["log_generation"]].facts
            seen["shared"] += home["log"] != name
            seen["trimmed"] += any(p.first for p in other.topics[name].partitions)
            for series, number in expected.tokens.items():
                found = facts.tokens[home["number"], series.encode()]
                assert number == opened.last_idempotency_key(series) == found[0]
                seen["tokens"] += 1
            for cursor, offset in model.cursors.get(expected.log, {}).items():
                known = opened.cursor(cursor)
                assert known is not None
                assert offset == known.offset == facts.cursors[cursor.encode()][0]
                seen["cursors"] += 1
    for one in told["groups"]:
        file = beside.consumer(path / "consumers" / one["name"], told["id"])
        assert one["error"] is None or any(file.log)
        for place in one["partitions"]:
            key = (one["name"], place["topic"], place["partition"])
            if place["topic"] not in homes or homes[key[1]]["generation"] != place["generation"]:
                continue
            own = (place["generation"], key[2])
            [held] = [c for c in file.cursors if (c.generation.hex(), c.partition) == own]
            read = held.committed
            if any(file.log):
                kept = f"{key[0]}\0{place['generation']}\0{key[2]}".encode()
                read = logs[file.log.hex()].facts.cursors.get(kept, (held.safe,))[0]
                seen["kept cursors"] += 1
            seen["consumers"] += 1
            # After a power failure it resumes where the topic still has the records that were read.
            assert read == place["committed"] or (model.cut and place["committed"] < read)
            assert read == model.consumed.get(key, read)
    for queue in told["queues"]:
        state = beside.queue(path / "queues" / queue["name"])
        assert (state.floor, state.floor + state.done) == (queue["floor"], queue["done"])
        topic, done = model.queued[queue["name"]]
        there = model.topics[topic].partitions[0].keys() & state.states.keys()
        for offset, (what, _) in ((offset, state.states[offset]) for offset in there):
            told_done = what == beside.DONE
            assert told_done == (offset in done) or (model.cut and not told_done), (
                f"{queue} {offset}"
            )
        seen["queues"] += 1
        seen["done"] += state.done
    for log in other.logs:
        for file_ in log.path.glob("staging/*/*"):
            seen["staged"] += len(beside.part(file_, log.generation).records)


def agree(path: Path, seed: int) -> Counter[str]:
    """Make a store, and compare both readers on it."""
    model = generate.make(path, seed)
    other = reader.read_store(path)
    found = by_the_other(other)
    assert found == by_falaj(path)
    is_expected(model, found)
    stands_beside(path, model, other)
    other.seen["pwrite"] += other.settings["write_mode"] == "pwrite"
    if seed % 5 == 0:
        with falaj.open(path, read_only=True) as store:
            store.backup(path.with_name("copy"))
        assert by_the_other(reader.read_store(path.with_name("copy"))) == found
        other.seen["backups"] += 1
    return other.seen


@pytest.mark.timeout(1200)
def test_both_readers_agree_on_every_store_of_the_corpus(
    place: Path, budget: Callable[[int, int], int], first_seed: int
) -> None:
    seen: Counter[str] = Counter()
    seeds = range(first_seed, first_seed + budget(100, 520))
    for seed in seeds:
        (place / "one").mkdir()
        try:
            seen += agree(place / "one" / "store", seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        shutil.rmtree(place / "one")
    assert seen.keys() >= RICH, f"never seen: {RICH - seen.keys()}"
    assert seen["records"] > 50 * len(seeds)


@pytest.mark.timeout(600)
def test_no_flipped_bit_makes_either_reader_tell_something_else(
    place: Path, budget: Callable[[int, int], int], first_seed: int
) -> None:
    sound = place / "sound"
    generate.make(sound, seed=4)
    expected = by_falaj(sound)
    draw = random.Random(first_seed + 1)
    files = [p for p in sorted(sound.rglob("*")) if p.suffix in (".log", ".idx", ".json")]
    caught: Counter[str] = Counter()
    for n in range(budget(40, 1000)):
        store = place / f"flipped-{n}"
        shutil.copytree(sound, store)
        path = store / draw.choice(files).relative_to(sound)
        data = bytearray(path.read_bytes())
        bit = draw.randrange(8 * len(data.rstrip(b"\0")))
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        told = f"bit {bit} of {path}"
        try:
            found = by_the_other(reader.read_store(store))
        except (Damage, UnsupportedVersion):
            caught["by the other"] += 1
        else:
            assert found == expected, told
        try:
            assert by_falaj(store) == expected, told
        except falaj.Error:
            caught["by falaj"] += 1
        shutil.rmtree(store)
    assert min(caught["by the other"], caught["by falaj"]) > 10
