"""Power cuts on a machine of their own: a guest whose disk the device mapper cuts off.

The guest is a Linux kernel that runs as a process (Debian's `user-mode-linux`). It sees this
machine's files and cannot change them. It has a disk in a file, which is removed at the end, and
one directory to answer in. In it runs `falaj-storm power --device`: ext4, xfs and btrfs, on a disk
that drops, fails or tears writes.

Usage: `guest.py FALAJ-STORM --cuts N [--seed S] [--filesystems btrfs,…] [--dir DIR] [--hours H]`.
Ends as `falaj-storm power` does: 77 where this machine has no such guest, or none that gets to its
end, and it says why. That nothing was found is said by the storm alone.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

DISK_BYTES = 1 << 31
"""The file has holes; xfs wants 300 MB at least."""
MEMORY = "1024M"
KERNEL, MODULES = "linux.uml", Path("/usr/lib/uml/modules")
NEEDED = ("dm-mod", "dm-flakey")
TOOLS = ("dmsetup", "insmod", "mkfs.btrfs", "mkfs.ext4", "mkfs.xfs", "unshare")
SKIPPED = 77
BOOT_S, CUT_S = 120, 60
"""More than it takes to begin and to end, and than a cut takes with all that is checked then."""

INIT = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o size=75% tmp /dev/shm
mkdir /dev/shm/stores /dev/shm/answer
mount -t hostfs -o {answer} none /dev/shm/answer
for module in {modules}; do insmod $module; done
{program} power --device /dev/ubda --dir /dev/shm/stores --json /dev/shm/answer/json {words} \\
    > /dev/shm/answer/said 2>&1
echo $? > /dev/shm/answer/code
echo o > /proc/sysrq-trigger
sleep 60
"""


def missing() -> str:
    """Say what this machine lacks."""
    paths = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacks = [tool for tool in (KERNEL, *TOOLS) if shutil.which(tool, path=paths) is None]
    lacks += [name for name in NEEDED if not any(MODULES.rglob(f"{name}.ko"))]
    return ", ".join(lacks)


def boot(program: Path, words: list[str], folder: Path, disk: Path, seconds: float) -> int:
    """Have a guest cut, and return the storm's exit code."""
    answer = folder / "answer"
    answer.mkdir()
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    modules = [str(next(MODULES.rglob(f"{name}.ko"))) for name in NEEDED]
    init = folder / "init"
    script = INIT.format(
        answer=answer,
        modules=" ".join(modules),
        program=shlex.quote(str(program.resolve())),
        words=shlex.join(words),
    )
    init.write_text(script)
    init.chmod(0o755)
    command = [
        *(KERNEL, f"mem={MEMORY}", f"ubd0={disk}", "root=/dev/root", "rootfstype=hostfs"),
        *("rootflags=/", "ro", f"init={init}", "con=null", "con0=fd:0,fd:1", "quiet"),
    ]
    log = (folder / "console").open("wb")
    # Its processes are threads of this one group, which ends as a whole.
    guest = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    ended = "it said nothing of how it ended"
    try:
        guest.wait(seconds)
    except subprocess.TimeoutExpired:
        ended = f"it did not end within {seconds:.0f} s"
    finally:
        if guest.poll() is None:
            os.killpg(guest.pid, signal.SIGKILL)
            guest.wait()
        log.close()
    said, code = answer / "said", answer / "code"
    sys.stdout.write(said.read_text() if said.exists() else "")
    if not code.exists() or not code.read_text().strip():
        # A kernel that did not come up, or hangs, says nothing of falaj. The storm itself reports
        # what waits too long in there.
        console = (folder / "console").read_text(errors="replace")[-2000:]
        sys.stdout.write(f"{console}\n*** NOT RUN: power cuts in a guest: {ended} ***\n")
        return SKIPPED
    return int(code.read_text())


def main() -> int:
    """Look what there is, boot, clean up."""
    parser = argparse.ArgumentParser(description="Power cuts in a guest.")
    parser.add_argument("program", type=Path, help="falaj-storm")
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--filesystems", default="btrfs,ext4,xfs")
    parser.add_argument("--hours", type=float)
    parser.add_argument("--dir", type=Path, help="where the disk lies meanwhile")
    options = parser.parse_args()
    # A run that is asked to end puts away what is below, as at any other end.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    lacks = missing()
    if lacks:
        sys.stdout.write(
            f"*** NOT RUN: power cuts in a guest: no {lacks} (on Debian: apt-get install "
            "user-mode-linux btrfs-progs xfsprogs e2fsprogs dmsetup kmod) ***\n"
        )
        return SKIPPED
    words = ["--cuts", str(options.cuts), "--seed", str(options.seed)]
    words += ["--filesystems", options.filesystems]
    seconds = BOOT_S + CUT_S * options.cuts
    if options.hours:
        words += ["--hours", str(options.hours)]
        seconds = BOOT_S + CUT_S + options.hours * 3600
    # The guest has a /dev of its own, so what it is to read cannot lie in ours.
    with (
        tempfile.TemporaryDirectory(prefix="falaj-guest-", dir="/var/tmp") as folder,
        tempfile.TemporaryDirectory(prefix="falaj-guest-", dir=options.dir) as room,
    ):
        disk = Path(room) / "disk"
        code = boot(options.program, words, Path(folder), disk, seconds)
        if code == 1:
            kept = Path(tempfile.mkdtemp(prefix="falaj-guest-found-", dir=options.dir))
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            shutil.move(disk, kept)
            sys.stderr.write(f"the guest's disk and words are kept: {kept}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
