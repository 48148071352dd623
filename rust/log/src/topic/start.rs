//! Where a reader begins.

use std::ops::{RangeFrom, RangeFull};
use std::time::SystemTime;

use super::Topic;
use crate::error::{Error, Result};
use crate::format::record::ns_since_1970;

/// Where a [`Follow`](super::Follow), or a consumer group without a committed offset, begins in
/// each partition.
///
/// `..`, an offset as `7..`, and a [`SystemTime`] turn into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// With the oldest record that is kept.
    Earliest,
    /// After the newest.
    Latest,
    /// With this offset.
    Offset(u64),
    /// With this many existing records before the end, or with the oldest if there are fewer.
    Last(u64),
    /// With the first record at or after a time, nanoseconds since 1970; after the newest if all
    /// are older.
    Time(i64),
}

impl Start {
    /// Find the offset that it means now.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for a deleted offset, or one beyond the end; `CorruptData`,
    /// `SystemCallFailed`.
    #[doc(hidden)]
    pub fn offset(self, topic: &Topic, partition: u32) -> Result<u64> {
        let (first, end) = (topic.first(partition)?, topic.end(partition)?);
        match self {
            Self::Earliest => Ok(first),
            Self::Latest => Ok(end),
            Self::Offset(offset) if (first..=end).contains(&offset) => Ok(offset),
            Self::Offset(offset) => Err(topic.out_of_range(partition, offset.into())?),
            Self::Last(records) => topic.start_of_last(partition, records, Some(end)),
            Self::Time(ns) => Ok(topic.offset_at_time(partition, ns)?.unwrap_or(end).max(first)),
        }
    }

    /// Find the offsets in several partitions. An offset belongs to one.
    pub(super) fn offsets(self, topic: &Topic) -> Result<Vec<(u32, u64)>> {
        let partitions = topic.handled();
        if let (Self::Offset(_), true) = (self, partitions.len() > 1) {
            return Err(topic.several("start at an offset"));
        }
        partitions.map(|partition| Ok((partition, self.offset(topic, partition)?))).collect()
    }
}

impl From<RangeFull> for Start {
    fn from(_: RangeFull) -> Self {
        Self::Earliest
    }
}

impl From<RangeFrom<u64>> for Start {
    fn from(range: RangeFrom<u64>) -> Self {
        Self::Offset(range.start)
    }
}

impl From<SystemTime> for Start {
    fn from(time: SystemTime) -> Self {
        Self::Time(ns_since_1970(time))
    }
}

impl Topic {
    /// Make the error of a call that needs one partition.
    #[cold]
    pub(super) fn several(&self, what: &str) -> Error {
        let (name, partitions) = (self.name(), self.partitions());
        Error::invalid(format!(
            "topic {name:?} has {partitions} partitions, each with offsets of its own; to {what}, take one: \
             topic.partition(0)"
        ))
    }
}
