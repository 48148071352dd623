"""`falaj pipeline …`: options and files become configs; Spark's words stay where they belong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow
import pytest
from pyarrow import parquet

import falaj
from cli.shell import Shell, Terminal
from falaj.cli import pipelines
from falaj.cli.app import run
from falaj.errors import OffsetOutOfRange
from falaj.pipeline import ExportConfig, exported_files
from spark.pipelines.test_export import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    Program = Callable[..., tuple[int, str, str]]


@pytest.fixture
def program(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Program:
    """Run the program in this process, in the session that the tests share."""

    @contextmanager
    def shared(settings: dict[str, str]) -> Iterator[SparkSession]:
        given.append(settings)
        yield spark

    given: list[dict[str, str]] = []
    monkeypatch.setattr(pipelines, "_session", shared)
    monkeypatch.chdir(tmp_path)

    def do(*arguments: str) -> tuple[int, str, str]:
        given.clear()
        code = run(["pipeline", *arguments])
        said = capfd.readouterr()
        return code, said.out, said.err

    do.settings = given  # type: ignore[attr-defined]
    return do


def test_an_export_tells_what_it_did(program: Program, tmp_path: Path) -> None:
    fill(tmp_path, 4)
    code, out, err = program("export", "-s", "s", "t", "lake", "--zone", "Asia/Muscat")
    told = dict(line.split("\t") for line in out.splitlines())
    assert (code, err) == (0, "")
    assert (told["records"], told["dates"]) == ("4", "2026-11-20 to 2026-11-20")
    assert len(exported_files(tmp_path / "lake")) == 1
    code, out, err = program("export", "-s", "s", "t", "lake", "--zone", "Asia/Muscat", "--json")
    assert (code, json.loads(out)["records"], err) == (0, 0, "")


def test_options_win_over_the_file(program: Program, tmp_path: Path) -> None:
    fill(tmp_path, 4)
    (tmp_path / "nightly.toml").write_text(
        'store = "s"\ntopic = "other"\ninto = "lake"\ncolumns = ["value"]\n'
        '[spark]\n"executor.memory" = "4g"\nsql.caseSensitive = true\n'
    )
    arguments = ("export", "-s", "s", "t", "--config", "nightly.toml", "--spark", "spark.x.y=1")
    code, _, err = program(*arguments, "--end", "2026-11-20T06:00:00Z", "--file-records", "1")
    assert (code, err) == (0, "")
    assert len(exported_files(tmp_path / "lake")) == 1
    assert program.settings == [  # type: ignore[attr-defined]
        {"spark.executor.memory": "4g", "spark.sql.caseSensitive": "true", "spark.x.y": "1"}
    ]


def test_an_import_tells_what_it_did(program: Program, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("shop;n\nx;1\n")
    code, out, err = program(
        *("import", "-s", "s", "sales", "a.csv", "--schema", "shop STRING, n INT", "--json"),
        *("--option", "sep=;", "--key", "shop", "--order-by", "n,shop"),
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["offsets"] == {"0": [0, 1]}


def test_a_compaction_tells_what_it_did(program: Program, tmp_path: Path) -> None:
    with falaj.open(tmp_path / "s") as store:
        prices = store.topic("prices", compacted=True)
        prices.extend([(b"tea", b"4"), (b"coffee", b"5"), (b"tea", b"6")])
        prices.tombstone(b"coffee")
    arguments = ("compact", "-s", "s", "prices", "--seal", "--delete-retention", "0", "--json")
    code, out, err = program(*arguments)
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert (told["keys"], told["records"], told["removed"], told["tombstones"]) == (2, 4, 3, 1)
    assert "segments_removed" in told


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("export", "-s", "s", "t"), 2, "into is missing"),
        (("export", "-s", "s", "nothing", "lake"), 2, "there is no topic"),
        (("export", "-s", "s", "t", "lake", "--zone", "Mars"), 2, "there is no time zone 'Mars'"),
        (("export", "--config", "no.toml"), 2, "cannot read no.toml"),
        (("export", "--config", "bad.toml"), 2, "bad.toml is no TOML"),
        (("export", "--config", "odd.toml"), 2, "there is no 'topik': did you mean topic?"),
        (
            ("export", "-s", "s", "t", "lake", "--spark", "x=1"),
            2,
            "--spark takes spark.…NAME=VALUE",
        ),
        (("import", "-s", "s", "t", "a.csv", "--option", "sep"), 2, "--option takes NAME=VALUE"),
        (("import", "-s", "s", "t", "none.csv"), 2, "there is no file none.csv"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    program: Program, tmp_path: Path, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    fill(tmp_path, 1)
    (tmp_path / "bad.toml").write_text("=")
    (tmp_path / "odd.toml").write_text('topik = "t"')
    ended, out, err = program(*arguments)
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert sentence in err


MORE = ("--checkpoint", "point", "--into", "o", "--schema", "a INT")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("export", "nothing", "lake"), "no topic"),
        (("dedupe", "nothing", "into"), "no topic"),
        (("export", "t", "full"), "holds something that is no export"),
        (("import", "into", "none.csv"), "there is no file none.csv"),
        (("import", "into", "a.parquet", "--key", "shop"), "the files have no column 'shop'"),
        (("join", "t", "--table", "none.csv", "--on", "a"), "is no table"),
        (("profile", "t", "--html", "full"), "full, which is a folder"),
        (("profile", "t", "--html", "none/page.html"), "there is no folder"),
        (("export", "t", "a.parquet"), "is no folder"),
        (("export", "t", "a.parquet/lake"), "is no folder"),
        (("aggregate", "t", "--parquet", "a.parquet", *MORE), "is no folder"),
        (("aggregate", "t", *MORE[2:], "--checkpoint", "full"), "is no checkpoint of a pipeline"),
        (
            ("join", "t", "--table", "a.parquet", "--on", "a", "--checkpoint", "full"),
            "it holds mine",
        ),
    ],
)
def test_mistakes_that_need_no_spark_are_found_before_it_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    def started(_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(pipelines, "_session", started)
    monkeypatch.chdir(tmp_path)
    fill(tmp_path, 1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_bytes(b"")
    parquet.write_table(pyarrow.table({"item": ["tea"]}), tmp_path / "a.parquet")
    more = [] if arguments[0] != "join" else list(MORE)
    if "--checkpoint" in arguments:
        more = more[2:]
    assert run(["pipeline", arguments[0], "-s", "s", *more, *arguments[1:]]) == 2
    assert sentence in capfd.readouterr().err


def test_a_message_names_an_option_once_and_as_the_program_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise OffsetOutOfRange("3 records are gone: go on with on_loss='continue'")

    monkeypatch.chdir(tmp_path)
    fill(tmp_path, 1)
    given = {"store": "s", "topic": "t", "into": "lake", "config": None, "spark": None}
    load = lambda: (ExportConfig, lost)  # noqa: E731
    with pytest.raises(OffsetOutOfRange, match=r"go on with --on-loss continue$"):
        pipelines.run(load, {**given, "as_json": False}, needs_spark=False)  # type: ignore[arg-type]
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("option", [("--allow-network-fs",), ("--lock-timeout", "1")])
def test_options_that_do_nothing_are_refused(tmp_path: Path, option: tuple[str, ...]) -> None:
    ended = Shell(tmp_path)(*option, "pipeline", "export", "-s", "s", "t", "lake")
    assert ended.code == 2
    assert f"there is no option {option[0]}" in ended.sentence()


def test_the_store_is_the_options_or_else_the_files_or_else_the_variables(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, 4)
    (tmp_path / "one.toml").write_text('store = "one"\n')
    arguments = ("export", "none", "lake")
    monkeypatch.setenv("FALAJ_STORE", "s")
    for more, store in (((), "/s"), (("--config", "one.toml"), "one"), (("-s", "two"), "two")):
        code, _, err = program(*arguments, *more)
        assert code == 2
        assert store in err, err


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_its_extra_it_says_how_to_get_it(missing: str, tmp_path: Path) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from falaj.cli.app import run\n"
        "sys.exit(run(['pipeline', 'export', '-s', 's', 't', 'lake']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "falaj: pipelines run in Spark: pip install 'falaj[spark]'\n"


RELAY = """
import subprocess, sys
from falaj.cli.relay import Relay
relay = Relay()
with relay.instead_of_ours():
    subprocess.run(["sh", "-c", "echo early; echo error >&2"])
    late = subprocess.Popen(["sh", "-c", "read go; echo late"], stdin=subprocess.PIPE)
relay.decide(show=sys.argv[1] == "show")
print("result")
late.communicate(b"go\\n")
relay.drain()
"""


@pytest.mark.parametrize(("how", "early"), [("hide", ""), ("show", "early\nerror\n")])
def test_what_spark_says_while_it_starts_is_kept_back(how: str, early: str) -> None:
    command = [sys.executable, "-c", RELAY, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("result\n", early + "late\n")


BAR = """
from falaj.cli.pipelines import _shown
with _shown() as bar:
    bar.say("one"); bar.total(4); bar.advance(4)
    bar.say("two"); bar.total(7); bar.advance(7)
"""


def test_a_bar_follows_the_parts_of_the_work(tmp_path: Path) -> None:
    bar = Terminal([sys.executable, "-c", BAR], tmp_path, {**os.environ, "NO_COLOR": "1"}).end()
    assert bar.code == 0
    for part in ("one", "4/4", "two", "7/7"):
        assert part in bar.out
