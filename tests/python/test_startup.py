"""Modules that a new process loads before its first append: imports take half of that time."""

import subprocess
import sys
from pathlib import Path

import falaj

# Without site, whose modules would count as loaded already. Every larger program has loaded
# `typing`.
_PROGRAM = """
import sys
sys.path.append(sys.argv[1])
import typing
before = set(sys.modules)
import falaj
with falaj.open(sys.argv[2]) as store:
    topic = store.topic("orders")
    topic.append(b"x", key=b"eu")
    [record.to_bytes() for record in topic]
print(*sorted(set(sys.modules) - before))
"""


def loaded(path: Path) -> set[str]:
    source = Path(falaj.__file__).parent.parent
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(source), str(path)]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_import_and_first_append_load_next_to_nothing(path: Path) -> None:
    others = {name for name in loaded(path) if name.partition(".")[0] != "falaj"}
    assert others <= {"__future__", "_operator", "atexit", "itertools", "operator"}


def test_nothing_of_falaj_is_loaded_that_few_need(path: Path) -> None:
    own = {name for name in loaded(path) if name.partition(".")[0] == "falaj"}
    assert own == {"falaj"} | {
        f"falaj.{name}"
        for name in (
            "_any_topic",
            "_checks",
            "_core",
            "_lazy",
            "_numbers",
            "_slice",
            "_store",
            "_store_shipping",
            "_store_topics",
            "_topic",
            "codecs",
            "errors",
        )
    }


def test_what_is_loaded_later_is_there_all_the_same() -> None:
    assert [name for name in falaj.__all__ if not hasattr(falaj, name)] == []
    assert set(falaj.__all__) < set(dir(falaj))
    assert not hasattr(falaj, "Customer")
