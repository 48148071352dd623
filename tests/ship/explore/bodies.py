"""Bodies and their hashes, as small integers: equal numbers have equal bodies.

A flush is named by its claim, its number and its chain, since its shipper is the only one that can
write it. A claim has random bytes. Its name is a count among the claims that had that number.
"""

from falaj.ship.messages import Checkpoint, Number

Views = tuple[int, ...]
"""The flushes of a view, by the integers of their bodies."""

NOTHING = 0


class Bodies:
    """All bodies that an exploration met."""

    def __init__(self) -> None:
        self.numbers: list[Number] = [Number("claim", 0, 0, "", "")]
        self._before: list[int] = [NOTHING]
        self._known: dict[tuple[object, ...], int] = {}
        self._by_hash: dict[str, int] = {"": NOTHING}
        self._chains: list[Views] = [()]
        self._views: list[tuple[int, Views]] = [(0, ())]

    def claim(self, number: int, before: int, count: int) -> int:
        """Return the count-th claim with that number behind that body."""
        return self._body("claim", number, number, before, count)

    def flush(self, number: int, claim: int, before: int, token: str) -> int:
        """Return the flush that the holder of the claim writes behind that body."""
        return self._body("flush", number, claim, before, token)

    def _body(self, kind: str, number: int, claim: int, before: int, rest: object) -> int:
        key = (kind, number, claim, before, rest)
        found = self._known.get(key)
        if found is not None:
            return found
        new = len(self.numbers)
        previous = self.numbers[before].hash
        if kind == "claim":
            body = Number("claim", number, claim, previous, f"h{new}")
        else:
            body = Number("flush", number, claim, previous, f"h{new}")
        self._known[key] = new
        self._by_hash[body.hash] = new
        self.numbers.append(body)
        self._before.append(before)
        self._chains.append((*self._chains[before], new))
        force, view = self._views[before]
        if claim >= force:
            force, view = (claim, view) if kind == "claim" else (claim, (*view, new))
        self._views.append((force, view))
        return new

    def of(self, hash_: str) -> int:
        """Return the body with that hash; -1 if none landed or could land."""
        return self._by_hash.get(hash_, -1)

    def chain(self, tip: int) -> Views:
        """Return all bodies up to that one; the first has index 0."""
        return self._chains[tip]

    def force(self, tip: int) -> int:
        """Return the claim in force behind that body."""
        return self._views[tip][0]

    def view(self, tip: int) -> Views:
        """Return the flushes that are valid up to that body."""
        return self._views[tip][1]

    def valid(self, body: int) -> bool:
        """Return whether the body's claim is the one in force where it stands."""
        return self.numbers[body].claim >= self.force(self._before[body])

    def checkpoint(self, tip: int) -> Checkpoint:
        """Return the checkpoint of a place whose last body that is, if no other was made before."""
        flushes = (self.numbers[body].number for body in self.view(tip))
        ranges = tuple((number, number + 1) for number in flushes)
        body = self.numbers[tip]
        return Checkpoint(body.number, self.force(tip), body.hash, ranges)


def within(number: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    """Return whether one of the ranges has the number."""
    return any(first <= number < end for first, end in ranges)
