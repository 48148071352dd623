#!/usr/bin/env python3
"""Print the requirements of the named extras of pyproject.toml, for `pip install -r`.

pip can install an extra only together with its package, which would build falaj twice. Usage:
extras.py dev cli …
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SELF_REFERENCE = re.compile(r"falaj\[([\w,\s-]+)\]$")


def requirements(extras: dict[str, list[str]], names: list[str]) -> list[str]:
    """List the requirements of the extras, including those of extras that they refer to."""
    found: list[str] = []
    for name in names:
        for requirement in extras[name]:
            if match := SELF_REFERENCE.match(requirement):
                inner = [part.strip() for part in match[1].split(",")]
                found += requirements(extras, inner)
            else:
                found.append(requirement)
    return list(dict.fromkeys(found))


def main() -> None:
    """Print one requirement a line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    print("\n".join(requirements(project["optional-dependencies"], sys.argv[1:])))


if __name__ == "__main__":
    main()
