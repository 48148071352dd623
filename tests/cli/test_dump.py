"""`falaj cat --json` into `falaj append --records`: everything that was dumped is loaded."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import falaj as library
from cli.shell import Shell

Told = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int, int]


def contents(folder: Path, topic: str, codec: str | None = None) -> list[Told]:
    """Key, payload, headers, time and partition of each record, partition by partition."""
    with library.open(folder / "s", read_only=True) as store:
        opened = store.any_topic(topic, codec=codec)
        return [
            (
                record.key,
                None if record.is_tombstone else bytes(record.raw or b""),
                record.headers,
                record.timestamp_ns,
                number,
            )
            for number in opened.partitions
            for record in opened.partition(number)
        ]


def copy(falaj: Shell, codec: str, *form: str, partitions: int = 1) -> None:
    dump = falaj.binary("cat", "-s", "s", "t", "--json", *form)
    assert (dump.returncode, dump.stderr) == (0, b"")
    falaj.ok(
        *("append", "-s", "s", "copy", "--records", "--codec", codec),
        *("--partitions", str(partitions)),
        given=dump.stdout,
    )


@pytest.mark.parametrize("form", ["iso", "local", "unix", "ns"])
def test_keys_headers_times_tombstones_and_binary_values_come_back(falaj: Shell, form: str) -> None:
    with library.open(falaj.folder / "s") as store:
        topic = store.partitioned_topic("t", partitions=3)
        topic.append(b"plain")
        topic.append(b"\xff\0\n\r\n", key=b"\xfe", headers=[("h", b"\xfd"), ("h", None), ("", b"")])
        topic.append('é \u2028 \\ "'.encode(), key="clé", timestamp="1969-12-31T23:59:59.999999Z")
        topic.append(b"", key=b"", partition=2)
        topic.tombstone(b"gone", headers=[("by", b"me")], timestamp="2200-01-01T00:00:00Z")
    copy(falaj, "bytes", "--time-format", form, partitions=3)
    assert contents(falaj.folder, "copy") == contents(falaj.folder, "t")


def test_json_keeps_its_text_and_its_null_is_no_tombstone(falaj: Shell) -> None:
    written = [b"1e400", b'{"a": 31.50, "a": 1}', b"null", b'"text"', b"12345678901234567890123"]
    with library.open(falaj.folder / "s") as store:
        store.topic("t", codec="json")
        store.topic("t", codec=library.RAW).extend(written)  # as programs in other languages do
    falaj.ok("append", "-s", "s", "t", "--tombstone", given=b"k\n")
    copy(falaj, "json")
    assert contents(falaj.folder, "copy") == contents(falaj.folder, "t")
    assert [payload for _, payload, *_ in contents(falaj.folder, "copy")] == [*written, None]


def test_text_and_msgpack_come_back(falaj: Shell) -> None:
    values: dict[str, list[Any]] = {
        "str": ["", "é", "a\nb"],
        "msgpack": [None, 1, {"a": [b"\xff"]}],
    }
    for codec, some in values.items():
        shell = Shell(falaj.folder / codec)
        shell.folder.mkdir()
        with library.open(shell.folder / "s") as store:
            store.topic("t", codec=codec).extend(some)
        copy(shell, codec)
        assert contents(shell.folder, "copy") == contents(shell.folder, "t")


keys = st.none() | st.binary(max_size=4)
dumped = st.lists(
    st.tuples(
        keys,
        st.none() | st.binary(max_size=8),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
        st.integers(-(2**50), 2**50),
    ).filter(lambda each: each[0] is not None or each[1] is not None),
    max_size=8,
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(dumped)
def test_whatever_is_dumped_comes_back(falaj: Shell, some: list[Any]) -> None:
    with library.open(falaj.folder / "s") as store:
        for name in {"t", "copy"} & set(store.topics):
            store.delete_topic(name)
        topic = store.partitioned_topic("t", partitions=2)
        for key, value, headers, us in some:
            if value is None:
                topic.tombstone(key, headers=headers, timestamp_ns=us * 1000)
            else:
                topic.append(value, key, headers=headers, timestamp_ns=us * 1000)
    wanted = [(k, v, h, t // 1000, p) for k, v, h, t, p in contents(falaj.folder, "t")]
    copy(falaj, "bytes", partitions=2)
    assert [(k, v, h, t // 1000, p) for k, v, h, t, p in contents(falaj.folder, "copy")] == wanted


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[1]", "a record is a JSON object"),
        (b"{", "is not JSON"),
        (b'{"value":"x"} x', "there is more behind the object"),
        (b'{"value":"x","value":"y"}', "has the member 'value' twice"),
        (b'{"vaule":"x"}', "has a member 'vaule', which no record has"),
        (b'{"key":"x"}', "has no value that is text"),
        (b'{"value":5}', "has a value that is no text; only a topic of JSON"),
        (b'{"value":"\\ud800"}', "half a character"),
        (b'{"value_base64":"?"}', "is no Base64"),
        (b'{"value":"x","time":"yesterday"}', "has no time that can be read"),
        (b'{"value":"x","time":"2026-11-20T08:00:00"}', "has no time zone"),
        (
            b'{"value":"x","time":1.5}',
            'a whole one of nanoseconds, not 1.5; write seconds as "1.5"',
        ),
        (b'{"value":"x","time":1e9}', "a number is a whole one of nanoseconds, not 1e9"),
        (b'{"value":"x","time":"--1.5"}', "'--1.5' is no ISO time"),
        ('{"value":"x","time":"\u0665.\u0665"}'.encode(), "is no ISO time"),
        (b'{"value":"x","time":' + b"1" * 5000 + b"}", "has no time that can be read"),
        (b'{"value":"x","time":"' + b"1" * 5000 + b'.5"}', "has no time that can be read"),
        (b'{"value":"x","partition":-1}', "has no partition of the number -1"),
        (b'{"value":"x","partition":7}', "is of partition 7, which topic t does not have"),
        (b'{"value":"x","headers":{}}', "has headers that are no array"),
        (b'{"value":"x","headers":[{}]}', "has a header without a name"),
        (b'{"tombstone":true}', "is a tombstone without a key"),
        (b'"\xff"', "is not UTF-8"),
        (b'{"value":' + b"[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_line_that_is_no_record_is_named_and_those_before_are_there(
    falaj: Shell, line: bytes, why: str
) -> None:
    falaj.ok("append", "-s", "s", "t", "--codec", "bytes", given=b"")
    ended = falaj("append", "-s", "s", "t", "--records", given=b'{"value":"1"}\n' + line + b"\n")
    assert ended.code == 2
    assert "line 2 of standard input " in ended.sentence()
    assert why in ended.sentence()
    assert "what came before it, 1 record, is in the topic" in ended.sentence()
    assert falaj.ok("cat", "-s", "s", "t") == "1\n"


@pytest.mark.parametrize(
    ("codec", "line", "why"),
    [
        ("json", b'{"value_base64":"/w=="}', "is not UTF-8"),
        ("json", b'{"value":' + b"1" * 4301 + b"}", "a whole number of 4301 digits"),
        ("str", b'{"value_base64":"/w=="}', "and the topic holds text"),
        ("msgpack", b'{"value_base64":"kg=="}', "is no msgpack"),
    ],
)
def test_a_value_that_could_not_be_read_is_refused(
    falaj: Shell, codec: str, line: bytes, why: str
) -> None:
    ended = falaj("append", "-s", "s", "t", "--records", "--codec", codec, given=line)
    assert (ended.code, why in ended.sentence()) == (2, True)


def test_a_line_without_a_partition_goes_where_its_key_says(falaj: Shell) -> None:
    falaj.ok("topic", "create", "-s", "s", "t", "--partitions", "5", "--codec", "bytes")
    lines = b'{"key":"a","value":"x"}\n{"key":"a","value":"y","partition":3}\n'
    falaj.ok("append", "-s", "s", "t", "--records", given=lines)
    with library.open(falaj.folder / "s") as store:
        by_key = store.partitioned_topic("t").append(b"", key="a")
    found = {payload: number for _, payload, _, _, number in contents(falaj.folder, "t")}
    assert (found[b"x"], found[b"y"]) == (by_key.partition, 3)
