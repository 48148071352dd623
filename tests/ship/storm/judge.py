"""The judgement of a round: each number is restored, and compared with the account.

Owns what must be true of a place after a storm:

- An acknowledged number lies there as it was acknowledged, and no claim made it void.
- Each valid number restores to the ends that its cut had, and each record says its own offset.
- When an append with `sync="remote"` returned, a flush with its record lay there.
- The newest number has all that the store has.
- Each state that a reader told is that of its number. Each end that a follower told was cut, and
  is not before the number that it had.
- Nothing that a number needs is missing or corrupt, and no directory of a killed restore is left.
- The cache holds nothing of dead readers once one has begun after them, and keeps its bound.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import falaj
from falaj.ship.origin import Origin, origins_of
from falaj.ship.place import open_place
from falaj.ship.shapes import Claim, Flush
from falaj.ship.verify import verify_place
from ship.storm.account import TOPICS, Account, Ends, read
from ship.storm.actors import ends_of, remove, whole_or_absent
from ship.storm.readers import CACHE_BYTES, ends_seen, expect_bounded


def judge(base: Path, chance: random.Random, most: int) -> None:
    """Judge a round; it tells how many numbers it restored in the file `judged`.

    Args:
        base: The directory of the round; no process works there any more.
        chance: Chooses the numbers, where there are more than `most`.
        most: Numbers that are restored.
    """
    account = read(base / "account")
    whole_or_absent(base)
    with falaj.open(base / "store") as store:
        if not store.topics:
            return
        store.ship(base / "place", once=True)
    place = open_place(base / "place")
    (found,) = origins_of(place)
    origin = Origin(place, found.store, found.origin)
    floor = _floor(origin)
    wanted, landed, states = dict[int, Ends](), set[str](), States()
    for body in _bodies(origin, account):
        states.add(body, account)
        if isinstance(body, Claim):
            continue
        landed.add(body.hash)
        if body.number >= floor and body.hash in account.drafted:  # not the one just shipped
            wanted[body.number] = account.drafted[body.hash]
    assert floor or account.too_early(landed) == []
    states.expect_true(account, floor)
    numbers = sorted(wanted)
    if len(numbers) > most:
        numbers = sorted(chance.sample(numbers, most))
    for number in numbers:
        assert _restored(base, number) == wanted[number], (
            f"number {number} restores to other ends than {wanted[number]}"
        )
    assert _restored(base, None) == ends_of(base / "store")
    assert verify_place(place)[0].findings == []
    _read_once_more(base)
    left = [path.name for path in base.iterdir() if path.name.startswith("copy")]
    assert left == []
    (base / "judged").write_text(str(len(numbers) + 1))


def _floor(origin: Origin) -> int:
    """Return the number from which on all can be restored: a kill may leave older ones in part."""
    listed = origin.checkpoints()
    newest = int(listed[-1].key[2:]) if listed else 0
    if _has_all(origin, newest):
        return 0
    outline = origin.outline(newest)
    assert outline is not None
    return outline.before


def _has_all(origin: Origin, until: int) -> bool:
    there = {int(each.key[2:]) for each in origin.list_after("n")}
    return there.issuperset(range(1, until + 1))


class States:
    """The states that the numbers still there made of the store, for those who read it."""

    def __init__(self) -> None:
        self._ends: dict[int, tuple[str, Ends | None]] = {}
        self._now: Ends | None = None

    def add(self, body: Claim | Flush, account: Account) -> None:
        """Take the next valid number; a claim changes nothing."""
        if isinstance(body, Flush):
            self._now = account.drafted.get(body.hash)
        self._ends[body.number] = body.hash, self._now

    def expect_true(self, account: Account, floor: int) -> None:
        """Check all that readers told, as far as the numbers are still there."""
        drafted = set(account.drafted.values())
        for number, hash_, seen in account.saw:
            known, ends = self._ends.get(number, (hash_, None))
            assert known == hash_, f"a reader had another body of number {number}"
            assert seen in drafted, f"a reader had {seen} at {number}, which was never cut"
            assert number < floor or ends in (None, seen), f"{seen} at {number}, not {ends}"
        for number, which, end in account.followed:
            assert end == 0 or end in {each[which] for each in drafted}, (number, which, end)
            least = self._ends.get(number, ("", None))[1] if number >= floor else None
            assert least is None or least[which] <= end, (number, TOPICS[which], end, least)


def _read_once_more(base: Path) -> None:
    """Read the newest through the cache, which has nothing of the dead and keeps its bound."""
    cache = base / "cache"
    with falaj.open_place(base / "place", cache=cache, cache_bytes=CACHE_BYTES) as reader:
        expect_bounded(cache)
        assert sum(each.is_dir() for each in (cache / "views").iterdir()) == 1
        assert ends_seen(reader) == ends_of(base / "store")
        expect_bounded(cache)
    assert [each.name for each in (cache / "views").iterdir()] == ["lock"]


def _bodies(origin: Origin, account: Account) -> Iterator[Claim | Flush]:
    """Yield claims, and flushes that none made void; each that was acknowledged is one of them."""
    claim = 0
    for each in origin.list_after("n"):
        found = origin.number(int(each.key[2:]))
        assert found is not None
        body = found[0]
        if not isinstance(body, Flush):
            claim = body.number
            yield body
            continue
        known, is_void = account.acknowledged.get(body.number), body.claim < claim
        assert known in (None, body.hash), f"number {body.number} is not what was acknowledged"
        assert known is None or not is_void, f"number {body.number} was acknowledged, and is void"
        if not is_void:
            yield body


def _restored(base: Path, number: int | None) -> Ends:
    to = base / "copy"
    falaj.restore(base / "place", to, to_number=number)
    ends = ends_of(to)
    remove(to)
    return ends
