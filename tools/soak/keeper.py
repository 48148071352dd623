"""Watch over one piece: run a command, and leave nothing of it behind, however each process ends.

`keeper.py COMMAND …` runs the command until it ends, or until its own standard input does. That is
a pipe whose other end only the driver holds. So the keeper notices a driver that was killed, as one
that wants an end. Then it asks the command to end, and kills it after `GRACE_S`. Processes that the
command leaves behind become children of this process, which kills those too. One case is left: if
the keeper itself is killed by number, the command dies with it, but its children may not.

Ends with the command's code, or 128 and the number of the signal that ended it.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

GRACE_S = 30.0
"""A storm puts its workers, mounts and files away meanwhile; it takes a second or two."""
LOOK_S = 0.05
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """List the processes below one, by number; the dead that no process reaped are among them."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it ended this moment
            children.setdefault(parent, []).append(int(folder.name))
    found, below = [], [pid]
    while below:
        below = [child for parent in below for child in children.get(parent, [])]
        found += below
    return found


def _bury() -> None:
    """Kill what is left, generation after generation, until nothing is."""
    while left := descendants(os.getpid()):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            continue
        time.sleep(LOOK_S)


def main() -> int:
    """Run the command of the command line."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The driver decides, by its pipe. A handler: what is ignored would be ignored below too.
        signal.signal(number, lambda *_: None)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )
    killed_at = None
    driver = [0]
    while command.poll() is None:
        readable, _, _ = select.select(driver, [], [], LOOK_S)
        if readable and not os.read(0, 1):
            driver = []
            command.terminate()
            killed_at = time.monotonic() + GRACE_S
        if killed_at and time.monotonic() > killed_at:
            command.kill()
    _bury()
    code = command.returncode
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
