"""`falaj --store http://…`: commands print over HTTP what they print on the store's directory."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import falaj
import falaj_client
from falaj.cli import registry, remote, remote_admin
from falaj.cli.arguments import Group
from server.doors import Server

PROGRAM = Path(sys.executable).with_name("falaj")


class Shell:
    """The program, on a directory and over HTTP."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{server.port}"

    def environment(self, store: str) -> dict[str, str]:
        """Return the variables of a program on a store."""
        client = str(Path(falaj_client.__file__).parent.parent)
        named = {"FALAJ_STORE": store, "FALAJ_TOKEN": self.server.token, "PYTHONPATH": client}
        return {**os.environ, **named}

    def run(self, store: str, *words: str, lines: bytes = b"") -> tuple[int, str, str]:
        """Run it on a store; return its code and what it printed."""
        environment = self.environment(store)
        done = subprocess.run(
            [PROGRAM, *words], input=lines, capture_output=True, env=environment, timeout=60
        )
        return done.returncode, done.stdout.decode(errors="backslashreplace"), done.stderr.decode()

    def over_http(self, *words: str, lines: bytes = b"") -> str:
        """Run it over HTTP; it must succeed."""
        code, out, said = self.run(self.url, *words, lines=lines)
        assert (code, said) == (0, ""), said
        return out

    def on_directory(self, *words: str) -> str:
        """Run it on the directory; it must succeed."""
        code, out, said = self.run(str(self.server.store), *words)
        assert (code, said) == (0, ""), said
        return out


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with falaj.open(tmp_path / "events") as store:
        day = "2026-11-20T{:02}:00:00Z"
        text = store.topic("text", codec="str")
        odd = store.topic("odd", codec="pickle")
        docs = store.topic("docs", codec="json")
        parts = store.partitioned_topic("parts", partitions=2)
        for hour in range(12):
            text.append(f"line {hour}", f"k{hour % 3}", timestamp=day.format(hour))
            parts.append(b"\xff%d" % hour, f"{hour}", timestamp=day.format(hour))
        docs.append({"n": 1.5}, headers={"trace": b"\xff", "none": None}, timestamp=day.format(1))
        docs.tombstone("gone", timestamp=day.format(2))
        odd.append((1, 2), timestamp=day.format(3))
    with Server(tmp_path / "events") as server:
        yield Shell(server)


@pytest.mark.parametrize(
    "words",
    [
        "cat text",
        "cat text --json",
        "cat docs text --json",
        "cat parts",
        "cat odd --raw",
        "cat text --from 3 --to -2",
        "cat text --from -2 --offsets --keys --time-format ns",
        "cat text --since 2026-11-20T05:00Z --until 2026-11-20T08:00Z",
        "cat text -n 2 --grep [02]$",
        "cat parts --partition 1 --from 1 --json",
        "tail text",
        "tail text parts -n 3 --json",
        "tail text -n 2 -f --idle 0.1",
        "tail parts --since 2026-11-20T09:00Z",
        "tail text parts docs -n 2 -f --idle 0.3 --json",
    ],
)
def test_commands_print_over_http_what_they_print_on_the_directory(
    shell: Shell, words: str
) -> None:
    assert shell.over_http(*words.split()) == shell.on_directory(*words.split()) != ""


def test_only_what_is_durable_is_shown_over_http_and_the_rest_once_it_is(shell: Shell) -> None:
    with falaj.open(shell.server.store) as store:
        text = store.topic("text")
        text.append("line 12", sync="durable")
        text.extend(["later", "last"], sync="none")
        for words in (["cat", "text"], ["tail", "text", "-n", "3"]):
            assert shell.over_http(*words).splitlines()[-1] == "last"
            assert shell.over_http(*words, "--durable").splitlines()[-1] == "line 12"
        words = [str(PROGRAM), "tail", "text", "-n", "1", "-f", "--durable"]
        environment = shell.environment(shell.url)
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as tail:
            assert tail.stdout is not None
            assert tail.stdout.readline() == b"line 12\n"
            text.append("end", sync="durable")
            assert [tail.stdout.readline() for _ in range(3)] == [b"later\n", b"last\n", b"end\n"]
            tail.terminate()


def test_lines_become_records_over_http_and_topics_are_made_and_ended(shell: Shell) -> None:
    shell.over_http("append", "new", "--key", "eu", lines=b"one\ntwo\n")
    shell.over_http("append", "new", "--tombstone", "--key", "eu")
    shell.over_http("append", "made", "--ndjson", "--key-field", "id", lines=b'{"id": "a"}\n')
    dumped = shell.over_http("cat", "docs", "--json").encode()
    shell.over_http("append", "copy", "--records", "--codec", "json", lines=dumped)
    shell.over_http("topic", "create", "empty", "--partitions", "3")
    with falaj.open(shell.server.store) as store:
        new = store.topic("new")
        assert [(record.key, record.to_bytes()) for record in new] == [
            (b"eu", b"one"),
            (b"eu", b"two"),
            (b"eu", b""),
        ]
        assert store.topic("made", codec="json")[0].value == {"id": "a"}
        assert [record.timestamp_ns for record in store.any_topic("copy")] == [
            record.timestamp_ns for record in store.any_topic("docs")
        ]
        assert len(store.any_topic("empty").partitions) == 3
    shell.over_http("topic", "finish", "--yes", "made")
    shell.over_http("topic", "delete", "--yes", "copy")
    listed = [line.split("\t") for line in shell.over_http("topic", "list").splitlines()]
    assert {(row[0], row[-1]) for row in listed} >= {("made", "finished"), ("new", "open")}
    assert "copy" not in {row[0] for row in listed}
    code, _, said = shell.run(shell.url, "append", "made", lines=b"1\n")
    assert code != 0
    assert "finished" in said


@pytest.mark.parametrize(
    "words", ["backup elsewhere", "verify", "maintain", "producer list text", "config", "repair"]
)
def test_a_command_that_needs_the_directory_says_so(shell: Shell, words: str) -> None:
    code, out, said = shell.run(shell.url, *words.split())
    assert (code, out) == (2, "")
    assert len(said.splitlines()) == 1
    assert "needs the store's directory: " in said
    assert "run it on the server's machine" in said


@pytest.mark.parametrize(
    "words",
    [
        "tail text --commit",
        "tail text --no-commit",
        "tail text --from 1 -n 2",
        "tail text --from 1 --since 1h",
        "tail text --idle 1",
        "tail text --group g -n 1",
        "tail text --skip-corrupt",
        "tail text --pattern t.*",
        "tail --pattern t.*",
        "tail",
    ],
)
def test_options_of_tail_that_do_not_go_together_are_refused_alike(
    shell: Shell, words: str
) -> None:
    code, out, said = shell.run(shell.url, *words.split())
    assert (code, out, len(said.splitlines())) == (2, "", 1)
    assert shell.run(str(shell.server.store), *words.split()) == (code, out, said)


def test_each_command_of_a_store_is_there_over_http_or_says_what_to_use() -> None:
    of_stores = set()
    for name in registry.NAMES:
        found = registry.load(name)
        commands = found.commands if isinstance(found, Group) else {"": found}
        for inner, command in commands.items():
            if any(option.to.startswith("access.") for option in command.options):
                of_stores.add(f"falaj {name} {inner}".strip())
    assert not remote._COMMANDS.keys() & remote_admin.INSTEAD.keys()
    assert of_stores == remote._COMMANDS.keys() | remote_admin.INSTEAD.keys()


def test_several_topics_are_followed_over_http_at_once(shell: Shell) -> None:
    words = [str(PROGRAM), "tail", "text", "parts", "-n", "1", "-f"]
    environment = shell.environment(shell.url)
    with (
        falaj.open(shell.server.store) as store,
        subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as tail,
    ):
        assert tail.stdout is not None
        tail.stdout.readline()
        for i in range(3):
            store.topic("text").append(f"news {i}")
            assert tail.stdout.readline().endswith(b"news %d\n" % i)
            store.partitioned_topic("parts").append(b"part %d" % i, f"{i}")
            assert tail.stdout.readline().endswith(b"part %d\n" % i)
        tail.terminate()


def test_topics_are_changed_compacted_and_trimmed_over_http(shell: Shell) -> None:
    limits = ["--retention-records", "1000", "--retention-age", "7d", "--compacted"]
    told = shell.over_http("topic", "config", "text", *limits)
    assert told == shell.on_directory("topic", "config", "text")
    assert "retention_records\t1000\n" in told
    told = shell.over_http("topic", "config", "text", "--retention-age", "none", "--json")
    expected = json.loads(shell.on_directory("topic", "config", "text", "--json"))
    assert json.loads(told) == expected
    kept = ["--property", "owner=shop", "--property", "unit=€"]
    told = shell.over_http("topic", "config", "text", *kept, "--json")
    assert json.loads(told)["properties"] == {"owner": "shop", "unit": "€"}
    told = shell.over_http("topic", "config", "text", "--remove-property", "unit")
    assert told == shell.on_directory("topic", "config", "text")
    assert told.endswith('property\t"owner"\t"shop"\n')
    assert (expected["retention_age"], expected["retention_records"]) == (None, 1000)
    done = json.loads(shell.over_http("topic", "compact", "text", "--seal", "--json"))
    assert (done["topic"], done["records"], done["removed"]) == ("text", 12, 9)
    assert shell.over_http("topic", "compact", "text").split("\t")[:2] == ["text", "0"]
    assert shell.over_http("topic", "trim", "text", "--before", "10") == "text\t0\t10\n"
    assert shell.over_http("cat", "text") == "line 10\nline 11\n"
    code, out, said = shell.run(shell.url, "topic", "trim", "parts", "--before", "1")
    assert (code, out) == (2, "")
    assert "choose one with --partition" in said
    trim = ["topic", "trim", "parts", "--before", "1", "--partition", "1", "--json"]
    assert json.loads(shell.over_http(*trim))["firsts"] == {"1": 1}
    shell.over_http("topic", "trim", "parts", "--before", "2026-11-20T06:00Z")
    assert len(shell.over_http("cat", "parts").splitlines()) == 6


def test_groups_are_described_and_deleted_over_http(shell: Shell) -> None:
    with falaj.open(shell.server.store) as store, store.consumer("billing", "text") as member:
        member.poll(5)
        member.commit(metadata="five")
        told = shell.over_http("group", "describe", "billing")
        assert told == shell.on_directory("group", "describe", "billing")
        assert told.startswith("billing\ttext\t0\t5\t7\tprocess ")
        for words in (
            ["group", "delete", "--yes", "billing"],
            ["group", "seek", "billing", "text", "--to", "0"],
            ["group", "forget", "billing", "text"],
        ):
            code, _, said = shell.run(shell.url, *words)
            assert (code, len(said.splitlines())) == (2, 1), said
            assert "process" in said
    moved = shell.over_http("group", "seek", "billing", "text", "--to", "-3")
    assert moved == "billing\ttext\t0\t9\n"
    assert shell.over_http("group", "describe", "billing").split("\t")[3:5] == ["9", "3"]
    for to, offset in (("earliest", 0), ("latest", 12), ("2026-11-20T05:00Z", 5), ("5", 5)):
        moved = shell.over_http("group", "seek", "billing", "text", "--to", to)
        assert moved == f"billing\ttext\t0\t{offset}\n"
    for words in (
        ["group", "seek", "billing", "text", "--to", "99"],
        ["group", "seek", "billing", "docs", "--to", "earliest"],
        ["group", "seek", "nobody", "text", "--to", "earliest"],
        ["group", "forget", "nobody", "text"],
    ):
        code, out, said = shell.run(shell.url, *words)
        assert (code, out, len(said.splitlines())) == (2, "", 1), said
    found = json.loads(shell.over_http("group", "describe", "billing", "--json"))
    assert (found["name"], found["partitions"][0]["committed"]) == ("billing", 5)
    shell.over_http("group", "forget", "billing", "text")
    assert json.loads(shell.over_http("group", "describe", "billing", "--json"))["partitions"] == []
    shell.over_http("group", "delete", "--yes", "billing")
    assert shell.over_http("group", "list") == ""
    code, _, said = shell.run(shell.url, "group", "describe", "billing")
    assert (code, len(said.splitlines())) == (2, 1), said


def test_lines_become_jobs_over_http_and_workers_take_them(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with falaj.open(shell.server.store) as store:
        store.queue("jobs", codec="json").close()
    put = ["queue", "put", "jobs", "--key", "eu", "--header", "trace=7"]
    shell.over_http(*put, lines=b'{"n": 1}\n"two"\n3\n')
    figures = json.loads(shell.over_http(*put, "--delay", "1h", "--json", lines=b"4\n"))
    assert (figures["records"], figures["offsets"][0]["first"]) == (1, 3)
    assert shell.over_http("queue", "take", "jobs") == '{"n": 1}\n'
    with falaj.open(shell.server.store) as store:
        first = store.topic("jobs", codec="json")[0]
        assert (first.key, first.headers) == (b"eu", (("trace", b"7"),))
        assert store.queues["jobs"]["done"] == 1
    run = ["--run", 'cat >> "$OUT"; echo " $FALAJ_KEY $FALAJ_OFFSET $FALAJ_ATTEMPT" >> "$OUT"']
    out = shell.server.store.parent / "out"
    monkeypatch.setenv("OUT", str(out))
    shell.over_http("queue", "take", "jobs", "-n", "5", "--timeout", "1", *run)
    assert out.read_text() == '"two" eu 1 1\n3 eu 2 1\n'
    code, _, said = shell.run(shell.url, "queue", "take", "jobs", "--timeout", "0")
    assert (code, said) == (4, "falaj: queue jobs has no job that is ready\n")
    code, _, said = shell.run(shell.url, "queue", "put", "nothing", lines=b"1\n")
    assert (code, len(said.splitlines())) == (2, 1), said


def test_a_queue_is_created_over_http_over_its_own_topic_or_another(shell: Shell) -> None:
    shell.over_http("queue", "create", "new")
    shell.over_http("queue", "create", "over", "--topic", "text", "--order", "key")
    shell.over_http("queue", "create", "over")
    with falaj.open(shell.server.store) as store:
        queues = store.queues
        assert (queues["new"]["topic"], queues["new"]["order"]) == ("new", None)
        assert (queues["over"]["topic"], queues["over"]["order"]) == ("text", "key")
        assert queues["over"]["ready"] == 12
    for words in (
        ["queue", "create", "x", "--topic", "nowhere"],
        ["queue", "create", "x", "--topic", "parts"],
        ["queue", "create", "new", "--order", "key"],
        ["queue", "create", "new", "--topic", "text"],
    ):
        code, out, said = shell.run(shell.url, *words)
        assert (code, out, len(said.splitlines())) == (2, "", 1), said
        assert shell.run(str(shell.server.store), *words)[0] == code
    assert [line.split("\t")[0] for line in shell.over_http("queue", "list").splitlines()] == [
        "new",
        "over",
    ]


def test_queue_take_over_http_holds_one_job_while_it_writes(shell: Shell) -> None:
    large = "x" * (1 << 20)  # more than a pipe takes, so the writer waits for its reader
    with falaj.open(shell.server.store) as store:
        store.queue("jobs", codec="str").put_many([large, large])
        words = [str(PROGRAM), "queue", "take", "jobs", "-n", "2"]
        environment = shell.environment(shell.url)
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as taking:
            assert taking.stdout is not None
            assert taking.stdout.read(1) == b"x"
            assert store.queues["jobs"]["ready"] == 1
            assert len(taking.stdout.read()) == 2 * len(large) + 1
        assert (taking.returncode, store.queues["jobs"]["done"]) == (0, 2)


def test_a_job_whose_command_failed_over_http_comes_again_and_is_redriven(shell: Shell) -> None:
    with falaj.open(shell.server.store) as store:
        store.queue("jobs", codec="str").put_many(["a", "b"])
    take = ["queue", "take", "jobs", "-n", "2", "--timeout", "1", "--max-attempts", "1"]
    code, _, said = shell.run(shell.url, *take, "--run", "exit 7")
    assert (code, said) == (4, "falaj: the command failed for 2 of 2 jobs\n")
    with falaj.open(shell.server.store) as store:
        reasons = [dict(letter.headers)["falaj-reason"] for letter in store.topic("jobs.dead")]
        assert reasons == [b"the command ended with 7"] * 2
    assert shell.over_http("queue", "redrive", "jobs", "-n", "1") == "jobs\t1\n"
    told = json.loads(shell.over_http("queue", "redrive", "jobs", "--json"))
    assert told == {"queue": "jobs", "topic": "jobs", "redriven": 1, "dry_run": False}
    assert shell.over_http("queue", "take", "jobs", "-n", "5") == "a\nb\n"
    shell.over_http("queue", "reset", "jobs", "--yes")
    assert shell.over_http("queue", "list") == ""
    for words in (
        ["queue", "redrive", "jobs", "--dry-run"],
        ["topic", "trim", "text", "--before", "1", "--dry-run"],
        ["queue", "redrive", "jobs", "--dead-letter", "nowhere"],
    ):
        code, out, said = shell.run(shell.url, *words)
        assert (code, out, len(said.splitlines())) == (2, "", 1), said


def test_a_refusal_over_http_has_one_sentence_and_the_code_of_its_kind(shell: Shell) -> None:
    for words in (
        ["cat", "nowhere"],
        ["cat", "text", "--skip-corrupt"],
        ["tail", "text", "--group", "readers", "--durable"],
        ["cat", "text", "--from", "99"],
    ):
        code, out, said = shell.run(shell.url, *words)
        assert (code, out, len(said.splitlines())) == (2, "", 1), said
    code, _, said = shell.run("http://127.0.0.1:1", "cat", "text", "--lock-timeout", "0.2")
    assert (code, len(said.splitlines())) == (4, 1), said


def test_a_server_that_gives_no_answer_is_told_with_an_option_of_the_command(shell: Shell) -> None:
    words = ("cat", "text", "--lock-timeout", "0.2")
    code, _, said = shell.run("http://127.0.0.1:1", *words)
    assert code == 4
    assert said.endswith("; try again, or give a longer --lock-timeout\n")


def test_the_scheme_of_a_server_may_have_capitals(shell: Shell) -> None:
    url = shell.url.replace("http", "HTTP")
    listed = shell.over_http("topic", "list")
    assert shell.run(url, "topic", "list")[1] == listed
    assert shell.run("elsewhere", "topic", "list", "--store", url)[1] == listed


def test_a_server_is_not_served_again_whatever_names_it(shell: Shell) -> None:
    here, url = str(shell.server.store), "http://127.0.0.1:9"
    for store, *words in (
        (url, "serve"),
        (here, "--store", url, "serve"),
        (here, "serve", url),
        (here, "serve", "--http", "127.0.0.1:0", f"--store={url.upper()}"),
    ):
        code, out, said = shell.run(store, *words)
        assert (code, out) == (2, "")
        assert "http://127.0.0.1:9 is a server already: name the directory" in said.lower(), said


def test_a_command_on_a_directory_imports_nothing_of_the_client(shell: Shell) -> None:
    program = (
        "import sys\nfrom falaj.cli.app import run\nrun()\nsys.stdout.flush()\n"
        "print(sorted({'httpx', 'falaj_client', 'falaj.cli.remote'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "-s", str(shell.server.store), "cat", "text"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("line 11\n[]\n"), done
