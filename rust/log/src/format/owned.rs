//! The header of a file that belongs to a store: what it is, and whose.
//!
//! 64 bytes that never change, equal for all such files but for their magic; what follows is each
//! file's own. Layout: `docs/FORMAT.md`, "Wake page" and "Consumer".

use super::checksum::crc32;
use super::{Decoded, Malformed, VERSION, put, u32_at};

/// Bytes of it.
pub const HEADER_LEN: usize = 64;

/// What is said of a header that is none, damaged, or another store's.
#[derive(Clone, Copy, Debug)]
pub struct Complaints {
    /// Another magic.
    pub no_such: &'static str,
    /// Another checksum.
    pub damaged: &'static str,
    /// Another store's id.
    pub foreign: &'static str,
}

/// Lay out the header of a store's file.
pub fn encode_header(magic: [u8; 8], store: [u8; 16]) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    put(&mut out, 0, &magic);
    put(&mut out, 8, &VERSION.to_le_bytes());
    put(&mut out, 16, &store);
    let crc = crc32(&out[..HEADER_LEN - 4]);
    put(&mut out, HEADER_LEN - 4, &crc.to_le_bytes());
    out
}

/// Whose a header says that it is, right or wrong.
pub fn store_in(bytes: &[u8]) -> [u8; 16] {
    bytes.get(16..).and_then(|id| id.first_chunk().copied()).unwrap_or_default()
}

/// Check the header of a store's file.
///
/// # Errors
/// `Damaged` when it is torn or another store's, `Newer` for a newer version.
pub fn check_header(
    bytes: &[u8],
    magic: [u8; 8],
    store: [u8; 16],
    say: &Complaints,
) -> Decoded<()> {
    if bytes.len() < HEADER_LEN || bytes[..8] != magic {
        return Err(Malformed::Damaged(say.no_such));
    }
    if crc32(&bytes[..HEADER_LEN - 4]) != u32_at(bytes, HEADER_LEN - 4) {
        return Err(Malformed::Damaged(say.damaged));
    }
    if u32_at(bytes, 8) > VERSION {
        return Err(Malformed::Newer(u32_at(bytes, 8)));
    }
    if bytes[16..32] != store {
        return Err(Malformed::Damaged(say.foreign));
    }
    Ok(())
}
