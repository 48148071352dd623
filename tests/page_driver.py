"""Run blocks of a page, given as JSON on standard input; see papers.py.

A separate program that needs only the interpreter, so it also runs where only the wheel is
installed. It ends at the first block that does not do what the page says.
"""

import contextlib
import io
import json
import linecache
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

_PRINTS = re.compile(r"print\(.*\) +# (.+)$", re.M)
_FILE = re.compile(r"# ([\w.-]+\.py)\n")
_DEADLINE_S = 60


def matches(printed: str, written: str) -> bool:
    """True if the output is as written, where `…` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in written.split("…"))
    return re.fullmatch(pattern, printed, re.S) is not None


def lines_missing(printed: str, expected: list[str]) -> list[str]:
    """List expected lines that were not printed, in this order."""
    lines = iter(printed.splitlines())
    return [want for want in expected if not any(matches(line, want) for line in lines)]


def run_python(place: str, code: str, namespace: dict[str, Any]) -> None:
    """Run a Python block, or save it if it is a file."""
    file = _FILE.match(code)
    if file:
        Path(file[1]).write_text(code)
        return
    linecache.cache[place] = (len(code), None, code.splitlines(keepends=True), place)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, place, "exec"), namespace)
    if missing := lines_missing(printed.getvalue(), _PRINTS.findall(code)):
        raise AssertionError(f"{place} printed {printed.getvalue()!r}, without {missing}")


def run_script(place: str, script: str) -> None:
    """Run a shell block."""
    done = shell(f"set -euo pipefail\n{script}")
    if done.returncode != 0:
        raise AssertionError(f"{place} ended with {done.returncode}: {done.stdout}")


def run_console(place: str, session: str) -> None:
    """Run the commands of a console block, and compare what they print."""
    for command in re.split(r"^\$ ", session, flags=re.M)[1:]:
        line, _, written = command.partition("\n")
        done = shell(line)
        if not matches(done.stdout, written):
            raise AssertionError(f"{place}: {line}\nprinted {done.stdout!r}\nand not {written!r}")


def shell(script: str) -> "subprocess.CompletedProcess[str]":
    """Run a script; its stderr is included in the output."""
    return subprocess.run(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_DEADLINE_S,
    )


def run(blocks: "list[dict[str, Any]]") -> None:
    """Run blocks in the current directory, one after the other."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        place = f"{block['page']}:{block['line']}"
        if block["language"] == "python":
            run_python(place, block["text"], namespace)
        elif block["language"] == "sh":
            run_script(place, block["text"])
        else:
            run_console(place, block["text"])


if __name__ == "__main__":
    run(json.load(sys.stdin))
