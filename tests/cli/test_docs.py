"""docs/cli.md is true: its examples run, and its tables are the program's."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import falaj as library
from cli.shell import PROGRAM, Shell
from falaj.cli import registry
from falaj.cli.arguments import Command, Group, Option
from falaj.cli.exits import Exit
from falaj.cli.options import ACCESS
from falaj.cli.remote_admin import INSTEAD
from falaj.cli.template import PARTS

PAGE = (Path(__file__).parents[2] / "docs/cli.md").read_text()


def examples() -> list[tuple[str, str]]:
    """(command, what it prints) in the order of the page."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.M | re.S):
        for command in re.split(r"^\$ ", block, flags=re.M)[1:]:
            line, _, printed = command.partition("\n")
            found.append((line, printed))
    return found


def matches(printed: str, written: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in written.split("…"))
    return re.fullmatch(pattern, printed) is not None


def test_the_examples_of_the_page_print_what_it_says(falaj: Shell) -> None:
    assert len(examples()) > 20
    environment = dict(falaj.environment)
    for command, written in examples():
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            environment[name] = value
            continue
        done = subprocess.run(
            ["bash", "-c", f'falaj() {{ "{PROGRAM}" "$@"; }}\n{command}'],
            cwd=falaj.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        assert matches(done.stdout, written), (command, done.stdout, written)


def test_an_example_that_prints_something_else_is_noticed() -> None:
    assert matches("a 12 b\n", "a … b\n")
    assert not matches("a 12 c\n", "a … b\n")
    assert not matches("a\nb\n", "a\n")


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found, title
    return found[1]


def options_of_page(title: str) -> set[str]:
    rows = re.findall(r"^\| (`-[^|]*) \|", section(title), re.M)
    return {name for row in rows for name in re.findall(r"`(-[\w-]+)`", row)}


def options_of(options: Sequence[Option]) -> set[str]:
    return {name for option in options for name in (*option.names, option.off) if name}


def every_command() -> dict[str, Command]:
    """All commands by what is typed for them."""
    found: dict[str, Command] = {}
    for name in registry.NAMES:
        loaded = registry.load(name)
        if isinstance(loaded, Group):
            found |= {f"{name} {each}": command for each, command in loaded.commands.items()}
        else:
            found[name] = loaded
    return found


COMMANDS = every_command()
SHARED = options_of(ACCESS)
OF_PLACES = ("place list", "place verify")  # they open no store


def test_the_page_lists_the_commands_that_there_are() -> None:
    listed = re.findall(r"^\| `([\w ]+)` \|", section("Commands"), re.M)
    assert listed == [name for name in COMMANDS if not name.startswith("pipeline ")] + ["pipeline"]


def test_the_page_lists_the_options_that_commands_of_a_store_have() -> None:
    assert options_of_page("The store") == SHARED


@pytest.mark.parametrize("name", [name for name in COMMANDS if not name.startswith("pipeline ")])
def test_the_page_lists_the_options_that_a_command_has(name: str) -> None:
    of = options_of(COMMANDS[name].options)
    assert of >= SHARED or name in ("serve", "demo", "completion", *OF_PLACES)
    assert options_of_page(name) == (of if name == "serve" else of - SHARED)


def test_the_page_lists_the_pipelines_that_there_are() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", section("pipeline"), re.M)
    assert [f"pipeline {name}" for name in listed] == [
        name for name in COMMANDS if name.startswith("pipeline ")
    ]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith("pipeline ")])
def test_the_page_lists_the_options_that_a_pipeline_has(name: str) -> None:
    listed = options_of_page(name) | options_of_page("pipeline")
    assert listed == options_of(COMMANDS[name].options)


def test_the_page_lists_the_parts_of_a_format() -> None:
    listed = re.findall(r"^\| `(%.)` \|", section("The format"), re.M)
    assert listed == list(PARTS)


def test_every_command_shows_its_help_in_80_columns(falaj: Shell) -> None:
    for name, command in COMMANDS.items():
        told = falaj.ok(*name.split(), "--help")
        assert told.startswith(f"Usage: falaj {name} "), told
        assert command.summary in " ".join(told.split())
        assert max(map(len, told.splitlines())) <= 80, told


def test_the_help_names_a_servers_url_only_where_the_command_takes_one() -> None:
    for name, command in COMMANDS.items():
        told = [option.help for option in command.options if option.to == "access.given"]
        if told and not name.startswith("pipeline "):
            assert ("server's URL" in told[0]) == (f"falaj {name}" not in INSTEAD), name


def test_the_page_lists_the_exit_codes_that_there_are() -> None:
    codes = re.findall(r"^\| (\d+) \|", section("Exit codes"), re.M)
    assert [int(code) for code in codes] == [code.value for code in Exit]


def test_the_page_lists_the_rows_that_info_prints(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        topic = store.topic("t")
        topic.configure(retention_records=1)
        store.consumer("c", [topic]).close()
        store.queue("q", topic=topic).close()
        store.ship(falaj.folder / "place", once=True)
    printed = dict.fromkeys(
        line.split("\t")[0] for line in falaj.ok("info", "-s", "s").splitlines()
    )
    assert re.findall(r"^\| `(\w+)` \|", section("info"), re.M) == list(printed)


def test_every_base_of_errors_has_an_exit_code() -> None:
    from falaj.cli.exits import _BY_BASE
    from falaj.errors import Error

    assert {base for base in Error.__subclasses__() if base.__module__ == Error.__module__} == set(
        _BY_BASE
    )
