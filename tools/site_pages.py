#!/usr/bin/env python3
"""Lay out the pages from which the documentation site is built.

Owns: what the site is made of, and where a link leads. Pages are written to be read in a clone:
they link files beside docs/, which a site does not have. This makes copies of the pages. In them
such a link leads to the repository, or to the page of the site that the file became. mkdocs.yml
names the pages. Each build writes the copies again. Usage: site_pages.py [TARGET]
"""

import os
import re
import shutil
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs"
TARGET = ROOT / ".site/docs"
REPOSITORY = "https://github.com/falaj/falaj"
# Files beside docs/ that are pages of the site too.
PAGES = {
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "RELEASE.md": "project/release.md",
    "SECURITY.md": "project/security.md",
    "benches/README.md": "project/benchmarks.md",
}
_FENCED = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")


def placed(path: str) -> str | None:
    """Say where on the site a file of the repository is, if it is there."""
    if path in PAGES:
        return PAGES[path]
    name = path.removeprefix(f"{DOCS}/")
    return name if name != path else None


def led(target: str, page: str, root: Path = ROOT) -> str:
    """Say where a link of a page leads on the site.

    Args:
        target: What stands in the link, from the page's folder, without its anchor.
        page: Path of the page in the repository.
        root: Where the repository lies.
    """
    path = os.path.normpath(PurePosixPath(page).parent / target)
    if not (root / path).exists():
        raise SystemExit(f"{page} links {target}, and there is no {path}")
    if (root / path).is_dir() and (root / path / "README.md").is_file() and placed(path):
        path += "/README.md"
    place = placed(path)
    if place is None or (root / path).is_dir():
        kind = "tree" if (root / path).is_dir() else "blob"
        return f"{REPOSITORY}/{kind}/main/{path}"
    here = placed(page)
    assert here is not None, page
    return os.path.relpath(place, PurePosixPath(here).parent)


def for_the_site(text: str, page: str, root: Path = ROOT) -> str:
    """Change a page's links, and nothing that is code."""
    parts = _FENCED.split(text)
    parts[::2] = [_LINK.sub(lambda m: m[1] + led(m[2], page, root), part) for part in parts[::2]]
    return "".join(parts)


def lay_out(target: Path, root: Path = ROOT) -> None:
    """Write all pages and pictures into a folder, in place of what was there."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root / DOCS, target, ignore=shutil.ignore_patterns("*.md"))
    pages = [*(root / DOCS).rglob("*.md"), *(root / path for path in PAGES)]
    for path in pages:
        page = path.relative_to(root).as_posix()
        place = target / (placed(page) or page)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(for_the_site(path.read_text(), page, root))


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]) if sys.argv[1:] else TARGET)
