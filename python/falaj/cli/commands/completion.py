"""`falaj completion`: scripts by which a shell completes the program's words."""

from __future__ import annotations

from falaj.cli import options
from falaj.cli.arguments import Argument, Command
from falaj.cli.completion import SCRIPTS

__all__ = ["COMMAND", "completion"]


def completion(shell: str) -> None:
    """Print the script of a shell."""
    print(SCRIPTS[shell], end="")


COMMAND = Command(
    completion,
    "Print the completion script of a shell: bash, zsh or fish.",
    (Argument("shell", "SHELL", "bash, zsh or fish.", read=options.choice(*SCRIPTS)),),
    (),
    'Put `eval "$(falaj completion bash)"` into ~/.bashrc, the same with zsh into ~/.zshrc, or '
    "`falaj completion fish | source` into ~/.config/fish/config.fish. Commands, options, and "
    "names of topics, groups and queues are completed.",
)
