"""The account of a round: lines that processes told outside, in one file beside the store.

Owns what these lines say. Each is one write at the end of the file, so a kill loses none that was
written. *Drafted* stands before the create of a number, with the ends of its cut. So a number
has its line, whether its writer lived to hear of it or not.
"""

from dataclasses import dataclass, field
from pathlib import Path

from notes import read_notes

TOPICS = ("one", "two", "three", "latest")
Ends = tuple[int, ...]


@dataclass
class Account:
    """The lines of a round, by their kind.

    Attributes:
        drafted: The ends of the cut of each flush that was sent, by the hash of its body.
        acknowledged: The hash of each number that was acknowledged.
        remote: For each topic the offset up to which appends returned from the place.
        saw: Each state that a reader had whole: number, hash, ends.
        followed: Each end that a follower had: the number before, which topic, the end.
        returned: Each of these returns: topic, offset, and how many flushes were drafted before.
    """

    drafted: dict[str, Ends] = field(default_factory=dict)
    acknowledged: dict[int, str] = field(default_factory=dict)
    remote: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    returned: list[tuple[str, int, int]] = field(default_factory=list)
    saw: list[tuple[int, str, Ends]] = field(default_factory=list)
    followed: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def seen(self) -> int:
        """The highest number that a reader had."""
        told = [each[0] for each in self.saw] + [each[0] for each in self.followed]
        return max(told, default=0)

    def too_early(self, landed: set[str]) -> list[tuple[str, int]]:
        """List appends that returned before a flush with them lay in the place."""
        drafts = list(self.drafted.items())
        found, most, at = [], (0,) * len(TOPICS), 0
        for name, end, count in self.returned:
            for hash_, ends in drafts[at:count]:
                if hash_ in landed:
                    most = tuple(map(max, most, ends))
            at = count
            if most[TOPICS.index(name)] < end:
                found.append((name, end))
        return found


def read(path: Path) -> Account:
    """Read all lines."""
    found = Account()
    for what, *words in read_notes(path):
        if what == "drafted":
            found.drafted[words[0]] = tuple(map(int, words[1:]))
        elif what == "acknowledged":
            known = found.acknowledged.setdefault(int(words[0]), words[1])
            assert known == words[1], f"number {words[0]} was acknowledged for two bodies"
        elif what == "remote":
            found.remote[words[0]] = max(found.remote[words[0]], int(words[1]))
            found.returned.append((words[0], int(words[1]), len(found.drafted)))
        elif what == "saw":
            found.saw.append((int(words[0]), words[1], tuple(map(int, words[2:]))))
        elif what == "followed":
            number, which, end = map(int, words)
            found.followed.append((number, which, end))
    return found
