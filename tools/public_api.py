#!/usr/bin/env python3
"""List the public items of crate falaj, so that a change of its API shows in review.

    public_api.py           rewrite rust/log/public-api.txt
    public_api.py --check   compare it; 1 where it differs, 77 without a nightly compiler

Only a nightly rustdoc describes a crate as JSON. The JSON says which items a user sees. The list
takes their declarations from the sources, with the code's own words.
"""

import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LISTING = ROOT / "rust/log/public-api.txt"
NOT_RUN = 77

Item = dict[str, Any]


def described() -> Item:
    """Let rustdoc describe the crate."""
    target = os.environ.get("CARGO_TARGET_DIR") or str(ROOT / "target")
    command = ["cargo", "+nightly", "rustdoc", "--quiet", "--locked", "--package", "falaj", "--lib"]
    command += ["--target-dir", f"{target}/public-api", "--"]
    command += ["-Zunstable-options", "--output-format=json", "--cap-lints=allow"]
    subprocess.run(command, cwd=ROOT, check=True)
    crate: Item = json.loads(Path(target, "public-api/doc/falaj.json").read_text())
    return crate


class Api:
    """The description of the crate by rustdoc, read item by item."""

    def __init__(self, crate: Item) -> None:
        self.crate = crate
        self.index: dict[str, Item] = crate["index"]

    def item(self, number: int) -> Item | None:
        """Find an item; None for one that is hidden or of another crate."""
        return self.index.get(str(number))

    def declaration(self, item: Item) -> str:
        """Read the declaration of an item from its source: all before its body, on one line."""
        span = item["span"]
        lines = (ROOT / span["filename"]).read_text().splitlines()
        (first, column), (last, end) = span["begin"], span["end"]
        text = "\n".join(lines[first - 1 : last])
        text = text[column - 1 :] if first != last else lines[first - 1][column - 1 : end]
        text = re.sub(r"^\s*(?:#\[[^\n]*\]\s*|//[^\n]*\n\s*)*", "", text)
        kind = next(iter(item["inner"]))
        stop = {"constant": ";", "struct_field": "\0", "variant": "\0"}.get(kind, "{")
        if kind == "struct" and ";" in text.split("{")[0]:
            stop = ";"
        words = " ".join(text.split(stop)[0].split())
        return words.replace("( ", "(").replace(", )", ")").rstrip(" ,")

    def listing(self) -> Iterator[str]:
        """Yield a line for each item, with its path in front."""
        root = self.item(self.crate["root"])
        assert root is not None
        yield from self.module("falaj", root)

    def module(self, path: str, module: Item) -> Iterator[str]:
        """List a module: its own items, and those that it re-exports."""
        for number in module["inner"]["module"]["items"]:
            item = self.item(number)
            name = item["name"] if item else None
            if item and "use" in item["inner"]:
                name = item["inner"]["use"]["name"]
                item = self.item(item["inner"]["use"]["id"])
            if item is None:
                continue
            if "module" in item["inner"]:
                yield f"{path}::{name}: module"
                yield from self.module(f"{path}::{name}", item)
            else:
                yield from self.thing(f"{path}::{name}", item)

    def thing(self, path: str, item: Item) -> Iterator[str]:
        """List a type with what belongs to it, or a function, constant or alias."""
        yield f"{path}: {self.declaration(item)}"
        kind, inner = next(iter(item["inner"].items()))
        if kind == "struct":
            shape = inner["kind"]
            for number in shape["plain"]["fields"] if "plain" in shape else []:
                yield from self.member(path, number)
        if kind == "enum":
            for number in inner["variants"]:
                yield from self.member(path, number)
        for number in inner.get("impls", []) if isinstance(inner, dict) else []:
            impl = self.item(number)
            if impl is not None:
                yield from self.impl(path, impl)

    def member(self, path: str, number: int) -> Iterator[str]:
        """List a field, a variant or a method."""
        item = self.item(number)
        if item is not None:
            yield f"{path}::{item['name']}: {self.declaration(item)}"

    def impl(self, path: str, impl: Item) -> Iterator[str]:
        """List the methods of a type, or a trait that it implements."""
        inner = impl["inner"]["impl"]
        if inner["is_synthetic"] or inner["blanket_impl"]:
            return
        if inner["trait"] is None:
            for number in inner["items"]:
                yield from self.member(path, number)
        elif "automatically_derived" in json.dumps(impl["attrs"]):
            yield f"{path}: derives {inner['trait']['path'].split('::')[-1]}"
        else:
            yield f"{path}: {self.declaration(impl)}"


def main() -> int:
    """Rewrite the listing, or compare it."""
    nightly = subprocess.run(["rustc", "+nightly", "-V"], capture_output=True, check=False)
    if nightly.returncode:
        print(
            "NOT RUN: the listing of the public API, for want of a nightly compiler "
            "(rustup toolchain install nightly)"
        )
        return NOT_RUN
    text = "".join(f"{line}\n" for line in sorted(set(Api(described()).listing())))
    if "--check" not in sys.argv[1:]:
        LISTING.write_text(text)
        return 0
    known = LISTING.read_text()
    if text == known:
        return 0
    changes = difflib.unified_diff(
        known.splitlines(), text.splitlines(), "listed", "now", "", "", 0, ""
    )
    print(*changes, sep="\n")
    print("The public API changed. If you meant that, write the list again: make public-api")
    return 1


if __name__ == "__main__":
    sys.exit(main())
