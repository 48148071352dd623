"""`falaj verify`, `repair`, `backup` and `info`: administration of a store."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import falaj as library
from cli.shell import DEADLINE_S, Shell, flip_bit, snapshot

RECORDS = 2700
SEGMENTS = 3


def value(n: int) -> bytes:
    return b"value-%06d" % n


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a topic of several segments, and one of two partitions."""
    folder = tmp_path_factory.mktemp("sound")
    with library.open(folder / "s") as store:
        topic = store.topic("t", segment_bytes=1 << 16)
        for n in range(RECORDS):
            topic.append(value(n), b"key" * 3)
        store.partitioned_topic("pair", partitions=2).append(b"x", partition=1)
    assert len(list(folder.glob("s/logs/t@*/*.log"))) == SEGMENTS
    return folder


@pytest.fixture
def shell(sound: Path, tmp_path: Path) -> Shell:
    shutil.copytree(sound, tmp_path, dirs_exist_ok=True)
    return Shell(tmp_path)


def segments(shell: Shell) -> list[Path]:
    return sorted(shell.folder.glob("s/logs/t@*/*.log"))


def leave_a_torn_tail(shell: Shell, topic: str = "torn") -> None:
    """Die without closing, and corrupt what was not synced, as a power failure does."""
    program = f"""
import os, falaj
topic = falaj.open("s").topic("{topic}", sync_interval_ms=3_600_000)
for n in range(100):
    topic.append(b"value-%06d" % n, sync="durable" if n == 49 else "none")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program], cwd=shell.folder, check=True, timeout=60)
    flip_bit(shell.folder, topic, value(80))


# --- verify --------------------------------------------------------------------------------------


def test_a_valid_store_is_verified_with_its_durable_offsets(shell: Shell) -> None:
    before = snapshot(shell.folder)
    assert shell.ok("verify", "-s", "s") == (
        f"topic\tpair\t0\t0\t0\t0\ntopic\tpair\t1\t0\t1\t1\ntopic\tt\t0\t0\t{RECORDS}\t{RECORDS}\n"
    )
    told = json.loads(shell.ok("verify", "-s", "s", "--json"))
    assert told["sound"]
    assert sum(log["records"] for log in told["logs"]) == RECORDS + 1
    assert snapshot(shell.folder) == before


def test_damage_is_told_with_file_position_and_offsets(shell: Shell) -> None:
    flip_bit(shell.folder, "t", value(1234))
    ended = shell("verify", "-s", "s")
    assert (ended.code, ended.err) == (1, "")
    (row,) = (line.split("\t") for line in ended.out.splitlines() if line.startswith("corrupt"))
    severity, path, position, length, topic, partition, first, end, what, remedy = row
    data = Path(path).read_bytes()
    assert data.index(b"v" + value(1233)[1:]) < int(position) < data.index(value(1235))
    assert int(length) > len(value(0))
    assert (severity, topic, partition, first, end) == ("corrupt", "t", "0", "1234", "1235")
    assert "checksum" in what
    assert remedy
    assert f"topic\tt\t0\t0\t{RECORDS}\t{RECORDS}" in ended.out.splitlines()


def test_one_topic_can_be_verified_alone(shell: Shell) -> None:
    flip_bit(shell.folder, "t", value(1234))
    assert shell.ok("verify", "-s", "s", "pair").count("\n") == 2
    assert shell("verify", "-s", "s", "t").code == 1
    assert "there is no topic" in shell("verify", "-s", "s", "none").sentence()


@pytest.mark.parametrize("hurt", ["truncated", "emptied", "missing", "settings"])
def test_a_store_that_does_not_open_or_would_kill_a_reader_is_verified(
    shell: Shell, hurt: str
) -> None:
    if hurt == "truncated":
        os.truncate(segments(shell)[1], 5000)
    elif hurt == "emptied":
        os.truncate(segments(shell)[-1], 0)
    elif hurt == "missing":
        segments(shell)[1].unlink()
    else:
        (shell.folder / "s/falaj.json").write_text("{}")
    ended = shell("verify", "-s", "s")
    assert (ended.code, ended.err) == (1, "")
    name = "falaj.json" if hurt == "settings" else "000000.*.log"
    assert re.search(f"^corrupt\t.*{name}", ended.out, re.M)


def test_derived_files_are_reported_and_do_not_count_as_corruption(shell: Shell) -> None:
    segments(shell)[1].with_suffix(".idx").unlink()
    assert "\nrebuildable\t" in shell.ok("verify", "-s", "s")


def test_a_store_that_was_not_recovered_is_neither_corrupt_nor_valid(shell: Shell) -> None:
    leave_a_torn_tail(shell)
    ended = shell("verify", "-s", "s")
    assert (ended.code, ended.err) == (4, "")
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert ["topic", "torn", "0", "0", "80", "50"] in rows, (
        "the end must be as recovery will leave it"
    )
    lost = [row for row in rows if row[0] == "unrecovered" and "cut off" in row[8]]
    assert [row[4:8] for row in lost] == [["torn", "0", "80", "100"]]
    told = json.loads(shell("verify", "-s", "s", "torn", "--json").out)
    (log,) = told["logs"]
    assert log["topics"][0]["found"] == 100
    assert log["recovered"] < log["committed"]
    before = shell.ok("repair", "-s", "s", "--dry-run").splitlines()
    cut = next(row.split("\t") for row in before if row.startswith("cut"))
    assert log["recovered"][1] == int(cut[2])
    ended = shell("cat", "-s", "s", "torn")
    assert ended.code == 4
    assert "cannot be read yet" in ended.sentence()
    assert "run `falaj repair`" in ended.sentence()


def test_a_log_that_no_topic_names_is_damage_if_it_was_used(shell: Shell) -> None:
    (shell.folder / "s/topics/t/topic.json").unlink()
    ended = shell("verify", "-s", "s")
    assert (ended.code, ended.err) == (1, "")
    (row,) = (line.split("\t") for line in ended.out.splitlines() if line.startswith("corrupt"))
    assert re.search(r"/logs/t@\w+$", row[1])
    assert "no topic names this log" in row[8]
    assert "restore the topic's `topic.json`" in row[9]


def test_what_a_creation_cut_short_left_behind_is_a_note(shell: Shell) -> None:
    with library.open(shell.folder / "s") as store:
        store.topic("new")
    (shell.folder / "s/topics/new/topic.json").unlink()
    # A used log has a control page; an unfinished creation has none.
    next(shell.folder.glob("s/logs/new@*/control")).unlink()
    told = shell.ok("verify", "-s", "s")
    (row,) = (line.split("\t") for line in told.splitlines() if line.startswith("note"))
    assert "cut short" in row[8]


def test_a_person_sees_the_findings_and_a_verdict(shell: Shell) -> None:
    ended = shell.terminal("verify", "-s", "s", NO_COLOR="1").end()
    assert re.search(r"\nt +0 +0 +2,700 +2,700\n", ended.out)
    assert f"\nvalid: {RECORDS + 1:,} records in {SEGMENTS + 1} segments, " in ended.out
    flip_bit(shell.folder, "t", value(1234))
    ended = shell.terminal("verify", "-s", "s", NO_COLOR="1").end()
    assert ended.code == 1
    assert re.search(r"\ncorrupt  .*/s/logs/t@\w+/\d{20}\.log at byte [\d,]+\n", ended.out)
    assert "; topic t, offset 1234\n" in ended.out
    assert "\ncorrupt: 2,700 records in " in ended.out


# --- repair --------------------------------------------------------------------------------------


def test_a_sound_store_needs_no_repair(shell: Shell) -> None:
    assert shell.ok("repair", "-s", "s") == ""
    assert shell.terminal("repair", "-s", "s").end().out == "there is nothing to repair\n"


def test_a_dry_run_says_what_repair_does_and_changes_nothing(shell: Shell) -> None:
    leave_a_torn_tail(shell)
    before = snapshot(shell.folder)
    planned = shell.ok("repair", "-s", "s", "--dry-run")
    after = snapshot(shell.folder)
    # The lock file names the last reader.
    assert {path for path in before if after.pop(path) != before[path]} <= {
        str(shell.folder / "s/claim")
    }
    assert after == {}
    (cut,) = (line.split("\t") for line in planned.splitlines() if line.startswith("cut"))
    assert cut[1].endswith(".log")
    assert shell.ok("repair", "-s", "s") == planned
    assert shell.ok("repair", "-s", "s") == ""
    assert shell("verify", "-s", "s").code == 0


def test_repair_throws_nothing_away_and_appends_go_on(shell: Shell) -> None:
    leave_a_torn_tail(shell)
    shell.ok("repair", "-s", "s")
    kept = [value(n).decode() for n in range(80)]
    assert shell.ok("cat", "-s", "s", "torn").splitlines() == kept
    files = b"".join(p.read_bytes() for p in shell.folder.glob("s/logs/torn@*/**/*.log*"))
    assert all(value(n) in files for n in range(100) if n != 80)
    shell.ok("append", "-s", "s", "torn", given=b"next")
    assert shell.ok("cat", "-s", "s", "torn").splitlines() == [*kept, "next"]


def test_repair_goes_on_where_opening_gives_up(shell: Shell) -> None:
    os.truncate(segments(shell)[-1], 0)
    assert shell("append", "-s", "s", "t", given=b"x").code == 1
    told = json.loads(shell.ok("repair", "-s", "s", "--json"))
    assert told["complete"]
    shell.ok("append", "-s", "s", "t", given=b"next")
    assert shell.ok("tail", "-s", "s", "t", "-n", "1") == "next\n"


def test_a_person_sees_the_steps(shell: Shell) -> None:
    leave_a_torn_tail(shell)
    ended = shell.terminal("repair", "-s", "s", "--dry-run", NO_COLOR="1").end()
    assert re.search(r"cut  .*\.log at byte [\d,]+, ", ended.out)
    assert "topic torn partition 0 ends before offset 80\n" in ended.out
    assert re.search(r"\d steps? would be taken\n$", ended.out)


# --- backup --------------------------------------------------------------------------------------


def test_a_backup_is_the_store_as_it_was(shell: Shell) -> None:
    assert shell.ok("backup", "-s", "s", "copy") == ""
    shell.ok("append", "-s", "s", "t", given=b"later")
    assert shell.ok("cat", "-s", "copy", "t").encode().splitlines() == [
        value(n) for n in range(RECORDS)
    ]
    assert shell.ok("verify", "-s", "copy")
    shell.ok("append", "-s", "copy", "t", given=b"other")


def test_a_backup_beside_a_writer_holds_a_prefix(shell: Shell) -> None:
    writer = shell.start("append", "-s", "s", "busy")
    assert writer.stdin
    with library.open(shell.folder / "s") as store:
        follower = iter(store.topic("busy").follow(timeout=DEADLINE_S))
        for n in range(20):
            writer.stdin.write(b"%d\n" % n * 500)
            writer.stdin.flush()
            next(follower)
            if n == 10:
                shell.ok("backup", "-s", "s", "copy")
    writer.communicate(timeout=DEADLINE_S)
    whole = shell.ok("cat", "-s", "s", "busy")
    part = shell.ok("cat", "-s", "copy", "busy")
    assert part
    assert whole.startswith(part)
    assert len(part) < len(whole)


def test_a_backup_overwrites_nothing(shell: Shell) -> None:
    shell.ok("backup", "-s", "s", "copy")
    before = snapshot(shell.folder / "copy")
    ended = shell("backup", "-s", "s", "copy")
    assert ended.code == 2
    assert "copy exists already" in ended.sentence()
    assert snapshot(shell.folder / "copy") == before
    assert shell("backup", "-s", "s", "s/inside").code == 2
    assert shell("backup", "-s", "nothing", "other").code == 2
    assert not (shell.folder / "other").exists()


def test_a_backup_says_what_it_copied(shell: Shell) -> None:
    told = json.loads(shell.ok("backup", "-s", "s", "copy", "--json"))
    assert (told["topics"], told["segments"]) == (2, SEGMENTS + 1)
    ended = shell.terminal("backup", "-s", "s", "other", NO_COLOR="1").end()
    assert "backup to other" in ended.out  # the bar
    assert re.search(
        rf"copied 2 topics, {SEGMENTS + 1} segments, [\d.]+ KiB to other\n$", ended.out
    )


# --- info ----------------------------------------------------------------------------------------


def rows(told: str, kind: str) -> list[list[str]]:
    return [line.split("\t")[1:] for line in told.splitlines() if line.startswith(kind + "\t")]


def test_info_tells_topics_logs_and_who_writes(shell: Shell) -> None:
    writer = shell.start("append", "-s", "s", "t")
    assert writer.stdin
    writer.stdin.write(b"x\n")
    writer.stdin.flush()
    with library.open(shell.folder / "s", read_only=True) as store:
        next(iter(store.topic("t").follow(RECORDS, timeout=DEADLINE_S)))
    until = time.monotonic() + DEADLINE_S
    while True:  # the writer may be syncing its append
        told = shell.ok("info", "-s", "s")
        (log,) = (row for row in rows(told, "log") if row[0] == "t")
        if log[7] == "free" or time.monotonic() > until:
            break
        assert log[7] == f"process {writer.pid}"
    assert ["write mode", "mapped"] in rows(told, "store")
    assert ["pair", "1", "bytes", "0", "1", "1", "pair", "open"] in rows(told, "topic")
    assert (int(log[1]), log[5:]) == (SEGMENTS, ["ready", "free", "free"])
    assert int(log[2]) > RECORDS * 20
    assert int(log[3]) >= SEGMENTS << 12
    (slot,) = (row for row in rows(told, "slot") if row[1] == "writing")
    assert slot[2] == str(writer.pid)
    writer.communicate(timeout=DEADLINE_S)
    assert not [row for row in rows(shell.ok("info", "-s", "s"), "slot") if row[1] == "writing"]


def test_a_topic_is_described_with_its_log(shell: Shell) -> None:
    told = json.loads(shell.ok("topic", "describe", "-s", "s", "pair", "--json"))
    assert (told["name"], told["log"]["name"], told["groups"]) == ("pair", "pair", [])
    ended = shell("topic", "describe", "-s", "s", "none")
    assert ended.code == 2
    assert "there is no topic 'none'" in ended.sentence()


def test_info_tells_of_what_is_damaged_and_shows_the_rest(shell: Shell) -> None:
    (shell.folder / "s/topics/pair/topic.json").write_text("{}")
    ended = shell("info", "-s", "s")
    assert ended.code == 1
    assert "topic.json is corrupt" in ended.sentence()
    assert [row[0] for row in rows(ended.out, "topic")] == ["pair", "t"]


def test_a_person_sees_tables(shell: Shell) -> None:
    out = shell.terminal("info", "-s", "s", NO_COLOR="1").end().out
    assert re.search(r"^write mode   mapped$", out, re.M)
    assert re.search(r"^topic  partition  codec  start    end  durable  log +state$", out, re.M)
    assert re.search(r"^t              0  bytes      0  2,700    2,700  t +open$", out, re.M)
    assert re.search(r"^t            3  [\d.]+ KiB  [\d.]+ KiB +0 B  ready  free +free$", out, re.M)


# --- trim ----------------------------------------------------------------------------------------


def test_trim_deletes_earlier_records_and_a_dry_run_deletes_nothing(shell: Shell) -> None:
    planned = json.loads(
        shell.ok("topic", "trim", "-s", "s", "t", "--before", "2500", "--dry-run", "--json")
    )
    assert planned["dry_run"]
    assert len(segments(shell)) == SEGMENTS
    assert shell.ok("cat", "-s", "s", "t").count("\n") == RECORDS
    done = json.loads(shell.ok("topic", "trim", "-s", "s", "t", "--before", "2500", "--json"))
    assert done["firsts"] == planned["firsts"] == {"0": 2500}
    assert done["segments"] == planned["segments"] == SEGMENTS - len(segments(shell))
    assert shell.ok("cat", "-s", "s", "t").splitlines()[0] == value(2500).decode()
    assert shell.ok("topic", "trim", "-s", "s", "t", "--before=-10").startswith("t\t0\t2690\t")
    assert shell.ok("topic", "trim", "-s", "s", "t", "--before", "1h").startswith("t\t0\t2690\t")
    shell.ok("verify", "-s", "s")


def test_trim_needs_a_partition_for_an_offset_where_there_are_several(shell: Shell) -> None:
    ended = shell("topic", "trim", "-s", "s", "pair", "--before", "1")
    assert ended.code == 2
    assert "partitions" in ended.sentence()
    assert shell.ok("topic", "trim", "-s", "s", "pair", "--before", "1", "-p", "1").startswith(
        "pair\t1\t1\t"
    )


def test_trim_of_what_is_not_there_changes_nothing_and_makes_no_store(shell: Shell) -> None:
    for before in ("5000", "-x", "yesterday"):
        assert shell("topic", "trim", "-s", "s", "t", "--before", before).code == 2
    assert (
        "there is no topic 'nope'"
        in shell("topic", "trim", "-s", "s", "nope", "--before", "1").sentence()
    )
    assert shell("topic", "trim", "-s", "new", "t", "--before", "1").code == 2
    assert not (shell.folder / "new").exists()
    assert shell.ok("cat", "-s", "s", "t").count("\n") == RECORDS


def test_members_without_a_partition_are_shown(shell: Shell) -> None:
    with library.open(shell.folder / "shared") as store:
        store.topic("one").append(b"x")
        store.topic("two").append(b"x")
        with store.consumer("c", topics=["one"]) as first, store.consumer("c", topics=["one"]):
            assert [record.to_bytes() for record in first.poll(10, timeout=5)] == [b"x"]
            first.commit()
            listed = shell.ok("group", "describe", "-s", "shared", "c").splitlines()
            rows = [line.split("\t") for line in listed]
            here = f"process {os.getpid()}"
            assert rows == [["c", "one", "0", "1", "0", here, ""], ["c", "", "", "", "", here, ""]]
            assert shell.ok("group", "list", "-s", "shared") == "c\tone\t1\t0\t2\n"
            for words in (["info"], ["topic", "describe", "one"]):
                told = shell.ok(*words, "-s", "shared").splitlines()
                assert sum(line.startswith("group\tc\t") for line in told) == 2


def test_info_says_where_a_consumer_is_damaged(shell: Shell) -> None:
    with library.open(shell.folder / "hurt") as store:
        store.topic("t").append(b"x")
        store.consumer("c", topics=["t"]).close()
    (damaged,) = (shell.folder / "hurt" / "consumers").iterdir()
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    told = shell("info", "-s", "hurt")
    assert told.code == shell("group", "list", "-s", "hurt").code != 0
    assert damaged.name in told.err


# --- consumers and queues ------------------------------------------------------------------------

TORN, HEADER, NEWER = "torn", "header", "newer"


@pytest.fixture
def beside(tmp_path: Path) -> Shell:
    """A store with three groups and a queue."""
    with library.open(tmp_path / "s") as store:
        topic = store.topic("t")
        topic.extend([b"%d" % n for n in range(9)])
        for name in (TORN, HEADER, NEWER):
            with store.consumer(name, topics=["t"]) as consumer:
                consumer.poll(4, timeout=5)
                consumer.commit()
        store.queue("work", topic="t").take(3).ack()
    return Shell(tmp_path)


def hurt_all(shell: Shell) -> dict[str, Path]:
    """Corrupt two groups and the queue, and make the third one of a newer version."""
    files = {name: shell.folder / "s/consumers" / name for name in (TORN, HEADER, NEWER)}
    files["work"] = shell.folder / "s/queues/work"
    for name, path in files.items():
        data = bytearray(path.read_bytes())
        if name == TORN:
            for place in (8192 + 512, 8192 + 1024):
                data[place : place + 8] = b"\7" * 8
        elif name == NEWER:
            data[8] += 1
            data[60:64] = zlib.crc32(data[:60]).to_bytes(4, "little")
        else:
            data[20] ^= 1
        path.write_bytes(data)
    return files


def test_corruption_of_groups_and_queues_is_found_and_its_remedy_helps(beside: Shell) -> None:
    files = hurt_all(beside)
    before = snapshot(beside.folder)
    ended = beside("verify", "-s", "s")
    assert (ended.code, ended.err) == (1, "")
    rows = [row.split("\t") for row in ended.out.splitlines() if not row.startswith("topic\t")]
    found = {Path(row[1]).name: (row[0], row[2], row[4], row[5]) for row in rows}
    assert found == {
        TORN: ("corrupt", "8704", "t", "0"),
        HEADER: ("corrupt", "0", "", ""),
        NEWER: ("newer", "0", "", ""),
        "work": ("corrupt", "0", "", ""),
    }
    assert {row[1] for row in rows} == {str(path.resolve()) for path in files.values()}
    assert json.loads(beside("verify", "-s", "s", "--json").out)["worst"] == "damage"
    assert beside("verify", "-s", "s", "t").code == 0, "one topic is its log alone"
    assert snapshot(beside.folder) == before

    # The remedy of each is a command that repairs it.
    said = [match for row in rows for match in re.findall("`falaj ([^`]+)`", row[9])]
    assert len(said) == 3
    for command in said:
        words = command.replace("PLACE", "earliest").split()
        sure = [] if words[1] == "seek" else ["--yes"]
        beside.ok(*words, "-s", "s", *sure)
    assert beside("verify", "-s", "s").code == 3, "only the newer version's file is left"
    assert beside.ok("tail", "-s", "s", "--group", TORN, "t", "--commit").split() == list(
        "012345678"
    )


def test_corruption_of_groups_and_queues_is_reported_by_repair_maintain_and_backup(
    beside: Shell,
) -> None:
    files = hurt_all(beside)
    before = {path: path.read_bytes() for path in files.values()}
    for verb in (
        ["repair", "-s", "s", "--dry-run"],
        ["repair", "-s", "s"],
        ["maintain", "-s", "s", "--dry-run"],
        ["maintain", "-s", "s"],
        ["backup", "-s", "s", "copy"],
    ):
        ended = beside(*verb)
        assert ended.code == 1, verb
        told = ended.err.splitlines()
        for path in files.values():
            assert sum(str(path.resolve()) in line for line in told) == 1, (verb, ended.err)
        for helps in ("group seek", "group delete", "queue reset"):
            assert f"`falaj {helps}`" in ended.err, verb
        assert {path: path.read_bytes() for path in files.values()} == before, verb
    for path in files.values():
        copy = beside.folder / "copy" / path.relative_to(beside.folder / "s")
        whole = 4096 if path.name == "work" else None
        assert copy.read_bytes()[:whole] == before[path][:whole]
    assert beside("verify", "-s", "copy").code == 1
    assert beside.ok("cat", "-s", "copy", "t").count("\n") == 9


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_user_who_may_not_write_sees_which_files_could_not_be_checked() -> None:
    """A queue's file is a lock file: a user who can open it could keep it locked."""
    program = """
import json, os, sys, falaj
falaj.verify(sys.argv[1])  # late imports may be in a place that the other user may not read
os.setgid(65534); os.setuid(65534)
print(json.dumps(falaj.verify(sys.argv[1])))
"""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with library.open(Path(folder) / "s", permissions=0o755) as store:
            store.queue("work", topic="t").put(b"x")
            store.consumer("c", topics=["t"]).close()
        arguments = [sys.executable, "-c", program, str(Path(folder) / "s")]
        done = subprocess.run(arguments, check=True, capture_output=True, timeout=60, cwd="/")
    found = json.loads(done.stdout)
    told = [(each["severity"], Path(each["path"]).name) for each in found["findings"]]
    assert (found["sound"], told) == (True, [("note", "work")])
    (each,) = found["findings"]
    assert "not checked" in each["what"]
