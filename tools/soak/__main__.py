"""`make soak HOURS=…`: soak, and enter it into the ledger. Ends with 0 if nothing was found.

Owns a call around the driver: which soak it resumes, where files are, what a signal means, and the
row.
"""

import argparse
import datetime
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from soak import ledger, sketch, sources
from soak.counts import READERS, done_in, kept_in, sketches
from soak.driver import NoRoom, Soak, hold
from soak.harnesses import ROOT, everything
from soak.pieces import wipe
from soak.progress import Progress, clock, line
from soak.state import State, put

PAGE = "docs/RELIABILITY.md"
SKETCH = "tools/soak/states.txt"


def enter(state: State, done: Counter[str], home: Path, root: Path = ROOT) -> str:
    """Put the row of a soak into the ledger, and note that it is there."""
    new = ledger.row(state, done, datetime.datetime.now(datetime.UTC).date())
    page, seen = root / PAGE, root / SKETCH
    different = sketch.take_in(seen, sketches(kept_in(home / "explore")))
    put(page, ledger.enter(page.read_text(), new, different))
    state.entered = state.seconds
    state.save(home / "state.json")
    return new


def which(
    home: Path, anew: bool, seed: int | None, say: Callable[[str], None], root: Path = ROOT
) -> State:
    """Resume the soak that is there if it has these sources; otherwise begin another."""
    version, mark = sources.version(ROOT), sources.mark(ROOT)
    state = State.load(home / "state.json")
    if state is not None and not anew:
        if state.source == mark and seed in (None, state.seed):
            return state
        what = "the seed changed" if state.source == mark else "sources changed"
        left = f", {clock(state.left)} of it were left" if state.left else ""
        say(f"{what}: another soak begins, of {version}")
        say(f"soak {state.seed} of {state.version} is over{left}")
    if state is not None and state.seconds > state.entered:
        # It was killed, and its results would be lost with its files.
        say(f"entered in {PAGE}:\n{enter(state, done_in(home), home, root)}")
    for folder in home.iterdir():
        if folder.name not in ("found", "built", "programs", "lock"):
            wipe(folder) if folder.is_dir() else folder.unlink()
    return State(secrets.randbelow(1_000_000_000) if seed is None else seed, version, mark)


def programs_in(home: Path) -> Path:
    """Name the directory of all that is run; this call's build replaces its content."""
    built, programs = home / "built", home / "programs"
    if built.exists():
        sources.copy(ROOT, built)
        wipe(programs)
        built.rename(programs)
    return programs


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--hours", type=float, required=True)
    parser.add_argument(
        "--home", type=Path, required=True, help="directory of all that outlives a call"
    )
    parser.add_argument(
        "--scratch", type=Path, required=True, help="directory of the stores during the run"
    )
    parser.add_argument("--anew", action="store_true", help="begin another soak in any case")
    parser.add_argument("--seed", type=int, help="seed of the soak; drawn otherwise")
    parser.add_argument("--only", nargs="+", choices=READERS, help="run only these harnesses")
    return parser.parse_args()


def stop(*_: object) -> None:
    """End this call in an orderly way."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # one is enough; the pieces get time to end
    raise KeyboardInterrupt


def main() -> int:
    """Run one call."""
    told = options()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    home = told.home.resolve()
    with Progress() as progress:
        lock = hold(home / "lock", progress.say)
        # Only now: another call may have been using the former programs.
        harnesses = everything(programs_in(home)).only(told.only)
        state = which(home, told.anew, told.seed, progress.say)
        scratch = told.scratch.resolve() / f"falaj-soak-{state.seed}"
        try:
            soak = Soak(home, scratch, harnesses, state, progress.say, lock)
        except NoRoom as why:
            progress.say(f"NO SPACE: {why}; nothing was run")
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
    print(f"in {PAGE}:\n{enter(state, soak.done(), home)}")
    for where in state.found:
        print(f"FOUND: {where}/README.txt")
    if interrupted:
        print(f"interrupted; the same command resumes, {clock(state.left)} are left")
        return 130
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
