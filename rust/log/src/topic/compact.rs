//! Compacting a topic: among records with the same key, only the last one stays.
//!
//! Owns the conditions for compacting a log. The topic is marked for it, since its readers would
//! otherwise rely on every record. It has its log to itself, since a segment's tombstones wait
//! together. [`crate::log`] does the work. See `docs/PROTOCOL.md`, "Compaction".

use std::collections::BTreeMap;
use std::time::Duration;

use super::Topic;
use crate::error::{Error, Result};
use crate::log::verify::Progress;
use crate::log::{Compacted, Compacting, Last};

/// How long tombstones are kept: a day.
pub const TOMBSTONES: Duration = Duration::from_secs(86_400);
/// Bytes for keys: enough for more than a million of them in one reading.
pub const COMPACTION_MEMORY: u64 = 128 << 20;

/// How to compact a topic.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompactOptions {
    /// How long a tombstone stays once all that it hides is gone. A reader that takes no longer
    /// from the beginning to the end sees each deletion of records that it saw. A day by default.
    pub tombstones: Duration,
    /// Bytes for remembering keys; with more keys the log is read more often. 128 MiB by default.
    pub memory: u64,
    /// True to begin a new segment first, so that all records so far are compacted. Segments that
    /// ended early are merged only while their remaining records are few. So this is for topics
    /// without writers for a while; false by default.
    pub seal: bool,
    /// The last records of all keys, by partition, if another program found them; missing
    /// partitions stay as they are.
    #[doc(hidden)]
    pub last: Option<BTreeMap<u32, Last>>,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { tombstones: TOMBSTONES, memory: COMPACTION_MEMORY, seal: false, last: None }
    }
}

impl CompactOptions {
    /// Keep tombstones this long once all that they hide is gone.
    #[must_use]
    pub fn tombstones(self, tombstones: Duration) -> Self {
        Self { tombstones, ..self }
    }

    /// Use at most this many bytes to remember keys.
    #[must_use]
    pub fn memory(self, memory: u64) -> Self {
        Self { memory, ..self }
    }

    /// Begin a new segment first, so that all records so far are compacted.
    #[must_use]
    pub fn seal(self, seal: bool) -> Self {
        Self { seal, ..self }
    }

    /// Use the last records of all keys as another reader found them.
    #[doc(hidden)]
    #[must_use]
    pub fn last(self, last: BTreeMap<u32, Last>) -> Self {
        Self { last: Some(last), ..self }
    }
}

impl Topic {
    /// Compact: keep the last record of each key, in each partition separately. The others are gone
    /// for every reader; offsets stay, and reading a removed record raises `RecordCompacted`.
    /// Records without a key stay. The newest segment is left as it is. On disk when it returns;
    /// others read and write meanwhile, and earlier reads stay valid. Reads the topic two or three
    /// times.
    ///
    /// ```
    /// use falaj::{CompactOptions, NewRecord, Store};
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let prices = store.topic_options("prices").compacted(true).open()?;
    /// for key in ["tea", "tea", "fig", "fig", "fig"] {
    ///     prices.append(NewRecord::new("3").key(key))?;
    /// }
    /// let done = prices.compact(&CompactOptions::default().seal(true), &mut |_, _| Ok(()))?;
    /// assert_eq!((done.removed, prices.count(..)?), (3, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a topic that is not marked compacted, or shares its log. `CorruptData`
    /// if the compacted part is corrupt, `LockTimeout` while another process compacts it.
    /// `NotWritable`, `TopicDeleted`, `UnsupportedVersion`, `NoSpace`, `SystemCallFailed`; the
    /// errors of `progress`. Partitions compacted until then stay so.
    pub fn compact(&self, options: &CompactOptions, progress: Progress<'_>) -> Result<Compacted> {
        self.check_compaction()?;
        let topics = self.settings.number..self.settings.number + self.settings.partitions;
        let numbered = |last: &BTreeMap<u32, Last>| -> Result<BTreeMap<u32, Last>> {
            last.iter().map(|(p, last)| Ok((self.number(*p)?, self.checked(*p, last)?))).collect()
        };
        let last = options.last.as_ref().map(numbered).transpose()?;
        let micros = u64::try_from(options.tombstones.as_micros());
        let (tombstones_us, memory) = (micros.unwrap_or(u64::MAX), options.memory);
        let (seal, last) = (options.seal, last.as_ref());
        let how = Compacting { topics: &topics, tombstones_us, memory, seal, last };
        self.log.compact(&how, progress).map_err(|error| self.topic_error(error))
    }

    fn check_compaction(&self) -> Result<()> {
        let (mut own, mut others) = (None, Vec::new());
        for (name, settings) in self.store.topics()? {
            let settings = settings?;
            if settings.generation == self.settings.generation {
                own = Some(settings);
            } else if settings.log_generation == self.settings.log_generation {
                others.push(name);
            }
        }
        let Some(own) = own else {
            return Err(self.store.topic_gone(self.name()));
        };
        let name = self.name();
        if !own.compacted {
            return Err(Error::invalid(format!(
                "topic {name:?} is not marked compacted, so its readers count on every record: make it with \
                 compacted=True, or mark it by configure(compacted=True)"
            )));
        }
        if let Some(other) = others.first() {
            let log = &own.log;
            return Err(Error::invalid(format!(
                "topic {name:?} shares the log {log:?} with {other:?}: only a topic that has its log to itself \
                 can be compacted"
            )));
        }
        Ok(())
    }

    /// Check the result of another program, as far as possible.
    fn checked(&self, partition: u32, last: &Last) -> Result<Last> {
        let end = self.committed(partition)?;
        let rises = |offsets: &[u64]| {
            offsets.is_sorted_by(|a, b| a < b) && offsets.last().is_none_or(|at| *at < last.end)
        };
        if last.end > end || !rises(&last.offsets) || !rises(&last.alone) {
            let name = self.name();
            return Err(Error::invalid(format!(
                "the last offsets for partition {partition} of topic {name:?} have to rise and lie before \
                 their end, and that not behind the topic's end, {end}"
            )));
        }
        Ok(last.clone())
    }
}
