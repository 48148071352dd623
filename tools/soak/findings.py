"""Findings of the harnesses, as they stand in the files that those keep.

Owns which files are whose, and reading a finding out of them. A harness tells what it found when it
ends by itself; one that is asked to end has it in its file only.
"""

import json
import re
from pathlib import Path

from soak.state import put


def files_of(folder: Path, job: str) -> list[Path]:
    """List the files that a job's pieces go on from, those of its other seeds among them."""
    named = re.compile(rf"{re.escape(job)}(-\d+(-[a-z]+)?)?\.json")
    return sorted(path for path in folder.iterdir() if named.fullmatch(path.name))


def told(path: Path) -> list[str]:
    """Read what was found, in words; of the explorer's with the place to see it again at."""
    kept = json.loads(path.read_text())
    violations = kept.get("violations", [])
    return [*kept.get("findings", []), *(f"{v['what']} (at {v['site']})" for v in violations)]


def forget(path: Path) -> None:
    """Take what was found out of a file: who goes on from it would tell it again each time."""
    if told(path):
        kept = json.loads(path.read_text())
        kept |= {key: [] for key in ("findings", "violations") if key in kept}
        put(path, json.dumps(kept, indent=1))
