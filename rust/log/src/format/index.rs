//! The sparse index beside a segment: where to start looking.
//!
//! A header of 64 bytes comes first, then entries of 32, in the order of their positions. The first
//! entry whose position is zero ends it. The index is a hint: readers believe an entry only after
//! they verified the block header that it points at. So neither a torn nor a hostile index can do
//! more than cost time. Layout: `docs/FORMAT.md`, "Index".

use super::checksum::{crc32_from, seed};
use super::{DecodeError, Decoded, owned, put, u32_at, u64_at};

/// First bytes of every index.
pub const MAGIC: [u8; 8] = *b"FALAJIDX";
/// Bytes of the header; entries begin there.
pub const HEADER_LEN: usize = owned::HEADER_LEN;
/// Bytes of an entry.
pub const ENTRY_LEN: usize = 32;
/// About how many bytes of the segment one entry covers.
pub const STRIDE: u64 = 4096;

/// Lay out the header of a segment's index.
pub fn encode_header(log: [u8; 16], sequence: u64, salt: u64) -> [u8; HEADER_LEN] {
    let mut own = [0; 16];
    put(&mut own, 0, &sequence.to_le_bytes());
    put(&mut own, 8, &salt.to_le_bytes());
    owned::encode_header(MAGIC, log, &own)
}

/// Check that bytes are the header of this segment's index.
///
/// # Errors
/// `Damaged` when they are torn or another segment's.
pub fn check_header(bytes: &[u8], log: [u8; 16], sequence: u64, salt: u64) -> Decoded<()> {
    if bytes.len() < HEADER_LEN || bytes[..HEADER_LEN] != encode_header(log, sequence, salt) {
        return Err(DecodeError::Damaged("not the index of this segment"));
    }
    Ok(())
}

/// Return the bytes of an index file for a segment of this many bytes.
pub const fn file_len(segment_bytes: u64) -> u64 {
    HEADER_LEN as u64 + (segment_bytes / STRIDE + 2) * ENTRY_LEN as u64
}

/// One place to start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Topic number.
    pub topic: u32,
    /// First offset of the block.
    pub offset: u64,
    /// Position of the block, or of its group's head, in the segment.
    pub position: u64,
    /// Highest timestamp of the topic's records before this block, over the whole log, nanoseconds
    /// since 1970; `i64::MIN` without such records.
    pub highest_ns: i64,
}

impl IndexEntry {
    /// Lay it out for the index of the segment with this salt.
    #[inline]
    pub fn encode(&self, salt: u64) -> [u8; ENTRY_LEN] {
        let mut out = [0; ENTRY_LEN];
        put(&mut out, 4, &self.topic.to_le_bytes());
        put(&mut out, 8, &self.offset.to_le_bytes());
        put(&mut out, 16, &self.position.to_le_bytes());
        put(&mut out, 24, &self.highest_ns.to_le_bytes());
        let crc = crc32_from(seed(salt), &out[4..]);
        put(&mut out, 0, &crc.to_le_bytes());
        out
    }

    /// Read an entry; `None` for one that was never written, or is corrupt.
    pub fn decode(bytes: &[u8], salt: u64) -> Option<Self> {
        if bytes.len() < ENTRY_LEN
            || crc32_from(seed(salt), &bytes[4..ENTRY_LEN]) != u32_at(bytes, 0)
        {
            return None;
        }
        let word = |i: usize| u64_at(bytes, 8 * i);
        Self::believe([word(0), word(1), word(2), word(3)])
    }

    /// Read an entry without checking it; `None` for one that was never written.
    #[inline(always)]
    pub fn believe([first, offset, position, highest]: [u64; ENTRY_LEN / 8]) -> Option<Self> {
        let (topic, highest_ns) = ((first >> 32) as u32, highest as i64);
        (position != 0).then_some(Self { topic, offset, position, highest_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::{laid_out, sealed};

    #[test]
    fn entries_come_back_and_flipped_ones_do_not() {
        let entry = IndexEntry { topic: 3, offset: 1 << 40, position: 4096, highest_ns: -7 };
        let bytes = entry.encode(11);
        assert_eq!(IndexEntry::decode(&bytes, 11), Some(entry));
        assert_eq!(IndexEntry::decode(&bytes, 12), None);
        assert_eq!(IndexEntry::decode(&[0; ENTRY_LEN], 11), None);
        for bit in 0..ENTRY_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(IndexEntry::decode(&flipped, 11), None);
        }
    }

    #[test]
    fn an_index_of_another_segment_is_refused() {
        let header = encode_header([1; 16], 5, 6);
        assert!(check_header(&header, [1; 16], 5, 6).is_ok());
        assert!(check_header(&header, [1; 16], 5, 7).is_err());
        assert!(check_header(&header, [2; 16], 5, 6).is_err());
        assert!(check_header(&header[..60], [1; 16], 5, 6).is_err());
    }

    #[test]
    fn the_header_stands_where_the_format_says() {
        let (sequence, salt) = (0x8807_8605_8403_8201, 0x1817_9615_9413_9211);
        let header = encode_header(*b"generation of it", sequence, salt);
        let expected = sealed(
            64,
            &[
                (0, b"FALAJIDX"),
                (8, &[2]),
                (16, b"generation of it"),
                (32, b"\x01\x82\x03\x84\x05\x86\x07\x88"),
                (40, b"\x11\x92\x13\x94\x15\x96\x17\x18"),
            ],
        );
        assert_eq!(header.as_slice(), expected);
        let file = [expected, vec![7; 32]].concat();
        assert_eq!(check_header(&file, *b"generation of it", sequence, salt), Ok(()));
    }

    #[test]
    fn an_entry_stands_where_the_format_says() {
        let entry = IndexEntry {
            topic: 0x9413_9211,
            offset: 0xa827_a625_a423_a221,
            position: 0xb837_b635_b433_b231,
            highest_ns: i64::from_le_bytes(*b"A\xc2C\xc4E\xc6G\xc8"),
        };
        let salt = 0x8807_8605_8403_8201;
        let fields: [(usize, &[u8]); 4] = [
            (4, b"\x11\x92\x13\x94"),
            (8, b"\x21\xa2\x23\xa4\x25\xa6\x27\xa8"),
            (16, b"\x31\xb2\x33\xb4\x35\xb6\x37\xb8"),
            (24, b"\x41\xc2\x43\xc4\x45\xc6\x47\xc8"),
        ];
        let covered = laid_out(32, &fields);
        let sum = crc32_from(0, &[b"\x01\x82\x03\x84\x05\x86\x07\x88", &covered[4..]].concat());
        let expected = [&sum.to_le_bytes(), &covered[4..]].concat();
        assert_eq!(entry.encode(salt).as_slice(), expected);
        assert_eq!(IndexEntry::decode(&[&expected[..], &[7; 32]].concat(), salt), Some(entry));
        assert_eq!(IndexEntry::decode(&expected[..31], salt), None, "cut off");
    }

    #[test]
    fn an_entry_whose_position_is_0_ends_the_index_whatever_else_it_says() {
        let entry = |position| IndexEntry { topic: 3, offset: 4, position, highest_ns: 5 };
        assert_eq!(IndexEntry::decode(&entry(0).encode(11), 11), None);
        assert_eq!(IndexEntry::decode(&entry(1).encode(11), 11), Some(entry(1)));
    }

    #[test]
    fn an_index_has_room_for_an_entry_each_4096_bytes_and_two_more() {
        let lengths = [65_536, 69_632, 1_048_576].map(file_len);
        assert_eq!(lengths, [64 + 18 * 32, 64 + 19 * 32, 64 + 258 * 32]);
        assert_eq!(file_len(34_359_734_272), 64 + 8_388_609 * 32, "the largest segment");
    }
}
