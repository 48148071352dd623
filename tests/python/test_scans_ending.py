"""A process ends in the middle of a scan, although other libraries read it in threads of theirs.

Such a thread needs the interpreter for each batch. In these programs a batch takes ten
milliseconds, so a thread is in the middle of one when the process ends.
"""

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest
from children import run
from damaging import flip

import falaj
from falaj import _core
from falaj.errors import CorruptData, DecodeFailed

PATIENCE_S = 30

SLOW = """
import time
from falaj import _scan

read = _scan.Records.read

def slowly(self, *arguments, **options):
    for batch in read(self, *arguments, **options):
        time.sleep(0.01)  # sleep: a thread is in here when the process ends
        yield batch

_scan.Records.read = slowly
scan = falaj.open(path).topic("orders").scan(batch_rows=10)
fields = falaj.open(path).topic("orders").scan(batch_rows=10, fields={"n": "int64"})
"""

ENDINGS = {
    "loop": "for batch in scan.to_batches(): break",
    "iterator": "batches = scan.to_batches(); next(batches)",
    "fields": "batches = fields.to_batches(columns=['n']); next(batches)",
    "head": "scan.head(5)",
    "scanner": "reader = scan.scanner().to_reader(); reader.read_next_batch()",
    "stream": "import pyarrow\nreader = pyarrow.RecordBatchReader.from_stream(scan)\n"
    "reader.read_next_batch()",
    "duckdb": "import duckdb; duckdb.sql('select * from scan limit 5').fetchall()",
    "polars": "import polars; query = scan.to_polars().collect(background=True)",
    "thread": "import threading\n"
    "threading.excepthook = lambda _: None\n"
    "threading.Thread(target=scan.to_table, daemon=True).start()\n"
    "time.sleep(0.05)  # sleep: so it is in the middle of its reading",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders", codec="json").extend([{"n": n} for n in range(3_000)])
    return tmp_path / "store"


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_that_stops_reading_ends(path: Path, ending: str) -> None:
    assert run(path, f"{SLOW}{ENDINGS[ending]}\nprint('over')") == "over\n"


def test_functions_that_run_at_the_end_still_scan(path: Path) -> None:
    program = f"{SLOW}import atexit; atexit.register(lambda: print(scan.count_rows()))"
    assert run(path, program) == "3000\n"


def test_what_reads_after_the_end_is_refused_and_does_not_wait(path: Path) -> None:
    """A function that was registered before falaj was imported runs when all else is over."""
    program = """
import atexit, sys

def late():
    try:
        scan.count_rows()
    except Exception as error:
        print(error)

atexit.register(late)
import falaj
scan = falaj.open(sys.argv[1]).topic("orders").scan()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert "this process ends" in done.stdout
    assert not done.stderr


def test_a_forked_child_ends_although_its_parent_reads(path: Path) -> None:
    program = f"""{SLOW}import os, sys
batches = scan.to_batches()
next(batches)
child = os.fork()
if not child:
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(path, program) == "3\n"


def test_a_reading_that_is_left_lets_go_of_its_iterator(path: Path) -> None:
    def one() -> Any:
        while True:
            yield batch

    with falaj.open(path) as store:
        topic = store.topic("orders")
        batch = pyarrow.record_batch({"n": [1]})
        batches = one()
        gone = weakref.ref(batches)
        capsule = _core._arrow_stream(batch.schema, batches)
        del batches, capsule
        gc.collect()
        assert gone() is None
        assert topic.scan().count_rows() == 3_000


READS: list[Callable[[Any], object]] = [
    lambda scan: scan.to_table(),
    lambda scan: list(scan.to_batches()),
    lambda scan: scan.head(10_000),
    lambda scan: scan.take([2_999]),
    lambda scan: scan.to_pandas(),
    lambda scan: scan.sort_by("offset"),
    lambda scan: scan.join(scan, "offset"),
]


@pytest.mark.parametrize("read", READS)
def test_each_way_of_reading_raises_the_error_of_falaj(
    path: Path, read: Callable[[Any], object]
) -> None:
    with falaj.open(path) as store:
        topic = store.topic("orders")
        topic.append("no object")
        with pytest.raises(DecodeFailed, match="offset 3000"):
            read(topic.scan(columns=["offset"], fields={"n": "int64"}))


@pytest.mark.parametrize("read", [*READS, lambda scan: scan.count_rows()])
def test_damage_raises_the_error_of_falaj(path: Path, read: Callable[[Any], object]) -> None:
    (segment,) = path.glob("logs/*/*.log")
    flip(segment, 8192 + 600)
    with falaj.open(path, read_only=True) as store:
        scan = store.topic("orders").scan(columns=["offset"])
        with pytest.raises(CorruptData, match=f"{segment} is corrupt at byte"):
            read(scan)


OTHERS: list[Callable[[Any], object]] = [
    lambda scan: scan.scanner().to_table(),
    lambda scan: pyarrow.table(scan),
    lambda scan: duckdb.execute("select sum(n) from scan").fetchall(),
]


@pytest.mark.parametrize("read", OTHERS)
def test_other_libraries_say_what_went_wrong_in_one_sentence(
    path: Path, read: Callable[[Any], object]
) -> None:
    with falaj.open(path) as store:
        topic = store.topic("orders")
        topic.append("no object")
        with pytest.raises((pyarrow.ArrowInvalid, duckdb.Error), match="offset 3000") as said:
            read(topic.scan(fields={"n": "int64"}))
    assert "Traceback" not in str(said.value)
