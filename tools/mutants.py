#!/usr/bin/env python3
"""Change the code of some modules a little, again and again, and look whether a test notices.

Owns: which mutants are tried when, and what is known of each, in tests/mutants, a file for each
module. Four things identify a mutant: its file, its change, its number among the equal changes of
its function, and that function's text. The file keeps a mark of these. Invariant: a mutant that was
killed is not tried again while its function is the same, wherever that stands. A survivor is tried
again, and so is one that took too long, if that is asked for. So a run that was interrupted goes
on, also after a commit or in another clone. A run after new tests were written tries what they are
for. See docs/RELIABILITY.md, "Coverage and mutants".

`--sample` tries a sample of the other modules, and `--seed` chooses it. It is drawn by places,
so a change of one function changes no other place's luck.

Usage: mutants.py [--sample [N] [--seed S]] [--shard K/N] [--room NAME]... [--from-round R]
       [--too-long] [--summary]
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rooms import ROOMS, ROOT, SAMPLE, SAMPLED, SEED, Room, install

# A test hangs when it takes this long: in seconds, and in multiples of what it takes where nothing
# is changed. A busy machine must not look like that.
TEST_SECONDS = 30
TEST_TIMES = 8
BUILD_SECONDS = 1200
INTERRUPTED = 128 + 2  # as a shell says it of a program that ended at Ctrl-C
# Exit codes of cargo-mutants: all killed, some survived, some took too long.
FOUND_SOMETHING = {0, 2, 3}


LEDGER = ROOT / "tests" / "mutants"
HEAD = """\
# Verdicts on the changes to the module {room}, for tools/mutants.py, which writes this file:
# marks of changes, and whether a test failed ("caught"), none did ("missed"), the tests took too
# long ("timeout") or it did not compile ("unviable"). docs/RELIABILITY.md has the counts.
"""


def default_state() -> Path:
    """Name the directory where what cargo-mutants builds and says is kept between runs."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "falaj-mutants"


def shard_of(text: str) -> tuple[int, int]:
    """Read "K/N", K from 0."""
    part, whole = (int(number) for number in text.split("/"))
    if not 0 <= part < whole:
        what = f"{text}: shards of {whole} are 0/{whole} to {whole - 1}/{whole}"
        raise argparse.ArgumentTypeError(what)
    return part, whole


def cargo(paths: Iterable[str], *arguments: str) -> list[str]:
    """Name a command of cargo-mutants about some files."""
    files = (part for path in sorted(set(paths)) for part in ("--file", path))
    return ["cargo", "mutants", "--package", "falaj", "--colors", "never", *files, *arguments]


@dataclass(frozen=True)
class Mutant:
    """A change of one function."""

    name: str
    """The name that cargo-mutants gives it: with line and column."""
    path: str
    key: str
    """The text that identifies it."""
    lot: int
    """Decides in which shards it is: the same while its function has its name."""

    def ticket(self, seed: int) -> str:
        """Give what a sample is drawn by: the same while its function has its name."""
        place = self.key.rpartition(", ")[0]
        return hashlib.sha256(f"{seed} {place}".encode()).hexdigest()

    @property
    def mark(self) -> str:
        """Give the short form of the key that the ledger has."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:12]


def all_of(room: Room) -> list[Mutant]:
    """List all mutants of a module, as the code is now."""
    command = cargo(room.paths(), "--list", "--json")
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return named(json.loads(listed), read)


def read(file: str) -> str:
    """Read a file that is named from the root."""
    return (ROOT / file).read_text()


def named(listed: list[dict[str, Any]], text_of: Callable[[str], str]) -> list[Mutant]:
    """Say by what each of the mutants that cargo-mutants lists is known."""
    found = []
    before: Counter[tuple[str, str, str]] = Counter()
    for mutant in listed:
        where, whole = mutant["file"], mutant["name"]
        what = whole.removeprefix(f"{where}:").partition(": ")[2]
        span = (mutant.get("function") or mutant)["span"]
        lines = text_of(where).splitlines()[span["start"]["line"] - 1 : span["end"]["line"]]
        # Comments and how it is laid out decide nothing.
        words = [word for line in lines if line.strip()[:2] != "//" for word in line.split()]
        print_ = hashlib.sha256(" ".join(words).encode()).hexdigest()[:12]
        number = before[what, where, print_]
        before[what, where, print_] += 1
        place = f"{where}: {what}, {number}"
        found.append(Mutant(whole, where, f"{place}, {print_}", zlib.crc32(place.encode())))
    return found


Chosen = dict[str, list[Mutant]]
"""The mutants of each module that are tried."""


def sample(of_rooms: Chosen, many: int, seed: int) -> Chosen:
    """Draw some of all mutants of some modules."""
    tickets = sorted(m.ticket(seed) for mutants in of_rooms.values() for m in mutants)
    last = tickets[min(many, len(tickets)) - 1] if many and tickets else ""
    return {
        name: [mutant for mutant in mutants if mutant.ticket(seed) <= last]
        for name, mutants in of_rooms.items()
    }


def diff_of(mutants: list[Mutant], text_of: Callable[[str], str]) -> str:
    """Write a diff that touches only the first line of each mutant.

    cargo-mutants tries every change of the kind "delete field" in a file, whatever its other
    options name. Only a diff leaves them out.
    """
    places: dict[str, set[int]] = {}
    for mutant in mutants:
        places.setdefault(mutant.path, set()).add(int(mutant.name.split(":", 2)[1]))
    found = []
    for path, numbers in sorted(places.items()):
        lines = text_of(path).splitlines()
        found += [f"--- a/{path}", f"+++ b/{path}"]
        for before, number in enumerate(sorted(numbers)):
            found += [f"@@ -{number - 1 - before},0 +{number},1 @@", f"+{lines[number - 1]}"]
    return "".join(f"{line}\n" for line in found)


class Verdicts:
    """The verdicts on a module's mutants: caught, timeout, unviable or missed."""

    def __init__(self, directory: Path, file: Path) -> None:
        self.directory = directory
        self.file = file
        # The marks of the names in the run before this one, or in this one.
        self.names = directory / "names.json"
        directory.mkdir(parents=True, exist_ok=True)
        lines = file.read_text().splitlines() if file.exists() else []
        told = (line.partition(" ") for line in lines if not line.startswith("#"))
        self.known = {mark: verdict for mark, _, verdict in told}
        self.collect()

    def of(self, mutant: Mutant) -> str:
        """Give the verdict on a mutant."""
        return self.known.get(mutant.mark, "not run")

    def begin(self, chosen: list[Mutant]) -> None:
        """Note what is about to be tried: when the names are read, the code may be another."""
        aside = self.names.with_suffix(".new")
        aside.write_text(json.dumps({mutant.name: mutant.mark for mutant in chosen}))
        # The files there were taken in, and are of other names.
        shutil.rmtree(self.directory / "mutants.out", ignore_errors=True)
        aside.replace(self.names)

    def collect(self, *, last_round: bool = False) -> None:
        """Take in what cargo-mutants wrote down, also before it was interrupted."""
        marks: dict[str, str] = json.loads(self.names.read_text()) if self.names.exists() else {}
        before = dict(self.known)
        for verdict in ("caught", "timeout", "unviable", "missed"):
            path = self.directory / "mutants.out" / f"{verdict}.txt"
            lines = path.read_text().splitlines() if path.exists() else []
            tried = [marks[name] for name in lines if name in marks]
            # A mutant that survived an early round has yet to meet the next.
            if verdict != "missed" or last_round:
                # A mutant that one round killed may hang another.
                new = (mark for mark in tried if self.known.get(mark) != "caught")
                self.known |= dict.fromkeys(new, verdict)
        if self.known != before:
            self.write()

    def forget_all_but(self, mutants: list[Mutant]) -> None:
        """Leave out what no function has any more."""
        there = {mutant.mark for mutant in mutants}
        kept = {mark: verdict for mark, verdict in self.known.items() if mark in there}
        if kept != self.known:
            self.known = kept
            self.write()

    def write(self) -> None:
        """Write down what is known."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"{mark} {verdict}\n" for mark, verdict in sorted(self.known.items()))
        aside = self.file.with_suffix(".new")
        aside.write_text(HEAD.format(room=self.file.stem) + "".join(lines))
        aside.replace(self.file)

    def to_try(self, mutants: list[Mutant], *, too_long: bool) -> list[Mutant]:
        """List those without a good verdict; one that took too long only if that is asked."""
        done = {"caught", "unviable"} if too_long else {"caught", "unviable", "timeout"}
        return [m for m in mutants if self.of(m) not in done]


def run(
    name: str, room: Room, given: argparse.Namespace, state: Path, mutants: list[Mutant]
) -> int:
    """Try a shard of a module, in rounds from the first that is asked for on."""
    (part, whole), first = given.shard, given.from_round
    verdicts = Verdicts(state / name, LEDGER / f"{name}.txt")
    verdicts.forget_all_but(mutants)
    mutants = [mutant for mutant in mutants if mutant.lot % whole == part]
    # Dependencies are built once for all shards; modules may run beside each other.
    environment = os.environ | {"CARGO_TARGET_DIR": str(state / "target" / name)}
    for number, tests in list(enumerate(room.rounds, 1))[first - 1 :]:
        chosen = verdicts.to_try(mutants, too_long=given.too_long)
        print(f"{name}: shard {part} of {whole}, round {number}: {len(chosen)}", flush=True)
        if not chosen:
            continue
        verdicts.begin(chosen)
        targets, _, only = tests.partition(":")
        lines = verdicts.directory / "lines.diff"
        lines.write_text(diff_of(chosen, read))
        command = cargo((mutant.path for mutant in chosen), "--no-shuffle", "--jobs", "1")
        command += ["--in-diff", str(lines)]
        # The tree is copied in each round: without what is built in it.
        command += ["--output", str(verdicts.directory), "--gitignore=true"]
        command += ["--minimum-test-timeout", str(TEST_SECONDS)]
        command += ["--timeout-multiplier", str(TEST_TIMES), "--build-timeout", str(BUILD_SECONDS)]
        command += [f"--re=^{re.escape(mutant.name)}$" for mutant in chosen]
        # Said to every cargo command, so that nothing else is built.
        for target in targets.split():
            command.append("--cargo-arg=" + ("--lib" if target == "lib" else f"--test={target}"))
        # The arguments of the test programs come after the second.
        command += ["--", "--", *only.split()]
        try:
            code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        finally:
            verdicts.collect(last_round=number == len(room.rounds))
        if code not in FOUND_SOMETHING:
            return code
    return 0


def summarize(state: Path, chosen: Chosen) -> None:
    """Print the verdicts on each module's mutants, and those that no test is known to kill."""
    # One that took too long may have met a busy machine: it is no kill until a person has looked.
    columns = ("mutants", "killed", "too long", "survived", "no build", "not run")
    print(f"{'room':<10}" + "".join(f"{column:>10}" for column in columns))
    survivors: list[str] = []
    for name, mutants in chosen.items():
        verdicts = Verdicts(state / name, LEDGER / f"{name}.txt")
        by = Counter(verdicts.of(mutant) for mutant in mutants)
        kinds = ("caught", "timeout", "missed", "unviable", "not run")
        counts = (len(mutants), *(by[kind] for kind in kinds))
        print(f"{name:<10}" + "".join(f"{count:>10}" for count in counts))
        alive = (m for m in mutants if verdicts.of(m) in {"missed", "timeout"})
        survivors += (f"{verdicts.of(mutant)}: {mutant.name}" for mutant in alive)
    for survivor in survivors:
        print(survivor)


def main() -> int:
    """Try what was asked for, then say what is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", type=shard_of, default=(0, 1), metavar="K/N")
    parser.add_argument("--room", action="append", choices=[*ROOMS, *SAMPLED])
    parser.add_argument("--sample", type=int, nargs="?", const=SAMPLE, metavar="N")
    parser.add_argument("--seed", type=int, default=SEED, help="which sample")
    # Survivors of the rounds before are not noted: a person who interrupted a run knows its round.
    parser.add_argument("--from-round", type=int, default=1, metavar="R")
    # Most of these loop without an end, and each costs half a minute in every round.
    parser.add_argument("--too-long", action="store_true", help="try those again that took so")
    parser.add_argument("--state", type=Path, default=default_state())
    parser.add_argument("--summary", action="store_true", help="try nothing")
    given = parser.parse_args()
    install("cargo-mutants")
    rooms = ROOMS if given.sample is None else SAMPLED
    # A sample is drawn from all its modules, whichever are tried now.
    chosen = {name: all_of(room) for name, room in rooms.items()}
    if given.sample is not None:
        chosen = sample(chosen, given.sample, given.seed)
    chosen = {name: found for name, found in chosen.items() if not given.room or name in given.room}
    state = given.state.resolve()
    if not given.summary:
        for name, mutants in chosen.items():
            try:
                code = run(name, rooms[name], given, state, mutants)
            except KeyboardInterrupt:
                print(f"{name}: interrupted; the same command resumes here", file=sys.stderr)
                return INTERRUPTED
            if code:
                print(f"{name}: cargo-mutants ended with {code}", file=sys.stderr)
                return code
    summarize(state, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
