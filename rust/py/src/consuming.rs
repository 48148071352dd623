//! A consumer's reading: its partitions as streams, and what was delivered from them.
//!
//! Invariant: the engine's member knows what was delivered before it is asked to commit, to release a
//! partition or to claim one. Streams are made again when the set of partitions changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use falaj::internals::consumer::{Announcement, GroupMember as Member, GroupPartition, Move};
use falaj::internals::error::Error;
use falaj::internals::format::address::Address;
use falaj::internals::log::Log;
use falaj::internals::topic::{ScanRange, Skipped, Topic, Visibility};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::Batch;
use crate::calling::call;
use crate::errors::{OrRaise, is, raise};
use crate::handle::Handle;
use crate::iterate::Reading;
use crate::opened::Opened;
use crate::record::Record;
use crate::wait::patiently;

/// Records of one topic in a row, before another one has its turn.
const TURN: u32 = 4096;

/// The partitions of one topic that this member has.
#[derive(Debug)]
struct Stream {
    reading: Reading,
    topic: usize,
}

/// Moves that transactions committed for a member, until the member notes them.
#[derive(Debug, Default)]
pub(crate) struct Moved(Mutex<Vec<(Vec<Move>, Address)>>);

impl Moved {
    /// Note moves. The lock is held for moments.
    pub(crate) fn note(&self, moves: Vec<Move>, end: Address) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((moves, end));
    }

    fn take(&self) -> Vec<(Vec<Move>, Address)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The topics that a member reads, for other threads too. The lock is held for moments.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Vec<Arc<Handle>>>);

impl Known {
    pub(crate) fn new(handles: Vec<Arc<Handle>>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(handles)))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Handle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn find(&self, generation: &[u8; 16]) -> Option<Arc<Handle>> {
        self.all().into_iter().find(|handle| handle.shape.generation == *generation)
    }

    fn set(&self, handles: Vec<Arc<Handle>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = handles;
    }

    /// List the names of the topics, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.all().iter().map(|each| each.shape.name.clone()).collect();
        names.sort();
        names
    }
}

/// A member, and its streams.
#[derive(Debug)]
pub(crate) struct Consuming {
    pub(crate) member: Member,
    pub(crate) known: Arc<Known>,
    /// Opens a topic that its pattern found.
    open: Option<Py<PyAny>>,
    /// Paused partitions, by generation and number.
    pub(crate) paused: BTreeSet<([u8; 16], u32)>,
    pub(crate) visibility: Visibility,
    patience: Duration,
    streams: Vec<Stream>,
    /// The stream whose turn it is, and how many records it has had.
    turn: (usize, u32),
    /// Streams have to be made again before anything is read.
    stale: bool,
    /// It has to look after more than [`Member::is_stale`]: others, a commit, topics of a pattern.
    looks: bool,
    /// A callback is to be called with this before anything is read.
    pub(crate) announcement: Option<Announcement>,
    automatic: Option<Duration>,
    committed_at: Instant,
    moved: Arc<Moved>,
}

impl Consuming {
    pub(crate) fn new(
        member: Member,
        (known, open): (Arc<Known>, Option<Py<PyAny>>),
        (visibility, patience): (Visibility, Duration),
        automatic: Option<Duration>,
        moved: Arc<Moved>,
    ) -> Self {
        Self {
            member,
            known,
            open,
            paused: BTreeSet::new(),
            visibility,
            patience,
            announcement: None,
            streams: Vec::new(),
            turn: (0, 0),
            stale: true,
            looks: true,
            automatic,
            committed_at: Instant::now(),
            moved,
        }
    }

    /// Tell the member what was committed for it elsewhere.
    pub(crate) fn settle_moved(&mut self) {
        for (moves, end) in self.moved.take() {
            self.member.moved(&moves, end);
        }
    }

    /// Tell the member what was committed for it, and what was delivered.
    pub(crate) fn settle(&mut self) {
        self.settle_moved();
        for stream in &self.streams {
            for range in stream.reading.follow.merge().ranges() {
                let (topic, partition, next) = (stream.topic, range.partition, range.from);
                self.member.handed_out(&GroupPartition { topic, partition, next, open: true });
            }
        }
    }

    /// Go back in some partitions, by generation and number, to the first record that the caller did
    /// not get.
    pub(crate) fn put_back(&mut self, firsts: &BTreeMap<([u8; 16], u32), u64>) {
        self.settle();
        for ((generation, partition), next) in firsts {
            let of = |topic: &Topic| topic.settings().generation == *generation;
            if let Some(topic) = self.member.topics().iter().position(of) {
                let (partition, next) = (*partition, *next);
                self.member.handed_out(&GroupPartition { topic, partition, next, open: true });
            }
        }
        self.forget_streams();
    }

    /// Return true if nothing comes after all that a look from now on finds. Then all topics are
    /// finished, and the group has read the partitions that other members have, or had.
    pub(crate) fn is_over(&self) -> bool {
        let topics = self.member.topics();
        // Another topic may join a pattern later.
        let may_grow = self.member.pattern().is_some() || !self.paused.is_empty();
        if may_grow || !topics.iter().all(Topic::is_finished) {
            return false;
        }
        let is_own = |topic: usize, partition: u32| {
            let mut own = self.streams.iter().filter(|stream| stream.topic == topic);
            own.any(|s| s.reading.follow.merge().ranges().any(|range| range.partition == partition))
        };
        let is_read = |topic: usize, partition: u32| {
            let of = &topics[topic];
            let committed = self.member.committed(of.name(), partition);
            matches!((committed, of.committed(partition)), (Ok(read), Ok(end)) if read >= end)
        };
        let all = (0..topics.len()).flat_map(|topic| {
            (0..topics[topic].partitions()).map(move |partition| (topic, partition))
        });
        self.streams.iter().all(|stream| stream.reading.follow.is_over())
            && all.into_iter().all(|(topic, p)| is_own(topic, p) || is_read(topic, p))
    }

    /// Make the streams again before the next read; the member knows what was delivered.
    pub(crate) fn forget_streams(&mut self) {
        self.streams.clear();
        self.stale = true;
    }

    pub(crate) fn commit_all(&mut self, py: Python<'_>, durable: bool) -> PyResult<()> {
        self.settle();
        self.committed_at = Instant::now();
        let (patience, member) = (self.patience, &mut self.member);
        if durable || member.home().is_some() {
            // A sync of a log, or an append to one: others may hold its lock.
            return patiently(py, patience, || member.commit_all(durable));
        }
        member.commit_all(false).or_raise(py)
    }

    /// Commit up to an offset. If it is ahead of what was delivered, reading resumes there.
    pub(crate) fn commit_to(
        &mut self,
        py: Python<'_>,
        topic: &str,
        partition: u32,
        offset: u64,
        durable: bool,
    ) -> PyResult<()> {
        self.settle();
        let before = self.member.next(topic, partition).ok();
        let (patience, member) = (self.patience, &mut self.member);
        let done = patiently(py, patience, || member.commit(topic, partition, offset, durable));
        if self.member.next(topic, partition).ok() != before {
            self.forget_streams();
        }
        done
    }

    /// Commit automatically: a caller that asks for more is done with what it got.
    pub(crate) fn commit_if_automatic(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.automatic.is_some() { self.commit_all(py, false) } else { Ok(()) }
    }

    /// Prepare for the next delivery; false where a callback is to be called first.
    #[inline]
    fn prepare(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.member.check().or_raise(py)?;
        if self.stale || self.looks || self.member.is_stale() {
            self.look_after(py)
        } else {
            Ok(true)
        }
    }

    #[inline(never)]
    fn look_after(&mut self, py: Python<'_>) -> PyResult<bool> {
        if self.announcement.is_some() {
            return Ok(false);
        }
        let is_due = self.automatic.is_some_and(|every| self.committed_at.elapsed() >= every);
        let changes = self.member.is_stale() || self.member.due() == Some(Duration::ZERO);
        if is_due || (changes && self.automatic.is_some()) {
            self.commit_all(py, false)?;
        }
        if changes {
            self.settle();
            let member = &mut self.member;
            let refreshed = py.detach(|| member.refresh());
            if !matches!(refreshed, Ok(false)) {
                // The streams count topics as they were before.
                self.forget_streams();
            }
            match refreshed {
                // Another process changes the store just now; the next call tries again.
                Err(Error::LockTimeout { .. }) => {}
                refreshed => refreshed.or_raise(py).map(drop)?,
            }
        }
        self.looks = self.member.others() > 0 || self.automatic.is_some() || self.open.is_some();
        self.announcement = self.member.announcement();
        if self.announcement.is_some() {
            self.settle();
            self.forget_streams();
            return Ok(false);
        }
        if self.stale {
            self.rebuild(py)?;
        }
        Ok(true)
    }

    /// Return the callback that is to be called before anything is read.
    pub(crate) fn due_announcement(&mut self, py: Python<'_>) -> PyResult<Option<Announcement>> {
        self.prepare(py)?;
        Ok(self.announcement.take())
    }

    /// Claim and release the partitions that are due.
    pub(crate) fn tend(&mut self, py: Python<'_>) -> PyResult<()> {
        self.settle();
        let (patience, member) = (self.patience, &mut self.member);
        let refreshed = patiently(py, patience, || member.refresh());
        if !matches!(refreshed, Ok(false)) {
            self.forget_streams();
        }
        refreshed.map(drop)
    }

    /// Open the topics that the pattern found, and drop those that were deleted.
    pub(crate) fn know_topics(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let mut handles = Vec::new();
        for topic in self.member.topics() {
            if let Some(known) = self.known.find(&topic.settings().generation) {
                handles.push(known);
            } else if !topic.is_deleted() {
                let opened = call(open.bind(py), (topic.name(),))?;
                handles.push(Arc::clone(&opened.cast::<Opened>()?.get().handle));
            }
        }
        self.known.set(handles);
        Ok(())
    }

    fn rebuild(&mut self, py: Python<'_>) -> PyResult<()> {
        self.forget_streams();
        self.know_topics(py)?;
        let parts = self.member.parts().or_raise(py)?;
        for (topic, of) in self.member.topics().iter().enumerate() {
            let generation = of.settings().generation;
            // A deleted topic has none, and the next refresh drops it.
            let Some(handle) = self.known.find(&generation) else { continue };
            let reads = |part: &&GroupPartition| {
                part.open && !self.paused.contains(&(generation, part.partition))
            };
            let of_it = parts.iter().filter(reads).filter(|part| part.topic == topic);
            let range = |part: &GroupPartition| ScanRange {
                partition: part.partition,
                from: part.next,
                end: None,
            };
            let ranges: Vec<_> = of_it.map(range).collect();
            if !ranges.is_empty() {
                match Reading::new(py, &handle, self.visibility, &ranges) {
                    Ok(reading) => self.streams.push(Stream { reading, topic }),
                    Err(error) if self.open.is_some() && is(py, &error, "TopicDeleted") => {}
                    Err(error) => return Err(with_choices(py, error)),
                }
            }
        }
        self.stale = false;
        Ok(())
    }

    /// Get the next record, if there is one now.
    #[inline]
    pub(crate) fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
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
        let (mut at, count) = self.turn;
        if count >= TURN && self.streams.len() > 1 {
            at += 1;
            self.turn.1 = 0;
        }
        for _ in 0..self.streams.len() {
            at = if at < self.streams.len() { at } else { 0 };
            let found = match self.streams[at].next(py) {
                Ok(found) => found,
                failed => self.unless_gone(py, failed)?,
            };
            if let Some(record) = found {
                self.turn = (at, self.turn.1 + 1);
                return Ok(Some(record));
            }
            at += 1;
            self.turn.1 = 0;
        }
        Ok(None)
    }

    /// Return what was found, or nothing in a topic that was deleted and that a pattern had found.
    #[cold]
    pub(crate) fn unless_gone<T>(
        &mut self,
        py: Python<'_>,
        found: PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        match found {
            Err(error) if self.open.is_some() && is(py, &error, "TopicDeleted") => {
                self.member.look_for_topics();
                Ok(None)
            }
            found => found,
        }
    }

    /// Get the next batch, if there is one now.
    pub(crate) fn next_batch(&mut self, py: Python<'_>, size: usize) -> PyResult<Option<Batch>> {
        if !self.prepare(py)? {
            return Ok(None);
        }
        for _ in 0..self.streams.len() {
            let at = self.turn.0 % self.streams.len();
            self.turn = (at + 1, 0);
            let found = match self.streams[at].reading.next_batch(py, size) {
                Ok(found) => found,
                failed => self.unless_gone(py, failed)?,
            };
            if let Some(batch) = found {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Skip corrupt records, and return what lies in between, with the name of the topic. Skipped
    /// records count as delivered.
    pub(crate) fn skip_damage(&mut self, py: Python<'_>) -> PyResult<Vec<(String, u32, Skipped)>> {
        let mut told = Vec::new();
        if !self.prepare(py)? {
            return Ok(told);
        }
        for stream in &mut self.streams {
            let Reading { follow, shape, .. } = &mut stream.reading;
            let met = match follow.merge_mut().step_over() {
                Err(_) if !told.is_empty() => break, // the next call returns it
                met => met.or_raise(py)?,
            };
            told.extend(
                met.into_iter().map(|(partition, lost)| (shape.name.clone(), partition, lost)),
            );
        }
        Ok(told)
    }

    /// List the logs that it reads, and how far it saw of each.
    pub(crate) fn logs(&self) -> Vec<(Arc<Log>, Address)> {
        let log = |stream: &Stream| {
            let Reading { open, follow, .. } = &stream.reading;
            (Arc::clone(open.topic.log()), follow.seen())
        };
        self.streams.iter().map(log).collect()
    }

    /// List the handles that it reads from, and how far it saw of the log of each.
    pub(crate) fn watched(&self) -> Vec<(Arc<Handle>, u64)> {
        let seen = |s: &Stream| s.reading.follow.seen().0;
        let handle = |s: &Stream| (Arc::clone(&s.reading.handle), seen(s));
        self.streams.iter().map(handle).collect()
    }
}

impl Stream {
    #[inline]
    fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        let Self { reading, .. } = self;
        let record = reading.next(py).map_err(|error| with_choices(py, error))?;
        if record.is_none() {
            reading.handle.expect_existing(py, &reading.open)?;
        }
        Ok(record)
    }
}

/// Add the choices to the error that a reader gets where retention deleted records.
#[cold]
fn with_choices(py: Python<'_>, error: PyErr) -> PyErr {
    let (topic, partition, offset, first, end) = Default::default();
    let probe = Error::OffsetOutOfRange { topic, partition, offset, first, end };
    if error.get_type(py).is(raise(py, &probe).get_type(py)) {
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
