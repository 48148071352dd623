"""The program itself: its other verbs, its help, and what it says when it cannot."""

import json
import os
import re
import subprocess
import sys

import pytest

import falaj as library
from cli.shell import PROGRAM, Shell
from cli.test_docs import COMMAND, GROUP, PIPELINES, VERBS


def test_its_version_is_the_library_s(falaj: Shell) -> None:
    assert falaj.ok("--version") == f"falaj {library.__version__}\n"
    done = subprocess.run(
        [sys.executable, "-m", "falaj", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"falaj {library.__version__}\n"


def test_without_a_verb_it_shows_its_help(falaj: Shell) -> None:
    assert "Usage: falaj" in falaj.ok()
    assert falaj.ok() == falaj.ok("--help")


@pytest.mark.parametrize("words", [["--help"], ["pipeline", "--help"], ["demo", "--help"]])
def test_help_names_the_extra_that_a_verb_needs(falaj: Shell, words: list[str]) -> None:
    extra = "falaj[demo]" if words[0] == "demo" else "falaj[spark]"
    shown = re.sub(r"[\s│]+", " ", falaj.ok(*words))
    assert f"Needs {extra}." in shown


def test_no_help_has_brackets_that_are_taken_for_a_style() -> None:
    commands = [COMMAND, *VERBS.values(), *GROUP.values(), *PIPELINES.values()]
    options = [parameter for command in commands for parameter in command.params]
    for told in [*commands, *options]:
        assert not re.search(r"(?<!\\)\[[a-z/]", told.help or ""), told.name


def test_bytes_that_are_no_text_are_a_mistake_except_in_a_path(falaj: Shell) -> None:
    library.open(falaj.folder / "s").close()
    for arguments in (["append", "s", "\udcfforders"], ["cat", "s", "\udcfforders"]):
        ended = falaj(*arguments, given=b"x")
        assert ended.code == 2, ended
        assert "orders\" cannot name a topic: '�' is not among" in ended.sentence()
    assert falaj("append", "\udcffs", "t", given=b"x").code == 0


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_it_says_how_to_get_it(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None\nfrom falaj.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "falaj: the command line needs typer and rich: pip install 'falaj[cli]'\n"


def test_importing_the_library_or_the_entry_loads_no_extra() -> None:
    script = "import sys, falaj, falaj.cli\nprint({'typer', 'rich', 'click'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["foo"], "No such command 'foo'; see `falaj --help`"),
        (["cat", "s"], "Missing argument 'TOPIC'; see `falaj cat --help`"),
        (["cat", "s", "t", "more"], "see `falaj cat --help`"),
        (["--timeout", "soon", "topics", "s"], "Invalid value for '--timeout'"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(falaj: Shell, arguments: list[str], why: str) -> None:
    ended = falaj(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert why in ended.sentence()


BYTE = os.fsdecode(b"\xff")
BEYOND = {
    "Invalid value for '--": [
        ["append", "s", "t", "--partition", "-1"],
        ["append", "s", "t", "--partitions", "-1"],
        ["append", "s", "t", "--sync-interval", "-1"],
        ["trim", "s", "t", "--before", "1", "--partition", "-1"],
        ["seek", "s", "c", "t", "--to", "1", "--partition", "-1"],
        *(["tail", "s", "t", "-f", "--idle", idle] for idle in ("inf", "nan", "-1", "1e300")),
        *(["--timeout", wait, "topics", "s"] for wait in ("inf", "nan", "-1", "1e300")),
    ],
    "the producers take from 0 to 600 seconds, not ": [
        *(["demo", "here", "--seconds", pace] for pace in ("inf", "nan", "-5", "2000")),
    ],
    "is a number from 0 to": [
        ["append", "s", "t", "--partitions", "9" * 20],
        ["append", "s", "t", "--sync-interval", "9" * 20],
        ["trim", "s", "t", "--before", "1", "--partition", "9" * 20],
        ["seek", "s", "c", "t", "--to", "1", "--partition", "9" * 20],
    ],
    "is larger than any offset, time or size": [
        ["append", "s", "t", "--segment-size", "99999999T"],
        ["append", "s", "t", "--segment-size", "9" * 5000],
        ["cat", "s", "t", "--since", "9" * 5000],
        ["trim", "s", "t", "--before", "9" * 23],
        ["trim", "s", "t", "--before=-" + "9" * 5000],
        ["seek", "s", "c", "t", "--to", "9" * 23],
        ["configure", "s", "--bytes", "9" * 5000],
        ["configure", "s", "t", "--age", "9" * 400 + "d"],
        ["configure", "s", "t", "--age", "9" * 400],
    ],
    "ago is before all that a record can keep": [
        ["cat", "s", "t", "--since", "9" * 400 + "m"],
        ["cat", "s", "t", "--until", "9" * 12 + "d"],
        ["producers", "s", "t", "--forget-before", "9" * 400 + "s"],
    ],
    "there is no offset": [["cat", "s", "t", "--from", "9" * 46]],
    "takes a regular expression": [
        ["cat", "s", "t", "--grep", "(" * 5000],
        ["tail", "s", "t", "--grep", "x{99999999999}"],
    ],
    "cannot name a topic": [
        ["append", "s", BYTE],
        ["cat", "s", BYTE],
        ["verify", "s", BYTE],
        ["group", "forget", "s", "c", BYTE],
    ],
    "cannot name a consumer": [
        ["consumers", "s", BYTE, "--delete"],
        ["seek", "s", BYTE, "t", "--to", "1"],
        ["group", "forget", "s", BYTE, "t"],
    ],
    "cannot name a queue": [["queues", "s", "--reset", BYTE, "--yes"]],
    "is not UTF-8": [["producers", "s", "t", "--forget", BYTE]],
}


def test_a_process_without_standard_streams_does_its_work_and_says_nothing(falaj: Shell) -> None:
    script = """
        falaj() { "$0" "$@"; echo "$?" >> codes; }
        echo one | falaj append s t >&- 2>&-
        falaj append s t <&- >&- 2>&-
        falaj cat s t >&-
        falaj cat s nothing <&- 2>&-
    """
    done = subprocess.run(
        ["bash", "-c", script, PROGRAM], cwd=falaj.folder, capture_output=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert (falaj.folder / "codes").read_text().split() == ["0", "0", "0", "2"]
    assert falaj.ok("cat", "s", "t") == "one\n"


def test_a_path_that_is_not_utf_8_is_printed_as_it_is(falaj: Shell) -> None:
    library.open(falaj.folder / BYTE).close()
    done = falaj.binary("info", BYTE)
    path = os.fsencode(falaj.folder / BYTE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"store\tpath\t" + path + b"\n")
    assert "path         " in falaj.terminal("info", BYTE, NO_COLOR="1").end().out


@pytest.mark.parametrize("why", BEYOND)
def test_what_no_argument_can_be_is_a_sentence(falaj: Shell, why: str) -> None:
    with library.open(falaj.folder / "s") as store, store.consumer("c", [store.topic("t")]):
        pass
    before = falaj.ok("topics", "s"), falaj.ok("consumers", "s")
    for arguments in BEYOND[why]:
        ended = falaj(*arguments, given=b"x")
        assert (ended.code, ended.out) == (2, ""), arguments
        assert why in ended.sentence()
    assert (falaj.ok("topics", "s"), falaj.ok("consumers", "s")) == before


ON_NOTHING: dict[str, list[list[str]]] = {
    "cat": [["t"]],
    "tail": [["t"], ["t", "--consumer", "c", "--commit"]],
    "topics": [[]],
    "consumers": [[], ["c", "--delete"]],
    "seek": [["c", "t", "--to", "0"]],
    "producers": [["t"], ["t", "--forget", "p"]],
    "info": [[]],
    "metrics": [[]],
    "verify": [[]],
    "repair": [[]],
    "backup": [["copy"]],
    "queues": [[], ["--reset", "q", "--yes"]],
    "configure": [["--bytes", "1G"], ["t", "--age", "7d"]],
    "maintain": [[], ["--dry-run"]],
    "trim": [["t", "--before", "1"]],
    "delete": [["t", "--yes"]],
}


@pytest.mark.parametrize("verb", ON_NOTHING)
def test_only_append_makes_a_store_of_a_path_with_a_slip_in_it(falaj: Shell, verb: str) -> None:
    for more in ON_NOTHING[verb]:
        ended = falaj(verb, "sotre", *more)
        assert (ended.code, ended.out) == (2, "")
        assert "sotre is not a falaj store" in ended.sentence()
        assert not list(falaj.folder.iterdir())


def test_each_verb_is_in_that_table_or_creates_what_it_names() -> None:
    assert set(VERBS) - set(ON_NOTHING) == {"append", "demo", "group", "pipeline"}


# --- topics --------------------------------------------------------------------------------------


def fill(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        orders = store.topic("orders", codec="json", partitions=2)
        for n in range(1200):
            orders.append({"n": n}, partition=n % 2, time="2026-11-20T08:00:00Z")
        store.topic("empty")


def test_topics_are_rows_of_tabs_in_a_pipe(falaj: Shell) -> None:
    fill(falaj)
    assert falaj.ok("topics", "s") == (
        "empty\tbytes\t1\t0\t\norders\tjson\t2\t1200\t2026-11-20T08:00:00.000000Z\n"
    )


def test_topics_are_objects_in_json(falaj: Shell) -> None:
    fill(falaj)
    told = [json.loads(line) for line in falaj.ok("topics", "s", "--json").splitlines()]
    assert [(row["topic"], row["records"], row["last"]) for row in told] == [
        ("empty", 0, None),
        ("orders", 1200, "2026-11-20T08:00:00.000000Z"),
    ]


def test_topics_are_a_table_on_a_terminal(falaj: Shell) -> None:
    fill(falaj)
    assert falaj.terminal("topics", "s", NO_COLOR="1").end().out == (
        "topic   codec  partitions  records  last record\n"
        "empty   bytes           1        0  -\n"
        "orders  json            2    1,200  2026-11-20T08:00:00.000000Z\n"
    )
    assert "\x1b[1mtopic " in falaj.terminal("topics", "s").end().out


def test_a_store_without_topics_says_so_to_a_person(falaj: Shell) -> None:
    library.open(falaj.folder / "s").close()
    assert falaj.ok("topics", "s") == ""
    assert falaj.terminal("topics", "s").end().out == "s has no topics yet\n"


def test_a_damaged_topic_does_not_hide_the_others(falaj: Shell) -> None:
    fill(falaj)
    (falaj.folder / "s/topics/empty/topic.json").write_text("{}")
    ended = falaj("topics", "s")
    assert ended.code == 1
    assert ended.out.startswith("orders\t")
    assert "topic empty: " in ended.sentence()
    assert "topic.json is corrupt" in ended.sentence()


# --- delete --------------------------------------------------------------------------------------


def test_deleting_wants_a_yes(falaj: Shell) -> None:
    fill(falaj)
    ended = falaj("delete", "s", "orders")
    assert ended.code == 2
    assert ended.sentence() == "deleting topic orders cannot be undone: add --yes if you mean it"
    falaj.ok("delete", "s", "orders", "--yes")
    assert falaj.ok("topics", "s").startswith("empty\t")


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 1), ("n", 2, 2), ("", 2, 2)])
def test_deleting_asks_on_a_terminal(falaj: Shell, answer: str, code: int, left: int) -> None:
    fill(falaj)
    terminal = falaj.terminal("delete", "s", "orders", NO_COLOR="1")
    terminal.wait_for("Delete topic orders with 1,200 records? [y/N]: ")
    terminal.type(answer + "\n")
    ended = terminal.end()
    assert ended.code == code
    assert ended.out.endswith("falaj: nothing was deleted\n") is (code == 2)
    assert len(falaj.ok("topics", "s").splitlines()) == left


def test_ctrl_c_at_the_question_deletes_nothing(falaj: Shell) -> None:
    fill(falaj)
    terminal = falaj.terminal("delete", "s", "orders")
    terminal.wait_for("[y/N]: ")
    terminal.type("\x03")
    assert terminal.end().code == -2
    assert len(falaj.ok("topics", "s").splitlines()) == 2


def test_what_is_not_there_cannot_be_deleted_and_no_store_is_made(falaj: Shell) -> None:
    fill(falaj)
    ended = falaj("delete", "s", "nope", "--yes")
    assert ended.code == 2
    assert "there is no topic 'nope' in s" in ended.sentence()
    assert falaj("delete", "new", "t", "--yes").code == 2
    assert not (falaj.folder / "new").exists()


def test_a_damaged_topic_can_be_deleted(falaj: Shell) -> None:
    fill(falaj)
    (log,) = falaj.folder.glob("s/logs/orders@*/00000000000000000000.log")
    log.write_bytes(b"")
    falaj.ok("delete", "s", "orders", "--yes")
    assert falaj.ok("topics", "s").startswith("empty\t")


# --- demo ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"), [("falaj.demo.Failed('7 is not 8')", 1), ("falaj.errors.Invalid('no')", 2)]
)
def test_the_demo_ends_with_a_sentence(falaj: Shell, error: str, code: int) -> None:
    script = f"""
import sys, falaj.demo
def run(path, flights, seconds):
    print(path, flights, seconds)
    raise {error}
falaj.demo.run = run
from falaj.cli import main
sys.argv[1:] = ["demo", "here", "--flights", "9", "--seconds", "0.5"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=falaj.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (code, "here 9 0.5\n")
    assert done.stderr.startswith("falaj: ")
    assert done.stderr.count("\n") == 1
