//! Segments of a log that come from elsewhere, and the segment with which the log goes on.
//!
//! Owns the parts of a log that is built from pieces. These are files of segments with fresh marks,
//! the links between them, and an empty segment behind the last. That one has a salt of its own.
//! So two logs that are built from the same pieces write later segments that never pass for each
//! other's. Invariant: a [`SegmentPiece`] has numbers that a segment may have, whatever a caller
//! says. [`super::verify`] checks the blocks; [`crate::store`] decides where the pieces go. See
//! `docs/PROTOCOL.md`, "Building a store from pieces".

use std::path::Path;
use std::sync::Arc;

use crate::error::{IoResult, Result};
use crate::format::address::{ALIGN, MAX_POSITION, MAX_SEQUENCE};
use crate::format::block::Kind;
use crate::format::segment::{HEADER_LEN, Mark, Previous, SegmentHeader, pages_around};
use crate::format::state::{End, LogState};
use crate::format::{DecodeError, Decoded, FIRST_BLOCK, checksum, names};
use crate::segment::create::{own_header, own_len};
use crate::segment::{Reading, Segment};
use crate::storage::{File, OpenMode, Storage};

use super::LogSettings;
use super::supersede::{Maker, TruncationPoint, supersede};

/// A segment as a caller describes it.
#[derive(Clone, Debug)]
pub struct SegmentPiece {
    header: SegmentHeader,
    sector: [u8; HEADER_LEN],
    end: u64,
    len: u64,
    sealed: bool,
}

impl SegmentPiece {
    /// Check a description. `header` is the first sector of the segment, and `end` is where its
    /// content ends. Its bytes end at `len`, behind the end block if one names the next segment.
    /// Only the last segment of a log is not sealed.
    ///
    /// # Errors
    /// `Damaged` for what no segment of this log can be, `Unknown` or `Version` for a header of
    /// another version.
    pub fn new(log: [u8; 16], header: &[u8], end: u64, len: u64, sealed: bool) -> Decoded<Self> {
        let (header, sector) = decode_sector(log, header)?;
        // The segment that goes on behind the last one has the next number.
        if header.sequence >= MAX_SEQUENCE {
            return Err(DecodeError::Damaged("a segment behind which no other one can come"));
        }
        let behind_end = [0, if sealed { own_len(End::LEN) } else { 0 }];
        let fits = end > FIRST_BLOCK && end % ALIGN == 0 && len <= MAX_POSITION;
        if !fits || !behind_end.iter().any(|more| end.checked_add(*more) == Some(len)) {
            return Err(DecodeError::Damaged("an end or a length that no segment has"));
        }
        Ok(Self { header, sector, end, len, sealed })
    }

    /// Return its sequence.
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// Return where its content ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Return where its bytes end.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Make its file: header pages, and a length. The bytes between are the caller's to write. The
    /// mark says that the content is on disk, and the next segment, too. This holds once the log has
    /// a name that others find.
    ///
    /// # Errors
    /// `SystemCallFailed` or `NoSpace`; then no file is left.
    pub fn create(&self, storage: &dyn Storage, dir: &Path, mode: u32) -> Result<Arc<dyn File>> {
        self.create_at(storage, &dir.join(names::segment(self.sequence())), mode, &[0; 8])
    }

    /// Do as [`SegmentPiece::create`] at any path. `last` is what the file ends with.
    ///
    /// # Errors
    /// As that one.
    pub fn create_at(
        &self,
        storage: &dyn Storage,
        path: &Path,
        mode: u32,
        last: &[u8],
    ) -> Result<Arc<dyn File>> {
        let file = storage.open(path, OpenMode::CreateNew(mode)).doing("create", path)?;
        let pages = pages_around(&self.sector, self.header.salt, &self.mark(1, self.sealed));
        let written = file.write_at(&pages, 0);
        let written = written.and_then(|()| file.write_at(last, self.len - last.len() as u64));
        if written.is_err() {
            let _ = storage.unlink(path);
        }
        written.doing("write", path).map(|()| file)
    }

    /// Take over a file of this segment that an earlier builder left at `path`. Its header pages are
    /// made as by [`SegmentPiece::create`], and it gets its length. `None` for a file of another segment,
    /// or one that has more bytes or other permission bits. Only its caller knows which of the bytes
    /// between are right.
    ///
    /// # Errors
    /// `SystemCallFailed` or `NoSpace`.
    pub fn adopt_at(
        &self,
        storage: &dyn Storage,
        path: &Path,
        mode: u32,
    ) -> Result<Option<Arc<dyn File>>> {
        let file = storage.open(path, OpenMode::ReadWrite).doing("open", path)?;
        let stat = file.stat().doing("look at", path)?;
        let mut sector = [0; HEADER_LEN];
        // A header that cannot be read is another one.
        let is_read = matches!(file.read_at(&mut sector, 0), Ok(HEADER_LEN));
        let is_same = is_read && sector == self.sector;
        if !is_same || stat.len > self.len || stat.mode != mode {
            return Ok(None);
        }
        let pages = pages_around(&self.sector, self.header.salt, &self.mark(1, self.sealed));
        file.write_at(&pages, 0).doing("write", path)?;
        if stat.len < self.len {
            file.write_at(&[0; 8], self.len - 8).doing("write", path)?;
        }
        Ok(Some(file))
    }

    /// Return the end block that names `next`, as this segment has it, if it has one.
    pub fn end_block(&self, next: &SegmentHeader) -> Vec<u8> {
        if self.len == self.end {
            return vec![0; 8];
        }
        let body = End { sequence: next.sequence, salt: next.salt }.encode();
        let header = own_header(Kind::End, &body, 0);
        let salt = self.header.salt;
        let head = header.lay_out(salt, self.end).seal(checksum::seed(salt), || header.body_crc);
        let words = [head.word()].into_iter().chain(head.fixed());
        let mut bytes: Vec<_> = words.flat_map(u64::to_le_bytes).collect();
        bytes.extend(body);
        bytes.resize((self.len - self.end) as usize, 0);
        bytes
    }

    /// Read the first sector of a segment of this log.
    ///
    /// # Errors
    /// As [`SegmentPiece::new`].
    pub fn header_of(log: [u8; 16], header: &[u8]) -> Decoded<SegmentHeader> {
        decode_sector(log, header).map(|(header, _)| header)
    }

    /// Return its header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Make a mark which says that all of its content is on disk.
    pub(super) fn mark(&self, serial: u64, succeeded: bool) -> Mark {
        Mark { serial, position: self.end, succeeded, ..Mark::default() }
    }

    /// Say what is wrong if `next` does not continue this segment; `None` if it does.
    pub fn not_continued_by(&self, next: &Self) -> Option<&'static str> {
        let own = (self.header.sequence, self.header.salt, self.end);
        let named = next.header.previous.map(|told| (told.sequence, told.salt, told.end));
        if named.is_none_or(|(sequence, ..)| sequence != own.0) {
            return Some("the segment before it is missing");
        }
        if named != Some(own) {
            return Some("it continues another segment, or another end, than the one before it");
        }
        if self.len == self.end && !next.header.supersedes {
            return Some("the end block that names it is missing");
        }
        (!self.sealed).then_some("a segment that is not sealed, with another one behind it")
    }

    /// Return true if it may have holes.
    pub fn is_compacted(&self) -> bool {
        self.header.replaces.is_some()
    }

    /// Return true if it may be the last of its log.
    pub fn is_last(&self) -> bool {
        !self.sealed
    }
}

fn decode_sector(log: [u8; 16], header: &[u8]) -> Decoded<(SegmentHeader, [u8; HEADER_LEN])> {
    let Ok(sector) = <[u8; HEADER_LEN]>::try_from(header) else {
        return Err(DecodeError::Damaged("a segment header of another length than 512 bytes"));
    };
    let header = SegmentHeader::decode(&sector)?;
    if header.log != log {
        return Err(DecodeError::Damaged("the header of a segment of another log"));
    }
    Ok((header, sector))
}

/// Put an empty segment with a salt of its own behind the last one. Sync it, and all names in the
/// log's directory. Return the log's state there. `known` is that state, if a check of the segment
/// found it already.
///
/// # Errors
/// `SystemCallFailed`, `NoSpace`; `CorruptData` for a last segment that does not verify.
pub fn begin_timeline(
    storage: &dyn Storage,
    dir: &Path,
    settings: &LogSettings,
    last: &SegmentPiece,
    known: Option<&LogState>,
) -> Result<LogState> {
    let walk = || state_at_end(storage, dir, settings.generation, last);
    let state = match known {
        Some(known) => {
            let is_same = |walked: LogState| walked == *known;
            debug_assert!(walk().ok().is_none_or(is_same), "a check found another state");
            known.clone()
        }
        None => walk()?,
    };
    let path = dir.join(names::segment(last.sequence()));
    let salt = last.header.salt;
    let previous = Previous { sequence: last.sequence(), salt, end: last.end };
    let cut = TruncationPoint { previous, state: state.clone(), durable: true };
    // No process has made a control page, and there is no incarnation yet.
    let maker = Maker { control: 0, incarnation: 0 };
    supersede(storage, dir, settings, &cut, &[], maker)?;
    storage.sync_dir(dir).doing("sync", dir)?;
    // From here on its loss would be noticed.
    let mark = last.mark(2, true);
    let file = storage.open(&path, OpenMode::ReadWrite).doing("open", &path)?;
    file.write_at(&mark.encode(salt), mark.slot()).doing("write", &path)?;
    file.sync_all().doing("sync", &path)?;
    Ok(state)
}

/// Walk the last segment, and return the log's state at its end.
fn state_at_end(
    storage: &dyn Storage,
    dir: &Path,
    generation: [u8; 16],
    last: &SegmentPiece,
) -> Result<LogState> {
    let sequence = last.sequence();
    let opened = Segment::open_to_read(storage, dir, generation, sequence, 0, Reading::Pread)?;
    let mut segment = Arc::new(opened);
    let mut walk = segment.opening()?.clone();
    walk.go_to(&mut segment, last.end)?;
    Ok(walk.state_beyond_damage().into_owned())
}
