"""Where a read begins and ends in each partition: by offset or by time.

The options are those of Spark's Kafka source. `startingOffsets` and `endingOffsets` are `earliest`,
`latest`, or JSON: `{"topic": {"0": 42, "1": -2}}`. There -2 stands for earliest and -1 for latest,
and every partition must be named. `…Timestamp` is one time for all partitions;
`…OffsetsByTimestamp` is JSON with a time for each. If several are given, `…Timestamp` counts first,
then `…OffsetsByTimestamp`, then `…Offsets`. A batch cannot begin at latest or end at earliest: it
would always be empty.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from falaj import _time
from falaj.errors import InvalidArgument
from falaj.spark.reading.loss import Loss, out_of_range

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from falaj import Topic

__all__ = ["Bound", "ending", "starting"]

_EARLIEST, _LATEST = -2, -1
_KEYWORDS = {"earliest": _EARLIEST, "latest": _LATEST}
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Bound:
    """The beginning or the end of a read in each partition.

    Attributes:
        option: The option that sets it, for messages.
        default: The bound of every partition; None if each is named.
        named: Offsets or times by topic and partition; -2 is earliest, -1 is latest.
        by_time: Whether these are times, in nanoseconds since 1970, and not offsets.
        lenient: Whether a time after all records stands for the end; otherwise it is an error.
    """

    option: str
    default: int | None
    named: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    by_time: bool = False
    lenient: bool = True

    def expect_topics(self, topics: Sequence[str]) -> None:
        """Refuse JSON that does not fit the topics that are read.

        Raises:
            InvalidArgument: It names one that is not read, or leaves one out.
        """
        if self.default is not None:
            return
        for topic in sorted(self.named.keys() - set(topics)):
            raise InvalidArgument(
                f"option {self.option} names topic {topic}, which subscribe does not"
            )
        for topic in topics:
            if topic not in self.named:
                raise InvalidArgument(
                    f"option {self.option} must name every topic, and {topic} is missing"
                )

    def expect_partitions(self, topic: str, partitions: Sequence[int]) -> None:
        """Refuse JSON that does not fit the partitions which the topic has.

        Raises:
            InvalidArgument: It names one that is not there, or leaves one out.
        """
        if self.default is not None:
            return
        named = self.named[topic]
        for partition in sorted(named.keys() - set(partitions)):
            raise InvalidArgument(
                f"option {self.option} names partition {partition} of topic {topic}, which has "
                f"{_counted(partitions)}"
            )
        example = "its time" if self.by_time else "-2 for earliest or -1 for latest"
        for partition in sorted(set(partitions) - named.keys()):
            raise InvalidArgument(
                f"option {self.option} must name every partition, and partition {partition} of "
                f'topic {topic} is missing: add "{partition}": {example}'
            )

    def resolve(self, part: Topic[Any], first: int, end: int, loss: Loss) -> int:
        """Turn the bound into an offset of a partition with the offsets [first, end).

        Args:
            part: The partition.
            first: Its first offset.
            end: Its end.
            loss: Decides what to do if the offset does not exist.

        Raises:
            InvalidArgument: All records are older than the time.
            OffsetOutOfRange: The offset does not exist, and `loss` makes that an error.
        """
        partition = part.partitions[0]
        wanted = self.default if self.default is not None else self.named[part.name][partition]
        if self.by_time:
            return self._resolve_time(part, wanted, end)
        if wanted == _EARLIEST:
            return first
        if wanted == _LATEST:
            return end
        if not first <= wanted <= end:
            why = "is gone" if wanted < first else "is not written yet"
            loss.meet(
                out_of_range(
                    f"option {self.option} says {wanted} for topic {part.name}, partition "
                    f"{partition}, which {why}: it holds {first} to {end}, end excluded",
                    part,
                    wanted,
                    first,
                    end,
                )
            )
        return min(max(wanted, first), end)

    def _resolve_time(self, part: Topic[Any], ns: int, end: int) -> int:
        found = part.offset_at(time_ns=ns)
        if found is not None and found < end:
            return found
        if self.lenient:
            return end
        raise InvalidArgument(
            f"option {self.option} says {_time.from_ns(ns).isoformat()}, and topic {part.name}, "
            f"partition {part.partitions[0]}, has no record of then or later: give an earlier time,"
            " or .option('startingOffsetsByTimestampStrategy', 'latest') to begin at its end"
        )


def starting(options: Mapping[str, str], kind: str | None) -> Bound:
    """Read where partitions begin.

    Args:
        options: All options, names in lower case.
        kind: "batch" or "stream"; None if that is not known yet.

    Raises:
        InvalidArgument: It is none of the forms.
    """
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise InvalidArgument(
            f"option startingOffsetsByTimestampStrategy is error or latest, not {strategy!r}"
        )
    senseless = _LATEST if kind == "batch" else None
    default = "latest" if kind == "stream" else "earliest"
    return _bound(options, "starting", default, senseless, lenient=strategy == "latest")


def ending(options: Mapping[str, str]) -> Bound:
    """Read where partitions end.

    Raises:
        InvalidArgument: It is none of the forms.
    """
    return _bound(options, "ending", "latest", _EARLIEST, lenient=True)


def _bound(
    options: Mapping[str, str], which: str, default: str, senseless: int | None, *, lenient: bool
) -> Bound:
    """Parse the first of the three options that is given."""
    name = f"{which}Timestamp"
    if (text := options.get(name.lower())) is not None:
        return Bound(name, _read_time(name, text.strip()), {}, by_time=True, lenient=lenient)
    name = f"{which}OffsetsByTimestamp"
    if (text := options.get(name.lower())) is not None:
        named = _named(name, text, '{"orders": {"0": 1795161600000}}', _read_time)
        return Bound(name, None, named, by_time=True, lenient=lenient)
    name = f"{which}Offsets"
    text = options.get(name.lower(), default)
    keyword = _KEYWORDS.get(text.strip().lower())
    if keyword is not None:
        _refuse_senseless(name, keyword, senseless)
        return Bound(name, keyword)

    def offset(option: str, given: object) -> int:
        found = _offset(option, given)
        _refuse_senseless(option, found, senseless)
        return found

    example = 'earliest, latest or JSON such as {"orders": {"0": 42, "1": -2}}'
    return Bound(name, None, _named(name, text, example, offset))


def _named(
    option: str, text: str, example: str, read: Callable[[str, Any], int]
) -> dict[str, dict[int, int]]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not all(isinstance(p, dict) for p in document.values()):
        raise InvalidArgument(f"option {option} is {example}, not {text!r}")
    named: dict[str, dict[int, int]] = {}
    for topic, partitions in document.items():
        named[topic] = {}
        for number, given in partitions.items():
            partition = _partition(option, number)
            try:
                named[topic][partition] = read(option, given)
            except InvalidArgument as error:
                raise InvalidArgument(f"{error} (topic {topic}, partition {number})") from None
    return named


def _partition(option: str, number: str) -> int:
    if not (number.isascii() and number.isdecimal()):
        raise InvalidArgument(f"option {option} names partition {number!r}: it is a number, from 0")
    return int(number)


def _offset(option: str, offset: object) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < _EARLIEST:
        raise InvalidArgument(
            f"option {option} says {offset!r}: an offset is a number from 0, -2 for earliest, "
            "-1 for latest"
        )
    return offset


def _read_time(option: str, given: object) -> int:
    """Parse milliseconds since 1970, as Kafka's source has them, or an ISO time."""
    try:
        if isinstance(given, str) and given.isascii() and given.isdecimal():
            given = int(given)
        if isinstance(given, int) and not isinstance(given, bool):
            return _time.expect_ns(given * _NS_PER_MS)
        if isinstance(given, str):
            return _time.to_ns(given)
    except InvalidArgument as error:
        instead = "; or give milliseconds since 1970" if isinstance(given, str) else ""
        raise InvalidArgument(f"option {option}: {error}{instead}") from None
    raise InvalidArgument(f"option {option} says {given!r}: a time is milliseconds since 1970")


def _refuse_senseless(option: str, offset: int, senseless: int | None) -> None:
    if offset == senseless:
        word = "latest" if offset == _LATEST else "earliest"
        verb = "begins" if option.startswith("starting") else "ends"
        raise InvalidArgument(
            f"option {option} is {word}, but a batch that {verb} there is always empty"
        )


def _counted(partitions: Sequence[int]) -> str:
    last = len(partitions) - 1
    return f"partitions 0 to {last}" if last else "partition 0 only"
