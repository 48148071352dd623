"""Several interpreters in a process, as under mod_wsgi: only one of them has falaj."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
try:
    import _xxsubinterpreters as interpreters
    second = interpreters.create(isolated=False)
except ImportError:  # since Python 3.13
    import _interpreters as interpreters
    second = interpreters.create("legacy")
path, told, is_first = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
if is_first:
    import falaj
    falaj.open(path).topic("orders").append(b"x")
interpreters.run_string(second, f'''
import sys
sys.path[:] = {sys.path!r}
try:
    import falaj
except ImportError as error:
    open({told!r}, "w").write(str(error))
''')
interpreters.destroy(second)
import falaj
orders = falaj.open(path).topic("orders")
orders.append(b"x", key=b"eu")
try:
    orders[99]
except falaj.errors.OffsetOutOfRange:
    pass
assert [record.to_bytes() for record in orders] == [b"x"] * (2 if is_first else 1)
assert falaj.Position(0, 1).offset == 1
"""


@pytest.mark.parametrize("is_first", [True, False], ids=["after the main one", "before it"])
def test_a_second_interpreter_is_refused_and_the_main_one_goes_on(
    path: Path, tmp_path: Path, is_first: bool
) -> None:
    told = tmp_path / "told"
    program = [sys.executable, "-c", PROGRAM, os.fspath(path), os.fspath(told), str(is_first)]
    ended = subprocess.run(program, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "subinterpreter" in told.read_text()
    assert "WSGIApplicationGroup %{GLOBAL}" in told.read_text()
