//! A consumer's reading, as Python objects. The engine's [`GroupReader`] does the reading.
//!
//! Owns which handles its topics have, and the batches that the last records refer to. Invariant: a topic that a
//! pattern found is opened, with its codec, before a record of it is delivered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use falaj::internals::consumer::GroupReader;
use falaj::internals::error::Result;
use falaj::internals::topic::{Skipped, Topic};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::Batch;
use crate::calling::call;
use crate::errors::{OrRaise, is, raise};
use crate::handle::{Handle, Shape};
use crate::held::Held;
use crate::iterate::{keep, kept};
use crate::opened::Opened;
use crate::record::Record;
use crate::wait::{Pace, patiently};

/// The topics that a member reads, for other threads too. The lock is held for moments.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Vec<Arc<Handle>>>);

impl Known {
    pub(crate) fn new(handles: Vec<Arc<Handle>>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(handles)))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Handle>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Handle>> {
        self.lock().clone()
    }

    fn find(&self, topic: &Topic) -> Option<Arc<Handle>> {
        let generation = topic.settings().generation;
        self.lock().iter().find(|handle| handle.shape.generation == generation).cloned()
    }

    fn set(&self, handles: Vec<Arc<Handle>>) {
        *self.lock() = handles;
    }

    /// Raise an error when one of the topics was closed.
    pub(crate) fn expect_open(&self, py: Python<'_>) -> PyResult<()> {
        self.all().iter().try_for_each(|handle| handle.open(py).map(drop))
    }

    /// List the names of the topics, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.all().iter().map(|each| each.shape.name.clone()).collect();
        names.sort();
        names
    }
}

/// A member's reader, and what its records refer to.
#[derive(Debug)]
pub(crate) struct Consuming {
    pub(crate) reader: GroupReader,
    pub(crate) known: Arc<Known>,
    /// Opens a topic that its pattern found.
    open: Option<Py<PyAny>>,
    patience: Duration,
    /// Topics have to be opened before anything is read.
    stale: bool,
    /// The topic that was read last, and the batches of the last record of each of its partitions.
    shape: Option<Arc<Shape>>,
    batches: Vec<Py<Batch>>,
    pace: Pace,
}

impl Consuming {
    pub(crate) fn new(
        reader: GroupReader,
        (known, open): (Arc<Known>, Option<Py<PyAny>>),
        patience: Duration,
    ) -> Self {
        Self {
            reader,
            known,
            open,
            patience,
            stale: true,
            shape: None,
            batches: Vec::new(),
            pace: Pace::default(),
        }
    }

    /// Do work that may have to wait for a lock.
    pub(crate) fn patiently<T: Send>(
        &mut self,
        py: Python<'_>,
        mut work: impl FnMut(&mut GroupReader) -> Result<T> + Send,
    ) -> PyResult<T> {
        let (patience, reader) = (self.patience, &mut self.reader);
        patiently(py, patience, || work(reader))
    }

    /// Run what commits, with this metadata. A later commit does not have it.
    pub(crate) fn noting<T>(
        &mut self,
        py: Python<'_>,
        metadata: &str,
        commit: impl FnOnce(&mut Self) -> PyResult<T>,
    ) -> PyResult<T> {
        self.reader.set_metadata(metadata).or_raise(py)?;
        let done = commit(self);
        self.reader.set_metadata("").or_raise(py)?;
        done
    }

    pub(crate) fn commit_all(&mut self, py: Python<'_>, durable: bool) -> PyResult<()> {
        if durable || self.reader.member().home().is_some() {
            // A sync of a log, or an append to one: others may hold its lock.
            return self.patiently(py, |reader| reader.commit_all(durable));
        }
        self.reader.commit_all(false).or_raise(py)
    }

    /// Claim and release the partitions that are due.
    pub(crate) fn tend(&mut self, py: Python<'_>) -> PyResult<()> {
        self.stale = true;
        self.patiently(py, GroupReader::tend)?;
        self.know_topics(py)
    }

    /// Prepare for the next delivery; false where a callback is to be called first.
    #[inline]
    pub(crate) fn prepare(&mut self, py: Python<'_>) -> PyResult<bool> {
        let is_ready = self.reader.is_ready().or_raise(py)?;
        if is_ready && !self.stale { Ok(true) } else { self.look_after(py) }
    }

    #[inline(never)]
    fn look_after(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.stale = true;
        let prepared = self.patiently(py, GroupReader::prepare);
        let prepared = prepared.map_err(|error| with_choices(py, error))?;
        self.know_topics(py)?;
        Ok(prepared)
    }

    /// Open the topics that the pattern found, and drop those that were deleted.
    pub(crate) fn know_topics(&mut self, py: Python<'_>) -> PyResult<()> {
        if let Some(open) = &self.open {
            let (mut handles, mut is_stale) = (Vec::new(), false);
            for topic in self.reader.member().topics() {
                if let Some(known) = self.known.find(topic) {
                    handles.push(known);
                } else if !topic.is_deleted() {
                    match call(open.bind(py), (topic.name(),)) {
                        Ok(opened) => {
                            handles.push(Arc::clone(&opened.cast::<Opened>()?.get().handle));
                        }
                        // It was deleted since, and is about to leave the member.
                        Err(error) if is_gone(py, &error) => is_stale |= !topic.is_deleted(),
                        Err(error) => return Err(error),
                    }
                }
            }
            self.known.set(handles);
            self.stale = is_stale;
            return Ok(());
        }
        self.stale = false;
        Ok(())
    }

    /// Get the next record, if there is one now.
    #[inline]
    pub(crate) fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        self.pace.step(py)?;
        if self.prepare(py)? { self.next_prepared(py) } else { Ok(None) }
    }

    /// Get up to so many next records, if there are some now. They are asked for at once, so the
    /// preparation, such as an automatic commit, runs once, before the first. An error after the first
    /// is raised by the next call; this call delivers the records before it.
    pub(crate) fn next_few(
        &mut self,
        py: Python<'_>,
        records: usize,
        into: &Bound<'_, PyList>,
    ) -> PyResult<Option<()>> {
        let Some(first) = self.next(py)? else { return Ok(None) };
        into.append(first)?;
        while into.len() < records {
            let Ok(Some(record)) = self.next_prepared(py) else { break };
            into.append(record)?;
        }
        Ok(Some(()))
    }

    #[inline]
    fn next_prepared<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        match self.reader.next_ref() {
            Ok(Some((stream, run, at))) => {
                let batch = match kept(&self.batches, run) {
                    Some(batch) => batch.clone_ref(py),
                    None => {
                        let shape = shape_of(stream.topic(), &mut self.shape, &self.known);
                        let Some(shape) = shape else { return Ok(None) };
                        self.batches.retain(|batch| Arc::ptr_eq(&batch.get().shape, shape));
                        keep(py, &mut self.batches, run, shape)?
                    }
                };
                Record::make(py, Held::In(batch, at)).map(Some)
            }
            Ok(None) => Ok(None),
            Err(error) => Err(with_choices(py, raise(py, &error))),
        }
    }

    /// Get the next batch, if there is one now.
    pub(crate) fn next_batch(&mut self, py: Python<'_>, size: usize) -> PyResult<Option<Batch>> {
        if !self.prepare(py)? {
            return Ok(None);
        }
        let found = self.reader.next_batch(size);
        let Some((stream, run)) = found.map_err(|error| with_choices(py, raise(py, &error)))?
        else {
            return Ok(None);
        };
        let shape = shape_of(stream.topic(), &mut self.shape, &self.known);
        Ok(shape.map(|shape| Batch { run, shape: Arc::clone(shape) }))
    }

    /// Skip corrupt records, and return what lies in between, with the name of the topic. Skipped
    /// records count as delivered.
    pub(crate) fn skip_damage(
        &mut self,
        py: Python<'_>,
    ) -> PyResult<Option<Vec<(String, u32, Skipped)>>> {
        self.prepare(py)?.then(|| self.reader.step_over().or_raise(py)).transpose()
    }
}

/// Return what the records of a topic refer to, mostly as for the last one. A topic that was deleted before it could be
/// opened has nothing.
fn shape_of<'a>(
    topic: &Topic,
    last: &'a mut Option<Arc<Shape>>,
    known: &Known,
) -> Option<&'a Arc<Shape>> {
    if last.as_ref().is_none_or(|last| last.generation != topic.settings().generation) {
        *last = known.find(topic).map(|handle| Arc::clone(&handle.shape));
    }
    last.as_ref()
}

/// True for the errors of a topic that was deleted.
#[cold]
fn is_gone(py: Python<'_>, error: &PyErr) -> bool {
    is(py, error, "UnknownTopic") || is(py, error, "TopicDeleted")
}

/// Add the choices to the error that a reader gets where retention deleted records.
#[cold]
fn with_choices(py: Python<'_>, error: PyErr) -> PyErr {
    if is(py, &error, "OffsetOutOfRange") {
        let _ = note_choices(error.value(py));
    }
    error
}

fn note_choices(error: &Bound<'_, PyBaseException>) -> PyResult<()> {
    let topic: String = error.getattr("topic")?.extract()?;
    let partition: u32 = error.getattr("partition")?.extract()?;
    let note = format!(
        "the consumer needs what is gone: choose where it goes on there, with \
         consumer.seek(\"earliest\", topic={topic:?}, partition={partition}), \"latest\", a time or an \
         offset"
    );
    error.call_method1("add_note", (note,)).map(drop)
}
