"""Lines that the codec of a topic would refuse: the shell refuses them too, and says where."""

from pathlib import Path
from typing import Any

import pytest

import falaj as library
from cli.shell import Shell
from falaj.codecs import resolver
from falaj.errors import Error


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def contents(folder: Path, topic: str) -> list[Any]:
    with library.open(folder / "s", read_only=True) as store:
        return [record.value for record in store.topic(topic)]


REFUSED = [
    ("json", nested(129), "lists and dicts more than 128 deep"),
    ("json", nested(900), "lists and dicts more than 128 deep"),
    ("json", b"1e999", "has 1e999, which is larger than any number of 64 bits"),
    ("json", b'{"a":[-1e309]}', "has -1e309, which is larger"),
    ("json", b"1" + b"0" * 400 + b".5", "which is larger than any number of 64 bits"),
    ("json", b"1" + b"0" * 300 + b"e99", "which is larger than any number of 64 bits"),
    ("json", rb'"\ud800"', r"replace '\ud800'"),
    ("json", rb'{"\uDFFF":1}', r"replace '\udfff'"),
    ("msgpack", nested(129), "lists and dicts more than 128 deep"),
    ("msgpack", b"[1e999]", "has 1e999, which is larger than any number of 64 bits"),
    ("msgpack", rb'"\ud800"', r"text is kept as UTF-8, which has no half characters"),
    ("msgpack", b'{"a":1,"b":{"c":1,"c":2}}', "has the member 'c' twice in an object"),
    ("msgpack", b"123456789012345678901234567890", "msgpack has whole numbers from -2**63"),
]


@pytest.mark.parametrize("command", ["append", "queue"])
@pytest.mark.parametrize(("codec", "line", "why"), REFUSED)
def test_a_line_whose_value_the_codec_refuses_is_named_and_those_before_are_there(
    falaj: Shell, command: str, codec: str, line: bytes, why: str
) -> None:
    with library.open(falaj.folder / "s") as store:
        store.queue("jobs", store.topic("t", codec=codec))
    words = (
        ["append", "-s", "s", "t"] if command == "append" else ["queue", "put", "-s", "s", "jobs"]
    )
    (falaj.folder / "lines").write_bytes(b"[1]\n" + line + b"\n[2]\n")
    ended = falaj(*words, "lines")
    assert ended.code == 2
    assert ended.sentence().startswith("line 2 of lines ")
    assert why in ended.sentence()
    assert "what came before it, 1 record, is in the topic" in ended.sentence()
    assert contents(falaj.folder, "t") == [[1]]


KEPT = [
    *(nested(128), b'{"a": 1, "a": 2}', rb'"\ud83d\ude00 \\ud800"', b"1e308", b"[1e-999]", b"-0.0"),
    *(b'"NaN and Infinity"', b'{"e":  "1e999"}', b"[" + b"1," * 4000 + b"1]", b"1" * 4300),
]


def test_a_line_whose_value_the_codec_takes_is_stored_as_it_is(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t", "--codec", "json", given=b"\n".join(KEPT))
    with library.open(falaj.folder / "s", read_only=True) as store:
        topic = store.topic("t")
        assert [record.to_bytes() for record in topic] == KEPT
        encode: Any = resolver("json")[1]("json")[0]
        for record in topic:
            encode(record.value)


def test_a_line_that_is_refused_here_is_refused_by_the_codec_too(store: library.Store) -> None:
    import json

    topic: Any = store.topic("t", codec="json")
    for codec, line, _ in REFUSED:
        if codec == "json":
            with pytest.raises(Error):
                topic.append(json.loads(line))


def test_a_key_with_half_a_character_is_refused(falaj: Shell) -> None:
    for words in (["--codec", "bytes"], ["--tombstone"]):
        line = rb'{"k": "\ud800"}'
        ended = falaj("append", "-s", "s", "t", "--key-field", "k", *words, given=line)
        assert ended.code == 2
        assert "line 1 of standard input has half a character in the field 'k'" in ended.sentence()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{}", "has no value that is text, and no value_base64"),
        (b" { } ", "has no value that is text, and no value_base64"),
        (b'{"value":1,}', "the name of a member is missing"),
        (b'{"key":"k","value":"x","tombstone":true}', "is a tombstone and has a value"),
        (b'{"key":"k","value_base64":"","tombstone":true}', "is a tombstone and has a value"),
        (b'{"key":"k","tombstone":1}', "has a tombstone that is neither true nor false"),
        (b'{"key":"k","value":1,"tombstone":"no"}', "has a tombstone that is neither true"),
        (b'{"value":"x","value_base64":"eA=="}', "has both value and value_base64"),
        (b'{"value":null,"value_base64":"MQ=="}', "has both value and value_base64"),
        (b'{"key":"k","key_base64":"aw==","value":1}', "has both key and key_base64"),
        (b'{"value_base64":1234}', "has a value_base64 that is no Base64"),
        (
            b'{"value":1,"headers":[{"name":"a","value":"x","value_base64":"eA=="}]}',
            "has both value and value_base64",
        ),
        (b'{"value":1,"headers":[{"name":"a","vaule":"x"}]}', "has a header with a member 'vaule'"),
        (rb'{"value":1,"headers":[{"name":"\ud800"}]}', "has a header whose name has half a"),
    ],
)
def test_a_record_whose_members_contradict_one_another_is_refused(
    falaj: Shell, line: bytes, why: str
) -> None:
    falaj.ok("topic", "create", "-s", "s", "t", "--codec", "json")
    ended = falaj("append", "-s", "s", "t", "--records", given=b'{"value":1}\n' + line)
    assert ended.code == 2
    assert ended.sentence().startswith("line 2 of standard input ")
    assert why in ended.sentence()
    assert contents(falaj.folder, "t") == [1]


def test_a_record_that_says_it_is_no_tombstone_is_none(falaj: Shell) -> None:
    lines = b'{"value":1,"tombstone":false,"key_base64":null}\n{"value":2,"tombstone":null}\n'
    falaj.ok("append", "-s", "s", "t", "--records", "--codec", "json", given=lines)
    assert contents(falaj.folder, "t") == [1, 2]
