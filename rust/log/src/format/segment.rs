//! The first two pages of a segment: its identity, what it continues, and how far it is on disk.
//!
//! ```text
//!    0  header, one sector, never changes once the segment has its name
//!  512  durable mark, slot 0
//! 4096  the header again
//! 4608  durable mark, slot 1
//! 8192  first block
//! ```
//!
//! A disk loses at most one page at once. So one header always stays whole, and so does the mark
//! that was not being written.
//!
//! Invariant: the newer of two valid marks holds ([`DoubleSlot`]), and marks only rise. A mark
//! carries the salt in its checksum, so that a page copied to another segment is no mark there.
//! Layout: `docs/FORMAT.md`, "Segment".

use super::address::{ALIGN, MAX_POSITION, MAX_SEQUENCE};
use super::checksum::{crc32_from, seed};
use super::double_slot::{DoubleSlot, slot_of};
use super::owned::{check_sealed, seal};
use super::{DecodeError, Decoded, FIRST_BLOCK, PAGE, VERSION, put, u32_at, u64_at};

/// First bytes of every segment.
pub const MAGIC: [u8; 8] = *b"FALAJSEG";
/// Bytes of the header.
pub const HEADER_LEN: usize = 512;
/// Bytes of a mark.
pub const MARK_LEN: usize = 64;
/// Positions of the header and of its copy, each in a page of its own.
pub const HEADERS: [u64; 2] = [0, PAGE];
/// Positions of the two marks, each in a page of its own.
pub const MARKS: [u64; 2] = [HEADER_LEN as u64, PAGE + HEADER_LEN as u64];

const MARK_MAGIC: [u8; 8] = *b"FALAJMRK";
const NONE: u64 = u64::MAX;
const _: () = assert!(HEADER_LEN + MARK_LEN <= PAGE as usize && HEADERS[1] + PAGE == FIRST_BLOCK);

/// Bits of the header's flags.
pub mod flag {
    /// The segment continues `prev` by itself: no end block names it. Recovery makes such segments,
    /// and so does the end of a failed-sync state. All that follows `prev` is superseded.
    pub const SUPERSEDES: u32 = 1;
    /// The segment replaces others, without the records that compaction left out.
    pub const COMPACTED: u32 = 2;
    /// All flags that this version knows.
    pub const KNOWN: u32 = SUPERSEDES | COMPACTED;
}

/// The segments that a compacted segment replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaces {
    /// Their lowest sequence; the highest is the segment's own.
    pub first: u64,
    /// When, in microseconds since 1970, no older record had the key of one of these any more; 0 if
    /// unknown for some of them.
    pub clean_us: i64,
    /// Random number of the compaction that made the segment: sequence and salt stay those of a
    /// segment with other bytes. 0 in segments of earlier builds.
    pub compaction: u64,
}

/// The segment that a segment continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Previous {
    /// Sequence of the segment before.
    pub sequence: u64,
    /// Its salt.
    pub salt: u64,
    /// Where its content ends, bytes.
    pub end: u64,
}

/// Header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Generation of the log.
    pub log: [u8; 16],
    /// Sequence number, never used twice in a log.
    pub sequence: u64,
    /// Random number that ties all checksums to this segment.
    pub salt: u64,
    /// True when no end block names it, see [`flag::SUPERSEDES`].
    pub supersedes: bool,
    /// The segment that it continues; `None` for the first of a log.
    pub previous: Option<Previous>,
    /// The segments that it replaces, if compaction made it.
    pub replaces: Option<Replaces>,
    /// Microseconds since 1970 from which block times count.
    pub time_base_us: i64,
}

impl SegmentHeader {
    /// Lay it out as the first sector of a segment.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let none = Previous { sequence: NONE, salt: 0, end: 0 };
        let previous = self.previous.unwrap_or(none);
        let (first, last) =
            self.replaces.map_or((NONE, NONE), |replaces| (replaces.first, self.sequence));
        let flags = if self.supersedes { flag::SUPERSEDES } else { 0 }
            | if self.replaces.is_some() { flag::COMPACTED } else { 0 };
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        put(&mut out, 12, &flags.to_le_bytes());
        put(&mut out, 16, &self.log);
        let words =
            [self.sequence, self.salt, previous.sequence, previous.salt, previous.end, first, last];
        for (i, word) in words.into_iter().enumerate() {
            put(&mut out, 32 + 8 * i, &word.to_le_bytes());
        }
        put(&mut out, 88, &self.time_base_us.to_le_bytes());
        let clean_us = self.replaces.map_or(0, |replaces| replaces.clean_us);
        put(&mut out, 96, &clean_us.to_le_bytes());
        put(&mut out, 104, &self.compaction().to_le_bytes());
        seal(&mut out);
        out
    }

    /// Read the header in a segment's first two pages, or its copy if the first page's is corrupt.
    ///
    /// # Errors
    /// `Unknown` or `Version`, as the bytes are; `Damaged` where both are corrupt.
    pub fn in_pages(pages: &[u8]) -> Decoded<Self> {
        let [header, copy] = HEADERS.map(|at| pages.get(at as usize..).unwrap_or_default());
        let is_corrupt = |read: &Decoded<Self>| matches!(read, Err(DecodeError::Damaged(_)));
        let header = Self::decode(header);
        if is_corrupt(&header) {
            return Some(Self::decode(copy)).filter(|copy| !is_corrupt(copy)).unwrap_or(header);
        }
        header
    }

    /// Read a sector that holds a header.
    ///
    /// # Errors
    /// `Damaged`, `Unknown` or `Version`, as the bytes are.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        if bytes.len() < HEADER_LEN {
            return Err(DecodeError::Damaged("a file shorter than a segment header"));
        }
        let no_such = "no segment begins like this";
        let damaged = "the segment header's checksum does not match";
        check_sealed(bytes, HEADER_LEN, MAGIC, no_such, damaged)?;
        let flags = u32_at(bytes, 12);
        if flags & !flag::KNOWN != 0 {
            return Err(DecodeError::Unknown("a segment flag of a newer version"));
        }
        let word = |i: usize| u64_at(bytes, 32 + 8 * i);
        let previous = Previous { sequence: word(2), salt: word(3), end: word(4) };
        let is_compacted = flags & flag::COMPACTED != 0;
        if is_compacted && word(6) != word(0) {
            return Err(CONTRADICTS);
        }
        let replaces = Replaces { first: word(5), clean_us: word(8) as i64, compaction: word(9) };
        let header = Self {
            log: bytes[16..32].try_into().unwrap_or_default(),
            sequence: word(0),
            salt: word(1),
            supersedes: flags & flag::SUPERSEDES != 0,
            previous: (previous.sequence != NONE).then_some(previous),
            replaces: is_compacted.then_some(replaces),
            time_base_us: u64_at(bytes, 88) as i64,
        };
        header.check()?;
        Ok(header)
    }

    /// Return the number of the compaction that made it, else 0. With sequence and salt it tells the
    /// segment from all others of the log.
    pub fn compaction(&self) -> u64 {
        self.replaces.map_or(0, |replaces| replaces.compaction)
    }

    /// Return the number of snapshot blocks at the segment's beginning. A roll adds a second one,
    /// with what changed since the first was prepared.
    pub fn snapshots(&self) -> u32 {
        if self.supersedes || self.previous.is_none() { 1 } else { 2 }
    }

    fn check(&self) -> Decoded<()> {
        let previous_fits = self.previous.is_none_or(|p| {
            p.sequence < self.sequence
                && (FIRST_BLOCK..=MAX_POSITION).contains(&p.end)
                && p.end % ALIGN == 0
        });
        let replaced_fit = self.replaces.is_none_or(|replaces| {
            replaces.first <= self.sequence
                && self.previous.is_none_or(|p| p.sequence < replaces.first)
        });
        if self.sequence <= MAX_SEQUENCE && previous_fits && replaced_fit {
            return Ok(());
        }
        Err(CONTRADICTS)
    }
}

const CONTRADICTS: DecodeError =
    DecodeError::Damaged("a segment header whose numbers contradict each other");

/// How far a segment is known to be on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Rises with every mark of the segment.
    pub serial: u64,
    /// Everything before this position, older segments included, is on disk; zero when the mark
    /// claims nothing.
    pub position: u64,
    /// Nothing followed the mark when it was made: the log was closed.
    pub clean: bool,
    /// The segment's content ends at the mark, and the next segment is on disk as well.
    pub succeeded: bool,
    /// Id of the control file that belongs to the log.
    pub control: u64,
    /// Incarnation in which the mark was made.
    pub incarnation: u64,
}

/// Lay out the first two pages of a segment: header, copy and first mark.
pub fn header_pages(header: &SegmentHeader, mark: &Mark) -> [u8; FIRST_BLOCK as usize] {
    pages_around(&header.encode(), header.salt, mark)
}

/// Do as [`header_pages`], with the bytes of a header that another program laid out.
pub fn pages_around(
    sector: &[u8; HEADER_LEN],
    salt: u64,
    mark: &Mark,
) -> [u8; FIRST_BLOCK as usize] {
    let mut pages = [0; FIRST_BLOCK as usize];
    HEADERS.iter().for_each(|at| put(&mut pages, *at as usize, sector));
    put(&mut pages, mark.slot() as usize, &mark.encode(salt));
    pages
}

impl Mark {
    /// Lay it out for the segment with this salt.
    pub fn encode(&self, salt: u64) -> [u8; MARK_LEN] {
        let mut out = [0; MARK_LEN];
        let flags = u64::from(self.clean) | u64::from(self.succeeded) << 1;
        put(&mut out, 0, &MARK_MAGIC);
        let words = [self.serial, self.position, flags, self.control, self.incarnation];
        for (i, word) in words.into_iter().enumerate() {
            put(&mut out, 8 + 8 * i, &word.to_le_bytes());
        }
        let crc = crc32_from(seed(salt), &out[..MARK_LEN - 4]);
        put(&mut out, MARK_LEN - 4, &crc.to_le_bytes());
        out
    }

    /// Read a mark of the segment with this salt; `None` for one that was never written or is torn.
    pub fn decode(bytes: &[u8], salt: u64) -> Option<Self> {
        if bytes.len() < MARK_LEN || bytes[..8] != MARK_MAGIC {
            return None;
        }
        if crc32_from(seed(salt), &bytes[..MARK_LEN - 4]) != u32_at(bytes, MARK_LEN - 4) {
            return None;
        }
        let word = |i: usize| u64_at(bytes, 8 + 8 * i);
        let mark = Self {
            serial: word(0),
            position: word(1),
            clean: word(2) & 1 != 0,
            succeeded: word(2) & 2 != 0,
            control: word(3),
            incarnation: word(4),
        };
        let in_segment = (FIRST_BLOCK..=MAX_POSITION).contains(&mark.position);
        let fits = mark.position == 0 || in_segment && mark.position % ALIGN == 0;
        fits.then_some(mark)
    }

    /// Return the newer valid mark in a segment's first two pages.
    pub fn newest(pages: &[u8], salt: u64) -> Option<Self> {
        Self::newest_of(MARKS.map(|at| pages.get(at as usize..).unwrap_or_default()), salt)
    }

    /// Return the newer valid mark in two slots.
    pub fn newest_of(slots: [&[u8]; 2], salt: u64) -> Option<Self> {
        let slots = slots.map(|slot| Self::decode(slot, salt));
        DoubleSlot::of(slots, |mark| mark.serial).value
    }

    /// Return the slot of the mark with this serial: never that of its predecessor.
    pub fn slot(&self) -> u64 {
        MARKS[slot_of(self.serial)]
    }
}

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
