"""A pipeline whose processes are killed all the time does each piece of work exactly once.

Three steps, each a process that reads what the one before wrote, works, and writes the result and
its cursor in one transaction: numbers → copies → squares → sums. Each may be killed at any moment;
in the end every result is there once, in order.
"""

from __future__ import annotations

import random
import time
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
        # Two steps write to one log, the third to one of its own: neither matters.
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
            # sleep: a kill is to come anywhere in the work, and not where a test would put it
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
