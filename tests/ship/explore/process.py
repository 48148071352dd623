"""A process of an exploration, and what comes of a step."""

from typing import NamedTuple

from falaj.ship.messages import GetCheckpoint, GetNumber, ListCheckpoints, Wait
from falaj.ship.protocol import Reading, Shipping
from ship.explore.bodies import Views
from ship.explore.place import Place

UNLANDED = "mine"
"""The hash of a claim that has not landed: only its sender knows it."""


class Process(NamedTuple):
    """A machine, the answer that it waits for, its view, and what it left on its way.

    A machine of None is down. `token` tells the flushes of twins apart.
    """

    machine: Reading | Shipping | None
    number: GetNumber | ListCheckpoints | Wait | None = None
    checkpoint: GetCheckpoint | None = None
    view: Views = ()
    late: bool = False  # its claim, which has not landed, may land later
    token: str = ""
    least: int = 0  # a restore must reach that number, which existed when it began


Outcome = tuple[Place, Process, str]
"""The place and the process after a step, and a description."""
