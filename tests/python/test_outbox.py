"""The outbox: every row that was committed comes to the topic once, in order, whatever dies."""

import random
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import AppendTooLarge, HandleClosed, InvalidArgument
from falaj.outbox import Outbox

TABLE = "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key, value)"
RELAY = """
from falaj.outbox import Outbox
delete, database = hear().split(" ", 1)
topic = falaj.open(path).topic("t", codec="str", segment_bytes=65536)
with Outbox(database, topic, limit=7, delete=delete == "delete") as outbox:
    say("begins")
    for moved in outbox.run(poll=0.001):
        say(moved)
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "a shop?.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(TABLE)
    return path


def insert(database: Path, *values: object, key: object = None) -> None:
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        rows = [(key, value) for value in values]
        connection.executemany("INSERT INTO outbox (key, value) VALUES (?, ?)", rows)


def values(topic: falaj.AnyTopic[Any]) -> list[Any]:
    return [record.value for record in topic]


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_a_database_that_was_replaced_or_removed_ends_the_outbox(
    store: falaj.Store, database: Path, how: str
) -> None:
    insert(database, "a")
    restored = database.with_name("restored")
    with closing(sqlite3.connect(restored)) as connection:
        connection.execute(TABLE)
    topic = store.topic("t", codec="str")
    with Outbox(database, topic) as outbox:
        running = outbox.run(poll=0.001)
        assert next(running) == 1
        restored.replace(database) if how == "replaced" else database.unlink()
        for look in (outbox.relay, lambda: next(running)):
            with pytest.raises(InvalidArgument, match="close the outbox and make another"):
                look()
    assert values(topic) == ["a"]


def test_an_outbox_takes_durations_as_text_and_timedelta(
    store: falaj.Store, database: Path
) -> None:
    insert(database, "a")
    topic = store.topic("t", codec="str")
    with Outbox(database, topic, timeout="30s") as outbox:
        assert next(outbox.run(poll=timedelta(milliseconds=1))) == 1
    with pytest.raises(TypeError, match="timeout is seconds, a timedelta or text"):
        Outbox(database, topic, timeout=b"5")  # type: ignore[arg-type]


def test_rows_come_once_and_in_the_order_of_their_ids(store: falaj.Store, database: Path) -> None:
    topic = store.topic("t", codec="str")
    insert(database, "a", "b", key="eu")
    with Outbox(database, topic, limit=2) as outbox:
        assert outbox.relay() == 2
        assert outbox.relay() == 0
        insert(database, "c", "d", "e")
    with Outbox(database, topic, limit=2) as outbox:
        assert outbox.relay() == 3
    assert values(topic) == ["a", "b", "c", "d", "e"]
    assert [record.key for record in topic] == [b"eu", b"eu", None, None, None]
    assert topic.durable_offset == 5


def test_ids_that_were_rolled_back_leave_gaps_that_do_not_matter(
    store: falaj.Store, database: Path
) -> None:
    topic = store.topic("t")
    with Outbox(database, topic) as outbox, closing(sqlite3.connect(database)) as connection:
        for number in range(10):
            connection.execute("INSERT INTO outbox (value) VALUES (?)", (f"{number}",))
            if number % 3:
                connection.commit()
                outbox.relay()
            else:
                connection.execute("DELETE FROM outbox WHERE value = ?", (f"{number}",))
                connection.commit()
    assert [bytes(value) for value in values(topic)] == [b"1", b"2", b"4", b"5", b"7", b"8"]


@pytest.mark.parametrize("names", ["Key TEXT, Value TEXT", "KEY, VALUE"])
def test_columns_are_found_in_any_case_as_sqlite_finds_them(
    store: falaj.Store, tmp_path: Path, names: str
) -> None:
    path = tmp_path / "cased.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, {names})")
        connection.execute("INSERT INTO outbox (key, value) VALUES ('ann', 'x'), ('ann', NULL)")
    topic = store.topic("t", codec="str")
    with Outbox(path, topic) as outbox:
        assert outbox.relay() == 2
    assert [(r.key, r.is_tombstone) for r in topic] == [(b"ann", False), (b"ann", True)]


def test_any_row_of_any_table_can_be_one(store: falaj.Store, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as connection, connection:
        connection.execute('CREATE TABLE "a ""table" (number INTEGER PRIMARY KEY, who, what)')
        connection.execute('INSERT INTO "a ""table" VALUES (-5, 1, 2), (7, 3, 4)')
    topic = store.partitioned_topic("t", codec="json", partitions=3)

    def row(row: sqlite3.Row) -> falaj.NewRecord:
        return falaj.NewRecord({"who": row["who"], "what": row["what"]}, key=b"%d" % row["who"])

    with Outbox(tmp_path / "db", topic, table='a "table', id="number", row=row) as outbox:
        assert outbox.relay() == 2
    found = sorted(value["who"] for value in values(topic))
    assert found == [1, 3]


@pytest.mark.parametrize("delete", ["keep", "delete"])
def test_relays_that_are_killed_all_the_time_move_each_row_once(
    path: Path, database: Path, delete: str
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    written = 0
    with falaj.open(path) as store:
        topic = store.topic("t", codec="str", segment_bytes=65536)
        for _ in range(15):
            with child(path, RELAY) as one, child(path, RELAY) as two:
                for relay in (one, two):
                    relay.tell(f"{delete} {database}")
                    assert relay.hear() == "begins"
                for _ in range(chance.randrange(1, 12)):
                    many = chance.randrange(1, 20)
                    insert(database, *(str(written + i) for i in range(many)))
                    written += many
                time.sleep(chance.random() * 0.05)  # sleep: death comes at any moment
                one.kill()
                time.sleep(chance.random() * 0.05)  # sleep: the other goes on alone
                two.kill()
        assert topic.end_offset > 0
        with Outbox(database, topic, delete=delete == "delete") as outbox:
            outbox.relay()
        assert values(topic) == [str(i) for i in range(written)], f"seed {seed}"
    with closing(sqlite3.connect(database)) as connection:
        (left,) = connection.execute("SELECT count(*) FROM outbox").fetchone()
    assert left == (0 if delete == "delete" else written)


def test_relays_at_once_help_each_other_out(store: falaj.Store, database: Path) -> None:
    topic = store.topic("t", codec="str")
    outboxes = [Outbox(database, topic, limit=3) for _ in range(3)]
    failed: list[BaseException] = []

    def run(outbox: Outbox) -> None:
        try:
            for _ in outbox.run(poll=0.001):
                pass
        except BaseException as error:  # noqa: BLE001  # told by the test
            failed.append(error)

    threads = [threading.Thread(target=run, args=(outbox,)) for outbox in outboxes]
    for thread in threads:
        thread.start()
    for number in range(100):
        insert(database, *(f"{number}.{i}" for i in range(5)))
    last = list(topic.follow(timeout=1.0))[-1]
    for outbox in outboxes:
        outbox.close()
    for thread in threads:
        thread.join(30)
    assert not failed
    assert last.value == "99.4"
    assert values(topic) == [f"{number}.{i}" for number in range(100) for i in range(5)]


def test_a_database_that_was_set_back_is_noticed_and_nothing_is_lost_in_silence(
    store: falaj.Store, database: Path, tmp_path: Path
) -> None:
    topic = store.topic("t", codec="str")
    insert(database, "a")
    with Outbox(database, topic) as outbox:
        outbox.relay()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    older = tmp_path / "older"
    shutil.copyfile(database, older)
    insert(database, "b")
    with Outbox(database, topic) as outbox:
        outbox.relay()
    insert(older, "other than b")
    with Outbox(older, topic) as outbox:
        with pytest.raises(
            InvalidArgument, match="batch 0 by the database, batch 1 by topic 't'"
        ) as set_back:
            outbox.relay()
        assert "appends every row that is left" in str(set_back.value)
        assert values(topic) == ["a", "b"]
    with Outbox(older, topic, name="afterwards") as outbox:
        assert outbox.relay() == 2


@pytest.mark.parametrize("begins_again", ["rows deleted", "table made anew", "numbers reset"])
def test_ids_that_begin_again_are_noticed_before_a_row_is_passed_over(
    store: falaj.Store, database: Path, begins_again: str
) -> None:
    topic = store.topic("t", codec="str")
    plain = "CREATE TABLE outbox (id INTEGER PRIMARY KEY, key, value)"
    anew = {
        "rows deleted": "DELETE FROM outbox",
        "table made anew": f"DROP TABLE outbox; {TABLE}",
        "numbers reset": "DELETE FROM outbox; DELETE FROM sqlite_sequence",
    }
    with closing(sqlite3.connect(database)) as connection:
        if begins_again == "rows deleted":
            connection.executescript(f"DROP TABLE outbox; {plain}")
    insert(database, "a", "b", "c")
    with Outbox(database, topic) as outbox:
        assert outbox.relay() == 3
        with closing(sqlite3.connect(database)) as connection:
            connection.executescript(anew[begins_again])
        for _ in range(2):
            with pytest.raises(
                InvalidArgument, match=r"rows up to 3 .* begun again.* another name="
            ):
                outbox.relay()
            insert(database, "d")
    with Outbox(database, topic, name="afterwards") as outbox:
        assert outbox.relay() == 2
    assert values(topic) == ["a", "b", "c", "d", "d"]


def test_an_outbox_that_deletes_says_which_row_it_is_past(
    store: falaj.Store, database: Path
) -> None:
    topic = store.topic("t", codec="str")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO outbox VALUES (5, NULL, 'a')")
    with Outbox(database, topic, delete=True) as outbox:
        assert outbox.relay() == 1
        insert(database, "b")
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("INSERT INTO outbox VALUES (4, NULL, 'late')")
        with pytest.raises(InvalidArgument, match=r"has a row 4, .* up to 5, .* insert it again"):
            outbox.relay()
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("INSERT INTO outbox (value) SELECT value FROM outbox WHERE id = 4")
            connection.execute("DELETE FROM outbox WHERE id = 4")
        assert outbox.relay() == 2
    assert values(topic) == ["a", "b", "late"]


def test_what_it_notes_stays_through_a_power_cut_in_every_journal_mode(
    store: falaj.Store, database: Path
) -> None:
    with Outbox(database, store.topic("t")) as outbox:
        (mode,) = outbox._database.execute("PRAGMA synchronous").fetchone()
    assert mode == 3  # EXTRA: FULL does not sync the directory that a journal is deleted from


def test_a_topic_that_was_created_anew_gets_the_rows_anew(
    store: falaj.Store, database: Path
) -> None:
    insert(database, "a", "b")
    for _ in range(2):
        topic = store.topic("t", codec="str")
        with Outbox(database, topic) as outbox:
            assert outbox.relay() == 2
        assert values(topic) == ["a", "b"]
        store.delete_topic("t")


def test_rows_that_are_too_large_together_go_one_after_the_other(
    store: falaj.Store, database: Path
) -> None:
    topic = store.topic("t", codec="str", segment_bytes=65536)
    rows = [f"{i}" + "x" * 3000 for i in range(20)]
    insert(database, *rows, "y" * 20000, "last")
    with Outbox(database, topic) as outbox:
        for _ in range(2):
            with pytest.raises(AppendTooLarge):
                outbox.relay()
            assert values(topic) == rows
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("UPDATE outbox SET value = 'short' WHERE value LIKE 'y%'")
        outbox.relay()
    assert values(topic) == [*rows, "short", "last"]


def test_what_is_no_outbox_is_refused(store: falaj.Store, database: Path, tmp_path: Path) -> None:
    topic = store.topic("t")
    (tmp_path / "text").write_text("no database at all, but text" * 100)
    for wrong in (tmp_path / "nothing", tmp_path / "text", tmp_path):
        with pytest.raises(InvalidArgument, match="SQLite database that exists"):
            Outbox(wrong, topic)
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(InvalidArgument, match="no such table"):
        Outbox(database, topic, table="other")
    with pytest.raises(InvalidArgument, match="no such column"):
        Outbox(database, topic, id="number")
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript("""
            CREATE TABLE text (id TEXT PRIMARY KEY, value);
            CREATE TABLE keyless (id INTEGER, value);
            CREATE TABLE two (id INTEGER, other, PRIMARY KEY (id, other));
            CREATE TABLE rowless (id INTEGER PRIMARY KEY, value) WITHOUT ROWID;
            CREATE VIEW seen AS SELECT * FROM outbox;
            CREATE TABLE again (id INTEGER PRIMARY KEY, "AUTOINCREMENT") -- no AUTOINCREMENT
        """)
    for table in ("text", "keyless", "two", "rowless", "seen"):
        with pytest.raises(InvalidArgument, match='"id" is no INTEGER PRIMARY KEY of a table'):
            Outbox(database, topic, table=table)
    Outbox(database, topic, table="again", row=str).close()
    with pytest.raises(InvalidArgument, match="uses ids of deleted rows again"):
        Outbox(database, topic, table="again", delete=True)
    with pytest.raises(InvalidArgument, match="rows from 1 on"):
        Outbox(database, topic, limit=0)
    for name in ("table", "id", "name"):
        half: Any = {name: "\ud800"}
        with pytest.raises(InvalidArgument, match=f"^{name} is text, .* is not UTF-8"):
            Outbox(database, topic, **half)
    with pytest.raises(InvalidArgument, match="half a character"):
        Outbox("\ud800", topic)
    for seconds in (-1.0, float("nan"), float("inf"), 10**5000):
        limit = "at most some 1e308" if seconds == 10**5000 else "from 0 to 1,000,000"
        with pytest.raises(InvalidArgument, match=f"^timeout is {limit} seconds"):
            Outbox(database, topic, timeout=seconds)
        with pytest.raises(InvalidArgument, match=f"^poll is {limit} seconds"):
            next(Outbox(database, topic).run(poll=seconds))
    assert Outbox(database, topic, limit=10**5000).relay() == 0
    outbox = Outbox(database, topic)
    assert repr(outbox) == '<Outbox "outbox" to t>'
    outbox.close()
    assert list(outbox.run()) == []
    with pytest.raises(HandleClosed):
        outbox.relay()


def left(database: Path) -> list[int]:
    with closing(sqlite3.connect(database)) as connection:
        return [row for (row,) in connection.execute("SELECT id FROM outbox ORDER BY id")]


def insert_as(database: Path, number: int, value: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO outbox VALUES (?, NULL, ?)", (number, value))


def test_an_outbox_that_begins_to_delete_leaves_the_rows_that_it_kept_before(
    store: falaj.Store, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = store.topic("t", codec="str")
    insert(database, "a", "b")
    with Outbox(database, topic) as outbox:
        assert outbox.relay() == 2
    for expected in (0, 2, 0):
        with Outbox(database, topic, delete=True) as outbox:
            assert outbox.relay() == expected
        if not expected:
            insert(database, "c", "d")
    assert values(topic) == ["a", "b", "c", "d"]
    assert [record.message for record in caplog.records] == [
        "'outbox:outbox' leaves the rows of "
        '"outbox" up to 2, which are older than its delete=True. '
        'If they were moved, this removes them: DELETE FROM "outbox" WHERE "id" <= 2'
    ]
    assert left(database) == [1, 2, 5, 6]
    with Outbox(database, topic, delete=True) as outbox:
        assert outbox.relay() == 2
    assert left(database) == [1, 2]


def test_an_outbox_that_has_begun_to_delete_refuses_rows_that_came_late(
    store: falaj.Store, database: Path
) -> None:
    topic = store.topic("t", codec="str")
    insert(database, "a", "b")
    with Outbox(database, topic) as outbox:
        assert outbox.relay() == 2
    with Outbox(database, topic, delete=True) as outbox:
        insert_as(database, 5, "c")
        assert outbox.relay() == 1
        insert_as(database, 4, "late")
        with pytest.raises(InvalidArgument, match=r"has a row 4, .* up to 5, .* insert it again"):
            outbox.relay()
    assert left(database) == [1, 2, 4]


def test_rows_that_were_kept_again_after_others_were_deleted_are_no_late_ones(
    store: falaj.Store, database: Path
) -> None:
    """Also where the relay that began a batch was of the other kind, and was killed."""
    topic = store.topic("t", codec="str")
    insert(database, "a")
    for delete, value in ((True, "b"), (False, "c"), (True, "d"), (False, "e"), (True, "f")):
        with Outbox(database, topic, delete=delete) as outbox:
            outbox.relay()
            insert(database, value)
            outbox._next_batch()
    with Outbox(database, topic, delete=False) as outbox:
        outbox.relay()
    with Outbox(database, topic, delete=True) as outbox:
        assert outbox.relay() == 0
    assert values(topic) == ["a", "b", "c", "d", "e", "f"]


def test_a_topic_that_was_created_again_gets_rows_that_were_kept(
    store: falaj.Store, database: Path
) -> None:
    insert(database, "a", "b")
    with Outbox(database, store.topic("t", codec="str")) as outbox:
        outbox.relay()
    store.delete_topic("t")
    again = store.topic("t", codec="str")
    with Outbox(database, again, delete=True) as outbox:
        assert outbox.relay() == 2
    assert values(again) == ["a", "b"]
    assert left(database) == []
