"""`make soak HOURS=…`: soak, and enter it into the ledger. Ends with 0 when nothing was found.

Owns what one call does around the driver: which soak it goes on with, where things lie, what a
signal means, and the row.
"""

import argparse
import datetime
import hashlib
import secrets
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

from soak import ledger
from soak.driver import NoRoom, Soak, hold
from soak.harnesses import ROOT, everything
from soak.pieces import wipe
from soak.progress import Progress, clock, line
from soak.state import State

PAGE = ROOT / "docs/RELIABILITY.md"
SOURCES = ("rust", "python", "tests", "Cargo.lock")


def git(*words: str) -> str:
    """Ask git about the sources; without git there is no answer."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def sources() -> tuple[str, str]:
    """Say what the sources are, for people and to tell them from others."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    commit = git("log", "-1", "--format=%h", "--", *SOURCES) or "no commit"
    changes = git("diff", "HEAD", "--", *SOURCES)
    mark = "+" if changes else ""
    exact = f"{commit} {hashlib.sha256(changes.encode()).hexdigest()[:16] if changes else ''}"
    return f"{version}, {commit}{mark}", exact.strip()


def which(home: Path, anew: bool, seed: int | None) -> State:
    """Go on with the soak that is there, if it is of these sources; begin another otherwise."""
    shown, exact = sources()
    state = None if anew else State.load(home / "state.json")
    if state is not None and state.source == exact and seed in (None, state.seed):
        return state
    for folder in home.iterdir():
        if folder.name not in ("found", "programs", "lock"):
            wipe(folder) if folder.is_dir() else folder.unlink()
    return State(secrets.randbelow(1_000_000_000) if seed is None else seed, shown, exact)


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--hours", type=float, required=True)
    parser.add_argument("--home", type=Path, required=True, help="what outlives a call")
    parser.add_argument("--scratch", type=Path, required=True, help="stores lie here meanwhile")
    parser.add_argument("--programs", type=Path, required=True, help="the harnesses, built")
    parser.add_argument("--anew", action="store_true", help="begin another soak in any case")
    parser.add_argument("--seed", type=int, help="of the soak; drawn otherwise")
    return parser.parse_args()


def stop(*_: object) -> None:
    """End this call in order."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # one is enough; the pieces are given time to end
    raise KeyboardInterrupt


def main() -> int:
    """Run one call."""
    told = options()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    home = told.home.resolve()
    harnesses = everything(told.programs.resolve())
    with Progress() as progress:
        lock = hold(home / "lock", progress.say)
        state = which(home, told.anew, told.seed)
        scratch = told.scratch.resolve() / f"falaj-soak-{state.seed}"
        try:
            soak = Soak(home, scratch, harnesses, state, progress.say, lock)
        except NoRoom as why:
            progress.say(f"NO ROOM: {why}; nothing was run")
            return 2
        progress.say(
            f"soak {state.seed} of {state.version}: {clock(state.left or told.hours * 3600)} to go"
            f"{f', after {clock(state.seconds)}' if state.seconds else ''}; kept in {home}"
        )
        interrupted = False
        try:
            sound = soak.run(told.hours, progress)
        except KeyboardInterrupt:
            sound, interrupted = not state.found, True
        progress.say(line(soak))
    new = ledger.row(state, soak.done(), datetime.datetime.now(datetime.UTC).date())
    page = ledger.enter(PAGE.read_text(), new)
    beside = PAGE.with_suffix(".new")
    beside.write_text(page)
    beside.replace(PAGE)
    print(f"in {PAGE.relative_to(ROOT)}:\n{new}")
    for where in state.found:
        print(f"FOUND: {where}/README.txt")
    if interrupted:
        print(f"interrupted; the same command goes on, {clock(state.left)} are left")
        return 130
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
