"""Every option and argument of every command refuses every wrong value, in one sentence.

The commands come from the program's own tables, so a new one is tried as well. A pipeline is tried
with a topic that is missing: it ends before Spark starts.
"""

import shutil
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from state import state

import falaj
from cli.shell import Ended, Shell
from falaj.cli import registry
from falaj.cli.arguments import Argument, Command, Option

VALUES = {
    "nothing": "",
    "a word": "walnut",
    "a number": "5",
    "negative": "-1",
    "far negative": "-" + "9" * 40,
    "2**63": str(2**63),
    "2**64": str(2**64),
    "thousands of digits": "9" * 5000,
    "a fraction": "1.5",
    "digits of another script": "\u0665",
    "a span of another script": "\u0665m",
    "nan": "nan",
    "infinity": "inf",
    "two lines": "a\nb",
    "no UTF-8": "\udcff",
    "a name of no UTF-8": "\udcff=x",
    "a long word": "x" * 5000,
}
#: Those that the many options of pipelines are tried with.
FEW = {"nothing", "a word", "negative", "thousands of digits", "no UTF-8", "a name of no UTF-8"}
NUMBERS = {"a number", "2**63", "2**64", "thousands of digits"}
NO_UTF_8 = {"no UTF-8", "a name of no UTF-8"}
OTHER_DIGITS = {"digits of another script", "a span of another script"}
TEXTS = set(VALUES) - NO_UTF_8
NAMES = {"a word", "a fraction", "nan", "infinity", "negative", "far negative"} | NUMBERS

#: Values that may be right: by metavar, or by command and option.
FINE: dict[str, set[str]] = {
    "BACKUP": set(),
    "CODEC": set(),
    "FILE": set(),
    "FORM": set(),
    "FROM": set(),
    "GROUP": NAMES,
    "ID": set(),
    "KEY": TEXTS | NO_UTF_8,
    "LOG": NAMES,
    "MODE": set(),
    "MS": {"a number"},
    "N": {"a number"},
    "NAME": TEXTS,
    "NAME=VALUE": TEXTS,  # a name alone is a header without a value
    "OFFSET": {"a number", "negative"},
    "ORDER": set(),
    "ORIGIN": set(),  # a directory of a store has none to choose from
    "P": {"a number"},
    "PATH": TEXTS,
    "PATTERN": NAMES,
    "PLACE": {"a number", "negative", "a fraction"},
    "PRODUCER": TEXTS,
    "QUEUE": NAMES,
    "REGEX": set(VALUES),  # values are bytes, and so are patterns and templates
    "SECONDS": {"a number", "a fraction"},
    "SHELL": set(),
    "SIZE": {"a number"},
    "SPAN": {"a number", "a fraction", "2**63", "2**64"},
    "TEXT": set(VALUES),
    "TIME": {"a number", "a fraction"},
    "TO": NAMES | {"two lines"} | OTHER_DIGITS | NO_UTF_8,
    "TOPIC": NAMES,
    "append --key-delimiter": TEXTS,
    "place list PLACE": set(VALUES),
    "place verify PLACE": set(),
    "ship PLACE": set(VALUES),
    "queue put --delay": {"a number", "a fraction"},
    "cat --to": {"a number", "negative", "far negative", *NUMBERS},
    "cat --limit": NUMBERS,
}

#: The right words of a command, and its input.
RIGHT: dict[str, list[str]] = {
    "append": ["orders"],
    "backup": ["copy"],
    "cat": ["orders"],
    "completion": ["bash"],
    "config": [],
    "group delete": ["idle"],
    "group describe": ["idle"],
    "group forget": ["idle", "orders"],
    "group list": [],
    "group seek": ["idle", "orders", "--to", "earliest"],
    "info": [],
    "maintain": [],
    "metrics": [],
    "place list": ["place"],
    "place verify": ["place"],
    "producer forget": ["orders", "till"],
    "producer list": ["orders"],
    "queue create": ["new"],
    "queue list": [],
    "queue put": ["jobs"],
    "queue redrive": ["jobs"],
    "queue reset": ["jobs"],
    "queue take": ["jobs", "--timeout", "0"],
    "repair": [],
    "restore": ["copy"],
    "ship": ["place", "--once"],
    "tail": ["orders", "--idle", "0"],
    "topic compact": ["prices"],
    "topic config": ["orders"],
    "topic create": ["new"],
    "topic delete": ["orders"],
    "topic describe": ["orders"],
    "topic finish": ["orders"],
    "topic list": [],
    "topic trim": ["orders", "--before", "1"],
    "verify": [],
    "pipeline aggregate": ["missing"],
    "pipeline compact": ["missing"],
    "pipeline dedupe": ["missing", "fewer"],
    "pipeline export": ["missing", "folder"],
    "pipeline import": ["fresh", "missing.parquet"],
    "pipeline join": ["missing"],
    "pipeline profile": ["missing"],
    "pipeline replay": ["missing", "again"],
}
#: Not tried, and why.
LEFT_OUT = {
    "serve": "another program's words",
    "queue take --run": "a command of the shell, which has its own errors",
    "demo": "it runs for minutes where a value is right; test_program.py has its wrong values",
}


def commands() -> Iterator[tuple[str, Command]]:
    for name in registry.NAMES:
        found = registry.load(name)
        if isinstance(found, Command):
            yield name, found
        else:
            yield from ((f"{name} {each}", command) for each, command in found.commands.items())


COMMANDS = dict(commands())


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "template"
    with falaj.open(folder.parent / "s") as store:
        orders = store.topic("orders", codec="str")
        orders.extend(["one", "two", "three"], sync="durable")
        orders.append("four", producer="till", sequence=1)
        store.topic("prices", compacted=True).append(b"3", key=b"tea")
        store.queue("jobs", max_attempts=3).put(b"resize 1.png")
        store.consumer("idle", "orders").close()
    folder.mkdir()
    (folder.parent / "s").rename(folder / "s")
    return folder


def words(title: str, given: Option | Argument, value: str) -> list[str]:
    takes_store = any(option.shown == "--store" for option in COMMANDS[title].options)
    store = ["-s", "s"] if takes_store else []
    right = [*title.split(), *store, *RIGHT[title]]
    if isinstance(given, Option):
        if given.shown in right:  # instead of the right value
            at = right.index(given.shown)
            del right[at : at + 2]
        return [*right, f"{given.shown}={value}"]
    positional = list(takewhile(lambda word: not word.startswith("-"), RIGHT[title]))
    at = [each.to for each in COMMANDS[title].arguments].index(given.to)
    options = RIGHT[title][len(positional) :]
    positional[at : at + 1] = [value]
    return [*title.split(), *store, *options, "--", *positional]


def complaint(ended: Ended, label: str, is_fine: bool) -> str | None:
    if "Traceback" in ended.err:
        return f"shows a traceback: {ended.err.splitlines()[-1]}"
    if ended.code == 0:
        return None if is_fine else "succeeds"
    if ended.code == 3 and label in ("a long word", "thousands of digits"):
        return None  # the machine has no names that long
    if ended.code not in (1, 2):
        return f"ends with {ended.code}: {ended.err}"
    lines = [line for line in ended.err.splitlines() if line.startswith("falaj: ")]
    if len(lines) != 1 or len(ended.err.splitlines()) != 1:
        return f"says no sentence: {ended.err!r}"
    return None


def _marked(title: str) -> Any:
    marks = [pytest.mark.proof, pytest.mark.timeout(900)] if title.startswith("pipeline") else []
    return pytest.param(title, marks=marks)


@pytest.mark.parametrize("title", [_marked(title) for title in COMMANDS if title not in LEFT_OUT])
def test_a_wrong_value_on_the_command_line_is_one_sentence_and_changes_nothing(
    title: str, template: Path, tmp_path: Path
) -> None:
    assert title in RIGHT, f"RIGHT does not say how `falaj {title}` is called"
    command = COMMANDS[title]
    found = []
    folder = tmp_path / "folder"
    before: Any = None
    tried: list[Option | Argument] = [option for option in command.options if option.metavar]
    for given in [*tried, *command.arguments]:
        name = given.shown if isinstance(given, Option) else given.metavar
        if f"{title} {name}" in LEFT_OUT:
            continue
        fine = FINE.get(f"{title} {name}")
        if fine is None:
            fine = TEXTS if title.startswith("pipeline") else FINE.get(given.metavar)
        assert fine is not None, f"FINE does not say what {given.metavar} of {title} may be"
        few = title.startswith("pipeline")
        for label, value in VALUES.items():
            if few and label not in FEW:
                continue
            if not folder.exists():
                shutil.copytree(template, folder)
                before = state(folder, "s")
            done = Shell(folder).binary(*words(title, given, value), given=b"x\n")
            ended = Ended(done.returncode, "", done.stderr.decode(errors="replace"))
            wrong = complaint(ended, label, label in fine)
            if ended.code and state(folder, "s") != before:
                wrong = wrong or "was refused, and something changed"
            if wrong:
                found.append(f"falaj {title} {name}={label} {wrong}"[:300])
            if wrong or not ended.code:
                shutil.rmtree(folder)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("title", ["append", "queue create", "topic create"])
def test_a_wrong_value_creates_no_store(title: str, tmp_path: Path) -> None:
    command = COMMANDS[title]
    tried: list[Option | Argument] = [option for option in command.options if option.metavar]
    found = []
    for given in [*tried, *command.arguments]:
        name = given.shown if isinstance(given, Option) else given.metavar
        if name == "--store" or f"{title} {name}" in FINE:
            continue
        for label in VALUES.keys() - FINE[given.metavar]:
            done = Shell(tmp_path).binary(*words(title, given, VALUES[label]), given=b"")
            if not done.returncode or list(tmp_path.iterdir()):
                found.append(f"falaj {title} {name}={label}: {done.stderr.decode()}")
                shutil.rmtree(tmp_path / "s", ignore_errors=True)
    assert not found, "\n" + "\n".join(found)
