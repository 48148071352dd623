//! `Transaction`: records for several topics of one log, and cursors, gathered and committed at once.
//!
//! What is gathered is held as Python gave it and encoded at the commit: until then nothing has happened,
//! so giving up costs nothing. Invariant: the mutex is held for moments, and nothing of Python's runs
//! under it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use falaj::consumer::Move;
use falaj::error::Error;
use falaj::format::checksum::crc32;
use falaj::topic::{BodyWriter, CursorMove, CursorState, Group, Grouped, Part, SyncMode};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyRange, PyString, PyTuple};

use crate::collect::{Collector, rich};
use crate::consumer::Consumer;
use crate::errors::{OrRaise, invalid};
use crate::handle::Open;
use crate::input::{self, Incoming};
use crate::opened::Opened;
use crate::receipts;
use crate::store::Store;
use crate::topic::Topic;
use crate::turn::Shared;
use crate::wait::{patiently, patiently_after};

/// Where the next record without a key goes.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Records for several topics that become visible together; see falaj.Transaction.
#[pyclass(frozen, subclass, module = "falaj._core")]
#[derive(Debug)]
pub struct Transaction {
    store: Py<Store>,
    sync: Option<SyncMode>,
    gathered: Mutex<Gathered>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Fresh,
    Open,
    Committed,
    GivenUp,
}

#[derive(Debug, Default)]
struct Gathered {
    phase: Phase,
    drafts: Vec<Draft>,
    cursors: Vec<(Vec<u8>, CursorState)>,
    /// Consumers whose cursors move, and what was handed out by each.
    consumers: Vec<(Arc<Shared>, Vec<Move>)>,
    /// Whose log keeps the cursors.
    home: Option<Opened>,
    offsets: Option<Py<PyDict>>,
    token: Option<Py<PyAny>>,
    begun_by: Option<Actor>,
}

/// Who runs: a thread and, in an event loop, the address of its task. Contexts are no answer: a task or
/// thread begins with a copy of the one that it was begun in.
type Actor = (ThreadId, usize);

/// Records for one partition of a topic.
#[derive(Debug)]
struct Draft {
    opened: Opened,
    partition: u32,
    plain: BodyWriter,
    rest: Vec<Kept>,
}

/// A record that is more than a value, or comes behind one.
#[derive(Debug)]
struct Kept {
    value: Option<Py<PyBytes>>,
    key: Option<Py<PyBytes>>,
    headers: Vec<(String, Option<Py<PyBytes>>)>,
    event_time_ns: Option<i64>,
}

impl Kept {
    fn new(record: Incoming<'_>) -> Self {
        let headers = record.headers.into_iter();
        Self {
            value: record.value.map(Bound::unbind),
            key: record.key.map(Bound::unbind),
            headers: headers.map(|(name, value)| (name, value.map(Bound::unbind))).collect(),
            event_time_ns: record.event_time_ns,
        }
    }

    fn incoming<'py>(&self, py: Python<'py>) -> Incoming<'py> {
        let bound = |bytes: &Py<PyBytes>| bytes.bind(py).clone();
        let headers = self.headers.iter();
        Incoming {
            value: self.value.as_ref().map(bound),
            key: self.key.as_ref().map(bound),
            headers: headers.map(|(n, v)| (n.clone(), v.as_ref().map(bound))).collect(),
            event_time_ns: self.event_time_ns,
        }
    }
}

impl Draft {
    fn push(&mut self, record: Incoming<'_>) {
        match &record.value {
            Some(value) if self.rest.is_empty() && !record.is_rich() => {
                self.plain.push_value(value.as_bytes());
            }
            _ => self.rest.push(Kept::new(record)),
        }
    }

    fn body(&mut self, py: Python<'_>) -> BodyWriter {
        if self.rest.is_empty() {
            return std::mem::take(&mut self.plain);
        }
        let rest: Vec<_> = self.rest.iter().map(|kept| kept.incoming(py)).collect();
        rich(&self.plain, &rest)
    }
}

impl Gathered {
    fn expect_open(&self, py: Python<'_>) -> PyResult<()> {
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Fresh => Err(invalid(
                py,
                "a transaction is a context manager: with store.transaction() as tx",
            )),
            Phase::Committed | Phase::GivenUp => {
                Err(invalid(py, "this transaction is over: begin another"))
            }
        }
    }

    /// Everything goes to one log.
    fn expect_log(&self, py: Python<'_>, opened: &Opened) -> PyResult<()> {
        let first = self.drafts.first().map(|draft| &draft.opened).or(self.home.as_ref());
        let Some(first) = first.filter(|first| first.log != opened.log) else { return Ok(()) };
        let (one, other) = (&first.handle.shape.name, &opened.handle.shape.name);
        let what = format!(
            "topics {one:?} and {other:?} live in different logs, and only what shares a log is \
             written at once: create topics that belong together with the same log=\"…\""
        );
        Err(invalid(py, what))
    }

    fn draft(&mut self, opened: &Opened, partition: u32) -> &mut Draft {
        let number = opened.first_number + partition;
        let is_its = |d: &Draft| d.opened.first_number + d.partition == number;
        let found = self.drafts.iter().rposition(is_its);
        let at = found.unwrap_or_else(|| {
            let mut plain = BodyWriter::default();
            plain.begin(false, None);
            let opened = opened.clone();
            self.drafts.push(Draft { opened, partition, plain, rest: Vec::new() });
            self.drafts.len() - 1
        });
        &mut self.drafts[at]
    }
}

impl Transaction {
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was begun by that thread or task, and has not ended.
    fn is_open_in(&self, actor: Actor) -> bool {
        let gathered = self.gathered();
        gathered.phase == Phase::Open && gathered.begun_by == Some(actor)
    }

    /// A topic, by name or as a handle, of the transaction's store.
    fn resolve(&self, topic: &Bound<'_, PyAny>) -> PyResult<Opened> {
        let py = topic.py();
        if let Ok(name) = topic.cast::<PyString>() {
            return Store::existing(self.store.bind(py), &name.to_string_lossy());
        }
        let Ok(handle) = topic.cast::<Topic>() else {
            let kind = topic.get_type().name()?.to_string();
            let what = format!("a transaction writes to a topic or the name of one, not {kind}");
            return Err(PyTypeError::new_err(what));
        };
        let opened = &handle.get().opened;
        let open = opened.handle.open(py)?;
        if open.topic.store().path() != self.store.get().directory() {
            let (name, path) = (open.topic.name(), open.topic.store().path().display());
            let what = format!(
                "topic {name:?} is in the store {path}, and a transaction writes to one store: take \
                 the topic from the store that the transaction is of"
            );
            return Err(invalid(py, what));
        }
        Ok(opened.clone())
    }

    fn partition(
        py: Python<'_>,
        opened: &Opened,
        asked: Option<u32>,
        key: Option<&[u8]>,
    ) -> PyResult<u32> {
        match (asked.or(opened.only), key) {
            (Some(partition), _) if partition < opened.partitions => Ok(partition),
            (Some(wrong), _) => {
                let (name, last) = (&opened.handle.shape.name, opened.partitions - 1);
                let what =
                    format!("{name:?} has no partition {wrong}: they are numbered 0 to {last}");
                Err(invalid(py, what))
            }
            (None, Some(key)) => Ok(crc32(key) % opened.partitions),
            (None, None) => Ok(TURN.fetch_add(1, Ordering::Relaxed) % opened.partitions),
        }
    }

    fn push(
        &self,
        py: Python<'_>,
        opened: &Opened,
        record: Incoming<'_>,
        partition: Option<u32>,
    ) -> PyResult<()> {
        let key = record.key.as_ref().map(PyBytesMethods::as_bytes);
        let partition = Self::partition(py, opened, partition, key)?;
        let mut gathered = self.gathered();
        gathered.expect_open(py)?;
        gathered.expect_log(py, opened)?;
        gathered.draft(opened, partition).push(record);
        Ok(())
    }

    fn commit(&self, py: Python<'_>, mut gathered: Gathered) -> PyResult<Py<PyDict>> {
        let offsets = PyDict::new(py);
        let home = gathered.drafts.first().map(|draft| &draft.opened).or(gathered.home.as_ref());
        let Some(home) = home.cloned() else { return Ok(offsets.unbind()) };
        let moves: Vec<_> =
            gathered.consumers.iter().flat_map(|(_, moves)| moves.clone()).collect();
        if gathered.drafts.is_empty() && gathered.cursors.is_empty() && moves.is_empty() {
            return Ok(offsets.unbind());
        }
        let open = |draft: &Draft| draft.opened.handle.open(py);
        let opens: Vec<Arc<Open>> = gathered.drafts.iter().map(open).collect::<PyResult<_>>()?;
        let bodies: Vec<_> = gathered.drafts.iter_mut().map(|draft| draft.body(py)).collect();
        let parts = opens.iter().zip(&bodies).zip(&gathered.drafts);
        let parts: Vec<_> = parts
            .map(|((open, body), draft)| Part {
                topic: &open.topic,
                partition: draft.partition,
                body,
            })
            .collect();
        let cursors = cursors_of(&gathered, &moves);
        let home_open = home.handle.open(py)?;
        let group = Group { home: &home_open.topic, parts: &parts, cursors: &cursors };
        let sync = self.sync.unwrap_or_else(|| strongest(&home, &gathered.drafts));
        let patience = home.handle.patience;
        let Grouped { ranges, appended } = patiently(py, patience, || {
            if sync == SyncMode::Durable {
                moves.iter().try_for_each(|moved| moved.sync_input(&home_open.topic))?;
            }
            group.commit_visible(Some(sync)).map_err(|error| Move::explain(&moves, error))
        })?;
        for (draft, range) in gathered.drafts.iter().zip(&ranges) {
            receipts::note(py, &draft.opened.handle.shape, draft.partition, range.clone());
        }
        for (consumer, moves) in std::mem::take(&mut gathered.consumers) {
            consumer.moved(moves, appended.end);
        }
        for (draft, range) in gathered.drafts.iter().zip(&ranges) {
            note(py, &offsets, draft, range)?;
        }
        if sync == SyncMode::Durable {
            // They are visible, whatever comes of the sync.
            self.gathered().offsets = Some(offsets.clone().unbind());
            let (log, offset) = (home_open.topic.log(), appended.first);
            let visible = |error: Error| error.after_append(offset);
            patiently_after(py, patience, visible, || log.sync_to(appended.end))?;
        }
        Ok(offsets.unbind())
    }
}

/// The cursors that move; one that moves twice ends where it was moved to last.
fn cursors_of<'a>(gathered: &'a Gathered, moves: &'a [Move]) -> Vec<CursorMove<'a>> {
    let free = |(name, to): &'a (Vec<u8>, CursorState)| CursorMove { name, to: *to, from: None };
    let all = gathered.cursors.iter().map(free).chain(moves.iter().map(Move::cursor));
    let by_name: BTreeMap<_, _> = all.map(|moved| (moved.name, moved)).collect();
    by_name.into_values().collect()
}

/// The strongest of the topics' modes: what is written at once is synced at once.
fn strongest(home: &Opened, drafts: &[Draft]) -> SyncMode {
    let modes = drafts.iter().map(|draft| draft.opened.sync).chain([home.sync]);
    let mut strongest = SyncMode::None;
    for mode in modes {
        strongest = match (strongest, mode) {
            (SyncMode::Durable, _) | (_, SyncMode::Durable) => SyncMode::Durable,
            (SyncMode::Interval, _) | (_, SyncMode::Interval) => SyncMode::Interval,
            (SyncMode::None, SyncMode::None) => SyncMode::None,
        };
    }
    strongest
}

/// Which offsets a topic got: a range, or a dict of them by partition where it has several.
fn note(
    py: Python<'_>,
    offsets: &Bound<'_, PyDict>,
    draft: &Draft,
    range: &Range<u64>,
) -> PyResult<()> {
    let name = &draft.opened.handle.shape.name;
    let range = PyRange::new(py, range.start as isize, range.end as isize)?;
    if draft.opened.partitions == 1 {
        return offsets.set_item(name, range);
    }
    let by_partition = match offsets.get_item(name)? {
        Some(known) => known.cast_into::<PyDict>()?,
        None => PyDict::new(py),
    };
    by_partition.set_item(draft.partition, range)?;
    offsets.set_item(name, by_partition)
}

/// Who calls. Without asyncio there are no tasks, and it is not imported for this.
fn actor(py: Python<'_>) -> PyResult<Actor> {
    let modules = py.import(pyo3::intern!(py, "sys"))?.getattr(pyo3::intern!(py, "modules"))?;
    let asyncio =
        modules.call_method1(pyo3::intern!(py, "get"), (pyo3::intern!(py, "asyncio"),))?;
    // It raises where no event loop runs.
    let task = asyncio.call_method0(pyo3::intern!(py, "current_task"));
    let task = task.ok().filter(|task| !task.is_none()).map_or(0, |task| task.as_ptr() as usize);
    Ok((thread::current().id(), task))
}

/// The transaction that the caller's context is in, or was when its task or thread was begun.
fn current<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
    static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CURRENT.import(py, "falaj.transactions", "_CURRENT")
}

#[pymethods]
impl Transaction {
    #[new]
    fn new(store: Bound<'_, Store>, sync: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let sync = input::sync_mode(sync)?;
        Ok(Self { store: store.unbind(), sync, gathered: Mutex::default() })
    }

    /// Append a record when the transaction ends.
    ///
    /// Args:
    ///     topic: The topic, or its name. It must exist, in the same log as the others.
    ///     value, key, headers, time, partition: As for `Topic.append`.
    ///
    /// Raises:
    ///     NoSuchTopic: There is none of this name: create it with `store.topic(name, log=…)` before.
    ///     Invalid: It lives in another log, or another store, than the others.
    ///
    /// Example:
    ///     >>> _ = store.topic("paid", log="shop"), store.topic("audit", log="shop")
    ///     >>> with store.transaction() as tx:
    ///     ...     tx.append("paid", b"order 17", key=b"eu")
    ///     ...     tx.append("audit", b"paid: order 17")
    ///     >>> tx.offsets
    ///     {'paid': range(0, 1), 'audit': range(0, 1)}
    #[pyo3(signature = (topic, value, key=None, headers=None, time=None, partition=None))]
    #[allow(clippy::too_many_arguments, reason = "all but two are keywords in Python")]
    fn append<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        time: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<()> {
        let opened = self.resolve(topic)?;
        let record = Incoming {
            value: Some(input::encoded(value, opened.handle.shape.encode.as_ref())?),
            key: input::key(key)?,
            headers: input::headers(headers)?,
            event_time_ns: input::time_ns(time)?,
        };
        self.push(py, &opened, record, partition)
    }

    /// Append a tombstone when the transaction ends: a key without a value, by which it is deleted.
    ///
    /// Args:
    ///     topic: As for `append`.
    ///     key, headers, timestamp, partition: As for `Topic.tombstone`.
    ///
    /// Raises:
    ///     NoSuchTopic, Invalid: As for `append`.
    ///
    /// Example:
    ///     >>> prices = store.topic("prices", compacted=True)
    ///     >>> with store.transaction() as tx:
    ///     ...     tx.tombstone(prices, b"tea")
    ///     >>> prices[0].key, prices[0].is_tombstone
    ///     (b'tea', True)
    #[pyo3(signature = (topic, key, *, headers=None, timestamp=None, partition=None))]
    fn tombstone<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<()> {
        let opened = self.resolve(topic)?;
        self.push(py, &opened, Incoming::tombstone(key, headers, timestamp)?, partition)
    }

    /// Append many records to a topic when the transaction ends.
    ///
    /// Args:
    ///     topic: As for `append`.
    ///     records, partition: As for `Topic.extend`.
    ///
    /// Raises:
    ///     TooLarge: Together they are larger than one append may be.
    ///     NoSuchTopic, Invalid: As for `append`.
    #[pyo3(signature = (topic, records, partition=None))]
    fn extend<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyAny>,
        records: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<()> {
        let opened = self.resolve(topic)?;
        let limit = opened.handle.open(py)?.topic.log().max_group_len();
        let keyless = Self::partition(py, &opened, partition, None)?;
        let collector = Collector { shape: &opened.handle.shape, limit };
        let mut records: Vec<_> = collector.each(records)?;
        let mut gathered = self.gathered();
        gathered.expect_open(py)?;
        gathered.expect_log(py, &opened)?;
        for record in records.drain(..) {
            let key = record.key.as_ref().map(PyBytesMethods::as_bytes);
            let to = match key {
                Some(key) if partition.is_none() => Self::partition(py, &opened, None, Some(key))?,
                _ => keyless,
            };
            gathered.draft(&opened, to).push(record);
        }
        Ok(())
    }

    /// Which offsets the records got, by topic, once it was committed; else None.
    #[getter]
    fn offsets(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.gathered().offsets.as_ref().map(|offsets| offsets.clone_ref(py))
    }

    /// Move cursors, each with its name, an offset and a checksum, in the log of a topic.
    fn _move(
        &self,
        py: Python<'_>,
        cursors: Vec<(Vec<u8>, u64, u32)>,
        home: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let home = home.map(|home| self.resolve(home)).transpose()?;
        let mut gathered = self.gathered();
        gathered.expect_open(py)?;
        if let Some(home) = home {
            gathered.expect_log(py, &home)?;
            gathered.home = Some(home);
        }
        // One that moves twice ends where it was moved to last.
        let mut places: BTreeMap<_, _> =
            std::mem::take(&mut gathered.cursors).into_iter().collect();
        let moved = cursors.into_iter();
        let to = |offset, crc| CursorState { offset, crc, turn: 0 };
        places.extend(moved.map(|(name, offset, crc)| (name, to(offset, crc))));
        gathered.cursors = places.into_iter().collect();
        Ok(())
    }

    /// Move the cursors of a consumer to behind what it handed out.
    fn _move_consumer(&self, py: Python<'_>, consumer: &Bound<'_, Consumer>) -> PyResult<()> {
        let consumer = consumer.get();
        let moves = consumer.moves(py)?;
        let Some(home) = &consumer.home else { return Ok(()) };
        let open = home.handle.open(py)?;
        if open.topic.store().path() != self.store.get().directory() {
            let (name, path) = (&consumer.name, open.topic.store().path().display());
            let what = format!(
                "consumer {name:?} is in the store {path}, and a transaction writes to one store: open \
                 it in the store that the transaction is of"
            );
            return Err(invalid(py, what));
        }
        let mut gathered = self.gathered();
        gathered.expect_open(py)?;
        gathered.expect_log(py, home)?;
        gathered.home.get_or_insert_with(|| home.clone());
        gathered.consumers.push((Arc::clone(&consumer.shared), moves));
        Ok(())
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let (py, own) = (slf.py(), slf.get());
        let (current, actor) = (current(py)?, actor(py)?);
        let before = current.call_method1(pyo3::intern!(py, "get"), (py.None(),))?;
        if before.cast::<Self>().is_ok_and(|before| before.get().is_open_in(actor)) {
            let what = "transactions do not nest: end the one that is open, or write to it";
            return Err(invalid(py, what));
        }
        own.store.get().inner(py)?;
        if own.gathered().phase != Phase::Fresh {
            return Err(invalid(py, "this transaction is over: begin another"));
        }
        let token = current.call_method1(pyo3::intern!(py, "set"), (&slf,))?.unbind();
        let mut gathered = own.gathered();
        (gathered.phase, gathered.token) = (Phase::Open, Some(token));
        gathered.begun_by = Some(actor);
        drop(gathered);
        Ok(slf)
    }

    #[pyo3(signature = (kind=None, *_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _exception: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let mut gathered = std::mem::take(&mut *self.gathered());
        let is_whole = kind.is_none_or(PyAnyMethods::is_none);
        self.gathered().phase = if is_whole { Phase::Committed } else { Phase::GivenUp };
        if let Some(token) = gathered.token.take() {
            // Another context may end it than began it, which then has nothing to reset.
            let _ = current(py)?.call_method1(pyo3::intern!(py, "reset"), (token,));
        }
        if !is_whole {
            return Ok(());
        }
        if gathered.drafts.is_empty() && gathered.home.is_none() && !gathered.cursors.is_empty() {
            self.gathered().phase = Phase::GivenUp;
            let what = "a transaction that moves a cursor and appends nothing has to know the log: \
                        commit_cursor(…, into=topic)";
            return Err(invalid(py, what));
        }
        match self.commit(py, gathered) {
            Ok(offsets) => {
                self.gathered().offsets = Some(offsets);
                Ok(())
            }
            Err(error) => {
                let mut gathered = self.gathered();
                if gathered.offsets.is_none() {
                    gathered.phase = Phase::GivenUp;
                }
                Err(error)
            }
        }
    }

    fn __repr__(&self) -> String {
        let gathered = self.gathered();
        let state = match gathered.phase {
            Phase::Fresh => "not begun".to_owned(),
            Phase::Open => {
                let count = |d: &Draft| d.plain.count() as usize + d.rest.len();
                format!("{} records", gathered.drafts.iter().map(count).sum::<usize>())
            }
            Phase::Committed => "committed".to_owned(),
            Phase::GivenUp => "given up".to_owned(),
        };
        format!("<falaj.Transaction {state}>")
    }
}

/// Where a cursor stands that is kept in a topic's log: offset and checksum.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "bytes of Python's come as a vector")]
pub(crate) fn _cursor(
    py: Python<'_>,
    topic: &Bound<'_, Topic>,
    name: Vec<u8>,
) -> PyResult<Option<(u64, u32)>> {
    let open = topic.get().opened.handle.open_existing(py)?;
    let found = py.detach(|| open.topic.cursor(&name)).or_raise(py)?;
    Ok(found.map(|cursor| (cursor.offset, cursor.crc)))
}
