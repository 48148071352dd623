//! Facts about a store in numbers, for `falaj info`.
//!
//! Owns the values that people look at: topics with their offsets, logs with their sizes and locks,
//! the slots and their processes. It opens nothing for writing, however the store was opened, and
//! changes nothing. An error is reported in its place, and everything else all the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::logs::settings_to_read;
use super::slots::Slots;
use super::{Store, membership};
use crate::error::{Error, IoResult, Result};
use crate::format::VERSION;
use crate::format::settings::{StoreSettings, TopicSettings};
use crate::log::{Log, LogExtent, LogSettings, TopicEnds};
use crate::shipper::Shipper;
use crate::storage::Filesystem;

pub use super::slots::SlotInfo;

/// A store as it is now.
#[derive(Debug)]
pub struct StoreInfo {
    /// Its directory.
    pub path: PathBuf,
    /// Version of its format.
    pub format: u32,
    /// Id, time of creation, write mode.
    pub settings: StoreSettings,
    /// The kind of its file system.
    pub filesystem: Filesystem,
    /// Incarnation of the present writers, or of the last ones if there are none. `None` if this
    /// user may not read it, or no process ever wrote.
    pub incarnation: Option<u64>,
    /// The process that ships the store, as its wake page names it.
    pub shipper: Shipper,
    /// Slots that were ever taken. Empty if this user may not read them.
    pub slots: Vec<SlotInfo>,
    /// Its topics, by name.
    pub topics: Vec<TopicInfo>,
    /// Its logs, by directory.
    pub logs: Vec<LogInfo>,
}

/// A topic.
#[derive(Debug)]
pub struct TopicInfo {
    /// Its name.
    pub name: String,
    /// Its constant properties; an error if its settings are corrupt.
    pub settings: Result<TopicSettings>,
    /// Its partitions; an error if its log is corrupt.
    pub partitions: Result<Vec<PartitionInfo>>,
}

/// The extent of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// The partition.
    pub partition: u32,
    /// Lowest offset that is left.
    pub first: u64,
    /// Offset after the last committed record.
    pub end: u64,
    /// Offset after the last record that is known to be on disk.
    pub durable: u64,
    /// True if no record comes after those that are there.
    pub finished: bool,
}

/// An offset of a partition from which to count records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountFrom {
    /// The topic.
    pub topic: String,
    /// Its generation: another topic of the same name has other records.
    pub generation: [u8; 16],
    /// The partition.
    pub partition: u32,
    /// The lowest offset that counts.
    pub offset: u64,
}

/// A log.
#[derive(Debug)]
pub struct LogInfo {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// Its topics.
    pub topics: Vec<String>,
    /// Sizes, ends and locks; an error if it is corrupt.
    pub extent: Result<LogExtent>,
    /// The last error of retention, if this process ran it.
    pub retention_problem: Option<String>,
}

impl Store {
    /// List the slots that were ever taken, and whether their processes live; empty if this user
    /// may not read them.
    #[doc(hidden)]
    pub fn slots(&self) -> Vec<SlotInfo> {
        Slots::new(self.storage(), self.layout()).look()
    }

    /// Look at everything: topics, logs, locks, slots.
    ///
    /// ```
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let info = store.info()?;
    /// assert_eq!(info.slots.iter().filter(|slot| slot.alive == Some(true)).count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the store's directories cannot be listed. Errors of a topic or a log are in its place.
    pub fn info(&self) -> Result<StoreInfo> {
        let filesystem = self
            .storage()
            .filesystem(&self.layout().root_itself())
            .doing("look at the file system of", self.path())?;
        let mut logs: BTreeMap<PathBuf, Looked> = BTreeMap::new();
        let mut topics = Vec::new();
        for (name, settings) in self.topics()? {
            let partitions = match &settings {
                Ok(settings) => self.look_at(settings, &mut logs),
                Err(_) => Ok(Vec::new()),
            };
            topics.push(TopicInfo { name, settings, partitions });
        }
        let storage = self.storage();
        Ok(StoreInfo {
            path: self.path().to_path_buf(),
            format: VERSION,
            settings: self.stored_settings()?,
            filesystem,
            incarnation: self.incarnation(),
            shipper: self.shipper(),
            slots: Slots::new(storage, self.layout()).look(),
            topics,
            logs: logs.into_values().map(|looked| looked.info).collect(),
        })
    }

    /// Look at one topic.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`]. Errors of the topic are in the result.
    pub fn topic_info(&self, name: &str) -> Result<TopicInfo> {
        let settings = match self.layout().topic(name).and_then(|_| self.topic_settings(name)) {
            Err(Error::InvalidName { .. } | Error::UnknownTopic { .. }) => {
                return Err(self.shared.no_such_topic(name));
            }
            Err(error @ Error::FilesRemoved { .. }) => return Err(error),
            settings => settings,
        };
        let partitions = match &settings {
            Ok(settings) => self.look_at(settings, &mut BTreeMap::new()),
            Err(_) => Ok(Vec::new()),
        };
        Ok(TopicInfo { name: name.to_owned(), settings, partitions })
    }

    /// Count the committed records from each of these places on: lags of consumer groups, jobs of
    /// queues. `None` if the topic is gone, was created again, or cannot be read. Hidden offsets
    /// count, see [`crate::topic::Topic::count`].
    #[doc(hidden)]
    pub fn count_from(&self, places: &[CountFrom]) -> Vec<Option<u64>> {
        let mut logs: BTreeMap<[u8; 16], Option<(TopicSettings, Arc<Log>)>> = BTreeMap::new();
        let open = |place: &CountFrom| {
            let topic = self.topic_settings(&place.topic).ok()?;
            let (storage, dir) = (Arc::clone(self.storage()), self.log_dir(&topic).ok()?);
            let settings = settings_to_read(&topic, self.settings().write_mode);
            let settings = LogSettings { reading: self.shared.reading, ..settings };
            let log = Log::open(storage, &dir, settings, None).ok()?;
            log.share_counts(&self.shared.counts);
            (topic.generation == place.generation).then_some((topic, log))
        };
        let mut count = |place: &CountFrom| {
            let opened = logs.entry(place.generation).or_insert_with(|| open(place));
            let (topic, log) = opened.as_ref()?;
            let partition = Some(place.partition).filter(|number| *number < topic.partitions)?;
            let number = topic.number + partition;
            let (first, end) = (log.first_offset(number).ok()?, log.end_offset(number).ok()?);
            log.count(number, place.offset.max(first)..end).ok()
        };
        places.iter().map(&mut count).collect()
    }

    /// Return the store's incarnation, if one ever began. Within one there was no power failure.
    pub(crate) fn incarnation(&self) -> Option<u64> {
        membership::incarnation_now(&**self.storage(), self.layout())
    }

    /// Return the ends of the topics' partitions, and the state of their log. A log is opened and
    /// walked once, however many topics it has.
    fn look_at(
        &self,
        topic: &TopicSettings,
        logs: &mut BTreeMap<PathBuf, Looked>,
    ) -> Result<Vec<PartitionInfo>> {
        let dir = self.log_dir(topic)?;
        if !logs.contains_key(&dir) {
            let looked = self.look_at_log(topic, &dir)?;
            logs.insert(dir.clone(), looked);
        }
        let Some(Looked { info, log, ends, durable }) = logs.get_mut(&dir) else {
            return Ok(Vec::new());
        };
        info.topics.push(topic.name.clone());
        let look = |partition: u32| {
            let number = topic.number + partition;
            let end = match (&ends, log.committed()) {
                (Some(ends), _) => ends.get(number),
                (None, Some(_)) => log.offset_reached(number, || log.committed())?,
                (None, None) => log.last_offset(number)?,
            };
            let durable = match &durable {
                Some(durable) => durable.get(number),
                None => log.offset_reached(number, || log.durable())?,
            };
            let first = log.first_offset(number)?;
            let (durable, finished) = (durable.min(end), log.is_finished(number));
            Ok(PartitionInfo { partition, first, end, durable, finished })
        };
        (0..topic.partitions).map(look).collect()
    }

    fn look_at_log(&self, topic: &TopicSettings, dir: &Path) -> Result<Looked> {
        let settings = settings_to_read(topic, self.settings().write_mode);
        let settings = LogSettings { reading: self.shared.reading, ..settings };
        let log = Log::open(Arc::clone(self.storage()), dir, settings, None)?;
        let (name, extent) = (topic.log.clone(), log.extent());
        let member = self.shared.seat.as_ref().and_then(super::registry::MembershipRef::get);
        let retention_problem = member.and_then(|member| member.logs().retention_problem(dir));
        let topics = Vec::new();
        let info = LogInfo { name, dir: dir.to_path_buf(), topics, extent, retention_problem };
        // If that meets corruption, each topic is read alone, and reports its own error.
        let ends = log.committed().and_then(|tail| log.ends_at(tail).ok());
        let durable = log.durable().and_then(|durable| log.ends_at(durable).ok());
        Ok(Looked { info, log, ends, durable })
    }
}

/// A log that was read, and where its topics end.
struct Looked {
    info: LogInfo,
    log: Arc<Log>,
    ends: Option<TopicEnds>,
    durable: Option<TopicEnds>,
}
