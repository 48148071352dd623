"""`falaj queues`: what is waiting, out and given up."""

import json
from pathlib import Path

import pytest

import falaj as library
from cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    with library.open(tmp_path / "s") as store:
        queue = store.queue("work", topic="jobs", max_attempts=1)
        queue.topic.extend([b"%d" % i for i in range(9)])
        queue.take()[0].nack()
        queue.take(3).ack()
        queue.take()[0].nack(delay=3600)
    return Shell(tmp_path)


def test_queues_are_listed_with_what_is_waiting_back_done_and_dead(shell: Shell) -> None:
    assert shell.ok("queues", "s") == "work\tjobs\t5\t0\t1\t3\t1\t0\t\n"
    told = json.loads(shell.ok("queues", "s", "--json"))
    assert (told["name"], told["dead"], told["holders"]) == ("work", 1, {})
    assert shell.ok("cat", "s", "jobs.dead").strip() == "0"


def test_a_queue_is_forgotten_only_by_who_means_it(shell: Shell) -> None:
    refused = shell("queues", "s", "--reset", "work")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert shell("queues", "s", "--reset", "other", "--yes").code == 2
    shell.ok("queues", "s", "--reset", "work", "--yes")
    assert shell.ok("queues", "s") == ""


def test_damage_to_one_queue_does_not_hide_the_others(shell: Shell) -> None:
    state = shell.folder / "s/queues/work"
    broken = bytearray(state.read_bytes())
    broken[20] ^= 1
    (shell.folder / "s/queues/broken").write_bytes(broken)
    ended = shell("queues", "s")
    assert (ended.code, ended.out.startswith("work\tjobs")) == (1, True)
    assert "broken" in ended.err


def test_queues_are_listed_by_who_may_only_read_with_who_has_what_and_stand_in_info(
    shell: Shell,
) -> None:
    with library.open(shell.folder / "s") as store:
        jobs = store.queue("work", topic="jobs").take(2)
        row = shell.ok("queues", "s")
        assert row.startswith("work\tjobs\t3\t2\t1\t3\t1\t0\tprocess ")
        assert row.endswith("): 2\n")
        assert "queue\t" + row in shell.ok("info", "s")
        assert "queue\t" not in shell.ok("info", "s", "jobs.dead")
        jobs.ack()
    for path in (shell.folder / "s").rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert shell.ok("queues", "s").startswith("work\tjobs\t3\t0\t1\t5\t1\t0")
