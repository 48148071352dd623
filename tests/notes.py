"""Notes of processes that are killed: lines in a file, which several may share.

A kill between two pages of a write leaves a piece of its line. A line therefore begins on a line of
its own and has a mark at its end; a piece has no mark, and is as if it had never been written.
"""

import os
from pathlib import Path

MARK = ";"


class Notes:
    """Adds lines to a file, from any thread."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def add(self, *words: object) -> None:
        """Add a line in one write."""
        os.write(self._file, f"\n{' '.join(map(str, words))} {MARK}\n".encode())


def read_notes(path: Path) -> list[list[str]]:
    """Return the words of each whole line; none where the file is not there yet."""
    lines = map(str.split, path.read_text().split("\n") if path.exists() else ())
    return [words[:-1] for words in lines if words and words[-1] == MARK]
