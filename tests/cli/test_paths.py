"""Every command that takes a path takes the URL of a file, and refuses other URLs by name."""

import pytest

import falaj as library
from cli.shell import Shell

REFUSED = "falaj locks, syncs and renames files, which hdfs does not offer"


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "list", "-s", "hdfs://bucket/x"],
        ["append", "-s", "hdfs://bucket/x", "t"],
        ["append", "-s", "s", "t", "hdfs://bucket/lines.txt"],
        ["cat", "-s", "hdfs://bucket/x", "t"],
        ["backup", "-s", "s", "hdfs://bucket/x"],
        ["verify", "-s", "hdfs://bucket/x"],
        ["repair", "-s", "hdfs://bucket/x"],
        ["demo", "hdfs://bucket/x"],
    ],
)
def test_a_verb_refuses_a_url_by_name_and_makes_nothing(falaj: Shell, words: list[str]) -> None:
    with library.open(falaj.folder / "s"):
        pass
    (falaj.folder / "hdfs:" / "bucket").mkdir(parents=True)
    done = falaj(*words)
    assert done.code == 2
    assert REFUSED in " ".join(done.err.replace("│", " ").split())
    assert not list((falaj.folder / "hdfs:" / "bucket").iterdir())


def test_a_url_that_no_place_has_is_refused_with_the_kinds_that_there_are(falaj: Shell) -> None:
    with library.open(falaj.folder / "s"):
        pass
    for words in (["ship", "-s", "s", "s4://b"], ["place", "list", "s4://b"]):
        done = falaj(*words)
        assert done.code == 2
        assert "a place is a directory, or a URL with s3://, gs://" in done.sentence()


def test_verbs_take_urls_of_files(falaj: Shell) -> None:
    here = falaj.folder
    (here / "all lines").write_text("one\n")
    falaj.ok("append", "-s", f"file://localhost{here}/s", "t", f"file://{here}/all%20lines")
    assert falaj.ok("cat", "-s", f"file:{here}/s", "t") == "one\n"
    falaj.ok("backup", "-s", "s", f"file://{here}/a%20copy")
    assert (here / "a copy").is_dir()


def test_a_place_is_read_and_a_verb_that_writes_says_where_to_write(falaj: Shell) -> None:
    done = falaj("append", "-s", "s3://bucket/x", "t")
    assert done.code == 2
    assert "it is a place that is read" in " ".join(done.err.replace("│", " ").split())
