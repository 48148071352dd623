"""Notes keep whole lines apart from the pieces that kills leave."""

from pathlib import Path

import pytest

from notes import Notes, read_notes


@pytest.mark.parametrize("kept", range(1, len("\nhad 12 1 ;\n") + 1))
def test_a_piece_of_a_line_is_no_note_and_harms_no_other(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "notes"
    assert read_notes(path) == []
    Notes(path).add("had", 12, 1)
    path.write_bytes(path.read_bytes()[:kept])
    before = [["had", "12", "1"]] if kept >= len("\nhad 12 1 ;") else []
    assert read_notes(path) == before
    Notes(path).add("had", 13, 1)
    assert read_notes(path) == [*before, ["had", "13", "1"]]
