"""Mistakes that are planted in the machines, to see that the explorer finds each of them."""

from dataclasses import replace
from typing import Self

from falaj.ship.messages import Action, Delete, Number, Ranges
from falaj.ship.protocol import Reading, Sent, Shipping, Stage


class NoSecondLook(Reading):
    """Believes a claim without a look for a newer checkpoint."""

    __slots__ = ()

    def _asks_for_a_look(self, found: Number) -> bool:
        return False


class NoChain(Reading):
    """Compares no hash of the number before."""

    __slots__ = ()

    def _follows(self, found: Number) -> bool:
        return True


class NeverStartsOver(Reading):
    """Looks, and goes on whatever it saw."""

    __slots__ = ()

    def _starts_over(self, newest: int) -> bool:
        return False


class NoLastLook(Reading):
    """Ends a restore where no number follows, without a look for a newer checkpoint."""

    __slots__ = ()

    def _nothing_follows(self) -> tuple[Self, tuple[Action, ...]]:
        return self._end()


class Believes409(Shipping):
    """Counts every answer to a create as success, as a client that retries by itself makes it."""

    __slots__ = ()

    def _answered(self, sent_hash: str, created: bool) -> tuple[Self, tuple[Action, ...]]:
        return Shipping._answered(self, sent_hash, True)


class MineByClaim(Shipping):
    """Counts every number of its claim as its own, whatever the hash of its body."""

    __slots__ = ()

    def _is_mine(self, found: Number, sent: Sent) -> bool:
        return found.claim == sent.head.claim


class DeletesEarly(Shipping):
    """Deletes garbage when it sends the checkpoint, and not when the place has it."""

    __slots__ = ()

    def _make_checkpoint(self) -> tuple[Self, tuple[Action, ...]]:
        machine, actions = Shipping._make_checkpoint(self)
        return machine, (*actions, *(Delete(self.reading.garbage) for _ in actions))


class DeletesClaims(Shipping):
    """Lists claims as garbage too."""

    __slots__ = ()

    def _garbage(self) -> Ranges:
        return ((self.stored + 1, self.reading.at + 1),)


class Continues(Shipping):
    """Goes on after losing a number to a twin, as if the twin's were void."""

    __slots__ = ()

    def _lost(self, found: Number, sent: Sent) -> tuple[Self, tuple[Action, ...]]:
        if found.kind == "flush" and found.claim == sent.head.claim:
            reading, _ = self.reading.take(replace(found, claim=0))
            going_on = replace(self, reading=reading, sent=None, stage=Stage.HOLDING)
            return going_on._send("flush", sent.token)
        return Shipping._lost(self, found, sent)
