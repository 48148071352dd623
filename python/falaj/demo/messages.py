"""How the demo's processes talk: a JSON object a line, on standard input and output."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["say", "wait_for"]

Message = dict[str, Any]


def say(**message: object) -> None:
    """Send the demo a message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def wait_for(word: str) -> Any:
    """Wait for a message of the demo; exit if the demo has ended."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(1)
    return json.loads(line)[word]
