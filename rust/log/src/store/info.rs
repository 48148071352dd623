//! What there is in a store, in numbers: for `falaj info`.
//!
//! Owns the values that people look at: topics with their offsets, logs with their sizes and locks,
//! the slots and who is in them. It opens nothing for writing, whatever the store was opened for, and
//! changes nothing; what is damaged is told where it stands, and the rest is told all the same.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::logs::settings_to_read;
use super::slots::Slots;
use super::{Store, membership};
use crate::error::{Error, Result};
use crate::format::VERSION;
use crate::format::settings::{StoreSettings, TopicSettings};
use crate::log::{Extent, Log, LogSettings};
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
    /// What it lies on.
    pub filesystem: Filesystem,
    /// What began when the first of the present writers came, or of the last ones if nobody is there;
    /// `None` where this user may not read it, or nobody ever wrote.
    pub incarnation: Option<u64>,
    /// Slots that were ever taken. None where this user may not look into them.
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
    /// What does not change about it; an error where its settings are damaged.
    pub settings: Result<TopicSettings>,
    /// Its partitions; an error where its log is damaged.
    pub partitions: Result<Vec<PartitionInfo>>,
}

/// How far a partition reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Which partition.
    pub partition: u32,
    /// Lowest offset that is there.
    pub first: u64,
    /// Offset behind the last committed record.
    pub end: u64,
    /// Offset behind the last record that is known to be on the medium.
    pub durable: u64,
}

/// A log.
#[derive(Debug)]
pub struct LogInfo {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// Topics that live in it.
    pub topics: Vec<String>,
    /// Sizes, ends and locks; an error where it is damaged.
    pub extent: Result<Extent>,
    /// What went wrong with retention last, where this process did it.
    pub retention_problem: Option<String>,
}

impl Store {
    /// Look at everything: topics, logs, locks, slots.
    ///
    /// ```
    /// use falaj::store::{Store, StoreOptions};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path().join("events"), &StoreOptions::default())?;
    /// let info = store.info()?;
    /// assert_eq!(info.slots.iter().filter(|slot| slot.alive == Some(true)).count(), 1);
    /// # Ok::<(), falaj::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the store's directories cannot be listed. What is wrong with a topic or a log stands
    /// beside it.
    pub fn info(&self) -> Result<StoreInfo> {
        let filesystem = self.storage().filesystem(&self.layout().root_itself());
        let filesystem = filesystem
            .map_err(|error| Error::io("look at the file system of", self.path(), error))?;
        let mut logs: BTreeMap<PathBuf, LogInfo> = BTreeMap::new();
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
            incarnation: membership::incarnation_now(&**storage, self.layout()),
            slots: Slots::new(storage, self.layout()).look(),
            topics,
            logs: logs.into_values().collect(),
        })
    }

    /// Where the partitions of a topic end, and what its log is like.
    fn look_at(
        &self,
        topic: &TopicSettings,
        logs: &mut BTreeMap<PathBuf, LogInfo>,
    ) -> Result<Vec<PartitionInfo>> {
        let dir = self.log_dir(topic)?;
        let settings = settings_to_read(topic, self.settings().write_mode);
        let settings = LogSettings { reading: self.shared.reading, ..settings };
        let log = Log::open(Arc::clone(self.storage()), &dir, settings, None)?;
        let info = logs.entry(dir.clone()).or_insert_with(|| {
            let (name, extent) = (topic.log.clone(), log.extent());
            let member = self.shared.seat.as_ref().and_then(super::registry::Seat::get);
            let retention_problem = member.and_then(|m| m.logs().retention_problem(&dir));
            LogInfo { name, dir, topics: Vec::new(), extent, retention_problem }
        });
        info.topics.push(topic.name.clone());
        let durable = log.durable();
        let look = |partition: u32| {
            let number = topic.number + partition;
            let end = match log.committed() {
                Some(tail) => log.offset_at(number, tail)?,
                None => log.last_offset(number)?,
            };
            let durable = durable.map_or(Ok(0), |durable| log.offset_at(number, durable))?;
            let first = log.first_offset(number)?;
            Ok(PartitionInfo { partition, first, end, durable: durable.min(end) })
        };
        (0..topic.partitions).map(look).collect()
    }
}
