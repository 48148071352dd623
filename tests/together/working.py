"""Moves of consumer groups and of work queues."""

from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from falaj.errors import LeaseExpired, OffsetOutOfRange
from together import looks, values
from together.base import (
    KINDS,
    Base,
    absent,
    members,
    names,
    queues,
    singles,
    some_absent,
    some_members,
    some_queues,
)
from together.model import Group, Queue, Record

GROUPS = st.sampled_from(["billing", "audits"])
QUEUES = st.sampled_from(["work", "mail"])
starts = st.sampled_from(["earliest", "latest", -1, -3])
HOUR = 3600.0
SETTLED = st.sampled_from(["keep", "ack", "nack", "later"])


class Reading(Base):
    """Groups: join, poll, commit, seek, leave, and read other topics from now on."""

    def place(self, start: Any, name: str, p: int) -> int:
        part = self.topics[name].partitions[p]
        if start == "earliest":
            return part.first
        return part.end if start == "latest" else part.from_the_end(-start)

    @rule(group=GROUPS, chosen=st.sets(names, min_size=1, max_size=3), start=starts)
    def join(self, group: str, chosen: set[str], start: Any) -> None:
        """Open a group; a new topic begins at the given start, and keeps its records at once."""
        if group in self.members:
            return
        topics = sorted(chosen)
        opened: list[Any] = [self.topic(name) for name in topics]
        known = self.groups.setdefault(group, Group(topics))
        known.topics = topics
        self.members[group] = self.store.consumer(group, opened, start=start)
        for name in topics:
            for p in range(KINDS[name].partitions):
                place = known.committed.setdefault((name, p), self.place(start, name, p))
                known.position[name, p] = place

    @some_absent
    @rule(group=absent, data=st.data())
    def forget_a_topic_of_a_group(self, group: str, data: Any) -> None:
        """It has no lag there any more, and no longer keeps records from deletion."""
        known = self.groups[group]
        names_left = sorted({name for name, _ in known.committed})
        if names_left:
            name = data.draw(st.sampled_from(names_left))
            self.store.forget_topic(group, name)
            for of in [of for of in known.committed if of[0] == name]:
                del known.committed[of]

    @some_members
    @rule(group=members, n=st.integers(1, 6), how=st.sampled_from(["poll", "batches", "for"]))
    def poll(self, group: str, n: int, how: str) -> None:
        member, known = self.members[group], self.groups[group]
        gone = self.before_what_is_kept(known)
        found: list[Any] = []
        lost = None
        try:
            if how == "poll":
                found += member.poll(n, timeout=0)
            elif how == "for":
                for record in member:
                    found.append(record)
            else:
                for batch in member.batches(n, timeout=0):
                    found += batch
        except OffsetOutOfRange as error:
            lost = error
        ahead: dict[tuple[str, int], list[int]] = {}
        for record in found:
            of = record.topic, record.partition
            part = self.topics[record.topic].partitions[record.partition]
            assert of not in gone, f"{of} was trimmed, and {record.offset} is delivered"
            left = ahead.setdefault(of, part.behind(known.position[of]))
            looks.is_record(record, left.pop(0), part.records[record.offset])
            known.position[of] = record.offset + 1
        if lost is not None:
            where = lost.topic, lost.partition
            assert where in gone, f"{where} is reported as gone"
            member.seek("earliest", topic=lost.topic, partition=lost.partition)
            known.position[where] = self.topics[lost.topic].partitions[lost.partition].first
            return
        assert how == "poll" or not gone, f"{gone} were trimmed, and nothing says so"
        if how != "poll":
            for name, p in known.position:
                assert not self.topics[name].partitions[p].behind(known.position[name, p])

    def before_what_is_kept(self, known: Group) -> set[tuple[str, int]]:
        return {
            of
            for of, at in known.position.items()
            if at < self.topics[of[0]].partitions[of[1]].first
        }

    @some_members
    @rule(group=members)
    def commit(self, group: str) -> None:
        member, known = self.members[group], self.groups[group]
        member.commit()
        known.committed.update(known.position)

    @some_members
    @rule(group=members, to=starts, data=st.data())
    def seek(self, group: str, to: Any, data: Any) -> None:
        known = self.groups[group]
        name, p = data.draw(st.sampled_from(sorted(known.position)))
        self.members[group].seek(to, topic=name, partition=p)
        known.position[name, p] = self.place(to, name, p)

    @some_members
    @rule(group=members)
    def rewind(self, group: str) -> None:
        self.members[group].rewind()
        known = self.groups[group]
        known.position.update({of: known.committed[of] for of in known.position})

    @some_members
    @rule(group=members)
    def leave(self, group: str) -> None:
        self.members.pop(group).close()
        self.groups[group].position.clear()

    @some_absent
    @rule(group=absent, to=starts, data=st.data())
    def reset_from_outside(self, group: str, to: Any, data: Any) -> None:
        known = self.groups[group]
        if known.committed:
            name, p = data.draw(st.sampled_from(sorted(known.committed)))
            said = self.store.seek_group(group, name, to, partition=p)
            assert said == {p: self.place(to, name, p)}
            known.committed[name, p] = said[p]

    @some_absent
    @rule(group=absent)
    def delete_group(self, group: str) -> None:
        self.store.delete_group(group)
        del self.groups[group]

    def lags(self) -> None:
        """Every way of counting a group's lag gives the same."""
        told = {each["name"]: each for each in self.store.info()["groups"]}
        metrics = self.store.metrics()["groups"]
        assert sorted(told) == sorted(self.groups)
        for name, known in self.groups.items():
            wanted = {
                of: len(self.topics[of[0]].partitions[of[1]].behind(at))
                for of, at in known.committed.items()
            }
            for cursors in (told[name]["partitions"], metrics[name]["partitions"]):
                found = {
                    (c["topic"], c["partition"]): c["lag"] for c in cursors if c["lag"] is not None
                }
                assert found == wanted, f"lag of {name}"
            if name in self.members:
                member = self.members[name]
                reads = {of: lag for of, lag in wanted.items() if of in known.position}
                assert member.lag == sum(reads.values()), "lag of the member"
                for (topic, p), at in known.position.items():
                    assert member.committed(topic, p) == known.committed[topic, p]
                    known.position[topic, p] = self.past_a_gap(
                        topic, p, at, member.position(topic, p)
                    )

    def past_a_gap(self, name: str, p: int, at: int, found: int) -> int:
        """Expect a position, or one that passed offsets of compacted records alone."""
        part = self.topics[name].partitions[p]
        assert at <= found <= part.end, (at, found)
        assert part.behind(at) == part.behind(found), (at, found)
        return found


class Taking(Base):
    """Queues: put, take, ack, give back, fail in a block, dead letters."""

    def queue(self, name: str) -> Any:
        """Open a queue."""
        known = self.queues[name]
        if name not in self.takers:
            self.takers[name] = self.store.queue(
                name, self.topic(known.topic), max_attempts=known.max_attempts
            )
        return self.takers[name]

    @rule(queue=QUEUES, topic=singles, most=st.sampled_from([None, 2]))
    def make_queue(self, queue: str, topic: str, most: int | None) -> None:
        if queue in self.queues:
            return
        self.topic(topic)
        part = self.topics[topic].partitions[0]
        works = {o: self.new_work(part.records[o]) for o in part.there()}
        self.queues[queue] = Queue(topic, most, works)
        self.jobs[queue] = {}
        self.queue(queue)

    @some_queues
    @rule(queue=queues, delay=st.sampled_from([0.0, 0.0, HOUR]), data=st.data())
    def put(self, queue: str, delay: float, data: Any) -> None:
        taker = self.queue(queue)
        name = self.queues[queue].topic
        value = data.draw(values.GOOD[KINDS[name].codec])
        offset = taker.put(value, b"ann", delay=delay)
        headers = self.topic(name)[offset].headers
        assert [h for h, _ in headers] == (["falaj-not-before"] if delay else [])
        self.written(name, 0, offset, Record(values.given_back(value), b"ann", headers), None)

    def take(self, queue: str, n: int) -> Any:
        """Take jobs, and compare them with the model; that begins work on none of them."""
        taker, known = self.queue(queue), self.queues[queue]
        works = known.works
        part = self.topics[known.topic].partitions[0]
        there = set(part.there())
        for offset, work in works.items():
            if offset not in there and work.state in ("new", "late", "fresh", "back", "later"):
                work.state = "done"
        new, worn = known.of("new"), self.worn(known)
        ready = [o for o, work in works.items() if work.state in ("fresh", "back")]
        jobs = taker.take(n, lease=HOUR, timeout=0)
        buried = self.letters(queue)
        assert buried <= set(worn), f"{buried} are dead letters, and may be {worn}"
        for offset in buried:
            works[offset].state = "dead"
            known.dead += 1
        taken = [job.offset for job in list.__iter__(jobs)]
        for job in list.__iter__(jobs):
            work = works[job.offset]
            assert work.state in ("new", "fresh", "back"), f"{job.offset} is {work.state}"
            assert job.offset not in worn, f"{job.offset} was tried too often, and is delivered"
            assert job.attempt == work.attempts + 1, (
                f"attempt {job.attempt} at {job.offset}: {work}"
            )
            looks.is_record(job.record, job.offset, part.records[job.offset])
            work.state, work.begun = "out", False
            self.jobs[queue][job.offset] = job
        of_new = [o for o in taken if o in new]
        assert of_new == new[: len(of_new)], "new jobs must come in order"
        suspects = [o for o in ready if works[o].suspect and o not in buried]
        # Jobs that became dead letters were taken too.
        if len(taken) + len(buried) < n and not suspects:
            left = known.of("new") + known.of("fresh") + known.of("back")
            assert left == [], f"more jobs were ready: {left}"
        return jobs

    def worn(self, known: Queue) -> list[int]:
        """The jobs with so many attempts that they must become dead letters."""
        most = known.max_attempts
        back = known.of("back")
        return [o for o in back if most is not None and known.works[o].attempts >= most]

    def letters(self, queue: str) -> set[int]:
        """Take all dead letters, and empty their topic."""
        name = f"{self.queues[queue].topic}.dead"
        if name not in self.store.topics:
            return set()
        letters = self.store.topic(name)
        found = {int(dict(r.headers)["falaj-offset"] or b"") for r in letters}
        letters.trim(before_offset=letters.end_offset)
        return found

    @some_queues
    @rule(queue=queues, n=st.integers(1, 4), begin=st.booleans(), then=SETTLED)
    def take_and(self, queue: str, n: int, begin: bool, then: str) -> None:
        for job in list.__iter__(self.take(queue, n)):
            if begin:
                self.begin_job(queue, job)
            if then != "keep":
                self.settle_job(queue, job.offset, then)

    @some_queues
    @rule(queue=queues, begin=st.booleans(), then=SETTLED)
    def settle_what_is_out(self, queue: str, begin: bool, then: str) -> None:
        for offset, job in list(self.jobs[queue].items()):
            if begin:
                self.begin_job(queue, job)
            if then != "keep":
                self.settle_job(queue, offset, then)

    def begin_job(self, queue: str, job: Any) -> None:
        known = self.queues[queue]
        try:
            if hasattr(job, "begin"):
                job.begin()
        except LeaseExpired:
            assert job.offset not in self.topics[known.topic].partitions[0].there()
            return  # settling it finds the same
        known.works[job.offset].begin()

    def settle_job(self, queue: str, offset: int, then: str) -> None:
        """Settle a job in flight; giving it back counts as an attempt."""
        known = self.queues[queue]
        job, work = self.jobs[queue].pop(offset), known.works[offset]
        try:
            job.ack() if then == "ack" else job.nack(delay=HOUR if then == "later" else 0.0)
        except LeaseExpired:
            # Its record was trimmed, so it counts as done once a take has noticed that.
            assert offset not in self.topics[known.topic].partitions[0].there()
            work.state = "done"
            return
        if then == "ack":
            work.state = "done"
        else:
            work.begin()
            work.back("later" if then == "later" else "back")
            work.suspect = False
            if known.max_attempts is not None and work.attempts >= known.max_attempts:
                assert self.letters(queue) == {offset}, f"{offset} is no dead letter"
                work.state = "dead"
                known.dead += 1

    @some_queues
    @rule(queue=queues, puts=st.integers(0, 4), n=st.integers(1, 4), good=st.integers(0, 3))
    def fail_in_a_block(self, queue: str, puts: int, n: int, good: int) -> None:
        """An exception costs an attempt of the job in whose block it was raised, and no other."""
        for _ in range(puts):
            self.append_to(queue)
        jobs = self.take(queue, n)
        works, begun = self.queues[queue].works, 0
        with suppress(ZeroDivisionError), jobs:
            for job in jobs:
                works[job.offset].begin()
                if begun == good:
                    raise ZeroDivisionError
                begun += 1
                job.ack()
                works[job.offset].state = "done"
        for job in list.__iter__(jobs):
            self.jobs[queue].pop(job.offset)
            work = works[job.offset]
            if work.state != "done":
                work.suspect = work.suspect and not work.begun  # what failed is none
                work.back()
        for job in list.__iter__(self.take(queue, n)):  # the attempts are checked there
            self.begin_job(queue, job)

    def append_to(self, queue: str) -> None:
        name = self.queues[queue].topic
        value: Any = b"text" if KINDS[name].codec == "bytes" else "text"
        offset = self.queue(queue).put(value, b"bob")
        self.written(name, 0, offset, Record(value, b"bob"), None)

    @some_queues
    @rule(queue=queues)
    def delete_queue(self, queue: str) -> None:
        self.drop_queue(queue)

    def queue_counts(self) -> None:
        """Every way of counting a queue's jobs gives the same."""
        told = {each["name"]: each for each in self.store.info()["queues"]}
        metrics = self.store.metrics()["queues"]
        assert sorted(told) == sorted(self.queues)
        for name, known in self.queues.items():
            there = set(self.topics[known.topic].partitions[0].there())
            new = [o for o in known.of("new") if o in there]
            # Ready or delayed. A job whose record is gone counts until a take comes to it.
            either = known.of("late") + known.of("fresh")
            back = known.of("back") + known.of("later")
            out = known.of("out")
            least = sum(o in there for o in either + back)
            taker: Any = self.queue(name)
            counted: list[Any] = [told[name], metrics[name], taker.info()]
            for found in counted:
                what = f"jobs of {name}: {found}, {known}"
                waits = found["ready"] + found["delayed"] - len(new)
                assert least <= waits <= len(either + back), what
                assert found["delayed"] <= len(either + back), what
                assert sum(o in there for o in out) <= found["in_flight"] <= len(out), what
                assert found["dead"] == known.dead, f"dead jobs of {name}"
