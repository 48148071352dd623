//! CRC-32 (IEEE 802.3, the one of zlib), plain and seeded.
//!
//! The seed is derived from a segment's salt. So bytes of another segment, or from an earlier use
//! of the same disk blocks, fail the check. See `docs/FORMAT.md`, "Checksums".

use crate::canary::{Canary, planted};

/// Compute the CRC-32 of bytes.
#[inline(always)]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32_from(0, bytes)
}

/// Compute a CRC-32 that continues from an earlier one: `crc32_from(crc32(a), b) == crc32(ab)`.
#[inline(always)]
pub fn crc32_from(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

/// Compute the CRC-32 of bytes that lie in two places. A copy of both into one would be read back
/// while it is still being stored. The machine then waits longer than the checksum takes.
#[inline(always)]
pub fn crc32_of(first: &[u8], then: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(first);
    hasher.update(then);
    hasher.finalize()
}

/// The common start of many checksums. It detects the machine's instructions once, which for a few
/// bytes is a good part of the work.
#[derive(Clone, Debug)]
pub struct SeededCrc(crc32fast::Hasher);

impl SeededCrc {
    /// Start from an earlier checksum, or 0.
    pub fn new(seed: u32) -> Self {
        Self(crc32fast::Hasher::new_with_initial(seed))
    }

    /// Compute as [`crc32_from`].
    #[inline(always)]
    pub fn crc32(&self, bytes: &[u8]) -> u32 {
        self.crc32_of(&[], bytes)
    }

    /// Compute the CRC-32 of bytes that lie in two places, as [`crc32_of`].
    #[inline(always)]
    pub fn crc32_of(&self, first: &[u8], then: &[u8]) -> u32 {
        let mut hasher = self.0.clone();
        if !first.is_empty() {
            hasher.update(first);
        }
        hasher.update(then);
        hasher.finalize()
    }
}

/// Derive the seed from a salt.
#[inline]
pub fn seed(salt: u64) -> u32 {
    if planted(Canary::CrcWithoutSalt) {
        return 0;
    }
    crc32(&salt.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_of_two_pieces_is_that_of_both_together() {
        let bytes: Vec<u8> = (0..200u8).collect();
        for cut in [0, 1, 2, 16, 199, 200] {
            let (first, then) = bytes.split_at(cut);
            assert_eq!(crc32_of(first, then), crc32(&bytes));
            assert_eq!(SeededCrc::new(5).crc32_of(first, then), crc32_from(5, &bytes));
        }
    }

    #[test]
    fn a_checksum_is_the_known_one_and_goes_on_where_another_ended() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32_from(crc32(b"1234"), b"56789"), 0xcbf4_3926);
        assert_eq!(SeededCrc::new(crc32(b"1234")).crc32(b"56789"), 0xcbf4_3926);
        assert_eq!(seed(0x0102), crc32(&[2, 1, 0, 0, 0, 0, 0, 0]));
        // The value that zlib computes from a salt and the same nine bytes.
        assert_eq!(crc32_from(seed(0x0123_4567_89ab_cdef), b"123456789"), 0x8e5f_cc26);
    }
}
