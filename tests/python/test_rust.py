"""A Rust service and a Python process on one store, both ways, at the same time.

The services are the crate's own examples, as a reader of its documentation would run them.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

import falaj

COUNT = 20_000
IDLE_MS = 1_000
BUILD_S = 600

needs_cargo = pytest.mark.skipif(
    shutil.which("cargo") is None,
    reason="NOT TESTED: Rust beside Python on one store, for want of cargo",
)
pytestmark = [needs_cargo, pytest.mark.timeout(BUILD_S + 60)]


@cache
def example(name: str) -> str:
    """Build an example, unless the workspace's tests have, and return its path."""
    built = subprocess.run(
        ["cargo", "build", "-q", "--locked", "--workspace", "--examples", "--message-format=json"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert built.returncode == 0, built.stderr
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == name:
            return str(message["executable"])
    raise AssertionError(f"no example {name}")


@contextmanager
def service(name: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [example(name), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_python_follows_what_a_rust_service_appends(path: Path, store: falaj.Store) -> None:
    topic = store.topic("orders", codec="raw")
    with service("append", path, "orders", COUNT) as process, topic.follow(timeout=30) as follower:
        seen = [next(follower).to_bytes() for _ in range(COUNT)]
        assert process.wait(30) == 0
    assert seen == [b"record %d of a native service" % i for i in range(COUNT)]
    assert topic.durable_offset == COUNT


def test_a_rust_service_follows_what_python_appends(path: Path, store: falaj.Store) -> None:
    topic = store.topic("orders", codec="str")
    with service("follow", path, "orders", IDLE_MS) as process:
        for i in range(COUNT // 2):
            topic.append(f"single {i}", key=b"k", headers={"h": b"1"})
        topic.extend(f"batched {i}" for i in range(COUNT // 2))
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    singles, batched = out.splitlines()[: COUNT // 2], out.splitlines()[COUNT // 2 :]
    assert singles == [f"single {i}" for i in range(COUNT // 2)]
    assert batched == [f"batched {i}" for i in range(COUNT // 2)]


def test_both_write_one_topic_at_once_and_nothing_is_lost(path: Path, store: falaj.Store) -> None:
    topic = store.topic("orders", codec="raw", segment_bytes=1 << 18)
    with service("append", path, "orders", COUNT) as process:
        for i in range(COUNT):
            topic.append(b"python %d" % i)
        assert process.wait(30) == 0
    seen = [record.to_bytes() for record in topic]
    assert [v for v in seen if v.startswith(b"python")] == [b"python %d" % i for i in range(COUNT)]
    rust = [b"record %d of a native service" % i for i in range(COUNT)]
    assert [v for v in seen if v.startswith(b"record")] == rust
    assert len(seen) == 2 * COUNT


def test_the_tour_of_the_crate_runs_and_python_reads_what_it_wrote(tmp_path: Path) -> None:
    with service("tour", tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "open it for writing" in out
    with falaj.open(tmp_path / "events") as store:
        clicks = store.partitioned_topic("clicks", partitions=4)
        assert [record.to_bytes() for record in clicks] == [b"home", b"cart", b"pay"]
        assert clicks.append(b"bye", key=b"ann") == (next(iter(clicks)).partition, 3)
