"""A topic is deleted and created again, repeatedly, while processes write, read and follow it."""

import time
from contextlib import ExitStack
from pathlib import Path

from children import Child, child

import falaj

SECONDS = 3.0
NAME = "passing"

# Each value names the generation of its topic: a reader that finds another's has found a wrong
# write.
COMMON = """
from falaj.errors import UnknownTopic, TopicDeleted
import time
store = falaj.open(path, read_only={read_only})
end = time.monotonic() + {seconds}
done = deleted = 0
say("ready")
hear()
def check(topic, record):
    told = bytes(record.raw).split(b" ")[0].decode()
    assert told == topic.generation, (told, topic.generation, record.offset)
"""
WRITER = """
while time.monotonic() < end:
    topic = store.topic("passing", codec="raw", segment_bytes=1 << 16)
    mine = topic.generation.encode() + b" " + bytes(400)
    try:
        while time.monotonic() < end:
            first = topic.extend([mine] * 7, sync={sync!r})[0]
            check(topic, topic[first])
            done += 7
    except TopicDeleted:
        deleted += 1
say(done, deleted)
"""
READER = """
while time.monotonic() < end:
    try:
        topic = store.topic("passing")
        expected = topic.start_offset
        for record in topic:
            assert record.offset == expected, (record.offset, expected)
            check(topic, record)
            expected += 1
            done += 1
    except (TopicDeleted, UnknownTopic):
        deleted += 1
say(done, deleted)
"""
FOLLOWER = """
while time.monotonic() < end:
    try:
        topic = store.topic("passing")
        expected = topic.start_offset
        for record in topic.follow(timeout=0.5):
            assert record.offset == expected, (record.offset, expected)
            check(topic, record)
            expected += 1
            done += 1
            if time.monotonic() > end:
                break
    except (TopicDeleted, UnknownTopic):
        deleted += 1
say(done, deleted)
"""
DELETER = """
while time.monotonic() < end:
    topic = store.topic("passing", codec="raw", segment_bytes=1 << 16)
    # sleep: at times the others must get some work done
    time.sleep(0.01 * (done % 5))
    try:
        topic.delete()
        done += 1
    except (TopicDeleted, UnknownTopic):
        deleted += 1
say(done, deleted)
"""


def program(body: str, seconds: float, sync: str = "none") -> str:
    read_only = body in (READER, FOLLOWER)
    common = COMMON.replace("{seconds}", str(seconds)).replace("{read_only}", str(read_only))
    return common + body.replace("{sync!r}", repr(sync))


def hear_all(children: list[Child]) -> list[tuple[int, int]]:
    told = []
    for each in children:
        code, out, err = each.end()
        assert (code, err) == (0, ""), err
        done, deleted = out.split()
        told.append((int(done), int(deleted)))
    return told


def test_deleting_and_creating_again_under_load_is_correct_and_frees_the_space(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    bodies = [
        program(WRITER, SECONDS),
        program(WRITER, SECONDS, "interval"),
        program(WRITER, SECONDS, "durable"),
        program(READER, SECONDS),
        program(FOLLOWER, SECONDS),
        program(DELETER, SECONDS),
        program(DELETER, SECONDS),
    ]
    with falaj.open(path) as store, ExitStack() as stack:
        kept = store.topic("kept")
        kept.append(b"stays")
        store.topic(NAME, codec="raw", segment_bytes=1 << 16)
        children = [stack.enter_context(child(path, body)) for body in bodies]
        for each in children:
            assert each.hear() == "ready"
        for each in children:
            each.tell()
        told = hear_all(children)
        for done, _ in told[:3]:
            assert done > 0, "a writer never wrote"
        assert all(deleted > 0 for _, deleted in told[:3]), "no process got TopicDeleted"
        assert sum(done for done, _ in told[-2:]) > 5, "the readers read too little"
        assert kept[0].to_bytes() == b"stays"
        last = store.topic(NAME)
        last.append(last.generation.encode() + b" last", sync="durable")
        # A writer that was rolling may have left an empty directory for the next sweep.
        store.maintain()
        assert len(list(path.glob("logs/*"))) == 2, "a deleted log still takes space"
        found = falaj.verify(path)
        assert found["sound"], found
        store.delete_topic(NAME)
        assert len(list(path.glob("logs/*"))) == 1
        assert [each.name for each in path.glob("topics/*")] == ["kept"]


def test_killed_deletions_leave_a_topic_or_none_and_take_no_space(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with falaj.open(path) as store:
        for round_number in range(6):
            with ExitStack() as stack:
                bodies = [program(WRITER, 60), program(FOLLOWER, 60), program(DELETER, 60)]
                children = [stack.enter_context(child(path, body)) for body in bodies]
                for each in children:
                    assert each.hear() == "ready"
                for each in children:
                    each.tell()
                # sleep: they must be in the middle of it when they are killed
                time.sleep(0.1 + 0.03 * round_number)
                for each in reversed(children):
                    each.kill()
            topic = store.topic(NAME, codec="raw", segment_bytes=1 << 16)
            for record in topic:
                assert bytes(record.raw or b"").split(b" ")[0].decode() == topic.generation
            topic.append(topic.generation.encode() + b" after", sync="durable")
            store.maintain()
            assert len(list(path.glob("logs/*"))) == 1, "a killed deletion's leftovers take space"
        assert falaj.verify(path)["sound"]
