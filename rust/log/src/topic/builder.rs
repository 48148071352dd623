//! Opening topics from a store, and beginning transactions on them.

use std::time::Duration;

use super::{SyncMode, Topic, Transaction};
use crate::error::Result;
use crate::store::{RetentionChange, Store, TopicOptions};

/// Options for opening or creating a topic; [`Store::topic_options`] makes them.
///
/// A setting without a request is the stored one, or the default for a new topic. A request that
/// differs from the stored setting is an error, so that no setting silently differs.
#[derive(Clone, Debug)]
#[must_use = "`open` opens the topic"]
pub struct TopicBuilder {
    store: Store,
    name: String,
    options: TopicOptions,
    sync: SyncMode,
}

impl Store {
    /// Open a topic, and create a missing one if the store is open for writing.
    ///
    /// # Errors
    /// As [`TopicBuilder::open`].
    pub fn topic(&self, name: &str) -> Result<Topic> {
        self.topic_options(name).open()
    }

    /// Choose how to open or create a topic.
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

    /// Limit the bytes of the logs of all topics together; `None` lifts the limit. The oldest
    /// segments expire first. It is on disk when this returns.
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
    /// Fail if there is no such topic, when this is false. True by default.
    pub fn create(mut self, create: bool) -> Self {
        self.options.must_exist = !create;
        self
    }

    /// Have this many partitions, 1 by default. A topic keeps its initial number.
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.options.partitions = Some(partitions);
        self
    }

    /// Use the log of this name, which topics may share. One transaction can write only to topics
    /// that share a log.
    pub fn log(mut self, log: impl Into<String>) -> Self {
        self.options.log = Some(log.into());
        self
    }

    /// Name the codec of its values. This crate reads and writes bytes; Python applies codecs. A topic that is created
    /// without a codec takes the one that the first opening names. Its first append names `bytes` if none did.
    pub fn codec(mut self, codec: impl Into<String>) -> Self {
        self.options.codec = Some(codec.into());
        self
    }

    /// Begin a new file after this many bytes, a multiple of 4096; 64 MiB by default.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.options.segment_bytes = Some(bytes);
        self
    }

    /// Sync this often, in whole milliseconds up to an hour; every 100 ms by default.
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

    /// Limit which records are kept; see [`RetentionChange`].
    pub fn retention(mut self, retention: RetentionChange) -> Self {
        self.options.retention = retention;
        self
    }

    /// Set when appends of this handle return, [`SyncMode::Interval`] by default.
    pub fn sync(self, sync: SyncMode) -> Self {
        Self { sync, ..self }
    }

    /// Open the topic.
    ///
    /// # Errors
    /// `InvalidName`; `InvalidArgument` for a setting beyond its limits; `SettingsMismatch` for one
    /// that differs from the stored setting; `UnknownTopic` if it may not be created.
    /// `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`, `LockTimeout`, `NoSpace`,
    /// `SystemCallFailed`.
    pub fn open(self) -> Result<Topic> {
        let options = TopicOptions { codec_later: true, ..self.options };
        Ok(Topic::open(&self.store, &self.name, &options)?.with_sync(self.sync))
    }
}
