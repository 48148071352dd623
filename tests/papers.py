"""The blocks of code in README.md and the pages for users, and how to run them.

A page runs from top to bottom in an empty directory, as a reader would type it. Its Python blocks
share one namespace, its shell blocks one directory. `page_driver.py` is the program that runs it,
under any interpreter. If a block cannot run, a comment right above it says why:

    <!-- not run: it would create a user -->

| language | how it is checked |
|---|---|
| `python` | run, and must print what follows a `print(…)  #`; with `# name.py` on top it is saved |
| `sh` | run as one script, which must end with 0; `make` lines: their targets must exist |
| `console` | each `$` line is run, and must print what follows it; `…` stands for anything |
| `rust` | must stand in an example of the crate, which is compiled and run elsewhere |
| `toml` | must be TOML |
| `text` | nothing: pictures |
"""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from house import ROOT

DRIVER = Path(__file__).with_name("page_driver.py")
LANGUAGES = {"python", "sh", "console", "rust", "toml", "text", "sql", "json"}
DEADLINE_S = 110
# Python 3.11 has this filter from 3.11.4 on; earlier ones unpack archives without it.
DATA_FILTER = getattr(tarfile, "data_filter", None)
_FENCE = re.compile(r"^```(\w*)$")
_REASON = re.compile(r"^<!-- not run: (.+) -->$")
# The machine's settings of colours, language and time must not decide a test.
_ASIDE = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TZ", "LC_ALL", "LANG"}


@dataclass(frozen=True)
class Block:
    """A block of code, and its place."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None = None

    @property
    def place(self) -> str:
        """Page and line, as editors take it."""
        return f"{self.page}:{self.line}"

    @property
    def installs(self) -> bool:
        """True if it needs a machine on which falaj is not installed yet."""
        return self.language == "sh" and "pip install" in self.text

    @property
    def targets(self) -> list[str]:
        """The targets of its `make` lines."""
        return re.findall(r"^make ([\w-]+)", self.text, re.M) if self.language == "sh" else []

    @property
    def runs(self) -> bool:
        """True if the driver can run it wherever falaj is installed."""
        shown = self.language not in ("python", "sh", "console")
        return not (shown or self.reason or self.installs or self.targets)


def blocks(page: str, text: str) -> list[Block]:
    """Find the blocks of a page."""
    found: list[Block] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        at += 1
        if fence:
            begin = at
            while lines[at] != "```":
                at += 1
            above = _REASON.match(lines[begin - 2]) if begin > 1 else None
            reason = above[1] if above else None
            code = "\n".join(lines[begin:at]) + "\n"
            found.append(Block(page, begin + 1, fence[1], code, reason))
            at += 1
    return found


def pages() -> dict[str, str]:
    """Return the pages whose blocks must run."""
    docs = ROOT / "docs"
    folders = (sorted((docs / name).glob("*.md")) for name in ("guide", "quickstart", "recipes"))
    alone = (docs / f"{name}.md" for name in ("concepts", "cookbook", "faq", "index", "support"))
    paths = [ROOT / "README.md", *chain(*folders), *alone]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def recipes() -> list[str]:
    """Name the pages of recipes, whose programs tests/test_recipes.py runs with real servers."""
    return [page for page in pages() if page.startswith("docs/recipes/")]


def guides_of_spark() -> list[str]:
    """List the pages of the guide that need Spark; tests/spark runs them."""
    return [
        page
        for page, text in pages().items()
        if page != "README.md" and "falaj.spark.session" in text
    ]


def run(
    wanted: Iterable[Block], folder: Path, python: str = sys.executable, path: str | None = None
) -> None:
    """Run blocks in a directory, with an interpreter's programs first on PATH."""
    bin_folder = os.fspath(Path(python).parent)
    aside = _ASIDE | {name for name in os.environ if name.startswith("PYTHON")}
    kept = {name: value for name, value in os.environ.items() if name not in aside}
    environment = {
        **kept,
        "PATH": os.pathsep.join([bin_folder, path if path is not None else os.environ["PATH"]]),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
    }
    done = subprocess.run(
        [python, "-W", "error", os.fspath(DRIVER)],
        input=json.dumps([asdict(block) for block in wanted]),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
