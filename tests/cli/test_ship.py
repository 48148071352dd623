"""`falaj ship`, `falaj place` and `falaj restore` of a place: codes, choices, refusals."""

import json
import shutil
import threading

import falaj as library
from cli.shell import Shell


def fails(falaj: Shell, code: int, *words: str) -> str:
    """Run a command that fails with a code, and return all that it prints."""
    ended = falaj(*words)
    assert ended.code == code, ended
    return ended.out + ended.err


def test_a_place_is_shipped_listed_verified_and_restored(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "orders", given=b"one\ntwo\n")
    shipped = json.loads(falaj.ok("ship", "-s", "s", "place", "--once", "--json"))
    assert shipped["flushes"] == 1
    (row,) = falaj.ok("place", "list", "place").splitlines()
    origin = row.split("\t")[1]
    assert row.split("\t")[2:5] == ["1", "2", ""]
    falaj.ok("place", "verify", "place", "--deep", "--against", "s", "--origin", origin[:6])
    told = falaj.ok("restore", "place", "-s", "copy", "--to-number", "2").rstrip("\n").split("\t")
    assert (told[0], told[2], told[5]) == ("2", "1", "copy")
    assert falaj.ok("cat", "-s", "copy", "orders") == "one\ntwo\n"


def test_what_restore_cannot_do_is_said(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "orders", given=b"one\n")
    falaj.ok("ship", "-s", "s", "place", "--once")
    falaj.ok("backup", "-s", "s", "copied")
    assert "is a backup: leave it out" in fails(
        falaj, 2, "restore", "copied", "-s", "x", "--to-number", "2"
    )
    assert "no state that is so old" in fails(
        falaj, 2, "restore", "place", "-s", "x", "--to-time", "3h"
    )
    assert "has not one origin" in fails(falaj, 2, "restore", "place", "-s", "x", "--origin", "zz")
    assert not (falaj.folder / "x").exists()


def test_a_store_that_is_behind_its_place_ends_with_its_own_code(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "orders", given=b"one\n")
    falaj.ok("ship", "-s", "s", "place", "--once")
    shutil.copytree(falaj.folder / "s", falaj.folder / "old")
    falaj.ok("append", "-s", "s", "orders", given=b"two\n")
    falaj.ok("ship", "-s", "s", "place", "--once")
    assert "--new-origin" in fails(falaj, 7, "ship", "-s", "old", "place", "--once")
    falaj.ok("ship", "-s", "old", "place", "--once", "--new-origin")
    assert "several origins" in fails(falaj, 2, "restore", "place", "-s", "x")


def test_corruption_in_a_place_ends_with_one(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        store.topic("orders").extend([bytes([n % 251]) * 1000 for n in range(100)])
    falaj.ok("ship", "-s", "s", "place", "--once")
    (pack,) = (falaj.folder / "place").glob("*/o/*/k/*")
    pack.write_bytes(pack.read_bytes()[:-1] + b"?")
    assert pack.name in fails(falaj, 1, "place", "verify", "place")
    assert pack.name in fails(falaj, 1, "restore", "place", "-s", "x")
    assert not (falaj.folder / "x").exists()


def test_a_plan_names_requests_and_dollars_and_sends_nothing(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "orders", given=b"one\n")
    rows = json.loads(falaj.ok("ship", "-s", "s", "place", "--plan", "--json"))
    assert all(row["dollars"] >= 0 for row in rows)
    assert not (falaj.folder / "place").exists()


def test_a_person_gets_a_table_and_a_pipe_gets_a_line(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "orders", given=b"one\n")
    row = falaj.ok("ship", "-s", "s", "place", "--once").rstrip("\n").split("\t")
    assert [row[0], row[1], row[3]] == ["2", "1", "0"]
    shown = falaj.terminal("ship", "-s", "s", "place", "--once", NO_COLOR="1").end()
    assert "number  flushes" in shown.out
    shown = falaj.terminal("restore", "place", "-s", "copy", NO_COLOR="1").end()
    assert "restore to copy" in shown.out
    assert "number  as of" in shown.out


def test_sync_remote_appends_nothing_without_a_shipper_and_waits_with_one(falaj: Shell) -> None:
    remote = ("append", "-s", "s", "orders", "--sync", "remote")
    falaj.ok("append", "-s", "s", "orders", given=b"one\n")
    without = falaj(*remote, given=b"two\n")
    assert without.code == 3
    assert "ship" in without.err
    assert falaj.ok("cat", "-s", "s", "orders") == "one\n"
    stop = threading.Event()
    with library.open(falaj.folder / "s") as store:
        shipper = threading.Thread(
            target=store.ship, args=(falaj.folder / "place",), kwargs={"stop": stop}
        )
        shipper.start()
        try:
            while store.info()["shipper"] is None:
                stop.wait(0.01)
            falaj.ok(*remote, "--timeout", "60s", given=b"three\n")
            topic = store.topic("orders", codec="bytes")
            assert topic.wait_remote(timeout=0), "it returned once it was in the place"
        finally:
            stop.set()
            shipper.join()
    falaj.ok("restore", "place", "-s", "copy")
    assert falaj.ok("cat", "-s", "copy", "orders") == "one\nthree\n"


def test_a_wait_for_the_place_that_takes_too_long_says_that_the_record_is_here(
    falaj: Shell,
) -> None:
    falaj.ok("append", "-s", "s", "orders", given=b"one\n")
    with library.open(falaj.folder / "s") as store, store._shipping():
        late = falaj(
            *("append", "-s", "s", "orders", "--sync", "remote", "--timeout", "1s"),
            given=b"two\n",
        )
    assert late.code == 3
    assert falaj.ok("cat", "-s", "s", "orders") == "one\ntwo\n"
