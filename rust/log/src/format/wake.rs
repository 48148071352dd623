//! The page on which those sleep who wait for anything in a store.
//!
//! A header that never changes, then the counter that is the store's bell, on a cache line of its own;
//! who sleeps on it says so in the control pages of the logs that it waits for. Like a log's control it
//! is derived: it can be made anew while nobody writes. Layout:
//! `docs/FORMAT.md`, "Wake page".

use super::checksum::crc32;
use super::{Decoded, Malformed, VERSION, put, u32_at};

/// First bytes of the file.
pub const MAGIC: [u8; 8] = *b"FALAJWAK";
/// Bytes of the file.
pub const LEN: u64 = 4096;
/// Bytes of the part that never changes.
pub const HEADER_LEN: usize = 64;

/// Positions of words, eight bytes each.
pub mod at {
    /// Counter on whose low half those sleep who wait for several logs.
    pub const COUNTER: u64 = 64;
}

const _: () = assert!(at::COUNTER >= HEADER_LEN as u64 && at::COUNTER + 8 <= LEN);

/// Lay out the part that never changes: whose page it is.
pub fn encode_header(store: [u8; 16]) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    put(&mut out, 0, &MAGIC);
    put(&mut out, 8, &VERSION.to_le_bytes());
    put(&mut out, 16, &store);
    let crc = crc32(&out[..HEADER_LEN - 4]);
    put(&mut out, HEADER_LEN - 4, &crc.to_le_bytes());
    out
}

/// Check the part that never changes.
///
/// # Errors
/// `Damaged` when it is torn or another store's, `Newer` for a newer version.
pub fn check_header(bytes: &[u8], store: [u8; 16]) -> Decoded<()> {
    if bytes.len() < HEADER_LEN || bytes[..8] != MAGIC {
        return Err(Malformed::Damaged("not a wake page"));
    }
    if crc32(&bytes[..HEADER_LEN - 4]) != u32_at(bytes, HEADER_LEN - 4) {
        return Err(Malformed::Damaged("the wake page's checksum does not match"));
    }
    if u32_at(bytes, 8) > VERSION {
        return Err(Malformed::Newer(u32_at(bytes, 8)));
    }
    if bytes[16..32] != store {
        return Err(Malformed::Damaged("the wake page of another store"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_page_is_its_own_stores_only() {
        let header = encode_header([3; 16]);
        assert_eq!(check_header(&header, [3; 16]), Ok(()));
        assert!(check_header(&header, [4; 16]).is_err());
        for bit in 0..HEADER_LEN * 8 {
            let mut flipped = header;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check_header(&flipped, [3; 16]).is_err());
        }
    }

    #[test]
    fn a_wake_page_that_is_cut_off_newer_or_something_else_is_told_apart() {
        let header = encode_header([3; 16]);
        let resealed = |at: usize, what: &[u8]| {
            let mut bytes = header;
            put(&mut bytes, at, what);
            let crc = crc32(&bytes[..HEADER_LEN - 4]);
            put(&mut bytes, HEADER_LEN - 4, &crc.to_le_bytes());
            check_header(&bytes, [3; 16])
        };
        let no_page = Err(Malformed::Damaged("not a wake page"));
        assert_eq!(check_header(&header[..HEADER_LEN - 1], [3; 16]), no_page);
        assert_eq!(resealed(0, b"FALAJCTL"), no_page);
        assert_eq!(resealed(8, &(VERSION + 1).to_le_bytes()), Err(Malformed::Newer(VERSION + 1)));
        assert_eq!(resealed(8, &0u32.to_le_bytes()), Ok(()));
    }
}
