"""The public calls of falaj, listed from its modules."""

import inspect
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import falaj
import falaj.arrow
import falaj.codecs
import falaj.logging
import falaj.metrics
import falaj.outbox
from falaj import _arguments

MODULES: list[Any] = [
    falaj,
    falaj.arrow,
    falaj.codecs,
    falaj.logging,
    falaj.metrics,
    falaj.outbox,
]

#: Classes with a constructor for users; other objects are made by calls.
MADE_BY_USERS = {
    *("Codec", "Cursor", "ExpiringProducer", "Handler", "JSON", "NewRecord", "Outbox", "Receipts")
}

#: Keyword arguments that a signature does not list.
REST = {
    "Unpack[Settings]": _arguments.Settings,
    "Unpack[Existing]": _arguments.Existing,
    "Unpack[Retention]": _arguments.Retention,
}

#: Not walked, and why.
LEFT_OUT = {
    "AnyTopic": "a base: its calls are those of the two kinds of topics",
    "Scan": "pyarrow's own class and arguments; test_scans.py has its errors",
    "Handler.emit": "logging calls it; an error in it goes to handleError, as the class says",
    "Handler.handle": "logging calls it",
    "metrics.of": "takes a report of this package, not what a user types",
    "metrics.exposition": "takes a report of this package, not what a user types",
    "Origins.__getitem__": "a mapping's",
    "Jobs.__getitem__": "a list's",
    "Jobs.pop": "a list's",
    "arrow.lanes": "for the connector of Spark",
    "arrow.chosen": "for the connector of Spark",
    "codecs.resolver": "for `Store.topic`",
    "PlaceStore.backup": "refuses every call, whatever its arguments are",
    "PlaceStore.verify": "refuses every call, whatever its arguments are",
    "Slice.offsets_of": "for `Topic`, which passes a slice",
}


@dataclass(frozen=True)
class Call:
    """A public call: a function, a method or a constructor."""

    owner: str
    name: str
    parameters: tuple[str, ...]
    positional: frozenset[str]
    """Those that cannot be given by name."""
    required: frozenset[str]

    @property
    def title(self) -> str:
        """Class or module, and name."""
        return f"{self.owner}.{self.name}" if self.name else self.owner

    def of_call(self, table: dict[str, Any]) -> Any:
        """Look something up for the call, or for its class."""
        return table.get(self.title) or table[self.owner]

    def of(self, table: dict[str, Any], parameter: str, otherwise: Any = None) -> Any:
        """Look an argument up: by call, by class, or by its name alone."""
        for key in (f"{self.title}.{parameter}", f"{self.owner}.{parameter}", parameter):
            if key in table:
                return table[key]
        return otherwise


def surface() -> dict[str, Call]:
    """All public calls with arguments."""
    found: dict[str, Call] = {}
    for module in MODULES:
        short = module.__name__.removeprefix("falaj.")
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) and not _is_report(thing):
                for call in _of_class(name, thing):
                    found.setdefault(call.title, call)
            elif inspect.isfunction(thing):
                call = _call(short, name, thing)
                found.setdefault(call.title, call)
    return {
        title: call
        for title, call in found.items()
        if call.parameters and title not in LEFT_OUT and call.owner not in LEFT_OUT
    }


def classes() -> set[str]:
    """The public classes that have calls."""
    return {
        name
        for module in MODULES
        for name in module.__all__
        if inspect.isclass(getattr(module, name)) and not _is_report(getattr(module, name))
    }


def _is_report(thing: type) -> bool:
    """Tell whether a class is an error, or only describes a result."""
    is_row = hasattr(thing, "_fields") and issubclass(thing, tuple)
    return issubclass(thing, BaseException) or typing.is_typeddict(thing) or is_row


def _of_class(name: str, thing: type) -> Iterator[Call]:
    if name in MADE_BY_USERS:
        yield _call(name, "", thing)
    # A store that is read from a place has the calls of a store, which refuse to write.
    tried = falaj.Store.__mro__ if thing is falaj.PlaceStore else ()
    members = {
        each: member
        for base in reversed(thing.__mro__)
        if base not in tried
        if base.__module__.partition(".")[0] in ("falaj", "builtins") and base is not object
        if base.__module__ != "builtins" or base.__name__ in _compiled()
        for each, member in vars(base).items()
    }
    for each, member in members.items():
        if each.startswith("_") and each != "__getitem__":
            continue
        if isinstance(member, staticmethod | classmethod):
            yield _call(name, each, getattr(thing, each))
        elif isinstance(member, types.FunctionType) or inspect.ismethoddescriptor(member):
            yield _call(name, each, member, bound=False)


def _compiled() -> set[str]:
    from falaj import _core

    return {name for name, each in vars(_core).items() if inspect.isclass(each)}


def _call(owner: str, name: str, thing: Any, *, bound: bool = True) -> Call:
    if name == "__getitem__":
        return Call(owner, name, ("at",), frozenset({"at"}), frozenset({"at"}))
    parameters = list(inspect.signature(thing).parameters.values())[0 if bound else 1 :]
    names: list[str] = []
    positional: set[str] = set()
    required: set[str] = set()
    for each in parameters:
        if each.name.startswith("_") or (each.kind is each.VAR_KEYWORD and owner == "Handler"):
            continue
        if each.kind is each.VAR_KEYWORD and name in (
            *("ship", "restore", "open_place", "list_origins", "open_origins"),
        ):
            continue  # options of buckets, which tests/ship/test_bucket.py tries
        if each.kind is each.VAR_KEYWORD:
            if owner == "BulkLoad":
                names += _call("", "", getattr(falaj.Part, name), bound=False).parameters[1:]
            elif (owner, name) == ("arrow", "table"):
                names += _call("", "", falaj.arrow.read).parameters[1:]
            else:
                names += typing.get_type_hints(REST[str(each.annotation)])
            continue
        if (owner, name, each.name) == ("arrow", "table", "arguments"):
            continue  # the same ones as keyword arguments
        names.append(each.name)
        if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
            positional.add(each.name)
        if each.default is each.empty:
            required.add(each.name)
    return Call(owner, name, tuple(names), frozenset(positional), frozenset(required))
