"""`falaj cat`: records in a pipe, as JSON, as bytes, and on a terminal."""

import base64
import json
import os
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest

import falaj as library
from cli.shell import PROGRAM, Ended, Shell, flip_bit, snapshot
from falaj.cli.stores import NewTopic, raw_topic

JSON = NewTopic(codec="json")
EIGHT = "2026-11-20T08:00:00Z"
NINE = "2026-11-20T09:00:00Z"


def fill(falaj: Shell, *values: bytes, topic: str = "t", codec: str = "bytes") -> None:
    with library.open(falaj.folder / "s") as store:
        store.topic(topic, codec=library.Codec("own", bytes, bytes) if codec == "own" else codec)
        opened = store.topic(topic) if codec == "bytes" else None
        if opened:
            opened.extend(list(values))


def timed(falaj: Shell, partitions: int = 1) -> None:
    """Six records, an hour apart, spread over the partitions in turn."""
    with library.open(falaj.folder / "s") as store:
        topic = store.partitioned_topic("t", partitions=partitions)
        for n in range(6):
            at = f"2026-11-20T{8 + n:02}:00:00Z"
            topic.append(b"r%d" % n, b"k%d" % n, timestamp=at, partition=n % partitions)


def test_a_pipe_gets_the_values_and_nothing_else(falaj: Shell) -> None:
    fill(falaj, b"one", b"", b"caf\xc3\xa9", b"tab\there")
    assert falaj.ok("cat", "-s", "s", "t") == "one\n\ncafé\ntab\there\n"


def test_bytes_that_are_not_utf_8_are_escaped_and_raw_gives_them_back(falaj: Shell) -> None:
    fill(falaj, b"ok", b"a\xff\x00", b"\x80z")
    assert falaj.ok("cat", "-s", "s", "t") == "ok\na\\xff\x00\n\\x80z\n"
    assert falaj.binary("cat", "-s", "s", "t", "--raw").stdout == b"oka\xff\x00\x80z"


def test_what_cat_prints_can_be_appended_again(falaj: Shell) -> None:
    lines = "".join(f"line {n}\n" for n in range(20_000))
    falaj.ok("append", "-s", "s", "t", given=lines.encode())
    falaj.ok("append", "-s", "s", "copy", given=falaj.ok("cat", "-s", "s", "t").encode())
    assert falaj.ok("cat", "-s", "s", "copy") == lines


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "012345"),
        (["--from", "4"], "45"),
        (["--from", "-2"], "45"),
        (["--from", "-99"], "012345"),
        (["--from", "6"], ""),
        (["--to", "2"], "01"),
        (["--to", "-4"], "01"),
        (["--from", "2", "--to", "4"], "23"),
        (["--from", "4", "--to", "2"], ""),
        (["--to", "99"], "012345"),
        (["-n", "2"], "01"),
        (["-n", "0"], ""),
        (["-n", "9" * 20], "012345"),
        (["--to", "9" * 20], "012345"),
        (["--from", "3", "--limit", "2"], "34"),
        (["--since", "2026-11-20T10:00:00Z"], "2345"),
        (["--since", "2026-11-20T12:00:00+02:00"], "2345"),
        (["--since", "1795168800"], "2345"),
        (["--until", NINE], "0"),
        (["--since", NINE, "--until", "2026-11-20T11:00:00Z"], "12"),
        (["--since", "2030-01-01T00:00:00Z"], ""),
        (["--grep", "r[135]"], "135"),
        (["--grep", "r[135]", "-n", "2"], "13"),
        (["-g", "^5$"], ""),
    ],
)
def test_a_range_is_what_its_options_say(falaj: Shell, options: list[str], expected: str) -> None:
    timed(falaj)
    assert falaj.ok("cat", "-s", "s", "t", *options) == "".join(f"r{n}\n" for n in expected)


def test_since_takes_a_span_that_ends_now(falaj: Shell) -> None:
    timed(falaj)  # far in the past or the future, whatever the clock says
    fill(falaj, b"now")
    assert falaj.ok("cat", "-s", "s", "t", "--since", "5m").splitlines()[-1:] == ["now"]
    assert falaj.ok("cat", "-s", "s", "t", "--until", "0s", "--grep", "now") == "now\n"


def test_a_beginning_that_is_not_there_is_an_error_and_not_an_empty_answer(falaj: Shell) -> None:
    timed(falaj)
    ended = falaj("cat", "-s", "s", "t", "--from", "7")
    assert (ended.code, ended.out) == (2, "")
    assert ended.sentence() == ('topic "t" has no record 7: it holds offsets 0 to 5')


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--grep", "["], "--grep takes a regular expression, and '[' is none"),
        (["--since", "soon"], "'soon' is no time: write 5m or 1h30m"),
        (["--since", "2026-11-20T08:00:00"], "has no time zone: end it in Z or +02:00"),
        (["--since", "5m", "--from", "1"], "give one of them"),
        (["--until", "5m", "--to", "1"], "give one of them"),
        (["--json", "--raw"], "give one of them"),
        (["--time-format", "roman"], "write one of iso, local, unix, ns, none, not 'roman'"),
        (["--partition", "1"], "topic t has no partition 1: choose one from 0 to 0"),
        (["--nonsense"], "there is no option --nonsense"),
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence(
    falaj: Shell, options: list[str], why: str
) -> None:
    timed(falaj)
    ended = falaj("cat", "-s", "s", "t", *options)
    assert (ended.code, ended.out) == (2, "")
    assert why in ended.sentence()


# --- Partitions ----------------------------------------------------------------------------------


def test_partitions_are_merged_by_time(falaj: Shell) -> None:
    timed(falaj, partitions=3)
    assert falaj.ok("cat", "-s", "s", "t") == "r0\nr1\nr2\nr3\nr4\nr5\n"
    assert falaj.ok("cat", "-s", "s", "t", "--since", NINE, "-n", "2") == "r1\nr2\n"


def test_one_partition_can_be_read_by_its_offsets(falaj: Shell) -> None:
    timed(falaj, partitions=3)
    assert falaj.ok("cat", "-s", "s", "t", "-p", "2", "--from", "1") == "r5\n"
    assert (
        falaj.ok("cat", "-s", "s", "t", "--offsets")
        == "0:0\tr0\n1:0\tr1\n2:0\tr2\n0:1\tr3\n1:1\tr4\n2:1\tr5\n"
    )
    ended = falaj("cat", "-s", "s", "t", "--from", "1")
    assert ended.code == 2
    assert "3 partitions, each with offsets of its own: add --partition" in ended.sentence()


# --- Columns and JSON ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--offsets"], "1\tr1"),
        (["--keys"], "k1\tr1"),
        (["--time-format", "iso"], "2026-11-20T09:00:00.000000Z\tr1"),
        (["--time-format", "local"], "2026-11-20T09:00:00.000000+00:00\tr1"),
        (["--time-format", "unix"], "1795165200.000000000\tr1"),
        (["--time-format", "ns"], "1795165200000000000\tr1"),
        (["--time-format", "none"], "r1"),
        (["--keys", "--offsets", "--time-format", "ns"], "1\t1795165200000000000\tk1\tr1"),
    ],
)
def test_columns_are_added_where_asked_for(falaj: Shell, options: list[str], line: str) -> None:
    timed(falaj)
    assert falaj.ok("cat", "-s", "s", "t", *options, "--from", "1", "-n", "1") == line + "\n"


def test_a_column_holds_no_separator_of_its_own(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        store.topic("t").append(b"v", b"a\tb\nc\xff")
    assert falaj.ok("cat", "-s", "s", "t", "--keys") == "a\\tb\\nc\\xff\tv\n"


def test_json_tells_everything_of_a_record(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        store.topic("t").append(
            b"v", b"k", headers=[("a", b"1"), ("a", b"\xff"), ("b", None)], timestamp=EIGHT
        )
    assert json.loads(falaj.ok("cat", "-s", "s", "t", "--json")) == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "time": "2026-11-20T08:00:00.000000Z",
        "key": "k",
        "headers": [
            {"name": "a", "value": "1"},
            {"name": "a", "value_base64": "/w=="},
            {"name": "b", "value": None},
        ],
        "value": "v",
    }


def test_json_loses_no_byte(falaj: Shell) -> None:
    value = bytes(range(256))
    with library.open(falaj.folder / "s") as store:
        store.topic("t").append(value, b"\xfe")
    told = json.loads(falaj.ok("cat", "-s", "s", "t", "--json"))
    assert base64.b64decode(told["value_base64"]) == value
    assert base64.b64decode(told["key_base64"]) == b"\xfe"
    assert "value" not in told


@pytest.mark.parametrize(
    "written", ['{"a":1.50,"b":12345678901234567890.1}', '"\\ud800"', "null", "[1e999]"]
)
def test_a_json_value_stands_in_json_as_it_was_written(falaj: Shell, written: str) -> None:
    with library.open(falaj.folder / "s") as store, raw_topic(store, "t", JSON) as topic:
        topic.append(written.encode())
    assert falaj.ok("cat", "-s", "s", "t", "--json").endswith(f'"value":{written}}}\n')


def test_a_json_value_of_several_lines_is_put_into_one(falaj: Shell) -> None:
    written = '{"a": 1.50,\r\n "b": [1e999, 12345678901234567890.1, %s],\n"a": "\\ud800\\n"}' % (
        "7" * 5000
    )
    with library.open(falaj.folder / "s") as store, raw_topic(store, "t", JSON) as topic:
        topic.append(f"\n{written}\r\n".encode())
    told = falaj.ok("cat", "-s", "s", "t", "--json")
    in_one = written.replace("\r", " ").replace("\n", " ")
    assert told.endswith(f'"value":{in_one}}}\n')
    assert told.count("\n") == 1


def test_what_no_parser_takes_is_base64_in_json(falaj: Shell) -> None:
    values = [b"[" * 200_000, b"[" * 200_000 + b"]" * 200_000, b"{", b"[NaN]", b"1\x1c"]
    with library.open(falaj.folder / "s") as store, raw_topic(store, "t", JSON) as topic:
        topic.extend(values)
    told = falaj.ok("cat", "-s", "s", "t", "--json").splitlines()
    assert [b64decode(json.loads(line)["value_base64"]) for line in told] == values


def test_values_of_every_codec_are_shown_and_no_pickle_is_run(falaj: Shell) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (falaj.folder / "exploded",)

    with library.open(falaj.folder / "s") as store:
        store.topic("pickles", codec="pickle").append(Bomb())
        own = library.Codec("celsius", lambda t: f"{t:.1f}".encode(), float)
        store.topic("own", codec=own).append(21.5)
    assert falaj.ok("cat", "-s", "s", "own") == "21.5\n"
    assert "exploded" in falaj.ok("cat", "-s", "s", "pickles")
    assert "value_base64" in falaj.ok("tail", "-s", "s", "pickles", "--json")
    assert not (falaj.folder / "exploded").exists()


def test_a_pattern_may_hold_bytes_that_are_not_utf_8(falaj: Shell) -> None:
    fill(falaj, b"caf\xc3\xa9", b"caf\xe9", b"cafe")
    assert falaj.ok("cat", "-s", "s", "t", "--grep", os.fsdecode(b"f\xe9")) == "caf\\xe9\n"
    assert falaj.ok("cat", "-s", "s", "t", "--grep", "fé") == "café\n"


# --- Reading only --------------------------------------------------------------------------------


def test_reading_creates_and_changes_nothing(falaj: Shell) -> None:
    fill(falaj, b"one")
    before = snapshot(falaj.folder)
    falaj.ok("cat", "-s", "s", "t")
    falaj.ok("tail", "-s", "s", "t")
    falaj.ok("topic", "list", "-s", "s")
    assert falaj("cat", "-s", "s", "new").code == 2
    assert falaj("cat", "-s", "new", "t").code == 2
    assert snapshot(falaj.folder) == before


# --- Pipes that close ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", [[], ["--json"], ["--grep", "."]])
def test_a_reader_that_has_enough_ends_it_in_silence(falaj: Shell, form: list[str]) -> None:
    falaj.ok("append", "-s", "s", "t", given=b"x\n" * 200_000)
    command = '"$0" "$@" | head -n 1; echo "${PIPESTATUS[0]}"'
    done = subprocess.run(
        ["bash", "-c", command, PROGRAM, "cat", "-s", "s", "t", *form],
        cwd=falaj.folder,
        env=falaj.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == ["0"]


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_full_disk_under_the_output_is_told(falaj: Shell, size: int) -> None:
    fill(falaj, b"x" * size)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PROGRAM, "cat", "-s", "s", "t"],
            cwd=falaj.folder,
            env=falaj.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert Ended(done.returncode, "", done.stderr).sentence() == (
        "cannot write the output: No space left on device; make room or send it elsewhere"
    )
    assert done.returncode == 3


def test_a_limit_on_the_size_of_the_output_is_told_as_one(falaj: Shell) -> None:
    fill(falaj, b"x" * 5000)
    limited = 'ulimit -f 1; "$0" cat -s s t > here'
    done = subprocess.run(
        ["bash", "-c", limited, PROGRAM],
        cwd=falaj.folder,
        env=falaj.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert Ended(done.returncode, "", done.stderr).sentence() == (
        "cannot write the output: File too large; raise `ulimit -f` or send it elsewhere"
    )
    assert done.returncode == 3


# --- Corruption
# ------------------------------------------------------------------------------------


@pytest.fixture
def damaged(falaj: Shell) -> Shell:
    with library.open(falaj.folder / "s") as store:
        topic = store.topic("t")
        for n in range(50):
            topic.append(b"record-%04d" % n)
    flip_bit(falaj.folder, "t", b"record-0020")
    return falaj


def test_everything_before_damage_is_printed_and_the_place_is_named(damaged: Shell) -> None:
    for form in ([], ["--offsets", "--no-offsets"], ["--grep", "record"]):
        ended = damaged("cat", "-s", "s", "t", *form)
        assert ended.code == 1
        assert ended.out.splitlines() == [f"record-{n:04}" for n in range(20)]
        assert "00000000000000000000.log is corrupt at byte" in ended.sentence()
        assert "falaj verify" in ended.sentence()


def test_damage_can_be_skipped_and_is_still_told(damaged: Shell) -> None:
    ended = damaged("cat", "-s", "s", "t", "--skip-corrupt")
    assert ended.code == 1
    assert ended.out.splitlines() == [f"record-{n:04}" for n in range(50) if n != 20]
    assert "is corrupt at byte" in ended.sentence()


def test_what_is_not_damaged_can_be_read_as_ever(damaged: Shell) -> None:
    assert damaged.ok("cat", "-s", "s", "t", "--from", "21", "-n", "1") == "record-0021\n"
    assert damaged.ok("cat", "-s", "s", "t", "--to", "20").count("\n") == 20


# --- On a terminal -------------------------------------------------------------------------------


def test_a_terminal_sees_columns_in_colours(falaj: Shell) -> None:
    timed(falaj)
    ended = falaj.terminal("cat", "-s", "s", "t", "--to", "1").end()
    time = "\x1b[32m2026-11-20T08:00:00.000000Z\x1b[0m"
    assert ended.code == 0
    assert ended.out == f"\x1b[2m       0\x1b[0m  {time}  \x1b[36mk0\x1b[0m  r0\n"


@pytest.mark.parametrize("changed", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_color_is_respected(falaj: Shell, changed: dict[str, str]) -> None:
    timed(falaj)
    ended = falaj.terminal("cat", "-s", "s", "t", "--to", "1", **changed).end()
    assert ended.out == "       0  2026-11-20T08:00:00.000000Z  k0  r0\n"
    ended = falaj.terminal("cat", "-s", "s", "none", **changed).end()
    assert "\x1b" not in ended.out


def test_columns_can_be_left_out_on_a_terminal(falaj: Shell) -> None:
    timed(falaj)
    bare = ["--no-offsets", "--no-keys", "--time-format", "none"]
    assert falaj.terminal("cat", "-s", "s", "t", "--to", "2", *bare).end().out == "r0\nr1\n"


def test_a_record_cannot_play_with_the_terminal(falaj: Shell) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\r\n\u202e\u009b31m".encode()
    with library.open(falaj.folder / "s") as store:
        store.topic("t").append(evil, b"\x1b[2J", timestamp=EIGHT)
    ended = falaj.terminal("cat", "-s", "s", "t", NO_COLOR="1").end()
    assert ended.out == (
        "       0  2026-11-20T08:00:00.000000Z  \\x1b[2J  "
        "\\x1b]0;owned\\x07\\x1b[2J\\r\\n\\u202e\\x9b31m\n"
    )


# --- Templates, and several topics ---------------------------------------------------------------


def test_a_template_prints_the_parts_of_a_record(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        topic = store.partitioned_topic("t", partitions=2)
        topic.append(
            b"\xff%v\n", key="k", headers=[("a", b"1"), ("b", None)], partition=1,
            timestamp="2026-11-20T08:00:00Z",
        )  # fmt: skip
        topic.tombstone("gone", partition=1)
    form = r"%t %p %o %k %K %v %V %h %%\t\x41\\|"
    done = falaj.binary("cat", "-s", "s", "t", "--format", form)
    assert done.stdout == (b"t 1 0 k 1 \xff%v\n 4 a=1,b %\tA\\|" + b"t 1 1 gone 4  -1  %\tA\\|")
    told = falaj.ok("cat", "-s", "s", "t", "--format", r"%T\n", "-n", "1")
    assert told == "2026-11-20T08:00:00.000000Z\n"
    told = falaj.ok("cat", "-s", "s", "t", "--format", "%T,", "-n", "1", "--time-format", "ns")
    assert told == "1795161600000000000,"


def test_a_template_on_a_terminal_lets_no_record_play_with_it(falaj: Shell) -> None:
    fill(falaj, b"\x1b[2Jx\ny")
    ended = falaj.terminal("cat", "-s", "s", "t", "--format", r"%v\n").end()
    assert ended.out == "\\x1b[2Jx\\ny\n"


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("%x", "--format has no part %x: it takes %t %p %o"),
        ("%", "--format has no part %: it takes"),
        (r"\q", r"--format has no escape \q"),
        (r"\x4", "takes two hexadecimal digits"),
        ("\\", "--format has no escape"),
    ],
)
def test_a_template_that_is_none_is_refused(falaj: Shell, form: str, why: str) -> None:
    fill(falaj, b"x")
    for command in ("cat", "tail"):
        ended = falaj(command, "-s", "s", "t", "--format", form)
        assert (ended.code, ended.out) == (2, "")
        assert why in ended.sentence()


def test_several_topics_are_merged_by_time_and_told_apart(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        for n in range(6):
            store.topic("ab"[n % 2]).append(b"%d" % n, timestamp=f"2026-11-20T0{n}:00:00Z")
    assert falaj.ok("cat", "-s", "s", "b", "a") == "0\n1\n2\n3\n4\n5\n"
    assert falaj.ok("tail", "-s", "s", "a", "b", "-n", "3") == "3\n4\n5\n"
    assert falaj.ok("cat", "-s", "s", "a", "b", "--offsets", "-n", "2") == "a\t0\t0\nb\t0\t1\n"
    told = falaj.ok("cat", "-s", "s", "a", "b", "--json", "--since", "2026-11-20T04:00Z")
    assert [json.loads(line)["topic"] for line in told.splitlines()] == ["a", "b"]
    ended = falaj("cat", "-s", "s", "a", "b", "--from", "1")
    assert (ended.code, "offsets count in one topic" in ended.sentence()) == (2, True)
    ended = falaj("cat", "-s", "s", "a", "c")
    assert (ended.code, ended.out, "there is no topic 'c'" in ended.err) == (2, "", True)
