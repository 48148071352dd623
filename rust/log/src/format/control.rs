//! The page that the processes of a log share: lock words, ends, wake words.
//!
//! Everything in it is derived: recovery makes it again from the segments. Words that different
//! processes change at the same time lie on cache lines of their own. The page is trusted only
//! while its incarnation is the store's. Layout: `docs/FORMAT.md`, "Control".

use super::{Decoded, owned, u64_at};

/// First bytes of every control file.
pub const MAGIC: [u8; 8] = *b"FALAJCTL";
/// Bytes of the file.
pub const LEN: u64 = 4096;
/// Bytes of the part that never changes.
pub const HEADER_LEN: usize = 64;

/// Positions of the words, eight bytes each.
pub mod at {
    /// Incarnation for which the page is valid; stored last by recovery.
    pub const INCARNATION: u64 = 64;
    /// Append lock.
    pub const APPEND_LOCK: u64 = 128;
    /// Sync lock.
    pub const SYNC_LOCK: u64 = 192;
    /// Address up to which the append lock's owner may have stored bytes.
    pub const DIRTY: u64 = 256;
    /// Address where the next block goes: everything before is committed.
    pub const TAIL: u64 = 264;
    /// Entries in the active segment's index.
    pub const INDEXED: u64 = 272;
    /// Address up to which interval mode wants everything on disk.
    pub const WANTED: u64 = 280;
    /// Address after which the active segment records no trim.
    pub const TRIMMED: u64 = 288;
    /// Address up to which everything is on disk.
    pub const DURABLE: u64 = 320;
    /// Address up to which everything has left the machine.
    pub const REMOTE: u64 = 328;
    /// Address up to which retention need not keep anything for the process that ships the store.
    pub const SHIPPED: u64 = 336;
    /// Bytes that retention removed before they were shipped.
    pub const UNSHIPPED: u64 = 344;
    /// Failed-sync state and deletion, see [`super::flag`].
    pub const FLAGS: u64 = 384;
    /// Address up to which the active segment is allocated.
    pub const ALLOCATED: u64 = 392;
    /// Counter on whose low half followers sleep.
    pub const WAKE: u64 = 448;
    /// Which kinds of sleepers may wait for the log, by the bits of `crate::wake`.
    pub const WAITING: u64 = 512;
}

/// Bits of the flags word.
pub mod flag {
    /// A sync failed, or its outcome is unknown: what is not durable must be written again.
    pub const LATCHED: u64 = 1;
    /// The log was deleted: no process appends to it.
    pub const DELETED: u64 = 2;
}

/// All words, in no particular order.
pub const WORDS: [u64; 16] = [
    at::INCARNATION,
    at::APPEND_LOCK,
    at::SYNC_LOCK,
    at::DIRTY,
    at::TAIL,
    at::INDEXED,
    at::WANTED,
    at::TRIMMED,
    at::DURABLE,
    at::REMOTE,
    at::SHIPPED,
    at::UNSHIPPED,
    at::FLAGS,
    at::ALLOCATED,
    at::WAKE,
    at::WAITING,
];
const _: () = {
    let mut i = 0;
    while i < WORDS.len() {
        assert!(WORDS[i] % 8 == 0 && WORDS[i] >= HEADER_LEN as u64 && WORDS[i] + 8 <= LEN);
        i += 1;
    }
};

/// Lay out the part that never changes: the log's generation and the control file's own id.
pub fn encode_header(log: [u8; 16], id: u64) -> [u8; HEADER_LEN] {
    owned::encode_header(MAGIC, log, &id.to_le_bytes())
}

/// Read the part that never changes; returns the id.
///
/// # Errors
/// `Damaged` when it is torn or another log's, `Version` for another version.
pub fn decode_header(bytes: &[u8], log: [u8; 16]) -> Decoded<u64> {
    let say = owned::Complaints {
        no_such: "not a control file",
        damaged: "the control file's checksum does not match",
        foreign: "the control file of another log",
    };
    owned::check_header(bytes, MAGIC, log, &say)?;
    Ok(u64_at(bytes, owned::OWN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checksum::crc32;
    use crate::format::tests::sealed;
    use crate::format::{DecodeError, VERSION, put};

    #[test]
    fn a_control_file_is_its_own_logs_only() {
        let header = encode_header([3; 16], 77);
        assert_eq!(decode_header(&header, [3; 16]), Ok(77));
        assert!(decode_header(&header, [4; 16]).is_err());
        for bit in 0..HEADER_LEN * 8 {
            let mut flipped = header;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_header(&flipped, [3; 16]).is_err());
        }
    }

    #[test]
    fn words_that_different_processes_change_share_no_cache_line() {
        let lines = [at::INCARNATION, at::APPEND_LOCK, at::SYNC_LOCK, at::DIRTY, at::DURABLE];
        let lines = lines.iter().chain(&[at::FLAGS, at::WAKE, at::WAITING]).map(|w| w / 64);
        let distinct: std::collections::HashSet<_> = lines.clone().collect();
        assert_eq!(distinct.len(), lines.count());
    }

    #[test]
    fn a_control_file_that_is_cut_off_newer_or_something_else_is_told_apart() {
        let header = encode_header([3; 16], 77);
        let resealed = |at: usize, what: &[u8]| {
            let mut bytes = header;
            put(&mut bytes, at, what);
            let crc = crc32(&bytes[..HEADER_LEN - 4]);
            put(&mut bytes, HEADER_LEN - 4, &crc.to_le_bytes());
            decode_header(&bytes, [3; 16])
        };
        let no_page = Err(DecodeError::Damaged("not a control file"));
        assert_eq!(decode_header(&header[..HEADER_LEN - 1], [3; 16]), no_page);
        assert_eq!(resealed(0, b"FALAJWAK"), no_page);
        assert_eq!(
            resealed(8, &(VERSION + 1).to_le_bytes()),
            Err(DecodeError::Version(VERSION + 1))
        );
        assert_eq!(resealed(8, &1u32.to_le_bytes()), Err(DecodeError::Version(1)));
    }

    #[test]
    fn the_header_stands_where_the_format_says() {
        let (log, id) = (*b"generation of it", 0x8807_8605_8403_8201);
        let expected = sealed(
            64,
            &[(0, b"FALAJCTL"), (8, &[2]), (16, &log), (32, b"\x01\x82\x03\x84\x05\x86\x07\x88")],
        );
        assert_eq!(encode_header(log, id).as_slice(), expected);
        let page = [expected, vec![7; 4032]].concat();
        assert_eq!(decode_header(&page, log), Ok(id), "words follow");
    }
}
