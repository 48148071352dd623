//! CRC-32 (IEEE 802.3, the one of zlib), plain and seeded.
//!
//! Seeding with a segment's salt is what makes bytes of another segment, or of an earlier life of
//! the same disk blocks, fail the check. See `docs/FORMAT.md`, "Checksums".

use crate::canary::{Canary, planted};

/// CRC-32 of bytes.
#[inline(always)]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32_from(0, bytes)
}

/// CRC-32 that continues from an earlier one: `crc32_from(crc32(a), b) == crc32(ab)`.
#[inline(always)]
pub fn crc32_from(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

/// CRC-32 of bytes that lie in two places. A copy of both in one would be read back while it is still
/// being stored, which makes the machine wait longer than the checksum takes.
#[inline(always)]
pub fn crc32_of(first: &[u8], then: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(first);
    hasher.update(then);
    hasher.finalize()
}

/// Where many checksums start from. What the machine can do for them is asked once, here, which for
/// a few bytes is a good part of the work.
#[derive(Clone, Debug)]
pub struct SeededCrc(crc32fast::Hasher);

impl SeededCrc {
    /// Start from an earlier checksum, or 0.
    pub fn new(seed: u32) -> Self {
        Self(crc32fast::Hasher::new_with_initial(seed))
    }

    /// As [`crc32_from`].
    #[inline(always)]
    pub fn crc32(&self, bytes: &[u8]) -> u32 {
        self.crc32_of(&[], bytes)
    }

    /// Of bytes that lie in two places, as [`crc32_of`].
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

/// What four bytes change in a checksum that was taken with zeros in their place and `BEHIND` more
/// bytes behind them: the two are combined by `^`, a CRC being linear. So a checksum of bytes that hold
/// another one need not wait for it.
#[derive(Debug)]
pub struct Inset([[u32; 256]; 4]);

impl Inset {
    /// For four bytes before this many others.
    pub const fn before(behind: usize) -> Self {
        // Bit by bit first, from the last bit of the fourth byte to the first of the first.
        let mut bits = [0u32; 32];
        let mut bit = 0;
        while bit < 32 {
            let mut crc = 1u32 << (bit % 8);
            let mut left = 8 * (behind + 4 - bit / 8);
            while left > 0 {
                crc = (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
                left -= 1;
            }
            bits[bit] = crc;
            bit += 1;
        }
        let mut table = [[0u32; 256]; 4];
        let mut cell = 0;
        while cell < 32 * 256 {
            let (bit, value) = (cell / 256, cell % 256);
            if (value >> (bit % 8)) & 1 == 1 {
                table[bit / 8][value] ^= bits[bit];
            }
            cell += 1;
        }
        Self(table)
    }

    /// What to combine with the checksum, for these bytes.
    #[inline(always)]
    pub fn of(&self, four: u32) -> u32 {
        let [first, second, third, fourth] = four.to_le_bytes().map(usize::from);
        self.0[0][first] ^ self.0[1][second] ^ self.0[2][third] ^ self.0[3][fourth]
    }
}

/// The seed that a salt stands for.
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
    fn an_inset_turns_the_checksum_without_four_bytes_into_the_one_with_them() {
        const INSET: Inset = Inset::before(20);
        for (i, four) in [0, 1, 0x8000_0000, 0xdead_beef, u32::MAX].into_iter().enumerate() {
            let mut bytes: [u8; 32] = std::array::from_fn(|at| (at * 37 + i) as u8);
            bytes[8..12].fill(0);
            let without = crc32_from(77, &bytes);
            bytes[8..12].copy_from_slice(&four.to_le_bytes());
            assert_eq!(without ^ INSET.of(four), crc32_from(77, &bytes));
        }
    }

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
    fn an_inset_is_right_before_any_number_of_bytes() {
        for behind in [0, 1, 3, 4, 20, 21, 300] {
            let inset = Inset::before(behind);
            for four in [1, 0x100, 0x0001_0000, 0x8000_0000, 0x1234_5678, u32::MAX] {
                let mut bytes = vec![7; 5 + 4 + behind];
                bytes[5..9].fill(0);
                let without = crc32(&bytes);
                bytes[5..9].copy_from_slice(&four.to_le_bytes());
                assert_eq!(without ^ inset.of(four), crc32(&bytes), "{four:#x} before {behind}");
            }
        }
    }

    #[test]
    fn a_checksum_is_the_known_one_and_goes_on_where_another_ended() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32_from(crc32(b"1234"), b"56789"), 0xcbf4_3926);
        assert_eq!(SeededCrc::new(crc32(b"1234")).crc32(b"56789"), 0xcbf4_3926);
        assert_eq!(seed(0x0102), crc32(&[2, 1, 0, 0, 0, 0, 0, 0]));
        // What zlib makes of a salt and the same nine bytes.
        assert_eq!(crc32_from(seed(0x0123_4567_89ab_cdef), b"123456789"), 0x8e5f_cc26);
    }
}
