"""A machine that refuses: full disks, no permission, limits, file systems without guarantees.

As in test_bad_input.py: a sentence, an exit code, no loss, no hang. A test that needs a file system
mounts one in a private namespace, which ends with its last process.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import falaj
from cli.shell import DEADLINE_S, PROGRAM, Ended, Shell

ROOT = os.geteuid() == 0
NOBODY = 65534
# If users may not make namespaces, only root can mount; the test machines have both cases.
UNSHARE = ["unshare", "--mount", *([] if ROOT else ["--map-root-user"])]


def may_mount() -> bool:
    command = [*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except FileNotFoundError:
        return False


needs_mount = pytest.mark.skipif(
    not may_mount(), reason="needs root, or users that may make namespaces, to mount a small disk"
)


class Bash(Shell):
    """A shell with the command `falaj`, and a directory `disk` to mount something."""

    def run(self, script: str, inside: tuple[str, ...] = ()) -> Ended:
        (self.folder / "disk").mkdir(exist_ok=True)
        prelude = f'set -u\nfalaj() {{ {shlex.quote(PROGRAM)} "$@"; }}\n'
        done = subprocess.run(
            [*inside, "bash", "-c", prelude + script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def mounted(self, options: str, script: str) -> Ended:
        """Run a script where `disk` is a small file system in memory."""
        mount = f"mount -t tmpfs -o {options} none disk || exit 99\n"
        return self.run(mount + script, tuple(UNSHARE))


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    return Bash(tmp_path)


# Records that were appended until the disk was full are read back; with new space, appends
# continue.
FILL = """
fallocate -l 6M disk/ballast
seq 2000000 > lines
falaj append -s disk/s t --segment-size 1M lines; echo "full: $?"
falaj cat -s disk/s t > before; tail -n 1 before
seq "$(tail -n 1 before)" | cmp - before && echo "whole"
rm disk/ballast
echo after | falaj append -s disk/s t; echo "room: $?"
falaj tail -s disk/s t -n 1
"""


def check_filled(ended: Ended) -> None:
    lines = ended.out.splitlines()
    assert lines[0] == "full: 3", ended
    assert int(lines[1]) > 10_000
    assert lines[2:] == ["whole", "room: 0", "after"], ended
    sentence = Ended(3, "", ended.err).sentence()
    assert "No space left on device (os error 28); nothing committed is lost" in sentence
    assert f"what came before it, {int(lines[1]):,} records, is in the topic" in sentence


@needs_mount
def test_a_full_disk_in_memory_is_an_error_and_appends_go_on_once_there_is_space(
    bash: Bash,
) -> None:
    check_filled(bash.mounted("size=14m", FILL))


@pytest.mark.skipif(not ROOT, reason="only root can mount an image through a loop device")
def test_a_full_disk_is_an_error_and_appends_go_on_once_there_is_space(bash: Bash) -> None:
    mount = "truncate -s 16M image && mkfs.ext4 -q -m 0 image && mount -o loop image disk"
    ended = bash.run(f"({mount}) || exit 99\n" + FILL, tuple(UNSHARE))
    if ended.code == 99:
        pytest.skip(f"this machine has no loop devices: {ended.err}")
    check_filled(ended)


@needs_mount
def test_a_full_inode_table_is_an_error_and_leaves_nothing_behind(bash: Bash) -> None:
    ended = bash.mounted(
        "size=64m,nr_inodes=48",
        """
        echo one | falaj append -s disk/s t; echo "first: $?"
        touch disk/{1..48} 2>/dev/null
        echo x | falaj append -s disk/s u; echo "second: $?"
        falaj cat -s disk/s t
        rm disk/[0-9]*
        echo y | falaj append -s disk/s u; echo "third: $?"
        falaj cat -s disk/s u
        """,
    )
    assert ended.out.splitlines() == ["first: 0", "second: 3", "one", "third: 0", "y"]
    assert "No space left on device" in Ended(3, "", ended.err).sentence()


@needs_mount
def test_a_read_only_disk_can_be_read_and_refuses_appends(bash: Bash) -> None:
    ended = bash.mounted(
        "size=16m",
        """
        echo one | falaj append -s disk/s t
        mount -o remount,ro disk
        falaj cat -s disk/s t
        falaj tail -f --idle 0.1 -s disk/s t
        echo two | falaj append -s disk/s t; echo "append: $?"
        falaj cat -s disk/s t
        """,
    )
    assert ended.out.splitlines() == ["one", "one", "append: 3", "one"]
    assert "Read-only file system (os error 30); remount it" in Ended(3, "", ended.err).sentence()


@needs_mount
def test_a_backup_without_space_fails_and_leaves_nothing_behind(bash: Bash) -> None:
    ended = bash.mounted(
        "size=1m",
        """
        seq 300000 | falaj append -s s t
        falaj backup -s s disk/copy; echo "backup: $?"
        ls -A disk
        falaj cat -s s t | wc -l
        """,
    )
    assert ended.out.splitlines() == ["backup: 3", "300000"]
    assert "No space left on device" in Ended(3, "", ended.err).sentence()


def test_a_limit_on_the_size_of_files_is_an_error_and_kills_no_process(bash: Bash) -> None:
    ended = bash.run(
        """
        seq 1000000 > lines
        (ulimit -f 1024; falaj append -s s t lines); echo "limit: $?"
        falaj cat -s s t > before
        seq "$(tail -n 1 before)" | cmp - before && echo "whole"
        echo after | falaj append -s s t; falaj tail -s s t -n 1
        """
    )
    assert ended.out.splitlines() == ["limit: 3", "whole", "after"]
    sentence = Ended(3, "", ended.err).sentence()
    assert "File too large (os error 27); nothing committed is lost, raise the limit" in sentence
    assert "`ulimit -f`, and retry" in sentence


# Everything is imported before the limit is set: the store itself must cope with it.
LIMITED = """
import sys, resource, falaj.cli.app as app
app.run(["cat", "-s", "nothing", "t"])
print("now", file=sys.stderr, flush=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv.pop(1)),) * 2)
sys.exit(app.run())
"""


def test_a_limit_on_descriptors_is_told(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.ok("append", "-s", "s", "t", given=b"first\n")
    codes = []
    for limit in range(4, 24):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, str(limit), "append", "-s", "s", "t"],
            input="more\n",
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        codes.append(done.returncode)
        told = done.stderr.partition("now\n")[2]
        if done.returncode:
            refused = "Too many open files (os error 24); raise the limit `ulimit -n`"
            assert refused in Ended(3, "", told).sentence()
    assert set(codes) == {0, 3}
    assert shell.ok("cat", "-s", "s", "t") == "first\n" + "more\n" * codes.count(0)


def test_a_log_of_more_segments_than_a_process_may_open_is_read_verified_and_copied(
    tmp_path: Path,
) -> None:
    with falaj.open(tmp_path / "s") as store:
        topic = store.topic("t", segment_bytes=1 << 16)
        for n in range(4 * 150):
            topic.append(b"%d" % n + bytes(15_000), sync="none")
    for what in (
        ["verify", "-s", "s"],
        ["cat", "-s", "s", "t"],
        ["info", "-s", "s"],
        ["backup", "-s", "s", "copy"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, "128", *what],
            cwd=tmp_path,
            capture_output=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
    copy = falaj.open(tmp_path / "copy", read_only=True).topic("t")
    assert [record.to_bytes()[:3].strip(b"\0") for record in copy] == [
        b"%d" % n for n in range(4 * 150)
    ]


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that everyone can enter: pytest's own belong to their owner."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        yield Path(place)


def as_nobody(folder: Path, *arguments: str) -> Ended:
    """Run it as a user other than root, to whom permissions apply."""
    program = (
        "import os, sys, falaj.cli.app as app, falaj.cli.registry as registry\n"
        "any(map(registry.load, registry.NAMES))  # imports what another user may not read\n"
        "app.run(['cat', '-s', 'nothing', 't'])\n"
        "print('now', file=sys.stderr, flush=True)\n"
        f"os.geteuid() or (os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY}))\n"
        "sys.exit(app.run())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        input="x\n",
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return Ended(done.returncode, done.stdout, done.stderr.partition("now\n")[2])


def test_a_path_to_nowhere_and_one_in_circles_say_what_helps(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    ended = shell("append", "-s", "gone/s", "t")
    assert (ended.code, "gone does not exist" in ended.sentence()) == (2, True), ended
    shell.ok("append", "-s", "s", "t", given=b"x\n")
    (log,) = tmp_path.glob("s/logs/t@*/*.log")
    log.rename(tmp_path / "log")
    log.symlink_to(tmp_path / "log")
    ended = shell("cat", "-s", "s", "t")
    assert (ended.code, "; falaj needs a file here, not a link" in ended.sentence()) == (3, True), (
        ended
    )


def test_a_directory_one_may_not_write_to_is_named(open_to_all: Path) -> None:
    os.chmod(open_to_all, 0o555)
    ended = as_nobody(open_to_all, "append", "-s", "s", "t")
    os.chmod(open_to_all, 0o755)
    assert ended.code == 3
    assert "s: Permission denied (os error 13); give this user permission" in ended.sentence()
    assert list(open_to_all.iterdir()) == []


def test_a_store_of_somebody_else_is_named(open_to_all: Path) -> None:
    with falaj.open(open_to_all / "s") as store:
        store.topic("t").append(b"one")
    if not ROOT:
        os.chmod(open_to_all / "s", 0)
    for verb in ("cat", "append"):
        ended = as_nobody(open_to_all, verb, "-s", "s", "t")
        assert ended.code == 3
        assert "Permission denied (os error 13)" in ended.sentence()
        assert "s/falaj.json" in ended.sentence()
    os.chmod(open_to_all / "s", 0o700)


@pytest.mark.skipif(not ROOT, reason="needs another user, whom only root can be")
def test_a_user_with_read_permission_reads_and_cannot_append(open_to_all: Path) -> None:
    with falaj.open(open_to_all / "s", permissions=0o755) as store:
        store.topic("t").append(b"one")
    assert as_nobody(open_to_all, "cat", "-s", "s", "t") == Ended(0, "one\n", "")
    assert as_nobody(open_to_all, "tail", "-f", "--idle", "0.1", "-s", "s", "t") == Ended(
        0, "one\n", ""
    )
    ended = as_nobody(open_to_all, "append", "-s", "s", "t")
    assert ended.code == 3
    assert "Permission denied" in ended.sentence()


# --- File systems without guarantees -----------------------------------------------------------

# An empty FUSE file system that only answers mounting and looking.
EMPTY_FUSE = """
import ctypes, os, struct, subprocess, sys, threading
program, = sys.argv[1:]
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"empty", b"disk", b"fuse", 0, options):
    sys.exit(99)
ROOT = struct.pack("<6Q10I", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 512, 0)
INIT, STATFS, GETATTR, ENOENT, ENOSYS = 26, 17, 3, 2, 38
def answer(opcode):
    if opcode == INIT:
        return 0, struct.pack("<4I2H", 7, 31, 0, 0, 12, 12) + bytes(4 * 11)
    if opcode == STATFS:
        return 0, struct.pack("<5Q4I", 1, 1, 1, 1, 1, 512, 255, 512, 0) + bytes(24)
    if opcode == GETATTR:
        return 0, struct.pack("<QII", 0, 0, 0) + ROOT
    return -(ENOENT if opcode == 1 else ENOSYS), b""
def serve():
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError:  # it was unmounted
            return
        _, opcode, unique = struct.unpack_from("<IIQ", request)
        if opcode not in (2, 42):  # FORGET needs no answer
            error, body = answer(opcode)
            os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
threading.Thread(target=serve, daemon=True).start()
done = subprocess.run([program, "append", "-s", "disk/s", "t"], input=b"x", timeout=30)
libc.umount2(b"disk", 2)
os._exit(done.returncode)
"""


@pytest.mark.skipif(
    not (ROOT and Path("/dev/fuse").exists()), reason="only root can mount FUSE without a helper"
)
def test_fuse_is_refused_as_a_network_file_system_is(bash: Bash) -> None:
    ended = bash.run(
        f"exec {shlex.quote(sys.executable)} -c {shlex.quote(EMPTY_FUSE)} {shlex.quote(PROGRAM)}",
        tuple(UNSHARE),
    )
    if ended.code == 99:
        pytest.skip("this machine has no FUSE")
    assert ended.code == 2
    assert (
        "lies on fuse, where falaj cannot keep its promises; use a local disk" in ended.sentence()
    )
