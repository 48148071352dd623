//! What the tests of all layouts lay bytes out with.

use super::checksum::crc32;

/// Zeros but for these fields, each at its place. Not by the engine's own `put`, which is under test.
pub fn laid_out(len: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (at, field) in fields {
        bytes[*at..*at + field.len()].copy_from_slice(field);
    }
    bytes
}

/// The same with the CRC-32 of all that stands before the last four bytes in these.
pub fn sealed(len: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = laid_out(len - 4, fields);
    bytes.extend(crc32(&bytes).to_le_bytes());
    bytes
}
