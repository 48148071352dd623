"""The program itself: its other commands, its help, and its messages when it fails."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import falaj as library
from cli.shell import PROGRAM, Shell, snapshot
from cli.test_docs import COMMANDS


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
def test_help_names_the_extra_that_a_command_needs(falaj: Shell, words: list[str]) -> None:
    extra = "falaj[demo]" if words[0] == "demo" else "falaj[spark]"
    assert f"Needs {extra}." in " ".join(falaj.ok(*words).split())


def test_bytes_that_are_no_text_are_a_mistake_except_in_a_path(falaj: Shell) -> None:
    library.open(falaj.folder / "s").close()
    for arguments in (["append", "-s", "s", "\udcfforders"], ["cat", "-s", "s", "\udcfforders"]):
        ended = falaj(*arguments, given=b"x")
        assert ended.code == 2, ended
        assert "orders\" cannot name a topic: '�' is not among" in ended.sentence()
    assert falaj("append", "-s", "\udcffs", "t", given=b"x").code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["cat", "-s", "missing", "t"], 2),
        (["cat"], 2),
        (["cat", "-s", "s", "t", "--from", "9"], 2),
        (["append", "-s", "s", "t", "--sync", "remote", "--timeout", "1"], 3),
        (["verify", "-s", "damaged"], 1),
        (["cat", "-s", "s", "t"], 3),
    ],
)
def test_an_error_keeps_its_exit_code_where_nothing_can_be_written(
    falaj: Shell, words: list[str], code: int
) -> None:
    with library.open(falaj.folder / "s") as store:
        store.topic("t", codec="bytes").append(b"x")
    shutil.copytree(falaj.folder / "s", falaj.folder / "damaged")
    (falaj.folder / "damaged" / "falaj.json").write_bytes(b"{}")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PROGRAM, *words],
            cwd=falaj.folder,
            env=falaj.environment,
            input=b"x\n",
            stdout=full,
            stderr=full,
            timeout=60,
        )
    assert done.returncode == code


def loaded(*words: str) -> set[str]:
    """Run a command line in a new process; return the packages that it loads."""
    script = (
        "import sys\nfrom falaj.cli.app import run\nrun(sys.argv[1:])\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, *words]
    return set(subprocess.run(command, capture_output=True, text=True).stderr.split())


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["topic", "list", "-s", "s"], ["cat", "-s", "s", "orders"]]
)
def test_a_command_loads_no_package_beyond_the_library_and_little_of_python(
    falaj: Shell, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(falaj)
    monkeypatch.chdir(falaj.folder)
    found = loaded(*words)
    assert "falaj" in found
    others = {"typer", "click", "rich", "msgpack", "pyarrow", "pandas", "numpy", "matplotlib"}
    slow = {"dataclasses", "inspect", "argparse", "asyncio", "difflib", "subprocess", "tomllib"}
    assert not found & (others | slow)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["foo"], "there is no command 'foo'; see `falaj --help`"),
        (["topci", "list"], "no command 'topci'; did you mean topic? See `falaj --help`"),
        (["topic", "lst"], "no command 'lst'; did you mean list? See `falaj topic --help`"),
        (["cat", "-s", "s"], "TOPIC is missing; see `falaj cat --help`"),
        (["group", "seek", "g", "t"], "--to is missing; see `falaj group seek --help`"),
        (["verify", "t", "more"], "'more' is one word too many; see `falaj verify --help`"),
        (["cat", "t", "--jsno"], "no option --jsno; did you mean --json? See `falaj cat --help`"),
        (["cat", "t", "--part", "1"], "there is no option --part; did you mean --partition?"),
        (["cat", "t", "-x"], "there is no option -x; see `falaj cat --help`"),
        (["cat", "t", "--limit"], "--limit takes a value: N"),
        (["cat", "t", "--raw=yes"], "--raw takes no value"),
        (["cat", "t", "-n", "1", "-n", "2"], "-n is given twice"),
        (["cat", "t", "--from", "x"], "--from: write a whole number, not 'x'"),
        (["cat", "t", "--time-format", "x"], "write one of iso, local, unix, ns, none, not 'x'"),
        (["--json", "cat", "t"], "stands in front of the command"),
        (["-s"], "-s takes a value: PATH; see `falaj --help`"),
        (["--lock-timeout", "soon", "topic", "list"], "--lock-timeout: write a number of seconds"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(falaj: Shell, arguments: list[str], why: str) -> None:
    ended = falaj(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert why in ended.sentence()


BYTE = os.fsdecode(b"\xff")
BEYOND = {
    "the number is ": [
        ["append", "-s", "s", "t", "--partition", "-1"],
        ["append", "-s", "s", "t", "--partitions", "-1"],
        ["append", "-s", "s", "t", "--sync-interval", "-1"],
        ["append", "-s", "s", "t", "--partitions", "9" * 20],
        ["append", "-s", "s", "t", "--sync-interval", "9" * 20],
        ["topic", "trim", "-s", "s", "t", "--before", "1", "--partition", "9" * 20],
        ["group", "seek", "-s", "s", "c", "t", "--to", "1", "--partition", "9" * 20],
        ["topic", "trim", "-s", "s", "t", "--before", "1", "--partition", "-1"],
        ["group", "seek", "-s", "s", "c", "t", "--to", "1", "--partition", "-1"],
        ["cat", "-s", "s", "t", "--from", "9" * 46],
    ],
    "a wait is from 0 to": [
        *(["tail", "-s", "s", "t", "-f", "--idle", idle] for idle in ("inf", "nan", "-1", "1e300")),
        *(["--lock-timeout", wait, "info", "-s", "s"] for wait in ("inf", "nan", "-1", "1e300")),
    ],
    "the producers take from 0 to 600 seconds, not ": [
        *(["demo", "here", "--seconds", pace] for pace in ("inf", "nan", "-5", "2000")),
    ],
    "is larger than any offset, time or size": [
        ["append", "-s", "s", "t", "--segment-size", "99999999T"],
        ["append", "-s", "s", "t", "--segment-size", "9" * 5000],
        ["cat", "-s", "s", "t", "--since", "9" * 5000],
        ["topic", "trim", "-s", "s", "t", "--before", "9" * 23],
        ["topic", "trim", "-s", "s", "t", "--before=-" + "9" * 5000],
        ["group", "seek", "-s", "s", "c", "t", "--to", "9" * 23],
        ["config", "-s", "s", "--retention-bytes", "9" * 5000],
        ["topic", "config", "-s", "s", "t", "--retention-age", "9" * 400 + "d"],
        ["topic", "config", "-s", "s", "t", "--retention-age", "9" * 400],
    ],
    "ago is before all that a record can keep": [
        ["cat", "-s", "s", "t", "--since", "9" * 400 + "m"],
        ["cat", "-s", "s", "t", "--until", "9" * 12 + "d"],
        ["producer", "forget", "-s", "s", "t", "--before", "9" * 400 + "s"],
    ],
    "takes a regular expression": [
        ["cat", "-s", "s", "t", "--grep", "(" * 5000],
        ["tail", "-s", "s", "t", "--grep", "x{99999999999}"],
    ],
    "cannot name a topic": [
        ["append", "-s", "s", BYTE],
        ["cat", "-s", "s", BYTE],
        ["verify", "-s", "s", BYTE],
        ["group", "forget", "-s", "s", "c", BYTE],
    ],
    "there is no group": [
        ["group", "delete", "-s", "s", BYTE, "--yes"],
        ["group", "seek", "-s", "s", BYTE, "t", "--to", "1"],
        ["group", "forget", "-s", "s", BYTE, "t"],
    ],
    "there is no queue": [["queue", "reset", "-s", "s", BYTE, "--yes"]],
    "is not UTF-8": [["producer", "forget", "-s", "s", "t", BYTE]],
}


def test_a_process_without_standard_streams_does_its_work_and_says_nothing(falaj: Shell) -> None:
    script = """
        falaj() { "$0" "$@"; echo "$?" >> codes; }
        echo one | falaj append -s s t >&- 2>&-
        falaj append -s s t <&- >&- 2>&-
        falaj cat -s s t >&-
        falaj cat -s s nothing <&- 2>&-
    """
    done = subprocess.run(
        ["bash", "-c", script, PROGRAM], cwd=falaj.folder, capture_output=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert (falaj.folder / "codes").read_text().split() == ["0", "0", "0", "2"]
    assert falaj.ok("cat", "-s", "s", "t") == "one\n"


def test_a_path_that_is_not_utf_8_is_printed_as_it_is(falaj: Shell) -> None:
    library.open(falaj.folder / BYTE).close()
    done = falaj.binary("info", "-s", BYTE)
    path = os.fsencode(falaj.folder / BYTE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"store\tpath\t" + path + b"\n")
    assert "path         " in falaj.terminal("info", "-s", BYTE, NO_COLOR="1").end().out


@pytest.mark.parametrize("why", BEYOND)
def test_what_no_argument_can_be_is_a_sentence(falaj: Shell, why: str) -> None:
    with library.open(falaj.folder / "s") as store, store.consumer("c", [store.topic("t")]):
        pass
    before = falaj.ok("topic", "list", "-s", "s"), falaj.ok("group", "list", "-s", "s")
    for arguments in BEYOND[why]:
        ended = falaj(*arguments, given=b"x")
        assert (ended.code, ended.out) == (2, ""), arguments
        assert why in ended.sentence()
    assert (falaj.ok("topic", "list", "-s", "s"), falaj.ok("group", "list", "-s", "s")) == before


ON_NOTHING: dict[str, list[list[str]]] = {
    "cat": [["t"]],
    "tail": [["t"], ["t", "--group", "c", "--commit"]],
    "topic list": [[]],
    "topic describe": [["t"]],
    "topic config": [["t"], ["t", "--retention-age", "7d"]],
    "topic trim": [["t", "--before", "1"]],
    "topic compact": [["t"]],
    "topic finish": [["t", "--yes"]],
    "topic delete": [["t", "--yes"]],
    "group list": [[]],
    "group describe": [["c"]],
    "group seek": [["c", "t", "--to", "0"]],
    "group forget": [["c", "t"]],
    "group delete": [["c", "--yes"]],
    "queue list": [[]],
    "queue put": [["q"]],
    "queue take": [["q", "--timeout", "0"]],
    "queue redrive": [["q"]],
    "queue reset": [["q", "--yes"]],
    "producer list": [["t"]],
    "producer forget": [["t", "p"]],
    "info": [[]],
    "config": [[], ["--retention-bytes", "1G"], ["--ship-min-sync", "2"]],
    "maintain": [[], ["--dry-run"]],
    "metrics": [[]],
    "verify": [[], ["t"]],
    "repair": [[], ["--dry-run"]],
    "backup": [["copy"]],
    "ship": [["place", "--once"]],
}
PLACES = {"place list", "place verify"}
"""These take no store."""
CREATE = {"append", "topic create", "queue create", "restore", "serve", "demo", "completion"}


@pytest.mark.parametrize("name", ON_NOTHING)
def test_only_what_creates_makes_a_store_of_a_mistyped_path(falaj: Shell, name: str) -> None:
    for more in ON_NOTHING[name]:
        ended = falaj(*name.split(), "--store", "sotre", *more)
        assert (ended.code, ended.out) == (2, "")
        assert "there is no store at sotre: check --store" in ended.sentence()
        assert not list(falaj.folder.iterdir())


def test_each_command_is_in_that_table_or_creates_what_it_names() -> None:
    of_stores = {name for name in COMMANDS if not name.startswith("pipeline ")}
    assert of_stores - set(ON_NOTHING) - PLACES == CREATE


LISTING = (
    *(["topic", "list"], ["topic", "describe", "t"], ["topic", "config", "t"], ["group", "list"]),
    *(["group", "describe", "c"], ["queue", "list"], ["producer", "list", "t"], ["info"]),
    *(["config"], ["metrics"], ["verify"], ["cat", "t"], ["tail", "t"], ["maintain", "--dry-run"]),
)


def test_what_lists_changes_nothing_and_may_be_run_by_a_reader(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        topic = store.topic("t")
        topic.extend([b"one", b"two"])
        topic.append(b"x", producer="p", sequence=1)
        store.consumer("c", [topic]).close()
        store.queue("q", topic=topic).close()
    before = snapshot(falaj.folder)
    for words in LISTING:
        assert falaj(*words, "-s", "s").code == 0
        assert falaj(*words, "-s", "s", "--json").code == 0
    assert snapshot(falaj.folder) == before


# --- The store -----------------------------------------------------------------------------------


def test_the_store_is_named_by_the_option_or_else_by_the_variable(falaj: Shell) -> None:
    falaj.ok("append", "--store", "one", "t", given=b"1\n")
    falaj.ok("append", "-s", "two", "t", given=b"2\n")
    assert falaj("cat", "t", FALAJ_STORE="one").out == "1\n"
    assert falaj("cat", "t", "--store=two", FALAJ_STORE="one").out == "2\n"
    assert falaj("cat", "t", "-stwo").out == "2\n"
    assert falaj("-s", "two", "cat", "t").out == "2\n"
    assert falaj("-s", "two", "topic", "list").out.startswith("t\t")
    assert falaj("topic", "-s", "two", "list").out.startswith("t\t")
    for ended in (falaj("cat", "t"), *(falaj("cat", "t", FALAJ_STORE=no) for no in ("", " "))):
        assert ended.code == 2
        assert ended.sentence() == "name the store: --store PATH, or the variable FALAJ_STORE"


def test_the_grammar_does_not_depend_on_the_environment(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "t", given=b"1\n")
    for words in (["cat", "s", "t", "-s", "s"], ["cat", "t", "-s", "s"], ["cat", "s"]):
        without, withit = falaj(*words), falaj(*words, FALAJ_STORE="other")
        assert (without.code, without.out) == (withit.code, withit.out)
    assert falaj("cat", "t", "-s", "s", FALAJ_STORE="other").out == "1\n"


def test_a_tilde_is_the_home_directory(falaj: Shell) -> None:
    home = str(falaj.folder)
    assert falaj("append", "-s", "~/s", "t", given=b"1\n", HOME=home).code == 0
    assert falaj("cat", "t", HOME=home, FALAJ_STORE="~/s").out == "1\n"
    assert (falaj.folder / "s").is_dir()


def test_a_name_that_is_not_there_lists_those_that_are_the_nearest_first(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        for name in ("orders", "readings", "zebra", *(f"x{n}" for n in range(9))):
            store.topic(name)
        store.consumer("billing", "orders").close()
        store.queue("work", topic="orders").close()
    for words in (["cat"], ["tail"], ["topic", "describe"], ["topic", "trim", "--before", "1"]):
        sentence = falaj(*words, "-s", "s", "readigns").sentence()
        assert "there is no topic 'readigns' in " in sentence
        assert "; it has readings, " in sentence
        assert sentence.endswith(" and 4 more")
    assert falaj("group", "describe", "-s", "s", "biling").sentence().endswith("it has billing")
    assert falaj("queue", "reset", "-s", "s", "wrok", "--yes").sentence().endswith("it has work")
    library.open(falaj.folder / "empty").close()
    assert falaj("cat", "-s", "empty", "t").sentence().endswith("/empty; it has no topics")


# --- topics --------------------------------------------------------------------------------------


def fill(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        orders = store.partitioned_topic("orders", codec="json", partitions=2)
        for n in range(1200):
            orders.append({"n": n}, partition=n % 2, timestamp="2026-11-20T08:00:00Z")
        store.topic("empty")


def test_topics_are_rows_of_tabs_in_a_pipe(falaj: Shell) -> None:
    fill(falaj)
    assert falaj.ok("topic", "list", "-s", "s") == (
        "empty\t\t1\t0\t\topen\norders\tjson\t2\t1200\t2026-11-20T08:00:00.000000Z\topen\n"
    )


def test_topics_are_objects_in_json(falaj: Shell) -> None:
    fill(falaj)
    told = [
        json.loads(line) for line in falaj.ok("topic", "list", "-s", "s", "--json").splitlines()
    ]
    assert [(row["topic"], row["records"], row["last"]) for row in told] == [
        ("empty", 0, None),
        ("orders", 1200, "2026-11-20T08:00:00.000000Z"),
    ]


def test_topics_are_a_table_on_a_terminal(falaj: Shell) -> None:
    fill(falaj)
    assert falaj.terminal("topic", "list", "-s", "s", NO_COLOR="1").end().out == (
        "topic   codec  partitions  records  last record                  state\n"
        "empty   -               1        0  -                            open\n"
        "orders  json            2    1,200  2026-11-20T08:00:00.000000Z  open\n"
    )
    assert "\x1b[1mtopic " in falaj.terminal("topic", "list", "-s", "s").end().out


def test_a_store_without_topics_says_so_to_a_person(falaj: Shell) -> None:
    library.open(falaj.folder / "s").close()
    assert falaj.ok("topic", "list", "-s", "s") == ""
    assert falaj.terminal("topic", "list", "-s", "s").end().out == "s has no topics yet\n"


def test_a_damaged_topic_does_not_hide_the_others(falaj: Shell) -> None:
    fill(falaj)
    (falaj.folder / "s/topics/empty/topic.json").write_text("{}")
    ended = falaj("topic", "list", "-s", "s")
    assert ended.code == 1
    assert ended.out.startswith("orders\t")
    assert "topic empty: " in ended.sentence()
    assert "topic.json is corrupt" in ended.sentence()


# --- delete --------------------------------------------------------------------------------------


def test_deleting_wants_a_yes(falaj: Shell) -> None:
    fill(falaj)
    ended = falaj("topic", "delete", "-s", "s", "orders")
    assert ended.code == 2
    assert ended.sentence() == "deleting topic orders cannot be undone: add --yes if you mean it"
    falaj.ok("topic", "delete", "-s", "s", "orders", "--yes")
    assert falaj.ok("topic", "list", "-s", "s").startswith("empty\t")


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 1), ("n", 2, 2), ("", 2, 2)])
def test_deleting_asks_on_a_terminal(falaj: Shell, answer: str, code: int, left: int) -> None:
    fill(falaj)
    terminal = falaj.terminal("topic", "delete", "-s", "s", "orders", NO_COLOR="1")
    terminal.wait_for("Delete topic orders with 1,200 records? [y/N]: ")
    terminal.type(answer + "\n")
    ended = terminal.end()
    assert ended.code == code
    assert ended.out.endswith("falaj: nothing was deleted\n") is (code == 2)
    assert len(falaj.ok("topic", "list", "-s", "s").splitlines()) == left


def test_ctrl_c_at_the_question_deletes_nothing(falaj: Shell) -> None:
    fill(falaj)
    terminal = falaj.terminal("topic", "delete", "-s", "s", "orders")
    terminal.wait_for("[y/N]: ")
    terminal.type("\x03")
    assert terminal.end().code == -2
    assert len(falaj.ok("topic", "list", "-s", "s").splitlines()) == 2


def test_what_is_not_there_cannot_be_deleted_and_no_store_is_made(falaj: Shell) -> None:
    fill(falaj)
    ended = falaj("topic", "delete", "-s", "s", "nope", "--yes")
    assert ended.code == 2
    assert "there is no topic 'nope' in " in ended.sentence()
    assert falaj("topic", "delete", "-s", "new", "t", "--yes").code == 2
    assert not (falaj.folder / "new").exists()


def test_a_damaged_topic_can_be_deleted(falaj: Shell) -> None:
    fill(falaj)
    (log,) = falaj.folder.glob("s/logs/orders@*/00000000000000000000.log")
    log.write_bytes(b"")
    falaj.ok("topic", "delete", "-s", "s", "orders", "--yes")
    assert falaj.ok("topic", "list", "-s", "s").startswith("empty\t")


# --- demo ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [("falaj.demo.Failed('7 is not 8')", 1), ("falaj.errors.InvalidArgument('no')", 2)],
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
