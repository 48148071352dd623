"""Bugs that the large tests of this directory found, each as small as possible."""

from pathlib import Path

import pytest

import falaj
from falaj.errors import TopicDeleted
from proof import layout
from proof.craft import Craft
from proof.layout import Record


def leave_garbage(path: Path, flipped: int) -> None:
    """Make a log whose first block lies past the mark and has a flipped bit."""
    with falaj.open(path) as store:
        store.topic("t", codec="raw", segment_bytes=1 << 16)
    made = Craft(path, "t")
    marks = made.data[: layout.FIRST_BLOCK]
    made.records([Record(0, b"torn", None, (), None)], 0)
    made.data[made.segment.blocks[-1].end + flipped] ^= 1
    made.finish()
    data = bytearray(made.segment.path.read_bytes())
    data[: layout.FIRST_BLOCK] = marks
    made.segment.path.write_bytes(data)


@pytest.mark.parametrize("flipped", [0, 4, 5, 7, 8, 12, 16, 30, 33])
def test_a_log_that_was_cut_right_behind_its_snapshot_reads_on(path: Path, flipped: int) -> None:
    leave_garbage(path, flipped)
    for n in range(2):
        with falaj.open(path) as store:
            topic = store.topic("t")
            assert topic.append(b"%d" % n) == n
    for mode in ("r", "w"):
        with falaj.open(path, read_only=mode == "r") as store:
            topic = store.topic("t")
            assert [record.to_bytes() for record in topic] == [b"0", b"1"]
            assert topic.start_offset == 0
            assert topic.at("1970-01-01T00:00:00Z") is not None
    assert falaj.verify(path)["sound"]


def test_the_first_append_to_a_topic_that_was_deleted_says_so(store: falaj.Store) -> None:
    topic = store.topic("t")
    topic.flush()
    topic.delete()
    with pytest.raises(TopicDeleted):
        topic.append(b"x")


@pytest.mark.parametrize("read", [0, 1, 2])
def test_following_without_waiting_says_that_the_topic_was_deleted(
    store: falaj.Store, read: int
) -> None:
    topic = store.topic("t")
    topic.extend([b"a", b"b"])
    follower, looking = topic.follow(timeout=0), topic.follow()
    for _ in range(read):
        next(follower)
        looking.poll()
    topic.delete()
    with pytest.raises(TopicDeleted):
        list(follower)
    with pytest.raises(TopicDeleted):
        list(iter(looking.poll, None))
