"""Editors read docstrings of compiled classes in the stub: they are those of the module."""

import ast

import stub_docs
from falaj import _core

TEXT = stub_docs.STUB.read_text()


def test_the_stub_has_the_docstrings_of_the_module() -> None:
    # After a change of one, run tools/stub_docs.py.
    assert stub_docs.written(TEXT, _core) == TEXT


def test_every_public_class_and_member_of_the_module_has_a_docstring() -> None:
    found = list(stub_docs.wanted(ast.parse(TEXT), _core))
    assert len(found) > 150
    assert [node.name for node, doc in found if not doc] == []


def test_a_docstring_that_changed_or_is_missing_is_written_again() -> None:
    changed = TEXT.replace("A copy of the payload.", "A copy.", 1)
    missing = TEXT.replace('    """A committed record of a topic.\n', '    """', 1)
    assert changed != TEXT != missing
    assert stub_docs.written(changed, _core) == stub_docs.written(missing, _core) == TEXT
