"""Classes of errors: bases, names in the engine, and the error of an unreadable value."""

import copy
import inspect
import pickle
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj import errors
from falaj.errors import DecodeFailed

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, falaj.Error)]
BASES = falaj.Error.__subclasses__()
CONCRETE = [c for c in CLASSES if c not in (falaj.Error, *BASES)]


@pytest.mark.parametrize("error", CONCRETE)
def test_every_error_has_one_base_that_says_what_helps(error: type[falaj.Error]) -> None:
    assert len([base for base in BASES if issubclass(error, base)]) == 1


def test_python_and_the_engine_have_the_same_errors_under_the_same_bases() -> None:
    source = (Path(__file__).parents[2] / "rust/log/src/error.rs").read_text()
    variants = re.findall(
        r"^    (\w+) \{", source.split("pub enum Error {")[1].split("\n}")[0], re.M
    )
    of_python_alone = {"PermissionDenied", "PathNotFound", "MissingExtra"}
    of_python_alone |= {"DecodeFailed", "EncodeFailed"}
    variants.remove("CorruptPieces")  # in Python a CorruptData
    of_places = {c.__name__ for c in CONCRETE if issubclass(c, errors.PlaceError)}
    assert {c.__name__ for c in CONCRETE} == {*variants} | of_python_alone | of_places
    arms = source.split("pub fn remedy")[1].split("\n    }\n")[0].split("Remedy::")
    names = {"Retry": "RetryableError", "LookAgain": "ConflictError", "FixInput": "UsageError"}
    names |= {"FixMachine": "MachineError", "Repair": "CorruptionError"}
    for before, after in pairwise(arms):
        base = getattr(errors, names[re.match(r"\w+", after)[0]])  # type: ignore[index]
        for variant in set(re.findall(r"Error::(\w+)", before)) - {"Interrupted", "CorruptPieces"}:
            assert issubclass(getattr(errors, variant), base), variant


@pytest.mark.parametrize("error", CONCRETE)
def test_every_error_is_one_of_falaj_and_one_that_python_users_expect(
    error: type[falaj.Error],
) -> None:
    assert issubclass(error, OSError | ValueError | LookupError | TimeoutError | ImportError)
    assert error.__name__ in errors.__all__
    assert (error.__doc__ or "").strip()


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_is_told_in_its_own_words_and_crosses_processes(
    error: type[falaj.Error],
) -> None:
    raised = error("a sentence")
    raised.path = "/somewhere"
    for again in (pickle.loads(pickle.dumps(raised)), copy.copy(raised)):
        assert type(again) is error
        assert (str(again), again.path) == ("a sentence", "/somewhere")


def test_a_value_that_its_codec_cannot_read_names_topic_partition_and_offset(
    store: falaj.Store,
) -> None:
    def refuse(raw: bytes) -> object:
        raise LookupError(f"no {raw!r} here")

    codec: falaj.Codec[Any] = falaj.Codec("odd", lambda value: value, refuse)
    topic: Any = store.partitioned_topic("orders", codec=codec, partitions=2)
    topic.append(b"x", partition=1)
    topic.append(b"y", partition=1)
    record = topic.partition(1)[1]
    with pytest.raises(DecodeFailed, match=r"the codec \"odd\" cannot read record 1 of") as told:
        _ = record.value
    assert (told.value.topic, told.value.partition, told.value.offset) == ("orders", 1, 1)
    assert isinstance(told.value.__cause__, LookupError)
    assert "topic \"orders\", partition 1 (LookupError: no b'y' here)" in str(told.value)
    assert record.to_bytes() == b"y"


def test_what_interrupts_a_codec_is_no_error_of_the_record(store: falaj.Store) -> None:
    def interrupt(_: bytes) -> object:
        raise KeyboardInterrupt

    slow: falaj.Codec[Any] = falaj.Codec("slow", lambda value: value, interrupt)
    topic = store.topic("orders", codec=slow)
    topic.append(b"x")
    with pytest.raises(KeyboardInterrupt):
        _ = topic[0].value
