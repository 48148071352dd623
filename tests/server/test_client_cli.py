"""`falaj --store http://…`: commands print over HTTP what they print on the store's directory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import falaj
import falaj_client
from server.doors import Server

PROGRAM = Path(sys.executable).with_name("falaj")


class Shell:
    """The program, on a directory and over HTTP."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{server.port}"

    def run(self, store: str, *words: str, lines: bytes = b"") -> tuple[int, str, str]:
        """Run it on a store; return its code and what it printed."""
        environment = {**os.environ, "FALAJ_STORE": store, "FALAJ_TOKEN": self.server.token}
        environment["PYTHONPATH"] = str(Path(falaj_client.__file__).parent.parent)
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
    ],
)
def test_commands_print_over_http_what_they_print_on_the_directory(
    shell: Shell, words: str
) -> None:
    assert shell.over_http(*words.split()) == shell.on_directory(*words.split()) != ""


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


@pytest.mark.parametrize("words", ["backup elsewhere", "verify", "topic compact text", "repair"])
def test_a_command_that_needs_the_directory_says_so(shell: Shell, words: str) -> None:
    code, out, said = shell.run(shell.url, *words.split())
    assert (code, out) == (2, "")
    assert len(said.splitlines()) == 1
    assert "needs the store's directory: run it on the server's machine" in said


def test_a_refusal_over_http_has_one_sentence_and_the_code_of_its_kind(shell: Shell) -> None:
    for words in (
        ["cat", "nowhere"],
        ["cat", "text", "--durable"],
        ["cat", "text", "--from", "99"],
    ):
        code, out, said = shell.run(shell.url, *words)
        assert (code, out, len(said.splitlines())) == (2, "", 1), said
    code, _, said = shell.run("http://127.0.0.1:1", "cat", "text", "--lock-timeout", "0.2")
    assert (code, len(said.splitlines())) == (4, 1), said


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
