"""`falaj completion`: the words that a shell offers."""

import shutil
import subprocess
from pathlib import Path

import pytest

import falaj as library
from cli.shell import PROGRAM, Shell
from falaj.cli import registry


@pytest.fixture
def shell(falaj: Shell) -> Shell:
    with library.open(falaj.folder / "s") as store:
        for name in ("orders", "returns"):
            store.topic(name)
        store.consumer("billing", "orders").close()
        store.queue("work", topic="orders").close()
    return falaj


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([""], list(registry.NAMES)),
        (["to"], ["topic"]),
        (["topic", "c"], ["create", "config", "compact"]),
        (["cat", "--of"], ["--offsets"]),
        (["cat", "--no-"], ["--no-offsets", "--no-keys"]),
        (["cat", "-s", "s", ""], ["orders", "returns"]),
        (["cat", "-s", "s", "orders", "r"], ["returns"]),
        (["-s", "s", "topic", "describe", "o"], ["orders"]),
        (["topic", "trim", "-s", "s", "orders", ""], []),
        (["group", "seek", "-s", "s", ""], ["billing"]),
        (["group", "seek", "-s", "s", "billing", "o"], ["orders"]),
        (["queue", "take", "-s", "s", "w"], ["work"]),
        (["cat", "-s", "nothing", ""], []),
        (["cat", ""], []),
        (["nonsense", ""], []),
        (["cat", "--nonsense", ""], []),
    ],
)
def test_what_may_come_next_is_offered(shell: Shell, words: list[str], offered: list[str]) -> None:
    assert shell.ok("__complete", *words).split() == offered


def test_the_variable_names_the_store_here_too(shell: Shell) -> None:
    assert shell("__complete", "cat", "", FALAJ_STORE="s").out == "orders\nreturns\n"


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_script_is_one_of_its_shell(shell: Shell, name: str) -> None:
    script = shell.ok("completion", name)
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name} here")
    checked = subprocess.run([name, "-n"], input=script, text=True, capture_output=True, timeout=60)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_completes_with_the_script(shell: Shell) -> None:
    ask = (
        'eval "$(falaj completion bash)"; COMP_WORDS=(falaj cat -s s o); COMP_CWORD=4; _falaj; '
        'echo "${COMPREPLY[@]}"; COMP_WORDS=(falaj topic ""); COMP_CWORD=2; _falaj; '
        'echo "${COMPREPLY[0]}"'
    )
    path = f"{Path(PROGRAM).parent}:{shell.environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", ask],
        cwd=shell.folder,
        env={**shell.environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("orders\nlist\n", "")
