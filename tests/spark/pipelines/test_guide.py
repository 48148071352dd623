"""docs/guide/pipelines.md does what it says, in the session that the tests share.

Other pages run in processes of their own, as a reader would run them (tests/test_readme.py);
another Spark for this one would take as long as all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import page_driver
from house import ROOT
from papers import blocks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

PAGE = "docs/guide/pipelines.md"


def test_the_page_runs_from_top_to_bottom(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    ran = 0
    for block in blocks(PAGE, (ROOT / PAGE).read_text()):
        if block.runs:
            run = {"python": page_driver.run_python, "sh": script, "console": console}
            run[block.language](block.place, block.text, namespace)
            ran += 1
    assert ran
    assert spark.range(1).count() == 1, "the page must not stop the session"


def script(place: str, text: str, _: dict[str, Any]) -> None:
    page_driver.run_script(place, text)


def console(place: str, text: str, _: dict[str, Any]) -> None:
    page_driver.run_console(place, text)
