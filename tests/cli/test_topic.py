"""`falaj topic create, describe, config, compact`, `falaj config`, `falaj restore`."""

import json

import pytest

import falaj as library
from cli.shell import Shell


def test_topics_are_created_with_their_settings_once(falaj: Shell) -> None:
    falaj.ok(
        *("topic", "create", "-s", "s", "a", "b", "--partitions", "3", "--codec", "json"),
        *("--segment-size", "1M", "--sync-interval", "5", "--log", "shared", "--compacted"),
        *("--retention-bytes", "none", "--retention-age", "7d"),
    )
    for name in ("a", "b"):
        told = json.loads(falaj.ok("topic", "describe", "-s", "s", name, "--json"))
        assert (told["codec"], len(told["partitions"])) == ("json", 3)
        assert (told["segment_bytes"], told["sync_interval_ms"]) == (1 << 20, 5)
        assert told["log"]["name"] == "shared"
        assert (told["compacted"], told["retention"]["age_ms"]) == (True, 604_800_000)
    ended = falaj("topic", "create", "-s", "s", "c", "a")
    assert (ended.code, "topic a exists already" in ended.sentence()) == (2, True)
    assert falaj.ok("topic", "list", "-s", "s").count("\n") == 2
    assert falaj("topic", "create", "-s", "new", "a/b").code == 2
    assert not (falaj.folder / "new").exists()


def test_settings_are_shown_and_what_is_not_named_stays(falaj: Shell) -> None:
    falaj.ok("topic", "create", "-s", "s", "t")
    show = ("topic", "config", "-s", "s", "t", "--json")
    before = json.loads(falaj.ok(*show))
    assert before == {
        "topic": "t", "retention_bytes": None, "retention_age": None, "retention_records": None,
        "retention_waits": False, "retention_protected": False, "compacted": False,
        "properties": {},
    }  # fmt: skip
    changed = falaj.ok(*show, "--retention-age", "1h", "--retention-waits", "--compacted")
    assert json.loads(changed) == before | {
        "retention_age": 3600.0,
        "retention_waits": True,
        "compacted": True,
    }
    assert json.loads(falaj.ok(*show)) == json.loads(changed)
    undone = falaj.ok(*show, "--retention-age", "none", "--no-retention-waits", "--no-compacted")
    assert json.loads(undone) == before
    bare = "retention_bytes\tnone\nship_min_sync\t1\n"
    assert falaj.ok("config", "-s", "s") == bare
    falaj.ok("config", "-s", "s", "--retention-bytes", "1G")
    falaj.ok("config", "-s", "s", "--ship-min-sync", "2")
    told = json.loads(falaj.ok("config", "-s", "s", "--json"))
    assert told == {"retention_bytes": 1 << 30, "ship_min_sync": 2}
    falaj.ok("config", "-s", "s", "--retention-bytes", "none", "--ship-min-sync", "1")
    assert falaj.ok("config", "-s", "s") == bare


def test_a_topic_is_compacted_without_spark(falaj: Shell) -> None:
    falaj.ok("topic", "create", "-s", "s", "t")
    falaj.ok("append", "-s", "s", "t", "--key-delimiter", ":", given=b"a:1\nb:2\na:3\n")
    falaj.ok("append", "-s", "s", "t", "--tombstone", "--key", "b")
    ended = falaj("topic", "compact", "-s", "s", "t")
    assert ended.code == 2
    assert ended.sentence().endswith(": mark it with `falaj topic config t --compacted`")
    falaj.ok("topic", "config", "-s", "s", "t", "--compacted")
    told = falaj.ok("topic", "compact", "-s", "s", "t", "--seal", "--delete-retention", "0s")
    assert told.split("\t")[:2] == ["t", "3"]
    assert falaj.ok("cat", "-s", "s", "t", "--keys") == "a\t3\n"


def test_a_description_is_made_for_a_person_in_80_columns(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        topic = store.topic("t", retention_records=1000, retention_waits=True)
        topic.append(b"x")
        store.consumer("billing", [topic]).close()
        store.queue("work", topic=topic).close()
    shown = (
        falaj.terminal("topic", "describe", "-s", "s", "t", NO_COLOR="1", COLUMNS="80").end().out
    )
    assert "retention      1,000 records of each partition, waits for groups and queues\n" in shown
    assert "\ngroup    topic  partition  committed  lag  member  metadata\n" in shown
    assert "\nqueue  topic  ready  delayed  in flight  done  dead  trimmed  holders\n" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_table_that_is_wider_than_the_terminal_is_names_and_values(falaj: Shell) -> None:
    for name in ("a" * 60, "b"):
        falaj.ok("append", "-s", "s", name, given=b"x\n")
    shown = falaj.terminal("topic", "list", "-s", "s", NO_COLOR="1", COLUMNS="80").end().out
    first, second = shown.split("\n\n")
    assert first.startswith(f"topic        {'a' * 60}\ncodec        bytes\npartitions   1\n")
    assert second.startswith("topic        b\n")


def test_a_backup_is_restored_where_nothing_is(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t", given=b"one\ntwo\n")
    falaj.ok("tail", "-s", "s", "t", "--group", "g")
    falaj.ok("backup", "-s", "s", "copy")
    falaj.ok("restore", "-s", "again", "copy")
    assert falaj.ok("cat", "-s", "again", "t") == "one\ntwo\n"
    assert falaj.ok("group", "list", "-s", "again") == "g\tt\t1\t0\t0\n"
    ended = falaj("restore", "-s", "again", "copy")
    assert (ended.code, "again exists already" in ended.sentence()) == (2, True)
    ended = falaj("restore", "-s", "new", "nothing")
    assert (ended.code, "there is no backup at nothing" in ended.sentence()) == (2, True)
    assert not (falaj.folder / "new").exists()


@pytest.mark.parametrize("name", ["group", "topic", "queue", "producer", "pipeline"])
def test_a_group_of_commands_shows_its_help_where_none_is_named(falaj: Shell, name: str) -> None:
    assert falaj.ok(name) == falaj.ok(name, "--help")
    assert falaj.ok(name).startswith(f"Usage: falaj {name} COMMAND")


def test_a_group_is_deleted_only_with_a_yes(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t", given=b"x\n")
    falaj.ok("tail", "-s", "s", "t", "--group", "g")
    ended = falaj("group", "delete", "-s", "s", "g")
    assert (ended.code, "add --yes" in ended.sentence()) == (2, True)
    assert falaj.ok("group", "describe", "-s", "s", "g") == "g\tt\t0\t1\t0\t\t\n"
    falaj.ok("group", "delete", "-s", "s", "g", "--yes")
    assert falaj.ok("group", "list", "-s", "s") == ""


def test_a_topic_is_finished_only_with_a_yes_and_takes_no_record_then(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t", given=b"x\n")
    ended = falaj("topic", "finish", "-s", "s", "t")
    assert (ended.code, "add --yes" in ended.sentence()) == (2, True)
    assert falaj.ok("topic", "list", "-s", "s").rstrip("\n").endswith("\topen")
    falaj.ok("topic", "finish", "-s", "s", "t", "--yes")
    refused = falaj("append", "-s", "s", "t", given=b"y\n")
    assert (refused.code, "is finished" in refused.sentence()) == (2, True)  # a repeat never helps
    assert falaj.ok("topic", "list", "-s", "s").rstrip("\n").endswith("\tfinished")
    assert json.loads(falaj.ok("topic", "describe", "-s", "s", "t", "--json"))["finished"]
    assert falaj.ok("tail", "-f", "-s", "s", "t") == "x\n"


def test_properties_are_changed_and_shown(falaj: Shell) -> None:
    config = ("topic", "config", "-s", "s", "props")
    falaj.ok("topic", "create", "-s", "s", "props")
    told = falaj.ok(*config, "--property", "owner=the=shop", "--property", "type=text/csv")
    assert told.splitlines()[-2:] == [
        'property\t"owner"\t"the=shop"',
        'property\t"type"\t"text/csv"',
    ]
    told = falaj.ok(*config, "--remove-property", "owner", "--property", "n=", "--json")
    assert json.loads(told)["properties"] == {"n": "", "type": "text/csv"}
    described = json.loads(falaj.ok("topic", "describe", "-s", "s", "props", "--json"))
    assert described["properties"] == {"n": "", "type": "text/csv"}
    assert falaj(*config, "--property", "no equals sign").code == 2
