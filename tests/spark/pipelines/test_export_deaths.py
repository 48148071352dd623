"""Exports that die at each of their steps: the next run leaves each record in the folder once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.errors import Error
from falaj.pipeline import ExportConfig, export, exported_files
from falaj.pipeline.base import steps
from falaj.pipeline.exporting import merging
from falaj.pipeline.exporting import run as exporting
from falaj.pipeline.exporting.folders import Folder
from spark.pipelines.test_export import (
    committed,
    fill,
    in_this_process,
    merge_in_this_process,
    seen,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECORDS = 8
STEPS = ("make_folder", "move", "remove", "sync", "write")


class Died(BaseException):
    """A process ends here; nothing cleans up behind it but the kernel."""


class Deaths:
    """Lets a run die before or after its n-th step, or within it where it writes a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self.taken = 0
        for name in STEPS:
            monkeypatch.setattr(steps, name, self.watched(getattr(steps, name)))

    def at(self, moment: int) -> None:
        """Die at this moment, counted from now; never where it is -1."""
        self.left, self.taken = moment, 0

    def watched(self, do: Callable[..., None]) -> Callable[..., None]:
        """Make a step one before and after which a run may die."""

        def step(changed: Any, *rest: Any) -> None:
            self._moment()
            if do.__name__ == "write":
                self._moment(lambda: changed.with_name(f".{changed.name}.draft").write_bytes(b"{"))
            do(changed, *rest)
            self._moment()

        return step

    def _moment(self, left_behind: Callable[[], object] = lambda: None) -> None:
        self.taken += 1
        if self.left == 0:
            left_behind()
            raise Died
        self.left -= 1


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deaths:
    monkeypatch.setattr(exporting, "run_tasks", in_this_process)
    monkeypatch.setattr(exporting, "cores", lambda _: 1)
    monkeypatch.setattr(merging, "in_spark", merge_in_this_process)
    fill(tmp_path, RECORDS)
    return Deaths(monkeypatch)


def run(folder: Path, into: Path, **changed: Any) -> Any:
    given = {"store": folder / "s", "topic": "t", "into": into, "file_records": 4, **changed}
    return export(None, ExportConfig(**given))  # type: ignore[arg-type]


def begun(folder: Path, into: Path) -> None:
    """Export the first half."""
    assert run(folder, into, end=RECORDS // 4).records == RECORDS // 2


@pytest.mark.proof
def test_a_run_that_dies_at_any_step_is_finished_by_the_next(
    deaths: Deaths, tmp_path: Path
) -> None:
    begun(tmp_path, tmp_path / "whole")
    deaths.at(-1)
    run(tmp_path, tmp_path / "whole")
    moments = deaths.taken
    assert moments > 40
    ways = set()
    for moment in range(moments):
        into = tmp_path / f"at{moment}"
        deaths.at(-1)
        begun(tmp_path, into)
        deaths.at(moment)
        with pytest.raises(Died):
            run(tmp_path, into)
        deaths.at(-1)
        files = set(into.glob("date=*/*"))
        newest = Folder(into).last()
        assert newest is not None
        if newest.number == 1:
            assert files == set(exported_files(into)), moment
        result = run(tmp_path, into)
        ways.add((result.records, result.resumed))
        assert committed(into) == seen(into) == list(range(RECORDS)), moment
        assert not (into / "_falaj/staging").exists()
        assert not list(into.glob("_falaj/**/.*"))
    assert ways == {(4, False), (4, True), (0, True), (0, False)}


def test_a_first_run_that_dies_at_any_step_is_finished_by_the_next(
    deaths: Deaths, tmp_path: Path, budget: Callable[[int, int], int]
) -> None:
    deaths.at(-1)
    run(tmp_path, tmp_path / "whole")
    for moment in range(0, deaths.taken, budget(3, 1)):
        into = tmp_path / f"at{moment}"
        deaths.at(moment)
        with pytest.raises(Died):
            run(tmp_path, into)
        deaths.at(-1)
        run(tmp_path, into)
        assert committed(into) == seen(into) == list(range(RECORDS)), moment


def test_runs_that_die_again_and_again_while_records_come_export_each_once(
    deaths: Deaths, tmp_path: Path, first_seed: int
) -> None:
    for seed in range(first_seed, first_seed + 3):
        dice, into, records = random.Random(seed), tmp_path / f"seed{seed}", 0
        with falaj.open(tmp_path / "s") as store, store.any_topic("t") as topic:
            records = len(topic)
        for _ in range(8):
            deaths.at(dice.randrange(60))
            try:
                run(tmp_path, into)
            except Died:
                expect_once(into, records, seed)
            if dice.random() < 0.4:
                fill(tmp_path, 3, start=records)
                records += 3
        deaths.at(-1)
        run(tmp_path, into)
        assert committed(into) == seen(into) == list(range(records)), seed


def expect_once(into: Path, records: int, seed: int) -> None:
    found = seen(into) if into.exists() else []
    assert len(found) == len(set(found)), seed
    assert set(found) <= set(range(records)), seed


def test_a_task_that_outlives_its_run_changes_nothing(
    deaths: Deaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []

    def keep_and_do_twice(_s: object, work: Any, tasks: list[int], _p: object) -> None:
        kept.append(work)
        for task in tasks:
            work.do(task)
            work.do(task)  # as Spark does where a task is slow

    monkeypatch.setattr(exporting, "run_tasks", keep_and_do_twice)
    into = tmp_path / "lake"
    run(tmp_path, into)
    with pytest.raises(Error, match="No such file"):
        kept[0].do(0)
    assert committed(into) == seen(into) == list(range(RECORDS))
    fill(tmp_path, 3, start=RECORDS)
    run(tmp_path, into)
    assert committed(into) == seen(into) == list(range(RECORDS + 3))


def test_files_of_a_task_that_vanished_are_written_again(
    deaths: Deaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = tmp_path / "lake"

    def die_behind(_s: object, work: Any, tasks: list[int], _p: object) -> None:
        in_this_process(None, work, tasks, None)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "run_tasks", die_behind)
        with pytest.raises(Died):
            run(tmp_path, into)
    staged = sorted(into.glob("_falaj/staging/*/2026*"))
    staged[0].unlink()
    staged[1].write_bytes(b"short")
    assert run(tmp_path, into).resumed
    assert committed(into) == list(range(RECORDS))


def test_a_strange_file_in_the_way_is_not_written_over(
    deaths: Deaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = tmp_path / "lake"
    with monkeypatch.context() as patch:
        patch.setattr(steps, "move", lambda *_: die())
        with pytest.raises(Died):
            run(tmp_path, into)
    staged = min(into.glob("_falaj/staging/*/2026-11-20.part*"))
    target = into / "date=2026-11-20" / staged.name.removeprefix("2026-11-20.").rpartition(".")[0]
    target.write_bytes(b"mine")
    with pytest.raises(Error, match="is in the way"):
        run(tmp_path, into)
    assert target.read_bytes() == b"mine"
    target.unlink()
    run(tmp_path, into)
    assert committed(into) == list(range(RECORDS))


def die() -> None:
    raise Died
