"""Findings are read from the files of the job that found them, and of no other."""

import json
from pathlib import Path

from soak import findings
from soak.harnesses import Turn, everything


def test_each_job_has_the_files_that_it_goes_on_from_and_no_other(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    (programs / "tests").mkdir(parents=True)
    for kind in ("explore", "flips", "sanitized"):
        jobs = [job for job in everything(programs).jobs if job.kind == kind]
        folder = tmp_path / kind
        folder.mkdir()
        written: dict[str, list[Path]] = {job.name: [] for job in jobs}
        for job in jobs:
            for seed, number in ((1, 0), (12, 1), (12, 2)):
                kept = folder / (f"{job.name}-{seed}" if job.seeded else job.name)
                words = job.command(Turn(seed, number, 60.0, kept, tmp_path))
                written[job.name] += [Path(word) for word in words if word.endswith(".json")]
        for paths in written.values():
            for path in paths:
                path.write_text("{}")
        for name, paths in written.items():
            assert findings.files_of(folder, name) == sorted(set(paths)), name
        assert any(written.values())


def test_what_was_found_is_forgotten_and_what_was_done_is_not(tmp_path: Path) -> None:
    path = tmp_path / "explore-0-7.json"
    path.write_text(json.dumps({"round": 3, "violations": [{"what": "gone", "site": "pwrite/x"}]}))
    assert findings.told(path) == ["gone (at pwrite/x)"]
    findings.forget(path)
    assert json.loads(path.read_text()) == {"round": 3, "violations": []}
    path.write_text(json.dumps({"next": 3, "findings": ["case 2: a", "case 3: b"]}))
    assert findings.told(path) == ["case 2: a", "case 3: b"]
