"""`falaj tail`: the last records, and new ones."""

import json
import select
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import falaj as library
from cli.shell import DEADLINE_S, Shell, flip_bit, interrupt

if TYPE_CHECKING:
    import subprocess


def fill(falaj: Shell, records: int, partitions: int = 1) -> None:
    with library.open(falaj.folder / "s") as store:
        topic = store.partitioned_topic("t", partitions=partitions)
        for n in range(records):
            at = f"2026-11-20T{n:02}:00:00Z"
            topic.append(b"r%d" % n, timestamp=at, partition=n % partitions)


def lines(*numbers: int) -> str:
    return "".join(f"r{n}\n" for n in numbers)


def read_line(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout
    return process.stdout.readline()


def test_the_last_ten_are_shown_by_itself(falaj: Shell) -> None:
    fill(falaj, 15)
    assert falaj.ok("tail", "-s", "s", "t") == lines(*range(5, 15))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-n", "2"], [13, 14]),
        (["-n", "0"], []),
        (["-n", "99"], list(range(15))),
        (["--from", "12"], [12, 13, 14]),
        (["--from", "-1"], [14]),
        (["--since", "2026-11-20T13:00:00Z"], [13, 14]),
        (["-n", "3", "--grep", "4"], [14]),
    ],
)
def test_a_beginning_can_be_chosen(falaj: Shell, options: list[str], expected: list[int]) -> None:
    fill(falaj, 15)
    assert falaj.ok("tail", "-s", "s", "t", *options) == lines(*expected)


def test_the_last_of_several_partitions_are_the_newest_of_all(falaj: Shell) -> None:
    fill(falaj, 8, partitions=3)
    assert falaj.ok("tail", "-s", "s", "t", "-n", "4") == lines(4, 5, 6, 7)
    assert falaj.ok("tail", "-s", "s", "t", "-n", "1", "-p", "0") == lines(6)
    assert falaj.ok("tail", "-s", "s", "t", "-n", "99") == lines(*range(8))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["-n", "1", "--from", "1"], "give one of them"),
        (["--from", "1", "--since", "5m"], "give one of them"),
        (["--idle", "1"], "add -f"),
        (["--from", "16"], "has no record 16"),
        (["-n", "-1"], "-n: the number is 0 or more, not -1"),
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence(
    falaj: Shell, options: list[str], why: str
) -> None:
    fill(falaj, 15)
    ended = falaj("tail", "-s", "s", "t", *options)
    assert (ended.code, ended.out) == (2, "")
    assert why in ended.sentence()


def test_following_prints_each_record_when_it_comes(falaj: Shell) -> None:
    fill(falaj, 3, partitions=2)
    process = falaj.start("tail", "-s", "s", "t", "-f", "-n", "1")
    assert read_line(process) == b"r2\n"
    with library.open(falaj.folder / "s") as store:
        for n in range(3, 6):
            store.any_topic("t").append(b"r%d" % n, partition=n % 2)
            assert read_line(process) == b"r%d\n" % n
    assert interrupt(process).code == -2


def test_following_begins_where_it_is_told_and_misses_nothing(falaj: Shell) -> None:
    fill(falaj, 5)
    process = falaj.start("tail", "-s", "s", "t", "-f", "--from", "1", "--json")
    told = [json.loads(read_line(process))["offset"] for _ in range(4)]
    with library.open(falaj.folder / "s") as store:
        store.topic("t").extend([b"x%d" % n for n in range(20_000)])
    told += [json.loads(read_line(process))["offset"] for _ in range(20_000)]
    assert told == list(range(1, 20_005))
    assert interrupt(process).code == -2


def test_only_what_matches_is_followed(falaj: Shell) -> None:
    fill(falaj, 2)
    process = falaj.start("tail", "-s", "s", "t", "-f", "-n", "0", "--grep", "yes")
    with library.open(falaj.folder / "s") as store:
        # The first record that is seen shows that it follows; earlier ones may have come too early.
        topic = store.topic("t")
        topic.append(b"no")
        while not ready(process):
            topic.append(b"yes")
        topic.extend([b"no", b"yes, last"])
    assert process.stdout
    told = [*iter(process.stdout.readline, b"yes, last\n")]
    assert set(told) == {b"yes\n"}
    assert interrupt(process).code == -2


def ready(process: "subprocess.Popen[bytes]") -> bool:
    assert process.stdout
    return bool(select.select([process.stdout], [], [], 0.05)[0])


def test_it_ends_quietly_when_nothing_came_for_so_long(falaj: Shell) -> None:
    fill(falaj, 2)
    assert falaj.ok("tail", "-s", "s", "t", "-f", "--idle", "0.1") == lines(0, 1)


def test_what_is_durable_is_shown_when_only_that_is_asked_for(falaj: Shell) -> None:
    fill(falaj, 12)
    assert falaj.ok("tail", "-s", "s", "t", "-f", "--durable", "--idle", "0.1") == lines(
        *range(2, 12)
    )
    with library.open(falaj.folder / "s") as store:
        topic = store.topic("t", sync="none")
        topic.append(b"r12")
        assert (topic.durable_offset, topic.end_offset) == (12, 13)
        assert falaj.ok("tail", "-s", "s", "t", "--durable", "-n", "1") == lines(11)
        assert falaj.ok("cat", "-s", "s", "t", "--durable") == lines(*range(12))
        late = ("--durable", "--since", "2026-11-20T09:00Z")
        assert falaj.ok("cat", "-s", "s", "t", *late) == lines(9, 10, 11)
        assert falaj.ok("cat", "-s", "s", "t", "--from", "12") == lines(12)
        refused = falaj("cat", "-s", "s", "t", "--durable", "--from", "13")
        assert (refused.code, "holds offsets 0 to 11" in refused.err) == (2, True)


def test_ctrl_c_ends_it_by_its_signal_and_without_a_word(falaj: Shell) -> None:
    fill(falaj, 1)
    process = falaj.start("tail", "-s", "s", "t", "-f")
    assert read_line(process) == b"r0\n"
    ended = interrupt(process)
    assert (ended.code, ended.out, ended.err) == (-2, "", "")


def test_ctrl_c_on_a_terminal_ends_it_and_the_shell_sees_130(falaj: Shell) -> None:
    fill(falaj, 1)
    terminal = falaj.terminal("tail", "-s", "s", "t", "-f", NO_COLOR="1")
    terminal.wait_for("r0")
    terminal.type("\x03")
    ended = terminal.end()
    assert ended.code == -2
    assert ended.out.endswith("  r0\n^C")


def test_a_topic_that_is_deleted_meanwhile_ends_it_with_a_sentence(falaj: Shell) -> None:
    fill(falaj, 1)
    process = falaj.start("tail", "-s", "s", "t", "-f")
    assert read_line(process) == b"r0\n"
    falaj.ok("topic", "delete", "-s", "s", "t", "--yes")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (4, b"")
    assert err.decode() == 'falaj: topic "t" was deleted; open it again to create a new one\n'


def test_a_pipe_that_closes_ends_it_at_the_next_record(falaj: Shell) -> None:
    fill(falaj, 1)
    process = falaj.start("tail", "-s", "s", "t", "-f")
    assert read_line(process) == b"r0\n"
    assert process.stdout
    process.stdout.close()
    with library.open(falaj.folder / "s") as store:
        store.topic("t").append(b"r1")
    with process:
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr
        assert process.stderr.read() == b""


def test_a_consumer_whose_cursors_are_in_a_log_is_looked_at_and_stays_where_it_is(
    tmp_path: Path,
) -> None:
    falaj = Shell(tmp_path)
    with library.open(tmp_path / "s") as store:
        numbers, results = store.topic("numbers"), store.topic("results")
        numbers.extend([b"%d" % i for i in range(5)])
        with store.consumer("doubler", [numbers], cursor_in=results) as doubler:
            for _ in zip(range(2), doubler, strict=False):
                pass
            with store.transaction() as tx:
                tx.append(results, b"0, 2")
                tx.commit_cursor(doubler)
            # A member reads as that group meanwhile: that must not stop others from looking.
            for _ in range(2):
                assert falaj.ok("tail", "-s", "s", "numbers", "--group", "doubler") == "2\n3\n4\n"
        refused = falaj("tail", "-s", "s", "numbers", "--group", "doubler", "--commit")
        assert (refused.code, "falaj group seek" in refused.sentence()) == (2, True)


def test_a_consumer_can_be_looked_at_without_moving_it(tmp_path: Path) -> None:
    falaj = Shell(tmp_path)
    with library.open(tmp_path / "s") as store:
        store.partitioned_topic("t", partitions=2).extend([b"a", b"b"], partition=1)
    assert falaj("tail", "-s", "s", "t", "--group", "c", "--no-commit").code == 2
    assert falaj.ok("tail", "-s", "s", "t", "--group", "c") == "a\nb\n"
    falaj.ok("group", "seek", "-s", "s", "c", "t", "--to", "1", "-p", "1")
    look = ("tail", "-s", "s", "t", "--group", "c", "--no-commit", "-f", "--idle", "0")
    assert [falaj.ok(*look) for _ in range(2)] == ["b\n"] * 2
    assert falaj("tail", "-s", "s", "t", "--no-commit").code == 2


def test_looking_at_a_consumer_of_a_newer_version_is_no_damage(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        store.topic("t").append(b"x")
        store.consumer("c", topics=["t"]).close()
    (file,) = (falaj.folder / "s" / "consumers").iterdir()
    image = bytearray(file.read_bytes())
    image[8:12] = (99).to_bytes(4, "little")
    image[60:64] = zlib.crc32(image[:60]).to_bytes(4, "little")
    file.write_bytes(image)
    for looks in (
        ["group", "list", "-s", "s"],
        ["tail", "-s", "s", "t", "--group", "c", "--no-commit"],
    ):
        assert falaj(*looks).code == 3, looks


def test_a_consumer_goes_on_behind_damage_for_good_when_told_to(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        for n in range(5):
            store.topic("t").append(b"value-%d" % n)
    flip_bit(falaj.folder, "t", b"value-2")
    stopped = falaj("tail", "-s", "s", "t", "--group", "c")
    assert (stopped.code, stopped.out) == (1, "value-0\nvalue-1\n")
    passed = falaj("tail", "-s", "s", "t", "--group", "c", "--skip-corrupt")
    assert (passed.code, passed.out) == (1, "value-3\nvalue-4\n")
    assert "t" in passed.sentence()
    assert falaj.ok("tail", "-s", "s", "t", "--group", "c", "--skip-corrupt") == ""
    for unfit in ([], ["--group", "c", "--no-commit"]):
        assert falaj("tail", "-s", "s", "t", *unfit, "--skip-corrupt").code == 2


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_last_records_are_found_beyond_what_compaction_took(
    falaj: Shell, partitions: int
) -> None:
    with library.open(falaj.folder / "s") as store:
        topic = store.partitioned_topic(
            "t", partitions=partitions, segment_bytes=65536, compacted=True
        )
        for n in range(4):
            # The first partition lost more records, so the search goes further back.
            at, partition = f"2026-11-20T{n:02}:00:00Z", n % partitions
            topic.append(b"r%d" % n, key=b"%d" % n, timestamp=at, partition=partition)
            for _ in range(2000 >> partition):
                topic.append(b"again", key=b"again", timestamp=at, partition=0)
        topic.append(b"r4", key=b"again", timestamp="2026-11-20T04:00:00Z", partition=0)
        topic.compact(seal=True)
    for n in range(7):
        printed = lines(*range(max(0, 5 - n), 5))
        assert falaj.ok("tail", "-s", "s", "t", "-n", str(n)) == printed
    told = json.loads(falaj.ok("topic", "list", "-s", "s", "--json"))
    assert told["last"] == "2026-11-20T04:00:00.000000Z"


def test_tail_prints_what_is_before_damage_also_of_the_last_records(falaj: Shell) -> None:
    fill(falaj, 9)
    flip_bit(falaj.folder, "t", b"r7")
    ended = falaj("tail", "-s", "s", "t", "-n", "4")
    assert (ended.out, ended.code) == (lines(5, 6), 1)


def test_several_topics_are_followed_until_none_came(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        topics = {name: store.topic(name) for name in "ab"}
        topics["a"].append(b"old")
        process = falaj.start("tail", "-s", "s", "a", "b", "-f", "--format", r"%t=%v\n")
        assert read_line(process) == b"a=old\n"  # so it has found the topics' ends
        for n, name in enumerate("bab"):
            topics[name].append(b"%d" % n)
            assert read_line(process) == f"{name}={n}\n".encode()
        watcher = falaj.start("tail", "-s", "s", "a", "b", "-f")
        assert read_line(watcher) == b"old\n"
        ended = interrupt(watcher)
        assert (ended.code, ended.err) == (-2, "")
        topics["b"].delete()
        assert process.wait(DEADLINE_S) == 4, "the end of one must end all"
        process.communicate()
    assert falaj.ok("tail", "-s", "s", "a", "-f", "-n", "1", "--idle", "0.1") == "1\n"
    falaj.ok("append", "-s", "s", "c", given=b"2\n")
    told = falaj.ok("tail", "-s", "s", "a", "c", "-f", "-n", "2", "--idle", "0.1")
    assert told == "1\n2\n"


def test_a_group_reads_several_topics_each_record_once(falaj: Shell) -> None:
    for name in "ab":
        falaj.ok("append", "-s", "s", name, given=f"{name}1\n{name}2\n".encode())
    told = falaj.ok("tail", "-s", "s", "a", "b", "--group", "g")
    assert sorted(told.split()) == ["a1", "a2", "b1", "b2"]
    falaj.ok("append", "-s", "s", "b", given=b"b3\n")
    assert falaj.ok("tail", "-s", "s", "a", "b", "--group", "g", "--no-commit") == "b3\n"
    assert falaj.ok("tail", "-s", "s", "a", "b", "--group", "g") == "b3\n"
    assert falaj.ok("group", "list", "-s", "s") == "g\ta,b\t2\t0\t0\n"


def test_a_group_reads_the_topics_of_a_pattern(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "eu.orders", given=b"one\n")
    falaj.ok("append", "-s", "s", "us.orders", given=b"two\n")
    args = ("tail", "-s", "s", "--group", "audit", "--pattern")
    assert falaj.ok(*args, "eu.*") == "one\n"
    falaj.ok("append", "-s", "s", "eu.refunds", given=b"three\n")
    assert falaj.ok(*args, "eu.*", "--format", "%t %v\\n") == "eu.refunds three\n"
    for wrong, why in (
        ((*args, "^eu"), "no regular expression"),
        ((*args, "eu.*", "eu.orders"), "takes the place of topics"),
        (("tail", "-s", "s", "--pattern", "eu.*"), "add --group"),
        (("tail", "-s", "s"), "say which topics"),
    ):
        ended = falaj(*wrong)
        assert ended.code == 2
        assert why in ended.err
