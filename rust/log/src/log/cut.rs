//! Cuts: what a log held at one moment, as segments with identities and ends.
//!
//! Owns how a cut of a log is made while others write to it, and what can be asked of it. It has all
//! segments of the log up to an end. That is the committed end, for a backup, or the durable end, for
//! a process that ships the log. Invariant: bytes of a segment below its length never change while the
//! segment's identity is the same. The identity is the log's directory, sequence, salt and the number
//! of the compaction. Every look into a segment compares it, and reports another one. A cut can begin
//! with an earlier one of the same log: then only later blocks are read.
//!
//! ```text
//! segment before the last   | pages | blocks ……………… end | end block  length | rest
//! the last one              | pages | blocks …… end = length | others append …
//! ```
//!
//! [`super::cut_plan`] finds the segments. [`super::copy`] writes a cut into a directory. [`crate::store`] makes the ends of several logs
//! agree. See `docs/PROTOCOL.md`, "Cut".

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult, Result};
use crate::format::address::Address;
use crate::format::block::Kind;
use crate::format::segment::SegmentHeader;
use crate::format::settings::WriteMode;
use crate::format::state::{CursorState, LogState};
use crate::format::{FIRST_BLOCK, names};
use crate::segment::walk::SegmentWalker;
use crate::segment::{Check, Reading, Segment, expect_own, read_header};
use crate::storage::{File, OpenMode, Storage};

use super::chain::{is_missing, unless_missing};
use super::cut_plan::{Planner, check_blocks};
use super::open_segments::with_room;
use super::{DataBlock, Log, LogSettings, enter};

/// Void blocks that cover more bytes than this are left out.
const HOLE: u64 = 1 << 16;
/// The error for a segment that changed since the cut was made.
const REPLACED: &str = "another segment than the one in the cut: compaction replaced it";
/// A segment of a cut. It does not stay open: a log may have more segments than a process has
/// descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentCut {
    /// Its header, with the identity.
    pub header: SegmentHeader,
    /// Where its content ends.
    pub end: u64,
    /// Where its bytes end: after the end block that names the next segment.
    pub len: u64,
    /// False for the last one of a cut, to which others may append.
    pub sealed: bool,
    /// True when it is wholly on disk and sealed: it never changes again, its first page included.
    pub(super) settled: bool,
}

/// A move of a cursor in a cut.
#[derive(Clone, Debug)]
pub struct CursorMoved {
    /// The block or group that moves it.
    pub group: Address,
    /// The cursor's name.
    pub name: Vec<u8>,
    /// The new offset.
    pub offset: u64,
}

/// Where a cut of a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutAt {
    /// At the committed end. The log may be one that no process has recovered since a crash, unless
    /// `recovered`. Then a bad block cannot be a torn tail.
    Committed {
        /// True if a process of this store has recovered the log.
        recovered: bool,
    },
    /// At this durable end of a recovered log.
    Durable(Address),
}

/// A log as it was at one moment.
#[derive(Debug)]
pub struct LogCut {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) dir: PathBuf,
    pub(super) segments: Vec<SegmentCut>,
    pub(super) write_mode: WriteMode,
    pub(super) file_mode: u32,
    generation: [u8; 16],
    reach: u64,
    /// The log's state somewhere in the last segment, or at the end.
    walked: Mutex<Option<Arc<SegmentWalker>>>,
    seen: DirStamp,
}

/// The time of the last change of a log's directory: of a name that came or went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DirStamp {
    modified_us: i64,
    /// True if a later change has another time: the last one was long before.
    is_certain: bool,
}

/// Most microseconds between two changes that may have the same time of modification.
const COARSEST_US: i64 = 2_000_000;

impl DirStamp {
    fn of(storage: &dyn Storage, dir: &Path) -> Result<Self> {
        let modified_us = storage.stat(dir).doing("look at", dir)?.modified_us;
        let is_certain = modified_us.saturating_add(COARSEST_US) < storage.now_us();
        Ok(Self { modified_us, is_certain })
    }

    fn proves_same(self, now: Self) -> bool {
        self.is_certain && self.modified_us == now.modified_us
    }
}

impl SegmentCut {
    pub(super) fn is_of(&self, header: &SegmentHeader) -> bool {
        let identity = |header: &SegmentHeader| (header.sequence, header.salt, header.compaction());
        identity(&self.header) == identity(header)
    }
}

impl LogCut {
    /// Find an end of a log and all segments up to it. With an earlier cut of the log, only blocks
    /// behind that one's end are checked, and the cut is `None` if nothing happened since.
    ///
    /// # Errors
    /// `NeedsRecovery` if the end of the log is unknown. `CorruptData` if what is not yet durable
    /// of it is corrupt, or a segment is missing. `UnsupportedVersion`, `SystemCallFailed`.
    pub fn make(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        settings: &LogSettings,
        at: CutAt,
        before: Option<&Self>,
    ) -> Result<Option<Self>> {
        // Before the names are listed: a later change has another time.
        let seen = DirStamp::of(&**storage, dir)?;
        let same = before.filter(|before| before.seen.proves_same(seen));
        let segments = match (at, same) {
            (CutAt::Durable(end), Some(before)) if before.end() == end => return Ok(None),
            (CutAt::Durable(end), Some(before)) if before.end().sequence() == end.sequence() => {
                before.grown(end)?
            }
            _ => Planner::new(storage, dir, settings, at, before)?.segments()?,
        };
        let mut cut = Self {
            storage: Arc::clone(storage),
            dir: dir.to_path_buf(),
            segments,
            write_mode: settings.write_mode,
            file_mode: settings.file_mode,
            generation: settings.generation,
            reach: settings.segment_bytes,
            walked: Mutex::default(),
            seen,
        };
        if let CutAt::Durable(_) = at {
            cut.leave_beginning()?;
        }
        if let Some(before) = before {
            let same = |last: &&SegmentCut| {
                before.segments.last().is_some_and(|was| was.is_of(&last.header))
            };
            if cut.segments.last().filter(same).is_some() {
                cut.walked = Mutex::new(enter(&before.walked).clone());
            }
        }
        Ok(Some(cut))
    }

    /// Cut a log where it is durable now. With an earlier cut of it, that one is the answer if nothing
    /// happened since.
    ///
    /// # Errors
    /// As [`LogCut::make`].
    pub fn durable(
        storage: &Arc<dyn Storage>,
        log: &Log,
        settings: &LogSettings,
        before: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>> {
        let past = planted(Canary::CutPastDurable);
        let end = if past { log.committed() } else { log.durable() }.unwrap_or_default();
        let (dir, at) = (log.dir(), CutAt::Durable(end));
        let known = before.map(|before| &**before);
        Ok(match (Self::make(storage, dir, settings, at, known)?, before) {
            (None, Some(before)) => Arc::clone(before),
            (made, _) => Arc::new(made.ok_or_else(|| Error::corrupt(dir, 0, "a cut of nothing"))?),
        })
    }

    /// Return the segments, with the last one up to an end that lies behind the one of this cut.
    fn grown(&self, end: Address) -> Result<Vec<SegmentCut>> {
        let mut segments = self.segments.clone();
        if let Some(last) = segments.last_mut() {
            let segment = self.open(last)?;
            let mark = segment.read_mark()?.map_or(0, |mark| mark.position);
            let from = mark.max(last.end);
            let checked = check_blocks(&segment, from, Some(end.position()), true)?;
            (last.end, last.len) = (checked, checked);
        }
        Ok(segments)
    }

    /// End before the last segment if the end lies within its first blocks.
    fn leave_beginning(&mut self) -> Result<()> {
        let Some(last) = self.segments.last() else { return Ok(()) };
        // They take one page at least, so the usual cut does not open the segment for this.
        if last.end > FIRST_BLOCK + self.reach / 8 {
            return Ok(());
        }
        let begins = self.open(last)?.opening()?.position;
        if last.end >= begins {
            return Ok(());
        }
        match last.header.previous {
            // The log was made with it, and all of it was on the disk before it had a name.
            None => self.end_at(begins),
            Some(previous) => {
                self.segments.pop();
                self.end_at(previous.end);
            }
        }
        Ok(())
    }

    fn end_at(&mut self, end: u64) {
        if let Some(last) = self.segments.last_mut() {
            (last.end, last.len, last.sealed, last.settled) = (end, end, false, false);
        }
    }

    /// Return the segments, oldest first.
    pub fn segments(&self) -> &[SegmentCut] {
        &self.segments
    }

    /// Return the log's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Return where the cut ends.
    pub fn end(&self) -> Address {
        self.segments.last().map_or(Address(0), |last| Address::new(last.header.sequence, last.end))
    }

    /// Return the bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len).sum()
    }

    /// Open a segment, if the file of its name still is the one in the cut.
    pub(super) fn open(&self, cut: &SegmentCut) -> Result<Arc<Segment>> {
        let (sequence, storage) = (cut.header.sequence, &*self.storage);
        let open = || {
            Segment::open_to_read(
                storage,
                &self.dir,
                self.generation,
                sequence,
                self.reach,
                Reading::Pread,
            )
        };
        let segment = with_room(None, open);
        let segment = segment.map_err(|error| unless_missing(error, &self.dir, sequence))?;
        if cut.is_of(segment.header()) {
            return Ok(Arc::new(segment));
        }
        Err(segment.corrupt(0, REPLACED))
    }

    fn segment(&self, sequence: u64) -> Result<&SegmentCut> {
        let found = self.segments.binary_search_by_key(&sequence, |cut| cut.header.sequence);
        found.map(|at| &self.segments[at]).map_err(|_| {
            let dir = self.dir.display();
            Error::invalid(format!(
                "the cut of {dir} has no segment {sequence}; ask for one that it has"
            ))
        })
    }

    /// Open the file of a segment, for reads of bytes of the cut.
    ///
    /// # Errors
    /// `CorruptData` if it is gone, or another segment has its name. `InvalidArgument`,
    /// `SystemCallFailed`.
    pub fn file(&self, sequence: u64) -> Result<(Arc<dyn File>, PathBuf)> {
        let cut = self.segment(sequence)?;
        let path = self.dir.join(names::segment(sequence));
        let open = || self.storage.open(&path, OpenMode::Read).doing("open", &path);
        let file = with_room(None, open);
        let file = file.map_err(|error| unless_missing(error, &self.dir, sequence))?;
        let header = read_header(&*file, &path)?;
        expect_own(&header, self.generation, sequence, &path)?;
        if cut.is_of(&header) { Ok((file, path)) } else { Err(Error::corrupt(&path, 0, REPLACED)) }
    }

    /// Check that bytes of a segment are blocks of the cut.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn expect_blocks(&self, sequence: u64, bytes: &Range<u64>) -> Result<()> {
        let cut = self.segment(sequence)?;
        if bytes.start >= FIRST_BLOCK && bytes.start <= bytes.end && bytes.end <= cut.len {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "bytes {} to {} of segment {sequence} of {}; its blocks in the cut lie at {FIRST_BLOCK} to {}",
            bytes.start,
            bytes.end,
            self.dir.display(),
            cut.len
        )))
    }

    /// List the ranges of bytes of a segment from a position on, without the insides of large void
    /// blocks. Those are holes of the file.
    ///
    /// # Errors
    /// As [`LogCut::file`].
    pub fn extents(&self, sequence: u64, start: u64) -> Result<Vec<Range<u64>>> {
        let cut = self.segment(sequence)?;
        let start = start.max(FIRST_BLOCK);
        let holes = match cut.header.replaces {
            Some(_) => holes(&*self.open(cut)?, cut),
            None => Vec::new(),
        };
        let mut extents = Vec::with_capacity(holes.len() + 1);
        let mut at = start;
        for hole in holes.into_iter().chain(std::iter::once(cut.len..cut.len)) {
            if at < hole.start {
                extents.push(at..hole.start);
            }
            at = at.max(hole.end);
        }
        Ok(extents)
    }

    /// Return the log's state at the end of the cut. Corrupt blocks on the way are passed over.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`: the state is unknown.
    pub fn state(&self) -> Result<Arc<SegmentWalker>> {
        let mut walked = enter(&self.walked);
        let Some(last) = self.segments.last() else { return Ok(Arc::default()) };
        if let Some(walk) = walked.as_ref().filter(|walk| walk.position == last.end) {
            return Ok(Arc::clone(walk));
        }
        let mut segment = self.open(last)?;
        let mut walk = match walked.take().filter(|walk| walk.position < last.end) {
            Some(walk) => Arc::unwrap_or_clone(walk),
            None => segment.opening()?.clone(),
        };
        walk.skim_to(&mut segment, last.end)?;
        let walk = Arc::new(walk);
        *walked = Some(Arc::clone(&walk));
        Ok(walk)
    }

    /// List the moves of cursors after an address, in their order.
    ///
    /// # Errors
    /// `CorruptData` when a segment no longer exists, `SystemCallFailed`.
    pub fn moves_since(&self, from: Address) -> Result<Vec<CursorMoved>> {
        let mut moves = Vec::new();
        if from >= self.end() {
            return Ok(moves);
        }
        for cut in self.segments.iter().filter(|cut| cut.header.sequence >= from.sequence()) {
            let is_first = cut.header.sequence == from.sequence();
            let begin = if is_first { from.position().max(FIRST_BLOCK) } else { FIRST_BLOCK };
            let segment = self.open(cut)?;
            if segment.is_compacted() {
                // The segment no longer tells which records a cursor moved with.
                return Err(segment.corrupt(FIRST_BLOCK, REPLACED));
            }
            moves_in(&segment, cut, begin, &mut moves);
        }
        Ok(moves)
    }

    /// Return the same cut with an end before a group.
    pub fn ended_before(&self, group: Address) -> Self {
        let part = self.segments.iter().filter(|cut| cut.header.sequence <= group.sequence());
        let walked = enter(&self.walked).clone();
        let mut cut = Self {
            storage: Arc::clone(&self.storage),
            dir: self.dir.clone(),
            segments: part.cloned().collect(),
            walked: Mutex::new(walked.filter(|walk| {
                group.sequence() == self.end().sequence() && walk.position <= group.position()
            })),
            ..*self
        };
        cut.end_at(group.position());
        cut
    }
}

impl Log {
    /// Return whether the last record before an offset of a topic is in a block with this checksum, at
    /// its end. True where that cannot be known any more: the block was trimmed or compacted. Recovery
    /// and the end of a failed-sync state move blocks, and change none of them.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn has_end(self: &Arc<Self>, topic: u32, next: u64, checksum: u32) -> Result<bool> {
        if next > self.end_offset(topic)? {
            return Ok(false);
        }
        if next <= self.first_offset(topic)? {
            return Ok(true);
        }
        let block = self.block_before(topic, next, Check::Full)?;
        Ok(block.is_some_and(|block| {
            let is_same = block.body_crc() == checksum || planted(Canary::EndByOffset);
            let is_it = block.end() == next && is_same;
            let begins = Address::new(block.address().sequence(), block.position());
            let is_there = !planted(Canary::EndByDurable) || Some(begins) < self.durable();
            block.is_compacted() || is_it && is_there
        }))
    }

    /// Return when the block with the last record before an offset was appended, microseconds since
    /// 1970; `None` if there is none any more.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn time_of_end(self: &Arc<Self>, topic: u32, next: u64) -> Result<Option<i64>> {
        let block = self.block_before(topic, next, Check::Header)?;
        Ok(block.map(|block| block.appended_ns() / 1000))
    }

    fn block_before(
        self: &Arc<Self>,
        topic: u32,
        next: u64,
        check: Check,
    ) -> Result<Option<DataBlock>> {
        let Some(wanted) = next.checked_sub(1) else { return Ok(None) };
        let mut cursor = self.cursor_at(topic, wanted, check)?;
        while let Some(block) = cursor.next_block()? {
            if block.end() > wanted {
                return Ok(Some(block.clone()));
            }
        }
        Ok(None)
    }
}

/// Return true for an error that says that segments were replaced or removed while a cut was made:
/// it must be made again.
pub fn is_overtaken(error: &Error) -> bool {
    is_missing(error) || matches!(error, Error::CorruptData { what, .. } if *what == REPLACED)
}

/// Collect the moves of cursors from a position on. Corrupt blocks are passed over.
fn moves_in(segment: &Segment, cut: &SegmentCut, begin: u64, into: &mut Vec<CursorMoved>) {
    let (mut position, mut head) = (begin, begin);
    while position < cut.end {
        let Ok(Some(block)) = segment.block(position, Check::Full) else {
            let Some(behind) = segment.next_block(position + 8, cut.end) else { return };
            position = behind;
            continue;
        };
        head = if block.header.is_member() { head } else { position };
        if block.header.kind == Kind::Meta {
            let mut moved = LogState::default();
            // A partly corrupt body is applied up to the corruption.
            let _ = moved.apply_body(segment.body(&block), |_, _| ());
            let group = Address::new(segment.sequence(), head);
            let named = |(name, cursor): (&[u8], CursorState)| CursorMoved {
                group,
                name: name.to_vec(),
                offset: cursor.offset,
            };
            into.extend(moved.cursors().map(named));
        }
        position = block.end();
    }
}

/// List the ranges that void blocks of a compacted segment cover, if they are large enough to leave
/// out.
pub(super) fn holes(segment: &Segment, cut: &SegmentCut) -> Vec<Range<u64>> {
    let (mut holes, mut position) = (Vec::new(), FIRST_BLOCK);
    while segment.is_compacted() && position < cut.end {
        let Ok(Some(block)) = segment.block(position, Check::Header) else { break };
        position = block.end();
        if block.header.kind == Kind::Void && block.header.padded() > HOLE {
            holes.push(block.body()..position.min(cut.len));
        }
    }
    holes
}
