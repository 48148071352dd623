//! Which segments are merged into one, and which stay.
//!
//! Owns the sizes. One is an upper bound of what remains of each segment. It has to fit before the
//! place where the content of a group's last segment ends. Neighbours are merged as long as it
//! fits. A segment that loses no records stays, and so does one that would not become smaller. That
//! one is *blocked*, and the plan lists it, since a tombstone must not be removed before what it
//! hides. Segments whose tombstones wait since different times are not merged, as a segment has one
//! such time.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Result;
use crate::format::FIRST_BLOCK;
use crate::format::address::align;
use crate::format::block::{HEADER_LEN, MAX_HEADER_LEN, MAX_RELATIVE_TIME, flag};
use crate::segment::walk::NUMBERS;

use super::super::Log;
use super::super::chain::missing;
use super::keys::{Marks, hiding};
use super::source::{Source, walk};
use super::{Compacting, fill};

/// Most segments of a group: all of them are open while it is replaced.
const MOST: usize = 256;

/// Neighbours that one segment replaces.
#[derive(Clone, Debug)]
pub(super) struct SegmentGroup {
    /// The range of sources.
    pub(super) sources: Range<usize>,
    /// Since when its tombstones hide nothing; `None`: since now.
    pub(super) clean_us: Option<i64>,
    /// Their bytes.
    pub(super) bytes: u64,
    shape: Shape,
    gone: u64,
    /// True if it must be rewritten because of its tombstones.
    is_unclean: bool,
}

/// The remaining contents of some segments.
#[derive(Clone, Debug)]
struct Shape {
    /// Upper bound of where their blocks end.
    until: u64,
    /// Offsets, by topic number.
    offsets: BTreeMap<u32, Range<u64>>,
    /// The base of the earliest segment, and the time of the latest block, microseconds since 1970.
    times: (i64, i64),
    /// Whether tombstones remain, and since when they hide nothing; 0 if unknown.
    tombstones: Option<i64>,
}

/// The plan of a compaction.
#[derive(Debug, Default)]
pub(super) struct CompactionPlan {
    /// Groups worth replacing, oldest first.
    pub(super) groups: Vec<SegmentGroup>,
    /// Sources whose removable records stay.
    pub(super) blocked: Vec<usize>,
}

/// Choose the groups worth replacing. Unless all records are known to be the last or not, no
/// tombstone that remains is clean.
pub(super) fn plan(
    log: &Log,
    sources: &[Source],
    marks: &[Marks],
    how: &Compacting<'_>,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<CompactionPlan> {
    let knows_all = how.knows_all(log, sources)?;
    let mut groups: Vec<SegmentGroup> = Vec::new();
    let mut open: Option<SegmentGroup> = None;
    let mut blocked = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        tell(source.end)?;
        let Some(shape) = shape(log, source, &marks[i])? else {
            groups.extend(open.take());
            blocked.extend((marks[i].gone > 0).then_some(i));
            continue;
        };
        let alone = SegmentGroup {
            sources: i..i + 1,
            clean_us: shape.tombstones.filter(|clean| *clean > 0),
            bytes: source.end,
            gone: marks[i].gone,
            is_unclean: shape.tombstones == Some(0),
            shape,
        };
        let joined = open.as_ref().and_then(|open| open.with(&alone, source.end));
        if joined.is_none() {
            groups.extend(open.take());
        }
        let group = joined.unwrap_or(alone);
        if group.sources.len() == 1 && !group.fits(source.end) {
            blocked.extend((group.gone > 0).then_some(i));
        } else {
            open = Some(group);
        }
    }
    groups.extend(open);
    // A tombstone that hides a remaining record is not clean.
    let hiding = if blocked.is_empty() {
        vec![false; sources.len()]
    } else {
        hiding(log, sources, how, (marks, &blocked))?
    };
    let can_be_clean = |group: &SegmentGroup| {
        knows_all && !hiding[group.sources.clone()].iter().any(|hides| *hides)
    };
    for group in groups.iter_mut().filter(|group| !can_be_clean(group)) {
        group.clean_us = Some(0);
    }
    let cleans = |group: &SegmentGroup| group.is_unclean && can_be_clean(group);
    groups.retain(|group| group.sources.len() > 1 || group.gone > 0 || cleans(group));
    Ok(CompactionPlan { groups, blocked })
}

impl SegmentGroup {
    /// Merge both, if they may be merged, with content that ends at `end`.
    fn with(&self, next: &Self, end: u64) -> Option<Self> {
        let (a, b) = (self.shape.tombstones, next.shape.tombstones);
        let agree = a.is_none() || b.is_none() || a == b;
        // A topic is known from the snapshot on, which is that of the first one.
        let knows = next.shape.offsets.keys().all(|topic| self.shape.offsets.contains_key(topic));
        let follows = self.sources.end == next.sources.start && self.sources.len() < MOST;
        if !follows || !agree || !knows {
            return None;
        }
        let mut shape = self.shape.clone();
        // A gap before the first block of the second may need a block; what both begin and end with
        // is written once.
        let gaps = next.shape.offsets.len() as u64 * align(MAX_HEADER_LEN as u64);
        shape.until += next.shape.until - FIRST_BLOCK + gaps;
        shape.tombstones = a.or(b);
        for (topic, offsets) in &next.shape.offsets {
            let all = shape.offsets.entry(*topic).or_insert_with(|| offsets.clone());
            all.end = all.end.max(offsets.end);
        }
        let ((base, last), (other, later)) = (shape.times, next.shape.times);
        shape.times = (base.min(other), last.max(later));
        let group = Self {
            sources: self.sources.start..next.sources.end,
            clean_us: shape.tombstones.filter(|clean| *clean > 0),
            bytes: self.bytes + next.bytes,
            shape,
            gone: self.gone + next.gone,
            is_unclean: self.is_unclean || next.is_unclean,
        };
        // The bound may exceed the true length a little, so the content might not end there.
        let has_room = group.shape.until + HEADER_LEN as u64 <= end;
        (has_room && group.fits(end)).then_some(group)
    }

    fn fits(&self, end: u64) -> bool {
        let shape = &self.shape;
        let numbered = shape.offsets.values().all(|offsets| offsets.end - offsets.start < NUMBERS);
        let (base, last) = shape.times;
        let in_time = last.saturating_sub(base) <= MAX_RELATIVE_TIME as i64;
        fill::fits(shape.until, end) && numbered && in_time
    }
}

fn shape(log: &Log, source: &Source, marks: &Marks) -> Result<Option<Shape>> {
    let Some(segment) = source.open(log)? else {
        return Err(missing(&log.dir, source.sequence));
    };
    let Some(until) = fill::measure(log, &segment, source, marks)? else { return Ok(None) };
    let (mut number, mut has_tombstones) = (0, false);
    let base = source.header.time_base_us;
    let mut last = base;
    let walk = walk(&segment, source.end, |data| {
        last = last.max(data.appended_ns() / 1000);
        let begin = number;
        number += u64::from(data.count());
        if has_tombstones || data.block.header.flags & flag::RICH == 0 {
            return Ok(true);
        }
        let (mut records, body) = (data.records()?, data.body());
        let mut at = begin;
        while let Some(parts) = records.next(body).map_err(|what| data.damaged(what))? {
            has_tombstones |= parts.value.is_none() && parts.key.is_some() && !marks.goes(at);
            at += 1;
        }
        Ok(true)
    })?;
    let began = &segment.opening()?.state;
    let offsets = began.topics().map(|(topic, state)| {
        let end = walk.state.topic(topic).map_or(state.next, |after| after.next);
        (topic, state.next..end)
    });
    let clean = source.header.replaces.map_or(0, |replaces| replaces.clean_us);
    let tombstones = has_tombstones.then_some(clean);
    Ok(Some(Shape { until, offsets: offsets.collect(), times: (base, last), tombstones }))
}
