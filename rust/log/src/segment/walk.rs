//! Walking a segment from its first block, knowing at each step what the log knows there.
//!
//! A [`Walk`] turns relative offsets into absolute ones: it keeps the base of every topic, which
//! snapshot and meta blocks set, and the [`LogState`] that they and the data blocks add up to. It
//! stops at the first zero word, at the end block, or at a limit; what that means is for the caller.

use crate::error::{Error, Result};
use crate::format::block::Kind;
use crate::format::record;
use crate::format::state::{End, LogState};
use crate::format::{Malformed, PAGE};

use super::{Bad, Block, Check, Segment};

/// Bases of the relative offsets in a segment, by topic number.
#[derive(Clone, Debug, Default)]
pub struct Bases(Vec<Option<u64>>);

impl Bases {
    /// Base of a topic.
    #[inline]
    pub fn get(&self, topic: u32) -> Option<u64> {
        self.0.get(topic as usize).copied().flatten()
    }

    /// Set the base of a topic.
    pub fn set(&mut self, topic: u32, base: u64) {
        let index = topic as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(base);
    }
}

/// What a step of a walk found.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Records of a topic: the offset of the first, and the highest timestamp of the topic before
    /// them.
    Data { block: Block, first: u64, highest_before_ns: i64 },
    /// A block that only the log itself is interested in.
    Other(Block),
    /// The segment's last block, and what it names.
    End { block: Block, end: End },
}

/// A walk through one segment.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// Where the next block starts.
    pub position: u64,
    /// What the log knows there.
    pub state: LogState,
    /// Bases of relative offsets there.
    pub bases: Bases,
}

impl Walk {
    /// Begin at a segment's first block.
    pub fn new() -> Self {
        Self { position: PAGE, ..Self::default() }
    }

    /// The next block; `None` at a zero word.
    ///
    /// # Errors
    /// [`Bad`] where the bytes are no block; the walk stays where it is.
    pub fn step(
        &mut self,
        segment: &Segment,
        check: Check,
    ) -> std::result::Result<Option<Step>, Bad> {
        let Some(block) = segment.block(self.position, check)? else { return Ok(None) };
        let bad = |what| Bad { position: block.position, what };
        let step = match block.header.kind {
            Kind::Data => {
                let first = self.first_offset(&block).map_err(bad)?;
                let highest = highest_ns(segment, &block).map_err(bad)?;
                let before =
                    self.state.topic(block.header.topic).map_or(i64::MIN, |t| t.highest_ns);
                if !self.state.apply_data(&block.header, first, highest) {
                    return Err(bad(UNKNOWN_TOPIC));
                }
                Step::Data { block, first, highest_before_ns: before }
            }
            Kind::Meta | Kind::Snapshot => {
                let bases = &mut self.bases;
                let seen = |number, topic: &crate::format::state::TopicState| {
                    bases.set(number, topic.next)
                };
                self.state.apply_body(segment.body(&block), seen).map_err(bad)?;
                Step::Other(block)
            }
            Kind::End => {
                let end = End::decode(segment.body(&block)).map_err(bad)?;
                Step::End { block, end }
            }
            Kind::Void | Kind::Newer => Step::Other(block),
        };
        self.position = block.end();
        Ok(Some(step))
    }

    /// First offset of a data block of the segment walked.
    ///
    /// # Errors
    /// `Damaged` when the segment did not introduce the block's topic, or offsets overflow.
    #[inline]
    pub fn first_offset(&self, block: &Block) -> std::result::Result<u64, Malformed> {
        let base = self.bases.get(block.header.topic).ok_or(UNKNOWN_TOPIC)?;
        base.checked_add(u64::from(block.header.offset))
            .filter(|first| first.checked_add(u64::from(block.header.span)).is_some())
            .ok_or(Malformed::Damaged("an offset beyond 64 bits"))
    }

    /// Walk over the snapshot and meta blocks that every segment begins with.
    ///
    /// # Errors
    /// `Corrupt` or `Newer` when they are damaged; also when there is none.
    pub fn through_snapshot(segment: &Segment) -> Result<Self> {
        let mut walk = Self::new();
        // By its commit word alone: what follows the snapshot may be torn, which is for whoever
        // reads it.
        while segment.kind(walk.position).map_err(|bad| segment.error(bad))? == Some(Kind::Snapshot)
        {
            walk.step(segment, Check::Full).map_err(|bad| segment.error(bad))?;
        }
        if walk.position == PAGE {
            let what = Malformed::Damaged("a segment without a snapshot");
            return Err(Error::malformed(segment.path(), PAGE, what));
        }
        Ok(walk)
    }
}

const UNKNOWN_TOPIC: Malformed =
    Malformed::Damaged("a block of a topic that the log does not know");

/// When a block was appended, nanoseconds since 1970.
#[inline]
pub fn appended_ns(segment: &Segment, block: &Block) -> i64 {
    let us = segment.header().time_base_us.saturating_add(block.header.time as i64);
    us.saturating_mul(1000)
}

/// Highest timestamp in a data block, nanoseconds since 1970.
///
/// # Errors
/// `Damaged` when its records are.
#[inline]
pub fn highest_ns(segment: &Segment, block: &Block) -> std::result::Result<i64, Malformed> {
    let appended = appended_ns(segment, block);
    if block.header.flags & crate::format::block::flag::EVENT_TIME == 0 {
        return Ok(appended);
    }
    let body = segment.body(block);
    let mut records = record::Walk::new(block.header.flags, block.header.count, body)?;
    let mut highest = i64::MIN;
    while let Some(parts) = records.next(body)? {
        highest = highest.max(parts.event_time_ns.unwrap_or(appended));
    }
    Ok(highest)
}
