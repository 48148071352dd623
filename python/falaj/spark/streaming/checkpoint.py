"""Where a stream stands: what Spark keeps of it in its checkpoint.

For each topic its generation, which tells a topic from another of the same name, and for each
partition an offset with a fingerprint of what lies before it, which tells a log from one that lost
its end or is an older copy. As JSON:

    {"version": 1, "topics": {"orders": {"generation": "9f3c…", "partitions":
        {"0": {"offset": 42, "after": "5d1e0c3a.1795161600000000"}}}}}

Spark compares texts to see whether there is news, so the text is a function of the place; but the
end of a query's first batch also says where that batch began, as `began`, in the same form as
`topics`. Spark keeps only ends, and asks again where a query begins whose first batch was not done:
behind "latest" there are other records by then.
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
    """An offset, and a fingerprint of what lies before it; empty where nothing does."""

    offset: int
    after: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the stream stands in a topic."""

    generation: str
    partitions: dict[int, Place]


Places = dict[str, Standing]


def place_of(part: Topic[Any], offset: int) -> Place:
    """Find out what lies before an offset.

    Args:
        part: The partition.
        offset: Not before what is kept, and not behind the end.

    Returns:
        The place; without a fingerprint where what lies before is corrupt.
    """
    try:
        crc, time_us = position_of(part, part.partitions[0], offset)
    except CorruptData:
        return Place(offset)
    return Place(offset, f"{crc:08x}.{time_us}" if (crc, time_us) != (0, 0) else "")


def is_there(part: Topic[Any], place: Place) -> bool:
    """Say whether the log still has a place, by what lies before it.

    Where compaction rewrote that there is nothing to tell it by; all of it was on the
    disk by then, so nothing of it can have been taken back.
    """
    try:
        known = position_of(part, part.partitions[0], place.offset)
    except CorruptData:
        return False
    return known == (0, 0) or place_of(part, place.offset) == place


def encode(places: Places, began: Places | None = None) -> dict[str, Any]:
    """Turn places into what Spark keeps; with where the batch began that ends there."""
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
    """Say where the batch began that ends here, if that was kept.

    Raises:
        InvalidArgument: As `decode`.
    """
    began = kept.get("began")
    return None if began is None else decode(kept | {"topics": began})


def decode(kept: dict[str, Any]) -> Places:
    """Turn what Spark kept into places.

    Raises:
        InvalidArgument: It is not of this source, or of a version that is not known.
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
