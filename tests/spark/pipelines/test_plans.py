"""Runs that go on where the last one ended, whatever dies and whatever else runs at the time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from falaj.errors import InvalidArgument
from falaj.pipeline.base.plans import Plan, Plans

if TYPE_CHECKING:
    from collections.abc import Iterator

    import falaj

SETTINGS = {"by": "key"}


class Ground:
    """A source of two partitions, a target, and makers of plans."""

    def __init__(self, store: falaj.Store) -> None:
        self.store = store
        self.source = store.partitioned_topic("source", partitions=2)
        self.into = store.topic("into")
        self.plans = self.planner()

    def planner(self, **settings: Any) -> Plans:
        return Plans(self.store, "dedupe", self.source, self.into, settings or SETTINGS)

    def append(self, *partitions: int) -> None:
        for partition in partitions:
            self.source.append(b"x", partition=partition)

    def next(self, end: Any = None) -> Plan | None:
        return self.plans.next("earliest", end)

    def commit(self, plan: Plan) -> bool:
        with self.into.bulk_load("work", idempotency_key=(self.plans.token, plan.number)) as job:
            job.append(b"done")
        return bool(job.committed)


@pytest.fixture
def ground(store: falaj.Store) -> Iterator[Ground]:
    made = Ground(store)
    yield made
    made.plans.close()


def lanes(plan: Plan | None) -> Any:
    return plan and plan.lanes


def test_a_run_begins_where_the_last_one_that_was_committed_ended(ground: Ground) -> None:
    assert ground.next() is None
    ground.append(0, 0, 1)
    first = ground.next()
    assert first == Plan(0, ((0, 0, 2), (1, 0, 1)), 0, begun=False)
    assert ground.commit(first)
    assert ground.next() is None
    ground.append(1)
    assert ground.next() == Plan(1, ((0, 2, 2), (1, 1, 2)), 0, begun=False)


def test_an_end_before_where_the_last_run_ended_takes_nothing_back(ground: Ground) -> None:
    ground.append(0, 0, 0, 1)
    for end, planned in ((None, ((0, 0, 3), (1, 0, 1))), (1, None)):
        plan = ground.next(end)
        assert lanes(plan) == planned
        assert plan is None or ground.commit(plan)
    ground.append(1, 1)
    short = ground.next(end=2)  # of partition 0 all of that was read
    assert short == Plan(1, ((0, 3, 3), (1, 1, 2)), 0, begun=False)
    ground.commit(short)
    assert lanes(ground.next()) == ((0, 3, 3), (1, 2, 3))


def test_who_comes_after_a_death_does_the_same_work_under_the_same_number(ground: Ground) -> None:
    ground.append(0)
    died = ground.next()
    assert died is not None
    ground.append(0, 1)
    again = Ground.planner(ground).next("earliest", None)
    assert again == Plan(died.number, died.lanes, 0, begun=True)
    assert ground.commit(again)
    assert not ground.commit(died)
    assert lanes(ground.next()) == ((0, 1, 2), (1, 0, 1))


def test_two_that_plan_at_once_get_one_plan(ground: Ground, monkeypatch: Any) -> None:
    ground.append(0)
    other = ground.planner()
    find = other._find
    faster: list[Plan | None] = []

    def slow(seen: int, number: int) -> Any:
        found = find(seen, number)
        if not faster:
            faster.append(ground.next())
            ground.append(1)
        return found

    monkeypatch.setattr(other, "_find", slow)
    assert lanes(other.next("earliest", None)) == lanes(faster[0]) == ((0, 0, 1), (1, 0, 0))


def test_other_settings_are_refused(ground: Ground) -> None:
    ground.append(0)
    ground.next()
    with pytest.raises(InvalidArgument, match="with by = 'key', not 'value'"):
        ground.planner(by="value").next("earliest", None)


def test_what_was_trimmed_before_it_was_read_is_counted(ground: Ground) -> None:
    ground.append(0, 0, 0, 1)
    first = ground.next(end=1)
    assert first is not None
    ground.commit(first)
    ground.source.partition(0).trim(before_offset=2)
    assert ground.next() == Plan(1, ((0, 2, 3), (1, 1, 1)), 1, begun=False)


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    ground: Ground, store: falaj.Store
) -> None:
    ground.append(0, 0)
    done = ground.next()
    assert done is not None
    ground.commit(done)
    ground.append(0)
    assert ground.next() is not None  # begun, and never done
    ground.source.delete()
    ground.source = store.partitioned_topic("source", partitions=2)
    ground.append(1)
    ground.plans = ground.planner()
    lost = ground.next()
    assert lost is not None
    assert (lost.offsets, lost.lost, lost.recreated) == (0, 1, True)
    ground.commit(lost)
    plan = ground.next()
    assert plan == Plan(2, ((0, 0, 0), (1, 0, 1)), 0, begun=False, recreated=True)
    ground.commit(plan)
    ground.append(1)
    assert ground.next() == Plan(3, ((0, 0, 0), (1, 1, 2)), 0, begun=False)


def test_a_plan_of_a_topic_that_was_made_anew_says_so_until_it_is_done(
    ground: Ground, store: falaj.Store
) -> None:
    ground.append(0, 1)
    done = ground.next()
    assert done is not None
    ground.commit(done)
    ground.source.delete()
    ground.source = store.partitioned_topic("source", partitions=2)
    ground.plans = ground.planner()
    wanted = Plan(1, ((0, 0, 0), (1, 0, 0)), 0, begun=False, recreated=True)
    assert ground.planner().next(7, None) == wanted  # also without a record
    again = ground.planner().next(7, None)
    assert again == replace(wanted, begun=True)
    ground.commit(again)
    assert ground.next() is None


def test_a_target_that_was_made_anew_gets_everything(ground: Ground, store: falaj.Store) -> None:
    ground.append(0)
    done = ground.next()
    assert done is not None
    ground.commit(done)
    ground.into.delete()
    ground.into = store.topic("into")
    ground.plans = ground.planner()
    assert ground.next() == Plan(0, ((0, 0, 1), (1, 0, 0)), 0, begun=False)
