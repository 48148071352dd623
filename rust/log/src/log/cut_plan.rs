//! Finding the segments of a cut, and where each one ends.
//!
//! Owns the way from the end of a log backwards along the chain. Also owns the checks of bytes that no
//! mark shows to be on the disk. Invariant: a segment that an earlier cut had with the same end is not looked into
//! again. [`super::cut`] owns the cut. See `docs/PROTOCOL.md`, "Cut".

use std::path::Path;
use std::sync::Arc;

use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::block::Kind;
use crate::format::segment::SegmentHeader;
use crate::format::{DecodeError, FIRST_BLOCK};
use crate::segment::{BlockError, Check, NO_BLOCK, Reading, Segment};
use crate::storage::Storage;

use super::LogSettings;
use super::chain::{Chain, missing};
use super::control::Control;
use super::cut::{CutAt, LogCut, SegmentCut};
use super::seek::begins_where_trimmed;

/// How often the end is read again after a roll in between.
const TRIES: u32 = 5;

/// A cut that is being made.
pub(super) struct Planner<'a> {
    chain: Chain,
    before: Option<&'a LogCut>,
    /// The newest segment, and the known end in it.
    newest: u64,
    end: Option<u64>,
    /// True if a block behind the end that no process has noted yet is part of it.
    reaches_behind: bool,
    recovered: bool,
    /// The segment with the durable end.
    durable: u64,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        settings: &LogSettings,
        at: CutAt,
        before: Option<&'a LogCut>,
    ) -> Result<Self> {
        let settings = LogSettings { reading: Reading::Pread, ..settings.clone() };
        let chain = Chain::new(Arc::clone(storage), dir, &settings);
        match at {
            CutAt::Durable(end) => {
                chain.refresh()?;
                let (newest, durable) = (end.sequence(), end.sequence());
                let (end, reaches_behind, recovered) = (Some(end.position()), false, true);
                Ok(Self { chain, before, newest, end, reaches_behind, recovered, durable })
            }
            CutAt::Committed { recovered } => {
                let control = Control::open_unmapped(&**storage, dir, settings.generation).ok();
                let control = control.filter(|control| control.incarnation() != 0);
                let (tail, newest) = find_end(control.as_ref(), &chain)?;
                let (end, reaches_behind) = (tail.map(Address::position), true);
                let durable = control.map_or(0, |control| control.durable().sequence());
                Ok(Self { chain, before, newest, end, reaches_behind, recovered, durable })
            }
        }
    }

    /// Go from the newest segment backwards.
    pub(super) fn segments(&self) -> Result<Vec<SegmentCut>> {
        let mut segments = vec![self.last()?];
        loop {
            let next = &segments[segments.len() - 1].header;
            let Some(previous) = next.previous else { break };
            if !self.chain.sequences()?.contains(&previous.sequence) {
                let oldest = self.chain.segment(next.sequence)?;
                if begins_where_trimmed(&oldest, &*self.chain.segment(self.newest)?)? {
                    break;
                }
                return Err(missing(self.chain.dir(), previous.sequence));
            }
            let is_named = !next.supersedes;
            segments.push(self.sealed(previous.sequence, previous.end, is_named)?);
        }
        segments.reverse();
        Ok(segments)
    }

    fn last(&self) -> Result<SegmentCut> {
        let segment = self.chain.segment(self.newest)?;
        let known = self.known(segment.header()).map_or(0, |known| known.end);
        let checked = self.check(&segment, known, self.end)?;
        let end = if self.reaches_behind { behind_tail(&segment, checked) } else { checked };
        let header = segment.header().clone();
        Ok(SegmentCut { header, end, len: end, sealed: false, settled: false })
    }

    fn sealed(&self, sequence: u64, end: u64, is_named: bool) -> Result<SegmentCut> {
        let header = self.chain.header(sequence)?;
        let settled = sequence < self.durable;
        let known = self.known(&header);
        let is_same = |known: &&SegmentCut| known.sealed && known.end == end;
        if let Some(known) = known.filter(|known| is_same(known) || planted(Canary::CutBeforeRoll))
        {
            return Ok(SegmentCut { settled, ..known.clone() });
        }
        let segment = self.chain.segment(sequence)?;
        self.check(&segment, known.map_or(0, |known| known.end), Some(end))?;
        let len = if is_named { behind_end_block(&segment, end)? } else { end };
        Ok(SegmentCut { header, end, len, sealed: true, settled })
    }

    /// Return the segment in the earlier cut.
    fn known(&self, header: &SegmentHeader) -> Option<&'a SegmentCut> {
        self.before?.segments.iter().rev().find(|cut| cut.is_of(header))
    }

    /// Check what no mark shows to be on disk, up to `end` or else to the first zero; return where
    /// that is.
    fn check(&self, segment: &Arc<Segment>, known: u64, end: Option<u64>) -> Result<u64> {
        let later = |sequence: &&u64| **sequence > segment.sequence();
        let marked_later = self.chain.sequences()?.iter().filter(later).any(|sequence| {
            let mark = self.chain.segment(*sequence).ok().and_then(|segment| segment.mark());
            mark.is_some_and(|mark| mark.position > 0)
        });
        if let (true, Some(end)) = (marked_later, end) {
            return Ok(end);
        }
        let mark = segment.mark().map_or(0, |mark| mark.position);
        check_blocks(segment, mark.max(known), end, self.recovered)
    }
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

/// Check blocks from a position up to `end` or else to the first zero; return where that is.
pub(super) fn check_blocks(
    segment: &Arc<Segment>,
    from: u64,
    end: Option<u64>,
    recovered: bool,
) -> Result<u64> {
    let mut segment = Arc::clone(segment);
    let mut position = from.max(FIRST_BLOCK);
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
