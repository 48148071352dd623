"""Every command that takes a path takes the URL of a file, and refuses other URLs by name."""

import pytest

import falaj as library
from cli.shell import Shell

REFUSED = "falaj locks, syncs and renames files, which s3 does not offer"


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "list", "-s", "s3://bucket/x"],
        ["append", "-s", "s3://bucket/x", "t"],
        ["append", "-s", "s", "t", "s3://bucket/lines.txt"],
        ["cat", "-s", "s3://bucket/x", "t"],
        ["backup", "-s", "s", "s3://bucket/x"],
        ["verify", "-s", "s3://bucket/x"],
        ["repair", "-s", "s3://bucket/x"],
        ["demo", "s3://bucket/x"],
    ],
)
def test_a_verb_refuses_a_url_by_name_and_makes_nothing(falaj: Shell, words: list[str]) -> None:
    with library.open(falaj.folder / "s"):
        pass
    (falaj.folder / "s3:" / "bucket").mkdir(parents=True)
    done = falaj(*words)
    assert done.code == 2
    assert REFUSED in " ".join(done.err.replace("│", " ").split())
    assert not list((falaj.folder / "s3:" / "bucket").iterdir())


def test_verbs_take_urls_of_files(falaj: Shell) -> None:
    here = falaj.folder
    (here / "all lines").write_text("one\n")
    falaj.ok("append", "-s", f"file://localhost{here}/s", "t", f"file://{here}/all%20lines")
    assert falaj.ok("cat", "-s", f"file:{here}/s", "t") == "one\n"
    falaj.ok("backup", "-s", "s", f"file://{here}/a%20copy")
    assert (here / "a copy").is_dir()
