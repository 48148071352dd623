"""`falaj serve` becomes the server: its words, signals, output and exit code are the server's."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from server.doors import PATIENCE_S, PROGRAM

# A Python in another folder, so that only what the test puts beside it or on PATH is found.
RUN = """
import sys
sys.executable = sys.argv[1]
from falaj.cli.app import run
sys.exit(run(sys.argv[2:]))
"""


def serve(folder: Path, *words: str, path: str = "", **environment: str) -> "subprocess.Popen[str]":
    """Start `falaj serve` with a Python that seems to lie in a folder."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder / "python"), "serve", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": path, **environment},
    )


def folder_with_program(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "falaj-server").symlink_to(PROGRAM)
    return folder


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_serve_prints_when_the_door_is_ready_and_ends_in_order_by_a_signal(
    tmp_path: Path, how: signal.Signals
) -> None:
    folder, store = folder_with_program(tmp_path), tmp_path / "events"
    process = serve(folder, str(store), "--http", "127.0.0.1:0", "--open", "--limits-batch=7")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert re.fullmatch(r"http http://127\.0\.0\.1:\d+\n", line), (line, process.communicate())
    assert (store / "server" / "token").exists()
    process.send_signal(how)
    out, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "")
    assert "every local user" in said  # --open was passed on


def test_serve_finds_the_program_on_path_and_the_store_by_the_variable(tmp_path: Path) -> None:
    folder, store = folder_with_program(tmp_path), tmp_path / "events"
    done = serve(
        tmp_path, "--print-config", "--limits-batch", "7", path=str(folder), FALAJ_STORE=str(store)
    )
    out, said = done.communicate(timeout=PATIENCE_S)
    assert (done.returncode, said) == (0, "")
    assert f'store = "{store}"' in out
    assert "batch = 7 " in out


def test_without_the_program_serve_says_how_to_get_it(tmp_path: Path) -> None:
    done = serve(tmp_path, "events", path=str(tmp_path))
    out, said = done.communicate(timeout=PATIENCE_S)
    assert (done.returncode, out) == (3, "")
    assert said.startswith("falaj: the program falaj-server is neither in ")
    assert "pip install 'falaj[server]'" in said
    assert "make build-server" in said
    assert len(said.splitlines()) == 1


def test_a_mistake_in_the_words_is_the_servers_to_tell(tmp_path: Path) -> None:
    done = serve(folder_with_program(tmp_path), "events", "--limits-bodyy", "1MiB")
    _, said = done.communicate(timeout=PATIENCE_S)
    assert done.returncode == 2
    assert said.startswith("falaj-server: ")
    assert "--limits-body" in said
