//! The lane of a record: a number made of its key, for queues that keep the order of keys.
//!
//! Owns that number. Invariant: records of one key have one lane, and a record without a key has none.

use crate::error::{Error, Result};
use crate::format::checksum::crc32;
use crate::topic::Topic;

/// Compute the lane of a record: never 0 for one with a key. `None` where compaction removed it.
pub(super) fn lane_of(topic: &Topic, offset: u64) -> Result<Option<u64>> {
    match topic.get_in(0, offset) {
        Ok(record) => Ok(Some(record.key().map_or(0, |key| 1 << 32 | u64::from(crc32(key))))),
        Err(Error::RecordCompacted { .. }) => Ok(None),
        // The next read, before delivery, finds that it is deleted.
        Err(Error::OffsetOutOfRange { .. }) => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

/// Compute the lane while the queue is rebuilt: a corrupt record keeps the lane that it was known to
/// have, or none. Otherwise no process could open the queue to dead-letter that job. So does one that
/// compaction removed: readers of its old file may still have it.
pub(super) fn lane_or(topic: &Topic, offset: u64, known: u64) -> Result<u64> {
    match lane_of(topic, offset) {
        Err(Error::CorruptData { .. }) => Ok(known),
        lane => Ok(lane?.unwrap_or(known)),
    }
}
