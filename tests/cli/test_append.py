"""`falaj append`: lines become records."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import falaj as library
from cli.shell import DEADLINE_S, PROGRAM, Ended, Shell, interrupt
from falaj.cli.exits import interrupt_after


def values(folder: Path, topic: str) -> list[bytes]:
    with library.open(folder / "s", read_only=True) as store:
        return [record.to_bytes() for record in store.any_topic(topic)]


def test_each_line_is_a_record_an_empty_one_and_one_without_line_end_too(falaj: Shell) -> None:
    assert falaj.ok("append", "-s", "s", "t", given=b"one\n\nthree\nfour") == ""
    assert values(falaj.folder, "t") == [b"one", b"", b"three", b"four"]


def test_line_ends_are_lf_or_crlf_and_any_other_carriage_return_stays(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t", given=b"a\r\n\r\nb\rc\r\r\nd\ne\r\nf\r")
    assert values(falaj.folder, "t") == [b"a", b"", b"b\rc\r", b"d", b"e", b"f\r"]
    falaj.ok(
        "append", "-s", "s", "j", "--key-field", "k", given=b'{"k": "a"}\r\n\r\n{"k": "b"}\r\n'
    )
    assert values(falaj.folder, "j") == [b'{"k": "a"}', b'{"k": "b"}']


def test_a_crlf_that_comes_in_two_pieces_ends_a_line(falaj: Shell) -> None:
    process = falaj.start("append", "-s", "s", "t")
    assert process.stdin
    process.stdin.write(b"zero\r\none\r")
    process.stdin.flush()
    with library.open(falaj.folder / "s") as store:
        followed = iter(store.topic("t").follow(timeout=DEADLINE_S))
        assert next(followed).to_bytes() == b"zero"
        process.stdin.write(b"\ntwo\r\n")
        process.stdin.flush()
        assert [next(followed).to_bytes() for _ in range(2)] == [b"one", b"two"]
    process.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize("rest", [b"", b"a", b"a\n", b"a\r\n\xef\xbb\xbfb"])
def test_a_byte_order_mark_at_the_beginning_of_a_file_is_left_out(
    falaj: Shell, rest: bytes
) -> None:
    (falaj.folder / "f").write_bytes(b"\xef\xbb\xbf" + rest)
    falaj.ok("append", "-s", "s", "t", "f", "f")
    lines = rest.replace(b"\r\n", b"\n").splitlines()
    assert values(falaj.folder, "t") == lines * 2
    falaj.ok("append", "-s", "s", "j", "--ndjson", given=b'\xef\xbb\xbf{"k": 1}\n')
    assert values(falaj.folder, "j") == [b'{"k": 1}']


def test_no_input_is_no_record_and_the_topic_is_there(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t")
    assert falaj.ok("topic", "list", "-s", "s") == "t\t\t1\t0\t\topen\n"


def test_files_come_in_the_order_given_and_a_dash_is_standard_input(falaj: Shell) -> None:
    (falaj.folder / "a").write_bytes(b"a1\na2")
    (falaj.folder / "b").write_bytes(b"b1\n")
    falaj.ok("append", "-s", "s", "t", "b", "-", "a", given=b"typed\n")
    assert values(falaj.folder, "t") == [b"b1", b"typed", b"a1", b"a2"]


def test_a_line_longer_than_a_read_is_one_record(falaj: Shell) -> None:
    long = b"x" * (3 << 20)
    falaj.ok("append", "-s", "s", "t", given=b"first\n" + long + b"\nlast\n")
    assert values(falaj.folder, "t") == [b"first", long, b"last"]


def test_a_line_is_appended_as_soon_as_it_is_written(falaj: Shell) -> None:
    process = falaj.start("append", "-s", "s", "t")
    assert process.stdin
    process.stdin.write(b"at once\n")
    process.stdin.flush()
    with library.open(falaj.folder / "s") as store:
        first = next(iter(store.topic("t").follow(timeout=DEADLINE_S)))
        assert first.to_bytes() == b"at once"
    assert process.poll() is None
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_ctrl_c_ends_by_its_signal_and_says_what_is_in_the_topic(falaj: Shell) -> None:
    process = falaj.start("append", "-s", "s", "t")
    assert process.stdin
    process.stdin.write(b"one\ntwo\n")
    process.stdin.flush()
    with library.open(falaj.folder / "s") as store:
        followed = iter(store.topic("t").follow(timeout=DEADLINE_S))
        assert [next(followed).offset for _ in range(2)] == [0, 1]
    ended = interrupt(process)
    assert ended.code == -2  # a shell sees 130
    assert ended.sentence() == "appended 2 records (6 B) to t, offsets 0 to 1"


def test_ctrl_c_waits_for_the_append_that_runs_and_a_second_one_does_not() -> None:
    done = []

    def work(presses: int) -> None:
        with interrupt_after():
            for press in range(presses):
                signal.raise_signal(signal.SIGINT)
                done.append(press)

    for presses in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            work(presses)
    assert done == [0, 0]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_figures_are_json_when_asked_for(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t", given=b"0\n")
    figures = json.loads(falaj.ok("append", "-s", "s", "t", "--json", given=b"one\ntwo\n"))
    assert figures == {
        "topic": "t",
        "records": 2,
        "bytes": 6,
        "offsets": [{"partition": 0, "first": 1, "last": 2}],
    }


# --- JSON lines ----------------------------------------------------------------------------------


def test_json_lines_make_a_json_topic_keyed_by_a_field(falaj: Shell) -> None:
    lines = b'{"k": "eu", "n": 1}\n\n  \n{"k": 7}\n{"n": 3}\n{"k": null}\n'
    falaj.ok("append", "-s", "s", "t", "--key-field", "k", given=lines)
    with library.open(falaj.folder / "s", read_only=True) as store:
        topic = store.topic("t")
        assert topic.codec == "json"
        assert [record.value for record in topic] == [
            {"k": "eu", "n": 1},
            {"k": 7},
            {"n": 3},
            {"k": None},
        ]
        assert [record.key for record in topic] == [b"eu", b"7", None, None]


def test_the_key_of_a_json_line_is_the_text_of_its_field(falaj: Shell) -> None:
    written = [
        *("1e300", "2e300", "-1e300", "1.10", "1.1", "1E1", "10", "-0", "0", "0.1", "1e-400"),
        *("123456789012345678901234567890", "123456789012345678901234567891"),
        *("0.12345678901234567890123456789", "0.12345678901234567890123456788"),
        *("9007199254740993.0", "9007199254740992.0", "true", "false"),
    ]
    lines = "".join(f'{{"k": {text}}}\n' for text in written) + '{"k": "\\u00e9 \\"1\\""}\n'
    falaj.ok("append", "-s", "s", "t", "--key-field", "k", given=lines.encode())
    falaj.ok("append", "-s", "s", "t", "--key-field", "k", "--tombstone", given=lines.encode())
    with library.open(falaj.folder / "s", read_only=True) as store:
        keys = [record.key for record in store.topic("t")]
    expected = [*(text.encode() for text in written), 'é "1"'.encode()]
    assert keys == expected * 2


def test_a_line_is_a_key_to_delete_only_where_that_is_asked_for(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t", "--ndjson", given=b"null\n")
    falaj.ok("append", "-s", "s", "t", "--tombstone", given=b"eu\n\nus\r\n")
    with library.open(falaj.folder / "s", read_only=True) as store:
        topic = store.topic("t")
        told = [(record.key, record.value, record.is_tombstone) for record in topic]
    assert told == [(None, None, False), (b"eu", None, True), (b"us", None, True)]
    null, eu, _ = falaj.ok("cat", "-s", "s", "t", "--json", "--time-format", "none").splitlines()
    assert json.loads(null) == {
        "topic": "t", "partition": 0, "offset": 0, "key": None, "value": None,
    }  # fmt: skip
    assert json.loads(eu) == {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "key": "eu",
        "value": None,
        "tombstone": True,
    }
    ended = falaj(
        "append", "-s", "s", "t", "--tombstone", "--key-field", "k", given=b'{"k": null}\n'
    )
    assert (ended.code, "line 1 of standard input has no field 'k'" in ended.sentence()) == (
        2,
        True,
    )


def test_the_key_of_a_json_line_is_a_number_of_any_size_where_the_line_is_bytes(
    falaj: Shell,
) -> None:
    lines = [b'{"k": 1e400}', b'{"k": 2e400}', b'{"k": -1e400}']
    given = b"\n".join(lines)
    falaj.ok("append", "-s", "s", "t", "--codec", "bytes", "--key-field", "k", given=given)
    falaj.ok("append", "-s", "s", "t", "--key-field", "k", "--tombstone", given=given)
    with library.open(falaj.folder / "s", read_only=True) as store:
        keys = [record.key for record in store.topic("t")]
    assert keys == [b"1e400", b"2e400", b"-1e400"] * 2
    assert values(falaj.folder, "t")[:3] == lines


def test_a_json_line_is_kept_as_it_was_written(falaj: Shell) -> None:
    falaj.ok(
        "append",
        "-s",
        "s",
        "t",
        "--ndjson",
        given=b' {"price": 1.50, "id": 12345678901234567890} \n',
    )
    assert values(falaj.folder, "t") == [b'{"price": 1.50, "id": 12345678901234567890}']


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{bad", "is not JSON"),
        (b"NaN", "NaN is not in JSON"),
        (b'"\xff"', "is not UTF-8"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"7", "is no JSON object"),
        (b'{"k": [1]}', "which cannot be a key"),
    ],
)
def test_a_line_that_is_refused_is_named_and_those_before_are_there(
    falaj: Shell, line: bytes, why: str
) -> None:
    ended = falaj(
        "append", "-s", "s", "t", "--key-field", "k", given=b'{"k":1}\n{"k":2}\n' + line + b"\n{}"
    )
    assert ended.code == 2
    assert "line 3 of standard input" in ended.sentence()
    assert why in ended.sentence()
    assert "what came before it, 2 records, is in the topic" in ended.sentence()
    assert values(falaj.folder, "t") == [b'{"k":1}', b'{"k":2}']


def test_a_whole_number_that_python_would_not_read_is_refused_where_values_are_json(
    falaj: Shell,
) -> None:
    digits = b"1234567890" * 430
    kept = b'{"k": %s, "n": [-%s, 0.%s]}' % (digits, digits, digits * 2)
    falaj.ok("append", "-s", "s", "t", "--key-field", "k", given=kept)
    with library.open(falaj.folder / "s", read_only=True) as store:
        (record,) = store.topic("t")
        assert (record.key, record.value["n"][0]) == (digits, -int(digits))
    for codec in ("json", "msgpack"):
        ended = falaj("append", "-s", "s", codec, "--codec", codec, given=b"[-%s1]" % digits)
        assert ended.code == 2
        assert "line 1 of standard input has a whole number of 4301 digits" in ended.sentence()
    falaj.ok("append", "-s", "s", "b", "--codec", "bytes", "--ndjson", given=b"[-%s1]" % digits)
    assert values(falaj.folder, "b") == [b"[-%s1]" % digits]


def test_a_topic_of_text_takes_only_utf_8(falaj: Shell) -> None:
    ended = falaj("append", "-s", "s", "t", "--codec", "str", given="é\n".encode() + b"\xff\n")
    assert ended.code == 2
    assert "line 2 of standard input is not UTF-8" in ended.sentence()
    assert values(falaj.folder, "t") == ["é".encode()]


def test_json_lines_become_msgpack_in_a_topic_of_msgpack(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t", "--codec", "msgpack", given=b'{"a": [1, 2.5]}\n')
    with library.open(falaj.folder / "s", read_only=True) as store:
        assert store.topic("t")[0].value == {"a": [1, 2.5]}


def test_values_that_lines_cannot_make_are_refused(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        store.topic("t", codec="pickle")
    ended = falaj("append", "-s", "s", "t", given=b"x\n")
    assert ended.code == 2
    assert "pickle" in ended.sentence()
    assert values_count(falaj.folder, "t") == 0


def values_count(folder: Path, topic: str) -> int:
    with library.open(folder / "s", read_only=True) as store:
        return len(store.topic(topic, codec="pickle"))


# --- The topic that is created -------------------------------------------------------------------


def test_a_topic_is_created_as_asked(falaj: Shell) -> None:
    falaj.ok(
        *("append", "-s", "s", "t", "--partitions", "3", "--codec", "str", "--segment-size", "1M"),
        *("--sync-interval", "5", "--sync", "durable"),
        given=b"x\n",
    )
    settings = json.loads((falaj.folder / "s/topics/t/topic.json").read_text())
    wanted = {"partitions": 3, "codec": "str", "segment_bytes": 1 << 20, "sync_interval_ms": 5}
    assert wanted.items() <= settings.items()


def test_settings_that_differ_are_refused_by_name(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t", given=b"x\n")
    ended = falaj("append", "-s", "s", "t", "--partitions", "2", given=b"y\n")
    assert ended.code == 2
    assert "partitions = 1, not 2" in ended.sentence()
    assert values(falaj.folder, "t") == [b"x"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--codec", "yaml"], "'yaml'"),
        (["--partitions", "0"], "--partitions: the number is 1 or more, not 0"),
        (["--segment-size", "big"], "'big' is no size"),
        (["--segment-size", "1"], "a segment has"),
        (["--sync", "often"], "'often'"),
        (["--timeout", "5s"], "--timeout limits the wait of --sync remote"),
        (["missing.txt"], "there is no file missing.txt"),
        (["--partition", "1"], "has no partition 1: choose one from 0 to 0"),
        (["--partitions", "3", "--partition", "3"], "choose one from 0 to 2"),
        (["--partitions", "9" * 9], "a topic has 1 to 10000 partitions"),
        (["--sync-interval", "9" * 9], "the sync interval is 1 to 3600000"),
    ],
)
def test_a_wrong_option_creates_neither_store_nor_topic(
    falaj: Shell, options: list[str], why: str
) -> None:
    library.open(falaj.folder / "there").close()
    for store in ("s", "there"):
        ended = falaj("append", "-s", store, "t", *options, given=b"x\n")
        assert ended.code == 2
        assert why in ended.sentence()
    assert not (falaj.folder / "s").exists()
    assert not (falaj.folder / "there/topics/t").exists()


def test_a_codec_whose_package_is_missing_creates_no_topic(falaj: Shell) -> None:
    script = (
        "import sys; sys.modules['msgpack'] = None\n"
        "from falaj.cli import main\n"
        "sys.argv[1:] = ['append', '-s', 's', 't', '--codec', 'msgpack']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=falaj.folder, capture_output=True, text=True, timeout=60
    )
    ended = Ended(done.returncode, done.stdout, done.stderr)
    assert (ended.code, "pip install 'falaj[msgpack]'" in ended.sentence()) == (3, True)
    assert not (falaj.folder / "s").exists()


def test_a_partition_that_is_not_there_is_refused_though_nothing_is_to_be_appended(
    falaj: Shell,
) -> None:
    falaj.ok("append", "-s", "s", "t", "--partitions", "2")
    ended = falaj("append", "-s", "s", "t", "--partition", "2")
    assert (ended.code, ended.sentence()) == (
        2,
        "topic t has no partition 2: choose one from 0 to 1",
    )


def test_a_partition_can_be_forced(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t", "--partitions", "3", "-p", "2", given=b"a\nb\n")
    with library.open(falaj.folder / "s", read_only=True) as store:
        assert [len(store.any_topic("t").partition(p)) for p in range(3)] == [0, 0, 2]


# --- Sizes ---------------------------------------------------------------------------------------


def test_lines_that_do_not_fit_together_are_appended_apart(falaj: Shell) -> None:
    lines = [f"{n:0200}".encode() for n in range(3000)]
    falaj.ok("append", "-s", "s", "t", "--segment-size", "64K", given=b"\n".join(lines))
    assert values(falaj.folder, "t") == lines


def test_a_line_larger_than_an_append_is_refused_with_the_limit(falaj: Shell) -> None:
    given = b"before\n" + b"x" * 20_000 + b"\nafter\n"
    ended = falaj("append", "-s", "s", "t", "--segment-size", "64K", given=given)
    assert ended.code == 2
    assert "line 2 of standard input is too long: 20" in ended.sentence()
    assert "more than the 16384 that one append may hold" in ended.sentence()
    assert values(falaj.folder, "t") == [b"before"]


def test_a_line_without_end_is_refused_before_it_fills_the_memory(falaj: Shell) -> None:
    done = subprocess.run(
        ["bash", "-c", f"ulimit -v 1500000; exec {PROGRAM} append -s s t /dev/zero"],
        cwd=falaj.folder,
        env=falaj.environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    ended = Ended(done.returncode, done.stdout, done.stderr)
    assert ended.code == 2
    assert ended.sentence() == (
        "line 1 of /dev/zero is longer than the 67108864 bytes that a record can have"
    )


def test_what_came_before_a_line_without_end_is_told(falaj: Shell) -> None:
    (falaj.folder / "lines").write_bytes(b"one\n")
    ended = falaj("append", "-s", "s", "t", "lines", "/dev/zero")
    assert ended.code == 2
    assert ended.sentence().endswith("; what came before it, 1 record, is in the topic")
    assert values(falaj.folder, "t") == [b"one"]


def test_a_file_that_cannot_be_read_is_named(falaj: Shell) -> None:
    ended = falaj("append", "-s", "s", "t", ".")
    assert ended.code == 2
    assert ended.sentence() == "cannot read .: Is a directory; check the path"
    (falaj.folder / "lines").write_bytes(b"one\n")
    assert falaj("append", "-s", "s", "t", "lines", ".").code == 2
    assert not (falaj.folder / "s").exists()


def test_a_pipe_that_has_no_writer_yet_is_waited_for_when_its_turn_comes(falaj: Shell) -> None:
    for name in ("one", "two"):
        os.mkfifo(falaj.folder / name)
    process = falaj.start("append", "-s", "s", "t", "one", "two")
    for name in ("one", "two"):
        (falaj.folder / name).write_bytes(b"x" * 100_000 + b"\n")  # more than a pipe holds
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err) == (0, b"", b"")
    assert [len(value) for value in values(falaj.folder, "t")] == [100_000] * 2


# --- On a terminal -------------------------------------------------------------------------------


def test_a_terminal_sees_a_bar_with_the_rate_and_a_summary(falaj: Shell) -> None:
    (falaj.folder / "lines").write_text("x\n" * 200_000)
    ended = falaj.terminal("append", "-s", "s", "t", "lines").end()
    assert ended.code == 0
    assert "append to t" in ended.out
    assert "200,000 records, " in ended.out
    assert "/s" in ended.out
    assert ended.out.endswith("appended 200,000 records (195.3 KiB) to t, offsets 0 to 199999\n")


def test_a_user_who_types_sees_how_to_end(falaj: Shell) -> None:
    terminal = falaj.terminal("append", "-s", "s", "t", NO_COLOR="1")
    terminal.wait_for("falaj: each line you type is a record of t; Ctrl-D ends")
    terminal.type("hello\n\x04")
    ended = terminal.end()
    assert ended.code == 0
    assert ended.out.endswith("appended 1 record (5 B) to t, offset 0\n")
    assert "\x1b" not in ended.out


# --- Keys, headers, times ------------------------------------------------------------------------


def records(folder: Path, topic: str) -> list[library.Record[object]]:
    with library.open(folder / "s", read_only=True) as store:
        return list(store.any_topic(topic))


def test_a_key_a_header_and_a_time_are_every_records(falaj: Shell) -> None:
    falaj.ok(
        *("append", "-s", "s", "t", "--key", "eu", "--header", "a=1=2", "--header", "b"),
        *("--header", "a=", "--timestamp", "2026-11-20T08:00:00Z"),
        given=b"one\ntwo\n",
    )
    for record, value in zip(records(falaj.folder, "t"), (b"one", b"two"), strict=True):
        assert (record.to_bytes(), record.key) == (value, b"eu")
        assert record.headers == (("a", b"1=2"), ("b", None), ("a", b""))
        assert record.timestamp.isoformat() == "2026-11-20T08:00:00+00:00"


def test_the_key_of_a_line_ends_with_the_delimiter(falaj: Shell) -> None:
    for delimiter, given in (
        (":", b"a:1:2\n:3\n"),
        ("\\t", b"a\t1:2\n\t3\n"),
        ("=>", b"a=>1:2\n=>3\n"),
    ):
        topic = f"t{len(delimiter)}{len(given)}"
        falaj.ok("append", "-s", "s", topic, "--key-delimiter", delimiter, given=given)
        told = [(record.key, record.to_bytes()) for record in records(falaj.folder, topic)]
        assert told == [(b"a", b"1:2"), (b"", b"3")]
    ended = falaj("append", "-s", "s", "u", "--key-delimiter", ":", given=b"a:1\nb\n")
    assert ended.code == 2
    assert "line 2 of standard input has no ':' that ends a key" in ended.sentence()
    ended = falaj(
        "append", "-s", "s", "j", "--ndjson", "--key-delimiter", ":", given=b"a:[1]\nb:[\n"
    )
    assert "line 2 of standard input is not JSON" in ended.sentence()
    assert values(falaj.folder, "j") == [b"[1]"]


def test_one_key_is_deleted_without_any_input(falaj: Shell) -> None:
    process = falaj.start(
        "append", "-s", "s", "t", "--tombstone", "--key", "tea", "--header", "by=x"
    )
    assert process.wait(DEADLINE_S) == 0, "it must not wait for input"
    process.communicate()
    (record,) = records(falaj.folder, "t")
    assert (record.key, record.is_tombstone, record.headers) == (b"tea", True, (("by", b"x"),))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--key", "a", "--key-field", "b"], "--key and --key-field both say where the key is"),
        (["--tombstone", "--key-delimiter", ":"], "a line has no value"),
        (["--key-delimiter", ""], "--key-delimiter is empty"),
        (["--tombstone", "--key", "a", "f"], "leave out the files"),
        (["--header", "=x"], "write NAME=VALUE, not '=x'"),
        (["--timestamp", "2026-11-20T08:00"], "has no time zone"),
        (["--records", "--key", "a"], "leave out --key"),
        (["--records", "--codec", "pickle"], "write one of bytes, str, json, msgpack"),
        (["--records"], "say its --codec"),
        (["--no-create"], "--no-create makes none"),
    ],
)
def test_options_that_contradict_are_refused_before_anything_is_created(
    falaj: Shell, options: list[str], why: str
) -> None:
    (falaj.folder / "f").write_bytes(b"x\n")
    ended = falaj("append", "-s", "s", "t", *options, given=b"x\n")
    assert (ended.code, ended.out) == (2, "")
    assert why in ended.sentence()
    assert not (falaj.folder / "s").exists()


def test_a_topic_that_is_not_to_be_created_lists_those_there_are(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "orders", given=b"x\n")
    ended = falaj("append", "-s", "s", "ordrs", "--no-create", given=b"x\n")
    assert (ended.code, ended.sentence().endswith("it has orders")) == (2, True)
    assert falaj.ok("topic", "list", "-s", "s").count("\n") == 1


@pytest.mark.parametrize("lines", [["--ndjson"], ["--key-field", "a"]])
def test_json_lines_make_a_topic_json_whether_it_was_created_before_or_not(
    falaj: Shell, lines: list[str]
) -> None:
    falaj.ok("topic", "create", "-s", "s", "before")
    falaj.ok("topic", "create", "-s", "s", "records")
    for topic in ("before", "now"):
        falaj.ok("append", "-s", "s", topic, *lines, given=b'{"a": "1"}\n')
    ended = falaj("append", "-s", "s", "records", "--records", given=b'{"value": 1}\n')
    assert (ended.code, "topic records has no codec yet" in ended.sentence()) == (2, True)
    with library.open(falaj.folder / "s", read_only=True) as store:
        assert [store.topics[name]["codec"] for name in ("before", "now")] == ["json", "json"]
        assert store.topics["records"]["codec"] is None
        assert store.topic("before")[0].value == {"a": "1"}


def test_a_topic_without_a_codec_takes_the_first_that_append_names_and_only_while_it_is_empty(
    falaj: Shell,
) -> None:
    falaj.ok("topic", "create", "-s", "s", "orders")
    falaj.ok("append", "-s", "s", "orders", "--codec", "json", given=b'{"n": 1}\n')
    refused = falaj("append", "-s", "s", "orders", "--codec", "str", given=b"two\n")
    assert refused.code == 2
    assert refused.sentence().startswith('"orders" has codec = json, not str')
    with library.open(falaj.folder / "s", read_only=True) as store:
        assert [record.value for record in store.topic("orders")] == [{"n": 1}]
    # Lines without a codec are bytes: from then on no other codec can be named.
    falaj.ok("topic", "create", "-s", "s", "lines")
    falaj.ok("append", "-s", "s", "lines", given=b"one\n")
    falaj.ok("topic", "trim", "-s", "s", "lines", "--before", "1")
    refused = falaj("append", "-s", "s", "lines", "--codec", "json", given=b"{}\n")
    assert refused.sentence().startswith('"lines" has codec = bytes, not json')
    assert values(falaj.folder, "lines") == []


def test_lines_that_are_appended_without_a_codec_are_of_the_one_that_a_program_named(
    falaj: Shell,
) -> None:
    falaj.ok("topic", "create", "-s", "s", "orders")
    with library.open(falaj.folder / "s") as store, store.topic("orders", codec="json") as topic:
        refused = falaj("append", "-s", "s", "orders", given=b"no JSON\n")
        assert "line 1 of standard input is not JSON" in refused.sentence()
        falaj.ok("append", "-s", "s", "orders", given=b'{"n": 1}\n')
        assert [record.value for record in topic] == [{"n": 1}]
