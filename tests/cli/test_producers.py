"""`falaj producer`: the producers that a topic remembers, and forgetting them."""

import json
from pathlib import Path

import pytest

import falaj as library
from cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    with library.open(tmp_path / "s") as store:
        topic = store.topic("jobs")
        for name, sequence in [("p", 5), ("p", 6), ("q", 0), ("r", 1)]:
            topic.append(b"x", producer=name, sequence=sequence)
    return Shell(tmp_path)


def test_producers_are_listed_and_forgotten_by_name_by_id_and_by_age(shell: Shell) -> None:
    rows = [
        line.split("\t") for line in shell.ok("producer", "list", "-s", "s", "jobs").splitlines()
    ]
    assert sorted((row[1], row[2], row[3]) for row in rows) == [
        ("0", "0", "2"),
        ("1", "0", "3"),
        ("6", "0", "1"),
    ]
    assert {row[5] for row in rows} == {"named"}
    told = map(json.loads, shell.ok("producer", "list", "-s", "s", "jobs", "--json").splitlines())
    ids = {row["sequence"]: row["producer"] for row in told}
    forgotten = shell.ok("producer", "forget", "-s", "s", "jobs", "p", ids[0])
    assert forgotten == "jobs\t2\n"
    assert shell.ok("producer", "forget", "-s", "s", "jobs", "--before", "1h") == "jobs\t0\n"
    later = ("producer", "forget", "-s", "s", "jobs", "--before", "2100-01-01T00:00:00Z", "--json")
    assert json.loads(shell.ok(*later)) == {"topic": "jobs", "forgotten": 1}
    assert shell.ok("producer", "list", "-s", "s", "jobs") == ""


def test_what_is_not_there_is_said_and_nothing_is_forgotten(shell: Shell) -> None:
    assert shell("producer", "list", "-s", "s", "other").code == 2
    assert shell("producer", "forget", "-s", "s", "jobs").code == 2
    unknown = shell("producer", "forget", "-s", "s", "jobs", "p", "id:" + "0" * 16)
    assert (unknown.code, "nothing was forgotten" in unknown.sentence()) == (2, True)
    assert len(shell.ok("producer", "list", "-s", "s", "jobs").splitlines()) == 3
