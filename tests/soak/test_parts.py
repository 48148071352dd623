"""`make test` and `make test-proof` run two parts at a time, fail with any, and hide nothing.

`make` is a script here that plays the parts.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from soak.harnesses import ROOT

MAKE = """#!/bin/sh
shift
echo "$1 begins"
case $1 in
proof-explore)  # ends only when another is at work beside it
    until [ -e beside ]; do sleep 0.05; done  # sleep: for the other one
    echo 'explore: 2034567 different states in 200 s; and so on';;
proof-storm)
    touch beside
    echo '{"acknowledged":5000001,"complete":true,"kills":512,"points":{}}';;
proof-power) echo '*** NOT RUN: power cuts: only root may mount ***';;
proof-canaries)
    echo 'canary      | caught by | judged | seconds | noticed'
    echo 'none        | explorer  | 1 | 1 | nothing'
    echo 'no-crc      | explorer  | 1 | 1 | it did'
    echo 'mark-early  | explorer  | 1 | 1 | NOT GOOD: nothing'
    exit 1;;
esac
"""


@pytest.fixture
def proof(tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    make = tmp_path / "make"
    make.write_text(MAKE.replace("beside", str(tmp_path / "beside")))
    make.chmod(0o755)
    parts = ["proof-explore", "proof-storm", "proof-power", "proof-canaries"]
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/parts.py"), "proof", str(tmp_path / "words"), *parts],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_one_part_that_fails_fails_the_proof_and_is_shown(
    proof: "subprocess.CompletedProcess[str]",
) -> None:
    assert proof.returncode == 1
    assert "proof-canaries begins\n" in proof.stdout
    assert "proof: proof-canaries FAILED" in proof.stdout


def test_the_table_says_what_ran_how_much_and_what_was_not_run(
    proof: "subprocess.CompletedProcess[str]",
) -> None:
    _, _, table = proof.stdout.rpartition("part ")
    rows = {line.split()[0]: " ".join(line.split()) for line in table.splitlines() if line}
    assert "2,034,567 different states" in rows["proof-explore"]
    assert rows["proof-explore"].endswith("nothing")
    assert "512 kills, 5,000,001 acknowledged records" in rows["proof-storm"]
    assert "2 planted bugs, 1 noticed" in rows["proof-canaries"]
    assert rows["proof-canaries"].endswith("FAILED (1)")
    assert "not run, see below" in rows["proof-power"]
    assert rows["proof-power:"] == ("proof-power: *** NOT RUN: power cuts: only root may mount ***")
