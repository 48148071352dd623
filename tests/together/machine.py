"""The whole machine: all moves, and the conditions after each."""

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from together import looks
from together.keeping import Keeping
from together.working import Reading, Taking
from together.writing import Writing


class Together(Writing, Keeping, Reading, Taking):
    """All features of a store, in any order, compared with plain lists."""

    @invariant()
    def it_is_the_lists(self) -> None:
        for tries_left in (2, 1, 0):
            self.settle()
            try:
                self.look()
            except (AssertionError, LookupError):
                if not (tries_left and self.limits_took_more()):
                    raise
            else:
                break
        self.touched.clear()

    def limits_took_more(self) -> bool:
        """True if a partition begins later than when limits were applied.

        A process that begins a file applies limits in a thread of its own, which may run later.
        """
        return any(
            self.topic(name).partition(p).start_offset > part.first
            for name, model in self.topics.items()
            for p, part in enumerate(model.partitions)
        )

    def look(self) -> None:
        """Read everything in every way."""
        assert [name for name in self.store.topics if not name.endswith(".dead")] == sorted(
            self.topics
        )
        touched = set(self.touched)
        for name, model in self.topics.items():
            topic = self.topic(name)
            for p, part in enumerate(model.partitions):
                ways = looks.WAYS if name in touched else [looks.numbers, looks.forwards]
                looks.partition(topic.partition(p), part, ways)
            if len(model.partitions) > 1:
                self.merged(name)
        self.offsets_told()
        self.lags()
        self.queue_counts()

    def merged(self, name: str) -> None:
        """Iteration over several partitions returns each record, those of a partition in order."""
        model, topic = self.topics[name], self.topic(name)
        found: list[list[int]] = [[] for _ in model.partitions]
        for record in topic:
            found[record.partition].append(record.offset)
        assert found == [part.there() for part in model.partitions]
        assert len(topic) == sum(part.end - part.first for part in model.partitions)
        table = topic.to_arrow(columns=["partition", "offset"])
        rows = sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        assert rows == [(p, o) for p, part in enumerate(model.partitions) for o in part.there()]

    def offsets_told(self) -> None:
        """Where partitions begin and end, as the store reports it."""
        told = {each["name"]: each["partitions"] for each in self.store.info()["topics"]}
        metrics = self.store.metrics()["topics"]
        for name, model in self.topics.items():
            wanted = [(p, part.first, part.end) for p, part in enumerate(model.partitions)]
            for parts in (told[name], metrics[name]["partitions"]):
                assert [(t["partition"], t["first"], t["end"]) for t in parts] == wanted


STEPS = 30
"""Most moves of a list."""


def run(number: int, lists: int) -> None:
    """Try so many lists of moves, the same for a seed; a failing one is shortened."""
    run_state_machine_as_test(
        seed(number)(Together),
        settings=settings(
            max_examples=lists,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
