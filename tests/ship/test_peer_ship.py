"""Stores that are shipped to a peer: commands, kills of the peer's server, nodes that restore."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import falaj
from falaj.ship.verify import verify_place
from ship.conftest import Started
from ship.servers import Peer

SECONDS = 8.0


@pytest.fixture
def peer(tmp_path: Path, started: Started) -> Iterator[Peer]:
    """Start a server of its own for a test, which may kill it."""
    started("peer")  # the test is skipped without the program
    folder = tmp_path / "machine"
    folder.mkdir()
    with Peer(folder) as server:
        yield server


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command."""
    return subprocess.run(
        [sys.executable, "-m", "falaj", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def values(path: Path) -> list[bytes]:
    """Return the records of a store's topic."""
    with falaj.open(path, read_only=True) as store:
        return [record.value for record in store.topic("orders", codec="bytes")]


def test_commands_ship_list_verify_and_restore_by_the_url_of_a_peer(
    tmp_path: Path, peer: Peer
) -> None:
    store, url = os.fspath(tmp_path / "store"), f"{peer.endpoint}/shop"
    with falaj.open(store) as opened:
        opened.topic("orders", codec="bytes").extend([b"one", b"two"])
    restored = ""
    for words in (
        ("ship", "-s", store, url, "--once", "--json"),
        ("place", "list", url, "--json"),
        ("place", "verify", url, "--deep"),
        ("restore", url, "-s", os.fspath(tmp_path / "copy"), "--json"),
    ):
        refused = run(*words)
        assert refused.returncode, words
        assert "FALAJ_TOKEN" in refused.stderr, (words, refused.stderr)
        done = run(*words, FALAJ_TOKEN=peer.token)
        assert done.returncode == 0, (words, done.stderr)
        assert peer.token not in done.stdout + done.stderr
        restored = done.stdout
    assert values(tmp_path / "copy") == [b"one", b"two"]
    assert json.loads(restored)["number"] == 2
    # The peer's disk has a place there, and nothing of the server in it.
    assert run("place", "verify", os.fspath(peer.folder / "place" / "shop")).returncode == 0
    assert sorted(os.listdir(peer.folder / "place")) == [".new", "shop"]


def test_what_the_peer_acknowledged_is_there_however_often_its_server_is_killed(
    tmp_path: Path, peer: Peer
) -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")  # noqa: T201  # to see a failure again
    chance, token = random.Random(seed), peer.token
    url = f"{peer.endpoint}/shop"
    stop, acknowledged = threading.Event(), list[bytes]()
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", codec="bytes")
        failed = list[BaseException]()

        def ship() -> None:
            try:
                store.ship(url, stop=stop, token=token)
            except BaseException as error:  # noqa: BLE001  # told by the test
                failed.append(error)

        def kill() -> None:
            while not stop.wait(chance.uniform(0.2, 1.2)):
                peer.stop()
                stop.wait(chance.uniform(0.0, 0.3))
                peer.start()

        threads = [threading.Thread(target=ship), threading.Thread(target=kill)]
        for one in threads:
            one.start()
        until = time.monotonic() + SECONDS
        try:
            for number in range(1_000_000):
                if time.monotonic() > until and len(acknowledged) > 20:
                    break
                value = b"%d" % number + bytes(chance.choice((0, 100, 90_000)))
                try:
                    topic.append(value, sync="remote", timeout=20)
                except falaj.errors.NoShipper:
                    assert not failed, failed  # it begins yet
                    time.sleep(0.01)  # sleep: a shipper that begins says nothing
                    continue
                acknowledged.append(value)
        finally:
            stop.set()
            for one in threads:
                one.join()
        assert not failed, failed
    falaj.restore(url, tmp_path / "copy", token=token)
    found = values(tmp_path / "copy")
    at = iter(found)
    assert all(value in at for value in acknowledged), (len(found), len(acknowledged))
    assert verify_place(peer.open("shop"))[0].findings == []
