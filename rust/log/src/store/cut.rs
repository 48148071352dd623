//! Cuts: what a store held at one moment, while processes write to it.
//!
//! Owns which logs and files are in a cut, and the order in which they are looked at. A backup carries
//! out a cut of what was committed ([`super::backup`]). A process that ships the store takes durable
//! cuts one after the other, each from the one before, and compares them. Invariants: the ends of all
//! logs agree ([`super::cut_ends`]). All bytes of a durable cut are on the disk. A log in which nothing
//! happened since the cut before is taken over from it, without a read. And no log ends before it did
//! in that one.
//!
//! ```text
//! cursors, queues ─> topics ─> lower bounds ─> sync ─> end of each log ─> ends agree ─> settings
//! ```
//!
//! [`crate::log::LogCut`] is the cut of one log. See `docs/PROTOCOL.md`, "Cut".

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cut_ends::{LowerBounds, agree, lower_bounds};
use super::cut_files::{self, CutFile};
use super::logs::Closing;
use super::{Access, Store, sweep, topics};
use crate::error::{Error, IoResult, Result};
use crate::format::address::Address;
use crate::format::settings::TopicSettings;
use crate::log::{CutAt, Log, LogCut, SegmentCut, is_overtaken};
use crate::storage::File;

/// How often a cut is made again after a segment was removed meanwhile.
pub(super) const TRIES: u32 = 5;

/// A store as it was at one moment.
#[derive(Debug)]
pub struct Cut {
    store: [u8; 16],
    pub(super) topics: Arc<Vec<TopicSettings>>,
    pub(super) logs: Vec<CutLog>,
    pub(super) consumers: Vec<CutFile>,
    pub(super) queues: Vec<CutFile>,
    /// Settings of the store and of topics.
    settings: Vec<CutFile>,
    /// See [`super::cut_ends`].
    pub(super) lower_bounds: LowerBounds,
    /// How many of the logs were copied: their ends stay.
    pub(super) copied: usize,
    /// The file of the last read.
    opened: Mutex<Option<OpenFile>>,
}

/// A log of a cut.
#[derive(Clone, Debug)]
pub struct CutLog {
    pub(super) dir: PathBuf,
    pub(super) generation: [u8; 16],
    pub(super) cut: Arc<LogCut>,
    ends: Arc<Vec<TopicEnd>>,
}

/// Where a partition of a topic ends in a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicEnd {
    /// Generation of the topic.
    pub topic: [u8; 16],
    /// Its name.
    pub name: String,
    /// The partition.
    pub partition: u32,
    /// Offset of the next record.
    pub next: u64,
    /// Checksum of the body of the last block with records; 0 without one.
    pub checksum: u32,
    /// When that block was appended, microseconds since 1970; 0 if it is not there any more.
    pub time_us: i64,
}

#[derive(Debug)]
struct OpenFile {
    log: usize,
    sequence: u64,
    file: Arc<dyn File>,
    path: PathBuf,
}

/// How far the logs of a cut reach.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reach<'a> {
    /// To what was committed when the cut began, or somewhat later.
    Committed,
    /// The same, and all of it is synced. With the cut before.
    Durable(Option<&'a Cut>),
}

/// The part of cuts that a process keeps between them.
#[derive(Debug, Default)]
pub(super) struct CutsState {
    /// Each log is open for the next cut too, until the store is closed or the topic is gone.
    logs: Mutex<Vec<(Arc<Log>, Option<Closing>)>>,
    /// All topics, with the id of the file `settled` when they were read.
    topics: Mutex<Option<(u64, Arc<Vec<TopicSettings>>)>>,
}

pub(super) fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Make a cut: sync every log, and find where each one ends, with ends that agree. Costs nothing
    /// for logs in which nothing happened since an earlier cut. A log that cannot be synced ends
    /// where everything of it is on the disk, at or behind its end in the earlier cut.
    ///
    /// # Errors
    /// `NotWritable`. `SyncFailed` and other errors of a sync of a log that the earlier cut does not
    /// have. `CorruptData` when a log or the settings of a topic are corrupt. `LockTimeout`,
    /// `UnsupportedVersion`, `SystemCallFailed`.
    #[doc(hidden)]
    pub fn cut(&self, before: Option<&Cut>) -> Result<Cut> {
        self.membership()?.verify()?;
        Cut::make(self, Reach::Durable(before))
    }

    /// Return whether the store has the last record before an offset in a block with this checksum, at
    /// its end. True where it cannot have it any more: the topic was deleted, the block was trimmed or
    /// compacted. Recovery and the end of a failed-sync state move blocks, and change none of them.
    ///
    /// # Errors
    /// `CorruptData` when the block is corrupt. `LockTimeout`, `SystemCallFailed`.
    #[doc(hidden)]
    pub fn contains(
        &self,
        directory: &str,
        generation: &[u8; 16],
        partition: u32,
        next: u64,
        checksum: u32,
    ) -> Result<bool> {
        let (_, topics) = self.settled_topics()?;
        let topic = topics.iter().find(|topic| topic.generation == *generation);
        let Some(topic) = topic else { return Ok(true) };
        if topic.log_dir() != directory || partition >= topic.partitions {
            return Ok(false);
        }
        // Declared before the log, so dropped after it.
        let _closing;
        let log = match self.open_log(topic) {
            Err(_) if is_gone(self, topic) => return Ok(true),
            log => log?,
        };
        _closing = self.closing(&log)?;
        match log.has_end(topic.number + partition, next, checksum) {
            Err(_) if is_gone(self, topic) => Ok(true),
            found => found,
        }
    }

    /// Read the settings of all topics. The number is equal for two reads if no topic changed in
    /// between; `None` if that is unknown.
    fn settled_topics(&self) -> Result<(Option<u64>, Arc<Vec<TopicSettings>>)> {
        let storage = &**self.storage();
        let id = sweep::settled_id(storage, self.layout());
        let known = enter(&self.shared.cuts.topics).clone();
        if let Some((_, topics)) = known.filter(|(known, _)| Some(*known) == id) {
            return Ok((id, topics));
        }
        let read = self.topics()?.into_iter().map(|(_, topic)| topic);
        let topics = Arc::new(read.collect::<Result<Vec<_>>>()?);
        let now = sweep::settled_id(storage, self.layout());
        let id = id.filter(|id| Some(*id) == now);
        if let Some(id) = id {
            *enter(&self.shared.cuts.topics) = Some((id, Arc::clone(&topics)));
        }
        Ok((id, topics))
    }
}

impl Cut {
    pub(super) fn make(store: &Store, reach: Reach<'_>) -> Result<Self> {
        for _ in 1..TRIES {
            match Self::try_make(store, reach) {
                Err(error) if is_overtaken(&error) => {}
                done => return done,
            }
        }
        Self::try_make(store, reach)
    }

    fn try_make(store: &Store, reach: Reach<'_>) -> Result<Self> {
        // Before the logs: then no cursor of the cut lies beyond the end of its log.
        let (consumers, queues) = (cut_files::consumers(store)?, cut_files::queues(store)?);
        let (settled, topics) = store.settled_topics()?;
        // Before any log's end is fixed, and open until all are.
        let (lower_bounds, _held) = lower_bounds(store, &topics, &consumers);
        let store_id = store.settings().id;
        let (logs, settings, opened) = Default::default();
        let mut cut = Self {
            store: store_id,
            topics: Arc::clone(&topics),
            logs,
            consumers,
            queues,
            settings,
            lower_bounds,
            copied: 0,
            opened,
        };
        let open = match reach {
            Reach::Committed => Vec::new(),
            Reach::Durable(before) => cut.sync_logs(store, before)?,
        };
        let gone = cut.find_logs(store, reach, &open)?;
        // Also from a shared log: a topic with settings now had not been deleted in the cut part
        // of its log.
        let is_same =
            settled.is_some() && settled == sweep::settled_id(&**store.storage(), store.layout());
        if !is_same || !gone.is_empty() {
            let left = topics.iter().filter(|topic| !gone.contains(&topic.generation));
            cut.topics = Arc::new(as_they_are(store, left.cloned()));
        }
        agree(&mut cut)?;
        if let Reach::Durable(before) = reach {
            cut.find_ends(&open, before);
            cut.settings = cut.settings_of(store)?;
            let old = std::mem::replace(&mut *enter(&store.shared.cuts.logs), open);
            drop(old);
        }
        Ok(cut)
    }

    /// Open and sync all logs. Where one cannot be synced, agreement goes back to the cut before.
    fn sync_logs(
        &mut self,
        store: &Store,
        before: Option<&Self>,
    ) -> Result<Vec<(Arc<Log>, Option<Closing>)>> {
        let (mut open, mut seen, mut is_stuck) = (Vec::new(), HashSet::new(), false);
        for topic in self.topics.iter() {
            if !seen.insert(topic.log_generation) {
                continue;
            }
            let synced = store.open_log(topic).and_then(|log| {
                let closing = store.closing(&log)?;
                let synced = log.sync();
                open.push((log, closing));
                synced
            });
            match synced {
                Ok(_) => {}
                // It was deleted since the topics were listed.
                Err(_) if is_gone(store, topic) => {}
                Err(error) => {
                    before.and_then(|before| before.log(&topic.log_generation)).ok_or(error)?;
                    is_stuck = true;
                }
            }
        }
        for (generation, bound) in self.lower_bounds.iter_mut().filter(|_| is_stuck) {
            let was = before.and_then(|before| before.log(generation));
            *bound = was.map_or(*bound, |was| was.cut.end().min(*bound));
        }
        Ok(open)
    }

    /// Find where each log ends; return the generations of topics that were deleted meanwhile.
    fn find_logs(
        &mut self,
        store: &Store,
        reach: Reach<'_>,
        open: &[(Arc<Log>, Option<Closing>)],
    ) -> Result<HashSet<[u8; 16]>> {
        let by_dir: HashMap<&Path, &Arc<Log>> =
            open.iter().map(|(log, _)| (log.dir(), log)).collect();
        let (mut gone, mut seen) = (HashSet::new(), HashSet::new());
        for topic in Arc::clone(&self.topics).iter() {
            if seen.contains(&topic.log_generation) {
                continue;
            }
            let dir = store.log_dir(topic)?;
            let found = match reach {
                Reach::Committed => plan_log(store, topic, &dir).map(Arc::new),
                Reach::Durable(before) => {
                    let known = before.and_then(|before| before.log(&topic.log_generation));
                    durable_log(store, topic, &dir, by_dir.get(&*dir).copied(), known)
                }
            };
            match found {
                Ok(cut) => {
                    seen.insert(topic.log_generation);
                    let (generation, ends) = (topic.log_generation, Arc::default());
                    self.logs.push(CutLog { dir, generation, cut, ends });
                }
                // It was deleted since the topics were listed.
                Err(_) if is_gone(store, topic) => drop(gone.insert(topic.generation)),
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }

    /// Find where each partition of each topic ends.
    fn find_ends(&mut self, open: &[(Arc<Log>, Option<Closing>)], before: Option<&Self>) {
        let mut of_log: HashMap<[u8; 16], Vec<&TopicSettings>> = HashMap::new();
        for topic in self.topics.iter() {
            of_log.entry(topic.log_generation).or_default().push(topic);
        }
        let by_dir: HashMap<&Path, &Arc<Log>> =
            open.iter().map(|(log, _)| (log.dir(), log)).collect();
        let is_same = before.is_some_and(|before| Arc::ptr_eq(&before.topics, &self.topics));
        for log in &mut self.logs {
            let was = before.and_then(|before| before.log(&log.generation));
            if let Some(was) = was.filter(|was| is_same && Arc::ptr_eq(&was.cut, &log.cut)) {
                log.ends = Arc::clone(&was.ends);
                continue;
            }
            let topics = of_log.get(&log.generation).map_or(&[][..], Vec::as_slice);
            let known = was.map_or(&[][..], |was| &was.ends);
            log.ends = Arc::new(log.topic_ends(topics, by_dir.get(&*log.dir).copied(), known));
        }
    }

    fn log(&self, generation: &[u8; 16]) -> Option<&CutLog> {
        self.logs.iter().find(|log| log.generation == *generation)
    }

    fn settings_of(&self, store: &Store) -> Result<Vec<CutFile>> {
        let topics = self.topics.iter().map(CutFile::of_topic);
        Ok(std::iter::once(CutFile::of_store(store)?).chain(topics).collect())
    }

    /// Return the store's id.
    pub fn store(&self) -> [u8; 16] {
        self.store
    }

    /// Return the logs.
    pub fn logs(&self) -> &[CutLog] {
        &self.logs
    }

    /// Iterate over the files beside the logs.
    pub fn files(&self) -> impl Iterator<Item = &CutFile> {
        self.settings.iter().chain(&self.consumers).chain(&self.queues)
    }

    /// Check that the cut has bytes of blocks of a segment, which can then be read.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are not in the cut.
    pub fn expect(&self, log: usize, sequence: u64, bytes: &Range<u64>) -> Result<()> {
        let of_log = self.logs.get(log).ok_or_else(|| Error::invalid("the cut has no such log"))?;
        of_log.cut.expect_blocks(sequence, bytes)
    }

    /// Read bytes of blocks of a segment.
    ///
    /// # Errors
    /// As [`Cut::read_into`].
    pub fn read(&self, log: usize, sequence: u64, bytes: Range<u64>) -> Result<Vec<u8>> {
        self.expect(log, sequence, &bytes)?;
        let mut read = vec![0; (bytes.end - bytes.start) as usize];
        self.read_into(log, sequence, bytes.start, &mut read)?;
        Ok(read)
    }

    /// Read bytes of blocks of a segment from a position on, as many as fit.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are not in the cut. `CorruptData` if the segment is gone, or
    /// another one has its name. `SystemCallFailed`.
    pub fn read_into(&self, log: usize, sequence: u64, at: u64, into: &mut [u8]) -> Result<()> {
        self.expect(log, sequence, &(at..at.saturating_add(into.len() as u64)))?;
        let (file, path) = self.open(log, &self.logs[log], sequence)?;
        let got = file.read_at(into, at).doing("read", &path)?;
        if got < into.len() {
            return Err(Error::corrupt(&path, at + got as u64, "the segment was cut off"));
        }
        Ok(())
    }

    /// Open the file of a segment; the last one stays open, since reads of one follow each other.
    fn open(&self, log: usize, of_log: &CutLog, sequence: u64) -> Result<(Arc<dyn File>, PathBuf)> {
        let mut opened = enter(&self.opened);
        if let Some(open) = opened.as_ref().filter(|o| (o.log, o.sequence) == (log, sequence)) {
            return Ok((Arc::clone(&open.file), open.path.clone()));
        }
        *opened = None;
        let (file, path) = of_log.cut.file(sequence)?;
        let (kept, at) = (Arc::clone(&file), path.clone());
        *opened = Some(OpenFile { log, sequence, file: kept, path: at });
        Ok((file, path))
    }
}

impl CutLog {
    /// Return the name of its directory, below `logs/`.
    pub fn directory(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Return the log's generation.
    pub fn generation(&self) -> [u8; 16] {
        self.generation
    }

    /// Return where it ends.
    pub fn end(&self) -> Address {
        self.cut.end()
    }

    /// Return its segments, oldest first.
    pub fn segments(&self) -> &[SegmentCut] {
        self.cut.segments()
    }

    /// Return where each partition of its topics ends.
    pub fn ends(&self) -> &[TopicEnd] {
        &self.ends
    }

    /// List the ranges of a segment's bytes from a position on, without holes.
    ///
    /// # Errors
    /// As [`Cut::read`].
    pub fn extents(&self, sequence: u64, start: u64) -> Result<Vec<Range<u64>>> {
        self.cut.extents(sequence, start)
    }

    fn topic_ends(
        &self,
        topics: &[&TopicSettings],
        log: Option<&Arc<Log>>,
        known: &[TopicEnd],
    ) -> Vec<TopicEnd> {
        let Ok(walk) = self.cut.state() else { return known.to_vec() };
        let known: HashMap<_, _> =
            known.iter().map(|end| ((end.topic, end.partition), end)).collect();
        let mut ends = Vec::new();
        for topic in topics {
            for partition in 0..topic.partitions {
                let number = topic.number + partition;
                let found = walk.state.topic(number);
                let Some(found) = found.filter(|found| found.generation == topic.generation) else {
                    continue;
                };
                let (next, checksum) = (found.next, found.last_crc);
                let was = known.get(&(topic.generation, partition));
                let was = was.filter(|was| (was.next, was.checksum) == (next, checksum));
                let time = || log?.time_of_end(number, next).ok()?;
                let time_us = was.map_or_else(|| time().unwrap_or(0), |was| was.time_us);
                let (topic, name) = (topic.generation, topic.name.clone());
                ends.push(TopicEnd { topic, name, partition, next, checksum, time_us });
            }
        }
        ends
    }
}

/// Make the cut of one log up to what is committed.
pub(super) fn plan_log(store: &Store, topic: &TopicSettings, dir: &Path) -> Result<LogCut> {
    let recovered = store.access() == Access::Write;
    // Held until the cut is made: opening for writing recovers.
    let _log = recovered.then(|| store.open_log(topic)).transpose()?;
    let settings = store.log_settings(topic);
    let made = LogCut::make(store.storage(), dir, &settings, CutAt::Committed { recovered }, None)?;
    made.ok_or_else(|| Error::corrupt(dir, 0, "a cut of nothing"))
}

/// Make the cut of one log up to its durable end, or take over the one before.
fn durable_log(
    store: &Store,
    topic: &TopicSettings,
    dir: &Path,
    log: Option<&Arc<Log>>,
    known: Option<&CutLog>,
) -> Result<Arc<LogCut>> {
    // Only where it could not be opened, as its topic was deleted.
    let deleted = || Error::TopicDeleted { name: topic.name.clone() };
    let log = log.ok_or_else(deleted)?;
    let known = known.filter(|known| known.dir == dir).map(|known| &known.cut);
    LogCut::durable(store.storage(), log, &store.log_settings(topic), known)
}

pub(super) fn is_gone(store: &Store, topic: &TopicSettings) -> bool {
    topics::is_gone(&**store.storage(), store.layout(), &topic.name, &topic.generation)
}

/// Return the settings of topics as they are once the ends of their logs are known, without those that
/// were deleted. A codec is named before the first append, so that records in the cut have a named
/// codec there too.
pub(super) fn as_they_are(
    store: &Store,
    topics: impl Iterator<Item = TopicSettings>,
) -> Vec<TopicSettings> {
    let now = |topic: TopicSettings| match topics::read_settings(
        &**store.storage(),
        store.layout(),
        &topic.name,
    ) {
        Ok(now) => now.filter(|now| now.generation == topic.generation),
        Err(_) => Some(topic),
    };
    topics.filter_map(now).collect()
}
