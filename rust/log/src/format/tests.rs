//! Tests of the integers that all layouts share, and helpers that lay bytes out for other tests.

use super::checksum::crc32;
use super::{put, u32_at, u64_at, u64_in};

/// Lay out zeros, except for these fields, each at its place. This does not use the engine's own
/// `put`, which is under test.
pub fn laid_out(len: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (at, field) in fields {
        bytes[*at..*at + field.len()].copy_from_slice(field);
    }
    bytes
}

/// Lay out the same, with the CRC-32 of all other bytes in the last four.
pub fn sealed(len: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = laid_out(len - 4, fields);
    bytes.extend(crc32(&bytes).to_le_bytes());
    bytes
}

/// Convert hexadecimal digits to bytes; spaces only group them.
pub fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Ten bytes that all differ; some have their lowest bits set, and others not.
const BYTES: [u8; 10] = [0x81, 0x12, 0xa3, 0x34, 0xc5, 0x56, 0xe7, 0x78, 0x99, 0x1a];

#[test]
fn integers_are_little_endian_and_begin_where_they_are_looked_for() {
    assert_eq!([0, 3, 6].map(|at| u32_at(&BYTES, at)), [0x34a3_1281, 0xe756_c534, 0x1a99_78e7]);
    let at_0_and_2 = [0x78e7_56c5_34a3_1281, 0x1a99_78e7_56c5_34a3];
    assert_eq!([0, 2].map(|at| u64_at(&BYTES, at)), at_0_and_2);
    assert_eq!([0, 2].map(|at| u64_in(&BYTES, at)), at_0_and_2);
}

#[test]
fn a_word_that_does_not_fit_what_there_is_is_0() {
    for at in [3, 9, 10, 11, u64::MAX] {
        assert_eq!(u64_in(&BYTES, at), 0, "at {at} of ten bytes");
    }
    assert_eq!(u64_in(&[], 0), 0);
}

#[test]
fn what_is_written_stands_in_its_place_and_nothing_else_changes() {
    let mut bytes = BYTES;
    put(&mut bytes, 3, b"xyz");
    assert_eq!(bytes, *b"\x81\x12\xa3xyz\xe7\x78\x99\x1a");
    put(&mut bytes, 9, b"!");
    assert_eq!(bytes, *b"\x81\x12\xa3xyz\xe7\x78\x99!");
    put(&mut bytes, 10, b"");
    assert_eq!(bytes, *b"\x81\x12\xa3xyz\xe7\x78\x99!");
}
