//! The partition of a key.
//!
//! A promise of the format, though no byte on disk says it. Records of one key have an order only
//! while all appends, in any version and any language, send the key to the same partition. It is
//! the partitioner that librdkafka calls `consistent`, so that its clients and this crate agree.
//! Python and Spark call this function. The vectors of the test below never change.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::format::checksum::crc32;
use crate::format::record::NewRecord;

use super::Topic;

/// The partition of the next record without a key, of any topic.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Return the partition of a key: the CRC-32 (IEEE 802.3) of its bytes, modulo the number of
/// partitions. Without partitions, 0.
#[must_use]
pub fn partition_for_key(key: &[u8], partitions: u32) -> u32 {
    crc32(key).checked_rem(partitions).unwrap_or(0)
}

impl Topic {
    /// Return the partition of a key, see [`partition_for_key`].
    pub fn partition_of(&self, key: &[u8]) -> u32 {
        partition_for_key(key, self.partitions())
    }

    /// Return the partition of a record by its key; records without one take turns.
    #[inline]
    pub(crate) fn partition_for(&self, record: &NewRecord<'_>) -> u32 {
        match (self.only, record.key, self.partitions()) {
            (Some(only), ..) => only,
            (None, _, 1) => 0,
            (None, Some(key), partitions) => partition_for_key(key, partitions),
            (None, None, partitions) => TURN.fetch_add(1, Ordering::Relaxed) % partitions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_of_a_key_is_a_promise_to_all_who_append() {
        // zlib's crc32 of the key, modulo the partitions, as librdkafka's `consistent` takes it.
        let vectors: [(&[u8], u32, [u32; 4]); 6] = [
            (b"", 0x00000000, [0, 0, 0, 0]),
            (b"a", 0xe8b7be43, [0, 0, 3, 907]),
            (b"user-42", 0x7d06b873, [0, 1, 3, 435]),
            (b"123456789", 0xcbf43926, [0, 2, 2, 262]),
            (b"\x00\xff\x80", 0x81dda740, [0, 2, 0, 136]),
            (b"Stra\xc3\x9fe", 0x47826b51, [0, 2, 1, 489]),
        ];
        for (key, crc, expected) in vectors {
            assert_eq!(crc32(key), crc, "{key:?}");
            let found = [1, 3, 4, 1000].map(|partitions| partition_for_key(key, partitions));
            assert_eq!(found, expected, "{key:?}");
        }
        assert_eq!(partition_for_key(b"a", 0), 0);
    }
}
