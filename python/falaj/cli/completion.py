"""Completion: the scripts of the shells, and the words that may come next.

A script calls `falaj __complete WORD...` with the words after the name of the program. The user is
typing the last one. The script gets one candidate on each line. To look up names, the program opens
the store for reading; if that fails, there are no candidates and no message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import registry
from falaj.cli.app import find
from falaj.cli.arguments import Command, Group, HelpWanted, parse
from falaj.cli.exits import Stop
from falaj.cli.stores import Access
from falaj.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from falaj.cli.arguments import Argument

__all__ = ["SCRIPTS", "complete"]

_BASH = """\
_falaj() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(falaj __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _falaj falaj
"""
_ZSH = """\
#compdef falaj
_falaj() {
    local -a found
    found=("${(@f)$(falaj __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then
        compadd -a found
    else
        _files
    fi
}
compdef _falaj falaj
"""
_FISH = """\
function __falaj_complete
    set -l words (commandline -opc) (commandline -ct)
    falaj __complete $words[2..-1] 2>/dev/null
end
complete -c falaj -a '(__falaj_complete)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def complete(words: Sequence[str]) -> None:
    """Print the words that may replace the last one."""
    *before, typed = words or [""]
    for candidate in _candidates(before, typed):
        if candidate.startswith(typed):
            print(candidate)


def _candidates(before: Sequence[str], typed: str) -> Iterable[str]:
    try:
        found, title, rest = find(before)
    except Stop:
        return ()
    if found is None:
        return registry.NAMES if not before or before[-1] not in ("-h", "--help") else ()
    if isinstance(found, Group):
        return found.commands
    if typed.startswith("-"):
        return [
            name
            for option in found.options
            for name in (*option.names, *([option.off] if option.off else ()))
            if name.startswith("--")
        ]
    return _names(found, title, rest)


def _names(command: Command, title: str, rest: Sequence[str]) -> Iterable[str]:
    """Names for the argument that comes next, read from the store."""
    relaxed = command._replace(
        arguments=tuple(each._replace(needed=False) for each in command.arguments),
        options=tuple(each._replace(needed=False) for each in command.options),
    )
    try:
        given = parse(relaxed, title, rest)
        argument = _next(command, given)
        # Pipelines have the store's path alone.
        access = given.get("access", {"given": given.get("store")})
        if argument is None or not {"access", "store"} & given.keys():
            return ()
        with Access(**access)._replace(lock_timeout=1.0).store() as store:
            if argument.metavar == "TOPIC":
                return list(store.topics)
            if argument.metavar == "QUEUE":
                return list(store.queues)
            if argument.metavar == "GROUP":
                return list(store.groups)
    except (Stop, Error, HelpWanted):
        pass
    return ()


def _next(command: Command, given: dict[str, object]) -> Argument | None:
    for argument in command.arguments:
        if argument.many or given[argument.to] is None:
            return argument
    return None
