//! Which segments are put together to one, and which are left as they are.
//!
//! Owns the sizes: what is left of each segment, never less than it will take, and whether it fits below
//! the place where the content of the last one of a group has to end. Neighbours are put together as long
//! as that is so. A segment of which nothing goes is left alone, and so is one that would not get smaller:
//! then what lies behind it is *blocked*, which is told, as it matters for tombstones. Segments whose
//! tombstones wait since different times stay apart, for the time is the segment's.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Result;
use crate::format::address::align;
use crate::format::block::{HEADER_LEN, MAX_HEADER_LEN, MAX_RELATIVE_TIME};
use crate::format::state::LogState;
use crate::format::{PAGE, varint};
use crate::segment::create::own_len;
use crate::segment::walk::{NUMBERS, appended_ns};

use super::super::Log;
use super::keys::{Marks, records_of};
use super::source::Source;

/// Segments of a group at most: all of them are open while it is replaced.
const MOST: usize = 256;
/// Bytes that each record takes at most beside itself: the offset that it tells.
const DELTA: u64 = 5;

/// Neighbours that one segment takes the place of.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Which of the sources.
    pub(super) sources: Range<usize>,
    /// Since when its tombstones hide nothing; `None`: since now.
    pub(super) clean_us: Option<i64>,
    /// Bytes of them.
    pub(super) bytes: u64,
    shape: Shape,
    gone: u64,
    /// True where it has to be written for its tombstones' sake.
    is_unclean: bool,
}

/// What is left of some segments.
#[derive(Clone, Debug, Default)]
struct Shape {
    /// Bytes of blocks, at most.
    bytes: u64,
    /// What the first of them begins with, in bytes.
    snapshot: u64,
    /// Offsets, by topic number.
    offsets: BTreeMap<u32, Range<u64>>,
    /// Times of blocks, and the base of the earliest segment, microseconds since 1970.
    times: Option<(i64, i64)>,
    /// Whether tombstones are left, and since when they hide nothing; 0: not known.
    tombstones: Option<i64>,
}

/// Which groups are worth it, oldest first, and whether something that should go stays. Where it is not
/// known of all records whether they are the last, none of what is left is clean.
pub(super) fn plan(
    log: &Log,
    sources: &[Source],
    marks: &[Marks],
    knows_all: bool,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<(Vec<Group>, bool)> {
    let mut groups: Vec<Group> = Vec::new();
    let mut open: Option<Group> = None;
    let mut blocked = false;
    for (i, source) in sources.iter().enumerate() {
        let shape = shape(log, source, &marks[i])?;
        let alone = Group {
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
            blocked |= group.gone > 0 || group.is_unclean;
        } else {
            open = Some(group);
        }
        tell(source.end)?;
    }
    groups.extend(open);
    let can_be_clean = knows_all && !blocked;
    if !can_be_clean {
        // What hides something that stays is not.
        groups.iter_mut().for_each(|group| group.clean_us = Some(0));
    }
    let cleans = |group: &Group| group.is_unclean && can_be_clean;
    groups.retain(|group| group.sources.len() > 1 || group.gone > 0 || cleans(group));
    Ok((groups, blocked))
}

impl Group {
    /// Both together, if they may be, with content that ends at `end`.
    fn with(&self, next: &Self, end: u64) -> Option<Self> {
        let (a, b) = (self.shape.tombstones, next.shape.tombstones);
        let agree = a.is_none() || b.is_none() || a == b;
        if self.sources.end != next.sources.start || self.sources.len() == MOST || !agree {
            return None;
        }
        let mut shape = self.shape.clone();
        shape.bytes += next.shape.bytes;
        shape.tombstones = a.or(b);
        for (topic, offsets) in &next.shape.offsets {
            let all = shape.offsets.entry(*topic).or_insert_with(|| offsets.clone());
            all.end = all.end.max(offsets.end);
        }
        shape.times = match (shape.times, next.shape.times) {
            (Some((base, last)), Some((other, later))) => Some((base.min(other), last.max(later))),
            (some, other) => some.or(other),
        };
        let group = Self {
            sources: self.sources.start..next.sources.end,
            clean_us: shape.tombstones.filter(|clean| *clean > 0),
            bytes: self.bytes + next.bytes,
            shape,
            gone: self.gone + next.gone,
            is_unclean: self.is_unclean || next.is_unclean,
        };
        group.fits(end).then_some(group)
    }

    fn fits(&self, end: u64) -> bool {
        let shape = &self.shape;
        let gaps = shape.offsets.len() as u64 * align(MAX_HEADER_LEN as u64);
        let bytes = PAGE + shape.snapshot + shape.bytes + gaps + HEADER_LEN as u64;
        let numbered = shape.offsets.values().all(|offsets| offsets.end - offsets.start < NUMBERS);
        let in_time = shape.times.is_none_or(|(base, last)| {
            last.saturating_sub(base) <= MAX_RELATIVE_TIME as i64
        });
        bytes <= end && numbered && in_time
    }
}

fn shape(log: &Log, source: &Source, marks: &Marks) -> Result<Shape> {
    let mut shape = Shape::default();
    let (mut number, mut has_tombstones) = (0, false);
    let base = source.header.time_base_us;
    let mut times = (base, base);
    let mut began: Option<LogState> = None;
    let walk = source.walk(log, |segment, block, _| {
        if began.is_none() {
            began = Some(segment.opening()?.state.clone());
        }
        times.1 = times.1.max(appended_ns(segment, block) / 1000);
        let begin = number;
        number += u64::from(block.header.count);
        let left = (begin..number).filter(|number| !marks.goes(*number)).count() as u64;
        if left == u64::from(block.header.count) {
            // It may stand behind a block of its own that says what is missing before it.
            shape.bytes += block.header.padded() + align(MAX_HEADER_LEN as u64);
        }
        let (mut records, body) = (records_of(segment, block)?, segment.body(block));
        let (mut at, mut start, mut bytes) = (begin, 0, 0);
        let is_whole = left == u64::from(block.header.count);
        let bad = |what| {
            segment.error(crate::segment::Bad { position: block.position, what })
        };
        while let Some(parts) = records.next(body).map_err(bad)? {
            if !marks.goes(at) {
                has_tombstones |= parts.value.is_none() && parts.key.is_some();
                bytes += (parts.end - start) as u64 + DELTA;
            }
            (at, start) = (at + 1, parts.end);
        }
        if left > 0 && !is_whole {
            shape.bytes += align(MAX_HEADER_LEN as u64 + 8 + bytes);
        } else if is_whole && left <= super::fill::FEW {
            shape.bytes += left * DELTA + 8;
        }
        Ok(true)
    })?;
    let began = match began {
        Some(began) => began,
        None => match source.open(log)? {
            Some(segment) => segment.opening()?.state.clone(),
            None => return Err(super::super::chain::missing(&log.dir, source.sequence)),
        },
    };
    shape.snapshot = own_len(began.encode_since(&LogState::default()).len());
    shape.bytes += own_len(walk.state.encode_since(&began).len());
    for (topic, state) in began.topics() {
        let end = walk.state.topic(topic).map_or(state.next, |after| after.next);
        shape.offsets.insert(topic, state.next..end);
    }
    shape.times = Some(times);
    let clean = source.header.replaces.map_or(0, |replaces| replaces.clean_us);
    shape.tombstones = has_tombstones.then_some(clean);
    debug_assert!(varint::MAX_LEN as u64 >= DELTA);
    Ok(shape)
}
