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

/// Where many checksums start from. What the machine can do for them is asked once, here, which for
/// a few bytes is a good part of the work.
#[derive(Clone, Debug)]
pub struct Start(crc32fast::Hasher);

impl Start {
    /// Start from an earlier checksum, or 0.
    pub fn new(seed: u32) -> Self {
        Self(crc32fast::Hasher::new_with_initial(seed))
    }

    /// As [`crc32_from`].
    #[inline(always)]
    pub fn crc32(&self, bytes: &[u8]) -> u32 {
        let mut hasher = self.0.clone();
        hasher.update(bytes);
        hasher.finalize()
    }
}

/// The seed that a salt stands for.
#[inline]
pub fn seed(salt: u64) -> u32 {
    crc32(&salt.to_le_bytes())
}
