//! The end of the valid part of a log, and the log's state there.
//!
//! Owns the reading by which recovery decides: from the newest durable mark to the end, group by
//! group, bodies too. Corruption below the mark is passed over and is never the end; above the mark
//! the first bad block is the end. Unreadable bytes are no end, unless the caller cuts there by
//! force. Nothing is changed here. See `docs/PROTOCOL.md`, "Recovery" and "Corruption and offsets".

use std::path::Path;
use std::sync::Arc;

use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::block::Kind;
use crate::format::segment::Mark;
use crate::format::state::LogState;
use crate::format::{DecodeError, FIRST_BLOCK};
use crate::segment::index::{Index, IndexBuild};
use crate::segment::walk::{NUMBERS, SegmentWalker, Step};
use crate::segment::{BlockError, CANNOT_READ, Check, Segment, UNREAD};
use crate::storage::Storage;

use super::super::LogSettings;
use super::super::chain::{Chain, introduced_until};
use super::super::repair::last_written;

/// The end of the valid part of a log.
pub(super) struct SoundEnd {
    pub(super) segment: Arc<Segment>,
    pub(super) walk: SegmentWalker,
    /// The index entries for the walked part; `None` if corruption was passed over.
    pub(super) noted: Option<IndexBuild>,
    /// Why the log cannot continue in this segment, if it cannot.
    pub(super) cut: Option<&'static str>,
}

impl SoundEnd {
    /// Return true if it ends at bytes that cannot be read.
    pub(super) fn is_unread(&self) -> bool {
        self.cut == Some(UNREAD)
    }
}

/// How to treat unreadable bytes after the mark. They may be valid, and acknowledged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// The end of the log is unknown.
    Fails,
    /// The log ends before them.
    Ends,
}

/// Find the newest segment whose mark claims something, and that mark. Everything before the mark
/// is on disk.
pub(super) fn newest_mark(chain: &Chain, sequences: &[u64]) -> Result<(usize, Mark)> {
    for (i, sequence) in sequences.iter().enumerate().rev() {
        let mark = chain.segment(*sequence)?.read_mark()?;
        if let Some(mark) = mark.filter(|mark| mark.position > 0) {
            return Ok((i, mark));
        }
    }
    Ok((0, Mark::default()))
}

/// Find where recovery will end a log, and its state there; by reading only.
///
/// # Errors
/// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`: as recovery.
pub fn recovered_end(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    settings: &LogSettings,
) -> Result<(Address, LogState)> {
    let chain = Chain::new(Arc::clone(storage), dir, settings);
    let sequences = chain.refresh()?;
    let marked = newest_mark(&chain, &sequences)?;
    let end = sound_end(&**storage, &chain, &sequences, marked, Unread::Fails)?;
    let address = Address::new(end.segment.sequence(), end.walk.position);
    Ok((address, end.walk.state))
}

/// Check everything from the durable mark on, and find where it ends.
pub(super) fn sound_end(
    storage: &dyn Storage,
    chain: &Chain,
    sequences: &[u64],
    (marked, mark): (usize, Mark),
    unread: Unread,
) -> Result<SoundEnd> {
    let marked = if planted(Canary::RecoverActiveOnly) { sequences.len() - 1 } else { marked };
    let mut before: Option<SoundEnd> = None;
    for (i, sequence) in sequences.iter().enumerate().skip(marked) {
        let segment = chain.segment(*sequence)?;
        let limit = match sequences.get(i + 1) {
            Some(next) => chain.header(*next)?.previous.map(|previous| previous.end),
            None => None,
        };
        let durable = if i == marked { mark.position } else { 0 };
        let clean = mark.clean && i == marked && limit.is_none();
        let check =
            if clean && segment.word(mark.position) == 0 { Check::Header } else { Check::Full };
        let (begun, hurt) = begin(storage, chain, &segment, durable)?;
        let whole_way = hurt.is_none().then(IndexBuild::default);
        let begun = (begun, whole_way);
        let (walk, noted, stopped) = walk_sound(&segment, begun, limit, durable, (check, unread))?;
        let whole = limit.is_some_and(|limit| walk.position == limit);
        if !whole {
            let (introduced, is_unread) = match introduced_until(&segment) {
                Err(_) if unread == Unread::Ends => (None, true),
                introduced => (introduced?, false),
            };
            if introduced.is_none_or(|until| walk.position < until) {
                if let Some(before) = before {
                    // It may have been valid, and its records acknowledged.
                    let cut = if is_unread { Some(UNREAD) } else { before.cut };
                    return Ok(SoundEnd { cut, ..before });
                }
            }
            let cut = match stopped.or(hurt) {
                Some(why) => Some(why),
                None if limit.is_some() => Some("the log ends before the next segment"),
                None => what_follows(&segment, walk.position, unread)?,
            };
            return Ok(SoundEnd { segment, walk, noted, cut });
        }
        let cut = Some("the beginning of the next segment is torn");
        before = Some(SoundEnd { segment, walk, noted, cut });
    }
    Err(Error::corrupt(chain.dir(), 0, "a log without an end"))
}

/// Begin the walk of a segment. If a durable one has a corrupt snapshot, it begins with the state
/// at the end of the previous segment. Nothing can be appended to such a segment, as no other
/// process could read that; the second result says so.
fn begin(
    storage: &dyn Storage,
    chain: &Chain,
    segment: &Segment,
    durable: u64,
) -> Result<(SegmentWalker, Option<&'static str>)> {
    if durable <= FIRST_BLOCK {
        return Ok((SegmentWalker::new(), None));
    }
    match SegmentWalker::through_snapshot(segment) {
        Err(error @ Error::CorruptData { .. }) => {
            let walk = begun_by_predecessor(storage, chain, segment, durable, error)?;
            Ok((walk, Some("the snapshot at its segment's beginning is corrupt")))
        }
        opening => Ok((opening?, None)),
    }
}

/// Find the state at a segment's beginning by the previous segment: only if that is certain, and no
/// index entry contradicts it.
fn begun_by_predecessor(
    storage: &dyn Storage,
    chain: &Chain,
    segment: &Segment,
    durable: u64,
    error: Error,
) -> Result<SegmentWalker> {
    let Some(previous) = segment.header().previous else { return Err(error) };
    let before = chain.segment(previous.sequence)?;
    let Ok(known) = walk_durable(&before, previous.end) else { return Err(error) };
    if before.salt() != previous.salt || !known.is_sure() || known.position != previous.end {
        return Err(error);
    }
    // Start after its snapshots, as far as they exist. From there the walk itself passes over
    // corruption, and doubts each topic that may have records in it.
    let mut position = FIRST_BLOCK;
    while let Some(sound) = segment.next_block(position, durable) {
        let block = segment.block(sound, Check::Header).map_err(|bad| segment.error(bad))?;
        match block.filter(|block| block.header.kind == Kind::Snapshot) {
            Some(snapshot) => position = snapshot.end(),
            None => break,
        }
    }
    let walk = SegmentWalker::begun_with(known.state, position);
    let agrees = |entry: &crate::format::index::IndexEntry| {
        let block = segment.block(entry.position, Check::Header).ok().flatten();
        let own = block.filter(|b| b.header.kind == Kind::Data && b.header.topic == entry.topic);
        own.is_none_or(|block| walk.first_offset(&block).ok() == Some(entry.offset))
    };
    let entries = Index::load(storage, chain.dir(), segment).unwrap_or_default();
    if entries.iter().all(agrees) { Ok(walk) } else { Err(error) }
}

/// Walk a segment to a position up to which it is durable.
fn walk_durable(segment: &Arc<Segment>, until: u64) -> Result<SegmentWalker> {
    let mut walk = segment.opening()?.clone();
    walk.go_to(&mut Arc::clone(segment), until)?;
    Ok(walk)
}

/// Skip offsets, as durable blocks after `end` are lost, so that none of their offsets is given
/// again. Topics continue beyond what the remaining segments hold. If even those do not tell
/// everything, they continue beyond what any segment can number.
pub(super) fn go_beyond_loss(chain: &Chain, strays: &[u64], end: &mut SoundEnd) {
    let later = strays.iter().filter(|sequence| **sequence > end.segment.sequence());
    let mut left: Vec<_> = later.filter_map(|s| chain.segment(*s).ok()).collect();
    left.sort_by_key(|segment| segment.sequence());
    let known: Vec<_> = left
        .iter()
        .filter_map(|segment| {
            let marked = segment.mark().map_or(0, |mark| mark.position);
            walk_durable(segment, marked).ok()
        })
        .collect();
    // The cursors and other facts in the lost blocks are unknown.
    end.walk.state.doubt_facts(Address::new(end.segment.sequence(), end.walk.position));
    let tells_all = left.last().is_some_and(|last| {
        known.len() == left.len() && last.mark().is_some_and(|mark| !mark.succeeded)
    });
    let topics: Vec<_> = end.walk.state.topics().map(|(n, topic)| (n, *topic)).collect();
    for (number, topic) in topics {
        let same = |walk: &SegmentWalker| {
            let state = walk.state_beyond_damage();
            state.topic(number).filter(|t| t.generation == topic.generation).map(|t| t.next)
        };
        let highest = known.iter().filter_map(same).max().unwrap_or(0).max(topic.next);
        let more = if tells_all { 0 } else { NUMBERS };
        end.walk.doubt_topic(number, highest.saturating_add(more));
    }
}

/// Walk a segment as far as it is valid, group by group. It ends at `limit`, at the first zero, or
/// at the first bad block, which the last result is. Corruption below `durable` is passed over: its
/// readers get the error, and what follows it stays.
fn walk_sound(
    segment: &Arc<Segment>,
    (mut walk, mut noted): (SegmentWalker, Option<IndexBuild>),
    limit: Option<u64>,
    durable: u64,
    (check, unread): (Check, Unread),
) -> Result<(SegmentWalker, Option<IndexBuild>, Option<&'static str>)> {
    let mut segment = Arc::clone(segment);
    let durable = limit.map_or(durable, |limit| durable.min(limit));
    let reached = |walk: &SegmentWalker| limit.is_some_and(|limit| walk.position >= limit);
    // Blocks until skimming is worth another try, and the pause after the last try.
    let (mut left, mut pause) = (0u32, 0u32);
    while !reached(&walk) {
        // Checking headers is enough only if the log was closed in order, and no process writes to
        // it.
        if check == Check::Header && left == 0 {
            let before = walk.position;
            walk.skim(&segment, durable, &mut noted);
            pause = if walk.position > before { 0 } else { (2 * pause).clamp(1, 4096) };
            left = pause;
        }
        left = left.saturating_sub(1);
        let position = walk.position;
        Segment::refresh(&mut segment)?;
        let mut seen = |step: &Step| noted.iter_mut().for_each(|noted| noted.note(step));
        match sound_step(&segment, &mut walk, check, &mut seen) {
            Ok(Some(Step::End { .. })) => {
                walk.position = position;
                return Ok((walk, noted, Some("the next segment is missing")));
            }
            Ok(Some(_)) => {}
            Ok(None) if position >= durable => return Ok((walk, noted, None)),
            Err(bad) if bad.what.is_newer() => {
                return Err(segment.error(bad));
            }
            Err(bad)
                if position >= durable && bad.what == CANNOT_READ && unread == Unread::Fails =>
            {
                return Err(segment.error(bad));
            }
            Err(bad) if position >= durable => return Ok((walk, noted, Some(said(bad)))),
            // The mark lies between two blocks, so the walk can always continue there.
            Ok(None) | Err(_) => {
                walk.pass_damage(&segment, durable);
                noted = None;
            }
        }
    }
    Ok((walk, noted, None))
}

fn said(bad: BlockError) -> &'static str {
    match bad.what {
        DecodeError::Damaged(what) | DecodeError::Unknown(what) => what,
        DecodeError::UnknownEntry(_) => "an entry of a newer version",
        DecodeError::Version(_) => "another version of the format",
    }
}

/// Walk over a block, or over a whole group if it is the first of one. `seen` gets each block; the
/// result is the last. On failure the walk stays where it was.
pub(in crate::log) fn sound_step(
    segment: &Segment,
    walk: &mut SegmentWalker,
    check: Check,
    seen: &mut impl FnMut(&Step),
) -> std::result::Result<Option<Step>, BlockError> {
    let Some(head) = segment.block(walk.position, check)? else { return Ok(None) };
    if head.header.group_len == 0 {
        let step = walk.step(segment, check)?;
        step.iter().for_each(seen);
        return Ok(step);
    }
    segment.check_group(&head)?;
    let end = head.position + u64::from(head.header.group_len);
    // All of the group is checked before the first step: the state is too large to copy for each
    // group.
    let mut position = head.position;
    while position < end {
        let missing =
            BlockError { position, what: DecodeError::Damaged("a group that is not whole") };
        let block = segment.block(position, check)?.ok_or(missing)?;
        walk.check(segment, &block)?;
        position = block.end();
    }
    let mut step = None;
    while walk.position < end {
        step = walk.step(segment, check)?;
        step.iter().for_each(&mut *seen);
    }
    Ok(step)
}

/// Return why a log cannot continue in a segment that is valid up to a position. `None` if
/// everything from there to the end of the file reads as zero.
fn what_follows(segment: &Segment, position: u64, unread: Unread) -> Result<Option<&'static str>> {
    match last_written(segment, position) {
        Ok(end) if end == position => Ok(None),
        Ok(_) => Ok(Some("bytes that belong to no block follow the end")),
        Err(Error::SystemCallFailed { .. }) if unread == Unread::Ends => Ok(Some(UNREAD)),
        Err(error) => Err(error),
    }
}
