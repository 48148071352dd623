//! The shared page on which waiting processes of a store sleep.
//!
//! It has a header that never changes. Then comes the counter that is the store's bell. The
//! word after it names the process that ships the store. Each has a cache line of its own. A process that sleeps on
//! the bell says so in the control pages of the logs that it waits for. Like a log's control page it is derived: it can be made again while no process
//! writes. Layout: `docs/FORMAT.md`, "Wake page".

pub use super::owned::HEADER_LEN;
use super::{Decoded, owned};

/// First bytes of the file.
pub const MAGIC: [u8; 8] = *b"FALAJWAK";
/// Bytes of the file.
pub const LEN: u64 = 4096;

/// The error for a page that is too short or too long.
pub const OTHER_LEN: &str = "not as long as a wake page";

/// Positions of words, eight bytes each.
pub mod at {
    /// Counter on whose low half processes sleep that wait for several logs.
    pub const COUNTER: u64 = 64;
    /// Which process ships the store, by `crate::shipper`.
    pub const SHIPPER: u64 = 128;
}

const _: () = assert!(at::COUNTER >= HEADER_LEN as u64 && at::SHIPPER + 8 <= LEN);

/// Lay out the part that never changes: the id of the page's store.
pub fn encode_header(store: [u8; 16]) -> [u8; HEADER_LEN] {
    owned::encode_header(MAGIC, store, &[])
}

/// Check the part that never changes.
///
/// # Errors
/// `Damaged` when it is torn or another store's, `Version` for another version.
pub fn check_header(bytes: &[u8], store: [u8; 16]) -> Decoded<()> {
    let say = owned::Complaints {
        no_such: "not a wake page",
        damaged: "the wake page's checksum does not match",
        foreign: "the wake page of another store",
    };
    owned::check_header(bytes, MAGIC, store, &say)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checksum::crc32;
    use crate::format::tests::sealed;
    use crate::format::{DecodeError, VERSION, put};

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
        let no_page = Err(DecodeError::Damaged("not a wake page"));
        assert_eq!(check_header(&header[..HEADER_LEN - 1], [3; 16]), no_page);
        assert_eq!(resealed(0, b"FALAJCTL"), no_page);
        assert_eq!(
            resealed(8, &(VERSION + 1).to_le_bytes()),
            Err(DecodeError::Version(VERSION + 1))
        );
        assert_eq!(resealed(8, &1u32.to_le_bytes()), Err(DecodeError::Version(1)));
    }

    #[test]
    fn the_header_and_the_bell_stand_where_the_format_says() {
        let store = *b"id of that store";
        let expected = sealed(64, &[(0, b"FALAJWAK"), (8, &[2]), (16, &store)]);
        assert_eq!(encode_header(store).as_slice(), expected);
        assert_eq!((at::COUNTER, at::SHIPPER, LEN), (64, 128, 4096));
    }
}
