"""How late an event is: from a native append to the client of a stream.

The lower bound writes the same events to a pipe, whose bytes a bare handler streams. The program
that appends also receives, so that both moments are of one clock.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import falaj
from runner.results import Measured
from runner.server import programs

if TYPE_CHECKING:
    from pathlib import Path

    from runner.server.programs import Programs
    from runner.sizes import Sizes

TOPIC = "events"


def measure(of: Programs, place: Path, sizes: Sizes) -> list[Measured]:
    """Measure in turns; the first round is thrown away."""
    found: dict[str, list[dict[str, float]]] = {"ours": [], "pipe": []}
    rate = (sizes.follow_hz, sizes.follow_s)
    store = place / "streamed"
    with (
        falaj.open(store) as opened,
        opened.topic(TOPIC, codec="str") as topic,
        programs.server(of.server, store) as ours,
    ):
        for number in range(sizes.rounds + 1):
            path = f"/v1/topics/{TOPIC}/records?from={topic.end_offset}"
            source = f"{store}#{TOPIC}"
            found["ours"].append(of.run("follow", ours.port, path, ours.token, source, *rate))
            # A stream that ended could still take what is in its pipe: each gets its own.
            fifo = place / f"fifo-{number}"
            os.mkfifo(fifo)
            with programs.bare(of.doors, fifo) as bare:
                found["pipe"].append(of.run("follow", bare.port, "/events", "", fifo, *rate))

    def late(name: str, at: str) -> list[float]:
        return [turn[f"{at}_ns"] for turn in found[name][1:]]

    return [Measured(f"stream_{at}", late("ours", at), late("pipe", at)) for at in ("p50", "p99")]
