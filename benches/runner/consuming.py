"""Consumer groups: what reading with one costs, a commit, and the replacement of a dead member.

Reading is compared with a plain `for` over the same topic, in the same rounds. A hand-over begins
with the kill of a member. It ends when another member has the first record of the dead one's
partition.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import falaj
from runner.results import Measured
from runner.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection
    from pathlib import Path
    from typing import Any

    from runner.sizes import Sizes

_DURABLE = 200
"""Durable commits of a round."""


def measure(place: Path, sizes: Sizes) -> list[Measured]:
    """Read, commit, and kill members."""
    with falaj.open(place / "store", sync="none") as store:
        topic = store.topic("t", codec="raw")
        value = bytes(sizes.value_bytes)
        for _ in range(0, sizes.read_records, sizes.batch):
            topic.extend([value] * sizes.batch)
        measured = [_reading(store, topic, sizes), *_committing(store, sizes)]
    return [*measured, _hand_over(place, sizes)]


def _through(records: Iterable[Any]) -> int:
    begin = time.perf_counter_ns()
    for record in records:
        record.value[0]
    return time.perf_counter_ns() - begin


def _reading(store: falaj.Store, topic: falaj.Topic[Any], sizes: Sizes) -> Measured:
    ours: list[float] = []
    floor: list[float] = []
    with store.consumer("reading", "t") as consumer:
        for number in range(sizes.rounds + 1):
            consumer.seek("earliest")
            round_ = (_through(consumer), _through(topic))
            if number > 0:
                ours.append(round_[0] / sizes.read_records)
                floor.append(round_[1] / sizes.read_records)
    return Measured("consumer_iterate", ours, floor)


def _committing(store: falaj.Store, sizes: Sizes) -> list[Measured]:
    """Commit after each record; the time of reading it is subtracted."""
    commits: list[float] = []
    durable: list[float] = []
    with store.consumer("committing", "t") as consumer:
        commit = consumer.commit
        for _ in range(sizes.rounds):
            consumer.seek("earliest")
            spent = 0
            for _record, _ in zip(consumer, range(sizes.lookups), strict=False):
                begin = time.perf_counter_ns()
                commit()
                spent += time.perf_counter_ns() - begin
            commits.append(spent / min(sizes.lookups, sizes.read_records))
        store.topic("t").flush()
        for _ in range(sizes.rounds):
            consumer.seek("earliest")
            begin = time.perf_counter_ns()
            for _record, _ in zip(consumer, range(_DURABLE), strict=False):
                commit(sync="durable")
            durable.append((time.perf_counter_ns() - begin) / _DURABLE)
    return [Measured("consumer_commit", commits), Measured("consumer_commit_durable", durable)]


def _member(connection: Connection, path: str) -> None:
    """In a worker: own a share of the partitions until killed."""
    with falaj.open(path, sync="none") as store, store.consumer("shared", "p") as member:
        while len(member.partitions) != 1:
            member.poll(timeout=0.001)
        connection.send(member.partitions[0][1])
        for _ in member.follow():
            pass


def _hand_over(place: Path, sizes: Sizes) -> Measured:
    ours: list[float] = []
    path = str(place / "shared")
    with falaj.open(path, sync="none") as store:
        topic = store.partitioned_topic("p", partitions=2)
        with store.consumer("shared", "p") as member:
            for _ in range(sizes.kills):
                victim = Worker(_member, path)
                while len(member.partitions) != 1:
                    member.poll(timeout=0.001)
                its = victim.answer()
                member.poll(timeout=0)
                member.commit()
                victim.process.kill()
                begin = time.perf_counter_ns()
                topic.append(b"next", partition=its)
                while not member.poll(timeout=1.0):
                    continue
                ours.append(time.perf_counter_ns() - begin)
                member.commit()
                victim.process.join()
    return Measured("consumer_hand_over", ours)
