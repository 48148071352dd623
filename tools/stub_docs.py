#!/usr/bin/env python3
"""Copy the docstrings of the compiled module into its stub, where editors look for them.

Owns: every docstring in python/falaj/_core.pyi. They are written once, in rust/py/src. A test
compares the two, so build the module, then run this after a docstring changed.

Usage: stub_docs.py [--check]
"""

import argparse
import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "python" / "falaj" / "_core.pyi"

Documented = ast.ClassDef | ast.FunctionDef


def wanted(tree: ast.Module, module: ModuleType) -> Iterator[tuple[Documented, str]]:
    """Give each public class and member of the stub with the docstring of the module, or ""."""
    for node in tree.body:
        if not isinstance(node, Documented) or node.name.startswith("_"):
            continue
        there = getattr(module, node.name)
        yield node, own_doc(there)
        if isinstance(node, ast.ClassDef):
            seen: set[str] = set()
            for member in node.body:
                if not isinstance(member, ast.FunctionDef) or member.name.startswith("_"):
                    continue
                # The first of several overloads has it.
                if member.name in vars(there) and member.name not in seen:
                    yield member, own_doc(vars(there)[member.name])
                seen.add(member.name)


def own_doc(found: object) -> str:
    """Give the docstring of an object, without that of its class or of a base."""
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    return inspect.cleandoc(getattr(found, "__doc__", None) or "")


def written(text: str, module: ModuleType) -> str:
    """Return the stub with the docstrings of the module."""
    lines = text.splitlines()
    for node, doc in sorted(wanted(ast.parse(text), module), key=lambda found: -found[0].lineno):
        body, indent = node.body, " " * (node.col_offset + 4)
        first = body[0]
        has_old = ast.get_docstring(node) is not None
        quoted = textwrap.indent(f'"""{doc}"""' if "\n" not in doc else f'"""{doc}\n"""', indent)
        new = quoted.splitlines() if doc else []
        if has_old:
            rest = [] if doc or len(body) > 1 else [f"{indent}..."]
            lines[first.lineno - 1 : first.end_lineno] = new + rest
        elif is_ellipsis(first):
            if not doc:
                continue
            at = first.lineno - 1
            head = lines[at][: first.col_offset].rstrip()
            lines[at : at + 1] = ([head] if head else []) + new
        elif doc:
            lines[first_line(first) - 1 : first_line(first) - 1] = [*new, ""]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def is_ellipsis(node: ast.stmt) -> bool:
    """Say whether this is the only statement of an empty body."""
    return isinstance(node, ast.Expr) and getattr(node.value, "value", None) is ...


def first_line(node: ast.stmt) -> int:
    """Give the line where a statement begins, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def main() -> int:
    """Write the stub, or say that it would change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT / "python"))
    from falaj import _core

    before = STUB.read_text()
    after = written(before, _core)
    if before == after:
        return 0
    if given.check:
        print(f"{STUB}: a docstring differs from the module's; run tools/stub_docs.py")
        return 1
    STUB.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
