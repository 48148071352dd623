"""`falaj ship`, `falaj place` and `falaj restore` of a place: codes, choices, refusals."""

import json
import shutil
import threading

import pytest

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


def test_a_number_that_a_place_lost_or_never_had_ends_each_command_with_a_code(
    falaj: Shell,
) -> None:
    for line in (b"one\n", b"two\n"):
        falaj.ok("append", "-s", "s", "orders", given=line)
        falaj.ok("ship", "-s", "s", "place", "--once")
    falaj.ok("append", "-s", "other", "orders", given=b"three\n")
    falaj.ok("ship", "-s", "other", "place", "--once")
    own = falaj.ok("place", "list", "place").split("\t")[1]
    (number,) = falaj.folder.glob(f"place/*/o/{own}/n/*3")
    body = number.read_bytes()
    number.unlink()
    for words in (
        ["place", "verify", "place"],
        ["restore", "place", "-s", "x", "--origin", own],
        ["ship", "-s", "s", "place", "--once"],
        ["place", "list", "place"],
    ):
        told = fails(falaj, 1, *words)
        assert f"{number.name} is missing, and the place has number 4: bring" in told
        assert ("\t2\t" in told) == (words[0] == "place")  # it lists the other origin, too
    assert not number.exists()
    falaj.ok("restore", "place", "-s", "x", "--origin", own, "--to-number", "2")
    number.write_bytes(body)
    refused = fails(falaj, 2, "restore", "place", "-s", "y", "--origin", own, "--to-number", "5")
    assert "ends at number 4, and has no 5 yet" in refused
    for words in (["place", "list", "nothing"], ["place", "verify", "nothing"]):
        assert "nothing holds no store" in fails(falaj, 2, *words)


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


def test_a_restore_that_was_stopped_goes_on_and_says_how_much_is_there(falaj: Shell) -> None:
    def stop(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with library.open(falaj.folder / "s") as store:
        store.topic("orders").extend([bytes([n % 251]) * 1000 for n in range(100)])
        store.ship(falaj.folder / "place", once=True)
    with pytest.raises(KeyboardInterrupt):
        library.restore(falaj.folder / "place", falaj.folder / "copy", progress=stop)
    ended = falaj("restore", "place", "-s", "copy")
    assert ended.code == 0
    assert "goes on: 98.0 KiB of 98.0 KiB are there" in ended.err
    assert falaj.ok("cat", "-s", "copy", "orders", "-n", "1")
    (falaj.folder / "full").mkdir()
    assert "goes on" not in falaj("restore", "place", "-s", "full").err


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


def test_an_origin_of_a_place_is_chosen_or_all_of_them_are_read(falaj: Shell) -> None:
    falaj.environment["FALAJ_CACHE"] = str(falaj.folder / "cache")
    origins = {}
    for name in ("north", "south"):
        falaj.ok("append", "-s", name, "orders", given=f"{name} 1\n{name} 2\n".encode())
        falaj.ok("ship", "-s", name, "place", "--once")
        with library.open(falaj.folder / name) as store:
            origins[name] = store._origin()
    north, south = origins["north"], origins["south"]
    assert "several origins" in fails(falaj, 2, "cat", "-s", "place", "orders")
    for name, origin in origins.items():
        of = ("-s", "place", "--origin", origin[:12])
        assert falaj.ok("cat", *of, "orders") == f"{name} 1\n{name} 2\n"
        assert falaj.ok("tail", *of, "orders", "-n", "1") == f"{name} 2\n"
        assert falaj.ok("topic", "list", *of).startswith("orders\t")
    every = ("-s", "place", "--origin", "all", "orders")
    lines = [(north, "north 1"), (north, "north 2"), (south, "south 1"), (south, "south 2")]
    columns = [f"{origin[:8]}\t{value}" for origin, value in lines]
    assert falaj.ok("cat", *every).splitlines() == columns
    assert falaj.ok("cat", *every, "-n", "3", "--grep", "2|south").splitlines() == columns[1:]
    assert falaj.ok("tail", *every, "-n", "1").splitlines() == columns[3:]
    assert falaj.ok("tail", *every, "--from", "1").splitlines() == [columns[1], columns[3]]
    found = [json.loads(line) for line in falaj.ok("cat", *every, "--json").splitlines()]
    assert [(each["origin"], each["value"]) for each in found] == lines
    assert falaj.ok("cat", *every, "--raw") == "north 1north 2south 1south 2"


def test_a_tail_of_all_origins_goes_on_as_any_of_them_gets_more(falaj: Shell) -> None:
    falaj.environment["FALAJ_CACHE"] = str(falaj.folder / "cache")
    stores = [library.open(falaj.folder / name) for name in ("north", "south")]
    for store in stores:
        for topic in ("orders", "returns"):
            store.topic(topic).append(b"old")
        store.ship(falaj.folder / "place", once=True)
    for topics in (["orders"], ["orders", "returns"]):
        every = ["-s", "place", "--origin", "all", *topics]
        with falaj.start("tail", "-f", "-n", "1", "--idle", "20", *every) as tail:
            assert tail.stdout is not None
            assert tail.stdout.readline()  # it runs
            for n, store in enumerate(stores):
                store.topic(topics[-1]).append(b"new %d" % n)
                store.ship(falaj.folder / "place", once=True)
                line = tail.stdout.readline().decode().split("\t")
                assert (line[0], line[-1]) == (store._origin()[:8], f"new {n}\n")
            tail.kill()
    for store in stores:
        store.close()


def test_all_origins_are_refused_where_one_store_is_meant(falaj: Shell) -> None:
    falaj.environment["FALAJ_CACHE"] = str(falaj.folder / "cache")
    falaj.ok("append", "-s", "s", "orders", given=b"one\n")
    falaj.ok("ship", "-s", "s", "place", "--once")
    every = ("-s", "place", "--origin", "all")
    assert "name one origin here" in fails(falaj, 2, "topic", "list", *every)
    assert "--group reads one store" in fails(falaj, 2, "tail", *every, "orders", "--group", "g")
    assert "no topic 'oders' in any origin" in fails(falaj, 2, "cat", *every, "oders")
    for words in (("cat", "orders"), ("cat", "orders", "--origin", "all"), ("info",)):
        named = words if "--origin" in words else (*words, "--origin", "4f")
        assert "chooses in a place, and s is none" in fails(falaj, 2, *named, "-s", "s")
    url = ("cat", "orders", "--origin", "4f", "-s", "http://127.0.0.1:1")
    assert "chooses in a place" in fails(falaj, 2, *url)


def test_a_url_in_front_of_topics_is_the_store(falaj: Shell) -> None:
    falaj.ok("append", "-s", "s", "orders", given=b"one\n")
    url = f"file://{falaj.folder}/s"
    assert falaj.ok("cat", url, "orders") == falaj.ok("tail", "-n", "1", url, "orders") == "one\n"
    assert falaj.ok("topic", "describe", url, "orders").startswith("topic\torders")
    assert "--store is given twice" in fails(falaj, 2, "cat", "-s", "s", url, "orders")
    assert "TOPIC is missing" in fails(falaj, 2, "cat", url)
    assert "memory://x holds no store" in fails(falaj, 2, "cat", "memory://x", "orders")
