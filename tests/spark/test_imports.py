"""Workers import the source for every task: it loads what it needs when it needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest


def loaded(statement: str) -> set[str]:
    """Run a statement in a new process; return the packages that are loaded then."""
    program = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return set(done.stdout.decode().split())


@pytest.mark.parametrize(
    "statement",
    [
        "import falaj",
        "import falaj.spark.session",
        "import falaj.cli.app",
        "from falaj.cli.app import run; run(['pipeline', 'export', '--help'])",
    ],
)
def test_nothing_of_the_extra_is_loaded_before_it_is_needed(statement: str) -> None:
    assert not loaded(statement) & {"pyspark", "pyarrow", "pandas", "numpy"}


def test_what_spark_imports_to_find_the_source_leaves_arrow_alone() -> None:
    found = loaded("import pyspark_falaj")
    assert {"pyspark", "falaj"} <= found
    assert "pyarrow" not in found
