"""Moves that append, in every possible way."""

from typing import Any
from zlib import crc32

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

import falaj
from falaj.errors import AppendTooLarge, OffsetConflict, OutOfOrderSequence
from together import values
from together.base import KINDS, SEGMENT_BYTES, Base, keys, names, syncs, times
from together.model import Record

partitions = st.integers(0, 2)
deletions = st.sampled_from(["call", "extend", "load", "transaction"])
headers = st.sampled_from([(), (), (("h", b"1"),), (("h", None), ("h", b""))])


class Writing(Base):
    """Appends."""

    def put(self, name: str, p: int, value: Any, key: bytes | None, **rest: Any) -> None:
        """Append a value that must be accepted."""
        topic, _, p = self.part(name, p)
        time_ns = rest.pop("time_ns", None)
        given = rest.pop("headers", ())
        offset: Any = topic.append(value, key, headers=given or None, timestamp_ns=time_ns, **rest)
        record = Record(values.given_back(value), key, given)
        self.written(name, p, offset, record, time_ns)

    @rule(
        name=names, p=partitions, key=keys, time=times, headers=headers, sync=syncs, data=st.data()
    )
    def append(
        self, name: str, p: int, key: Any, time: Any, headers: Any, sync: Any, data: Any
    ) -> None:
        value = data.draw(values.GOOD[KINDS[name].codec])
        self.put(name, p, value, key, headers=headers, time_ns=time, sync=sync)

    @rule(name=names, p=partitions, key=keys, data=st.data(), many=st.booleans())
    def append_something_strange(self, name: str, p: int, key: Any, data: Any, many: bool) -> None:
        """An accepted value comes back equal; a refused one leaves nothing."""
        topic, part, p = self.part(name, p)
        value = data.draw(values.STRANGE[KINDS[name].codec])
        try:
            if many:
                topic.extend([falaj.NewRecord(value, key)])
            else:
                topic.append(value, key)
        except values.REFUSALS:
            assert topic.end_offset == part.end, (
                f"{value!r} was refused, and something was appended"
            )
        else:
            self.written(name, p, part.end, Record(values.given_back(value), key), None)

    @rule(
        name=names,
        p=partitions,
        ks=st.lists(keys, min_size=1, max_size=5),
        time=times,
        data=st.data(),
    )
    def extend(self, name: str, p: int, ks: Any, time: Any, data: Any) -> None:
        topic, part, p = self.part(name, p)
        drawn = [data.draw(values.GOOD[KINDS[name].codec]) for _ in ks]
        if time is None and data.draw(st.booleans()):
            given: Any = [
                value if k is None else (k, value) for k, value in zip(ks, drawn, strict=True)
            ]
        else:
            given = [
                falaj.NewRecord(v, k, timestamp_ns=time) for k, v in zip(ks, drawn, strict=True)
            ]
        offsets: Any = topic.extend(given)
        assert offsets == range(part.end, part.end + len(ks))
        for offset, key, value in zip(offsets, ks, drawn, strict=True):
            self.written(name, p, offset, Record(values.given_back(value), key), time)

    @rule(key=st.sampled_from([b"ann", b"bob", b"cid", b"dan"]), data=st.data())
    def append_by_key(self, key: bytes, data: Any) -> None:
        """The documented partition of a key: its CRC-32 modulo the number of partitions."""
        topic = self.topic("three")
        value = data.draw(values.GOOD["str"])
        place: Any = topic.append(value, key)
        assert place.partition == crc32(key) % 3
        self.written("three", place.partition, place.offset, Record(value, key), None)

    @rule(name=names, p=partitions, n=st.integers(2, 9), key=keys, together=st.booleans())
    def append_so_much_that_files_end(
        self, name: str, p: int, n: int, key: Any, together: bool
    ) -> None:
        topic, part, p = self.part(name, p)
        value = values.large(KINDS[name].codec, n)
        for _ in range(n):
            if together:
                topic.extend([falaj.NewRecord(value, key)])
            else:
                topic.append(value, key)
            self.written(name, p, part.end, Record(value, key), None)

    @rule(name=names, p=partitions, key=st.sampled_from([b"ann", b"bob"]), how=deletions)
    def tombstone(self, name: str, p: int, key: bytes, how: str) -> None:
        topic, part, p = self.part(name, p)
        record = Record(None, key, is_tombstone=True)
        if how == "extend":
            offset: Any = topic.extend([falaj.NewRecord.tombstone(key)])[0]
        elif how == "load":
            with self.topic(name).bulk_load("deletes") as job:
                job.tombstone(key, partition=p)
            offset = job.offsets[p].start
        elif how == "transaction":
            with self.store.transaction() as tx:
                tx.tombstone(self.topic(name), key, partition=p)
            offset = part.end
        else:
            offset = topic.tombstone(key)
        self.written(name, p, offset, record, None)

    @rule(a=names, b=names, p=partitions)
    def copy_from_another_topic(self, a: str, b: str, p: int) -> None:
        """Records that were read are appended to another topic, perhaps of another codec."""
        source, original, _ = self.part(a, p)
        topic, part, p = self.part(b, p)
        copied = list(source)[:4]
        if not copied:
            return
        try:
            topic.extend(copied)
        except AppendTooLarge:
            assert sum(map(len, copied)) > SEGMENT_BYTES // 5
            return
        except values.REFUSALS:
            assert topic.end_offset == part.end
            assert KINDS[a].codec != KINDS[b].codec, "refused, although the codecs are equal"
            return
        for record in copied:
            value = values.copied(record, KINDS[a].codec, KINDS[b].codec)
            kept = Record(value, record.key, record.headers, is_tombstone=record.is_tombstone)
            given = original.records[record.offset].has_time
            self.written(b, p, part.end, kept, record.timestamp_ns if given else None)

    @rule(name=names, p=partitions, behind=st.integers(0, 2), data=st.data())
    def append_only_at_the_end(self, name: str, p: int, behind: int, data: Any) -> None:
        topic, part, p = self.part(name, p)
        value = data.draw(values.GOOD[KINDS[name].codec])
        expected = part.end - behind
        if behind == 0:
            self.put(name, p, value, None, expect=expected)
        elif expected >= 0:
            with pytest.raises(OffsetConflict) as lost:
                topic.append(value, expect=expected)
            assert lost.value.next == part.end

    @rule(
        name=st.sampled_from(["raw", "rows", "audit"]),
        step=st.sampled_from([1, 1, 0, -1, 2]),
        data=st.data(),
    )
    def append_as_a_producer(self, name: str, step: int, data: Any) -> None:
        topic, part, _ = self.part(name, 0)
        done = self.topics[name].sequences.setdefault("till", [])
        value = data.draw(values.GOOD[KINDS[name].codec])
        if not done:
            done.append((17, part.end))
            self.put(name, 0, value, b"ann", producer="till", sequence=17)
            return
        number = done[-1][0] + step
        known = dict(done[-5:])
        if step == 1:
            done.append((number, part.end))
            self.put(name, 0, value, b"ann", producer="till", sequence=number)
        elif step == 2:
            with pytest.raises(OutOfOrderSequence):
                topic.append(value, producer="till", sequence=number)
        elif number in known:
            assert topic.append(value, producer="till", sequence=number) == known[number]
        assert topic.last_sequence("till") == done[-1][0]

    @rule(
        parts=st.lists(st.sampled_from(["paid", "audit"]), min_size=1, max_size=4),
        key=keys,
        ends=st.booleans(),
        data=st.data(),
    )
    def transaction(self, parts: list[str], key: Any, ends: bool, data: Any) -> None:
        drawn = [(name, data.draw(values.GOOD[KINDS[name].codec])) for name in parts]
        for name, _ in drawn:
            self.topic(name)
        try:
            with self.store.transaction() as tx:
                for name, value in drawn:
                    tx.append(self.topic(name), value, key)
                if not ends:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            return
        for name, value in drawn:
            end = self.topics[name].partitions[0].end
            self.written(name, 0, end, Record(values.given_back(value), key), None)

    @rule(
        name=names,
        ks=st.lists(keys, min_size=0, max_size=4),
        token=st.integers(-1, 2),
        ends=st.booleans(),
        data=st.data(),
    )
    def bulk_load(self, name: str, ks: Any, token: int, ends: bool, data: Any) -> None:
        topic, model = self.topic(name), self.topics[name]
        last = model.tokens.get("series")
        number = (0 if last is None else last) + token
        drawn = [(k, data.draw(values.GOOD[KINDS[name].codec])) for k in ks]
        try:
            with topic.bulk_load(
                "load", idempotency_key=("series", number) if number > 0 else None
            ) as job:
                for i, (key, value) in enumerate(drawn):
                    job.append(value, key=key, partition=i % KINDS[name].partitions)
                if not ends:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            return
        committed = number <= 0 or last is None or number > last
        assert job.committed == committed
        if committed:
            for i, (key, value) in enumerate(drawn):
                p = i % KINDS[name].partitions
                record = Record(values.given_back(value), key)
                self.written(name, p, model.partitions[p].end, record, None)
            if number > 0:
                model.tokens["series"] = number
        assert topic.last_idempotency_key("series") == model.tokens.get("series")
