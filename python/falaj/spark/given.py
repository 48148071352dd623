"""Options as users give them: text under names in any case, read into checked values.

Names and meanings are those of Spark's Kafka source and sink, so that a job moves over by changing
the format and adding `store`. An unknown name is an error. Only Kafka's own are ignored, `kafka.*`
and how its consumers ask: they speak to brokers, and there are none. They get one warning.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from falaj._paths import local_path
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["boolean", "directory", "one_of", "positive", "refuse_unknown", "required"]

# A table of the catalog: `schema` is given its properties instead, a reader or writer nothing.
_OF_CATALOG = "option."
_VIEW = (
    "Spark does not hand the options of a table in its catalog on to a Python source: use CREATE "
    "TEMPORARY VIEW name USING falaj OPTIONS (store 'events', subscribe 'orders') in place of "
    "CREATE TABLE, and .save() in place of .saveAsTable(); a table that is there takes options in "
    "the query, FROM name WITH (`store`='events', `subscribe`='orders'), and DROP TABLE removes no "
    "topic"
)
_OF_BROKERS = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")


def refuse_unknown(
    options: Mapping[str, str], names: Sequence[str], advice: Mapping[str, str]
) -> tuple[str, ...]:
    """Refuse options that there are not.

    Args:
        options: What was given, under names in lower case: Spark hands them over so.
        names: The options that there are, as people write them.
        advice: What to say of names, in lower case, that people are likely to give by mistake.

    Returns:
        The names of those that do nothing here, which are Kafka's own.

    Raises:
        InvalidArgument: There is one; the message names those that are spelled like it.
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
    """Return the text of an option that has to be there, without spaces around it."""
    text = options.get(name.lower(), "").strip()
    if not text:
        hint = "" if options else f"; {_VIEW}"  # none at all: it may be such a table
        raise InvalidArgument(f"option {name} is missing: add .option('{name}', {example}){hint}")
    return text


def directory(options: Mapping[str, str]) -> Path:
    """Return the store's directory, absolute.

    Raises:
        InvalidArgument: It is missing, or a URL of another scheme than `file`.
    """
    return Path(local_path(required(options, "store", "'events'"), "option store")).absolute()


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Read an option that is true or false."""
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise InvalidArgument(f"option {name} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def one_of(
    options: Mapping[str, str], name: str, choices: tuple[str, ...], default: str | None = None
) -> str:
    """Read an option that is one of several words, the first where nothing is said."""
    text = options.get(name.lower(), default or choices[0]).strip().lower()
    if text not in choices:
        raise InvalidArgument(
            f"option {name} is {', '.join(choices[:-1])} or {choices[-1]}, "
            f"not {options[name.lower()]!r}"
        )
    return text


def positive(options: Mapping[str, str], name: str) -> int | None:
    """Read an option that is a whole number from 1 up; None where it is left away."""
    text = options.get(name.lower())
    if text is None:
        return None
    if not (text.strip().isascii() and text.strip().isdecimal()) or int(text) < 1:
        raise InvalidArgument(f"option {name} is a whole number from 1 up, not {text!r}")
    return int(text)
