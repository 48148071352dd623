"""`Outbox`: the rows of a SQLite table as records of a topic, each of them once.

A service writes its own changes and its messages to others in one transaction of its database: the
messages go into a table, the outbox. A relay moves them on. The relay and the machine may be killed
at any moment: every committed row comes to the topic once, in the order of the ids.

A batch of rows gets a number before it is appended, and number and rows are on disk
(`falaj_outbox`, a table beside the outbox). The batch is appended durably, with that number as a
producer's sequence (`Topic.extend`), and then noted as done. After a crash, the next relay appends
the unfinished batch once more, with the same rows and number. The log drops it if it has it.

A row that cannot be a record ends the batch before it. At the head of a batch it is passed over.
Then the batch is noted as done without it, and its number is free for the next. If it becomes a
dead letter, that and the letter's number are noted first, and the letter is appended under that
number.

An outbox that deletes notes the last row from before it began to, in a second row of that table. So
it can distinguish a row that was moved and kept from one with a lower id that came late.
"""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import threading
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from falaj import _outbox_table
from falaj._checks import choice, flag, text
from falaj._core import AnyTopic, NewRecord, _expect_record
from falaj._dead_rows import Refusal, letter, opened_for_letters
from falaj._functions import Unfinished, finished, plain_function
from falaj._numbers import number
from falaj._paths import local_path
from falaj.errors import (
    AppendTooLarge,
    DuplicateSequence,
    HandleClosed,
    InvalidArgument,
    TopicDeleted,
    named,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from falaj._time import Duration
    from falaj._topic import EitherTopic

__all__ = ["Outbox"]

_T = TypeVar("_T")

LOWEST = -(2**63)
#: Errors that are not about the row that is being moved.
_NOT_THE_ROWS = (OSError, sqlite3.Error, MemoryError, HandleClosed, TopicDeleted, Unfinished)
_LOGGER = logging.getLogger("falaj.outbox")
_LIMIT_MAX = 2**31
ANEW = (
    "delete from the table the rows that are in the topic, and go on under another name=: it "
    "appends every row that is left"
)


class _Batch(NamedTuple):
    """Rows that are appended as one, by their ids, inclusive.

    Attributes:
        sequence: Its number in the topic.
        first: The id of its first row.
        last: The id of its last row.
        done: Whether it is in the topic, or was passed over. A batch that was passed over has the
            number of the previous one.
        refused: How many rows were passed over so far.
        dead_letters: Generation of the topic that gets its only row as a dead letter.
        dead_letter: The number of that letter there.
    """

    sequence: int
    first: int
    last: int
    done: bool
    refused: int = 0
    dead_letters: str | None = None
    dead_letter: int | None = None


class Outbox:
    """Moves the rows of a SQLite table to a topic, each of them once.

    The table has an `INTEGER PRIMARY KEY AUTOINCREMENT`, and SQLite gives the ids, so that they
    only rise. A row does not change once it is committed. A key without `AUTOINCREMENT` will do if
    rows stay in the table. SQLite reuses ids of deleted rows, and rows that get them are passed
    over. The outbox notices that only while the highest id is below the last moved one. Several
    relays of one table may run at once and continue each other's work. A topic that is deleted and
    created again gets the rows again.

    A batch costs three syncs, two of the database and one of the log. Its number is committed with
    `synchronous=EXTRA`, whatever the service's own connections do, and it is appended durably.

    Args:
        database: Path of the SQLite database. The outbox opens a connection of its own.
        topic: The topic to append to, open for writing.
        table: Name of the table.
        id: Name of its primary key.
        row: Makes a value, or a `falaj.NewRecord`, from a row (`sqlite3.Row`): the same for the
            same row each time, in all relays. By default the column `value` is the value and the
            column `key`, if there is one, the key. In a topic of bytes, text is encoded as UTF-8.
            In a topic of JSON, text is a JSON string, even if it is JSON itself: to append its
            content, give `row=lambda row: falaj.NewRecord(json.loads(row["value"]), ...)`. A value
            of NULL is a tombstone of the key: JSON's null is `falaj.NewRecord(None, ...)`. Keys
            that are numbers become their text.
        name: Name of the producer in the topic; by default "outbox:" and the table's name. Two
            outboxes that share a topic need two names.
        delete: Delete rows when they are in the topic. It needs the `AUTOINCREMENT`, and a table
            without another outbox, which would miss the deleted rows. Rows that were moved before
            this was given stay, and a warning is logged: delete them yourself.
        limit: Most rows of one batch.
        timeout: Seconds to wait while others hold the database's lock.
        on_bad: What to do with a row that cannot be a record. Such a row has a value that the codec
            does not take, or is too large for one append, or makes `row` raise. An `OSError`,
            `sqlite3.Error` or `MemoryError` of `row` is not the row's: a service may be away. It is
            raised, with the row in its notes, and no row is skipped. With "raise" the
            outbox moves the rows before it and raises, naming the row. It does so each time until
            the row is corrected or deleted. With "skip" it leaves the row out. With "dead-letter"
            it appends the row, once, to the topic `dead_letter`. Both log a warning and count it in
            `refused`.
        dead_letter: A topic with the codec json or bytes, or its name; by default `<topic>.dead`,
            created when it is needed. A dead letter is the row's columns as JSON, with blobs and
            text that is not UTF-8 as `{"base64": ...}`. Its key is the id, and its headers are
            `falaj-outbox`, `falaj-table`, `falaj-id` and `falaj-reason`.

    Raises:
        InvalidArgument: The table is missing, its primary key is none of those above, or the file
            is no database; or an argument cannot be right.

    Example:
        >>> import sqlite3
        >>> shop = sqlite3.connect(path)
        >>> _ = shop.execute(
        ...     "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, value TEXT)"
        ... )
        >>> with shop:  # together with what the service itself writes
        ...     _ = shop.execute("INSERT INTO outbox (key, value) VALUES ('eu', '10 apples')")
        >>> orders = store.topic("orders", codec="str")
        >>> with Outbox(path, orders) as outbox:
        ...     outbox.relay(), outbox.relay()
        (1, 0)
        >>> orders[0]
        <Record orders[0] b'10 apples'>
    """

    def __init__(
        self,
        database: str | os.PathLike[str],
        topic: EitherTopic,
        *,
        table: str = "outbox",
        id: str = "id",  # noqa: A002  # the name that the column has
        row: Callable[[sqlite3.Row], Any] | None = None,
        name: str | None = None,
        delete: bool = False,
        limit: int = 1000,
        timeout: Duration = 30.0,
        on_bad: Literal["raise", "skip", "dead-letter"] = "raise",
        dead_letter: EitherTopic | str | None = None,
    ) -> None:
        if not isinstance(topic, AnyTopic):
            raise TypeError(f"topic is an open topic, not {named(topic)}")
        topic._expect()
        choice(on_bad, "on_bad", "raise", "skip", "dead-letter")
        flag(delete, "delete")
        plain_function(row, "row")
        if dead_letter is not None and on_bad != "dead-letter":
            raise InvalidArgument(
                'dead_letter= is where rows go with on_bad="dead-letter": give that too'
            )
        if (limit := number(limit, "limit")) < 1:
            raise InvalidArgument(f"limit is a number of rows from 1 on, not {shown(limit)}")
        for what, given in (("table", table), ("id", id), ("name", "" if name is None else name)):
            text(given, what)
        self.topic = topic
        self.name = name or f"outbox:{table}"
        self._row = row or self._columns
        self._on_bad = on_bad
        self._dead = None if on_bad != "dead-letter" else opened_for_letters(topic, dead_letter)
        self._names = (table, id)
        self._table, self._id = _outbox_table.quoted(table), _outbox_table.quoted(id)
        self._delete, self._limit = delete, min(limit, _LIMIT_MAX)
        self._stopped = self._at_work = False
        # A signal's handler may use this in the thread that it interrupts, unlike an Event.
        self._turn, self._stop = threading.RLock(), threading.Lock()
        self._stop.acquire()
        path = local_path(database, "the database")
        self._database, self._autoincrement = _outbox_table.connect(
            path,
            table,
            id,
            timeout=_outbox_table.span("timeout", timeout),
            rising=delete,
            value=row is None,
        )
        self._path = os.path.abspath(path)
        self._file = _outbox_table.identity(self._path)

    def relay(self) -> int:
        """Move the rows that are committed now, durably.

        Costs a query, and three syncs for each batch of rows.

        Returns:
            The number of moved rows.

        Raises:
            AppendTooLarge: A row is larger than one append may be; those before it were moved.
            InvalidArgument: A row cannot be a record; those before it were moved. Or the database,
                or the store, was set back to an older state, as by a backup: rows would be lost or
                come twice. Or ids began again, or a deleting outbox finds rows with lower ids than
                it has moved and deleted: it would never move them. Or the database's file was
                removed, or another took its place.
            HandleClosed: The outbox was closed.
            sqlite3.Error: The database refused. The remaining rows are moved the next time.
        """
        moved = self._in_turn(self._relay)
        if moved is None:
            raise HandleClosed("this outbox is closed; make another")
        return moved

    def run(self, poll: Duration = 0.05) -> Iterator[int]:
        """Move rows as they come, until `close` is called.

        Args:
            poll: Seconds between two looks at the database while nothing comes.

        Yields:
            The number of moved rows, each time that there were some.

        Raises:
            AppendTooLarge, InvalidArgument, sqlite3.Error: As `relay`.
        """
        poll = _outbox_table.span("poll", poll)
        seen: int | None = None
        while looked := self._in_turn(self._look, seen):
            seen, moved = looked
            if moved:
                yield moved
            else:
                self._rest(poll)

    @property
    def refused(self) -> int:
        """How many rows of this outbox were skipped or became dead letters, in all its runs."""
        with self._turn:
            if self._stopped:
                raise HandleClosed("this outbox is closed; make another")
            found = self._progress()
        return found.refused if found else 0

    @property
    def dead(self) -> EitherTopic | None:
        """The topic of rows that cannot be records; None unless `on_bad` is "dead-letter"."""
        return self._dead

    def close(self) -> None:
        """End `run`, from any thread, and close the connection. The topic stays open.

        A signal's handler may call this too. If it interrupts a relay, the relay ends after its
        present batch.
        """
        self._stopped = True
        with suppress(RuntimeError):  # it was closed before
            self._stop.release()
        with self._turn:
            if not self._at_work:
                self._database.close()

    def _in_turn(self, work: Callable[..., _T], *arguments: Any) -> _T | None:
        """Do work in its turn; None if the outbox is closed. If it is closed meanwhile, close then.

        No generator does this. A signal's handler may raise behind its `yield`. Then it would keep
        the turn for as long as anything refers to that exception.
        """
        with self._turn:
            try:
                self._at_work = True
                return None if self._stopped else work(*arguments)
            finally:
                self._at_work = False
                if self._stopped:
                    self._database.close()

    def _rest(self, longest: float) -> None:
        """Wait until it is closed, at most for this many seconds."""
        if self._stop.acquire(timeout=longest):
            self._stop.release()

    def __enter__(self) -> Outbox:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Show table and topic."""
        return f"<Outbox {self._table} to {self.topic.name}>"

    def _version(self) -> int:
        """Return a number that changes after commits of others."""
        found: int = self._database.execute("PRAGMA data_version").fetchone()[0]
        return found

    def _look(self, before: int | None) -> tuple[int, int]:
        """Relay if others committed since that version; return the version, and the moved rows."""
        self._expect_in_place()
        seen = self._version()  # before the look: later rows are seen by the next one
        return seen, self._relay() if seen != before else 0

    def _relay(self) -> int:
        self._expect_in_place()
        moved = 0
        while not self._stopped and (batch := self._next_batch()):
            moved += self._move(batch)
        return moved

    def _expect_in_place(self) -> None:
        """Check that the path names the file that is open; SQLite would go on in the old one."""
        if _outbox_table.identity(self._path) != self._file:
            raise InvalidArgument(
                f"the database {self._path} was removed, or another file took its place, while "
                "this outbox had it open: close the outbox and make another"
            )

    def _next_batch(self) -> _Batch | None:
        """Return the unfinished batch, or else the next one, which is on disk when this returns."""
        return self._in_transaction(self._begin_batch)

    def _begin_batch(self) -> _Batch | None:
        before = self._progress()
        if before and not before.done:
            return before
        if before:
            self._expect_rising(before.last)
        if self._delete:
            self._begin_to_delete(before.last if before else LOWEST)
        first, last = self._database.execute(
            f"SELECT min(id), max(id) FROM (SELECT {self._id} AS id FROM {self._table}"
            f" WHERE {self._id} > ? ORDER BY {self._id} LIMIT ?)",
            (before.last if before else LOWEST, self._limit),
        ).fetchone()
        if first is None:
            return None
        done = before.sequence if before else -1
        self._expect_together(done if done >= 0 else None)
        batch = _Batch(done + 1, first, last, False, before.refused if before else 0)
        self._note(batch)
        return batch

    def _expect_together(self, done: int | None) -> None:
        """Check that database and topic have the same last batch: no batch is unfinished now."""
        appended = self.topic.last_sequence(self.name)
        if appended != done:
            ours, theirs = (f"batch {n}" if n is not None else "none" for n in (done, appended))
            raise InvalidArgument(
                f"the last batch of {self.name!r} was {ours} by the database, {theirs} by topic "
                f"{self.topic.name!r}: one of the two was set back to an older state, and rows "
                f"would be lost or come twice; compare them, and {ANEW}"
            )

    def _begin_to_delete(self, last: int) -> None:
        """Note that rows up to the last moved one may have been kept, unless it deleted before."""
        if self._kept() is not None:
            return
        self._write((self.name, self._keeping, 0, LOWEST, last, 1, 0, None, None))
        if self._lowest(LOWEST) <= last:
            _LOGGER.warning(
                "%r leaves the rows of %s up to %d, which are older than its delete=True. "
                "If they were moved, this removes them: DELETE FROM %s WHERE %s <= %d",
                *(self.name, self._table, last, self._table, self._id, last),
            )

    def _kept(self) -> int | None:
        """Return the last row that may have been moved and kept; None if no row is deleted."""
        found = self._database.execute(
            "SELECT last FROM falaj_outbox WHERE outbox = ? AND topic = ?",
            (self.name, self._keeping),
        ).fetchone()
        return found[0] if found else None

    @property
    def _keeping(self) -> str:
        """Return the key of that note in the table of the progress; no topic has it."""
        return f"{self.topic.generation}, kept rows"

    def _lowest(self, after: int) -> float:
        found = self._database.execute(
            f"SELECT min({self._id}) FROM {self._table} WHERE {self._id} > ?", (after,)
        ).fetchone()[0]
        return math.inf if found is None else found

    def _expect_rising(self, last: int) -> None:
        """Check that later rows get ids above the last moved one."""
        (highest,) = self._database.execute(f"SELECT max({self._id}) FROM {self._table}").fetchone()
        kept = self._kept() if self._delete else None
        if kept is not None and (lowest := self._lowest(kept)) <= last:
            raise InvalidArgument(
                f"{self._table} has a row {lowest}, and {self.name!r} has moved, and deleted, rows "
                f"up to {last}, so this outbox never moves it: delete it, and insert it again "
                "without an id of your own unless another outbox has moved it"
            )
        known = [highest] if highest is not None else []
        if self._autoincrement:
            known += (
                self._database.execute(
                    "SELECT seq FROM sqlite_sequence WHERE name = ? COLLATE NOCASE", self._names[:1]
                ).fetchone()
                or []
            )
        if max(known, default=LOWEST) < last:
            raise InvalidArgument(
                f"{self.name!r} has moved rows up to {last} of {self._table}, whose ids have begun "
                f"again: rows would never be moved; {ANEW}"
            )

    def _move(self, batch: _Batch) -> int:
        if batch.dead_letters is not None:
            return self._bury(batch)
        rows = self._rows(batch)
        if not rows:
            # Another relay has moved and deleted them meanwhile, or the service has deleted them.
            self._end(batch)
            return 0
        try:
            # Other relays that are far ahead have appended it.
            with suppress(DuplicateSequence):
                records = [self._record(row) for row in rows]
                self.topic.extend(
                    records, producer=self.name, sequence=batch.sequence, sync="durable"
                )
        except _NOT_THE_ROWS:
            raise
        except Exception as error:  # noqa: BLE001  # of the codec, or of what makes records
            self.topic._expect()
            self._around(batch, rows, error)
            return 0
        self._finish(batch)
        return len(rows)

    def _rows(self, batch: _Batch) -> list[sqlite3.Row]:
        query = (
            f"SELECT {self._id} AS falaj_id, * FROM {self._table}"
            f" WHERE {self._id} BETWEEN ? AND ? ORDER BY {self._id}"
        )
        ids = (batch.first, batch.last)
        try:
            return self._database.execute(query, ids).fetchall()
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            # Half characters, which no codec takes, represent the bytes of text that is not UTF-8.
            self._database.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            return self._database.execute(query, ids).fetchall()

    def _around(self, batch: _Batch, rows: Sequence[sqlite3.Row], error: Exception) -> None:
        """Continue after a batch was refused: before the bad row, or past it."""
        if self._is_appended(batch):
            self._end(batch)  # when that row was not the bad one
            return
        good = sum(1 for _ in takewhile(lambda row: self._refusal(row) is None, rows))
        if good == len(rows):
            if not isinstance(error, AppendTooLarge):
                raise error
            good = len(rows) // 2  # together they are too large, or the only one is
        if good:
            self._shorten(batch, rows[good - 1]["falaj_id"])
            return
        row, number = rows[0], rows[0]["falaj_id"]
        refusal = self._refusal(row, alone=True) or Refusal(self._blamed(row, error), error)
        told = refusal.told(number, self._table, self.topic.name)
        if self._on_bad == "raise":
            kind = AppendTooLarge if isinstance(refusal.error, AppendTooLarge) else InvalidArgument
            raise kind(
                f'{told}; the rows before it were moved: mend it, or let on_bad="skip" leave it '
                'out, or on_bad="dead-letter" append it to another topic'
            ) from refusal.error
        if self._dead is None:
            _LOGGER.warning("%s; it was skipped", told)
            self._pass_over(batch, number, 1)
        else:
            self._shorten(batch, number, self._dead)  # what is under way then is a dead letter

    def _refusal(self, row: sqlite3.Row, *, alone: bool = False) -> Refusal | None:
        """Return why a row cannot be a record; its size counts only if it is alone."""
        try:
            _expect_record(self.topic, self._record(row))
        except _NOT_THE_ROWS:
            raise
        except Refusal as refusal:
            return refusal
        except Exception as error:  # noqa: BLE001  # of the codec, or of what makes records of rows
            if alone or not isinstance(error, AppendTooLarge):
                return Refusal(self._blamed(row, error), error)
        return None

    def _blamed(self, row: sqlite3.Row, error: Exception) -> str | None:
        """Return the column that an error is about, if it is known: of a size, the larger one."""
        if self._row != self._columns:
            return None
        if not isinstance(error, AppendTooLarge):
            return "value"
        key = _outbox_table.key_of(row)
        sizes = [len(each) if isinstance(each, str | bytes) else 0 for each in (row["value"], key)]
        return "value" if sizes[0] >= sizes[1] else "key"

    def _bury(self, batch: _Batch) -> int:
        """Append a dead letter of the only row of a batch, and pass the row over."""
        if self._dead is None:
            raise InvalidArgument(
                f"row {batch.first} of {self._table} was on its way to a topic of dead letters "
                'when its relay ended: give on_bad="dead-letter" until it is there'
            )
        if self._dead.generation != batch.dead_letters:
            self._shorten(batch, batch.last, self._dead)
            return 0
        for row in self._rows(batch):
            refusal = self._refusal(row, alone=True)
            refusal = refusal or Refusal(None, InvalidArgument("it was refused before"))
            told = refusal.told(row["falaj_id"], self._table, self.topic.name)
            tags = {"outbox": self.name, "table": self._names[0], "reason": str(refusal)}
            try:
                self._append_letter(letter(row, tags, self._dead.codec), batch)
            except AppendTooLarge as error:
                if self._delete:
                    raise AppendTooLarge(
                        f"{told}; nor is it a dead letter, and delete=True would lose it: move it "
                        'by hand and delete it, or let on_bad="skip" leave it out'
                    ) from error
                self._append_letter(letter(row, tags, self._dead.codec, whole=False), batch)
            _LOGGER.warning("%s; it is a dead letter in %r", told, self._dead.name)
        self._pass_over(batch, batch.last, 1)
        return 0

    def _append_letter(self, record: NewRecord, batch: _Batch) -> None:
        assert self._dead is not None
        with suppress(DuplicateSequence):
            self._dead.extend(
                [record], producer=self._letters, sequence=batch.dead_letter, sync="durable"
            )

    @property
    def _letters(self) -> str:
        """Return the name of the producer of dead letters."""
        return f"{self.name} of {self.topic.generation}"

    def _record(self, row: sqlite3.Row) -> Any:
        """Make a record of a row; an error that is not about the row names it too."""
        try:
            return finished(self._row(row), "row")
        except _NOT_THE_ROWS as error:
            error.add_note(
                f"row {row['falaj_id']} of {self._table}: row= raised this, which no row is "
                "skipped for: the relay goes on with this row the next time"
            )
            raise

    def _columns(self, row: sqlite3.Row) -> NewRecord:
        value, key = row["value"], _outbox_table.key_of(row)
        try:
            if key is not None and not isinstance(key, bytes):
                key = str(key).encode()
        except UnicodeEncodeError as error:
            raise Refusal("key", error) from None
        if value is None:
            if key is None:
                raise InvalidArgument("NULL is a tombstone, which needs the key that it deletes")
            return NewRecord.tombstone(key)
        if isinstance(value, str) and self.topic.codec == "bytes":
            value = value.encode()
        return NewRecord(value, key)

    def _is_appended(self, batch: _Batch) -> bool:
        last = self.topic.last_sequence(self.name)
        return last is not None and last >= batch.sequence

    def _shorten(self, batch: _Batch, last: int, dead: EitherTopic | None = None) -> None:
        """Leave the later rows to another batch. Nothing of this one was ever appended.

        With a topic of dead letters its row becomes one there, whatever is found out later.
        """
        self._in_transaction(self._note_shorter, batch, last, dead)

    def _note_shorter(self, batch: _Batch, last: int, dead: EitherTopic | None) -> None:
        if self._progress() != batch:
            return
        batch = batch._replace(last=last)
        if dead is not None:
            before = dead.last_sequence(self._letters)
            number = 0 if before is None else before + 1
            batch = batch._replace(dead_letters=dead.generation, dead_letter=number)
        self._note(batch)

    def _end(self, batch: _Batch) -> None:
        """Note a batch as done, or as passed over if nothing of it was appended."""
        if self._is_appended(batch):
            self._finish(batch)
        else:
            self._pass_over(batch, batch.last, 0)

    def _finish(self, batch: _Batch) -> None:
        self._in_transaction(self._note_done, batch, batch._replace(done=True))

    def _pass_over(self, batch: _Batch, last: int, refused: int) -> None:
        """Continue after a row whose batch is not in the topic: its number is free."""
        refused += batch.refused
        done = _Batch(batch.sequence - 1, batch.first, last, True, refused)
        self._in_transaction(self._note_done, batch, done)

    def _note_done(self, batch: _Batch, done: _Batch) -> None:
        if self._progress() != batch:
            return  # another relay was faster
        self._note(done)
        if self._delete:
            self._database.execute(
                f"DELETE FROM {self._table} WHERE {self._id} BETWEEN ? AND ?",
                (done.first, done.last),
            )
        else:
            self._database.execute(
                "DELETE FROM falaj_outbox WHERE outbox = ? AND topic = ?",
                (self.name, self._keeping),
            )

    def _progress(self) -> _Batch | None:
        found = self._database.execute(
            "SELECT sequence, first, last, done, refused, dead_letters, dead_letter"
            " FROM falaj_outbox WHERE outbox = ? AND topic = ?",
            (self.name, self.topic.generation),
        ).fetchone()
        if found is None:
            return None
        sequence, first, last, done, *rest = found
        return _Batch(sequence, first, last, bool(done), *rest)

    def _note(self, batch: _Batch) -> None:
        self._write((self.name, self.topic.generation, *batch))

    def _write(self, row: tuple[Any, ...]) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO falaj_outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row
        )

    def _in_transaction(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Do work under the database's write lock, taken at once, so that the reads stay true.

        No generator does this either: the lock would stay.
        """
        try:
            self._database.execute("BEGIN IMMEDIATE")
            done = work(*arguments)
            self._database.execute("COMMIT")
        except BaseException:
            # A signal's handler may raise right after each of them.
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        return done
