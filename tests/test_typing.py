"""Users' code is typed: mypy reads tests/typing and examples, and each public name is there.

`make lint-python` runs mypy in its strict mode over both; here it is only held that they tell of
everything.
"""

import tomllib

import falaj
from house import ROOT


def test_mypy_reads_what_users_write() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"]
    assert {"tests", "examples"} <= set(settings["files"])


def test_each_public_name_stands_in_a_program_that_is_type_checked() -> None:
    programs = [*(ROOT / "tests/typing").glob("*.py"), *(ROOT / "examples").glob("*.py")]
    text = "\n".join(path.read_text() for path in programs)
    names = [name for name in falaj.__all__ if not name.startswith("__")]
    assert [name for name in names if f"falaj.{name}" not in text] == []
