"""`startingOffsets` and `endingOffsets`: where in each partition a read begins and ends.

As in Spark's Kafka source: `earliest`, `latest`, or JSON `{"topic": {"0": 42, "1": -2}}`, where -2
stands for earliest and -1 for latest and every partition has to be named. A batch can't begin at
latest or end at earliest: it would always be empty, which nobody means.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from falaj.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Bound", "parse"]

Option = Literal["startingOffsets", "endingOffsets"]

_EARLIEST, _LATEST = -2, -1
_KEYWORDS = {"earliest": _EARLIEST, "latest": _LATEST}
# What each option must not say, because the read would be empty whatever the log holds.
_SENSELESS = {"startingOffsets": _LATEST, "endingOffsets": _EARLIEST}


@dataclass(frozen=True, slots=True)
class Bound:
    """One of the two options, parsed.

    Attributes:
        option: Its name, for messages.
        default: What holds for every partition, or None where each is named.
        named: Offset by topic and partition, -2 for earliest, -1 for latest.
    """

    option: Option
    default: int | None
    named: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def check(self, topic: str, partitions: Sequence[int]) -> None:
        """Refuse JSON that does not fit the partitions which the topic has.

        Raises:
            Invalid: It names one that is not there, or leaves one out.
        """
        if self.default is not None:
            return
        named = self.named[topic]
        for partition in sorted(named.keys() - set(partitions)):
            raise Invalid(
                f"option {self.option} names partition {partition} of topic {topic}, which has "
                f"{_counted(partitions)}"
            )
        for partition in sorted(set(partitions) - named.keys()):
            raise Invalid(
                f"option {self.option} must name every partition, and partition {partition} of "
                f'topic {topic} is missing: add "{partition}": -2 for earliest or -1 for latest'
            )

    def resolve(self, topic: str, partition: int, first: int, end: int) -> int:
        """Turn it into an offset of a partition that holds [first, end).

        Raises:
            Invalid: The offset is not there.
        """
        wanted = self.default if self.default is not None else self.named[topic][partition]
        if wanted == _EARLIEST:
            return first
        if wanted == _LATEST:
            return end
        if not first <= wanted <= end:
            why = "is gone" if wanted < first else "is not written yet"
            raise Invalid(
                f"option {self.option} says {wanted} for topic {topic}, partition {partition}, "
                f"which {why}: it holds {first} to {end}, end excluded; choose one of these, "
                "or earliest and latest"
            )
        return wanted


def parse(option: Option, text: str, topics: Sequence[str]) -> Bound:
    """Read one of the two options.

    Args:
        option: Its name.
        text: What the user gave.
        topics: The topics that are subscribed to.

    Returns:
        Where partitions begin or end.

    Raises:
        Invalid: It is not one of the three forms, or does not fit the topics.
    """
    keyword = _KEYWORDS.get(text.strip().lower())
    if keyword is not None:
        _refuse_senseless(option, keyword, "")
        return Bound(option, keyword)
    named = {
        topic: {
            _partition(option, number): _offset(option, topic, number, offset)
            for number, offset in partitions.items()
        }
        for topic, partitions in _json(option, text).items()
    }
    for topic in sorted(named.keys() - set(topics)):
        raise Invalid(f"option {option} names topic {topic}, which subscribe does not")
    for topic in topics:
        if topic not in named:
            raise Invalid(f"option {option} must name every topic, and {topic} is missing")
    return Bound(option, None, named)


def _json(option: Option, text: str) -> dict[str, dict[str, object]]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not all(isinstance(p, dict) for p in document.values()):
        raise Invalid(
            f"option {option} is earliest, latest or JSON such as "
            f'{{"orders": {{"0": 42, "1": -2}}}}, not {text!r}'
        )
    return document


def _partition(option: Option, number: str) -> int:
    if not (number.isascii() and number.isdecimal()):
        raise Invalid(f"option {option} names partition {number!r}: it is a number, from 0")
    return int(number)


def _offset(option: Option, topic: str, number: str, offset: object) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < _EARLIEST:
        raise Invalid(
            f"option {option} says {offset!r} for topic {topic}, partition {number}: an offset is "
            "a number from 0, -2 for earliest, -1 for latest"
        )
    _refuse_senseless(option, offset, f" for topic {topic}, partition {number}")
    return offset


def _refuse_senseless(option: Option, offset: int, where: str) -> None:
    if offset == _SENSELESS[option]:
        word = "latest" if offset == _LATEST else "earliest"
        verb = "begins" if option == "startingOffsets" else "ends"
        raise Invalid(
            f"option {option} is {word}{where}, but a batch that {verb} there is always empty"
        )


def _counted(partitions: Sequence[int]) -> str:
    last = len(partitions) - 1
    return f"partitions 0 to {last}" if last else "partition 0 only"
