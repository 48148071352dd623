//! The lane of a record: a number made of its key, for queues that keep the order of keys.
//!
//! Owns that number. Invariant: records of one key have one lane, and what has no key is in none.

use crate::error::{Error, Result};
use crate::format::checksum::crc32;
use crate::topic::Topic;

/// The lane of a record: never 0 for one with a key.
pub(super) fn lane_of(topic: &Topic, offset: u64) -> Result<u64> {
    match topic.get_in(0, offset) {
        Ok(record) => Ok(record.key().map_or(0, |key| 1 << 32 | u64::from(crc32(key)))),
        // It is found to be gone when it is read to be handed out.
        Err(Error::OffsetOutOfRange { .. } | Error::RecordCompacted { .. }) => Ok(0),
        Err(error) => Err(error),
    }
}

/// The same where the queue is looked over: a damaged record keeps the lane that it was known to have,
/// or none, since nobody could open the queue otherwise, to give that job up.
pub(super) fn lane_or(topic: &Topic, offset: u64, known: u64) -> Result<u64> {
    match lane_of(topic, offset) {
        Err(Error::CorruptData { .. }) => Ok(known),
        lane => lane,
    }
}
