"""README.md and the pages for users are true: their code does what they say."""

import json
import re
import tomllib
from pathlib import Path

import pytest

import page_driver
from house import ROOT
from papers import LANGUAGES, Block, blocks, guides_of_spark, pages, recipes, run
from runner import table
from runner.peers import page as peers

PAGES = pages()
BLOCKS = [block for page, text in PAGES.items() for block in blocks(page, text)]
README_LINES_MAX = 240
# Blocks that do not run, page by page; each says why.
NOT_RUN = {
    "README.md": 2,
    "docs/guide/client.md": 2,
    "docs/guide/rust.md": 2,
    "docs/guide/spark.md": 6,
    "docs/quickstart/rust.md": 1,
}


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def test_there_are_pages_with_blocks_of_every_kind() -> None:
    assert {"README.md", "docs/guide/start.md", "docs/guide/operating.md"} <= PAGES.keys()
    assert {block.language for block in BLOCKS} <= LANGUAGES
    assert len(of("python")) > 20
    assert of("console")
    assert of("rust")


def test_blocks_of_json_are_json() -> None:
    assert of("json")
    for block in of("json"):
        json.loads(block.text)


RUN_HERE = [page for page in PAGES if page not in {*guides_of_spark(), *recipes()}]


@pytest.mark.parametrize("page", RUN_HERE)
def test_a_page_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    run([block for block in blocks(page, PAGES[page]) if block.runs], tmp_path)


def test_blocks_that_do_not_run_say_why_and_are_few() -> None:
    silent = [block for block in BLOCKS if block.reason]
    counts = {page: sum(block.page == page for block in silent) for page in PAGES}
    assert {page: count for page, count in counts.items() if count} == NOT_RUN
    assert all(len(block.reason or "") > 10 for block in silent)


def test_make_lines_name_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = [(block.place, target) for block in BLOCKS for target in block.targets]
    assert [(place, target) for place, target in named if target not in targets] == []
    assert {"demo", "test"} <= {target for _, target in named}


def test_rust_blocks_stand_in_examples_that_are_compiled() -> None:
    examples = "\n".join(path.read_text() for path in (ROOT / "rust/log/examples").glob("*.rs"))
    plain = without_indentation(examples)
    absent = [block.place for block in of("rust") if without_indentation(block.text) not in plain]
    assert absent == []


def without_indentation(code: str) -> str:
    return "\n".join(line.strip() for line in code.splitlines())


def test_toml_blocks_are_toml() -> None:
    for block in of("toml"):
        assert tomllib.loads(block.text)


def test_the_front_page_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) <= README_LINES_MAX


def test_the_speed_on_the_front_page_is_that_of_the_run_that_was_kept() -> None:
    summary = json.loads((ROOT / "benches/figures-peers.json").read_text())
    markers = (peers.BEGIN, peers.END)
    page = PAGES["README.md"]
    assert table.between_markers(page, peers.markdown(summary), markers) == page


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    links = re.findall(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]*)?\)|srcset=\"(.*?)\"", PAGES[page])
    for path, anchor, image in links:
        target = folder / (path or image) if path or image else ROOT / page
        assert target.exists(), (page, path or image)
        if anchor:
            assert anchor[1:] in anchors(target.read_text()), (page, path + anchor)


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- Each rule complains of a bad sample ----------------------------------------------------------


def page_of(*code: str) -> list[Block]:
    return blocks("p.md", "# Page\n\n" + "\n".join(code))


def test_blocks_are_found_with_their_lines_and_reasons() -> None:
    found = page_of(
        "```python", "x = 1", "```", "<!-- not run: no such machine -->", "```sh", "```"
    )
    assert found == [
        Block("p.md", 4, "python", "x = 1\n"),
        Block("p.md", 8, "sh", "\n", "no such machine"),
    ]
    assert [block.runs for block in found] == [True, False]


@pytest.mark.parametrize(
    "bad",
    [
        ("```python", "print(1 + 1)  # 3", "```"),
        ("```python", "print(1 + 1)       # 3", "```"),
        ("```python", "for i in range(2):", "    print(i)  # 1", "print(2)  # 0", "```"),
        ("```python", "raise SystemExit(3)", "```"),
        ("```python", "undefined", "```"),
        ("```sh", "false; true", "```"),
        ("```console", "$ echo a", "b", "```"),
        ("```console", "$ echo a", "```"),
    ],
)
def test_a_block_that_does_something_else_is_complained_of(
    bad: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(AssertionError):
        run(page_of(*bad), tmp_path)


def test_blocks_share_names_files_and_a_directory(tmp_path: Path) -> None:
    page = ["```python", "x = 41", "```", "```python", "# a.py", "print(42)", "```"]
    page += ["```python", "print(x + 1)  # 42", "```", "```console", "$ python a.py", "42", "```"]
    run(page_of(*page), tmp_path)


def test_dots_stand_for_anything() -> None:
    assert page_driver.matches("a 12 b\n", "a … b\n")
    assert not page_driver.matches("a 12 c\n", "a … b\n")
    assert page_driver.lines_missing("a\nb\nc\n", ["a", "c"]) == []
    assert page_driver.lines_missing("a\nb\n", ["b", "a"]) == ["a"]
