"""Failing system calls of a real process: `strace` makes one after the other fail.

The faulty storage in Rust fails each call of the engine. Here the kernel's own calls fail, under
the whole stack and in the middle of Python: the k-th, or all from the k-th on. A process appends
and reports what was acknowledged. A later one, whose calls succeed, must find exactly that, and
continue. `FALAJ_HOSTILE_CALLS` gives the number of runs, `FALAJ_HOSTILE_SEED` others.
"""

import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import falaj

SEED = int(os.environ.get("FALAJ_HOSTILE_SEED", "20261121"))
RUNS = int(os.environ.get("FALAJ_HOSTILE_CALLS", "14"))
DEADLINE_S = 60.0

# Appends, rolling every few records, and reports the results; never stops at an error.
WRITER = """
import sys, falaj
def say(*words):
    print(*words, flush=True)
def wait():
    say("ready")
    sys.stdin.readline()
is_open = sys.argv[2] == "open"
if not is_open:
    wait()
with falaj.open(sys.argv[1]) as store:
    topic = store.topic("orders", segment_bytes=65536)
    if is_open:
        wait()
    for number in range(60):
        value = b"%d " % number + bytes(3000)
        sync = ("none", "durable")[number % 2]
        try:
            say("done", number, sync, topic.append(value, sync=sync))
        except falaj.errors.DurabilityUnknown as error:
            say("seen", number, sync, error)
        except falaj.Error as error:
            say("not", number, type(error).__name__, error)
    say("read", len(topic), len(list(topic)))
"""

# Calls that may fail while the machine can still recover, and how often a writer makes them.
CALLS = {
    "fdatasync": (("EIO", "ENOSPC", "EDQUOT", "EINTR"), 30),
    "fsync": (("EIO", "ENOSPC"), 4),
    "fallocate": (("ENOSPC", "EDQUOT", "EINTR", "EIO"), 6),
    "openat": (("EMFILE", "EACCES", "ENFILE", "EIO"), 20),
    "mmap": (("ENOMEM", "EAGAIN"), 8),
    "renameat2": (("EIO", "ENOSPC", "EROFS"), 3),
    "pwrite64": (("ENOSPC", "EIO", "EFBIG"), 12),
    "pread64": (("EIO", "EINTR"), 12),
    "flock": (("EINTR", "EIO"), 4),
}


def may_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    command = ["strace", "-qq", "-o", "/dev/null", "-e", "inject=getppid:error=EIO", "true"]
    return subprocess.run(command, capture_output=True).returncode == 0


needs_strace = pytest.mark.skipif(
    not may_trace(), reason="NOT RUN: failing system calls need strace, and leave to trace"
)


def run_writer(path: Path, inject: str, begins: str) -> tuple[list[list[str]], str, int]:
    """Start a writer, make its calls fail from now on, and collect its reports.

    `begins` says when: "first", before it opens anything, or "open", when it is about to append.
    """
    writer = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WRITER, os.fspath(path), begins],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert (
        writer.stdout.readline() == "ready\n"
    )  # Python itself has started: later failures are ours
    traced = f"trace={inject.partition(':')[0]}"
    command = ["strace", "-f", "-p", str(writer.pid), "-e", traced, "-e", f"inject={inject}"]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    first = tracer.stderr.readline()
    assert "attached" in first, first
    drain = threading.Thread(target=tracer.stderr.read)
    drain.start()
    try:
        out, err = writer.communicate("go\n", timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        writer.kill()
        raise AssertionError(f"{inject}: it does not end") from None
    finally:
        tracer.wait(timeout=DEADLINE_S)
        drain.join()
        tracer.stderr.close()
    return [line.split(maxsplit=3) for line in out.splitlines()], err, writer.returncode


def judge(story: str, path: Path, heard: list[list[str]], err: str, code: int) -> int:
    """Compare the records with the reports; return how many appends were refused."""
    assert code >= 0, f"{story}: killed by signal {-code}: {err}"
    if code:
        last = err.strip().splitlines()[-1]
        assert last.startswith("falaj."), f"{story}: {err}"
    visible = [int(words[1]) for words in heard if words[0] in ("done", "seen")]
    refused = [words for words in heard if words[0] == "not"]
    for words in refused:
        assert str(path) in words[3], f"{story}: no path in {words}"
    with falaj.open(path) as store:
        topic = store.topic("orders", segment_bytes=65536)
        found = [int(bytes(record.raw or b"").split(b" ")[0]) for record in topic]
        assert found == visible, f"{story}: {visible} were acknowledged, {found} are there"
        assert topic.append(b"77 after", sync="durable") == len(found), story
    left = [name for name in path.rglob("*") if ".tmp" in name.name]
    assert not left, f"{story}: {left}"
    return len(refused) + (code != 0)


@needs_strace
def test_whichever_call_fails_what_was_acknowledged_is_there_and_the_log_goes_on(
    tmp_path: Path,
) -> None:
    chance = random.Random(SEED)
    refused = appends = 0
    for number in range(RUNS):
        call = list(CALLS)[number % len(CALLS)]
        errors, often = CALLS[call]
        first, forever = chance.randint(1, often), chance.random() < 0.4
        error = chance.choice(errors)
        # A signal for each try: a call that is always interrupted may retry without end.
        when = f"{first}+" if forever and error != "EINTR" else f"{first}"
        inject = f"{call}:error={error}:when={when}"
        path = tmp_path / f"store-{number}"
        falaj.open(path).close()
        begins = ("first", "open")[number % 2]
        story = f"seed {SEED}, run {number}: {inject}, {begins}"
        heard, err, code = run_writer(path, inject, begins)
        refused += judge(story, path, heard, err, code)
        appends += any(words[0] in ("not", "seen") for words in heard)
    assert RUNS < 9 or (refused and appends), "some call must fail"
