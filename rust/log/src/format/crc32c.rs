//! CRC-32C (Castagnoli), by the machine's own instruction if it has one.
//!
//! Owns the checksum of block headers. A header has 32 to 68 bytes, for which the instruction takes
//! a few nanoseconds. Its polynomial finds every change of one or two bits in so few bytes. At run
//! time it checks for the instruction; without one it uses a table. Bodies keep the CRC-32 of
//! [`super::checksum`], which is faster over many bytes. See `docs/FORMAT.md`, "Checksums".
#![allow(unsafe_code, reason = "the machine's instructions are behind functions that need them")]

use super::u64_at;

/// The polynomial with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut value = 0;
    while value < 256 {
        let mut crc = value as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[value] = crc;
        value += 1;
    }
    table
};

/// Compute a CRC-32C that continues from an earlier one, or from 0.
#[inline(always)]
pub fn crc32c_from(seed: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the machine has the instruction: the line above checked it.
        return unsafe { by_sse42(seed, bytes) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    if std::arch::is_aarch64_feature_detected!("crc") {
        // SAFETY: the machine has the instruction: the line above checked it.
        return unsafe { by_armv8(seed, bytes) };
    }
    by_table(seed, bytes)
}

/// # Safety
/// The machine must have SSE4.2.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
#[allow(unused_unsafe, reason = "newer compilers call the instructions safe in here")]
unsafe fn by_sse42(seed: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    let mut crc = u64::from(!seed);
    for word in words {
        // SAFETY: the caller knows that the machine has the instruction.
        crc = unsafe { _mm_crc32_u64(crc, u64_at(word, 0)) };
    }
    let mut crc = crc as u32;
    for byte in rest {
        // SAFETY: the caller knows that the machine has the instruction.
        crc = unsafe { _mm_crc32_u8(crc, *byte) };
    }
    !crc
}

/// # Safety
/// The machine must have the CRC extension.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[target_feature(enable = "crc")]
#[allow(unused_unsafe, reason = "newer compilers call the instructions safe in here")]
unsafe fn by_armv8(seed: u32, bytes: &[u8]) -> u32 {
    use std::arch::aarch64::{__crc32cb, __crc32cd};
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    let mut crc = !seed;
    for word in words {
        // SAFETY: the caller knows that the machine has the instruction.
        crc = unsafe { __crc32cd(crc, u64_at(word, 0)) };
    }
    for byte in rest {
        // SAFETY: the caller knows that the machine has the instruction.
        crc = unsafe { __crc32cb(crc, *byte) };
    }
    !crc
}

fn by_table(seed: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!seed, |crc, byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_the_known_one_and_goes_on_where_another_ended() {
        // RFC 3720, B.4, and the usual nine digits.
        assert_eq!(crc32c_from(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_from(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c_from(0, &[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c_from(crc32c_from(0, b"1234"), b"56789"), 0xe306_9283);
        assert_eq!(crc32c_from(7, b""), 7);
    }

    #[test]
    fn the_instruction_and_the_table_agree_on_every_length() {
        let bytes: Vec<u8> = (0..200u32).map(|at| (at * 37 / 4) as u8).collect();
        for from in 0..9 {
            for to in from..bytes.len() {
                let (seed, piece) = ((to as u32).wrapping_mul(0x9e37_79b9), &bytes[from..to]);
                assert_eq!(crc32c_from(seed, piece), by_table(seed, piece), "{from}..{to}");
            }
        }
    }
}
