"""The position of a stream: what Spark keeps of it in its checkpoint.

For each topic it has the generation, which tells two topics of one name apart. For each partition
it has an offset, and a fingerprint of the records before it. By the fingerprint a stream recognizes
a log that lost its end, or that is an older copy. As JSON:

    {"version": 1, "topics": {"orders": {"generation": "9f3c…", "partitions":
        {"0": {"offset": 42, "after": "5d1e0c3a.1795161600000000"}}}}}

Spark compares texts to find out whether there are new records. So the text depends on nothing but
the position, with one exception. The end of a query's first batch also has the beginning of that
batch, as `began`, in the form of `topics`. Spark keeps only ends. If the first batch was not done,
Spark asks again where the query begins; after "latest" there are other records by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falaj._consumer import position_of
from falaj.errors import CorruptData, InvalidArgument

if TYPE_CHECKING:
    from falaj import Topic

__all__ = ["Place", "Places", "Standing", "beginning", "decode", "encode", "is_there", "place_of"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Place:
    """An offset, and a fingerprint of the records before it, which is empty if there are none."""

    offset: int
    after: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """The position of the stream in a topic."""

    generation: str
    partitions: dict[int, Place]


Places = dict[str, Standing]


def place_of(part: Topic[Any], offset: int) -> Place:
    """Make the place of an offset, with the fingerprint of the records before it.

    Args:
        part: The partition.
        offset: Not before the first kept record, and not after the end.

    Returns:
        The place; without a fingerprint if the records before it are corrupt.
    """
    try:
        crc, time_us = position_of(part, part.partitions[0], offset)
    except CorruptData:
        return Place(offset)
    return Place(offset, f"{crc:08x}.{time_us}" if (crc, time_us) != (0, 0) else "")


def is_there(part: Topic[Any], place: Place) -> bool:
    """Say whether the log still has a place, by what lies before it.

    If compaction rewrote the records before it, there is no fingerprint to compare. Compaction
    rewrites only what is on the disk, so the log cannot have lost those records.
    """
    try:
        known = position_of(part, part.partitions[0], place.offset)
    except CorruptData:
        return False
    return known == (0, 0) or place_of(part, place.offset) == place


def encode(places: Places, began: Places | None = None) -> dict[str, Any]:
    """Turn the end of a batch into the form that Spark keeps, with its beginning `began`."""
    kept: dict[str, Any] = {"version": _VERSION, "topics": _encoded(places)}
    return kept if began is None else kept | {"began": _encoded(began)}


def _encoded(places: Places) -> dict[str, Any]:
    return {
        name: {
            "generation": places[name].generation,
            "partitions": {
                str(number): {"offset": place.offset, "after": place.after}
                for number, place in sorted(places[name].partitions.items())
            },
        }
        for name in sorted(places)
    }


def beginning(kept: dict[str, Any]) -> Places | None:
    """Return where the batch that ends here began, if Spark kept that.

    Raises:
        InvalidArgument: As `decode`.
    """
    began = kept.get("began")
    return None if began is None else decode(kept | {"topics": began})


def decode(kept: dict[str, Any]) -> Places:
    """Turn the form that Spark keeps into places.

    Raises:
        InvalidArgument: It is of another source, or of an unknown version.
    """
    try:
        if kept["version"] != _VERSION:
            raise InvalidArgument(
                f"the checkpoint holds places of version {kept['version']}, and this falaj knows "
                f"version {_VERSION}: upgrade it, or start with a new checkpointLocation"
            )
        return {
            name: Standing(
                standing["generation"],
                {
                    int(number): Place(int(place["offset"]), place["after"])
                    for number, place in standing["partitions"].items()
                },
            )
            for name, standing in kept["topics"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(
            f"the checkpoint does not hold places of a falaj stream ({kept!r}): it is another "
            "source's; start with a new checkpointLocation, and startingTimestamp where it stood"
        ) from None
