"""The recipes in docs/recipes work as they stand there, with the real servers, pools and kernels.

The pages are the only source: each test writes the blocks of a page into a directory and starts
what the page says. Servers listen at a port that the kernel chose.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

import falaj
from house import ROOT
from papers import Block, blocks

RECIPES = ROOT / "docs/recipes"
DEADLINE_S = 60


def python_blocks(page: str) -> list[Block]:
    found = blocks(page, (RECIPES / page).read_text())
    return [block for block in found if block.language == "python"]


def write_programs(page: str, folder: Path) -> None:
    for block in python_blocks(page):
        name, newline, _ = block.text.partition("\n")
        assert newline
        (folder / name.removeprefix("# ")).write_text(block.text)


@contextlib.contextmanager
def running(folder: Path, *command: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a module of the interpreter in a folder; what it says goes into the file `said`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**kept, "EVENTS": str(folder / "events"), "PYTHONUNBUFFERED": "1", **variables}
    said: IO[str]
    with (folder / "said").open("a") as said:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=said,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def said(folder: Path) -> str:
    return (folder / "said").read_text()


def until(happens: Callable[[], Any], folder: Path) -> None:
    """Wait until something happened in another process, which says it in no other way."""
    end = time.monotonic() + DEADLINE_S
    while not happens():
        assert time.monotonic() < end, said(folder)
        time.sleep(0.02)  # sleep: other people's servers announce nothing that one could wait for


def ended(process: "subprocess.Popen[str]", folder: Path) -> int:
    """Ask a server to end, and return its exit code."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise AssertionError(said(folder)) from None


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class Site:
    """A site at a port of this machine."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"

    def open(self, path: str, **headers: str) -> Any:
        request = urllib.request.Request(self.root + path, headers=headers)
        return urllib.request.urlopen(request, timeout=DEADLINE_S)

    def get(self, path: str) -> str:
        with self.open(path) as answer:
            text: str = answer.read().decode()
            return text

    def post(self, path: str, value: object) -> Any:
        headers = {"Content-Type": "application/json"}
        body = json.dumps(value).encode()
        request = urllib.request.Request(self.root + path, data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)

    def answers(self) -> bool:
        try:
            self.open("/").close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def events(self, last: int, count: int) -> Generator[tuple[int, Any], None, None]:
        """Read so many server-sent events; the connection stays open meanwhile."""
        with self.open("/orders/events", **{"Last-Event-ID": str(last)}) as stream:
            for _ in range(count):
                offset = int(stream.readline().removeprefix(b"id: "))
                yield offset, json.loads(stream.readline().removeprefix(b"data: "))
                assert stream.readline() == b"\n"


def test_each_recipe_is_run_here() -> None:
    here = Path(__file__).read_text()
    pages = sorted(path.name for path in RECIPES.glob("*.md"))
    assert len(pages) >= 5
    assert [page for page in pages if f'"{page}"' not in here] == []


# --- FastAPI and uvicorn -------------------------------------------------------------------------


def uvicorn(port: int, *options: str) -> list[str]:
    return ["-m", "uvicorn", "shop:app", "--port", str(port), *options]


def test_events_of_several_workers_come_once_and_resume_after_the_last(tmp_path: Path) -> None:
    write_programs("web.md", tmp_path)
    port = free_port()
    site = Site(port)
    serve = uvicorn(port, "--workers", "2", "--timeout-graceful-shutdown", "1")
    with running(tmp_path, *serve) as server:
        until(site.answers, tmp_path)
        offsets = [site.post("/orders", {"item": n})["offset"] for n in range(20)]
        assert offsets == list(range(20))
        stream = site.events(-1, 21)
        assert [next(stream) for _ in range(20)] == [(n, {"item": n}) for n in range(20)]
        assert site.post("/orders", {"item": "late"}) == {"offset": 20}
        assert next(stream) == (20, {"item": "late"})  # while the connection is open
        assert [offset for offset, _ in site.events(17, 3)] == [18, 19, 20]
        assert ended(server, tmp_path) in (0, -signal.SIGTERM)
        stream.close()
    assert "Traceback" not in said(tmp_path)
    with running(tmp_path, *serve) as server:
        until(site.answers, tmp_path)
        assert list(site.events(19, 1)) == [(20, {"item": "late"})]
        assert ended(server, tmp_path) in (0, -signal.SIGTERM)


def test_a_reload_loses_no_order_and_repeats_none(tmp_path: Path) -> None:
    write_programs("web.md", tmp_path)
    port = free_port()
    site = Site(port)
    with running(tmp_path, *uvicorn(port, "--reload")) as server:
        until(site.answers, tmp_path)
        assert site.post("/orders", {"item": 0}) == {"offset": 0}
        program = tmp_path / "shop.py"
        program.write_text(program.read_text().replace('{"offset":', '{"number":'))
        os.utime(program, (time.time() + 5, time.time() + 5))
        until(lambda: said(tmp_path).count("Application startup complete") == 2, tmp_path)
        until(site.answers, tmp_path)
        assert site.post("/orders", {"item": 1}) == {"number": 1}
        ended(server, tmp_path)
    with falaj.open(tmp_path / "events", read_only=True) as store:
        assert [order.value["item"] for order in store.topic("orders")] == [0, 1]


# --- Preforking ----------------------------------------------------------------------------------


def test_workers_of_gunicorn_write_with_the_handles_that_they_inherit(tmp_path: Path) -> None:
    write_programs("prefork.md", tmp_path)
    port = free_port()
    site = Site(port)
    command = ["-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}"]
    with running(tmp_path, *command, "site_app") as server:
        until(site.answers, tmp_path)
        first = int(site.get("/"))
        assert [int(site.get(f"/{n}")) for n in range(20)] == list(range(first + 1, first + 21))
        server.send_signal(signal.SIGHUP)  # new workers
        until(lambda: said(tmp_path).count("Booting worker") >= 4, tmp_path)
        until(site.answers, tmp_path)
        after = int(site.get("/after"))
        assert ended(server, tmp_path) == 0
    with falaj.open(tmp_path / "events") as store:
        visits = store.topic("visits")
        assert visits[after].value["path"] == "/after"
        assert server.pid not in {visit.value["worker"] for visit in visits}
        assert store.verify()["sound"]


def test_tasks_of_celerys_pool_append_with_the_handles_that_they_inherit(tmp_path: Path) -> None:
    write_programs("prefork.md", tmp_path)
    (tmp_path / "broker").mkdir()
    broker = {"BROKER": "filesystem://", "BROKER_FOLDER": str(tmp_path / "broker")}
    send = "import tasks\nfor n in range(20):\n    tasks.resize.delay(f'{n}.png')\n"
    with running(tmp_path, "-c", send, **broker) as sender:
        assert sender.wait(DEADLINE_S) == 0, said(tmp_path)
    command = ["-m", "celery", "-A", "tasks", "worker", "--concurrency", "2", "--loglevel", "INFO"]
    quiet = ["--without-gossip", "--without-mingle"]
    with running(tmp_path, *command, *quiet, **broker) as worker:
        with falaj.open(tmp_path / "events") as store:
            store.wait_for_topic("done", DEADLINE_S)
            follower = store.topic("done").follow(timeout=DEADLINE_S)
            done = [next(follower).value for _ in range(20)]
            follower.close()
        assert ended(worker, tmp_path) == 0
    assert sorted(each["picture"] for each in done) == sorted(f"{n}.png" for n in range(20))
    assert worker.pid not in {each["worker"] for each in done}


# --- Django --------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["runserver", "gunicorn"])
def test_django_logs_requests_and_tracebacks_into_a_topic(tmp_path: Path, server: str) -> None:
    write_programs("django.md", tmp_path)
    port = free_port()
    site = Site(port)
    at = f"127.0.0.1:{port}"
    command = {
        "runserver": ["shop_site.py", "runserver", "--noreload", at],
        "gunicorn": ["-m", "gunicorn", "--workers", "2", "--bind", at, "shop_site"],
    }[server]
    with running(tmp_path, *command) as process:
        until(site.answers, tmp_path)
        assert site.get("/") == "hello"
        with pytest.raises(urllib.error.HTTPError):
            site.get("/fail/")
        ended(process, tmp_path)
    with falaj.open(tmp_path / "events", read_only=True) as store:
        lines = {record.key: record.value for record in store.topic("log")}
    assert "ValueError: no such order" in lines[b"django.request"]["exception"]
    assert (b"django.server" in lines) == (server == "runserver")


# --- Notebooks -----------------------------------------------------------------------------------


def test_a_notebook_reads_follows_is_stopped_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    with falaj.open(tmp_path / "events") as store:
        items = ("tea", "cake", "juice")
        store.topic("orders", codec="json").extend([{"item": item} for item in items])
    monkeypatch.setenv("EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    cells = [nbformat.v4.new_code_cell(block.text) for block in python_blocks("notebooks.md")]
    notebook = nbformat.v4.new_notebook(cells=[*cells, nbformat.v4.new_code_cell(cells[0].source)])
    asyncio.run(run_notebook(nbclient.NotebookClient(notebook, timeout=DEADLINE_S), tmp_path))
    opened, table, followed, awaited, again = notebook.cells
    assert printed(opened) == printed(again) == "3\n"
    assert "text/html" in table.outputs[0]["data"]
    assert printed(followed) == "0 tea\n1 cake\n2 juice\n"
    assert followed.outputs[-1]["ename"] == "KeyboardInterrupt"
    assert printed(awaited) == "newest: juice\n"


def printed(cell: Any) -> str:
    return "".join(output["text"] for output in cell.outputs if output["output_type"] == "stream")


async def run_notebook(client: Any, folder: Path) -> None:
    """Run all cells; the one that follows until it is stopped is stopped once it printed."""
    async with client.async_setup_kernel(cwd=str(folder)):
        for index, cell in enumerate(client.nb.cells):
            follows = "in orders.follow" in cell.source
            cell.metadata["tags"] = ["raises-exception"] * follows
            running = asyncio.ensure_future(client.async_execute_cell(cell, index))
            if follows:
                while "juice" not in printed(cell):
                    assert not running.done(), cell.outputs
                    await asyncio.sleep(0.02)  # sleep: nbclient announces no output
                await client.km.interrupt_kernel()
            await running


# --- Containers ----------------------------------------------------------------------------------

PRIVATE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
CONTAINER = """
set -eu
mount --make-rprivate /
mount -t tmpfs -o size=32m none "$VOLUME"
awk '{ print $5 }' /proc/self/mountinfo | grep -v -e "^$VOLUME$" -e ^/proc | while read -r place; do
    mount -o remount,bind,ro "$place"
done
for place in / /tmp /dev/shm "$PWD"; do
    ! touch "$place/written" 2>/dev/null
done
EVENTS="$VOLUME/events" "$PYTHON" -B sensor.py
df --block-size=1 --output=used "$VOLUME" | tail -n 1
"""


@pytest.fixture
def namespaces() -> None:
    if subprocess.run([*PRIVATE, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make namespaces")


@pytest.mark.usefixtures("namespaces")
def test_with_a_read_only_root_a_small_volume_is_enough(tmp_path: Path) -> None:
    write_programs("containers.md", tmp_path)
    (tmp_path / "volume").mkdir()
    done = subprocess.run(
        [*PRIVATE, "sh", "-c", CONTAINER],
        cwd=tmp_path,
        env={**os.environ, "VOLUME": str(tmp_path / "volume"), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed, used = done.stdout.splitlines()
    assert printed == "True 99999"
    assert int(used) <= 24 << 20


MEMBER = """
import itertools, os, sys, falaj
shared = falaj.open("events").topic("shared", codec="json")
for n in itertools.count() if sys.argv[1] == "killed" else range(500):
    shared.append([sys.argv[1], os.getpid(), n])
"""


@pytest.mark.usefixtures("namespaces")
def test_containers_with_the_same_process_ids_share_a_store_also_when_one_is_killed(
    tmp_path: Path,
) -> None:
    def container(name: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([*PRIVATE, sys.executable, "-c", MEMBER, name], cwd=tmp_path)

    with falaj.open(tmp_path / "events") as store:
        shared = store.topic("shared", codec="json")
        killed, other = container("killed"), container("other")
        of_killed = (
            each for each in shared.follow(timeout=DEADLINE_S) if each.value[0] == "killed"
        )
        assert [next(of_killed).value[2] for _ in range(100)] == list(range(100))
        killed.kill()
        killed.wait()
        assert other.wait(DEADLINE_S) == 0
        values = [record.value for record in shared]
    assert {pid for _, pid, _ in values} == {1}
    for name in ("killed", "other"):
        numbers = [n for who, _, n in values if who == name]
        assert numbers == list(range(len(numbers)))
    assert len([who for who, _, _ in values if who == "other"]) == 500
