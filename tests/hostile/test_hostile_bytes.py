"""Bytes that nobody wrote, through Python: every answer is the true one, or an error that helps.

A store is harmed in one place (a flipped bit, a hole, a cut, noise), and a process of its own,
which may crash or hang, tells all that the API says of it. `falaj-hostile flips` does the same in
Rust with every bit; here some hundred are enough to see that nothing gets lost on the way to
Python.
`FALAJ_HOSTILE_HARMS` asks for more, `FALAJ_HOSTILE_SEED` for others.
"""

import json
import os
import queue
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import falaj

SEED = int(os.environ.get("FALAJ_HOSTILE_SEED", "20261121"))
HARMS = int(os.environ.get("FALAJ_HOSTILE_HARMS", "120"))
# Longest time for one harmed store; it takes about ten milliseconds.
PATIENCE_S = 30.0
# Errors that say that bytes are not what was written.
KINDS = ("Corrupt", "NeedsRecovery", "Newer", "NotAStore")

# Answers to everything, and errors by name and sentence; a line for each path that is asked about.
ASKING = """
import hashlib, json, sys, falaj
def answers(path):
    told, errors = {}, []
    def ask(name, question):
        try:
            told[name] = question()
        except falaj.Error as error:
            errors.append([type(error).__name__, str(error)])
    def read(topic):
        seen, it = [], iter(topic)
        told[topic.name + " seen"] = seen
        for record in it:
            whole = [None if part is None else bytes(part) for part in (record.raw, record.key)]
            headers = [(name, value and bytes(value)) for name, value in record.headers]
            whole += [record.offset, record.timestamp_ns, headers]
            seen.append(hashlib.sha256(repr(whole).encode()).hexdigest()[:12])
        return len(seen)
    def look(store, name):
        topic = store.topic(name)
        ask(name + " len", lambda: len(topic))
        ask(name + " read", lambda: read(topic))
        for i in (0, 7, 19, -1):
            ask(f"{name} {i}", lambda: hashlib.sha256(bytes(topic[i].raw)).hexdigest()[:12])
        ask(name + " slice", lambda: [record.offset for record in topic[3:9]])
        ask(name + " at", lambda: [r and r.offset for r in map(topic.at, (0, 4e9))])
    def everything():
        with falaj.open(path, mode="r") as store:
            for name in ("orders", "shop"):
                ask(name, lambda: look(store, name))
    ask("store", everything)
    return {"told": told, "errors": errors}
for line in sys.stdin:
    print(json.dumps(answers(line.strip())), flush=True)
"""


class Asker:
    """A process that looks at stores; one that crashes or hangs is noticed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASKING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def ask(self, path: Path, story: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        try:
            line = self.lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            self.process.kill()
            raise AssertionError(f"{story}: no answer") from None
        if not line:
            code = self.process.wait()
            assert self.process.stderr is not None
            raise AssertionError(f"{story}: died with {code}: {self.process.stderr.read()}")
        told: dict[str, Any] = json.loads(line)
        return told

    def end(self) -> None:
        self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0


def prepare(path: Path) -> None:
    with falaj.open(path) as store:
        orders = store.topic("orders", segment_bytes=65536)
        for i in range(60):
            orders.append(b"%d " % i * (i * 7 % 300))
        orders.extend([b"many %d" % i for i in range(300)])
        shop = store.topic("shop", segment_bytes=65536)
        for i in range(30):
            shop.append(b"x" * i, key=b"%d" % (i % 5), headers={"trace": b"%d" % i})


def flip(random: random.Random, content: bytearray, at: int) -> None:
    content[at] ^= 1 << random.randrange(8)


def hole(random: random.Random, content: bytearray, at: int) -> None:
    start = at // 512 * 512
    end = min(len(content), start + 512 * random.randint(1, 8))
    content[start:end] = bytes(end - start)


def cut(random: random.Random, content: bytearray, at: int) -> None:
    del content[at:]


def noise(random: random.Random, content: bytearray, at: int) -> None:
    end = min(len(content), at + random.randint(1, 100))
    content[at:end] = random.randbytes(end - at)


HOW = (flip, flip, flip, hole, cut, noise)


def harm(random: random.Random, store: Path) -> str:
    """Harm one file; most often one of those with the data."""
    files = sorted(path for path in store.rglob("*") if path.is_file() and path.stat().st_size)
    segments = [path for path in files if path.suffix == ".log"]
    path = random.choice(segments if random.random() < 0.6 else files)
    content = bytearray(path.read_bytes())
    # What lies behind the last byte that was written is mostly room.
    at = random.randrange(max(1, len(content.rstrip(b"\0"))))
    how = random.choice(HOW)
    how(random, content, at)
    path.write_bytes(content)
    return f"{how.__name__} at {at} of {path.relative_to(store)}"


def judge(story: str, path: Path, right: dict[str, Any], found: dict[str, Any]) -> bool:
    """Compare all answers; true if there were errors."""
    for kind, said in found["errors"]:
        assert str(path) in said, f"{story}: no path in {said!r}"
        assert kind.startswith(KINDS), f"{story}: {kind} is no error for damage: {said}"
    for name, answer in found["told"].items():
        true = right["told"][name]
        if name.endswith(" seen"):
            assert answer == true[: len(answer)], f"{story}: {name} is wrong"
            assert answer == true or found["errors"], f"{story}: {name} ends in silence"
        else:
            assert answer == true, f"{story}: {name} is {answer}, not {true}"
    missing = right["told"].keys() - found["told"].keys()
    assert not missing or found["errors"], f"{story}: no answer to {missing}"
    return bool(found["errors"])


def test_one_harm_anywhere_is_harmless_or_an_error_and_never_another_answer(tmp_path: Path) -> None:
    prepare(tmp_path / "sound")
    chance = random.Random(SEED)
    asker = Asker()
    right = asker.ask(tmp_path / "sound", "sound")
    assert right["errors"] == []
    told = 0
    for number in range(HARMS):
        harmed = tmp_path / "harmed"
        shutil.copytree(tmp_path / "sound", harmed)
        story = f"seed {SEED}, harm {number}: {harm(chance, harmed)}"
        told += judge(story, harmed, right, asker.ask(harmed, story))
        shutil.rmtree(harmed)
    asker.end()
    assert told > HARMS // 10, "a harness that harms nothing proves nothing"
