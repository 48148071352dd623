"""A pipeline whose processes are killed repeatedly does each piece of work exactly once.

It has three steps: numbers → copies → squares → sums. Each is a process that reads the output of
the step before, and writes the result and its cursor in one transaction. Each may be killed at any
moment; at the end every result is there once, in order. One test keeps cursors by hand. Another
uses consumer groups, each with two members that share the partitions.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from children import Child, child

import falaj

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEP = """
source, target, work, end = hear().split()
end = int(end)
store = falaj.open(path, sync="none")
inputs, outputs = store.topic(source, codec="str"), store.topic(target, codec="str")
def squares(total, value):
    return total, str(int(value) ** 2)
def sums(total, value):
    total += int(value)
    return total, str(total)
step = {"copy": lambda total, value: (total, value), "squares": squares, "sums": sums}[work]
kept = outputs.cursor(work)
at = kept.offset if kept else 0
total = int(outputs[-1].value) if len(outputs) and work == "sums" else 0
say("begun", at)
while at < end:
    with inputs.follow(start=at, timeout=60) as following:
        for record in following:
            with store.transaction() as tx:
                total, result = step(total, record.value)
                tx.append(outputs, result)
                tx.commit_cursor([falaj.Cursor(work, record.offset + 1)], into=outputs)
            at = record.offset + 1
            if at == end:
                break
say("ended")
"""


def test_a_pipeline_under_a_storm_of_kills_does_each_piece_of_work_exactly_once(
    path: Path, budget: Callable[[int, int], int], first_seed: int
) -> None:
    numbers, kills = budget(3_000, 40_000), budget(25, 400)
    dice = random.Random(first_seed + 5)
    steps = [("numbers", "copies", "copy"), ("copies", "squares", "squares")]
    steps.append(("squares", "sums", "sums"))
    with falaj.open(path, sync="none") as store:
        feed = store.topic("numbers", codec="str")
        # Two steps write to one log, the third to its own: neither matters.
        for name, log in (("copies", "middle"), ("squares", "middle"), ("sums", "sums")):
            store.topic(name, codec="str", log=log, segment_bytes=65536)

        def start(number: int) -> tuple[ExitStack, Child]:
            stack = ExitStack()
            begun = stack.enter_context(child(path, STEP))
            begun.tell(" ".join((*steps[number], str(numbers))))
            return stack, begun

        running = [start(number) for number in range(len(steps))]
        fed = 0
        for kill in range(1, kills + 1):
            more = range(fed, numbers * kill // kills)
            feed.extend([str(n) for n in more])
            fed = more.stop
            victim = dice.randrange(len(steps))
            stack, process = running[victim]
            if dice.random() < 0.8:
                assert process.hear().startswith("begun")
            # sleep: a kill must come anywhere in the work, and not where a test would put it
            time.sleep(dice.uniform(0, 0.02))
            stack.close()  # which kills it
            running[victim] = start(victim)
        for stack, process in running:
            while process.hear() != "ended":
                pass
            process.end()
            stack.close()

        topics = [store.topic(name, codec="str") for name in ("copies", "squares", "sums")]
        copies, squares, sums = ([r.value for r in topic] for topic in topics)
        assert copies == [str(n) for n in range(numbers)]
        assert squares == [str(n**2) for n in range(numbers)]
        assert int(sums[-1]) == sum(n**2 for n in range(numbers))
        assert len(sums) == numbers
        assert store.verify()["findings"] == []


MEMBER = """
import random
name, source, target, home = hear().split()
dice = random.Random()
store = falaj.open(path, sync="none")
inputs, outputs = store.any_topic(source, codec="json"), store.any_topic(target, codec="json")
work = {
    "copies": lambda values: values,
    "squares": lambda values: [[value, value**2] for value in values],
    "totals": lambda values: [[len(values), *map(sum, zip(*values))]],
}[target]
member = store.consumer(name, [inputs], cursor_in=home)
say("begun")
while True:
    records = member.poll(dice.randrange(1, 30), timeout=None)
    with store.transaction() as tx:
        tx.extend(outputs, work([record.value for record in records]))
        tx.commit_cursor(member)
"""

#: Each step: its group, its input, its output, and the log of its cursors.
STEPS = (
    ("copier", "numbers", "copies", "middle"),
    ("squarer", "copies", "squares", "middle"),
    ("adder", "squares", "totals", "totals"),
)


def test_a_pipeline_of_consumers_under_a_storm_of_kills_does_each_piece_of_work_exactly_once(
    path: Path, budget: Callable[[int, int], int], first_seed: int
) -> None:
    numbers, kills = budget(4_000, 100_000), budget(40, 800)
    dice = random.Random(first_seed + 7)
    with falaj.open(path, sync="none") as store, ExitStack() as stack:
        feed = store.partitioned_topic("numbers", codec="json", partitions=4)
        for name, log in (("copies", "middle"), ("squares", "middle"), ("totals", "totals")):
            parts = 1 if name == "totals" else 4
            store.partitioned_topic(
                name, codec="json", log=log, partitions=parts, segment_bytes=65536
            )
        totals = store.topic("totals", codec="json")

        def start(step: int) -> tuple[ExitStack, Child]:
            own = stack.enter_context(ExitStack())
            begun = own.enter_context(child(path, MEMBER))
            begun.tell(" ".join(STEPS[step]))
            return own, begun

        running = [(step, start(step)) for step in (0, 1, 2, 0, 1, 2)]
        fed = 0
        for kill in range(1, kills + 1):
            more = range(fed, numbers * kill // kills)
            feed.extend([(b"%d" % (n % 97), n) for n in more])
            fed = more.stop
            at = dice.randrange(len(running))
            step, (own, victim) = running[at]
            if dice.random() < 0.8:
                assert victim.hear() == "begun"
            # sleep: a kill must come anywhere in the work, and not where a test would put it
            time.sleep(dice.uniform(0, 0.03))
            # No living member is ever refused: that would be an error.
            assert victim.process.poll() is None, victim.end()
            own.close()  # which kills it
            running[at] = (step, start(step))
        done, seen, ends = 0, 0, time.monotonic() + 60
        while done < numbers:
            assert time.monotonic() < ends, f"{done} of {numbers}: {store.info()['groups']}"
            for _, (_, process) in running:
                assert process.process.poll() is None, process.end()
            end = totals.end_offset  # asked once: later records are counted the next time
            for record in totals[seen:end]:
                done += record.value[0]
            seen = end
            time.sleep(0.01)  # sleep: the others work
        for _, (_, process) in running:
            assert process.process.poll() is None, process.end()

        copies, squares = (store.any_topic(name, codec="json") for name in ("copies", "squares"))
        assert Counter(record.value for record in copies) == Counter(range(numbers))
        assert sorted(record.value for record in squares) == [[n, n**2] for n in range(numbers)]
        sums = [sum(column) for column in zip(*(record.value for record in totals), strict=True)]
        assert sums == [numbers, sum(range(numbers)), sum(n**2 for n in range(numbers))]
        lags = [c["lag"] for each in store.info()["groups"] for c in each["partitions"]]
        assert lags == [0] * 12
        assert store.verify()["findings"] == []
