"""Bad input of every kind: a clear sentence, no loss, no hang, no crash.

Through the program, which also shows the sentence and the exit code. `tests/python` has wrong
types, names, naive times, too large records, closed and deleted handles. It also has a store that
is removed under an open handle: a user at the shell has no handles.
"""

import fcntl
import json
import os
import re
import resource
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import falaj
from cli.shell import Ended, Shell

RECORDS = 1500
SEGMENT = 1 << 16  # so that there are four of them
HEADER = 8192  # of a segment; the durable marks in it rise


def value(n: int) -> bytes:
    return b"%08d" % n * 12


def make(path: Path, shift: int = 0) -> None:
    with falaj.open(path) as store, store.topic("t", segment_bytes=SEGMENT) as topic:
        for n in range(RECORDS):
            topic.append(value(n + shift))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stores of the same shape, `s` and `other`, that no test changes."""
    folder = tmp_path_factory.mktemp("sound")
    make(folder / "s")
    make(folder / "other", shift=7)
    return folder


@pytest.fixture
def shell(sound: Path, tmp_path: Path) -> Shell:
    """A shell in a copy of both."""
    shutil.copytree(sound, tmp_path, dirs_exist_ok=True)
    return Shell(tmp_path)


# --- Changed files --------------------------------------------------------------------------------

FILES = ("sealed", "active", "index", "control", "falaj.json", "topic.json")
HARMLESS = ("index", "control")  # derived: whatever happens to them, they are built again


def file(store: Path, what: str) -> Path:
    (log,) = store.glob("logs/t@*")
    segments = sorted(log.glob("*.log"))
    assert len(segments) == 4
    return {
        "oldest": segments[0],
        "sealed": segments[1],
        "active": segments[-1],
        "index": segments[1].with_suffix(".idx"),
        "control": log / "control",
        "falaj.json": store / "falaj.json",
        "topic.json": store / "topics/t/topic.json",
    }[what]


def truncate(path: Path, other: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path, other: Path) -> None:
    os.truncate(path, 0)


def swap(path: Path, other: Path) -> None:
    """Exchange it with the file next to it: one of its kind, if there is one."""
    kin = [p for p in sorted(path.parent.iterdir()) if p != path and p.suffix == path.suffix]
    beside = (kin or [path.parent / "lock", path.parent.parent / "presence"])[0]
    if not beside.exists():
        beside = next(p for p in sorted(path.parents[2].iterdir()) if p.is_file())
    aside = path.with_name("aside")
    path.rename(aside)
    beside.rename(path)
    aside.rename(beside)


def flip(path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.find(value(600)[:8]) if path.suffix == ".log" else -1
    data[at if at >= 0 else len(data) // 3] ^= 1
    path.write_bytes(data)


def foreign(path: Path, other: Path) -> None:
    shutil.copyfile(other, path)


def garbage(path: Path, other: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def replace(path: Path, other: Path) -> None:
    """Put a copy in its place, as editors and backups do."""
    shutil.copyfile(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def remove(path: Path, other: Path) -> None:
    path.unlink()


Damage = Callable[[Path, Path], None]
DAMAGES: tuple[Damage, ...] = (truncate, empty, swap, flip, foreign, garbage, remove)


def printed(ended: Ended) -> int:
    """How many records were printed; each must be the one that was written there."""
    lines = ended.out.encode().splitlines()
    assert lines == [value(n) for n in range(len(lines))]
    return len(lines)


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_was_replaced_by_a_copy_changes_nothing(shell: Shell, what: str) -> None:
    path = file(shell.folder / "s", what)
    replace(path, path)
    assert printed(Ended(0, shell.ok("cat", "-s", "s", "t"))) == RECORDS
    shell.ok("append", "-s", "s", "t", given=value(RECORDS))
    assert printed(Ended(0, shell.ok("cat", "-s", "s", "t"))) == RECORDS + 1


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("what", HARMLESS)
def test_what_is_derived_is_made_anew(shell: Shell, what: str, damage: Damage) -> None:
    damage(file(shell.folder / "s", what), file(shell.folder / "other", what))
    assert printed(Ended(0, shell.ok("cat", "-s", "s", "t"))) == RECORDS
    shell.ok("append", "-s", "s", "t", given=value(RECORDS))
    assert printed(Ended(0, shell.ok("cat", "-s", "s", "t"))) == RECORDS + 1


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("what", ["oldest", "sealed", "active"])
def test_a_damaged_segment_is_named_and_all_before_it_is_read(
    shell: Shell, what: str, damage: Damage
) -> None:
    path = file(shell.folder / "s", what)
    other = file(shell.folder / "other", what)
    before = {p.name: p.read_bytes() for p in path.parent.glob("*.log") if p != path}
    damage(path, other)
    ended = shell("cat", "-s", "s", "t")
    assert ended.code == 1
    assert re.search(r"0000000000000000000\d\.log is corrupt at byte \d+: ", ended.sentence())
    assert "run `falaj verify`" in ended.sentence()
    assert printed(ended) < RECORDS
    # An append is refused, or continues past all existing records, which stay unchanged.
    appended = shell("append", "-s", "s", "t", "--json", given=value(RECORDS))
    if appended.code:
        assert appended.code == 1
        assert " is corrupt at byte " in appended.sentence()
    else:
        assert json.loads(appended.out)["offsets"][0]["first"] >= RECORDS
    assert shell("cat", "-s", "s", "t").code == 1
    if damage is not swap:
        for name, data in before.items():
            segment = (path.parent / name).read_bytes()
            written = data[HEADER:].rstrip(b"\0")
            assert segment[HEADER:].startswith(written), name


@pytest.mark.parametrize("damage", [truncate, empty, swap, flip, garbage])
@pytest.mark.parametrize("what", ["falaj.json", "topic.json"])
def test_damaged_settings_are_named_and_nothing_is_touched(
    shell: Shell, what: str, damage: Damage
) -> None:
    path = file(shell.folder / "s", what)
    damage(path, path)
    logs = shell.folder / "s/logs"
    before = {p: p.read_bytes() for p in logs.rglob("*.log")}
    for verb in (["cat", "-s", "s", "t"], ["append", "-s", "s", "t"], ["topic", "list", "-s", "s"]):
        ended = shell(*verb, given=b"new")
        assert (ended.code, ended.out) == (1, "")
        assert " is corrupt at byte 0: " in ended.sentence()
        assert what in ended.sentence()
    assert {p: p.read_bytes() for p in logs.rglob("*.log")} == before


def test_settings_of_another_store_are_refused_where_they_name_what_is_not_there(
    shell: Shell,
) -> None:
    foreign(file(shell.folder / "s", "falaj.json"), file(shell.folder / "other", "falaj.json"))
    assert (
        printed(Ended(0, shell.ok("cat", "-s", "s", "t"))) == RECORDS
    )  # it differs in the id alone
    foreign(file(shell.folder / "s", "topic.json"), file(shell.folder / "other", "topic.json"))
    ended = shell("cat", "-s", "s", "t")
    assert (ended.code, ended.out) == (1, "")
    assert "the topic's log is missing" in ended.sentence()
    assert shell("append", "-s", "s", "t", given=b"new").code == 1
    assert len(list(shell.folder.glob("s/logs/t@*/*.log"))) == 4  # unnamed logs are not swept


def test_a_topic_without_its_settings_is_not_there_and_its_records_are_not_swept(
    shell: Shell,
) -> None:
    settings = file(shell.folder / "s", "topic.json")
    kept = settings.read_bytes()
    settings.unlink()
    ended = shell("cat", "-s", "s", "t")
    assert ended.code == 2
    assert "there is no topic 't' in " in ended.sentence()
    shell.ok("append", "-s", "s", "other", given=b"the next writer sweeps")
    (shell.folder / "s/topics/t").mkdir(exist_ok=True)
    settings.write_bytes(kept)
    assert printed(Ended(0, shell.ok("cat", "-s", "s", "t"))) == RECORDS


def test_a_store_without_its_settings_is_not_made_anew(shell: Shell) -> None:
    (shell.folder / "s/falaj.json").unlink()
    for verb in (["cat", "-s", "s", "t"], ["append", "-s", "s", "t"]):
        ended = shell(*verb, given=b"new")
        assert ended.code == 2
        assert "s is not a falaj store: " in ended.sentence()
        assert "falaj.json" in ended.sentence()
    assert len(list(shell.folder.glob("s/logs/t@*/*.log"))) == 4


@pytest.mark.parametrize("what", ["falaj.json", "topic.json"])
def test_a_newer_version_says_to_upgrade(shell: Shell, what: str) -> None:
    path = file(shell.folder / "s", what)
    newer = path.read_text().replace('"format":2', '"format":9').rpartition(',"checksum"')[0]
    path.write_text(f'{newer},"checksum":"{zlib.crc32(newer.encode()):08x}"}}\n')
    for verb in (["cat", "-s", "s", "t"], ["append", "-s", "s", "t"]):
        ended = shell(*verb, given=b"new")
        assert ended.code == 3
        told = f"{what} needs a newer falaj (format version 9, and this falaj reads 2): upgrade"
        assert told in ended.sentence()


def test_what_looks_after_a_store_ends_with_the_code_of_what_helps(shell: Shell) -> None:
    path = file(shell.folder / "s", "topic.json")
    newer = path.read_text().replace('"format":2', '"format":9').rpartition(',"checksum"')[0]
    path.write_text(f'{newer},"checksum":"{zlib.crc32(newer.encode()):08x}"}}\n')
    verbs = (
        ["info", "-s", "s"],
        ["maintain", "-s", "s"],
        ["repair", "-s", "s"],
        ["topic", "list", "-s", "s"],
    )
    for verb in verbs:
        ended = shell(*verb)
        assert (ended.code, "upgrade to read it" in ended.sentence()) == (3, True), verb
    (shell.folder / "s/topics/hurt").mkdir()
    (shell.folder / "s/topics/hurt/topic.json").write_text("{}")
    for verb in verbs:
        assert shell(*verb).code == 1, f"corruption counts for more: {verb}"


def test_an_unknown_setting_is_not_ignored(shell: Shell) -> None:
    path = file(shell.folder / "s", "topic.json")
    more = path.read_text().rpartition(',"checksum"')[0] + ',"colour":"red"'
    path.write_text(f'{more},"checksum":"{zlib.crc32(more.encode()):08x}"}}\n')
    ended = shell("cat", "-s", "s", "t")
    assert ended.code == 3
    assert "a setting of a newer version" in ended.sentence()


# --- Invalid stores and names ---------------------------------------------------------------------


def test_something_else_is_not_a_store_and_stays_as_it_is(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "file").write_text("text")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/diary").write_text("text")
    for place, why in [("file", "it is not a directory"), ("home", "it holds no falaj.json")]:
        for verb in (
            ["cat", "-s", place, "t"],
            ["append", "-s", place, "t"],
            ["topic", "list", "-s", place],
        ):
            ended = shell(*verb, given=b"x")
            assert ended.code == 2
            assert f"{place} is not a falaj store: {why}" in ended.sentence()
    assert [p.name for p in sorted(tmp_path.rglob("*"))] == ["file", "home", "diary"]
    assert "there is no store at nothing" in shell("cat", "-s", "nothing", "t").sentence()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../t", "ü", "a b", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused(tmp_path: Path, name: str) -> None:
    shell = Shell(tmp_path)
    ended = shell("append", "-s", "s", name, given=b"x")
    assert ended.code == 2
    assert "cannot name a topic: " in ended.sentence()
    assert [p.name for p in tmp_path.iterdir()] == []
    falaj.open(tmp_path / "s").close()
    assert shell("cat", "-s", "s", name).code == 2


def test_a_directory_that_is_missing_above_is_named(tmp_path: Path) -> None:
    ended = Shell(tmp_path)("append", "-s", "nowhere/s", "t", given=b"x")
    assert ended.code == 2
    assert f"directory {tmp_path / 'nowhere'}" in ended.sentence()


# --- Locks and slots -----------------------------------------------------------------------------


def test_a_lock_that_is_not_free_in_time_is_an_error(shell: Shell) -> None:
    with (shell.folder / "s/claim").open("r+b") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        ended = shell("--lock-timeout", "0.2", "append", "-s", "s", "t", given=b"x")
        assert ended.code == 4
        assert re.search(r"claim was not free within \d+(\.\d+)?.?s", ended.sentence())
        assert "wait longer or look at that process" in ended.sentence()
        assert printed(Ended(0, shell.ok("cat", "-s", "s", "t"))) == RECORDS  # readers need no lock
    shell.ok("append", "-s", "s", "t", given=value(RECORDS))


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_when_all_slots_are_taken_it_says_so(shell: Shell) -> None:
    slots = shell.folder / "s/slots"
    taken = [os.open(slots / str(n), os.O_RDWR | os.O_CREAT, 0o600) for n in range(1024)]
    try:
        for descriptor in taken:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with (shell.folder / "s/presence").open("r+b") as presence:
            fcntl.flock(presence, fcntl.LOCK_SH)
            ended = shell("append", "-s", "s", "t", given=b"x")
        assert ended.code == 3
        assert "all 1024 slots for writing processes in " in ended.sentence()
        assert printed(Ended(0, shell.ok("cat", "-s", "s", "t"))) == RECORDS
    finally:
        for descriptor in taken:
            os.close(descriptor)
    shell.ok("append", "-s", "s", "t", given=value(RECORDS))
