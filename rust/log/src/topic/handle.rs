//! The calls of a program on a topic: on all its partitions, or on the handle's one partition.
//!
//! Owns which partitions a call means. A key chooses the partition of a record, reading merges all partitions by
//! timestamp, and an offset belongs to one partition. [`Topic::partition`] gives a handle for one of them, with the
//! same methods. Each method here names its partitions and leaves the work to the one that takes their numbers.

use std::collections::BTreeMap;
use std::ops::{Bound, Range, RangeBounds};
use std::time::{Duration, SystemTime};

use super::partitioner::partition_for_key;
use super::{Follow, Precondition, Record, Scan, ScanRange, Start, Topic};
use crate::error::{Error, Result};
use crate::format::record::{NewRecord, ns_since_1970};
use crate::log::Wait;
use crate::store::RetentionChange;

/// The place of a record in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Number of its partition.
    pub partition: u32,
    /// Its offset there.
    pub offset: u64,
}

impl Topic {
    /// Get a handle for one partition. It has the same methods, appends to that partition, whatever
    /// the key, and reads only that.
    ///
    /// # Errors
    /// `InvalidArgument` for a missing partition.
    pub fn partition(&self, partition: u32) -> Result<Self> {
        if !self.handled().contains(&partition) {
            self.number(self.partitions().max(partition))?;
            return Err(self.several("take another one"));
        }
        Ok(Self { only: Some(partition), ..self.clone() })
    }

    /// Return the partitions of this handle.
    pub(crate) fn handled(&self) -> Range<u32> {
        self.only.map_or(0..self.partitions(), |only| only..only + 1)
    }

    /// Return its only partition.
    pub(super) fn one(&self, what: &str) -> Result<u32> {
        match (self.only, self.partitions()) {
            (Some(only), _) => Ok(only),
            (None, 1) => Ok(0),
            _ => Err(self.several(what)),
        }
    }

    /// Append a record: a value, or a [`NewRecord`] with a key, headers or a time. The key chooses the partition;
    /// records without one take turns. Every process can read it when this returns.
    ///
    /// # Errors
    /// `AppendTooLarge`, `NoSpace`, `SystemCallFailed`, `LockTimeout`, `SyncFailed`,
    /// `TopicDeleted`, `NotWritable`; `HandleClosed` in a forked child. Nothing was appended then.
    /// `DurabilityUnknown`: the record is visible, and perhaps not on disk.
    ///
    /// # Examples
    /// ```
    /// use falaj::{NewRecord, Store};
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let orders = store.topic("orders")?;
    /// orders.append(b"two coffees")?;
    /// orders.append("one tea")?;
    /// let record = NewRecord::new(b"10 apples").key(b"eu").headers(&[("trace", Some(b"1"))]);
    /// assert_eq!(orders.append(record)?.offset, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn append<'a>(&self, record: impl Into<NewRecord<'a>>) -> Result<Position> {
        let record = record.into();
        let partition = self.partition_for(&record);
        self.append_to(partition, &record, None).map(|offset| Position { partition, offset })
    }

    /// Append a record if these preconditions hold. [`Topic::expect_offset`] and
    /// [`Topic::expect_sequence`] make them. For a record without a key, its producer's name
    /// chooses the partition.
    ///
    /// # Errors
    /// As [`Topic::append`]; `OffsetConflict`, `OutOfOrderSequence`, `DuplicateSequence`,
    /// `CursorMoved`. `InvalidArgument` when the log cannot remember another producer:
    /// [`Topic::forget_producer`] makes space. Then nothing was appended.
    ///
    /// # Examples
    /// ```
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let orders = store.topic("orders")?;
    /// let once = [orders.expect_sequence("till-3", 17)?];
    /// let first = orders.append_if(b"10 apples", &once)?;
    /// assert_eq!(orders.append_if(b"10 apples", &once)?, first); // not appended again
    /// assert!(orders.append_if(b"too late", &[orders.expect_offset(0)?]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn append_if<'a>(
        &self,
        record: impl Into<NewRecord<'a>>,
        preconditions: &[Precondition<'_>],
    ) -> Result<Position> {
        let record = record.into();
        let partition = match (self.only, record.key) {
            (Some(only), _) => only,
            (None, Some(key)) => partition_for_key(key, self.partitions()),
            (None, None) => self.keyless(preconditions),
        };
        let offset = self.append_if_to(partition, &record, preconditions, None)?;
        Ok(Position { partition, offset })
    }

    /// Return the partition of a record without a key: a repeat must find the first record.
    fn keyless(&self, preconditions: &[Precondition<'_>]) -> u32 {
        let named = preconditions.first().map(|first| first.partition);
        named.unwrap_or_else(|| self.partition_for(&NewRecord::default()))
    }

    /// Append records at once: all of them become visible together, or none. Returns the offsets in
    /// each partition. Records without a key go to one partition. Without records it does nothing.
    ///
    /// # Errors
    /// As [`Topic::append`].
    ///
    /// # Examples
    /// ```
    /// use falaj::{NewRecord, Store};
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let orders = store.topic("orders")?;
    /// assert_eq!(orders.extend(["cart", "pay"])?[&0], 0..2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn extend<'a, R: Into<NewRecord<'a>>>(
        &self,
        records: impl IntoIterator<Item = R>,
    ) -> Result<BTreeMap<u32, Range<u64>>> {
        let mut parts: BTreeMap<u32, Vec<NewRecord<'a>>> = BTreeMap::new();
        let mut keyless = None;
        for record in records {
            let record = record.into();
            let partition = match (record.key, keyless) {
                (None, Some(known)) => known,
                (Some(_), _) => self.partition_for(&record),
                (None, None) => *keyless.insert(self.partition_for(&record)),
            };
            parts.entry(partition).or_default().push(record);
        }
        if parts.is_empty() {
            return Ok(BTreeMap::new());
        }
        let parts: Vec<_> = parts.iter().map(|(at, records)| (*at, records.as_slice())).collect();
        if let [(partition, records)] = parts[..] {
            // Encoded into memory that the thread keeps.
            return Ok(BTreeMap::from([(partition, self.extend_to(partition, records, None)?)]));
        }
        let ranges = self.extend_partitions(&parts, None)?;
        Ok(parts.iter().map(|(partition, _)| *partition).zip(ranges).collect())
    }

    /// Read the record with this offset.
    ///
    /// # Errors
    /// `OffsetOutOfRange`, `RecordCompacted`; `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`;
    /// `InvalidArgument` if the topic has several partitions and the handle is for all of them.
    #[inline]
    pub fn get(&self, offset: u64) -> Result<Record> {
        self.get_in(self.one("get a record")?, offset)
    }

    /// Read records: all with `..`, or those of one partition from an offset on, before an offset,
    /// or between two. Several partitions are merged by timestamp, each in the order of its
    /// offsets. Without an end it ends at the topic's present end, and continues at a later call
    /// after more was appended.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for a start that was trimmed or never written; the end itself is fine.
    /// `InvalidArgument` for offsets if the topic has several partitions and the handle is for all
    /// of them. `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`.
    ///
    /// # Examples
    /// ```
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let orders = store.topic("orders")?;
    /// orders.extend(["coffee", "tea", "cake"])?;
    /// for record in orders.scan(1..)? {
    ///     let record = record?;
    ///     println!("{} {:?}", record.offset(), record.value());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan(&self, offsets: impl RangeBounds<u64>) -> Result<Scan> {
        let (from, end) = offset_bounds(&offsets);
        if from.is_none() && end.is_none() {
            let from = |partition| Ok(ScanRange { partition, from: self.first(partition)?, end });
            return self.scan_ranges(&self.handled().map(from).collect::<Result<Vec<_>>>()?);
        }
        let partition = self.one("scan a range of offsets")?;
        let from = from.map_or_else(|| self.first(partition), Ok)?;
        self.scan_ranges(&[ScanRange { partition, from, end }])
    }

    /// Read records by time. In each partition it begins with the first record at or after the start, and ends
    /// before the first record at or after the end.
    ///
    /// # Errors
    /// `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`, `SystemCallFailed`.
    pub fn scan_times(&self, times: impl RangeBounds<SystemTime>) -> Result<Scan> {
        let (from, end) =
            start_and_end(&times, |time| ns_since_1970(*time), |ns| ns.saturating_add(1));
        let range = |partition| {
            let from = from.map_or(Start::Earliest, Start::Time).offset(self, partition)?;
            let end = end.map(|ns| self.offset_at_time(partition, ns)).transpose()?.flatten();
            Ok(ScanRange { partition, from, end: end.map(|end| end.max(from)) })
        };
        self.scan_ranges(&self.handled().map(range).collect::<Result<Vec<_>>>()?)
    }

    /// Read records from a start on, and wait at the end for more. Start with `..` at the oldest record, with `7..`
    /// at an offset, or at a [`Start`] or a time. Without a [timeout](Follow::with_timeout) the iterator never ends.
    ///
    /// # Errors
    /// As [`Topic::scan`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let orders = store.topic("orders")?;
    /// orders.append(b"two coffees")?;
    /// for record in orders.follow(..)?.with_timeout(Some(Duration::from_millis(10))) {
    ///     println!("{:?}", record?.value()); // ends when nothing came for 10 ms
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn follow(&self, start: impl Into<Start>) -> Result<Follow> {
        let range = |(partition, from)| ScanRange { partition, from, end: None };
        let ranges: Vec<_> = start.into().offsets(self)?.into_iter().map(range).collect();
        self.follow_ranges(&ranges)
    }

    /// Get the lowest offset that is kept.
    ///
    /// # Errors
    /// `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`, `SystemCallFailed`; `InvalidArgument`
    /// if the topic has several partitions and the handle is for all of them.
    pub fn start_offset(&self) -> Result<u64> {
        self.first(self.one("ask for its start")?)
    }

    /// Get the offset after the last record that this handle [sees](Topic::with_visibility).
    ///
    /// # Errors
    /// As [`Topic::start_offset`].
    pub fn end_offset(&self) -> Result<u64> {
        self.end(self.one("ask for its end")?)
    }

    /// Get the offset after the last record that is known to be on disk.
    ///
    /// # Errors
    /// As [`Topic::start_offset`].
    pub fn durable_offset(&self) -> Result<u64> {
        self.durable(self.one("ask for its durable offset")?)
    }

    /// Count records: all with `..`, or those of one partition in a range of offsets. Offsets that compaction left
    /// without a record do not count.
    ///
    /// # Errors
    /// As [`Topic::start_offset`].
    pub fn count(&self, offsets: impl RangeBounds<u64>) -> Result<u64> {
        let (from, end) = offset_bounds(&offsets);
        if from.is_none() && end.is_none() {
            return self.handled().map(|partition| self.count_in(partition, 0, None)).sum();
        }
        let partition = self.one("count a range of offsets")?;
        self.count_in(partition, from.unwrap_or(0), end)
    }

    /// Find the offset of the first record at or after a time; `None` if all are older.
    ///
    /// # Errors
    /// As [`Topic::start_offset`].
    pub fn offset_at(&self, time: SystemTime) -> Result<Option<u64>> {
        self.offset_at_time(self.one("look a time up")?, ns_since_1970(time))
    }

    /// Delete the records before an offset, for every reader, and the files that no topic of the
    /// log needs any more. Records that were read before stay valid. It is on disk when this
    /// returns.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for an offset beyond the end: nothing changed. `NotWritable`, `SyncFailed`, `LockTimeout`,
    /// `TopicDeleted`, `NoSpace`, `SystemCallFailed`; `InvalidArgument` as for [`Topic::start_offset`].
    pub fn trim_before(&self, offset: u64) -> Result<()> {
        self.trim(&[(self.one("trim at an offset")?, offset)]).map(drop)
    }

    /// Delete the records before the first one at or after a time, in each partition.
    ///
    /// # Errors
    /// As [`Topic::trim_before`].
    pub fn trim_before_time(&self, time: SystemTime) -> Result<()> {
        self.trim(&Start::from(time).offsets(self)?).map(drop)
    }

    /// Wait until the records before an offset are on disk; false after the timeout. A store that
    /// is open for writing syncs; a reader waits for others to sync.
    ///
    /// # Errors
    /// As [`Topic::flush`]; `OffsetOutOfRange` for records that were not written yet; `InvalidArgument` as for
    /// [`Topic::start_offset`].
    pub fn wait_durable(&self, offset: u64, timeout: Option<Duration>) -> Result<bool> {
        let partition = self.one("wait for a record")?;
        let ended = self.wait_durable_in(partition, offset, timeout, &|| false)?;
        Ok(ended == Wait::News)
    }

    /// Require that the record gets this offset: no other append came since the end was read.
    /// Otherwise the append fails with `OffsetConflict`.
    ///
    /// # Errors
    /// `InvalidArgument` if the topic has several partitions and the handle is for all of them.
    pub fn expect_offset(&self, offset: u64) -> Result<Precondition<'static>> {
        self.expect_offset_in(self.one("expect an offset")?, offset)
    }

    /// Change which records expire. It is on disk when this returns, and nothing is deleted by this
    /// alone.
    ///
    /// # Errors
    /// `InvalidArgument` beyond the limits; `TopicDeleted`, `NotWritable`, `LockTimeout`, `CorruptData`, `NoSpace`, `SystemCallFailed`.
    pub fn set_retention(&self, change: &RetentionChange) -> Result<()> {
        self.store.configure_topic(self.name(), change, Some(self.settings.generation)).map(drop)
    }

    /// Get the texts that programs keep with the topic, by name, as they are in the store now.
    ///
    /// # Errors
    /// `TopicDeleted`, `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    ///
    /// # Examples
    /// ```
    /// # use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let orders = store.topic("orders")?;
    /// orders.set_properties(&[("content-type", Some("text/csv")), ("owner", None)])?;
    /// assert_eq!(orders.properties()?["content-type"], "text/csv");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn properties(&self) -> Result<BTreeMap<String, String>> {
        let of = &self.settings;
        let gone = || self.store.topic_gone(&of.name);
        let found = self.store.topic_settings(&of.name).map_err(|error| match error {
            Error::UnknownTopic { .. } => gone(),
            error => error,
        })?;
        if found.generation == of.generation { Ok(found.properties) } else { Err(gone()) }
    }

    /// Change properties of the topic: each that is named gets the value, or goes; the others stay.
    /// It is on disk when this returns, and all processes read it. All of them change at once, or
    /// none. Names have 1 to 128 bytes, and all properties together 16,384.
    ///
    /// # Errors
    /// `InvalidArgument` beyond these limits; as [`Topic::set_retention`].
    pub fn set_properties(&self, changes: &[(&str, Option<&str>)]) -> Result<()> {
        let of = Some(self.settings.generation);
        self.store.set_properties(self.name(), changes, of).map(drop)
    }

    /// Allow compaction to remove records of the topic, or forbid it. Readers of a compacted topic
    /// do not rely on each record.
    ///
    /// # Errors
    /// As [`Topic::set_retention`].
    pub fn set_compacted(&self, compacted: bool) -> Result<()> {
        let of = Some(self.settings.generation);
        self.store.mark_compacted(self.name(), compacted, of).map(drop)
    }
}

/// Return the first number of a range, and the first one after it. `number` turns a bound into a number,
/// `after` gives the next one.
fn start_and_end<T, N>(
    range: &impl RangeBounds<T>,
    number: impl Fn(&T) -> N,
    after: impl Fn(N) -> N,
) -> (Option<N>, Option<N>) {
    let from = match range.start_bound() {
        Bound::Included(first) => Some(number(first)),
        Bound::Excluded(before) => Some(after(number(before))),
        Bound::Unbounded => None,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => Some(after(number(last))),
        Bound::Excluded(end) => Some(number(end)),
        Bound::Unbounded => None,
    };
    (from, end)
}

fn offset_bounds(offsets: &impl RangeBounds<u64>) -> (Option<u64>, Option<u64>) {
    start_and_end(offsets, |offset| *offset, |offset| offset.saturating_add(1))
}
