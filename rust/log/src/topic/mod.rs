//! A topic: appending records to it and reading them back.
//!
//! Owns the handle that native services and the Python bindings use: it encodes records, applies
//! the sync mode, and distinguishes partitions. [`crate::log`] owns the contents of a log,
//! [`crate::store`] the store. Reading needs no lock and no permission to write.
//!
//! ```no_run
//! use falaj::Store;
//!
//! let store = Store::open("events")?;
//! let orders = store.topic("orders")?;
//! let offset = orders.append(b"first")?.offset;
//! assert_eq!(orders.get(offset)?.value(), Some(b"first".as_slice()));
//! # Ok::<(), falaj::Error>(())
//! ```

mod append;
mod builder;
mod codec;
mod compact;
mod follow;
mod handle;
mod merge;
mod partitioner;
mod preconditions;
mod read;
mod start;
#[cfg(all(test, not(loom)))]
mod tests;
mod transaction;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::settings::TopicSettings;
use crate::log::{Interrupt, Log, Removable, Removed, Wait};
use crate::segment::Check;
use crate::store::options::CODEC;
use crate::store::{Access, Closing, Store, TopicCodec, TopicOptions};

pub use crate::format::record::{BodyWriter, NewRecord};
pub use crate::format::state::{After, CursorState, ProducerName, SequenceSpan};
pub use crate::log::{BatchBlock, RecordBatch, RecordRef, RecordRefs};
pub use crate::log::{Compacted, Last};
pub use crate::log::{CursorMove, Visibility};
pub use append::{Encoded, with_encoded};
pub use builder::TopicBuilder;
pub use compact::{COMPACTION_MEMORY, CompactOptions, TOMBSTONES};
pub use follow::Follow;
pub use handle::Position;
pub use merge::Scan;
pub use partitioner::partition_for_key;
pub use preconditions::{KnownProducer, MAX_PRODUCER_NAME, Precondition};
pub use read::{PartitionScan, Record, ScanRange, Skipped};
pub use start::Start;
pub(crate) use transaction::GroupPosition;
pub use transaction::{Committed, Transaction};
pub use watch::{Watch, Watched};

/// Says when an append returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum SyncMode {
    /// Once every process can see it.
    None,
    /// Likewise. It is on disk within the topic's interval, as long as a process that has the log
    /// open for writing lives.
    #[default]
    Interval,
    /// Once it is on disk.
    Durable,
    /// Once it is on disk, and the process that ships the store says that it has left the machine.
    Remote,
}

impl SyncMode {
    /// Get its name, as settings have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Interval => "interval",
            Self::Durable => "durable",
            Self::Remote => "remote",
        }
    }
}

/// An open topic: a handle for all of its partitions, or for one. A clone is the same handle.
#[derive(Clone)]
pub struct Topic {
    store: Store,
    settings: Arc<TopicSettings>,
    codec: Arc<TopicCodec>,
    log: Arc<Log>,
    /// Dropped right after the log, see there.
    _closing: Option<Closing>,
    sync: SyncMode,
    /// How long appends wait for the shipper.
    remote_timeout: Option<Duration>,
    check: Check,
    visibility: Visibility,
    /// The partition of the handle, unless it is for all of them.
    only: Option<u32>,
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic({:?} in {})", self.settings.name, self.store.path().display())
    }
}

impl Topic {
    /// Open a topic, and create a missing one if the store is open for writing.
    ///
    /// # Errors
    /// Those of [`Store::open_topic`], and `CorruptData`, `NeedsRecovery` or `UnsupportedVersion`
    /// of its log.
    #[doc(hidden)]
    pub fn open(store: &Store, name: &str, options: &TopicOptions) -> Result<Self> {
        loop {
            let settings = store.open_topic(name, options)?;
            match Self::opened(store, settings.clone(), options) {
                // It was deleted, or created again, in between: the next look decides.
                Err(_) if store.is_gone(&settings) => {}
                opened => return opened,
            }
        }
    }

    fn opened(store: &Store, settings: TopicSettings, options: &TopicOptions) -> Result<Self> {
        let log = store.open_log(&settings)?;
        let topic = Self::of(store, settings, log, options.codec.clone())?;
        if options.codec.is_some() && !topic.has_codec() && store.access() == Access::Write {
            topic.name_codec(CODEC)?;
        }
        Ok(topic)
    }

    /// Open an existing topic with its settings.
    ///
    /// # Errors
    /// Those of opening its log.
    pub(crate) fn existing(store: &Store, settings: TopicSettings) -> Result<Self> {
        let log = store.open_log(&settings)?;
        Self::of(store, settings, log, None)
    }

    fn of(
        store: &Store,
        settings: TopicSettings,
        log: Arc<Log>,
        codec: Option<String>,
    ) -> Result<Self> {
        let codec = Arc::new(store.codec(&settings, codec));
        let settings = Arc::new(settings);
        let (_closing, sync, check) = (store.closing(&log)?, SyncMode::default(), Check::Full);
        let visibility = Visibility::default();
        Ok(Self {
            store: store.clone(),
            settings,
            codec,
            log,
            _closing,
            sync,
            remote_timeout: None,
            check,
            visibility,
            only: None,
        })
    }

    /// Open the same topic in a forked child, with a membership of its own.
    ///
    /// # Errors
    /// As [`Topic::open`].
    #[doc(hidden)]
    pub fn reopen(&self) -> Result<Self> {
        let log = self.store.open_log(&self.settings).map_err(|error| {
            match self.store.is_gone(&self.settings) {
                true => Error::TopicDeleted { name: self.name().to_owned() },
                false => error,
            }
        })?;
        let _closing = self.store.closing(&log)?;
        Ok(Self { log, _closing, ..self.clone() })
    }

    /// Open the topic's log again for reading only: with maps of its own, on which nothing was
    /// checked yet.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    #[doc(hidden)]
    pub fn reopen_to_read(&self) -> Result<Arc<Log>> {
        let (storage, settings) = (Arc::clone(self.store.storage()), self.log.settings().clone());
        Log::open(storage, self.log.dir(), settings, None)
    }

    /// Get a handle with another sync mode.
    #[must_use]
    pub fn with_sync(&self, sync: SyncMode) -> Self {
        Self { sync, ..self.clone() }
    }

    /// Get a handle whose appends in [`SyncMode::Remote`] wait at most this long for the shipper.
    /// `None` waits for as long as that process lives.
    #[must_use]
    pub fn with_remote_timeout(&self, timeout: Option<Duration>) -> Self {
        Self { remote_timeout: timeout, ..self.clone() }
    }

    /// Get a handle that reads without checksums, or with them. Reads without them still check the structure.
    #[must_use]
    pub fn with_verify(&self, verify: bool) -> Self {
        let check = if verify { Check::Full } else { Check::None };
        Self { check, ..self.clone() }
    }

    /// Get a handle that reads all visible records, only those on disk, or only those that have left
    /// the machine too. Its end, lookups by offset and time, and scans agree.
    ///
    /// ```
    /// use falaj::{Store, SyncMode, Visibility};
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let orders = store.topic("orders")?.with_sync(SyncMode::None);
    /// let durable = orders.with_visibility(Visibility::Durable);
    /// orders.append(b"first")?;
    /// assert_eq!((orders.end_offset()?, durable.end_offset()?), (1, 0));
    /// orders.flush()?;
    /// assert_eq!(durable.end_offset()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_visibility(&self, visibility: Visibility) -> Self {
        Self { visibility, ..self.clone() }
    }

    /// Get which records it reads.
    pub fn visibility(&self) -> Visibility {
        self.visibility
    }

    /// Get its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Return its constant settings.
    #[doc(hidden)]
    pub fn settings(&self) -> &TopicSettings {
        &self.settings
    }

    /// Get the store that it is in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Return the name of its log. Topics of one log share a lock, and a transaction may append to
    /// all of them.
    pub fn log_name(&self) -> &str {
        &self.settings.log
    }

    /// The log that it is in.
    #[doc(hidden)]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Say whether it was deleted.
    pub fn is_deleted(&self) -> bool {
        self.log.is_topic_deleted(self.settings.number)
    }

    /// Return the state of a cursor that is kept in the topic's log; `None` for one that never
    /// moved there.
    ///
    /// # Errors
    /// As [`Log::cursor_of`].
    #[doc(hidden)]
    pub fn cursor(&self, name: &[u8]) -> Result<Option<CursorState>> {
        self.log.cursor_of(name).map_err(|error| read::topic_error(error, &self.settings))
    }

    /// Return the metadata beside such a cursor; empty if there is none.
    ///
    /// # Errors
    /// As [`Log::cursor_of`].
    #[doc(hidden)]
    pub fn cursor_metadata(&self, name: &[u8]) -> Result<Vec<u8>> {
        let found = self.log.cursor_metadata_of(name);
        found.map_err(|error| read::topic_error(error, &self.settings))
    }

    /// Get the sync mode, which says when appends return.
    pub fn sync_mode(&self) -> SyncMode {
        self.sync
    }

    /// Get the number of its partitions.
    pub fn partitions(&self) -> u32 {
        self.settings.partitions
    }

    fn number(&self, partition: u32) -> Result<u32> {
        if partition < self.settings.partitions {
            return Ok(self.settings.number + partition);
        }
        let (name, last) = (&self.settings.name, self.settings.partitions - 1);
        Err(Error::invalid(format!(
            "topic {name:?} has no partition {partition}: they are numbered 0 to {last}"
        )))
    }

    /// Return the lowest offset that is left.
    ///
    /// # Errors
    /// `InvalidArgument` for a missing partition; `CorruptData`, `NeedsRecovery`,
    /// `UnsupportedVersion`, `SystemCallFailed`.
    #[doc(hidden)]
    pub fn first(&self, partition: u32) -> Result<u64> {
        self.log.first_offset(self.number(partition)?).map_err(|error| self.topic_error(error))
    }

    /// Return how far a partition is known to be trimmed, for the cost of a load: [`Topic::first`]
    /// may return more.
    ///
    /// # Errors
    /// `InvalidArgument` for a missing partition.
    #[doc(hidden)]
    pub fn trimmed(&self, partition: u32) -> Result<u64> {
        Ok(self.log.trimmed(self.number(partition)?))
    }

    /// Trim partitions: their records before these offsets are gone for every reader, and so are
    /// files that no topic of the log needs any more. On disk when it returns; earlier reads stay
    /// valid. An offset that was trimmed already changes nothing.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for an offset beyond an end, `InvalidArgument` for a missing partition:
    /// then nothing changed. `NotWritable`, `SyncFailed`, `LockTimeout`, `TopicDeleted`, `NoSpace`,
    /// `SystemCallFailed`.
    #[doc(hidden)]
    pub fn trim(&self, firsts: &[(u32, u64)]) -> Result<Removed> {
        let firsts = self.numbered(firsts)?;
        self.log.trim(&firsts).map_err(|error| self.topic_error(error))
    }

    /// Finish the topic: no process appends to any of its partitions any more. Followers end after
    /// the last record. It is on disk when this returns, and cannot be undone. A repeat changes
    /// nothing.
    ///
    /// # Errors
    /// `NotWritable`, `TopicDeleted`, `SyncFailed`, `LockTimeout`, `NoSpace`, `SystemCallFailed`.
    ///
    /// # Examples
    /// ```
    /// use falaj::{Error, Store};
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let day = store.topic("2026-11-27")?;
    /// day.append(b"the last one")?;
    /// day.finish()?;
    /// assert!(day.is_finished());
    /// assert!(matches!(day.append(b"too late"), Err(Error::TopicFinished { .. })));
    /// assert_eq!(day.follow(..)?.count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn finish(&self) -> Result<()> {
        self.log.finish(self.numbers()).map_err(|error| self.topic_error(error))
    }

    /// Return true once the topic is [finished](Topic::finish). An unreadable note of that does not count.
    pub fn is_finished(&self) -> bool {
        self.numbers().all(|number| self.log.is_finished(number))
    }

    /// List the segments that such a trim would remove; nothing is changed.
    ///
    /// # Errors
    /// As [`Topic::first`], and `OffsetOutOfRange`.
    #[doc(hidden)]
    pub fn plan_trim(&self, firsts: &[(u32, u64)]) -> Result<Removable> {
        for (partition, before) in firsts {
            if *before > self.committed(*partition)? {
                return Err(self.out_of_range(*partition, (*before).into())?);
            }
        }
        self.log.removable(&self.numbered(firsts)?)
    }

    /// Convert an error of the log for a user of the topic. It gets the topic's name. If the topic
    /// was deleted, that is the error, whatever is missing then.
    #[cold]
    pub(crate) fn topic_error(&self, error: Error) -> Error {
        let by_deletion = matches!(
            error,
            Error::SystemCallFailed { .. }
                | Error::CorruptData { .. }
                | Error::NeedsRecovery { .. }
                | Error::LockFileReplaced { .. }
        );
        if by_deletion && self.store.is_gone(&self.settings) {
            return Error::TopicDeleted { name: self.name().to_owned() };
        }
        read::topic_error(error, &self.settings)
    }

    fn numbered(&self, firsts: &[(u32, u64)]) -> Result<Vec<(u32, u64)>> {
        firsts.iter().map(|(partition, to)| Ok((self.number(*partition)?, *to))).collect()
    }

    /// Return the offset after the last readable record: committed, or durable if only that is
    /// [visible](Topic::with_visibility).
    ///
    /// # Errors
    /// As [`Topic::first`].
    #[doc(hidden)]
    pub fn end(&self, partition: u32) -> Result<u64> {
        match self.visibility {
            Visibility::Visible => self.committed(partition),
            // A trimmed record need not be durable to be gone.
            Visibility::Durable => Ok(self.durable(partition)?.max(self.first(partition)?)),
            Visibility::Remote => Ok(self.remote(partition)?.max(self.first(partition)?)),
        }
    }

    /// Return the offset after the last committed record.
    ///
    /// # Errors
    /// As [`Topic::first`].
    #[doc(hidden)]
    pub fn committed(&self, partition: u32) -> Result<u64> {
        self.log.end_offset(self.number(partition)?).map_err(|error| self.topic_error(error))
    }

    /// Return the offset after the last record that is known to be on disk.
    ///
    /// # Errors
    /// As [`Topic::first`].
    #[doc(hidden)]
    pub fn durable(&self, partition: u32) -> Result<u64> {
        let number = self.number(partition)?;
        let found = self.log.offset_reached(number, || self.log.durable());
        found.map_err(|error| self.topic_error(error))
    }

    /// Return the offset after the last record that is known to have left the machine.
    ///
    /// # Errors
    /// As [`Topic::first`].
    #[doc(hidden)]
    pub fn remote(&self, partition: u32) -> Result<u64> {
        let number = self.number(partition)?;
        let remote = || self.log.remote().filter(|remote| *remote > Address(0));
        let found = self.log.offset_reached(number, remote);
        found.map_err(|error| self.topic_error(error))
    }

    /// Count the records of a partition with an offset in a range; without `to` up to its end.
    /// Offsets that compaction left without a record do not count; hidden offsets do.
    ///
    /// Costs no reading unless the log was compacted, and then the headers of its compacted files,
    /// once.
    ///
    /// # Errors
    /// As [`Topic::first`].
    #[doc(hidden)]
    pub fn count_in(&self, partition: u32, from: u64, to: Option<u64>) -> Result<u64> {
        let (first, end) = (self.first(partition)?, self.end(partition)?);
        let offsets = from.max(first)..to.map_or(end, |to| to.min(end));
        let counted = self.log.count(self.number(partition)?, offsets);
        counted.map_err(|error| self.topic_error(error))
    }

    /// Return the offset from which on a partition has this many records, or this many before
    /// `end`; its first offset if it has fewer. Costs as [`Topic::count`].
    ///
    /// # Errors
    /// As [`Topic::first`]; `CorruptData` if it depends on records that cannot be read.
    #[doc(hidden)]
    pub fn start_of_last(&self, partition: u32, records: u64, end: Option<u64>) -> Result<u64> {
        let (first, last) = (self.first(partition)?, self.end(partition)?);
        let offsets = first..end.map_or(last, |end| end.min(last));
        let found = self.log.start_of_last(self.number(partition)?, offsets, records);
        found.map_err(|error| self.topic_error(error))
    }

    /// Sync: everything that is committed is on disk when this returns.
    ///
    /// # Errors
    /// `NotWritable`, `SyncFailed`, `LockTimeout`, `SystemCallFailed`.
    pub fn flush(&self) -> Result<()> {
        self.log.sync().map(drop)
    }

    /// Sync, and leave the log so that the next opening needs no checks.
    ///
    /// # Errors
    /// As [`Topic::flush`].
    #[doc(hidden)]
    pub fn sync_clean(&self) -> Result<()> {
        self.log.sync_clean()
    }

    /// Wait until records up to, not including, an offset have left the machine. A process that may
    /// write syncs first, and gets an error when no process ships the store. A reader waits.
    ///
    /// # Errors
    /// As [`Topic::wait_durable_in`]; `NoShipper`, `Fenced`.
    #[doc(hidden)]
    pub fn wait_remote_in(
        &self,
        partition: u32,
        offset: u64,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        if offset <= self.committed(partition)? && self.remote(partition)? >= offset {
            return Ok(Wait::News);
        }
        if !self.log.is_writable() {
            let target = self.log.committed().unwrap_or_default();
            self.expect_written(partition, offset)?;
            return self.log.wait_for_remote(target, timeout, interrupt);
        }
        self.expect_written(partition, offset)?;
        let end = self.log.sync()?;
        self.log.wait_for_shipper(self.log.durable_address_of(end)?, timeout, interrupt)
    }

    /// Check that the records before an offset were written.
    fn expect_written(&self, partition: u32, offset: u64) -> Result<()> {
        let end = self.committed(partition)?;
        if offset <= end {
            return Ok(());
        }
        let (topic, first) = (self.name().to_owned(), self.first(partition)?);
        // The last of them is the missing one.
        let offset = i128::from(offset) - 1;
        Err(Error::OffsetOutOfRange { topic, partition, offset, first, end })
    }

    /// Wait until records up to, not including, an offset are on disk. A process that may write
    /// syncs; a reader waits for others to sync.
    ///
    /// # Errors
    /// As [`Topic::flush`]; `OffsetOutOfRange` when they were not written yet.
    #[doc(hidden)]
    pub fn wait_durable_in(
        &self,
        partition: u32,
        offset: u64,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        self.expect_written(partition, offset)?;
        if self.durable(partition)? >= offset {
            return Ok(Wait::News);
        }
        if self.log.is_writable() {
            return self.flush().map(|()| Wait::News);
        }
        let target = self.log.committed().unwrap_or_default();
        self.log.wait_for_durable(target, timeout, interrupt)
    }
}
