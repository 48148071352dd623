//! `Transaction`: records for several topics of one log, and cursors, committed together.
//!
//! Owns the `with` block: which thread or task is in one, and the result of the commit in Python.
//! [`falaj::internals::topic::Transaction`] gathers and commits. Invariant: the mutex is held for
//! moments, and no Python code runs under it.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use falaj::internals::consumer::Move;
use falaj::internals::topic::{
    CursorMove, CursorState, SyncMode, Topic, Transaction as Inner, partition_for_key,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyRange, PyString, PyTuple};

use crate::any_topic::AnyTopic;
use crate::appending::{Where, remote_timeout, settled};
use crate::calling::{import, once};
use crate::collect::Collector;
use crate::consumer::Consumer;
use crate::errors::{OrRaise, invalid};
use crate::handle::Shape;
use crate::input::{self, Incoming};
use crate::opened::Opened;
use crate::precondition::{NamedProducer, Preconditions};
use crate::receipts;
use crate::store::Store;
use crate::turn::Shared;
use crate::wait::patiently;

/// Records for several topics that become visible together; see falaj.Transaction.
#[pyclass(frozen, subclass, module = "falaj._core")]
#[derive(Debug)]
pub struct Transaction {
    store: Py<Store>,
    sync: Option<SyncMode>,
    /// How long the end waits for the process that ships the store, in seconds.
    timeout: Option<f64>,
    /// The name of the producer, and the sequence that all its records have.
    producer: Option<(NamedProducer, u64)>,
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
    /// Present while it is open.
    inner: Option<Inner>,
    /// The topics that it writes to, each once.
    topics: Vec<Opened>,
    /// Consumers whose positions move, and how.
    consumers: Vec<(Arc<Shared>, Vec<Move>)>,
    offsets: Option<Offsets>,
    token: Option<Py<PyAny>>,
    begun_by: Option<Actor>,
}

/// The offsets of the records. Most programs never ask for them, so the dict is made when one does.
#[derive(Debug)]
enum Offsets {
    /// Topic, partition and offsets, in the order of the records.
    Parts(Vec<(Arc<Shape>, u32, Range<u64>)>),
    Told(Py<PyDict>),
}

/// The thread that runs and, in an event loop, the address of its task. A context does not
/// distinguish them: a task or thread begins with a copy of its creator's context.
type Actor = (ThreadId, usize);

impl Gathered {
    fn open(&mut self, py: Python<'_>) -> PyResult<&mut Inner> {
        match (self.phase, &mut self.inner) {
            (Phase::Open, Some(inner)) => Ok(inner),
            (Phase::Fresh, _) => Err(invalid(
                py,
                "a transaction is a context manager: with store.transaction() as tx",
            )),
            _ => Err(invalid(py, "this transaction is over: begin another")),
        }
    }

    /// Remember a topic that it writes to.
    fn note(&mut self, opened: &Opened) {
        let is_known = |known: &Opened| known.first_number == opened.first_number;
        if !self.topics.iter().any(is_known) {
            self.topics.push(opened.clone());
        }
    }
}

impl Transaction {
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return whether that thread or task began it, and it has not ended.
    fn is_open_in(&self, actor: Actor) -> bool {
        let gathered = self.gathered();
        gathered.phase == Phase::Open && gathered.begun_by == Some(actor)
    }

    /// Return a topic, given by name or as a handle.
    fn resolve<'a>(&self, topic: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, Opened>> {
        if let Ok(name) = topic.cast::<PyString>() {
            let opened = Store::existing(self.store.bind(topic.py()), &name.to_string_lossy());
            return opened.map(Cow::Owned);
        }
        let Ok(handle) = topic.cast::<AnyTopic>() else {
            let kind = topic.get_type().name()?.to_string();
            let what = format!("a transaction writes to a topic or the name of one, not {kind}");
            return Err(PyTypeError::new_err(what));
        };
        Ok(Cow::Borrowed(&handle.get().opened))
    }

    /// Gather records for a topic. Records without a key that could go to several partitions go to
    /// one. With `expect`, all go to one, and the first must get this offset.
    fn push(
        &self,
        py: Python<'_>,
        opened: &Opened,
        records: &[Incoming<'_>],
        (partition, expect): (Option<u32>, Option<u64>),
    ) -> PyResult<()> {
        let topic = &opened.handle.open(py)?.topic;
        let partition = partition.or(opened.only);
        let mut keyless = None;
        let mut gathered = self.gathered();
        let inner = gathered.open(py)?;
        if let Some(offset) = expect.filter(|_| !records.is_empty()) {
            let to = partition.map_or_else(|| only_partition(py, opened, records), Ok)?;
            inner.expect_offset_in(topic, to, offset).or_raise(py)?;
        }
        for record in records {
            let to = if record.key.is_none() { partition.or(keyless) } else { partition };
            let went = record.with_record(|record| match to {
                Some(to) => inner.append_to(topic, to, record).map(|()| to),
                None => inner.append(topic, record),
            });
            let went = went.or_raise(py)?;
            keyless = keyless.or(record.key.is_none().then_some(went));
        }
        gathered.note(opened);
        Ok(())
    }

    fn commit(&self, py: Python<'_>, mut gathered: Gathered) -> PyResult<()> {
        let Some(mut inner) = gathered.inner.take() else {
            self.gathered().offsets = Some(Offsets::Parts(Vec::new()));
            return Ok(());
        };
        for opened in &gathered.topics {
            opened.handle.open(py)?;
        }
        let sync = inner.sync_mode();
        let timeout = remote_timeout(py, Some(sync), self.timeout)?;
        let log = inner.log().filter(|_| sync >= SyncMode::Durable).cloned();
        if let Some((name, sequence)) = &self.producer {
            for opened in &gathered.topics {
                let topic = &opened.handle.open(py)?.topic;
                inner.expect_sequence(topic, name.name(), *sequence).or_raise(py)?;
            }
        }
        let patience = self.store.get().patience();
        let committed = patiently(py, patience, || inner.commit_visible())?;
        let part = |(topic, partition, range): &(Topic, u32, Range<u64>)| {
            let is_its = |opened: &&Opened| opened.first_number == topic.settings().number;
            let opened = gathered.topics.iter().find(is_its)?;
            Some((Arc::clone(&opened.handle.shape), *partition, range.clone()))
        };
        let parts: Vec<_> = committed.parts().iter().filter_map(part).collect();
        for (shape, partition, range) in &parts {
            receipts::note(py, shape, *partition, range.clone());
        }
        for (consumer, moves) in std::mem::take(&mut gathered.consumers) {
            if !committed.is_repeat() {
                consumer.moved(moves, committed.end());
            }
        }
        // They are visible, whatever the sync returns.
        self.gathered().offsets = Some(Offsets::Parts(parts));
        if let Some(log) = log {
            let appended = (committed.first(), committed.end());
            settled(py, patience, &log, appended, &Where { partition: None, sync, timeout })?;
        }
        Ok(())
    }
}

/// Return the one partition that all these records go to by their keys.
fn only_partition(py: Python<'_>, opened: &Opened, records: &[Incoming<'_>]) -> PyResult<u32> {
    let of = |record: &Incoming<'_>| {
        let key = record.key.as_ref()?;
        Some(partition_for_key(key.as_bytes(), opened.partitions))
    };
    let first = records.first().and_then(of);
    let is_one = records.iter().all(|record| of(record) == first);
    first.filter(|_| is_one).ok_or_else(|| {
        let what = "an append that expects an offset goes to one partition: name it by partition= or a key";
        invalid(py, what)
    })
}

/// Return offsets by topic and then by partition.
fn told<'py>(
    py: Python<'py>,
    parts: &[(Arc<Shape>, u32, Range<u64>)],
) -> PyResult<Bound<'py, PyDict>> {
    let offsets = PyDict::new(py);
    for (shape, partition, range) in parts {
        let topic = shape.name.as_str();
        let range = PyRange::new(py, range.start as isize, range.end as isize)?;
        let by_partition = match offsets.get_item(topic)? {
            Some(known) => known.cast_into::<PyDict>()?,
            None => PyDict::new(py),
        };
        by_partition.set_item(*partition, range)?;
        offsets.set_item(topic, by_partition)?;
    }
    Ok(offsets)
}

/// Return the calling thread and task. Without asyncio there are no tasks, and it is not imported
/// for this.
fn actor(py: Python<'_>) -> PyResult<Actor> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let of_python = || Ok(py.import("sys")?.getattr("modules")?.cast_into()?.unbind());
    let modules = once(&MODULES, py, of_python)?.bind(py);
    let task = match modules.get_item(pyo3::intern!(py, "asyncio"))? {
        Some(asyncio) => running_task(&asyncio).unwrap_or(0),
        None => 0,
    };
    Ok((thread::current().id(), task))
}

/// Return the address of the running task. Outside of an event loop there is none, and no exception
/// is made for that.
fn running_task(asyncio: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = asyncio.py();
    let running = asyncio.call_method0(pyo3::intern!(py, "_get_running_loop"))?;
    if running.is_none() {
        return Ok(0);
    }
    let task = asyncio.call_method1(pyo3::intern!(py, "current_task"), (running,))?;
    Ok(if task.is_none() { 0 } else { task.as_ptr() as usize })
}

/// The variable with the transaction of the caller's context, or of its creator's when its task or
/// thread began: its methods, each looked up once.
#[derive(Debug)]
struct Current {
    get: Py<PyAny>,
    set: Py<PyAny>,
    reset: Py<PyAny>,
}

impl Current {
    fn of(py: Python<'_>) -> PyResult<&'_ Self> {
        static CURRENT: PyOnceLock<Current> = PyOnceLock::new();
        once(&CURRENT, py, || {
            let variable = import(py, "falaj._transaction")?.getattr("_CURRENT")?;
            let method = |name| variable.getattr(name).map(Bound::unbind);
            Ok(Self { get: method("get")?, set: method("set")?, reset: method("reset")? })
        })
    }
}

#[pymethods]
impl Transaction {
    #[new]
    #[pyo3(signature = (store, sync, producer=None, sequence=None, timeout=None))]
    fn new(
        py: Python<'_>,
        store: Bound<'_, Store>,
        sync: Option<&Bound<'_, PyAny>>,
        producer: Option<&Bound<'_, PyAny>>,
        sequence: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
    ) -> PyResult<Self> {
        let sync = input::sync_mode(sync)?;
        if sync.is_some() {
            remote_timeout(py, sync, timeout)?;
        }
        let producer = Preconditions::new(py, producer, sequence, None)?.producer;
        Ok(Self { store: store.unbind(), sync, timeout, producer, gathered: Mutex::default() })
    }

    /// Append a record when the transaction ends.
    ///
    /// Args:
    ///     topic: The topic, or its name. It must exist, in the same log as the others.
    ///     value, key, headers, timestamp, timestamp_ns, partition: As for `Topic.append`.
    ///     expect: The offset that the record must get. If another append was faster, the transaction
    ///         appends nothing at its end, and raises OffsetConflict.
    ///
    /// Raises:
    ///     UnknownTopic: There is none of this name: create it before, with `store.topic(name, log=…)`.
    ///     InvalidArgument: It is in another log, or another store, than the others. Or no record of this
    ///         transaction can get the expected offset.
    ///
    /// Example:
    ///     >>> _ = store.topic("paid", log="shop"), store.topic("audit", log="shop")
    ///     >>> with store.transaction() as tx:
    ///     ...     tx.append("paid", b"order 17", key=b"eu")
    ///     ...     tx.append("audit", b"paid: order 17")
    ///     >>> tx.offsets
    ///     {'paid': {0: range(0, 1)}, 'audit': {0: range(0, 1)}}
    #[pyo3(signature = (topic, value, key=None, *, headers=None, timestamp=None, timestamp_ns=None, partition=None, expect=None))]
    #[allow(clippy::too_many_arguments, reason = "all but two are keywords in Python")]
    fn append<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        timestamp_ns: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
        expect: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let opened = self.resolve(topic)?;
        let expect = input::expected(expect)?;
        let record = opened.handle.encoding(py, |coding| {
            let timestamp = input::Timestamp { moment: timestamp, ns: timestamp_ns };
            Incoming::encoded(value, (coding, partition.or(opened.only)), (key, headers), timestamp)
        })?;
        self.push(py, &opened, &[record], (partition, expect))
    }

    /// Append a tombstone when the transaction ends: a key without a value, which deletes the key.
    ///
    /// Args:
    ///     topic: As for `append`.
    ///     key, headers, timestamp, timestamp_ns, partition: As for `Topic.tombstone`.
    ///     expect: As for `append`.
    ///
    /// Raises:
    ///     UnknownTopic, InvalidArgument: As for `append`.
    ///
    /// Example:
    ///     >>> prices = store.topic("prices", compacted=True)
    ///     >>> with store.transaction() as tx:
    ///     ...     tx.tombstone(prices, b"tea")
    ///     >>> prices[0].key, prices[0].is_tombstone
    ///     (b'tea', True)
    #[pyo3(signature = (topic, key, *, headers=None, timestamp=None, timestamp_ns=None, partition=None, expect=None))]
    #[allow(clippy::too_many_arguments, reason = "all but two are keywords in Python")]
    fn tombstone<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        timestamp_ns: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
        expect: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let opened = self.resolve(topic)?;
        let timestamp = input::Timestamp { moment: timestamp, ns: timestamp_ns };
        opened.handle.shape.coding.known(py)?;
        let to = (partition, input::expected(expect)?);
        self.push(py, &opened, &[Incoming::tombstone(key, headers, timestamp)?], to)
    }

    /// Append many records to a topic when the transaction ends.
    ///
    /// Args:
    ///     topic: As for `append`.
    ///     records, partition: As for `Topic.extend`.
    ///     expect: The offset that the first of them must get, as for `append`. All go to one partition. Without
    ///         records nothing is checked.
    ///
    /// Raises:
    ///     AppendTooLarge: Together they are larger than one append may be.
    ///     UnknownTopic, InvalidArgument: As for `append`.
    #[pyo3(signature = (topic, records, *, partition=None, expect=None))]
    fn extend<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyAny>,
        records: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
        expect: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let (opened, expect) = (self.resolve(topic)?, input::expected(expect)?);
        let limit = opened.handle.open(py)?.topic.log().max_group_len();
        let records = opened.handle.encoding(py, |coding| {
            let partition = partition.or(opened.only);
            Collector { coding, partition, limit, headers: &[] }.each(records)
        })?;
        self.push(py, &opened, &records, (partition, expect))
    }

    /// Finish a topic when the transaction ends, behind its records; see `Topic.finish`.
    ///
    /// Args:
    ///     topic: As for `append`.
    ///
    /// Raises:
    ///     UnknownTopic, InvalidArgument: As for `append`.
    ///
    /// Example:
    ///     >>> day = store.topic("2026-11-27")
    ///     >>> with store.transaction() as tx:
    ///     ...     tx.append(day, b"the last one")
    ///     ...     tx.finish(day)
    ///     >>> day.finished
    ///     True
    fn finish(&self, py: Python<'_>, topic: &Bound<'_, PyAny>) -> PyResult<()> {
        let opened = self.resolve(topic)?;
        let open = opened.handle.open(py)?;
        self.gathered().open(py)?.finish(&open.topic).or_raise(py)
    }

    /// The offsets of the records, by topic and then by partition, once it was committed; else None.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let parts = match &self.gathered().offsets {
            None => return Ok(None),
            Some(Offsets::Told(told)) => return Ok(Some(told.bind(py).clone())),
            Some(Offsets::Parts(parts)) => parts.clone(),
        };
        let told = told(py, &parts)?;
        self.gathered().offsets = Some(Offsets::Told(told.clone().unbind()));
        Ok(Some(told))
    }

    /// Move cursors, each with its name, an offset and a checksum, in the log of a topic.
    fn _move(
        &self,
        py: Python<'_>,
        cursors: Vec<(Vec<u8>, u64, u32)>,
        home: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let home = home.map(|home| self.resolve(home)).transpose()?;
        let home = home.map(|home| home.handle.open(py)).transpose()?;
        let mut gathered = self.gathered();
        let inner = gathered.open(py)?;
        if let Some(home) = home {
            inner.keep_cursors_in(&home.topic).or_raise(py)?;
        }
        for (name, offset, crc) in cursors {
            let to = CursorState { offset, crc, turn: 0 };
            inner.move_cursor(CursorMove { name: &name, to, from: None, metadata: b"" });
        }
        Ok(())
    }

    /// Move the cursors of a consumer to after its delivered records.
    #[pyo3(signature = (consumer, metadata=None))]
    fn _move_consumer(
        &self,
        py: Python<'_>,
        consumer: &Bound<'_, Consumer>,
        metadata: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let consumer = consumer.get();
        let (moves, home) = consumer.moves(py, metadata)?;
        let Some(home) = home else { return Ok(()) };
        let mut gathered = self.gathered();
        let inner = gathered.open(py)?;
        // Also if nothing moves: the log is the consumer's.
        inner.keep_cursors_in(&home).or_raise(py)?;
        moves.iter().try_for_each(|moved| moved.join(&home, inner)).or_raise(py)?;
        gathered.consumers.push((Arc::clone(&consumer.shared), moves));
        Ok(())
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let (py, own) = (slf.py(), slf.get());
        let (current, actor) = (Current::of(py)?, actor(py)?);
        let before = current.get.bind(py).call1((py.None(),))?;
        if before.cast::<Self>().is_ok_and(|before| before.get().is_open_in(actor)) {
            let what = "transactions do not nest: end the one that is open, or write to it";
            return Err(invalid(py, what));
        }
        let store = own.store.get().inner(py)?;
        if own.gathered().phase != Phase::Fresh {
            return Err(invalid(py, "this transaction is over: begin another"));
        }
        let token = current.set.call1(py, (&slf,))?;
        let mut gathered = own.gathered();
        let inner = Inner::new(&store);
        gathered.inner = Some(match own.sync {
            Some(sync) => inner.with_sync(sync),
            None => inner,
        });
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
            // Another context may end it than began it, and then has nothing to reset.
            let _ = Current::of(py)?.reset.call1(py, (token,));
        }
        if !is_whole {
            return Ok(());
        }
        self.commit(py, gathered).inspect_err(|_| {
            let mut gathered = self.gathered();
            if gathered.offsets.is_none() {
                gathered.phase = Phase::GivenUp;
            }
        })
    }

    fn __repr__(&self) -> String {
        let gathered = self.gathered();
        let state = match gathered.phase {
            Phase::Fresh => "not begun".to_owned(),
            Phase::Open => {
                format!("{} records", gathered.inner.as_ref().map_or(0, Inner::records))
            }
            Phase::Committed => "committed".to_owned(),
            Phase::GivenUp => "given up".to_owned(),
        };
        format!("<falaj.Transaction {state}>")
    }
}

/// Return a cursor that is kept in a topic's log: offset and checksum.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "bytes of Python's come as a vector")]
pub(crate) fn _cursor(
    py: Python<'_>,
    topic: &Bound<'_, AnyTopic>,
    name: Vec<u8>,
) -> PyResult<Option<(u64, u32)>> {
    let open = topic.get().opened.handle.open_existing(py)?;
    let found = py.detach(|| open.topic.cursor(&name)).or_raise(py)?;
    Ok(found.map(|cursor| (cursor.offset, cursor.crc)))
}
