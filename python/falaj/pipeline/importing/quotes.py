"""Files of CSV, where every quote has a meaning.

Owns how quotes are read, and the search for those that Spark would read otherwise than they were
written. A value in quotes has each quote of its own twice, as RFC 4180 has it and as most programs
write it. Spark's own default is a backslash before it. Where a quote is neither the end of
its value nor escaped, its reader keeps all quotes as text. Where the last one of a line is missing,
it takes the line for whole. So each line is compared with the grammar, by a pattern that never goes
back: Java's patterns need stack for that.

With the option `multiLine` a value may have several lines, and no line says whether quotes match.
The reader itself raises then, except where the last quote of a file is missing. So only files with
an odd number of quotes are compared whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

from falaj.errors import InvalidArgument
from falaj.pipeline.base.spoken import QUOTES
from falaj.pipeline.importing import lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, SparkSession

__all__ = ["expect_matching", "reader_options"]

_SHOWN = 200
_SPELLED = {"\\t": "\t", "\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\0": "\0"}


def reader_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return how Spark's reader of CSV takes quotes, unless its options say otherwise."""
    quote = _named(options).get("quote", '"')
    return {"escape": quote, "unescapedQuoteHandling": "RAISE_ERROR"}


def _named(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): str(value) for name, value in options.items()}


@dataclass(frozen=True)
class _Grammar:
    """Which characters mean what in a file.

    Attributes:
        quote: What stands around values.
        escape: What stands before a quote in a value.
        separator: What stands between values.
        comment: The beginning of lines that are none; may be empty.
        pads: Whether spaces before values are ignored.
    """

    quote: str
    escape: str
    separator: str
    comment: str
    pads: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Grammar:
        named = _named({**reader_options(options), **options})
        separator = named.get("sep", named.get("delimiter", ","))
        return cls(
            named.get("quote", '"'),
            named["escape"],
            _SPELLED.get(separator, separator),
            named.get("comment", ""),
            named.get("ignoreleadingwhitespace", "").lower() == "true",
        )

    def pattern(self) -> str:
        """Write the pattern of a line, or of a whole file."""
        quote, separator = re.escape(self.quote), re.escape(self.separator)
        spaces = rf"(?:(?!{separator})[ \t])*+"
        pad = spaces if self.pads else ""
        if self.escape == self.quote:
            inner = f"[^{quote}]*+(?:{quote}{quote}[^{quote}]*+)*+"
        else:
            escape = re.escape(self.escape)
            inner = f"[^{quote}{escape}]*+(?:{escape}[\\s\\S][^{quote}{escape}]*+)*+"
        quoted = rf"{pad}{quote}{inner}{quote}{spaces}"
        plain = rf"(?!{pad}{quote})(?:(?!{separator})[^\r\n])*+"
        value = f"(?:{quoted}|{plain})"
        return rf"\A{value}(?:(?:{separator}|\r\n?|\n){value})*+\z"

    def quotes(self, text: Column) -> Column:
        """Count the quotes in text that are not escaped by another character."""
        if self.escape != self.quote:
            text = F.regexp_replace(text, rf"{re.escape(self.escape)}[\s\S]", "")
        return F.length(text) - F.length(F.replace(text, F.lit(self.quote), F.lit("")))


def expect_matching(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str], what: str
) -> None:
    """Refuse files with quotes that Spark would read otherwise than they were written.

    Args:
        spark: The session.
        paths: The files.
        options: Options of Spark's reader of CSV, beside those of `reader_options`.
        what: What is read, for the message.

    Raises:
        InvalidArgument: A quote does not match.
    """
    grammar = _Grammar.of(options)
    if not grammar.quote.strip("\0"):
        return  # then no character is a quote
    of_text, _ = lines.apart({**options, "multiLine": "false"})
    if lines.is_multiline(options):
        paths = _odd(spark, paths, of_text, grammar)
        of_text, _ = lines.apart(options)
    if not paths:
        return
    rows = lines.decoded(spark, paths, of_text)
    line = F.col(lines.LINE)
    wrong = rows.where(F.contains(line, F.lit(grammar.quote)) & ~line.rlike(grammar.pattern()))
    if grammar.comment:
        wrong = wrong.where(~F.startswith(line, F.lit(grammar.comment)))
    found = wrong.groupBy(lines.FILE).agg(F.count("*"), F.min(F.substring(line, 1, _SHOWN)))
    if rest := found.orderBy(lines.FILE).collect():
        file, count, text = rest[0]
        raise InvalidArgument(
            f"{what}: {lines.file_of(file)} has {count:,} line{'s' if count > 1 else ''} with a "
            f"quote that does not match, as {text!r}: {QUOTES}"
        )


def _odd(
    spark: SparkSession, paths: Sequence[str], of_text: Mapping[str, str], grammar: _Grammar
) -> list[str]:
    """Find files with an odd number of quotes, or with lines that cannot be read one by one."""
    rows = lines.decoded(spark, paths, of_text)
    line = F.col(lines.LINE)
    is_odd = (F.sum(grammar.quotes(line)) % 2 == 1) | F.max(line.isNull())
    found = rows.groupBy(lines.FILE).agg(is_odd.alias("is_odd")).where("is_odd")
    odd = {lines.file_of(row[0]) for row in found.collect()}
    return [path for path in paths if path in odd]
