"""The demo of a bucket, small: three producers, a shipper that is killed, a removed directory."""

import io
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import falaj
from falaj.demo import Failed, flights, shipping
from falaj.demo.bucket import Bucket
from falaj.errors import InvalidArgument
from house import ROOT
from spark.drivers import environment

SERVER = ROOT / "tests/ship/moto_in_turn.py"
FLIGHTS = 3_000

pytestmark = pytest.mark.skipif(
    not (find_spec("moto") and find_spec("obstore")), reason="NOT RUN: no package moto or obstore"
)


def test_make_demo_bucket_has_every_flight_once_though_the_directory_was_removed(
    tmp_path: Path,
) -> None:
    asked = ["make", "--silent", "--dry-run", "--assume-old=python/falaj/_core.abi3.so"]
    said = subprocess.run(
        [*asked, "demo-bucket"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    program, *words = shlex.split(said.splitlines()[-1])
    assert program.endswith("/python")
    options = ["--flights", str(FLIGHTS), "--seconds", "2", "--no-spark"]
    done = subprocess.run(
        [sys.executable, *words, str(tmp_path), *options], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "the shipper was killed with SIGKILL when the bucket had" in done.stdout
    assert (
        f"each of {FLIGHTS:,} flights is in the store exactly once, nothing else is" in done.stdout
    )
    assert "in the restored store, as the file has them" in done.stdout
    with falaj.open(tmp_path / shipping.STORE, read_only=True) as store:
        assert len(store.topic(shipping.TOPIC)) == FLIGHTS
        assert falaj.verify(store.path)["findings"] == []


def test_the_shipper_is_killed_on_the_way_and_a_terminal_shows_what_the_bucket_has(
    tmp_path: Path,
) -> None:
    out = io.StringIO()
    screen = Console(file=out, width=100, force_terminal=True)
    figures = shipping.run(
        tmp_path, SERVER, limit=FLIGHTS, seconds=2.0, spark=False, console=screen
    )
    assert 0 < figures.killed_at < FLIGHTS
    assert figures.flights == FLIGHTS
    assert min(figures.stored, figures.restored) > figures.payload > 0
    assert "of 3,000" in out.getvalue()
    assert "the shipper: killed, goes on" in out.getvalue()
    shipping.show(figures, screen)
    assert "restored from the bucket" in out.getvalue()


@pytest.mark.proof
@pytest.mark.timeout(300)  # it starts Spark, on a machine that may be busy
def test_spark_counts_the_flights_in_the_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    quiet = Console(quiet=True)
    figures = shipping.run(tmp_path, SERVER, limit=FLIGHTS, seconds=1.0, console=quiet)
    assert figures.spark == flights.count(FLIGHTS)


def test_it_fails_where_the_restored_store_is_not_what_the_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore: Any = shipping._restore  # what a wrong restore would do

    def twice(store: Path, *rest: object) -> Any:
        done = restore(store, *rest)
        with falaj.open(store) as opened, opened.topic(shipping.TOPIC, codec="bytes") as topic:
            record = topic[0]
            topic.append(record.value, record.key, headers=record.headers)
        return done

    monkeypatch.setattr(shipping, "_restore", twice)
    with pytest.raises(Failed, match=r"was there before or never appended"):
        shipping.run(tmp_path, SERVER, limit=60, seconds=0.0, spark=False, console=_quiet())


def test_what_the_bucket_lacks_is_not_taken_from_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[bool] = []
    restore: Any = shipping._restore  # looks at the moment before it

    def looking(store: Path, *rest: object) -> Any:
        gone.append(not store.exists())
        return restore(store, *rest)

    monkeypatch.setattr(shipping, "_restore", looking)
    shipping.run(tmp_path, SERVER, limit=60, seconds=0.0, spark=False, console=_quiet())
    assert gone == [True]


def test_a_server_that_does_not_start_and_a_shipper_that_ends_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Failed, match=r"the server .* did not start: .*No such file"):
        shipping.run(tmp_path, tmp_path.parent / "none.py", limit=9, console=_quiet())
    monkeypatch.setattr(Bucket, "url", "s3://flights/demo?wrong=1")
    with pytest.raises(Failed, match=r"the shipper ended with code 2; see .*shipper\.log"):
        shipping.run(tmp_path, SERVER, limit=9, seconds=5.0, console=_quiet())


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InvalidArgument, match=r"has thesis\.tex in it, .*: name a folder that is"):
        shipping.run(tmp_path, SERVER)
    command = [sys.executable, "-m", "falaj.demo.shipping", str(tmp_path), "--server", str(SERVER)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("falaj: ")
    shutil.rmtree(tmp_path)


def _quiet() -> Console:
    return Console(quiet=True)
