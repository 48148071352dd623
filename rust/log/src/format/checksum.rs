//! CRC-32 (IEEE 802.3, the one of zlib), plain and seeded.
//!
//! Seeding with a segment's salt is what makes bytes of another segment, or of an earlier life of
//! the same disk blocks, fail the check. See `docs/FORMAT.md`, "Checksums".

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

/// The seed that a salt stands for.
#[inline]
pub fn seed(salt: u64) -> u32 {
    crc32(&salt.to_le_bytes())
}
