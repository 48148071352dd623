//! Copying a log while others write to it.
//!
//! Owns the contents of a copy. It has all segments of the log up to the end that was committed
//! when the copy was planned. Each has a fresh mark that says so, and there is no derived state. A
//! copy is therefore a log that was closed in order. The first process to open it finds all of it
//! durable and appends after it.
//!
//! ```text
//! source  | page 0 | blocks ……………… | end block | rest        segment before the last
//! copy    | header, mark = end, succeeded | blocks …… | end block |
//! source  | page 0 | blocks …… tail | others append …        the last one
//! copy    | header, mark = tail, clean | blocks …… |
//! ```
//!
//! Neither source nor copy is mapped. Segments that are wholly on disk never change again, so the
//! kernel may share their blocks with the copy if the file system can. The active one is copied
//! byte by byte. A store to a shared block under a mapped writer would need space on the disk, and
//! there may be none. See `docs/PROTOCOL.md`, "Backup".

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, IoResult, Result};
use crate::format::address::Address;
use crate::format::block::Kind;
use crate::format::segment::{Mark, header_pages};
use crate::format::settings::WriteMode;
use crate::format::state::{CursorState, LogState};
use crate::format::{DecodeError, FIRST_BLOCK, names};
use crate::segment::{BlockError, Check, NO_BLOCK, Reading, Segment};
use crate::storage::{File, OpenMode, Storage};

use super::LogSettings;
use super::chain::{Chain, is_missing, missing};
use super::control::Control;
use super::create::make_rest;
use super::metadata::TopicEnds;
use super::seek::begins_where_trimmed;
use super::verify::Progress;

/// Bytes copied between two calls of `progress`.
const STRIDE: u64 = 8 << 20;
/// Void blocks that cover more bytes than this are not copied.
const HOLE: u64 = 1 << 16;
/// The error for a segment that changed since the copy was planned.
const COMPACTED_MEANWHILE: &str = "the segment was compacted while it was to be copied";
/// How often the end is read again after a roll in between.
const TRIES: u32 = 5;

/// A segment to be copied. It does not stay open: a log may have more segments than a process has
/// descriptors.
#[derive(Debug)]
struct SegmentPiece {
    sequence: u64,
    salt: u64,
    /// Where its content ends, as the copy's mark says.
    end: u64,
    /// Where its bytes end: after the end block that names the next segment.
    len: u64,
    last: bool,
    /// True when it never changes again, including its first page.
    settled: bool,
}

/// A move of a cursor in the copied part.
#[derive(Clone, Debug)]
pub struct CopiedMove {
    /// The block or group that moves it.
    pub group: Address,
    /// The cursor's name.
    pub name: Vec<u8>,
    /// The new offset.
    pub offset: u64,
}

/// A log as it was at one moment, to be copied.
#[derive(Debug)]
pub struct LogCopy {
    chain: Chain,
    pieces: Vec<SegmentPiece>,
    write_mode: WriteMode,
    file_mode: u32,
}

impl LogCopy {
    /// Find a log's end and plan to copy everything before it. `recovered` means that a process of
    /// this store has recovered the log, so that a bad block cannot be a torn tail.
    ///
    /// # Errors
    /// `NeedsRecovery` if the end of the log is unknown. `CorruptData` if what is not yet durable
    /// of it is corrupt, or a segment is missing. `UnsupportedVersion`, `SystemCallFailed`.
    pub fn plan(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        settings: &LogSettings,
        recovered: bool,
    ) -> Result<Self> {
        let settings = LogSettings { reading: Reading::Pread, ..settings.clone() };
        let chain = Chain::new(Arc::clone(storage), dir, &settings);
        let control = Control::open_unmapped(&**storage, dir, settings.generation).ok();
        let control = control.filter(|control| control.incarnation() != 0);
        let (tail, newest) = find_end(control.as_ref(), &chain)?;
        let mut pieces = Vec::new();
        let mut segment = chain.segment(newest)?;
        let (mut end, mut len, mut last) = (tail.map(Address::position), None, true);
        let durable = control.map_or(0, |control| control.durable().sequence());
        loop {
            let checked = check_unproven(&chain, &segment, end, recovered)?;
            let checked = if last { behind_tail(&segment, checked) } else { checked };
            let settled = !last && segment.sequence() < durable;
            let piece = SegmentPiece {
                sequence: segment.sequence(),
                salt: segment.salt(),
                end: checked,
                len: len.unwrap_or(checked),
                last,
                settled,
            };
            pieces.push(piece);
            let Some(previous) = segment.header().previous else { break };
            let named = !segment.header().supersedes;
            if !chain.sequences()?.contains(&previous.sequence) {
                if begins_where_trimmed(&segment, &*chain.segment(newest)?)? {
                    break;
                }
                return Err(missing(chain.dir(), previous.sequence));
            }
            segment = chain.segment(previous.sequence)?;
            (end, last) = (Some(previous.end), false);
            len = if named { Some(behind_end_block(&segment, previous.end)?) } else { None };
        }
        pieces.reverse();
        chain.forget();
        let (write_mode, file_mode) = (settings.write_mode, settings.file_mode);
        Ok(Self { chain, pieces, write_mode, file_mode })
    }

    /// List the moves of cursors after an address, in their order.
    ///
    /// # Errors
    /// `CorruptData` when a segment no longer exists, `SystemCallFailed`.
    pub fn moves_since(&self, from: Address) -> Result<Vec<CopiedMove>> {
        let mut moves = Vec::new();
        let later = |piece: &&SegmentPiece| piece.sequence >= from.sequence();
        for piece in self.pieces.iter().filter(later) {
            let is_first = piece.sequence == from.sequence();
            let begin = if is_first { from.position().max(FIRST_BLOCK) } else { FIRST_BLOCK };
            let segment = self.chain.segment(piece.sequence)?;
            if segment.is_compacted() {
                // The segment no longer tells which records a cursor moved with.
                return Err(segment.corrupt(FIRST_BLOCK, COMPACTED_MEANWHILE));
            }
            piece.moves(&segment, begin, &mut moves);
        }
        Ok(moves)
    }

    /// Return where each topic ends in the copy.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`: the ends are unknown.
    pub fn ends(&self) -> Result<TopicEnds> {
        let Some(last) = self.pieces.last() else { return Ok(TopicEnds(LogState::default())) };
        let mut segment = self.chain.segment(last.sequence)?;
        let mut walk = segment.opening()?.clone();
        walk.go_to(&mut segment, last.end)?;
        Ok(TopicEnds(walk.state))
    }

    /// Copy no more than what lies before a group.
    pub fn end_before(&mut self, group: Address) {
        self.pieces.retain(|piece| piece.sequence <= group.sequence());
        if let Some(piece) = self.pieces.last_mut() {
            (piece.end, piece.len, piece.last) = (group.position(), group.position(), true);
        }
    }

    /// Return the bytes to be copied.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    /// Return the number of segments to be copied.
    pub fn segments(&self) -> u64 {
        self.pieces.len() as u64
    }

    /// Fill an existing, empty directory with the copy, and sync everything in it.
    ///
    /// # Errors
    /// `CorruptData` when a segment no longer exists, `SystemCallFailed`, `NoSpace`, and the errors
    /// of `progress`. The caller must then remove the directory.
    pub fn carry_out(
        &self,
        storage: &dyn Storage,
        to: &Path,
        done: &mut u64,
        total: u64,
        progress: Progress<'_>,
    ) -> Result<()> {
        for piece in &self.pieces {
            let segment = self.chain.segment(piece.sequence)?;
            if segment.salt() != piece.salt {
                return Err(
                    segment.corrupt(0, "another segment than the one that was to be copied")
                );
            }
            piece.copy(&segment, storage, to, self.file_mode, &mut |bytes| {
                *done += bytes;
                progress(*done, total)
            })?;
        }
        // Without an owner: the processes that open the copy lock it.
        make_rest(storage, to, self.write_mode, self.file_mode)?;
        storage.sync_dir(to).doing("sync", to)
    }
}

/// Return true for an error that says that segments were replaced while a copy was planned: it must
/// be planned again.
pub fn is_overtaken(error: &Error) -> bool {
    is_missing(error)
        || matches!(error, Error::CorruptData { what, .. } if *what == COMPACTED_MEANWHILE)
}

/// Find the committed end and its segment; no end if no page has one.
fn find_end(control: Option<&Control>, chain: &Chain) -> Result<(Option<Address>, u64)> {
    for _ in 0..TRIES {
        let tail = control.map(Control::tail);
        let newest = chain.refresh()?.last().copied().unwrap_or_default();
        match tail {
            // A roll happened between the two looks, or the page is from before a crash.
            Some(tail) if tail.sequence() < newest => {}
            Some(tail) => return Ok((Some(tail), tail.sequence())),
            None => return Ok((None, newest)),
        }
    }
    let newest = chain.refresh()?.last().copied().unwrap_or_default();
    Ok((None, newest))
}

/// Return the end of a block or group that is committed at the tail, if there is one. Readers see
/// it already; its writer has not stored the tail yet, or died before. There cannot be a second
/// one.
fn behind_tail(segment: &Segment, tail: u64) -> u64 {
    match segment.block(tail, Check::Full) {
        Ok(Some(block)) if block.header.kind == Kind::End => tail,
        Ok(Some(block)) if block.header.group_len == 0 => block.end(),
        Ok(Some(head)) if segment.check_group(&head).is_ok() => {
            tail + u64::from(head.header.group_len)
        }
        _ => tail,
    }
}

/// Check what no mark shows to be on disk, up to `end` or else to the first zero; return where that
/// is. The rest is copied as it is.
fn check_unproven(
    chain: &Chain,
    segment: &Arc<Segment>,
    end: Option<u64>,
    recovered: bool,
) -> Result<u64> {
    let later = |sequence: &&u64| **sequence > segment.sequence();
    let marked_later = chain.sequences()?.iter().filter(later).any(|sequence| {
        let mark = chain.segment(*sequence).ok().and_then(|segment| segment.mark());
        mark.is_some_and(|mark| mark.position > 0)
    });
    if let (true, Some(end)) = (marked_later, end) {
        return Ok(end);
    }
    let mark = segment.mark().map_or(0, |mark| mark.position);
    let mut segment = Arc::clone(segment);
    let mut position = mark.max(FIRST_BLOCK);
    while end.is_none_or(|end| position < end) {
        Segment::refresh(&mut segment)?;
        let doubt = |bad: BlockError| match bad.what {
            DecodeError::Damaged(what) if !recovered => {
                let (path, position) = (segment.path().to_path_buf(), bad.position);
                Error::NeedsRecovery { path, position, what }
            }
            _ => segment.error(bad),
        };
        match segment.block(position, Check::Full).map_err(doubt)? {
            Some(block) => position = block.end(),
            None if end.is_none() => break,
            None => return Err(doubt(BlockError { position, what: NO_BLOCK })),
        }
    }
    Ok(position)
}

/// Return where the end block after a segment's content ends.
fn behind_end_block(segment: &Segment, end: u64) -> Result<u64> {
    match segment.block(end, Check::Full) {
        Ok(Some(block)) if block.header.kind == Kind::End => Ok(block.end()),
        Ok(_) => {
            let what = DecodeError::Damaged("no end block where the segment ends");
            Err(segment.error(BlockError { position: end, what }))
        }
        Err(bad) => Err(segment.error(bad)),
    }
}

impl SegmentPiece {
    /// Collect the moves of cursors from a position on. Corrupt blocks are passed over.
    fn moves(&self, segment: &Segment, begin: u64, into: &mut Vec<CopiedMove>) {
        let (mut position, mut head) = (begin, begin);
        while position < self.end {
            let Ok(Some(block)) = segment.block(position, Check::Full) else {
                let Some(behind) = segment.next_block(position + 8, self.end) else { return };
                position = behind;
                continue;
            };
            head = if block.header.is_member() { head } else { position };
            if block.header.kind == Kind::Meta {
                let mut moved = LogState::default();
                // A partly corrupt body is applied up to the corruption.
                let _ = moved.apply_body(segment.body(&block), |_, _| ());
                let group = Address::new(self.sequence, head);
                let named = |(name, cursor): (&[u8], CursorState)| CopiedMove {
                    group,
                    name: name.to_vec(),
                    offset: cursor.offset,
                };
                into.extend(moved.cursors().map(named));
            }
            position = block.end();
        }
    }

    fn copy(
        &self,
        segment: &Segment,
        storage: &dyn Storage,
        to: &Path,
        mode: u32,
        told: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let path: PathBuf = to.join(names::segment(self.sequence));
        let target = storage.open(&path, OpenMode::CreateNew(mode)).doing("create", &path)?;
        self.first_pages(segment, &*target).doing("write", &path)?;
        told(FIRST_BLOCK.min(self.len))?;
        let mut at = FIRST_BLOCK;
        let holes = self.holes(segment);
        let nothing = self.len..self.len;
        for hole in holes.iter().chain(std::iter::once(&nothing)) {
            while at < hole.start {
                let wanted = STRIDE.min(hole.start - at);
                self.blocks(segment, &*target, at, wanted, &path)?;
                told(wanted)?;
                at += wanted;
            }
            if !hole.is_empty() {
                told(hole.end - at)?;
                at = hole.end;
            }
        }
        // The file ends there, even if a hole comes last.
        if holes.last().is_some_and(|last| last.end == self.len) {
            target.write_at(&[0; 8], self.len - 8).doing("write", &path)?;
        }
        target.sync_all().doing("sync", &path)
    }

    /// List the ranges that void blocks of a compacted segment cover, if they are large enough to
    /// leave out.
    fn holes(&self, segment: &Segment) -> Vec<Range<u64>> {
        let (mut holes, mut position) = (Vec::new(), FIRST_BLOCK);
        while segment.is_compacted() && position < self.end {
            let Ok(Some(block)) = segment.block(position, Check::Header) else { break };
            position = block.end();
            if block.header.kind == Kind::Void && block.header.padded() > HOLE {
                holes.push(block.body()..position.min(self.len));
            }
        }
        holes
    }

    /// Write the source's header, and a mark of the copy's own.
    fn first_pages(&self, segment: &Segment, target: &dyn File) -> std::io::Result<()> {
        let mark = Mark {
            serial: 1,
            position: self.end,
            clean: self.last,
            succeeded: !self.last,
            ..Mark::default()
        };
        target.write_at(&header_pages(segment.header(), &mark), 0)
    }

    fn blocks(
        &self,
        segment: &Segment,
        target: &dyn File,
        at: u64,
        len: u64,
        path: &Path,
    ) -> Result<()> {
        let source = segment.file();
        let copied = if self.settled {
            target.copy_from(&**source, at, len).doing("copy to", path)?
        } else {
            0
        };
        let mut at = at + copied;
        let end = at + len - copied;
        let mut buffer = vec![0; (end - at).min(1 << 20) as usize];
        while at < end {
            let wanted = buffer.len().min((end - at) as usize);
            let bytes = &mut buffer[..wanted];
            let got = source.read_at(bytes, at).doing("read", segment.path())?;
            if got < wanted {
                return Err(segment.ends_at(at + got as u64));
            }
            target.write_at(bytes, at).doing("write", path)?;
            at += wanted as u64;
        }
        Ok(())
    }
}
