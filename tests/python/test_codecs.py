"""Codecs: their name is stored with the topic, values come back unchanged, errors give a remedy."""

import enum
import math
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest

import falaj
from falaj.errors import DecodeFailed, InvalidArgument, SettingsMismatch

VALUES: dict[str, list[Any]] = {
    "bytes": [b"", b"\0\xff", b"x" * 1000],
    "str": ["", "falaj", "فلج", "\0"],
    "json": [None, True, 1, 1.5, "فلج", [], {"a": [1, {"b": None}]}, 2**70],
    "msgpack": [None, 1, "text", b"bytes", [1, [2]], {"a": 1}],
    "pickle": [None, {1, 2}, (1, "a"), Path("x"), {"a": b"b"}],
}


@pytest.mark.parametrize("codec", list(VALUES))
def test_values_come_back_as_they_went_in(store: falaj.Store, codec: str) -> None:
    topic = store.topic("values", codec=codec)
    for value in VALUES[codec]:
        topic.append(value)
    topic.extend([falaj.NewRecord(value) for value in VALUES[codec]])
    topic.extend([(b"key", value) for value in VALUES[codec]])
    assert [record.value for record in topic] == VALUES[codec] * 3
    with pytest.raises(TypeError, match="NewRecord"):
        topic.extend([(1, "a value that is a tuple")])
    assert topic.codec == codec


@pytest.mark.parametrize("codec", [c for c in VALUES if c != "pickle"])
def test_a_topic_is_opened_with_its_own_codec_unless_told(
    path: Path, store: falaj.Store, codec: str
) -> None:
    store.topic("values", codec=codec).append(VALUES[codec][-1])
    again = falaj.open(path, read_only=True).topic("values")
    assert again.codec == codec
    assert again[0].value == VALUES[codec][-1]


def test_pickles_are_read_only_when_they_are_named(store: falaj.Store) -> None:
    store.topic("values", codec="pickle").append({1})
    with pytest.raises(InvalidArgument, match="run code"):
        store.topic("values")
    assert store.topic("values", codec="pickle")[0].value == {1}


def test_what_pickle_cannot_take_is_refused_in_a_sentence_and_appends_nothing(
    store: falaj.Store,
) -> None:
    topic = store.topic("values", codec="pickle")
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidArgument, match="list is nested too deeply for pickle"):
        topic.append(deep)
    with pytest.raises(InvalidArgument, match="function cannot be pickled"):
        topic.extend([1, lambda: None])
    with pytest.raises(TypeError, match="lock"):
        topic.append(threading.Lock())
    assert len(topic) == 0


def test_another_codec_than_the_stored_one_is_refused(store: falaj.Store) -> None:
    store.topic("values", codec="json")
    with pytest.raises(SettingsMismatch, match="codec = json, not str"):
        store.topic("values", codec="str")


def test_a_codec_of_ones_own_is_kept_by_name(store: falaj.Store) -> None:
    celsius = falaj.Codec[float]("celsius", lambda t: b"%.1f" % t, float)
    topic = store.topic("values", codec=celsius)
    topic.append(21.54)
    assert topic[0].value == 21.5
    assert bytes(topic[0].raw or b"") == b"21.5"
    with pytest.raises(InvalidArgument, match="celsius"):
        store.topic("values")
    with pytest.raises(SettingsMismatch):
        store.topic("values", codec=falaj.Codec("kelvin", celsius.encode, celsius.decode))
    with pytest.raises(InvalidArgument, match="one of falaj's own"):
        store.topic("more", codec=falaj.Codec("json", celsius.encode, celsius.decode))


@pytest.mark.parametrize("wrong", ["nosuch", "JSON", ""])
def test_an_unknown_codec_is_refused_and_the_known_ones_named(
    store: falaj.Store, wrong: str
) -> None:
    with pytest.raises(InvalidArgument, match="'msgpack'"):
        store.topic("values", codec=wrong)
    assert list(store.topics) == []


@pytest.mark.parametrize("wrong", [5, object(), (str, int)])
def test_a_codec_of_the_wrong_type_is_a_type_error(store: falaj.Store, wrong: Any) -> None:
    with pytest.raises(TypeError, match="Codec"):
        store.topic("values", codec=wrong)


def test_what_a_codec_cannot_encode_is_the_error_that_python_users_expect(
    store: falaj.Store,
) -> None:
    topic = store.topic("values", codec="json")
    for wrong, error in ((b"x", TypeError), (math.nan, ValueError), (object(), TypeError)):
        with pytest.raises(error):
            topic.append(wrong)
        with pytest.raises(error):
            topic.extend([1, wrong])
    with pytest.raises(TypeError, match="str"):
        store.topic("text", codec="str").append(b"bytes")  # type: ignore[arg-type]
    lazy = store.topic("lazy", codec=falaj.Codec("lazy", lambda _: "text", bytes))  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="codec makes"):
        lazy.append(b"x")
    assert len(topic) == len(lazy) == 0


def test_a_value_is_decoded_once_when_it_is_asked_for(store: falaj.Store) -> None:
    decoded: list[bytes] = []

    def decode(raw: bytes) -> list[bytes]:
        decoded.append(raw)
        return [raw]

    topic = store.topic("values", codec=falaj.Codec("counted", lambda v: v[0], decode))
    topic.append([b"x"])
    record = topic[0]
    assert bytes(record.raw or b"") == b"x"
    assert len(decoded) == 0
    assert record.value is record.value
    assert decoded == [b"x"]


def test_a_codec_may_use_the_topic_it_encodes_for(store: falaj.Store) -> None:
    topic: falaj.Topic[Any]

    def encode(value: str) -> bytes:
        if value == "outer":
            topic.append("inner")
        return value.encode()

    topic = store.topic("values", codec=falaj.Codec("nested", encode, bytes.decode))
    topic.append("outer")
    topic.extend(["outer", "plain"])
    assert [r.value for r in topic] == ["inner", "outer", "inner", "outer", "plain"]


def test_an_error_in_decoding_reaches_the_reader_and_the_bytes_stay(store: falaj.Store) -> None:
    def refuse(raw: bytes) -> Any:
        raise pickle.UnpicklingError(raw)

    topic = store.topic("values", codec=falaj.Codec("broken", bytes, refuse))
    topic.append(b"x")
    with pytest.raises(DecodeFailed) as told:
        _ = topic[0].value
    assert isinstance(told.value.__cause__, pickle.UnpicklingError)
    assert bytes(topic[0].raw or b"") == b"x"


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    A = "a"


class Half(float):
    def __repr__(self) -> str:
        return "half"


@pytest.mark.parametrize(
    "value",
    [numpy.float64(1.5), Level.HIGH, Word.A, numpy.str_("s"), Half(0.5), True, False, 10**30],
    ids=lambda value: type(value).__name__,
)
def test_default_of_json_gets_no_number_and_no_text_of_a_class_of_its_own(
    store: falaj.Store, value: Any
) -> None:
    asked: list[Any] = []

    def default(given: Any) -> Any:
        asked.append(given)
        return Level.HIGH

    plain = store.topic("plain", codec="json")
    own = store.topic("own", codec=falaj.JSON(default=default))
    values: list[Any] = [value, [value], {"a": (value, {"b": value})}]
    if isinstance(value, str):
        values.append({value: value})
    for each in values:
        plain.append(each)
        own.append(each)
    assert [r.to_bytes() for r in own] == [r.to_bytes() for r in plain]
    assert asked == []
    own.append([numpy.int64(5), numpy.bool_(True)])
    assert asked == [numpy.int64(5), numpy.bool_(True)]
    assert own[-1].value == [3, 3]


@pytest.mark.parametrize("key", [1, 1.5, True, None, Level.HIGH, (1,), numpy.float64(1)])
def test_default_of_json_makes_no_keys(store: falaj.Store, key: Any) -> None:
    for topic in (
        store.topic("plain", codec="json"),
        store.topic("own", codec=falaj.JSON(default=str)),
    ):
        with pytest.raises(TypeError, match="the keys of a dict are text"):
            topic.append({key: 1})
        assert len(topic) == 0


@pytest.mark.parametrize("items", [memoryview(b"ab").cast("c"), memoryview(b"\xff").cast("b")])
def test_msgpack_refuses_a_memoryview_that_would_return_as_other_items(
    store: falaj.Store, items: memoryview
) -> None:
    topic = store.topic("a", codec="msgpack")
    with pytest.raises(TypeError, match=r"give bytes\(it\)"):
        topic.append({"x": items})
    topic.append({"x": memoryview(b"ab"), "y": memoryview(b"\x01").cast("b")})
    assert topic[0].value == {"x": b"ab", "y": b"\x01"}
