"""The environment of Spark's drivers of their own, and of the shared session."""

from __future__ import annotations

import os
from pathlib import Path

from house import ROOT

ON_PATH = Path(__file__).with_name("installed")
"""Put on PYTHONPATH, it lets workers start and go on sooner: `installed/sitecustomize.py`."""


def environment() -> dict[str, str]:
    """Give the environment of a program that starts a Spark."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ON_PATH, ROOT / "python")))}
