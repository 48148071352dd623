"""Rows that cannot be records are named, skipped or dead-lettered, once, whatever process dies."""

import json
import logging
import random
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import (
    AppendTooLarge,
    HandleClosed,
    InvalidArgument,
    NotWritable,
    TopicFinished,
)
from falaj.outbox import Outbox

SMALL: dict[str, Any] = {"segment_bytes": 65536}
LARGE = "y" * 20_000


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key, value)")
    return path


def execute(database: Path, statement: str, rows: Any = ((),)) -> None:
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        connection.executemany(statement, rows)


def insert(database: Path, *values: object, key: object = None) -> None:
    rows = [(key, value) for value in values]
    execute(database, "INSERT INTO outbox (key, value) VALUES (?, ?)", rows)


def values(topic: falaj.Topic[Any]) -> list[Any]:
    return [record.value for record in topic]


def dated(row: sqlite3.Row) -> falaj.NewRecord:
    return falaj.NewRecord(row["value"], b"k", timestamp=row["value"])


def headed(row: sqlite3.Row) -> falaj.NewRecord:
    headers: Any = None if row["value"] == "7" else {"h": object()}
    return falaj.NewRecord(row["value"], None, headers=headers)


# Rows that are inserted between good ones, the function that makes records, and the error.
BAD: dict[str, tuple[str, object, object, Any, str]] = {
    "a number as text": ("str", None, 7, None, 'column "value": .*not int'),
    "a blob as text": ("str", None, b"x", None, 'column "value": .*not bytes'),
    "a number as bytes": ("bytes", None, 1.5, None, 'column "value": .*not float'),
    "a blob as JSON": ("json", None, b"x", None, 'column "value": .*JSON has no bytes'),
    "no number of JSON": ("json", None, 9e999, None, 'column "value": .*inf'),
    "a number beside a longer key": ("str", "a key", 5, None, 'column "value": .*not int'),
    "too large": ("str", None, LARGE, None, 'column "value": .*that one append may hold'),
    "too large a key": ("str", LARGE, "v", None, 'column "key": .*that one append may hold'),
    "NULL without a key": ("str", None, None, None, 'column "value": NULL is a tombstone'),
    "a time that is none": ("str", None, "never", dated, "never"),
    "a header that is none": ("str", None, "77", headed, "header"),
    "a row that raises": (
        *("str", None, "bad"),
        lambda row: {"good": row["value"]}[row["value"][:4]],
        "KeyError: 'bad'",
    ),
}
GOOD = {"a time that is none": "2026-11-20T08:00:00Z", "a header that is none": "7"}


@pytest.mark.parametrize("kind", BAD)
def test_a_row_that_cannot_be_a_record_is_named_and_what_is_before_it_is_moved(
    store: falaj.Store, database: Path, kind: str
) -> None:
    codec, key, value, row, said = BAD[kind]
    good = GOOD.get(kind, "good")
    topic = store.topic("t", codec=codec, **SMALL)
    insert(database, good, good)
    insert(database, value, key=key)
    insert(database, good)
    with Outbox(database, topic, row=row) as outbox:
        for _ in range(2):
            with pytest.raises(
                InvalidArgument if LARGE not in (key, value) else AppendTooLarge
            ) as caught:
                outbox.relay()
            assert caught.match(f"^row 3 of \"outbox\" cannot be a record of topic 't': .*{said}")
            assert caught.match(r'the rows before it were moved.* on_bad="skip"')
            assert len(topic) == 2
        execute(database, "UPDATE outbox SET value = ?, key = NULL WHERE id = 3", [(good,)])
        assert outbox.relay() == 2
        assert outbox.refused == 0
    assert len(topic) == 4


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("on_bad", ["skip", "dead-letter"])
def test_rows_that_cannot_be_records_keep_no_others_back(
    store: falaj.Store,
    database: Path,
    kind: str,
    on_bad: Any,
    delete: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    codec, key, value, row, said = BAD[kind]
    good = GOOD.get(kind, "good")
    topic = store.topic("t", codec=codec, **SMALL)
    insert(database, value, value, key=key)
    insert(database, good, good)
    insert(database, value, key=key)
    insert(database, good)
    insert(database, value, key=key)
    caplog.set_level(logging.WARNING, "falaj.outbox")
    with Outbox(database, topic, row=row, on_bad=on_bad, delete=delete, limit=3) as outbox:
        if on_bad == "dead-letter" and LARGE in (key, value):
            store.delete_topic("t.dead")
            large = store.topic("t.dead", codec="json", segment_bytes=1 << 20)
            outbox._dead = large
        assert sum(outbox.relay() for _ in range(2)) == 3
        assert outbox.refused == 4
        letters = list(outbox.dead or ())
    assert len(topic) == 3
    told = [record.getMessage() for record in caplog.records]
    assert [text.split(" of ")[0] for text in told] == ["row 1", "row 2", "row 5", "row 7"]
    if on_bad == "skip":
        assert not letters
    else:
        assert [letter.key for letter in letters] == [b"1", b"2", b"5", b"7"]
        headers = dict(letters[0].headers)
        assert headers["falaj-outbox"] == b"outbox:outbox"
        assert headers["falaj-table"] == b"outbox"
        assert headers["falaj-id"] == b"1"
        assert re.search(said, (headers["falaj-reason"] or b"").decode())
        kept: dict[type, Any] = {bytes: {"base64": "eA=="}, float: value if value == 1.5 else "inf"}
        expected = {"id": 1, "key": key, "value": kept.get(type(value), value)}
        assert letters[0].value == expected
    with closing(sqlite3.connect(database)) as connection:
        (left,) = connection.execute("SELECT count(*) FROM outbox").fetchone()
    assert left == (0 if delete else 7)


def test_text_that_is_not_utf_8_is_a_bad_row_as_any_other(
    store: falaj.Store, database: Path
) -> None:
    topic = store.topic("t", codec="str")
    insert(database, "good")
    execute(database, "INSERT INTO outbox (value) VALUES (CAST(x'ff41' AS TEXT))")
    insert(database, "é")
    with (
        Outbox(database, topic) as outbox,
        pytest.raises(InvalidArgument, match=r"row 2 .*half characters"),
    ):
        outbox.relay()
    with Outbox(database, topic, on_bad="dead-letter", dead_letter="odd") as outbox:
        assert outbox.relay() == 1
        assert isinstance(outbox.dead, falaj.Topic)
        assert outbox.dead[0].value["value"] == {"base64": "/0E="}
        assert outbox.dead.name == "odd"
    assert values(topic) == ["good", "é"]


def test_null_is_a_tombstone_and_text_in_a_topic_of_json_is_a_string(
    store: falaj.Store, database: Path
) -> None:
    topic = store.topic("t", codec="json")
    insert(database, '{"n": 1}', None, 3, key="eu")
    with Outbox(database, topic) as outbox:
        outbox.relay()
    assert [(r.key, r.value, r.is_tombstone) for r in topic] == [
        (b"eu", '{"n": 1}', False),
        (b"eu", None, True),
        (b"eu", 3, False),
    ]

    def parsed(row: sqlite3.Row) -> falaj.NewRecord:
        value = row["value"] and json.loads(str(row["value"]))
        return falaj.NewRecord(value, row["key"].encode())

    with Outbox(database, topic, name="parsed", row=parsed) as outbox:
        outbox.relay()
    assert [(r.value, r.is_tombstone) for r in topic[3:]] == [
        ({"n": 1}, False),
        (None, False),
        (3, False),
    ]


def test_a_bad_row_that_its_owner_deletes_stops_nothing(store: falaj.Store, database: Path) -> None:
    topic = store.topic("t", codec="str")
    insert(database, "a", 7)
    with Outbox(database, topic) as outbox:
        with pytest.raises(InvalidArgument, match="row 2"):
            outbox.relay()
        execute(database, "DELETE FROM outbox WHERE id = 2")
        assert outbox.relay() == 0
        insert(database, "b")
        assert outbox.relay() == 1
    assert values(topic) == ["a", "b"]


def test_a_batch_that_was_appended_is_not_appended_again_by_stricter_code(
    store: falaj.Store, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = store.topic("t", codec="json")
    insert(database, "a", "b", "c")
    with Outbox(database, topic) as outbox:
        monkeypatch.setattr(outbox, "_finish", lambda _: 1 / 0)  # it dies after the append
        with pytest.raises(ZeroDivisionError):
            outbox.relay()
    insert(database, "d")

    def strict(row: sqlite3.Row) -> Any:
        return falaj.NewRecord({"b": None}.get(row["value"], row["value"]).upper())

    with Outbox(database, topic, row=strict, on_bad="dead-letter") as outbox:
        assert outbox.relay() == 1
        assert (outbox.refused, len(list(outbox.dead or ()))) == (0, 0)
    assert values(topic) == ["a", "b", "c", "D"]


RELAY = """
from falaj.outbox import Outbox
delete, on_bad, database = hear().split(" ", 2)
topic = falaj.open(path).topic("t", codec="str", segment_bytes=65536)
with Outbox(database, topic, limit=7, delete=delete == "delete", on_bad=on_bad) as outbox:
    say("begins")
    for moved in outbox.run(poll=0.001):
        say(moved)
"""


@pytest.mark.parametrize("delete", ["keep", "delete"])
@pytest.mark.parametrize("on_bad", ["skip", "dead-letter"])
def test_relays_that_are_killed_all_the_time_move_or_refuse_each_row_once(
    path: Path, database: Path, on_bad: Any, delete: str
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    rows: list[Any] = []
    with falaj.open(path) as store:
        topic = store.topic("t", codec="str", segment_bytes=65536)
        for _ in range(10):
            with child(path, RELAY) as one, child(path, RELAY) as two:
                for relay in (one, two):
                    relay.tell(f"{delete} {on_bad} {database}")
                    assert relay.hear() == "begins"
                new = [chance.choice([n, str(n), str(n)]) for n in range(len(rows), len(rows) + 20)]
                rows += new
                insert(database, *new)
                time.sleep(chance.random() * 0.05)  # sleep: death comes at any moment
                one.kill()
                time.sleep(chance.random() * 0.05)  # sleep: the other continues alone
                two.kill()
        with Outbox(database, topic, delete=delete == "delete", on_bad=on_bad) as outbox:
            outbox.relay()
            bad = [n for n in rows if isinstance(n, int)]
            assert outbox.refused == len(bad), f"seed {seed}"
            if outbox.dead is not None:
                assert [letter.value["value"] for letter in outbox.dead] == bad, f"seed {seed}"
        assert values(topic) == [n for n in rows if isinstance(n, str)], f"seed {seed}"


def test_a_letter_that_was_under_way_is_finished_before_anything_else(
    store: falaj.Store, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = store.topic("t", codec="str")
    insert(database, 7, "b")
    for died_behind_the_append in (False, True):
        with Outbox(database, topic, on_bad="dead-letter") as outbox:
            append = outbox._append_letter

            def die(*given: Any, append: Any = append, late: bool = died_behind_the_append) -> None:
                if late:
                    append(*given)
                raise KeyboardInterrupt

            monkeypatch.setattr(outbox, "_append_letter", die)
            with pytest.raises(KeyboardInterrupt):
                outbox.relay()
    for other in ("raise", "skip"):
        with (
            Outbox(database, topic, on_bad=other) as outbox,
            pytest.raises(InvalidArgument, match=r"row 1 .* on its way to a topic of dead letters"),
        ):
            outbox.relay()
    # Also if the row could be a record of the topic by now.
    with Outbox(database, topic, on_bad="dead-letter", row=lambda r: str(r["value"])) as outbox:
        assert outbox.relay() == 1
        assert outbox.dead is not None
        assert [letter.key for letter in outbox.dead] == [b"1"]
    assert values(topic) == ["b"]


def test_a_row_that_is_no_dead_letter_either_keeps_its_place(
    store: falaj.Store, database: Path
) -> None:
    topic = store.topic("t", codec="str", **SMALL)
    dead = store.topic("dead", codec="raw", **SMALL)
    insert(database, "a", LARGE, "b")
    told: dict[str, Any] = {"on_bad": "dead-letter", "dead_letter": dead}
    with (
        Outbox(database, topic, delete=True, **told) as outbox,
        pytest.raises(
            AppendTooLarge, match=r"row 2 .*nor is it a dead letter, and delete=True would lose"
        ),
    ):
        outbox.relay()
    with Outbox(database, topic, **told) as outbox:
        assert outbox.relay() == 1
    assert [(letter.to_bytes(), letter.key) for letter in dead] == [(b"null", b"2")]
    assert values(topic) == ["a", "b"]


def test_what_is_not_the_rows_fault_refuses_none(store: falaj.Store, database: Path) -> None:
    topic = store.topic("t", codec="str")
    insert(database, "a", "b")

    def offline(_: sqlite3.Row) -> Any:
        raise ConnectionError("offline")

    with Outbox(database, topic, row=offline, on_bad="skip") as outbox:
        with pytest.raises(ConnectionError) as caught:
            outbox.relay()
        assert caught.value.__notes__[0].startswith('row 1 of "outbox": row= raised this')
        assert outbox.refused == 0
    with Outbox(database, topic, on_bad="skip") as outbox:
        topic.close()
        with pytest.raises(HandleClosed):
            outbox.relay()
        assert outbox.refused == 0
    topic = store.topic("t")
    with Outbox(database, topic, on_bad="skip") as outbox:
        assert outbox.relay() == 2


def test_options_for_bad_rows_that_cannot_be_are_refused(
    store: falaj.Store, database: Path
) -> None:
    topic = store.topic("t")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"on_bad": "ignore"}, 'on_bad is "raise", "skip" or "dead-letter"'),
        ({"dead_letter": "d"}, 'goes? with on_bad="dead-letter"|go with on_bad'),
        ({"on_bad": "dead-letter", "dead_letter": topic}, "the outbox's own"),
        ({"on_bad": "dead-letter", "dead_letter": store.topic("s", codec="str")}, "holds str"),
    ]
    for options, said in wrong:
        with pytest.raises(InvalidArgument, match=said):
            Outbox(database, topic, **options)
    execute(database, "CREATE TABLE other (id INTEGER PRIMARY KEY, payload)")
    with pytest.raises(InvalidArgument, match='no column "value"'):
        Outbox(database, topic, table="other")
    Outbox(database, topic, table="other", row=lambda row: row["payload"]).close()


def test_dead_letters_that_could_not_be_written_are_refused_when_the_outbox_is_made(
    store: falaj.Store, database: Path
) -> None:
    topic = store.topic("t")
    for name in ("dead", "t.dead"):
        store.topic(name, codec="json").finish()
    reader = falaj.open(store.path, read_only=True)
    with pytest.raises(NotWritable, match="dead_letter is topic 'dead' of a store"):
        Outbox(database, topic, on_bad="dead-letter", dead_letter=reader.any_topic("dead"))
    wrongs: list[Any] = ["dead", store.topic("dead"), None]
    for wrong in wrongs:
        with pytest.raises(TopicFinished, match="dead', which is finished"):
            Outbox(database, topic, on_bad="dead-letter", dead_letter=wrong)
    Outbox(database, topic, on_bad="skip").close()
