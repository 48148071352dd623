"""The demo's processes: a bad end or silence is reported, and none outlives the demo."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from falaj.demo import workers
from falaj.demo.failed import Failed
from falaj.demo.workers import Crew

# A module of the standard library that prints an error and fails on wrong arguments.
BAD = ("json.tool", "/no/such/file")


def processes_of(worker: workers.Worker) -> bool:
    return Path(f"/proc/{worker._process.pid}").exists()


def test_a_process_that_ends_badly_is_told_with_its_last_words() -> None:
    with Crew() as crew:
        crew.start("EWR", *BAD)
        with pytest.raises(Failed, match=r"the process EWR ended with code \d: .*no/such/file"):
            list(crew.messages())


def test_silence_is_told_and_ends_those_who_are_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SILENCE_SECONDS_MAX", 0.2)
    os.mkfifo(tmp_path / "silent")
    with Crew() as crew:
        silent = crew.start("JFK", "json.tool", tmp_path / "silent")
        with pytest.raises(Failed, match=r"nothing was heard of JFK for 0 seconds"):
            list(crew.messages())
        assert processes_of(silent)
    assert not processes_of(silent)


def test_who_appends_slowly_may_be_silent_for_as_long_as_that_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SILENCE_SECONDS_MAX", 0.0)
    (tmp_path / "message").write_text("{}")
    with Crew(quiet_seconds=60.0) as crew:
        slow = crew.start("EWR", "json.tool", tmp_path / "message")
        assert list(crew.messages()) == [(slow, {})]


def test_one_that_is_killed_on_purpose_is_no_news(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "silent")
    (tmp_path / "message").write_text("{}")
    with Crew() as crew:
        crew.kill(crew.start("JFK", "json.tool", tmp_path / "silent"))
        other = crew.start("EWR", "json.tool", tmp_path / "message")
        assert list(crew.messages()) == [(other, {})]
