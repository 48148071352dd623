"""Hostile bytes, through Python: every answer is the true one, or a useful error.

A store is harmed in one place. A process of its own, which may crash or hang, reports all answers
of the API: records, groups, queues, and the findings of `verify`. For some harms it also appends to
a copy, reads as a group, and takes jobs. `falaj-hostile` does the same in Rust with every bit. This
test shows that nothing is lost on the way to Python.

With `--proof` it runs for a minute. `FALAJ_HOSTILE_HARMS` gives another number of harms,
`FALAJ_HOSTILE_SEED` other ones, and `FALAJ_HOSTILE_FIRST` the first one. Each harm is drawn by
itself, from the seed and its number.
"""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hostile import example, forge, harms
from hostile.asker import Asker
from hostile.harms import Harm, Place, Trust
from hostile.judge import Judge, Right

SEED = int(os.environ.get("FALAJ_HOSTILE_SEED", "20261121"))
FIRST = int(os.environ.get("FALAJ_HOSTILE_FIRST", "0"))
HARMS = os.environ.get("FALAJ_HOSTILE_HARMS")
FEW = 120
PUSH_S = 60
"""Seconds for all harms of a push."""
PATIENCE_S = 600
"""Longest time of the test: a soak's number takes two minutes on an idle machine."""
WRITES, REPAIRS = 0.4, 0.25
"""How many harmed stores are written to, and how many of these are repaired before."""

Do = Callable[[random.Random, Place], Harm]
BYTES = (harms.flip, harms.hole, harms.cut, harms.noise, harms.swap)
HONEST: tuple[Do, ...] = (
    *map(harms.of_bytes, BYTES),
    *(harms.garbage, harms.over, harms.under, harms.older),
    *(partial(how, again=False) for how in forge.FORGED),
)
FORGED: tuple[Do, ...] = tuple(partial(how, again=True) for how in forge.FORGED)
KINDS = {
    *(how.__name__ for how in (*BYTES, harms.garbage, harms.over, harms.under, harms.older)),
    *(how.__name__ + end for how in forge.FORGED for end in ("", ", forged")),
}


class Bench:
    """A valid store, its true answers, and the process that asks."""

    def __init__(self, folder: Path, kept: Path) -> None:
        self.kept = kept
        self.sound, self.earlier = folder / "sound", folder / "earlier"
        self.harmed, self.written = folder / "harmed", folder / "written"
        example.make(self.sound, self.earlier)
        self.asker = Asker()
        shutil.copytree(self.sound, self.written)
        found = self.asker.ask(self.sound, "sound", self.written)
        shutil.rmtree(self.written)
        for told in (found["read"], found["write"]):
            assert told["errors"] == told["strange"] == [], told
        self.right = Right(found["read"])
        sound = Judge(self.right, Harm("none", "", Path(), Trust.ALL), "sound", mended=False)
        assert not sound.judge(self.sound, found, self.written)

    def one(self, number: int) -> tuple[Harm, bool]:
        """Harm a copy, ask, and judge; true if an error was reported."""
        chance = random.Random(f"{SEED} {number}")
        shutil.copytree(self.sound, self.harmed)
        harm = chance.choice(FORGED if chance.random() < 0.35 else HONEST)(
            chance, Place(self.harmed, self.earlier)
        )
        write = chance.random() < WRITES
        repair = write and chance.random() < REPAIRS
        how = "mmap" if chance.random() < 0.7 else "pread"
        if write:
            shutil.copytree(self.harmed, self.written)
        story = f"seed {SEED}, harm {number}: {harm.story} ({harm.trust.name}, {how})"
        copy = self.written if write else None
        try:
            found = self.asker.ask(self.harmed, story, copy, read=how, repair=repair)
            told = Judge(self.right, harm, story, repair).judge(self.harmed, found, self.written)
        except AssertionError:
            self.asker.leave()
            # Ids and salts differ in the next run.
            shutil.copytree(self.harmed, self.kept / f"harmed-{number}")
            raise
        shutil.rmtree(self.harmed)
        shutil.rmtree(self.written, ignore_errors=True)
        return harm, told


@pytest.mark.timeout(PATIENCE_S)
def test_one_harm_anywhere_is_harmless_or_an_error_and_never_another_answer(
    place: Path, tmp_path: Path, budget: Callable[[int, int], int]
) -> None:
    bench = Bench(place, tmp_path)
    many = int(HARMS) if HARMS else budget(FEW, 0)
    end = time.monotonic() + PUSH_S
    done, detected, places = Counter[str](), Counter[str](), Counter[str]()
    number = FIRST
    while number - FIRST < many or (not many and time.monotonic() < end):
        harm, told = bench.one(number)
        number += 1
        done[harm.kind] += 1
        detected[harm.kind] += told
        places[harm.path.parts[0]] += 1
    bench.asker.end()
    print(f"{number - FIRST} harms, {detected.total()} of them reported: {dict(done)}")  # noqa: T201
    # A harness that harms nothing shows nothing.
    if number - FIRST >= FEW:
        assert detected.total() > done.total() // 10
        assert {"logs", "topics", "consumers", "queues"} <= places.keys()
    if number - FIRST >= 10 * FEW:
        assert done.keys() == KINDS
        harmless = {"outside", "outside, forged"}
        assert not [kind for kind in KINDS - harmless if not detected[kind]]
