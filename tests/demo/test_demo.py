"""The whole demo, small: three producers, a kill, a count, Spark, a report."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

import falaj
import falaj.demo
from falaj.demo import late, steps
from falaj.errors import InvalidArgument, MissingExtra
from spark.drivers import environment

if TYPE_CHECKING:
    from pathlib import Path

FLIGHTS = 4_000
SECONDS = 2.0


def typed(command: str) -> str:
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


@pytest.mark.proof
@pytest.mark.timeout(300)  # it starts Spark twice, on a machine that may be busy
def test_the_demo_survives_a_kill_and_its_figures_are_right_in_a_folder_it_left_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setattr(late, "BATCHES", late.KILL_AT + 1)  # one batch is left when it is killed
    folder = tmp_path / "demo"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "metadata").write_text("of the run before")
    (folder / "report.html").write_text("of the run before")
    with falaj.open(folder / "store") as store:
        store.topic("flights").extend([b"of the run before"] * 10)
        store.topic("delays", codec="json").append({"of": "the run before"})
        store.topic("late").append(b"of the run before")
        store.topic("mine").append(b"somebody's own")
    out = io.StringIO()
    path = falaj.demo.run(
        folder, flights=FLIGHTS, seconds=SECONDS, console=Console(file=out, width=100)
    )
    said = out.getvalue()
    assert "JFK killed after" in said
    assert f"each of {FLIGHTS:,} flights is in the log exactly once" in said
    assert re.search(r"killed when \d+ late flights were in the topic late", said)
    assert re.search(r"each of \d+ late flights is in the topic late exactly once", said)
    assert "are equal, to the last minute" in said
    assert re.findall(r"^(\d)/(\d)  ", said, re.MULTILINE) == [(f"{n}", "5") for n in range(1, 6)]
    commands = [line for line in said.splitlines() if line.startswith(f"    {steps.program()} ")]
    assert [command.strip() for command in commands] == steps.explore(folder / "store")
    for command in commands:
        assert typed(command).strip(), command
    page = path.read_text()
    assert f"{FLIGHTS:,} flights through a log" in page
    assert "SIGKILL" in page
    with falaj.open(folder / "store", read_only=True) as store:
        assert set(store.topics) == {*steps.TOPICS, "mine"}
        assert len(store.topic("flights")) == FLIGHTS
        summary = {record.key: record.value for record in store.topic("delays")}
        assert sum(row["flights"] for row in summary.values()) == FLIGHTS
        assert summary[b"UA"]["airline"] == "United Air Lines Inc."
        victim = [r for r in store.topic("flights") if r.headers[0] == ("producer", b"JFK")]
        assert [int(r.headers[1][1] or b"") for r in victim] == list(range(len(victim)))


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    (tmp_path / "thesis.tex").write_text("mine too")
    with pytest.raises(
        InvalidArgument, match=r"has thesis\.tex in it, .*: name a folder that is empty"
    ):
        falaj.demo.run(tmp_path, flights=1)
    assert (tmp_path / "report.html").read_text() == "mine"
    with pytest.raises(
        InvalidArgument, match=r"thesis\.tex is a file, and the demo needs a folder"
    ):
        falaj.demo.run(tmp_path / "thesis.tex")
    with pytest.raises(InvalidArgument, match="at least one flight, not 0"):
        falaj.demo.run(tmp_path / "demo", flights=0)
    for pace in (float("inf"), float("nan"), -5.0, 2000.0, 10**5000):
        with pytest.raises(InvalidArgument, match="from 0 to 600 seconds, not "):
            falaj.demo.run(tmp_path / "demo", seconds=pace)
    assert not (tmp_path / "demo").exists()


def test_without_its_packages_the_demo_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "find_spec", lambda name: None if name == "pyspark" else name)
    with pytest.raises(MissingExtra, match=r"the demo needs pyspark: pip install 'falaj\[demo\]'"):
        falaj.demo.run(tmp_path)


def test_as_a_program_it_ends_in_one_sentence_and_code_1(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    command = [sys.executable, "-m", "falaj.demo", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("falaj: ")
    assert len(done.stderr.splitlines()) == 1
