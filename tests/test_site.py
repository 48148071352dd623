"""The documentation site has each page of docs/, and its lists of names are complete."""

import builtins
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

import falaj
from falaj.metrics import exposition
from house import ROOT

SITE = runpy.run_path(str(ROOT / "tools/site_pages.py"))
PAGES = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "docs").rglob("*.md")}


class _Settings(yaml.SafeLoader):
    """Reads mkdocs.yml, in which one setting is a Python object."""


_Settings.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def named(entries: Any) -> list[str]:
    """List the pages of a navigation."""
    if isinstance(entries, str):
        return [entries]
    inner = entries.values() if isinstance(entries, dict) else entries
    return [page for entry in inner for page in named(entry)]


def navigation() -> list[str]:
    return named(yaml.load((ROOT / "mkdocs.yml").read_text(), _Settings)["nav"])


def test_each_page_stands_in_the_navigation_once() -> None:
    pages = {SITE["placed"](path) for path in [*PAGES, *SITE["PAGES"]]}
    decisions = {page for page in pages if page.startswith("decisions/0")}
    assert sorted(navigation()) == sorted(pages - decisions)


def test_the_list_of_decisions_links_each() -> None:
    folder = ROOT / "docs/decisions"
    listed = re.findall(r"\]\((0[\w-]+\.md)\)", (folder / "README.md").read_text())
    assert listed == sorted(path.name for path in folder.glob("0*.md"))


def test_the_reference_describes_each_public_name() -> None:
    text = "\n".join(path.read_text() for path in PAGES.values())
    described = {name.rpartition(".")[2] for name in re.findall(r"^::: (falaj[\w.]*)$", text, re.M)}
    public = {name for name in falaj.__all__ if not name.startswith("__")}
    # An error is described with its module.
    assert public - {"Error"} - described == set()


def test_the_faq_tells_of_each_error_class_once() -> None:
    text = (ROOT / "docs/faq.md").read_text()
    told = re.findall(r"^\| `([A-Z]\w+)` \|", text, re.M)
    assert sorted(told) == sorted(falaj.errors.__all__)


BUILT_IN = {kind for kind in vars(builtins).values() if isinstance(kind, type)}


def test_the_reference_lists_each_error_with_its_base_and_its_built_in() -> None:
    text = (ROOT / "docs/api/errors.md").read_text()
    told = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(\w+)` \|$", text, re.M)
    bases = falaj.Error.__subclasses__()
    found = [
        (
            each.__name__,
            base.__name__,
            next(k.__name__ for k in each.__mro__ if k.__module__ == "builtins"),
        )
        for each in (getattr(falaj.errors, name) for name in falaj.errors.__all__)
        for base in bases
        if issubclass(each, base) and each is not base
    ]
    assert sorted(told) == sorted(found)


def test_the_metrics_that_pages_name_are_exposed(store: falaj.Store) -> None:
    store.queue("mails").put(b"welcome")
    with store.consumer("billing", "mails") as billing:
        billing.poll(timeout=0)
        exposed = set(re.findall(r"^# TYPE (\w+) ", exposition(store.metrics()), re.M))
    text = "\n".join(path.read_text() for path in PAGES.values())
    named = set(re.findall(r"`(falaj_\w+_\w+)`", text))
    assert len(named) > 5
    assert named - exposed == set()


@pytest.mark.parametrize(
    ("target", "page", "led"),
    [
        ("reading.md", "docs/guide/start.md", "reading.md"),
        ("../cli.md", "docs/guide/start.md", "../cli.md"),
        ("../CONTRIBUTING.md", "docs/ARCHITECTURE.md", "project/contributing.md"),
        ("../../examples/follow.py", "docs/guide/start.md", "/blob/main/examples/follow.py"),
        ("../examples", "docs/cookbook.md", "/tree/main/examples"),
        ("docs/guide/start.md", "CHANGELOG.md", "../guide/start.md"),
        ("decisions/", "docs/ARCHITECTURE.md", "decisions/README.md"),
    ],
)
def test_a_link_leads_to_the_same_file_on_the_site(target: str, page: str, led: str) -> None:
    found = SITE["led"](target, page)
    assert found == (SITE["REPOSITORY"] + led if led.startswith("/") else led)


def test_a_link_that_leads_nowhere_ends_the_build() -> None:
    with pytest.raises(SystemExit, match=r"docs/cli.md links gone.md, .* no docs/gone.md"):
        SITE["led"]("gone.md", "docs/cli.md")


def test_links_in_code_are_left_alone() -> None:
    text = "[a](../README.md) `[b](../README.md)`\n\n```text\n[c](../README.md)\n```\n"
    there = f"{SITE['REPOSITORY']}/blob/main/README.md"
    changed = text.replace("[a](../README.md)", f"[a]({there})")
    assert SITE["for_the_site"](text, "docs/cli.md") == changed


def test_all_pages_are_laid_out(tmp_path: Path) -> None:
    SITE["lay_out"](tmp_path / "site")
    assert {page for page in navigation() if not (tmp_path / "site" / page).is_file()} == set()
    assert (tmp_path / "site/images/overview.svg").is_file()
