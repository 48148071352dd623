//! Sealed headers: the constant beginnings of files, under a checksum.
//!
//! Owns the shape of all of them: a magic of 8 bytes, a version, and a CRC-32 of the rest as the
//! last 4 bytes. Also owns the 64-byte header of a file that belongs to a store or a log, which
//! says what it is and whose. Layout: `docs/FORMAT.md`, "Wake page", "Consumer" and "Control".

use super::checksum::crc32;
use super::{DecodeError, Decoded, VERSION, check_version, put, u32_at};

/// Bytes of the header of a store's or a log's file.
pub const HEADER_LEN: usize = 64;
/// Where the header holds the file's own fields.
pub const OWN: usize = 32;

/// Errors for a header that is none, is corrupt, or is another store's.
#[derive(Clone, Copy, Debug)]
pub struct Complaints {
    /// Another magic.
    pub no_such: &'static str,
    /// Another checksum.
    pub damaged: &'static str,
    /// Another store's id.
    pub foreign: &'static str,
}

/// Write the checksum of all other bytes into the last four.
pub fn seal(bytes: &mut [u8]) {
    let covered = bytes.len() - 4;
    let crc = crc32(&bytes[..covered]);
    put(bytes, covered, &crc.to_le_bytes());
}

/// Return true if the last four bytes are the checksum of all others.
pub fn is_sealed(bytes: &[u8]) -> bool {
    bytes.split_last_chunk().is_some_and(|(rest, crc)| crc32(rest) == u32::from_le_bytes(*crc))
}

/// Check a sealed header of `len` bytes, of any kind.
///
/// # Errors
/// `Damaged`, as `no_such` or `damaged` says; `Version` for another version.
pub fn check_sealed(
    bytes: &[u8],
    len: usize,
    magic: [u8; 8],
    no_such: &'static str,
    damaged: &'static str,
) -> Decoded<()> {
    let header = bytes.get(..len).filter(|header| header[..8] == magic);
    let header = header.ok_or(DecodeError::Damaged(no_such))?;
    if !is_sealed(header) {
        return Err(DecodeError::Damaged(damaged));
    }
    check_version(u32_at(header, 8))
}

/// Lay out the header of a file of a store or a log, with the file's own fields.
pub fn encode_header(magic: [u8; 8], owner: [u8; 16], own: &[u8]) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    put(&mut out, 0, &magic);
    put(&mut out, 8, &VERSION.to_le_bytes());
    put(&mut out, 16, &owner);
    put(&mut out, OWN, own);
    seal(&mut out);
    out
}

/// Return the store's id in a header, valid or not.
pub fn store_in(bytes: &[u8]) -> [u8; 16] {
    bytes.get(16..).and_then(|id| id.first_chunk().copied()).unwrap_or_default()
}

/// Check the header of a store's file.
///
/// # Errors
/// `Damaged` when it is torn or another store's, `Version` for another version.
pub fn check_header(
    bytes: &[u8],
    magic: [u8; 8],
    store: [u8; 16],
    say: &Complaints,
) -> Decoded<()> {
    check_sealed(bytes, HEADER_LEN, magic, say.no_such, say.damaged)?;
    if bytes[16..32] != store {
        return Err(DecodeError::Damaged(say.foreign));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::sealed;

    const MAGIC: [u8; 8] = *b"FALAJXYZ";
    const STORE: [u8; 16] = *b"id of that store";
    const SAY: Complaints =
        Complaints { no_such: "no such", damaged: "damaged", foreign: "foreign" };

    /// Check a header that the format lays out, with this change and a matching checksum.
    fn with(at: usize, what: &[u8]) -> Decoded<()> {
        let fields = [(0, &MAGIC[..]), (8, &[2]), (16, &STORE), (at, what)];
        check_header(&sealed(64, &fields), MAGIC, STORE, &SAY)
    }

    #[test]
    fn the_header_stands_where_the_format_says() {
        let expected = sealed(64, &[(0, &MAGIC), (8, &[2]), (16, &STORE)]);
        assert_eq!(encode_header(MAGIC, STORE, &[]).as_slice(), expected);
        let file = [expected, vec![7; 64]].concat();
        assert_eq!(check_header(&file, MAGIC, STORE, &SAY), Ok(()), "what follows is not its own");
    }

    #[test]
    fn each_thing_that_is_wrong_with_a_header_is_said_by_its_own_words() {
        let said = |what| Err(DecodeError::Damaged(what));
        let whole = encode_header(MAGIC, STORE, &[]);
        for len in [0, 8, 63] {
            let cut = check_header(&whole[..len], MAGIC, STORE, &SAY);
            assert_eq!(cut, said("no such"), "{len} bytes");
        }
        assert_eq!(with(0, b"FALAJXYA"), said("no such"));
        for bit in 64..512 {
            let mut flipped = whole;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check_header(&flipped, MAGIC, STORE, &SAY), said("damaged"), "bit {bit}");
        }
        assert_eq!(with(31, b"!"), said("foreign"));
        for version in [0, 1, 3, 0x0403_0201] {
            assert_eq!(with(8, &u32::to_le_bytes(version)), Err(DecodeError::Version(version)));
        }
        for fields in [(12, &[1, 2, 3, 4][..]), (32, &[9; 28])] {
            assert_eq!(with(fields.0, fields.1), Ok(()), "what is reserved");
        }
    }

    #[test]
    fn whose_a_header_says_it_is_needs_no_more_than_its_id() {
        let torn = [&[0xee; 16][..], &STORE, &[0xee; 3]].concat();
        assert_eq!(store_in(&torn), STORE, "right or wrong");
        assert_eq!(store_in(&torn[..32]), STORE);
        for len in [31, 16, 15, 0] {
            assert_eq!(store_in(&torn[..len]), [0; 16], "{len} bytes");
        }
    }
}
