"""Commands that the engine's sentences name, in the program's grammar.

The engine's sentences tell what helps, and some name a command. This is the one place that knows
how such a command is written today.
"""

from __future__ import annotations

import re

__all__ = ["in_our_words"]

_WORDS = (
    (r"falaj consumers STORE (\S+) --delete", r"falaj group delete \1"),
    (r"falaj consumers --delete", "falaj group delete"),
    (r"falaj consumers", "falaj group list"),
    (r"falaj seek STORE", "falaj group seek"),
    (r"falaj seek", "falaj group seek"),
    (r"falaj queues STORE --reset (\S+?)`", r"falaj queue reset \1`"),
    (r"falaj queues --reset", "falaj queue reset"),
    (r"falaj topics", "falaj topic list"),
    (r"falaj producers", "falaj producer list"),
    (r"falaj cat --skip-damage", "falaj cat --skip-corrupt"),
)


def in_our_words(sentence: str) -> str:
    """Write the commands that a sentence names as they are typed.

    Example:
        >>> in_our_words("`falaj consumers STORE billing --delete` forgets it")
        '`falaj group delete billing` forgets it'
    """
    if "falaj " not in sentence:
        return sentence
    for written, ours in _WORDS:
        sentence = re.sub(written, ours, sentence)
    return sentence
