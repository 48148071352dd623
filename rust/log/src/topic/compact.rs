//! Compacting a topic: of all records with the same key the last one stays.
//!
//! Owns what is asked before a log is compacted: that the topic is marked for it, as others read it and
//! count on every record otherwise, and that it has its log to itself, for a segment's tombstones wait
//! together. How it is done is left to [`crate::log`]. See `docs/PROTOCOL.md`, "Compaction".

use std::collections::BTreeMap;

use super::Topic;
use crate::error::{Error, Result};
use crate::log::verify::Progress;
use crate::log::{Compacted, Compacting, Last};

/// For how long tombstones are kept: a day, in microseconds.
pub const TOMBSTONES_US: u64 = 86_400_000_000;
/// Bytes for keys: enough for more than a million of them in one reading.
pub const COMPACTION_MEMORY: u64 = 128 << 20;

/// How a topic is compacted.
#[derive(Clone, Debug)]
pub struct CompactOptions {
    /// For how long a tombstone stays once all that it hides is gone, microseconds; so long may a reader
    /// take from the beginning to the end and see each deletion of what it saw. [`TOMBSTONES_US`] by default.
    pub tombstones_us: u64,
    /// Bytes that may be used to remember keys; with more keys the log is read more often.
    /// [`COMPACTION_MEMORY`] by default.
    pub memory: u64,
    /// True to begin a new segment first, so that all that was appended is looked at. Segments that were
    /// ended early become one with others only while what is left of all of them is small, so this is for
    /// topics that nobody writes to for a while; false by default.
    pub seal: bool,
    /// The last records of all keys, by partition, where somebody else found them out; of partitions that
    /// are not there everything stays.
    pub last: Option<BTreeMap<u32, Last>>,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { tombstones_us: TOMBSTONES_US, memory: COMPACTION_MEMORY, seal: false, last: None }
    }
}

impl Topic {
    /// Of all records with the same key leave the last one, in each partition by itself; the others are gone
    /// for every reader, offsets stay, and asking for one that is gone raises `RecordCompacted`. Records
    /// without a key stay. What lies in the newest segment is not looked at. On the medium when it returns;
    /// others read and write meanwhile, and what was read stays valid. Reads the topic two or three times.
    ///
    /// ```
    /// use falaj::{CompactOptions, NewRecord, Store, StoreOptions, Topic, TopicOptions};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path().join("events"), &StoreOptions::default())?;
    /// let compacted = TopicOptions { compacted: Some(true), ..TopicOptions::default() };
    /// let prices = Topic::open(&store, "prices", &compacted)?;
    /// let done = prices.compact(&CompactOptions::default(), &mut |_, _| Ok(()))?;
    /// assert_eq!((done.segments, done.removed), (0, 0));
    /// # Ok::<(), falaj::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a topic that is not marked compacted, or shares its log; `CorruptData` where what
    /// is to be compacted is damaged, `LockTimeout` while somebody else compacts it, `NotWritable`,
    /// `TopicDeleted`, `UnsupportedVersion`, `NoSpace`, `SystemCallFailed`; what `progress` returns. What was
    /// compacted until then stays so.
    pub fn compact(&self, options: &CompactOptions, progress: Progress<'_>) -> Result<Compacted> {
        self.check_compaction()?;
        let topics = self.settings.number..self.settings.number + self.settings.partitions;
        let numbered = |last: &BTreeMap<u32, Last>| -> Result<BTreeMap<u32, Last>> {
            last.iter().map(|(p, last)| Ok((self.number(*p)?, self.checked(*p, last)?))).collect()
        };
        let last = options.last.as_ref().map(numbered).transpose()?;
        let (tombstones_us, memory) = (options.tombstones_us, options.memory);
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
