#!/usr/bin/env python3
"""Use an installed falaj once: records, a group, a queue, a transaction, and the command.

For a wheel on a machine that has nothing else. Usage: smoke.py DIRECTORY [--tests] [--server]

With --tests it also runs part of the tests. They need pytest, pytest-timeout and pytest-benchmark.
With --server it also serves the store with the program that `falaj[server]` brings.
"""

import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

import falaj

ROOT = Path(__file__).resolve().parent.parent
# Where a processor, a C library or a Python could differ: memory that processes share, futexes,
# signals, file locks. These tests need no other package.
PART = ["append", "read", "follow", "processes", "signals", "consumers", "queues", "transactions"]


def use_the_package(folder: Path) -> None:
    """Go through it; an assertion says what does not work."""
    with falaj.open(folder / "store") as store:
        orders = store.topic("orders", codec="json", log="shop")
        assert orders.append({"cups": 2}, key=b"ann", sync="durable") == 0
        with store.consumer("billing", "orders") as billing:
            assert [order.value for order in billing] == [{"cups": 2}]
            billing.commit()
        mails = store.queue("mails")
        mails.put(b"welcome")
        with mails.take(1, timeout=1) as jobs:
            jobs.ack()
        with store.transaction() as tx:
            tx.append(orders, {"cups": 1})
    with falaj.open(folder / "store") as store:
        assert [order.offset for order in store.topic("orders")] == [0, 1]


def use_the_command(folder: Path) -> None:
    """Read with the program what the package wrote."""
    falaj_command = Path(sysconfig.get_path("scripts"), "falaj")
    command: list[str | Path] = [falaj_command, "cat", "--store", folder / "store", "orders"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == ['{"cups":2}', '{"cups":1}'], printed


def use_the_server(folder: Path) -> None:
    """Append and read over HTTP."""
    falaj_command = Path(sysconfig.get_path("scripts"), "falaj")
    command = [str(falaj_command), "serve", str(folder / "store"), "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            address = server.stdout.readline().removeprefix("http ").strip()
            token = (folder / "store/server/token").read_text()
            asked = Request(
                f"{address}/v1/topics/orders/records",
                b'{"cups": 3}',
                {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            )
            with urlopen(asked) as answer:
                assert b'"first":2' in answer.read()
        finally:
            server.terminate()
    assert server.returncode == 0, server.returncode
    with falaj.open(folder / "store") as store:
        assert store.topic("orders")[2].value == {"cups": 3}


def run_part_of_the_tests(folder: Path) -> None:
    """Run tests of the working tree on what is installed."""
    tests = [ROOT / f"tests/python/test_{name}.py" for name in PART]
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'tests'}"]
    command: list[str | Path] = [sys.executable, "-m", "pytest", *options, *tests]
    subprocess.run(command, cwd=ROOT, check=True)


def main(scratch: Path, *options: str) -> None:
    """Do all of it, and say with what it worked."""
    where = Path(falaj.__file__)
    assert where.is_relative_to(sys.prefix), f"{where} is not installed in {sys.prefix}"
    use_the_package(scratch)
    use_the_command(scratch)
    if "--server" in options:
        use_the_server(scratch)
    if "--tests" in options:
        run_part_of_the_tests(scratch)
    name, version = platform.libc_ver()
    library = f"glibc {version}" if name == "glibc" else "musl"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"falaj {falaj.__version__} works with {python}, {platform.machine()}, {library}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as scratch_folder:
        main(Path(scratch_folder), *sys.argv[2:])
