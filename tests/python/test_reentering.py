"""Python code that runs in the middle of a call, as a signal handler does, may call falaj."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import falaj

PROGRAM = """
import signal, sys
import falaj

store = falaj.open(sys.argv[1])
topic = store.topic("a", codec="json")
topic.append(0)

def call():
    {call}

class Finder:
    entered = False

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if not cls.entered:
            cls.entered = True
            signal.raise_signal(signal.SIGUSR1)

signal.signal(signal.SIGUSR1, lambda *_: call())
sys.meta_path.insert(0, Finder)
call()
print(Finder.entered, len(topic))
"""


@pytest.mark.parametrize(
    ("call", "records"),
    [
        ("topic.append(1, timestamp_ns=1)", {2}),
        ("topic.extend([falaj.NewRecord(1, timestamp_ns=1)])", {2}),
        ("topic.append(1, timestamp='2026-11-30T00:00:00Z')", {2, 3}),
        ("topic[0].timestamp", {1}),
        ("store.queue('q').take(timeout='0.01s')", {1}),
        ("store.consumer('g', 'a').close()", {1}),
    ],
)
def test_a_handler_may_make_the_call_that_imports_what_it_needs(
    path: Path, call: str, records: set[int]
) -> None:
    program = [sys.executable, "-c", PROGRAM.format(call=call), str(path)]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[1]) in records


def test_a_value_may_be_asked_for_while_it_is_decoded(store: falaj.Store) -> None:
    asked: list[Any] = []

    def decode(raw: bytes) -> str:
        if not asked:
            asked.append(None)
            asked.append(record.value)
        return raw.decode()

    topic = store.topic("a", codec=falaj.Codec("mine", str.encode, decode))
    topic.append("x")
    record = topic[0]
    assert record.value == "x"
    assert asked == [None, "x"]
    assert record.value is record.value


def test_a_handler_may_read_the_value_that_is_being_decoded(store: falaj.Store) -> None:
    seen: list[str] = []

    def decode(raw: bytes) -> str:
        if not seen:
            seen.append("")
            signal.raise_signal(signal.SIGUSR1)
        return raw.decode()

    topic = store.topic("a", codec=falaj.Codec("mine", str.encode, decode))
    topic.append("x")
    record = topic[0]
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(record.value))
    try:
        assert record.value == "x"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == ["", "x"]
