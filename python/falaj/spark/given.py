"""Options that users give: text under names in any case, turned into checked values.

Names and meanings are those of Spark's Kafka source and sink. So to move a job, change its format
and add `store`. An unknown name is an error. Options that only Kafka needs are ignored with one
warning: `kafka.*`, and options for Kafka's consumers. They speak to brokers, and falaj has none.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from falaj._paths import is_place, local_path
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "boolean",
    "directory",
    "directory_or_place",
    "one_of",
    "positive",
    "refuse_unknown",
    "required",
]

# A table of the catalog: `schema` is given its properties instead, a reader or writer nothing.
_OF_CATALOG = "option."
_VIEW = (
    "Spark does not pass the options of a table in its catalog to a Python source. In place of "
    "CREATE TABLE, use CREATE TEMPORARY VIEW name USING falaj OPTIONS (store 'events', subscribe "
    "'orders'). In place of .saveAsTable(), use .save(). A table that exists takes options in the "
    "query, FROM name WITH (`store`='events', `subscribe`='orders'). DROP TABLE removes no topic"
)
_OF_BROKERS = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")


def refuse_unknown(
    options: Mapping[str, str], names: Sequence[str], advice: Mapping[str, str]
) -> tuple[str, ...]:
    """Refuse unknown options.

    Args:
        options: The given options; Spark passes their names in lower case.
        names: The known options, as people write them.
        advice: Messages for names, in lower case, that people are likely to give by mistake.

    Returns:
        The names of the options that do nothing here; they are Kafka's own.

    Raises:
        InvalidArgument: An option is unknown; the message names similar ones.
    """
    if any(name.startswith(_OF_CATALOG) for name in options):
        raise InvalidArgument(_VIEW)
    spelling = {name.lower(): name for name in names}
    brokers = tuple(sorted(name for name in options if name.startswith(_OF_BROKERS)))
    for name in sorted(options.keys() - spelling.keys() - set(brokers)):
        if name in advice:
            raise InvalidArgument(advice[name])
        near = [spelling[found] for found in difflib.get_close_matches(name, spelling)]
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise InvalidArgument(
            f"there is no option {name!r}: {hint}format('falaj') takes {', '.join(names)}"
        )
    return brokers


def required(options: Mapping[str, str], name: str, example: str) -> str:
    """Return the text of a required option, without spaces around it."""
    text = options.get(name.lower(), "").strip()
    if not text:
        hint = "" if options else f"; {_VIEW}"  # none at all: it may be such a table
        raise InvalidArgument(f"option {name} is missing: add .option('{name}', {example}){hint}")
    return text


def directory(options: Mapping[str, str]) -> Path:
    """Return the absolute path of the store.

    Raises:
        InvalidArgument: It is missing, or is a URL with another scheme than `file`.
    """
    text = required(options, "store", "'events'")
    if is_place(text):
        raise InvalidArgument(
            f"option store is {text}, and a place is only read: write to the store that is "
            "shipped there"
        )
    return Path(local_path(text, "option store")).absolute()


def directory_or_place(options: Mapping[str, str]) -> Path | str:
    """Return the absolute path of the store, or the URL of a place as it is given.

    Raises:
        InvalidArgument: It is missing, or is a URL that names neither.
    """
    text = required(options, "store", "'events'")
    return text if is_place(text) else directory(options)


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Parse an option that is true or false."""
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise InvalidArgument(f"option {name} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def one_of(
    options: Mapping[str, str], name: str, choices: tuple[str, ...], default: str | None = None
) -> str:
    """Parse an option that is one of several words; the first is the default."""
    text = options.get(name.lower(), default or choices[0]).strip().lower()
    if text not in choices:
        raise InvalidArgument(
            f"option {name} is {', '.join(choices[:-1])} or {choices[-1]}, "
            f"not {options[name.lower()]!r}"
        )
    return text


def positive(options: Mapping[str, str], name: str) -> int | None:
    """Parse an option that is a whole number of at least 1; None if it is missing."""
    text = options.get(name.lower())
    if text is None:
        return None
    if not (text.strip().isascii() and text.strip().isdecimal()) or int(text) < 1:
        raise InvalidArgument(f"option {name} is a whole number from 1 up, not {text!r}")
    return int(text)
