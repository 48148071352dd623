"""A hundred thousand names of every kind: none makes a path outside of the store, or a wrong one.

What a topic may be called is a plain rule, which is written here a second time. A name that breaks
it is refused before anything is made; one that keeps it is a topic of exactly that name.
"""

import os
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import falaj
from cli.shell import Shell
from falaj.errors import BadName, NoSuchTopic

NAMES = 100_000
RULE = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}", re.ASCII)
PLAIN = string.ascii_letters + string.digits + "._-"
PARTS = [
    *(
        "",
        ".",
        "..",
        "...",
        "/",
        "//",
        "\\",
        "../",
        "/..",
        "..\\",
        "./",
        "~",
        "~root",
        "$HOME",
        "@",
    ),
    *(
        "\0",
        "a\0b",
        "\n",
        "\r\n",
        "\t",
        " ",
        "\x7f",
        "\x1b[2J",
        "\x85",
        "\u2028",
        "\ufeff",
        "\u202e",
    ),
    *("CON", "nul", "AUX.txt", "COM1", "LPT9.", "con ", "C:", "C:\\", "\\\\.\\pipe\\x", "::$DATA"),
    *(
        "%2e%2e%2f",
        "%00",
        "..%c0%af",
        "\u2024\u2024\u2215",
        "\uff0e\uff0e\uff0f",
        "\u2025",
        "\u2044",
    ),
    *(
        "\u0430dmin",
        "\u2010",
        "\u00ad",
        "\u200b",
        "\u0660",
        "\u00e9",
        "e\u0301",
        "\u212a",
        "\u017f",
    ),
    *("\ud800", "\udcff", "\udc2f", "\udfff\ud800", "\U0001f40d", "\U0010ffff"),
    *(
        "*",
        "?",
        "[a-z]",
        "{a,b}",
        "|",
        ";",
        "&",
        "`id`",
        "$(id)",
        "'",
        '"',
        "<",
        ">",
        "!",
        "#",
        "=",
    ),
    *(
        "-rf",
        "--help",
        "-",
        "_",
        "a.tmp",
        "a.deleted",
        "topic.json",
        "falaj.json",
        "logs",
        "topics",
    ),
    *("slots", "control", "lock", "00000000000000000000.log", "x@" + "0" * 32, "orders", "A", "0"),
]
STRANGE_FILES = [
    *(
        "README",
        ".hidden",
        "a.tmp.bak",
        "5.log",
        "000.idx",
        "next.tmp",
        "notes.tmp",
        "next.01.tmp",
        "Control",
    ),
    *("topic.json~", "x@y", "x@" + "0" * 31, "99999", "-1", "01", "core.12", "..."),
]


def names(seed: int) -> Iterator[str]:
    """Names, most of which no topic can have."""
    draw = random.Random(seed)
    while True:
        match draw.randrange(6):
            case 0:
                yield "".join(draw.choices(PARTS, k=draw.randrange(1, 5)))
            case 1:
                plain = "".join(draw.choices(PLAIN, k=draw.choice([1, 2, 8, 249])))
                at = draw.randrange(len(plain) + 1)
                yield plain[:at] + draw.choice(PARTS) + plain[at:]
            case 2:
                yield "".join(map(chr, draw.choices(range(0x250), k=draw.randrange(1, 12))))
            case 3:
                yield "".join(map(chr, draw.choices(range(0x110000), k=draw.randrange(1, 5))))
            case 4:
                yield draw.choice(PLAIN + "/.") * draw.choice([1, 2, 3, 248, 249, 250, 251, 4096])
            case _:
                yield "/".join(draw.choices(["..", ".", "etc", "passwd", "a", ""], k=4))


def everything(folder: Path) -> set[bytes]:
    """All names below a directory, as bytes."""
    found = set()
    for at, directories, files in os.walk(os.fsencode(folder)):
        found |= {os.path.join(at, name) for name in directories + files}
    return found


@pytest.mark.timeout(300)
def test_no_name_makes_a_path_that_is_not_its_topics(place: Path, first_seed: int) -> None:
    """Refused names leave nothing behind; what is left, and only that, could be a topic."""
    path = place / "a/b/store"
    path.parent.mkdir(parents=True)
    verdicts: Counter[bool] = Counter()
    with falaj.open(path) as store, falaj.open(path, "r") as reader:
        before = everything(place)
        creates: Callable[[str], object] = store.topic
        for n, name in zip(range(NAMES), names(first_seed + 1), strict=False):
            fits = bool(RULE.fullmatch(name))
            verdicts[fits] += 1
            calls: list[Callable[[str], object]] = [reader.topic, store.delete]
            for call in calls if fits else [*calls, creates]:
                with pytest.raises(NoSuchTopic if fits else ValueError):
                    call(name)
            if n % 1000 == 0:
                assert everything(place) == before
        assert everything(place) == before
        assert store.topics() == []
    assert min(verdicts.values()) > NAMES // 20


def test_refusal_of_a_name_is_a_bad_name_that_shows_it_on_one_line(store: falaj.Store) -> None:
    for name in ("a/b", "..", "", "x" * 250, "a\nb", "\x1b[2J", "\u202e", "\ud800", "\udcff"):
        with pytest.raises(BadName) as raised:
            store.topic(name)
        assert str(raised.value).isprintable()


def test_names_that_fit_are_topics_of_exactly_that_name(place: Path, path: Path) -> None:
    fitting = [name for name in PARTS if RULE.fullmatch(name)]
    fitting += ["x" * 249, "." * 249, "a.deleted.tmp", "orders@", "ORDERS", "Orders"]
    fitting = [name for name in fitting if RULE.fullmatch(name)]
    with falaj.open(path) as store:
        for name in fitting:
            assert store.topic(name, codec="str", segment_bytes=1 << 16).append(name) == 0
    with falaj.open(path) as store:  # who is alone sweeps
        assert store.topics() == sorted(fitting)
        for name in fitting:
            assert store.topic(name)[0].value == name
        copies = store.backup(place / "copy")["topics"]
        assert copies == len(fitting)
        for name in fitting:
            store.delete(name)
        assert store.topics() == []
    assert {p.name for p in place.iterdir()} == {"store", "copy"}
    assert list((path / "topics").iterdir()) == []
    assert list((path / "logs").iterdir()) == []


@pytest.mark.timeout(600)
def test_the_program_makes_no_path_of_a_name_either(
    place: Path, budget: Callable[[int, int], int], first_seed: int
) -> None:
    shell = Shell(place / "a")
    shell.folder.mkdir()
    shell.ok("append", "s", "good", given=b"x")
    before = everything(place)
    sample = (n for n in names(first_seed + 2) if "\0" not in n and not RULE.fullmatch(n))
    for name in (next(sample) for _ in range(budget(4, 60))):
        # Bytes that are not UTF-8 reach a program as surrogate escapes.
        try:
            argument = os.fsencode(name)
        except UnicodeEncodeError:
            continue
        given = os.fsdecode(argument)
        for verb in (["append", "s", "--", given], ["cat", "s", "--", given]):
            ended = shell(*verb, given=b"x")
            assert ended.code == 2, ended
            assert "Traceback" not in ended.err
        assert everything(place) == before


def test_strange_files_in_a_store_stay_and_are_nobodys_business(path: Path) -> None:
    with falaj.open(path) as store:
        store.topic("t", segment_bytes=1 << 16).append(bytes(15_000))
        store.topic("gone").append(b"x")
    (log,) = path.glob("logs/t@*")
    planted = []
    folders = [path / name for name in ("topics", "topics/t", "logs", "slots", "consumers")]
    for folder in (*folders, log, log / "quarantine"):
        # What stands in topics/ under a name that a topic can have is one, and then a damaged one.
        ours = [] if folder.name == "topics" else map(os.fsencode, STRANGE_FILES)
        for name in [*ours, b"\xff\xfe", b"a\nb", b"\xc3", b"x" * 255]:
            planted.append(os.path.join(os.fsencode(folder), name))
            with open(planted[-1], "wb") as file:
                file.write(b"mine")
    for _ in range(2):
        with falaj.open(path) as store:
            topic = store.topic("t")
            for _ in range(5):
                topic.append(bytes(15_000))
            assert {record.bytes() for record in topic} == {bytes(15_000)}
            assert set(store.topics()) <= {"t", "gone"}
        falaj.verify(path)
        falaj.repair(path, dry_run=False)
    with falaj.open(path) as store:
        store.delete("gone")
        store.delete("t")
    for name in planted:
        with open(name, "rb") as file:
            assert file.read() == b"mine"
