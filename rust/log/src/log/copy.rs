//! Copying a log while others write to it.
//!
//! Owns what a copy of a log is: all its segments up to the end that was committed when the copy was
//! planned, each with a fresh mark that says so, and no derived state. A copy is therefore a log that
//! was closed in order: whoever opens it first finds all of it durable and goes on behind it.
//!
//! ```text
//! source  | page 0 | blocks ……………… | end block | rest        segment before the last
//! copy    | header, mark = end, succeeded | blocks …… | end block |
//! source  | page 0 | blocks …… tail | others append …        the last one
//! copy    | header, mark = tail, clean | blocks …… |
//! ```
//!
//! Nothing is mapped, neither here nor there. Segments that are wholly on the medium never change
//! again, so the kernel may share their blocks with the copy where the file system can; the active
//! one is copied byte by byte, for a shared block under a mapped writer needs room when it is stored
//! to, and there may be none. See `docs/PROTOCOL.md`, "Backup".

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
use crate::segment::index::write_file;
use crate::segment::{BlockError, Check, NO_BLOCK, Reading, Segment};
use crate::storage::{File, OpenMode, Storage};

use super::LogSettings;
use super::chain::{Chain, is_missing, missing};
use super::control::Control;
use super::create::{dir_mode, lock_mode};
use super::metadata::TopicEnds;
use super::seek::begins_where_trimmed;
use super::verify::Progress;

/// Bytes copied between two calls of the progress.
const STRIDE: u64 = 8 << 20;
/// Void blocks that cover more than this are not copied.
const HOLE: u64 = 1 << 16;
/// What is said of a segment that has to be looked at anew.
const COMPACTED_MEANWHILE: &str = "the segment was compacted while it was to be copied";
/// How often the end is looked at again when a roll came in between.
const TRIES: u32 = 5;

/// A segment to be copied. It is not kept open: a log may have more of them than a process files.
#[derive(Debug)]
struct SegmentPiece {
    sequence: u64,
    salt: u64,
    /// Where its content ends: what the copy's mark says.
    end: u64,
    /// Where the bytes end: behind the end block that names the next segment.
    len: u64,
    last: bool,
    /// True when it never changes again, not even its first page.
    settled: bool,
}

/// A cursor that moves in what is copied.
#[derive(Clone, Debug)]
pub struct CopiedMove {
    /// The block or group that moves it.
    pub group: Address,
    /// What it is called.
    pub name: Vec<u8>,
    /// Where to.
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
    /// Look at a log's end and plan to copy everything before it. `recovered` says that a process of
    /// this store has recovered the log, so that a bad block cannot be a torn tail.
    ///
    /// # Errors
    /// `NeedsRecovery` when nobody knows where the log ends, `CorruptData` when what is not yet durable of
    /// it is damaged, or a segment is missing; `UnsupportedVersion`, `SystemCallFailed`.
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

    /// The cursors that move behind an address, in their order.
    ///
    /// # Errors
    /// `CorruptData` when a segment is not there any more, `SystemCallFailed`.
    pub fn moves_since(&self, from: Address) -> Result<Vec<CopiedMove>> {
        let mut moves = Vec::new();
        let later = |piece: &&SegmentPiece| piece.sequence >= from.sequence();
        for piece in self.pieces.iter().filter(later) {
            let is_first = piece.sequence == from.sequence();
            let begin = if is_first { from.position().max(FIRST_BLOCK) } else { FIRST_BLOCK };
            let segment = self.chain.segment(piece.sequence)?;
            if segment.is_compacted() {
                // It does not tell any more which records a cursor moved with.
                let (path, position) = (segment.path().to_path_buf(), FIRST_BLOCK);
                return Err(Error::CorruptData { path, position, what: COMPACTED_MEANWHILE });
            }
            piece.moves(&segment, begin, &mut moves);
        }
        Ok(moves)
    }

    /// Where each topic ends in the copy.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`: nobody can tell.
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

    /// Bytes to be copied.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    /// Segments to be copied.
    pub fn segments(&self) -> u64 {
        self.pieces.len() as u64
    }

    /// Fill an existing, empty directory with the copy, and sync everything in it.
    ///
    /// # Errors
    /// `CorruptData` when a segment is not there any more, `SystemCallFailed`, `NoSpace`, and what `progress`
    /// returns. The directory must then be thrown away.
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
                let what =
                    DecodeError::Damaged("another segment than the one that was to be copied");
                return Err(segment.error(BlockError { position: 0, what }));
            }
            piece.copy(&segment, storage, to, self.file_mode, &mut |bytes| {
                *done += bytes;
                progress(*done, total)
            })?;
        }
        // Empty, and nobody's: a copied log is locked by those who open the copy.
        let by_file = ["lock.append", "lock.sync"];
        let by_file = by_file.into_iter().filter(|_| self.write_mode == WriteMode::Pwrite);
        for lock in ["lock"].into_iter().chain(by_file) {
            write_file(storage, &to.join(lock), &[], 0, lock_mode(self.file_mode))?;
        }
        let quarantine = to.join("quarantine");
        storage.create_dir(&quarantine, dir_mode(self.file_mode)).doing("create", &quarantine)?;
        storage.sync_dir(to).doing("sync", to)
    }
}

/// True for an error that says that segments were given others' places while a copy was planned: it has to
/// be planned anew.
pub fn is_overtaken(error: &Error) -> bool {
    is_missing(error)
        || matches!(error, Error::CorruptData { what, .. } if *what == COMPACTED_MEANWHILE)
}

/// The committed end and the segment that it lies in; no end where nobody says one.
fn find_end(control: Option<&Control>, chain: &Chain) -> Result<(Option<Address>, u64)> {
    for _ in 0..TRIES {
        let tail = control.map(Control::tail);
        let newest = chain.refresh()?.last().copied().unwrap_or_default();
        match tail {
            // A roll between the two looks, or a page from before a crash.
            Some(tail) if tail.sequence() < newest => {}
            Some(tail) => return Ok((Some(tail), tail.sequence())),
            None => return Ok((None, newest)),
        }
    }
    let newest = chain.refresh()?.last().copied().unwrap_or_default();
    Ok((None, newest))
}

/// Where the block or the group ends that is committed at the tail, if there is one: readers have it
/// already, and its writer has not stored the tail yet, or died before. There cannot be a second one.
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

/// Check what no mark proves to be on the medium, up to `end` or else to the first zero; returns
/// where that is. What is proven is copied as it is.
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
        if segment.exceeds_cache() {
            segment = Arc::new(segment.reopen_empty()?);
        }
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

/// Where the end block at the end of a segment's content ends.
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
    /// Cursors that move from a position on. What is damaged says nothing.
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
                // Half of it where the rest is damaged.
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
        let failed = |what| move |e| (what, e);
        let target = storage.open(&path, OpenMode::CreateNew(mode)).doing("create", &path)?;
        let finish = |(what, e): (&'static str, std::io::Error)| Error::io(what, &path, e);
        self.first_pages(segment, &*target).map_err(failed("write")).map_err(finish)?;
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
        // It ends there, also where nothing but a hole comes last.
        if holes.last().is_some_and(|last| last.end == self.len) {
            target.write_at(&[0; 8], self.len - 8).map_err(failed("write")).map_err(finish)?;
        }
        target.sync_all().map_err(failed("sync")).map_err(finish)
    }

    /// What void blocks of a compacted segment cover, as far as it is worth it to leave that out.
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

    /// The source's header, and a mark of the copy's own.
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
