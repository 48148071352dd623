#!/usr/bin/env python3
"""Change the rooms' code a little, again and again, and look whether a test notices.

Owns: which shard of which room is tried when, and what is known of all of them. Each shard of a
room has a directory of its own below the state directory, outside the repository; a run that was
interrupted goes on there, and one that was finished tries only those again that survived. See
docs/RELIABILITY.md, "Coverage and mutants".

Usage: mutants.py [--shard K/N] [--room NAME]... [--summary]
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from rooms import ROOMS, ROOT, Room, install

# A test that hangs has noticed; a machine that is busy must not look like that.
TEST_SECONDS = 300
BUILD_SECONDS = 1200
# Exit codes of cargo-mutants that say "some survived" and "some took too long".
FOUND_SOMETHING = {0, 2, 3}


def default_state() -> Path:
    """Name the directory where results are kept between runs."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "falaj-mutants"


def shard_of(text: str) -> tuple[int, int]:
    """Read "K/N", K from 0."""
    part, whole = (int(number) for number in text.split("/"))
    if not 0 <= part < whole:
        raise argparse.ArgumentTypeError(f"{text}: shards of {whole} are 0/{whole} to {whole - 1}/{whole}")
    return part, whole


def of_room(room: Room) -> list[str]:
    """Arguments that name a room's files."""
    return ["--package", "falaj", *(part for path in room.paths() for part in ("--file", path))]


def run(name: str, room: Room, shard: tuple[int, int], state: Path) -> int:
    """Try a shard of a room."""
    part, whole = shard
    output = state / name / f"{part}-of-{whole}"
    output.mkdir(parents=True, exist_ok=True)
    command = ["cargo", "mutants", *of_room(room), "--iterate", "--no-shuffle", "--colors", "never"]
    command += ["--shard", f"{part}/{whole}", "--jobs", "1", "--output", str(output)]
    command += ["--timeout", str(TEST_SECONDS), "--build-timeout", str(BUILD_SECONDS)]
    tests = (argument for test in room.tests for argument in ("--test", test))
    command += ["--", "--lib", *tests]
    # What others need is built once for all shards.
    environment = os.environ | {"CARGO_TARGET_DIR": str(state / "target")}
    print(f"{name}: shard {part} of {whole}", flush=True)
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def names_in(path: Path) -> set[str]:
    """Read one list of cargo-mutants."""
    return set(path.read_text().splitlines()) if path.exists() else set()


def all_of(room: Room) -> set[str]:
    """Name all mutants of a room, as the code is now."""
    command = ["cargo", "mutants", "--list", "--json", "--colors", "never", *of_room(room)]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {mutant["name"] for mutant in json.loads(listed)}


def summarize(state: Path, rooms: dict[str, Room]) -> None:
    """Print what is known of each room's mutants, and the survivors."""
    print(f"{'room':<10} {'mutants':>8} {'killed':>8} {'survived':>9} {'no build':>9} {'not run':>8}")
    survivors: list[str] = []
    for name, room in rooms.items():
        mutants = all_of(room)
        kinds: dict[str, set[str]] = {}
        for output in sorted((state / name).glob("*/mutants.out")):
            for kind in ("caught", "previously_caught", "timeout", "unviable", "missed"):
                found = names_in(output / f"{kind}.txt")
                kinds[kind] = kinds.get(kind, set()) | mutants & found
        found_by = [kinds.get(kind, set()) for kind in ("caught", "previously_caught", "timeout")]
        killed = set().union(*found_by)
        unviable = kinds.get("unviable", set()) - killed
        missed = kinds.get("missed", set()) - killed - unviable
        left = mutants - killed - unviable - missed
        counts = f"{len(killed):>8} {len(missed):>9} {len(unviable):>9} {len(left):>8}"
        print(f"{name:<10} {len(mutants):>8} {counts}")
        survivors += sorted(missed)
    for survivor in survivors:
        print(f"survived: {survivor}")


def main() -> int:
    """Try what was asked for, then say what is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", type=shard_of, default=(0, 1), metavar="K/N")
    parser.add_argument("--room", action="append", choices=list(ROOMS))
    parser.add_argument("--state", type=Path, default=default_state())
    parser.add_argument("--summary", action="store_true", help="try nothing")
    given = parser.parse_args()
    install("cargo-mutants")
    rooms = {name: room for name, room in ROOMS.items() if not given.room or name in given.room}
    state = given.state.resolve()
    if not given.summary:
        for name, room in rooms.items():
            code = run(name, room, given.shard, state)
            if code not in FOUND_SOMETHING:
                print(f"{name}: cargo-mutants ended with {code}", file=sys.stderr)
                return code
    summarize(state, rooms)
    return 0


if __name__ == "__main__":
    sys.exit(main())
