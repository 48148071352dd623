"""A soak of harnesses that only count, as a program: `small.py HOME HOURS BEHAVIOUR …`.

The harnesses are this same file, run as `small.py --harness BEHAVIOUR STATE SECONDS`. They count
until their time ends, keep the count as real ones do, and show the given behaviour.
"""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

SLEEPER = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.sigwait([2])"

KEPT: dict[str, dict[str, object]] = {
    "explores": {"violations": [{"what": "group 4 is gone", "site": "mapped/sync/9/all"}]},
    "flips": {"findings": ["case 12: another value"]},
}
"""Findings of a harness that continues after them, as `falaj-sim` and `falaj-hostile` do."""


def harness(behaviour: str, path: Path, seconds: float) -> int:
    told = json.loads(path.read_text()) if path.exists() else {"counted": 0, "pieces": 0}
    told["pieces"] += 1
    if behaviour == "cannot":
        print("NOT RUN: for want of a disk")
        return 77
    if behaviour == "dies":  # as the fuzzer does, when it finds something
        print("ERROR: libFuzzer: deadly signal")
        return 77
    if behaviour == "finds":
        path.write_text(json.dumps(told))
        print("FOUND in round 7: what was acknowledged is gone")
        Path("store").write_bytes(b"\0" * 100)
        return 1
    if behaviour.startswith("ends"):
        path.write_text(json.dumps({"counted": 5, "next": 5, "to": 5}))
        return 0
    if behaviour == "leaves":  # a child that ends neither when asked nor with its parent
        subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True)
    asked: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        told["counted"] += 1
        told["asked to end"] = bool(asked)
        if behaviour in KEPT:
            told |= KEPT[behaviour]
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(told))
        beside.replace(path)
        if told["asked to end"]:
            return 130
        time.sleep(0.02)  # sleep: a harness at work
    return 0


def counted(folder: Path) -> Counter[str]:
    kept = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return Counter({folder.name: sum(k["counted"] for k in kept)})


def main() -> int:
    from soak import driver
    from soak.harnesses import Harnesses, Job, Target, Turn
    from soak.state import State

    home, hours, *behaviours = sys.argv[1:]
    driver.PIECE_S = (0.5, 600.0)

    def command(behaviour: str, turn: Turn) -> list[str]:
        words = [sys.executable, __file__, "--harness", behaviour]
        inside = f"cd {turn.scratch} && exec "
        line = " ".join([*words, f"{turn.kept}.json", str(turn.seconds)])
        return ["sh", "-c", inside + line]

    # `one>counts`: the second begins when the first has finished; they share a directory.
    parts = [b.split(">") for b in behaviours]
    behaviours = [first for first, *_ in parts]
    jobs = [
        Job(
            *(name, first, 1, partial(command, name)),
            seeded=not rest,
            after=before,
            pieces=6 if name == "forgets" else 1,
        )
        for first, *rest in parts
        for before, name in zip(["", first, *rest], [first, *rest], strict=False)
    ]
    harnesses = Harnesses(
        jobs, dict.fromkeys(behaviours, counted), [Target(b, b, 1000) for b in behaviours]
    )
    lock = driver.hold(Path(home) / "lock", print)
    state = State.load(Path(home) / "state.json") or State(7, "0.1.0, abc", "abc")
    try:
        soak = driver.Soak(
            *(Path(home), Path(home) / "scratch", harnesses, state, print, lock),
            scratch_bytes_min=0,
            home_bytes_min=0,
        )
        sound = soak.run(float(hours), lambda _: None)
    except driver.NoRoom as why:
        print(why)
        return 2
    print(json.dumps({"done": soak.done(), "left": state.left}))
    return 0 if sound else 1


if __name__ == "__main__":
    if sys.argv[1] == "--harness":
        sys.exit(harness(sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])))
    sys.exit(main())
