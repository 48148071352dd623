"""A cache that its disk or its path does not allow: errors that name it, and what helps."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import Error, InvalidArgument, NoSpace, PathNotFound, PermissionDenied
from ship.test_reader import SEGMENT
from ship.test_ship import records_of

HELP = "with cache= or FALAJ_CACHE"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A place with a log of several segments."""
    with falaj.open(tmp_path / "store") as store:
        topic = store.topic("orders", segment_bytes=SEGMENT)
        for n in range(300):
            topic.append(b"%d" % n * 1000)
        store.ship(tmp_path / "place", once=True)
    return tmp_path / "place"


def failing(number: int) -> Callable[..., Any]:
    """Make a call that fails as the operating system does."""

    def fail(*given: object, **options: object) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("cache", "kind"),
    [
        ("/proc/falaj", PathNotFound),
        ("file", InvalidArgument),
        ("file/below", InvalidArgument),
        ("half", InvalidArgument),
        ("n" * 300, InvalidArgument),
    ],
)
def test_a_cache_that_can_be_no_directory_is_named(
    tmp_path: Path,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    cache: str,
    kind: type[Error],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("half").mkdir()
    Path("half", "segments").touch()
    with pytest.raises(kind, match=HELP) as raised:
        falaj.open_place(place, cache=cache)
    assert f"the cache {cache} cannot be used" in str(raised.value)
    monkeypatch.setenv("FALAJ_CACHE", cache)
    with pytest.raises(kind, match=HELP):
        falaj.open_place(place)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, NoSpace), (errno.EDQUOT, NoSpace), (errno.EROFS, PermissionDenied)],
)
@pytest.mark.parametrize("call", ["mkdir", "view", "fill", "keep"])
def test_a_cache_without_space_is_named_and_readers_go_on_once_there_is_some(
    tmp_path: Path,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
    kind: type[Error],
) -> None:
    calls: dict[str, tuple[object, str]] = {
        "mkdir": (Path, "mkdir"),
        "view": (Path, "write_text"),
        "fill": (os, "pwrite"),
        "keep": (os, "link"),
    }
    cache = tmp_path / "cache"
    with monkeypatch.context() as patched:
        if call in ("mkdir", "view"):
            patched.setattr(*calls[call], failing(number))
            with pytest.raises(kind, match=HELP) as raised:
                falaj.open_place(place, cache=cache)
            assert str(cache) in str(raised.value)
            return
        with falaj.open_place(place, cache=cache) as reader:
            with patched.context() as full:
                full.setattr(*calls[call], failing(number))
                for _ in range(2):  # also once what goes ahead has failed
                    with pytest.raises(kind, match=HELP) as raised:
                        list(reader.topic("orders"))
                    assert raised.value.path == str(cache)
            found = records_of(reader)
    with falaj.open(tmp_path / "store") as store:
        assert found == records_of(store)


def test_a_disk_that_is_full_for_the_engine_is_the_caches_too(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    with falaj.open_place(place, cache=cache) as reader:
        replica = reader._reader.replica

        class Full:
            def __getattr__(self, name: str) -> Any:
                return getattr(files, name)

            def blank(self, path: Path, *given: object) -> None:
                path.touch()
                raise NoSpace(f"cannot write {path}: free space and retry")

        files = replica.files
        with monkeypatch.context() as patched:
            patched.setattr(replica, "files", Full())
            with pytest.raises(NoSpace, match=f"the cache {cache} .*{HELP}"):
                list(reader.topic("orders"))
        assert not list(replica.directory.path.glob("*.tmp"))
        assert len(list(reader.topic("orders"))) == 300


def test_a_command_names_the_cache_and_not_its_output(tmp_path: Path, place: Path) -> None:
    script = 'ulimit -f 0; exec "$0" -m falaj cat orders -s "$1"'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, str(place)],
        capture_output=True,
        text=True,
        env=os.environ | {"FALAJ_CACHE": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert f"the cache {tmp_path / 'cache'} cannot be used: File too large" in done.stderr


@pytest.mark.parametrize("cache", ["place", "place/cache", "link", "other/../place/deep/er"])
def test_a_cache_lies_in_no_place(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    (tmp_path / "link").symlink_to("place")
    before = sorted(place.rglob("*"))
    monkeypatch.chdir(tmp_path)
    for call in (falaj.open_place, falaj.open_origins):
        with pytest.raises(InvalidArgument, match=f"the cache {cache} lies in the place.*{HELP}"):
            call(place, cache=cache)
    assert sorted(place.rglob("*")) == before
    with falaj.open_place(place, cache=tmp_path / "places") as reader:
        assert reader.topics


def test_a_relative_cache_stays_where_it_was(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with falaj.open_place(place, cache="cache") as reader:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert len(list(reader.topic("orders"))) == 300
    assert not list((tmp_path / "elsewhere").iterdir())
    assert [each.name for each in (tmp_path / "cache" / "views").iterdir()] == ["lock"]


def test_without_a_home_directory_the_cache_has_to_be_named(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FALAJ_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(InvalidArgument, match=HELP.replace("with ", "")):
        falaj.open_place(place)


def test_the_variable_of_the_cache_is_a_path_and_no_bucket(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FALAJ_CACHE", "s3://bucket/cache")
    with pytest.raises(InvalidArgument, match="FALAJ_CACHE is a path on this machine"):
        falaj.open_place(place)
    monkeypatch.setenv("FALAJ_CACHE", f"file://{tmp_path}/named")
    with falaj.open_place(place):
        assert (tmp_path / "named" / "views").is_dir()
