//! Compacting a topic: of all records with the same key the last one stays.
//!
//! Owns what is asked before a log is compacted: that the topic is marked for it, as others read it and
//! count on every record otherwise, and that it has its log to itself, for a segment's tombstones wait
//! together. How it is done is left to [`crate::log`]. See `docs/PROTOCOL.md`, "Compaction".

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
    /// How long a tombstone stays once all that it hides is gone. A reader that takes no longer from the beginning
    /// to the end sees each deletion of what it saw. A day by default.
    pub tombstones: Duration,
    /// Bytes that may be used to remember keys; with more keys the log is read more often.
    /// 128 MiB by default.
    pub memory: u64,
    /// True to begin a new segment first, so that all that was appended is looked at. Segments that were
    /// ended early become one with others only while what is left of all of them is small, so this is for
    /// topics that nobody writes to for a while; false by default.
    pub seal: bool,
    /// The last records of all keys, by partition, where somebody else found them out; of partitions that
    /// are not there everything stays.
    #[doc(hidden)]
    pub last: Option<BTreeMap<u32, Last>>,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { tombstones: TOMBSTONES, memory: COMPACTION_MEMORY, seal: false, last: None }
    }
}

impl CompactOptions {
    /// Keep tombstones so long once all that they hide is gone.
    #[must_use]
    pub fn tombstones(self, tombstones: Duration) -> Self {
        Self { tombstones, ..self }
    }

    /// Use up to so many bytes to remember keys.
    #[must_use]
    pub fn memory(self, memory: u64) -> Self {
        Self { memory, ..self }
    }

    /// Begin a new segment first, so that all that was appended is looked at.
    #[must_use]
    pub fn seal(self, seal: bool) -> Self {
        Self { seal, ..self }
    }

    /// Take the last records of all keys from another reader that found them.
    #[doc(hidden)]
    #[must_use]
    pub fn last(self, last: BTreeMap<u32, Last>) -> Self {
        Self { last: Some(last), ..self }
    }
}

impl Topic {
    /// Compact: keep the last record of each key, in each partition by itself; the others are gone
    /// for every reader, offsets stay, and asking for one that is gone raises `RecordCompacted`. Records without a
    /// key stay. What lies in the newest segment is not looked at. On the medium when it returns; others
    /// read and write meanwhile, and what was read stays valid. Reads the topic two or three times.
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
    /// `InvalidArgument` for a topic that is not marked compacted, or shares its log; `CorruptData` where what is to be
    /// compacted is damaged, `LockTimeout` while somebody else compacts it, `NotWritable`, `TopicDeleted`,
    /// `UnsupportedVersion`, `NoSpace`, `SystemCallFailed`; what `progress` returns. What was compacted until then stays so.
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
            return Err(Error::TopicDeleted { name: self.name().to_owned() });
        };
        let name = self.name();
        if !own.compacted {
            let what = format!(
                "topic {name:?} is not marked compacted, so its readers count on every record: make it with \
                 compacted=True, or mark it by configure(compacted=True)"
            );
            return Err(Error::InvalidArgument { what });
        }
        if let Some(other) = others.first() {
            let log = &own.log;
            let what = format!(
                "topic {name:?} shares the log {log:?} with {other:?}: only a topic that has its log to itself \
                 can be compacted"
            );
            return Err(Error::InvalidArgument { what });
        }
        Ok(())
    }

    /// What others found out, if it can be true.
    fn checked(&self, partition: u32, last: &Last) -> Result<Last> {
        let end = self.committed(partition)?;
        let rises = |offsets: &[u64]| {
            offsets.is_sorted_by(|a, b| a < b) && offsets.last().is_none_or(|at| *at < last.end)
        };
        if last.end > end || !rises(&last.offsets) || !rises(&last.alone) {
            let name = self.name();
            let what = format!(
                "the last offsets for partition {partition} of topic {name:?} have to rise and lie before \
                 their end, and that not behind the topic's end, {end}"
            );
            return Err(Error::InvalidArgument { what });
        }
        Ok(last.clone())
    }
}
