"""docs/cli.md is true: its examples run, and its tables are the program's."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

import falaj as library
from cli.shell import PROGRAM, Shell
from falaj.cli.app import app
from falaj.cli.exits import Exit

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
    for command, written in examples():
        done = subprocess.run(
            ["bash", "-c", f'falaj() {{ "{PROGRAM}" "$@"; }}\n{command}'],
            cwd=falaj.folder,
            env=falaj.environment,
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


def options_of(parameters: list[Any]) -> set[str]:
    names = {
        name for parameter in parameters for name in [*parameter.opts, *parameter.secondary_opts]
    }
    return {name for name in names if name.startswith("-")} - HELP


HELP = {"--help", "--install-completion", "--show-completion"}
COMMAND: Any = typer.main.get_command(app)
VERBS = COMMAND.commands
PIPELINES = VERBS["pipeline"].commands
GROUP = VERBS["group"].commands


def test_the_page_lists_the_verbs_that_there_are() -> None:
    assert re.findall(r"^\| `(\w+)` \|", section("Verbs"), re.M) == list(VERBS)


@pytest.mark.parametrize("verb", [v for v in VERBS if v not in ("group", "pipeline")])
def test_the_page_lists_the_options_that_a_verb_has(verb: str) -> None:
    assert options_of_page(verb) == options_of(VERBS[verb].params)


def test_the_page_lists_the_pipelines_that_there_are() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", section("pipeline"), re.M)
    assert set(PIPELINES) == set(listed)


def test_the_page_lists_the_commands_of_group_and_their_options() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", section("group"), re.M)) == set(GROUP)
    assert options_of_page("group") == options_of([p for c in GROUP.values() for p in c.params])


@pytest.mark.parametrize("verb", list(PIPELINES))
def test_the_page_lists_the_options_that_a_pipeline_has(verb: str) -> None:
    options = options_of_page(f"pipeline {verb}") | options_of_page("pipeline")
    assert options == options_of(PIPELINES[verb].params)


def test_the_page_lists_the_options_in_front_of_the_verb() -> None:
    assert options_of_page("Options in front of the verb") == options_of(COMMAND.params)


def test_the_page_lists_the_exit_codes_that_there_are() -> None:
    codes = re.findall(r"^\| (\d+) \|", section("Exit codes"), re.M)
    assert [int(code) for code in codes] == [code.value for code in Exit]


def test_the_page_lists_the_rows_that_info_prints(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        topic = store.topic("t")
        topic.configure(retention_records=1)
        store.consumer("c", [topic]).close()
        store.queue("q", topic=topic).close()
    printed = dict.fromkeys(line.split("\t")[0] for line in falaj.ok("info", "s").splitlines())
    assert re.findall(r"^\| `(\w+)` \|", section("info"), re.M) == list(printed)


def test_every_remedy_has_an_exit_code() -> None:
    from falaj.cli.exits import _BY_REMEDY

    remedies = re.findall(r'"([a-z ]+)"', _remedy_doc())
    assert set(remedies) == set(_BY_REMEDY)


def _remedy_doc() -> str:
    from falaj.errors import Error

    found = re.search(r"remedy: What helps: (.*?)\n\s+path:", Error.__doc__ or "", re.S)
    assert found
    return found[1]
