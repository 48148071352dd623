"""A hundred thousand names of every kind: none makes a path outside the store, or a wrong one.

The rule for topics' names is plain, and is written here a second time. Groups, queues and logs
follow it too; bulk loads and their parts follow a shorter one. A name that breaks it is refused
before anything is created. A valid name makes a topic of exactly that name, or a group.
"""

import itertools
import os
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import falaj
from cli.shell import Shell
from falaj.errors import (
    InvalidArgument,
    InvalidName,
    SettingsMismatch,
    UnknownGroup,
    UnknownQueue,
    UnknownTopic,
)

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
    """Names, most of them invalid for topics."""
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


Call = Callable[[str], object]
Rule = Callable[[str], bool]


def refusal(call: Call, name: str) -> type[falaj.Error] | None:
    """The class of a call's error for a name; None if it accepts the name."""
    try:
        call(name)
    except falaj.Error as error:
        return type(error)
    return None


def fits(name: str) -> bool:
    return bool(RULE.fullmatch(name))


def fits_a_job(name: str) -> bool:
    """The limit is lower for a bulk load and its parts, as suffixes are added to their names."""
    return fits(name) and len(name) <= 200


@dataclass(frozen=True)
class Taker:
    """A call that takes names, and its answer to a valid name of something that does not exist."""

    call: Call
    says: type[falaj.Error] | None
    refuses: type[falaj.Error] = InvalidName
    makes: bool = False
    """True if it would create something of that name, so that only invalid names are for it."""
    fits: Rule = fits


def takers(store: falaj.Store, reader: falaj.Store) -> list[Taker]:
    """All calls whose name argument becomes the name of a file or a directory."""
    topic = store.topic("t")
    of_job = partial(Taker, refuses=InvalidArgument, fits=fits_a_job)
    return [
        Taker(reader.topic, UnknownTopic),
        Taker(store.delete_topic, UnknownTopic),
        Taker(store.any_topic, UnknownTopic),
        Taker(store.topic, None, makes=True),
        Taker(lambda name: store.partitioned_topic(name, partitions=2), None, makes=True),
        Taker(lambda name: store.topic("t", log=name), SettingsMismatch),
        Taker(lambda name: store.topic("u", log=name), None, makes=True),
        Taker(lambda name: store.consumer(name, [topic]), None, makes=True),
        Taker(store.delete_group, UnknownGroup),
        Taker(lambda name: store.queue(name, topic), None, makes=True),
        Taker(store.delete_queue, UnknownQueue),
        of_job(lambda name: topic.stage(name, "0"), None, makes=True),
        of_job(lambda name: topic.stage("job", name), None, makes=True),
        of_job(topic.abort_bulk_load, None),
    ]


@pytest.mark.timeout(300)
def test_no_name_makes_a_path_that_is_not_its_topics(place: Path, first_seed: int) -> None:
    """Refused names leave nothing behind; every name that is left could be a topic's."""
    path = place / "a/b/store"
    path.parent.mkdir(parents=True)
    verdicts: Counter[tuple[Rule, bool]] = Counter()
    with falaj.open(path) as store, falaj.open(path, read_only=True) as reader:
        store.topic("t", segment_bytes=1 << 16)
        before = everything(place)
        asked = takers(store, reader)
        # An existing topic's name is not for something missing.
        drawn = (name for name in names(first_seed + 1) if name != "t")
        for n, name in zip(range(NAMES), drawn, strict=False):
            good: dict[Rule, bool] = {rule: rule(name) for rule in (fits, fits_a_job)}
            verdicts.update(good.items())
            for taker in asked:
                if not (good[taker.fits] and taker.makes):
                    said = refusal(taker.call, name)
                    assert said is (taker.says if good[taker.fits] else taker.refuses), name
            if n % 1000 == 0:
                assert everything(place) == before
        assert everything(place) == before
        assert list(store.topics) == ["t"]
    assert len(verdicts) == 4
    assert min(verdicts.values()) > NAMES // 20


@dataclass(frozen=True)
class Maker:
    """A call that creates something by name, the one that removes it, and its path."""

    make: Call
    unmake: Call
    where: Callable[[str], str]
    """Pattern of all its paths below the store."""
    fits: Rule = fits


def makers(store: falaj.Store) -> dict[str, Maker]:
    """Ways to create a file or a directory by name, except topics."""
    topic: falaj.Topic[Any] = store.topic("t")
    staged = "logs/t@[0-9a-f]{32}/staging/"

    def stage(job: str, part: str) -> None:
        staging = topic.stage(job, part)
        staging.append(b"x")
        staging.finish()

    return {
        "consumer": Maker(
            lambda name: store.consumer(name, [topic]).close(),
            store.delete_group,
            lambda name: f"consumers/{re.escape(name)}",
        ),
        "queue": Maker(
            lambda name: store.queue(name, topic).close(),
            store.delete_queue,
            lambda name: f"queues/{re.escape(name)}",
        ),
        "log": Maker(
            lambda name: store.topic("u", log=name, segment_bytes=1 << 16).close(),
            lambda _: store.delete_topic("u"),
            lambda name: f"topics/u(/.*)?|logs/{re.escape(name[:200])}@[0-9a-f]{{32}}(/.*)?",
        ),
        "job": Maker(
            lambda name: stage(name, "0"),
            topic.abort_bulk_load,
            lambda name: f"{staged}{re.escape(name)}@0(/0[.][0-9a-f]{{16}}[.]part)?",
            fits_a_job,
        ),
        "part": Maker(
            lambda name: stage("job", name),
            lambda _: topic.abort_bulk_load("job"),
            lambda name: f"{staged}job@0(/{re.escape(name)}[.][0-9a-f]{{16}}[.]part)?",
            fits_a_job,
        ),
    }


@pytest.mark.timeout(300)
def test_a_valid_name_makes_exactly_its_files_and_they_are_removed_again(
    place: Path, path: Path, budget: Callable[[int, int], int], first_seed: int
) -> None:
    made: Counter[str] = Counter()
    drawn = (name for name in names(first_seed + 3) if RULE.fullmatch(name) and name != "t")
    with falaj.open(path) as store:
        store.topic("t", segment_bytes=1 << 16)
        ways = makers(store)
        for way in ways.values():  # some folders are created with their first entry
            way.make("first")
            way.unmake("first")
        before = everything(place)
        for name in itertools.islice(drawn, budget(60, 600)):
            for kind, way in ways.items():
                if not way.fits(name):
                    assert refusal(way.make, name) is InvalidArgument, (kind, name)
                    continue
                way.make(name)
                new = {os.fsdecode(one) for one in everything(place) - before}
                below = {os.path.relpath(one, path) for one in new}
                strange = [one for one in below if not re.fullmatch(way.where(name), one)]
                assert below, (kind, name)
                assert not strange, (kind, name)
                way.unmake(name)
                assert everything(place) == before, (kind, name)
                made[kind] += 1
    assert made.keys() == ways.keys()
    assert min(made.values()) >= budget(30, 300)


def test_refusal_of_a_name_is_a_bad_name_that_shows_it_on_one_line(store: falaj.Store) -> None:
    for name in ("a/b", "..", "", "x" * 250, "a\nb", "\x1b[2J", "\u202e", "\ud800", "\udcff"):
        with pytest.raises(InvalidName) as raised:
            store.topic(name)
        assert str(raised.value).isprintable()


def test_names_that_fit_are_topics_of_exactly_that_name(place: Path, path: Path) -> None:
    fitting = [name for name in PARTS if RULE.fullmatch(name)]
    fitting += ["x" * 249, "." * 249, "a.deleted.tmp", "orders@", "ORDERS", "Orders"]
    fitting = [name for name in fitting if RULE.fullmatch(name)]
    with falaj.open(path) as store:
        for name in fitting:
            assert store.topic(name, codec="str", segment_bytes=1 << 16).append(name) == 0
    with falaj.open(path) as store:  # a process that is alone sweeps
        assert list(store.topics) == sorted(fitting)
        for name in fitting:
            assert store.topic(name)[0].value == name
        copies = store.backup(place / "copy")["topics"]
        assert copies == len(fitting)
        for name in fitting:
            store.delete_topic(name)
        assert list(store.topics) == []
    assert {p.name for p in place.iterdir()} == {"store", "copy"}
    assert list((path / "topics").iterdir()) == []
    assert list((path / "logs").iterdir()) == []


@pytest.mark.timeout(600)
def test_the_program_makes_no_path_of_a_name_either(
    place: Path, budget: Callable[[int, int], int], first_seed: int
) -> None:
    shell = Shell(place / "a")
    shell.folder.mkdir()
    shell.ok("append", "-s", "s", "good", given=b"x")
    before = everything(place)
    sample = (n for n in names(first_seed + 2) if "\0" not in n and not RULE.fullmatch(n))
    for name in (next(sample) for _ in range(budget(4, 60))):
        # Bytes that are not UTF-8 reach a program as surrogate escapes.
        try:
            argument = os.fsencode(name)
        except UnicodeEncodeError:
            continue
        given = os.fsdecode(argument)
        for verb in (["append", "-s", "s", "--", given], ["cat", "-s", "s", "--", given]):
            ended = shell(*verb, given=b"x")
            assert ended.code == 2, ended
            assert "Traceback" not in ended.err
        assert everything(place) == before


def test_foreign_files_in_a_store_stay_and_are_ignored(path: Path) -> None:
    with falaj.open(path) as store:
        store.topic("t", segment_bytes=1 << 16).append(bytes(15_000))
        store.topic("gone").append(b"x")
    (log,) = path.glob("logs/t@*")
    planted = []
    folders = [path / name for name in ("topics", "topics/t", "logs", "slots", "consumers")]
    for folder in (*folders, log, log / "quarantine"):
        # A directory in topics/ with a valid name is a topic, and here a corrupt one.
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
            assert {record.to_bytes() for record in topic} == {bytes(15_000)}
            assert set(store.topics) <= {"t", "gone"}
        falaj.verify(path)
        falaj.repair(path, dry_run=False)
    with falaj.open(path) as store:
        store.delete_topic("gone")
        store.delete_topic("t")
    for name in planted:
        with open(name, "rb") as file:
            assert file.read() == b"mine"
