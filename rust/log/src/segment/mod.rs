//! One segment: a mapped file of blocks, and the checks that make its bytes trustworthy.
//!
//! Owns how blocks are found in a segment ([`Segment::block`]), walked ([`walk`]), indexed
//! ([`index`]), searched ([`skip_table`]) and remembered as valid (`verified`). Also how they are
//! laid out in new files ([`create`], [`pack`]) and read without a map ([`window`]). Invariant: a
//! [`Block`] that was read with [`Check::Full`] is bit for bit what a writer committed at that
//! place of this segment.
//!
//! A zero commit word is an answer, not an error. Only the modules that know the tail (`log`) know
//! whether it is the end or corruption. Bytes: `docs/FORMAT.md`.

// The one unsafe operation is the slice of committed bytes; its obligation is met here.
#![allow(unsafe_code)]

mod block;
pub mod create;
mod header_pages;
pub mod index;
pub mod named;
pub mod pack;
pub mod skip_table;
mod stand_in;
mod unmapped;
mod verified;
pub mod walk;
pub mod window;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult, Result};
use crate::format::block::{
    BlockHeader, CommitWord, HEADER_LEN, Kind, MAX_HEADER_LEN, PlainHeader,
};
use crate::format::checksum::SeededCrc;
use crate::format::segment::{MARK_LEN, MARKS, Mark, SegmentHeader};
use crate::format::{DecodeError, Decoded, FIRST_BLOCK, PAGE, checksum};
use crate::storage::{File, Map, MapAccess, OpenMode, Storage};
pub use block::{Block, BlockError, BodyExtent};
pub use header_pages::{corrupt_header, expect_own, read_header, read_header_pages};
use skip_table::SkipTable;
use stand_in::open_here;
use verified::VerifiedBitmap;
use window::{UNREADABLE, Window};

/// How much of a block is checked before it is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Structure only: the tag of the commit word, and lengths.
    None,
    /// The header's checksum as well.
    Header,
    /// Header and body, each block once per map.
    Full,
}

/// How readers get the bytes of a segment from its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Reading {
    /// The file is mapped, so nothing is copied. A dying disk or a truncation by another program is
    /// SIGBUS.
    #[default]
    Map,
    /// `pread` into memory of our own: slower, and every failure is an error.
    Pread,
}

/// An open, mapped segment.
pub struct Segment {
    header: SegmentHeader,
    seed: u32,
    /// The start of body checksums.
    pub(crate) unseeded: SeededCrc,
    path: PathBuf,
    file: Arc<dyn File>,
    map: Map,
    /// The source that fills `map`, if that is a copy.
    window: Option<Window>,
    known_len: AtomicU64,
    checked: VerifiedBitmap,
    opening: OnceLock<walk::SegmentWalker>,
    index: OnceLock<index::Index>,
    ways: SkipTable,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Segment({}, {} bytes)",
            self.path.display(),
            self.known_len.load(Ordering::Relaxed)
        )
    }
}

impl Segment {
    /// Open and map the segment with this sequence in a log's directory. The map reaches at least to
    /// `reach`, so that a growing file need not be mapped again.
    ///
    /// # Errors
    /// `SystemCallFailed` when there is no such file, `CorruptData` when its header is corrupt or
    /// another's, `UnsupportedVersion`.
    pub fn open(
        storage: &dyn Storage,
        dir: &Path,
        log: [u8; 16],
        sequence: u64,
        access: MapAccess,
        reach: u64,
    ) -> Result<Self> {
        let how = if access == MapAccess::Read { OpenMode::Read } else { OpenMode::ReadWrite };
        let (path, file, header) = open_here(storage, dir, log, sequence, how)?;
        Self::from_file(path, file, header, access, reach)
    }

    /// Open as [`Segment::open`], for reading in the requested way.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub fn open_to_read(
        storage: &dyn Storage,
        dir: &Path,
        log: [u8; 16],
        sequence: u64,
        reach: u64,
        reading: Reading,
    ) -> Result<Self> {
        if reading == Reading::Map {
            return Self::open(storage, dir, log, sequence, MapAccess::Read, reach);
        }
        let (path, file, header) = open_here(storage, dir, log, sequence, OpenMode::Read)?;
        Self::without_map(path, file, header, reach)
    }

    /// Map a file whose header is known.
    ///
    /// # Errors
    /// `SystemCallFailed` when it cannot be mapped. `CorruptData` when it ends before its first
    /// block, since a load from a page that the file does not have is SIGBUS.
    pub fn from_file(
        path: PathBuf,
        file: Arc<dyn File>,
        header: SegmentHeader,
        access: MapAccess,
        reach: u64,
    ) -> Result<Self> {
        let len = file.stat().doing("stat", &path)?.len;
        if len < FIRST_BLOCK {
            let what = "a segment that was cut off in its header pages";
            return Err(Error::corrupt(&path, len, what));
        }
        let reach = reach.max(len).next_multiple_of(PAGE);
        let map = file.map(reach, access).doing("map", &path)?;
        Ok(Self::from_map(path, file, header, map, len))
    }

    /// Make a segment from a file that is mapped already.
    pub fn from_map(
        path: PathBuf,
        file: Arc<dyn File>,
        header: SegmentHeader,
        map: Map,
        len: u64,
    ) -> Self {
        let seed = checksum::seed(header.salt);
        let checked = VerifiedBitmap::new(map.len());
        let known_len = AtomicU64::new(len);
        let unseeded = SeededCrc::new(0);
        let (window, opening, index, ways) = Default::default();
        Self {
            header,
            seed,
            unseeded,
            path,
            file,
            map,
            window,
            known_len,
            checked,
            opening,
            index,
            ways,
        }
    }

    /// Return the log's state at the segment's beginning: the walk after its snapshot. Read once.
    ///
    /// # Errors
    /// `CorruptData` or `UnsupportedVersion`, if the snapshot is.
    pub fn opening(&self) -> Result<&walk::SegmentWalker> {
        if let Some(opening) = self.opening.get() {
            return Ok(opening);
        }
        let opening = walk::SegmentWalker::through_snapshot(self)?;
        Ok(self.opening.get_or_init(|| opening))
    }

    /// Return its index, once [`Segment::keep_index`] has set one.
    pub fn index(&self) -> Option<&index::Index> {
        self.index.get()
    }

    /// Keep its index; the first one stays.
    pub fn keep_index(&self, index: index::Index) -> &index::Index {
        self.index.get_or_init(|| index)
    }

    /// Return the known places in its large blocks.
    #[inline]
    pub fn ways(&self) -> &SkipTable {
        &self.ways
    }

    /// Return how it is read.
    #[inline]
    pub fn reading(&self) -> Reading {
        if self.window.is_some() { Reading::Pread } else { Reading::Map }
    }

    /// Return its header.
    #[inline]
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Return its sequence.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// Return its salt.
    #[inline]
    pub fn salt(&self) -> u64 {
        self.header.salt
    }

    /// Return the seed of its header checksums.
    #[inline]
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Return the path of its file, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Return its file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Return its map.
    #[inline]
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Return its valid durable mark.
    pub fn mark(&self) -> Option<Mark> {
        if self.window.is_some() {
            // Unreadable pages have no mark; a reader that continues gets the error.
            let read = read_header_pages(&*self.file, &self.path).ok();
            return read.and_then(|(_, mark)| mark);
        }
        let slots = MARKS.map(|slot| {
            let mut bytes = [0; MARK_LEN];
            self.map.copy(slot, &mut bytes);
            bytes
        });
        Mark::newest_of([&slots[0], &slots[1]], self.header.salt)
    }

    /// Read the mark as [`Segment::mark`], for a caller that decides by it which segments belong to
    /// the log. An unreadable page is then an error, and does not count as one without a mark.
    ///
    /// # Errors
    /// `SystemCallFailed`; `CorruptData` if the file ends in its first page, which it did not when
    /// it was opened.
    pub fn read_mark(&self) -> Result<Option<Mark>> {
        if self.window.is_none() {
            return Ok(self.mark());
        }
        let mut pages = [0; FIRST_BLOCK as usize];
        let got = self.file.read_at(&mut pages, 0).doing("read", &self.path)?;
        let there = FIRST_BLOCK.min(self.known_len.load(Ordering::Relaxed));
        if (got as u64) < there {
            return Err(self.ends_at(got as u64));
        }
        Ok(Mark::newest(&pages[..got], self.header.salt))
    }

    /// Make the error for a file that ends at a position before its length.
    #[cold]
    pub fn ends_at(&self, position: u64) -> Error {
        Error::corrupt(&self.path, position, "the segment was cut off")
    }

    /// Store a mark; it is on disk after the next sync.
    ///
    /// # Errors
    /// `SystemCallFailed`, if stores are writes.
    pub fn set_mark(&self, mark: &Mark) -> Result<()> {
        self.map.write(mark.slot(), &mark.encode(self.header.salt)).doing("mark", &self.path)
    }

    /// Return true when `[0, end)` is inside the file; ask the kernel when it was not at the last
    /// look.
    #[inline]
    fn reaches(&self, end: u64) -> bool {
        end <= self.known_len.load(Ordering::Relaxed) || self.reaches_now(end)
    }

    #[cold]
    fn reaches_now(&self, end: u64) -> bool {
        let len = self.file.stat().map_or(0, |stat| stat.len).min(self.map.len());
        self.known_len.store(len, Ordering::Relaxed);
        end <= len
    }

    /// Return the commit word at a position; zero beyond the end of the file.
    #[inline]
    pub fn word(&self, position: u64) -> u64 {
        if position % 8 == 0 && position <= u64::MAX - 8 && self.reaches(position + 8) {
            return match &self.window {
                None => self.map.load(position),
                Some(window) => window.word(position),
            };
        }
        0
    }

    /// Return the kind in the commit word at a position; `None` if the word is zero.
    ///
    /// # Errors
    /// [`BlockError`] when no writer stores this word at this place.
    pub fn kind(&self, position: u64) -> std::result::Result<Option<Kind>, BlockError> {
        let word = self.word(position);
        if word == 0 {
            return Ok(None);
        }
        let commit = CommitWord::parse(word, self.header.salt, position);
        commit.map(|commit| Some(commit.kind)).map_err(|what| BlockError { position, what })
    }

    /// Return the block at a position; `None` if the commit word is zero.
    ///
    /// # Errors
    /// [`BlockError`] when no writer of this segment committed such bytes there.
    #[inline]
    pub fn block(
        &self,
        position: u64,
        check: Check,
    ) -> std::result::Result<Option<Block>, BlockError> {
        let word = self.word(position);
        if word == 0 {
            return Ok(None);
        }
        self.parse(word, position, check).map(Some).map_err(|what| self.bad(word, position, what))
    }

    /// Return the block at a position; `None` unless it is valid from end to end.
    ///
    /// # Errors
    /// `CorruptData` for a block that could not be read: it may be valid.
    pub fn sound(&self, position: u64) -> Result<Option<Block>> {
        match self.block(position, Check::Full) {
            Err(bad) if bad.what == CANNOT_READ => Err(self.error(bad)),
            block => Ok(block.ok().flatten()),
        }
    }

    /// Return the header of the block at a position, if that is a data block without extensions, as
    /// most are. It is valid as far as `check` asks. `None` only means that the caller must use
    /// [`Segment::block`]: the two agree on every block that this one returns.
    #[inline(always)]
    pub fn plain(&self, position: u64, check: Check) -> Option<PlainHeader> {
        let least = position.saturating_add(HEADER_LEN as u64);
        if self.window.is_some() || position % 8 != 0 || !self.reaches(least) {
            return None;
        }
        let (word, words) = self.map.load_head(position);
        let len = CommitWord::data_len(word, self.header.salt, position)?;
        let header = PlainHeader::parse(len, words)?;
        let whole = self.reaches(position + u64::from(len));
        let believed = check == Check::None || self.checked.contains(position);
        (whole && (believed || self.verify_plain(word, words, position, check))).then_some(header)
    }

    /// Return the header of a plain block in bytes that were read from this position, if its
    /// checksum matches. `None` for all else, including a block that reaches beyond the file.
    #[inline]
    fn plain_in(&self, bytes: &[u8], position: u64) -> Option<PlainHeader> {
        let (word, len, words) = self.head_in(bytes, position)?;
        let header = PlainHeader::parse(len, words)?;
        let is_sound = PlainHeader::is_sound(word, words, self.seed, position);
        (is_sound || planted(Canary::NoCrc)).then_some(header)
    }

    /// Return the header as [`Segment::plain_in`] does, for any block of records.
    fn header_in(&self, bytes: &[u8], position: u64) -> Option<BlockHeader> {
        let (word, len, _) = self.head_in(bytes, position)?;
        let head = bytes.get(..(len as usize).min(MAX_HEADER_LEN))?;
        let header = BlockHeader::parse(CommitWord { len, kind: Kind::Data }, head).ok()?;
        self.verify(word, &Block { position, header }, head, Check::Header).ok()?;
        Some(header)
    }

    /// Return the commit word of a block of records at the beginning of these bytes, its length,
    /// and the words after it.
    #[inline(always)]
    fn head_in(&self, bytes: &[u8], position: u64) -> Option<(u64, u32, [u64; 3])> {
        let mut words = [0; HEADER_LEN / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.get(..HEADER_LEN)?.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let [word, rest @ ..] = words;
        let len = CommitWord::data_len(word, self.header.salt, position)?;
        self.reaches(position + u64::from(len)).then_some((word, len, rest))
    }

    /// Verify as [`Segment::verify`], for the block whose header [`Segment::plain`] found in these
    /// words.
    #[inline(never)]
    fn verify_plain(&self, word: u64, words: [u64; 3], position: u64, check: Check) -> bool {
        if planted(Canary::NoCrc) {
            return true;
        }
        if !PlainHeader::is_sound(word, words, self.seed, position) {
            return false;
        }
        if check == Check::Full {
            let (header_len, len) = (HEADER_LEN as u64, u64::from(word as u32));
            let body = self.committed(position + header_len, len - header_len);
            if self.unseeded.crc32(body) != words[0] as u32 {
                return false;
            }
            self.checked.insert(position);
        }
        true
    }

    /// Make the error for bytes that are no block, or could not be read.
    #[cold]
    fn bad(&self, word: u64, position: u64, what: DecodeError) -> BlockError {
        let failed = self.window.as_ref().is_some_and(|window| window.failed_at(position));
        let unread = failed && word == UNREADABLE;
        BlockError { position, what: if unread { CANNOT_READ } else { what } }
    }

    #[inline]
    fn parse(&self, word: u64, position: u64, check: Check) -> Decoded<Block> {
        let commit = CommitWord::parse(word, self.header.salt, position)?;
        if !self.reaches(position + u64::from(commit.len)) {
            return Err(DecodeError::Damaged("a block that reaches beyond its file"));
        }
        if let Some(window) = &self.window {
            // A void block covers arbitrary bytes, which may be a hole of any size.
            let needed = if commit.kind == Kind::Void { HEADER_LEN as u32 } else { commit.len };
            if !window.fetch(position, u64::from(needed)) {
                return Err(CANNOT_READ);
            }
        }
        let most = if commit.kind == Kind::Void { HEADER_LEN } else { MAX_HEADER_LEN };
        let head = self.committed(position, u64::from(commit.len).min(most as u64));
        let header = BlockHeader::parse(commit, head)?;
        let block = Block { position, header };
        if check != Check::None && !self.checked.contains(position) {
            self.verify(word, &block, head, check)?;
        }
        Ok(block)
    }

    fn verify(&self, word: u64, block: &Block, head: &[u8], check: Check) -> Decoded<()> {
        if planted(Canary::NoCrc) {
            return Ok(());
        }
        if !block.header.verify(word, head, self.seed, block.position) {
            return Err(DecodeError::Damaged("the block header's checksum does not match"));
        }
        block.header.refuse_newer()?;
        if check == Check::Full {
            if block.header.has_checked_body()
                && checksum::crc32(self.body(block)) != block.header.body_crc
            {
                return Err(DecodeError::Damaged("the block body's checksum does not match"));
            }
            self.checked.insert(block.position);
        }
        Ok(())
    }

    /// Find the next valid block that begins a group, at or after `from` and before `limit`: where
    /// reading continues after corruption. Checks every eighth byte.
    pub fn next_sound(&self, from: u64, limit: u64) -> Option<u64> {
        self.find_block(from, limit, |block| !block.header.is_member())
    }

    /// Search as [`Segment::next_sound`], including parts of groups: for a caller that reports what
    /// exists, and does not deliver it.
    pub fn next_block(&self, from: u64, limit: u64) -> Option<u64> {
        self.find_block(from, limit, |_| true)
    }

    fn find_block(&self, from: u64, limit: u64, fits: impl Fn(&Block) -> bool) -> Option<u64> {
        let mut position = from.next_multiple_of(8).max(FIRST_BLOCK);
        let mut buffer = [0; 8192];
        // No block follows the end of the file, and a map must not be touched there.
        self.reaches_now(limit);
        let limit = limit.min(self.known_len.load(Ordering::Relaxed));
        while position + HEADER_LEN as u64 <= limit {
            let wanted = buffer.len().min((limit - position) as usize) & !7;
            let page = &mut buffer[..wanted];
            self.copy_out(position, page);
            for (place, word) in (position..).step_by(8).zip(page.chunks_exact(8)) {
                let word = word.try_into().map_or(0, u64::from_le_bytes);
                // Most places fail by their tag, which costs no second read of the file.
                if CommitWord::parse(word, self.header.salt, place).is_err() {
                    continue;
                }
                let found = self.block(place, Check::Header);
                if found.is_ok_and(|block| block.is_some_and(|block| fits(&block))) {
                    return Some(place);
                }
            }
            position += wanted as u64;
        }
        None
    }

    /// Copy bytes as they are now; zeros for unreadable ones.
    fn copy_out(&self, position: u64, into: &mut [u8]) {
        if self.window.is_none() {
            return self.map.copy(position, into);
        }
        into.fill(0);
        if self.file.read_at(into, position).is_ok() {
            return;
        }
        let mut at = 0;
        while at < into.len() {
            let page = (PAGE - (position + at as u64) % PAGE) as usize;
            let end = (at + page).min(into.len());
            let piece = &mut into[at..end];
            if self.file.read_at(piece, position + at as u64).is_err() {
                piece.fill(0);
            }
            at += page;
        }
    }

    /// Return the place of a block's body in this segment, for a later [`Segment::bytes`].
    #[inline]
    pub fn extent(&self, block: &Block) -> BodyExtent {
        let BlockHeader { len, flags, .. } = block.header;
        BodyExtent { block: block.position, len, flags }
    }

    /// Return a body by its place in this segment.
    #[inline]
    pub fn bytes(&self, body: &BodyExtent) -> &[u8] {
        let header_len = BlockHeader::len_for(body.flags) as u64;
        self.committed(body.block + header_len, u64::from(body.len) - header_len)
    }

    /// Return the body of a block of this segment.
    #[inline]
    pub fn body(&self, block: &Block) -> &[u8] {
        self.committed(block.body(), block.header.body_len() as u64)
    }

    /// Return all bytes from the beginning of a block's body to the end of a later one's: the bytes
    /// between are committed too. `None` if some of it cannot be read.
    pub(crate) fn through(&self, first: &BodyExtent, last: &BodyExtent) -> Option<&[u8]> {
        let start = first.block + BlockHeader::len_for(first.flags) as u64;
        let len = (last.block + u64::from(last.len)).checked_sub(start)?;
        let there = self.window.as_ref().is_none_or(|window| window.fetch(start, len));
        there.then(|| self.committed(start, len))
    }

    /// Return bytes after a commit word that was seen non-zero.
    #[inline(always)]
    fn committed(&self, position: u64, len: u64) -> &[u8] {
        debug_assert!(self.known_len.load(Ordering::Relaxed) >= position + len);
        if let Some(window) = &self.window {
            // For blocks of this very segment this holds since `parse`; the check costs little.
            assert!(window.fetch(position, len), "a block that was never read");
        }
        // If the map is a copy, the bytes are held (above), and held bytes are never stored again
        // (`window`). SAFETY: callers loaded the block's non-zero commit word with acquire (`word`)
        // and found its length inside the file (`reaches`). No writer ever writes bytes at or below
        // a non-zero commit word again (invariant 2 of docs/ARCHITECTURE.md).
        unsafe { self.map.committed(position, len) }
    }

    /// Check a whole group, given its head: every block of it, fully.
    ///
    /// # Errors
    /// [`BlockError`] for the first block that is not whole, or is missing.
    pub fn check_group(&self, head: &Block) -> std::result::Result<(), BlockError> {
        let end = head.position + u64::from(head.header.group_len);
        let mut position = head.end();
        while position < end {
            let missing =
                BlockError { position, what: DecodeError::Damaged("a group that is not whole") };
            let member = self.block(position, Check::Full)?.ok_or(missing)?;
            if !member.header.is_member() || member.end() > end {
                return Err(missing);
            }
            position = member.end();
        }
        Ok(())
    }

    /// Make an error that names this segment.
    pub fn error(&self, bad: BlockError) -> Error {
        Error::malformed(&self.path, bad.position, bad.what)
    }

    /// The error for bytes that are corrupt.
    pub fn corrupt(&self, position: u64, what: &'static str) -> Error {
        Error::corrupt(&self.path, position, what)
    }

    /// The error for a place where a committed block should be.
    pub fn lacks_block(&self, position: u64) -> Error {
        self.error(BlockError { position, what: NO_BLOCK })
    }

    /// The same segment, or, where so much of it was read without a map, its file with nothing read yet.
    ///
    /// # Errors
    /// As [`Segment::reopen_empty`].
    pub fn refresh(self: &mut Arc<Self>) -> Result<()> {
        if self.exceeds_cache() {
            *self = Arc::new(self.reopen_empty()?);
        }
        Ok(())
    }
}

/// The error for bytes that may be valid, but could not be read.
pub const UNREAD: &str = "the disk could not read these bytes";
/// The same as an error for a [`BlockError`].
pub const CANNOT_READ: DecodeError = DecodeError::Damaged(UNREAD);
/// The error for a zero word below the end of the log.
pub const NO_BLOCK: DecodeError = DecodeError::Damaged("a committed block is missing");

#[cfg(all(test, not(loom)))]
mod tests {
    pub mod draft;
    mod reading;
}
