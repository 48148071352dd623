"""Arguments and options of a command, as tables, and the reading of a command line by them.

Help, completion and the tests of docs/cli.md read the same tables. The grammar is that of GNU:
options may be anywhere, and `--` ends them. Forms are `--name VALUE`, `--name=VALUE`, `-n5`, `-n 5`
and `-fn 5`. Names of options must be complete, so a new option never changes the meaning of an old
command line. In front of topics a URL is the store.

Invariant: the grammar depends on the command alone, never on the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from falaj._paths import scheme_of
from falaj.cli.exits import Stop
from falaj.cli.names import see
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Argument", "Command", "Group", "HelpWanted", "Option", "parse", "text"]

HELP = ("-h", "--help")


def text(word: str) -> str:
    """Read text. Bytes that are no UTF-8 are no text; an option that takes them reads with `str`.

    Raises:
        InvalidArgument: It is not UTF-8.
    """
    try:
        word.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{word!a} is not UTF-8: give text in that encoding") from None
    return word


class Argument(NamedTuple):
    """A word without the name of an option before it."""

    to: str
    metavar: str
    help: str
    many: bool = False
    needed: bool = True
    read: Callable[[str], Any] = str


class Option(NamedTuple):
    """An option; without a metavar it is a flag that gives `gives`, and `off` gives False.

    `to` names the parameter. Options that go together have `parameter.name`: the parameter then
    gets a dict of them by their names.
    """

    flags: str
    to: str
    help: str
    metavar: str = ""
    read: Callable[[str], Any] = text
    default: Any = None
    many: bool = False
    needed: bool = False
    off: str = ""
    gives: bool = True

    @property
    def names(self) -> list[str]:
        """The names that may be written, the longest last."""
        return self.flags.split()

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return self.names[-1]


class Command(NamedTuple):
    """A command: the function that runs it, its help, and what it takes.

    A command with `passes_on` passes all words to another program unchanged. Its tables are then
    only for help and completion.
    """

    run: Callable[..., None]
    summary: str
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    details: str = ""
    passes_on: bool = False


class Group(NamedTuple):
    """Commands about one kind of thing."""

    summary: str
    commands: dict[str, Command]
    details: str = ""


class HelpWanted(Exception):
    """The command line asks for help."""


def parse(command: Command, title: str, words: Sequence[str]) -> dict[str, Any]:
    """Read the words after the name of a command.

    Returns:
        The given values, by the parameters of the command's function.

    Raises:
        Stop: The words do not fit the command.
        HelpWanted: One of them asks for help.
    """
    line = _Line(command, title, list(words))
    line.read()
    return _gathered(line.found)


def _gathered(found: dict[str, Any]) -> dict[str, Any]:
    """Collect the options that belong together into dicts."""
    given: dict[str, Any] = {}
    for to, value in found.items():
        parameter, dot, name = to.partition(".")
        if dot:
            given.setdefault(parameter, {})[name] = value
        else:
            given[to] = value
    return given


class _Line:
    """A command line that is being read."""

    def __init__(self, command: Command, title: str, words: list[str]) -> None:
        self.command, self.title, self.words = command, title, words
        self.found: dict[str, Any] = {option.to: option.default for option in command.options}
        self._given: set[str] = set()
        self._options = {name: option for option in command.options for name in option.names}
        self._off = {option.off: option for option in command.options if option.off}

    def read(self) -> None:
        rest: list[str] = []
        while self.words:
            word = self.words.pop(0)
            if word == "--":
                rest += self.words
                break
            if word in HELP:
                raise HelpWanted
            if word.startswith("--"):
                self._long(word)
            elif word.startswith("-") and word != "-":
                self._short(word[1:])
            else:
                rest.append(word)
        self._place(rest)
        for option in self.command.options:
            if option.needed and option.to not in self._given:
                raise self._wrong(f"{option.shown} is missing")

    def _long(self, word: str) -> None:
        name, equals, value = word.partition("=")
        if name in self._off and not equals:
            self._set(self._off[name], name, False)
            return
        option = self._option(name)
        if option.metavar:
            self._take(option, name, value if equals else None)
        elif equals:
            raise self._wrong(f"{name} takes no value")
        else:
            self._set(option, name, option.gives)

    def _short(self, letters: str) -> None:
        while letters:
            name, letters = f"-{letters[0]}", letters[1:]
            option = self._option(name)
            if option.metavar:
                self._take(option, name, letters or None)
                return
            self._set(option, name, option.gives)

    def _option(self, name: str) -> Option:
        option = self._options.get(name)
        if option is None:
            there = [*self._options, *self._off, *HELP]
            raise see(f"there is no option {name}", name, there, self.title)
        return option

    def _take(self, option: Option, name: str, value: str | None) -> None:
        if value is None:
            if not self.words:
                raise self._wrong(f"{name} takes a value: {option.metavar}")
            value = self.words.pop(0)
        self._set(option, name, self._read(option.read, name, value))

    def _set(self, option: Option, name: str, value: Any) -> None:
        if option.many:
            self.found[option.to] = [*(self.found[option.to] or ()), value]
        elif option.to in self._given and option.metavar:
            raise self._wrong(f"{name} is given twice")
        else:
            self.found[option.to] = value
        self._given.add(option.to)

    def _place(self, rest: list[str]) -> None:
        self._take_store(rest)
        for argument in self.command.arguments:
            if argument.many:
                taken, rest = rest, []
                self.found[argument.to] = [
                    self._read(argument.read, argument.metavar, word) for word in taken
                ]
            else:
                taken, rest = rest[:1], rest[1:]
                self.found[argument.to] = (
                    self._read(argument.read, argument.metavar, taken[0]) if taken else None
                )
            if argument.needed and not taken:
                raise self._wrong(f"{argument.metavar} is missing")
        if rest:
            raise self._wrong(f"{rest[0]!r} is one word too many")

    def _take_store(self, rest: list[str]) -> None:
        """Take a URL in front of topics as the store: no topic has such a name."""
        store = self._options.get("--store")
        takes_topics = any(argument.metavar == "TOPIC" for argument in self.command.arguments)
        if takes_topics and store and rest and scheme_of(rest[0]) is not None:
            self._set(store, store.shown, self._read(store.read, store.shown, rest.pop(0)))

    def _read(self, read: Callable[[str], Any], name: str, value: str) -> Any:
        try:
            return read(value)
        except InvalidArgument as error:
            raise self._wrong(f"{name}: {error}") from None

    def _wrong(self, sentence: str) -> Stop:
        return Stop(f"{sentence}; see `{self.title} --help`")
