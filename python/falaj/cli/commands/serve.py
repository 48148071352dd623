"""`falaj serve`: run the program `falaj-server`, which serves a store over HTTP.

That program replaces this process, so signals, exit code and output are its own. It parses the
command line itself; the table of options here is only for help and completion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Argument, Command, Option
from falaj.cli.exits import Exit, Stop

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["COMMAND", "serve"]

PROGRAM = "falaj-server"
_URLS = ("http://", "https://")


def serve(words: list[str]) -> NoReturn:
    """Become the server.

    Raises:
        Stop: It is not installed, or its store is the URL of another server.
    """
    import os
    import sys

    if url := _url_of(words, os.environ.get("FALAJ_STORE", "")):
        raise Stop(f"{url} is a server already: name the directory of the store that is served")
    program = _find()
    sys.stdout.flush()
    os.execv(program, [PROGRAM, *words])


def _url_of(words: list[str], otherwise: str) -> str | None:
    """Find the URL of a server where the store's directory belongs."""
    named = [
        word.removeprefix("--store=")
        for before, word in zip(["", *words], words, strict=False)
        if before in ("-s", "--store") or word.startswith("--store=") or before[:1] != "-"
    ]
    stores = [word for word in named if word[:1] != "-"] or [otherwise]
    return next((word for word in stores if word.lower().startswith(_URLS)), None)


def _find() -> str:
    """Find the program beside this Python, or else on PATH."""
    import shutil
    import sys
    from pathlib import Path

    beside = Path(sys.executable).parent
    found = shutil.which(PROGRAM, path=beside) or shutil.which(PROGRAM)
    if found is None:
        sentence = (
            f"the program {PROGRAM} is neither in {beside} nor on PATH; "
            "pip install 'falaj[server]' brings it, and in a checkout `make build-server` builds it"
        )
        raise Stop(sentence, Exit.MACHINE)
    return found


COMMAND = Command(
    serve,
    "Serve a store over HTTP.",
    (Argument("store", "STORE", "Directory of the store; it may be missing.", needed=False),),
    (
        options.STORE._replace(help="The same as STORE; without both, FALAJ_STORE."),
        Option("--http", "http", "Address of the door, and port; 0 takes a free one.", "ADDRESS"),
        Option("--open", "open", "Let every local user and program in without a token."),
        Option("--read-only", "read_only", "Open the store for reading only."),
        Option("--config", "config", "TOML file of settings.", "FILE"),
        Option("--print-config", "print_config", "Print all settings as TOML, and end."),
    ),
    f"Each setting of the program {PROGRAM} is an option too: `{PROGRAM} --help` lists them. The "
    "line `http http://ADDRESS` says that the door is ready. Ctrl-C and SIGTERM finish the "
    "requests in flight, and end it.",
    passes_on=True,
)
