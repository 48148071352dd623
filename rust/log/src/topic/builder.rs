//! Opening topics from a store, and beginning transactions on them.

use std::time::Duration;

use super::{SyncMode, Topic, Transaction};
use crate::error::Result;
use crate::store::{RetentionChange, Store, TopicOptions};

/// How to open a topic, or to create it; [`Store::topic_options`] makes one.
///
/// A setting that is not asked for is as it is stored, or the default where the topic is created. One that is asked
/// for and stored otherwise is an error, so that no setting is quietly another.
#[derive(Clone, Debug)]
#[must_use = "`open` opens the topic"]
pub struct TopicBuilder {
    store: Store,
    name: String,
    options: TopicOptions,
    sync: SyncMode,
}

impl Store {
    /// Open a topic, and create it where the store is open for writing and has none of this name.
    ///
    /// # Errors
    /// As [`TopicBuilder::open`].
    pub fn topic(&self, name: &str) -> Result<Topic> {
        self.topic_options(name).open()
    }

    /// Choose how to open a topic, or to create it.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let clicks = store.topic_options("clicks").partitions(4).sync_interval(Duration::from_secs(1)).open()?;
    /// assert_eq!(clicks.partitions(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn topic_options(&self, name: &str) -> TopicBuilder {
        let (store, name) = (self.clone(), name.to_owned());
        let (options, sync) = (TopicOptions::default(), SyncMode::default());
        TopicBuilder { store, name, options, sync }
    }

    /// Begin a transaction: records for topics of one log that become visible together.
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self)
    }

    /// Limit the bytes that the logs of all topics take together; `None` lifts the limit. The oldest segments expire
    /// first. It is on the disk when this returns.
    ///
    /// # Errors
    /// `InvalidArgument` beyond the limits; `NotWritable`, `LockTimeout`, `CorruptData`, `NoSpace`, `SystemCallFailed`.
    pub fn set_retention_bytes(&self, limit: impl Into<Option<u64>>) -> Result<()> {
        self.configure(limit.into()).map(drop)
    }

    /// List the names of all topics, sorted.
    ///
    /// # Errors
    /// `SystemCallFailed` when the directory cannot be read.
    pub fn topic_names(&self) -> Result<Vec<String>> {
        Ok(self.topics()?.into_iter().map(|(name, _)| name).collect())
    }
}

impl TopicBuilder {
    /// Fail where there is no such topic, if this is false. True by default.
    pub fn create(mut self, create: bool) -> Self {
        self.options.must_exist = !create;
        self
    }

    /// Have so many partitions, 1 by default. A topic keeps the number that it was created with.
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.options.partitions = Some(partitions);
        self
    }

    /// Live in the log of this name, which topics may share. Only topics that share a log can be written to by one
    /// transaction.
    pub fn log(mut self, log: impl Into<String>) -> Self {
        self.options.log = Some(log.into());
        self
    }

    /// Name the codec of its values, `bytes` by default. This crate reads and writes bytes; Python applies codecs.
    pub fn codec(mut self, codec: impl Into<String>) -> Self {
        self.options.codec = Some(codec.into());
        self
    }

    /// Begin a new file after so many bytes, a multiple of 4096; 64 MiB by default.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.options.segment_bytes = Some(bytes);
        self
    }

    /// Sync so often, in whole milliseconds up to an hour; every 100 ms by default.
    pub fn sync_interval(mut self, interval: Duration) -> Self {
        self.options.sync_interval_ms =
            Some(u64::try_from(interval.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Let compaction remove all but the last record of each key.
    pub fn compacted(mut self, compacted: bool) -> Self {
        self.options.compacted = Some(compacted);
        self
    }

    /// Limit what is kept; see [`RetentionChange`].
    pub fn retention(mut self, retention: RetentionChange) -> Self {
        self.options.retention = retention;
        self
    }

    /// Let appends of this handle return at this point, [`SyncMode::Interval`] by default.
    pub fn sync(self, sync: SyncMode) -> Self {
        Self { sync, ..self }
    }

    /// Open the topic.
    ///
    /// # Errors
    /// `InvalidName`; `InvalidArgument` for a setting beyond its limits; `SettingsMismatch` for one that is stored otherwise;
    /// `UnknownTopic` where it may not be created; `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`, `LockTimeout`, `NoSpace`, `SystemCallFailed`.
    pub fn open(self) -> Result<Topic> {
        Ok(Topic::open(&self.store, &self.name, &self.options)?.with_sync(self.sync))
    }
}
