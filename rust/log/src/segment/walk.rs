//! Walking a segment from its first block, with the log's state at each step.
//!
//! A [`SegmentWalker`] turns relative offsets into absolute ones. It keeps the base of every topic,
//! which snapshot and meta blocks set, and the [`LogState`] that results from all blocks. It stops
//! at the first zero word, at the end block, or at a limit; the caller decides what that means.
//!
//! A caller can make a walk pass over corruption. From then on it is *unsure* of every topic that
//! may have records in there, until a block of that topic has its next offset.
//! [`SegmentWalker::state_beyond_damage`] is safe to build on in any case. The log's cursors,
//! idempotency keys and producers are in doubt from then on ([`LogState::doubt`]), as a corrupt
//! block may have changed them. See `docs/PROTOCOL.md`, "Corruption and offsets".

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::address::{Address, align};
use crate::format::block::{HEADER_LEN, Kind, MAX_HEADER_LEN, flag};
use crate::format::record;
use crate::format::state::{End, LogState, topics_of};
use crate::format::{DecodeError, FIRST_BLOCK};

use super::index::IndexBuild;
use super::{Block, BlockError, Check, Segment};

/// Bases of the relative offsets in a segment, by topic number.
#[derive(Clone, Debug, Default)]
pub struct Bases(Vec<Option<u64>>);

impl Bases {
    /// Return the base of a topic.
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

/// The result of a step of a walk.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "a variant's sentence says what its fields are")]
pub enum Step {
    /// Records of a topic: the offset of the first, and the highest timestamp of the topic before
    /// them.
    Data { block: Block, first: u64, highest_before_ns: i64 },
    /// A block of the log's own.
    Other(Block),
    /// The segment's last block, and the segment that it names.
    End { block: Block, end: End },
}

/// A walk through one segment.
#[derive(Clone, Debug, Default)]
pub struct SegmentWalker {
    /// Where the next block starts.
    pub position: u64,
    /// The log's state there.
    pub state: LogState,
    /// Bases of relative offsets there.
    pub bases: Bases,
    /// Topics that may have records in corruption that was passed over.
    unsure: BTreeMap<u32, OffsetGap>,
    /// True after a block that may hold more offsets than it has bytes.
    is_packed: bool,
}

/// A part of a topic that corruption hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetGap {
    /// Where the corruption begins.
    pub position: u64,
    /// The topic continues with this offset at the latest: no record in the corruption has it, nor
    /// any above it.
    pub beyond: u64,
}

impl SegmentWalker {
    /// Begin at a segment's first block.
    pub fn new() -> Self {
        Self { position: FIRST_BLOCK, ..Self::default() }
    }

    /// Continue in a segment that began with this state.
    pub fn begun_with(state: LogState, position: u64) -> Self {
        let mut bases = Bases::default();
        state.topics().for_each(|(number, topic)| bases.set(number, topic.next));
        Self { position, state, bases, ..Self::default() }
    }

    /// Take a step; `None` at a zero word.
    ///
    /// # Errors
    /// [`BlockError`] if the bytes are no block; the walk stays where it is.
    pub fn step(
        &mut self,
        segment: &Segment,
        check: Check,
    ) -> std::result::Result<Option<Step>, BlockError> {
        let Some(mut block) = segment.block(self.position, check)? else { return Ok(None) };
        if matches!(block.header.kind, Kind::Meta | Kind::Snapshot | Kind::End) {
            // Blocks of the log's own are never believed by their header alone.
            let Some(whole) = segment.block(self.position, Check::Full)? else { return Ok(None) };
            block = whole;
        }
        let bad = |what| BlockError { position: block.position, what };
        let step = match block.header.kind {
            Kind::Data => {
                let first = self.first_offset(&block).map_err(bad)?;
                let highest = highest_ns(segment, &block).map_err(bad)?;
                let before =
                    self.state.topic(block.header.topic).map_or(i64::MIN, |t| t.highest_ns);
                self.apply(segment, &block, first, highest).map_err(bad)?;
                Step::Data { block, first, highest_before_ns: before }
            }
            Kind::Meta | Kind::Snapshot => {
                let (bases, unsure) = (&mut self.bases, &mut self.unsure);
                let seen = |number, topic: &crate::format::state::TopicState| {
                    bases.set(number, topic.next);
                    unsure.remove(&number);
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

    /// As [`SegmentWalker::step`], where a segment may be read without a map, and bytes that are no block
    /// are an error.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    pub fn advance(&mut self, segment: &mut Arc<Segment>, check: Check) -> Result<Option<Step>> {
        Segment::refresh(segment)?;
        self.step(segment, check).map_err(|bad| segment.error(bad))
    }

    /// Step over blocks of records up to `until` and note them. Each is checked by its header, with
    /// one large read for many of them. It stops early at any other block, one whose body must be
    /// read, and unreadable bytes: those are left to [`SegmentWalker::step`]. No process may write
    /// before `until` meanwhile, as the reads are not ordered.
    pub fn skim(&mut self, segment: &Segment, until: u64, noted: &mut Option<IndexBuild>) {
        let mut chunk = vec![0; SKIMMED.min(until.saturating_sub(self.position) as usize)];
        while self.position < until {
            let start = self.position;
            let Ok(got) = segment.file().read_at(&mut chunk, start) else { return };
            loop {
                let rest = |walk: &Self| chunk[..got].get((walk.position - start) as usize..);
                self.skim_plain(segment, rest(self).unwrap_or_default(), until, noted);
                let left = rest(self).unwrap_or_default();
                if left.len() < MAX_HEADER_LEN && self.position > start {
                    break;
                }
                let Some(step) = self.step_read(segment, left, until) else { return };
                noted.iter_mut().for_each(|noted| noted.note(&step));
            }
        }
    }

    /// Skim plain blocks, which nearly all blocks of most logs are.
    fn skim_plain(
        &mut self,
        segment: &Segment,
        bytes: &[u8],
        until: u64,
        noted: &mut Option<IndexBuild>,
    ) {
        let Some(base) = self.bases.get(0).filter(|_| self.unsure.is_empty()) else { return };
        let Some(topic) = self.state.topic_mut(0) else { return };
        let mut rest = bytes;
        while let Some(header) = segment.plain_in(rest, self.position) {
            let end = self.position + align(u64::from(header.len));
            let first = base.checked_add(u64::from(header.offset));
            let next = first.and_then(|first| first.checked_add(u64::from(header.count)));
            let (Some(first), Some(next)) = (first, next) else { return };
            if header.flags & (flag::EVENT_TIME | flag::CODEC) != 0 || end > until {
                return;
            }
            if let Some(noted) = noted {
                noted.note_records(0, self.position, header.time, first, topic.highest_ns);
            }
            (topic.next, topic.last_crc) = (next, header.body_crc);
            topic.highest_ns = topic.highest_ns.max(ns_of(segment, header.time));
            rest = rest.get((end - self.position) as usize..).unwrap_or_default();
            self.position = end;
        }
    }

    /// Take a step over a block of records that stands alone and has no event times, by bytes that
    /// were read from here on. Otherwise return `None`, without moving.
    #[inline]
    fn step_read(&mut self, segment: &Segment, bytes: &[u8], until: u64) -> Option<Step> {
        let header = segment.header_in(bytes, self.position)?;
        let block = Block { position: self.position, header };
        let is_alone = header.group_len == 0 && !header.is_member();
        let has_times = header.flags & (flag::EVENT_TIME | flag::CODEC) != 0;
        if !is_alone || has_times || block.end() > until {
            return None;
        }
        let first = self.first_offset(&block).ok()?;
        let highest_before_ns = self.state.topic(header.topic)?.highest_ns;
        self.apply(segment, &block, first, appended_ns(segment, &block)).ok()?;
        self.position = block.end();
        Some(Step::Data { block, first, highest_before_ns })
    }

    /// Check whether the walk could step over this block of records or facts here; nothing changes.
    ///
    /// # Errors
    /// [`BlockError`], as [`SegmentWalker::step`].
    pub fn check(&self, segment: &Segment, block: &Block) -> std::result::Result<(), BlockError> {
        let checked = match block.header.kind {
            Kind::Data if self.state.topic(block.header.topic).is_none() => Err(UNKNOWN_TOPIC),
            Kind::Data => {
                self.first_offset(block).and_then(|_| highest_ns(segment, block).map(drop))
            }
            Kind::Meta | Kind::Snapshot => topics_of(segment.body(block), |_, _| ()),
            Kind::Void | Kind::End | Kind::Newer => Ok(()),
        };
        checked.map_err(|what| BlockError { position: block.position, what })
    }

    fn apply(
        &mut self,
        segment: &Segment,
        block: &Block,
        first: u64,
        highest_ns: i64,
    ) -> std::result::Result<(), DecodeError> {
        let base_us = segment.header().time_base_us;
        if !self.state.apply_data(&block.header, first, highest_ns, base_us) {
            return Err(UNKNOWN_TOPIC);
        }
        self.is_packed |= block.header.flags & (flag::SPARSE | flag::CODEC) != 0;
        if !self.unsure.is_empty() {
            self.unsure.remove(&block.header.topic);
        }
        Ok(())
    }

    /// Continue after bytes that are no valid block: at the next valid one before `limit`, or else
    /// at `limit` itself. If only a block's body is corrupt, its header has all that the walk
    /// needs.
    pub fn pass_damage(&mut self, segment: &Segment, limit: u64) {
        if let Ok(Some(block)) = segment.block(self.position, Check::Header) {
            let first = self.first_offset(&block).ok().filter(|_| block.header.kind == Kind::Data);
            let appended = appended_ns(segment, &block);
            if first.is_some_and(|first| self.apply(segment, &block, first, appended).is_ok()) {
                self.position = block.end();
                return;
            }
        }
        let behind = segment.next_block(self.position + 8, limit.saturating_add(HEADER_LEN as u64));
        let behind = behind.filter(|behind| *behind <= limit).unwrap_or(limit);
        self.doubt(segment, behind);
        self.position = behind;
    }

    /// Walk to a position up to which everything was committed, passing over corruption. After much
    /// was read, the segment is opened again on the way to save memory.
    ///
    /// # Errors
    /// `UnsupportedVersion` for a block of a newer version, `SystemCallFailed`.
    pub fn go_to(&mut self, segment: &mut Arc<Segment>, until: u64) -> Result<()> {
        while self.position < until {
            self.go_on(segment, until)?;
        }
        Ok(())
    }

    fn go_on(&mut self, segment: &mut Arc<Segment>, until: u64) -> Result<()> {
        Segment::refresh(segment)?;
        match self.step(segment, Check::Header) {
            Ok(Some(_)) => {}
            Err(bad) if bad.what.is_newer() => return Err(segment.error(bad)),
            Ok(None) | Err(_) => self.pass_damage(segment, until),
        }
        Ok(())
    }

    /// Do as [`SegmentWalker::go_to`], with large reads for blocks of records. No process may write
    /// before `until` meanwhile.
    ///
    /// # Errors
    /// As [`SegmentWalker::go_to`].
    pub fn skim_to(&mut self, segment: &mut Arc<Segment>, until: u64) -> Result<()> {
        // Blocks until skimming is worth another try, and the pause after the last try.
        let (mut left, mut pause) = (0u32, 0u32);
        while self.position < until {
            if left == 0 {
                let before = self.position;
                self.skim(segment, until, &mut None);
                pause = if self.position > before { 0 } else { (2 * pause).clamp(1, 4096) };
                left = pause;
            }
            left = left.saturating_sub(1);
            if self.position < until {
                self.go_on(segment, until)?;
            }
        }
        Ok(())
    }

    /// Note that any topic may have records in the bytes up to `end`. That is at most one in each
    /// byte, unless they are packed or were compacted. There are never more than a segment can
    /// number.
    fn doubt(&mut self, segment: &Segment, end: u64) {
        let packed = self.is_packed || segment.header().replaces.is_some();
        let bytes = end.saturating_sub(self.position);
        self.state.doubt_facts(Address::new(segment.sequence(), self.position));
        for (number, topic) in self.state.topics() {
            let most = self.bases.get(number).unwrap_or(topic.next).saturating_add(NUMBERS);
            let new = OffsetGap { position: self.position, beyond: topic.next };
            let lost = self.unsure.entry(number).or_insert(new);
            lost.beyond = if packed { most } else { lost.beyond.saturating_add(bytes).min(most) };
        }
    }

    /// Make a topic unsure for a reason from outside: it may have records up to `beyond`.
    pub fn doubt_topic(&mut self, number: u32, beyond: u64) {
        let new = OffsetGap { position: self.position, beyond };
        let lost = self.unsure.entry(number).or_insert(new);
        lost.beyond = lost.beyond.max(beyond);
    }

    /// Return whether a topic's next offset is that of the state, and not hidden by corruption.
    #[inline]
    pub fn is_sure_of(&self, topic: u32) -> bool {
        self.unsure.is_empty() || !self.unsure.contains_key(&topic)
    }

    /// Return whether that holds for all topics.
    #[inline]
    pub fn is_sure(&self) -> bool {
        self.unsure.is_empty()
    }

    /// Iterate over the topics whose next offset is hidden, by number.
    pub fn unsure(&self) -> impl Iterator<Item = (u32, OffsetGap)> {
        self.unsure.iter().map(|(number, lost)| (*number, *lost))
    }

    /// Return the log's state here, with each unsure topic continuing beyond the corruption: a new
    /// segment may begin with it.
    pub fn state_beyond_damage(&self) -> Cow<'_, LogState> {
        if self.is_sure() {
            return Cow::Borrowed(&self.state);
        }
        let mut state = self.state.clone();
        for (number, lost) in &self.unsure {
            if let Some(topic) = state.topic_mut(*number) {
                topic.next = topic.next.max(lost.beyond);
            }
        }
        Cow::Owned(state)
    }

    /// Return the first offset of a data block of this segment.
    ///
    /// # Errors
    /// `Damaged` when the segment did not introduce the block's topic, or offsets overflow.
    #[inline]
    pub fn first_offset(&self, block: &Block) -> std::result::Result<u64, DecodeError> {
        let base = self.bases.get(block.header.topic).ok_or(UNKNOWN_TOPIC)?;
        base.checked_add(u64::from(block.header.offset))
            .filter(|first| first.checked_add(u64::from(block.header.span)).is_some())
            .ok_or(DecodeError::Damaged("an offset beyond 64 bits"))
    }

    /// Walk over the snapshots at a segment's beginning: one, or two if it was prepared before a
    /// roll.
    ///
    /// # Errors
    /// `CorruptData` or `UnsupportedVersion` if a snapshot is, and when one is missing.
    pub fn through_snapshot(segment: &Segment) -> Result<Self> {
        let mut walk = Self::new();
        let mut missing = segment.header().snapshots();
        loop {
            // By its commit word alone: the block after the snapshots may be torn or corrupt, and
            // its readers get that error.
            match segment.kind(walk.position) {
                Ok(Some(Kind::Snapshot)) => {}
                Err(bad) if missing > 0 => return Err(segment.error(bad)),
                _ => break,
            }
            walk.step(segment, Check::Full).map_err(|bad| segment.error(bad))?;
            missing = missing.saturating_sub(1);
        }
        if missing > 0 {
            let what = DecodeError::Damaged("a segment without all of its snapshot");
            return Err(Error::malformed(segment.path(), walk.position, what));
        }
        Ok(walk)
    }
}

/// Bytes read at once when many blocks are passed over.
const SKIMMED: usize = 256 << 10;

/// Most offsets of a topic in one segment.
pub const NUMBERS: u64 = 1 << 32;

const UNKNOWN_TOPIC: DecodeError =
    DecodeError::Damaged("a block of a topic that the log does not know");

/// Return when a block was appended, nanoseconds since 1970.
#[inline]
pub fn appended_ns(segment: &Segment, block: &Block) -> i64 {
    ns_of(segment, block.header.time)
}

/// Convert the time in a block's header to nanoseconds since 1970.
#[inline]
pub fn ns_of(segment: &Segment, time: u64) -> i64 {
    let us = segment.header().time_base_us.saturating_add(time as i64);
    us.saturating_mul(1000)
}

/// Return the highest timestamp in a data block, nanoseconds since 1970. For a codec that this
/// version lacks it is the time of the append, as it cannot read the records.
///
/// # Errors
/// `Damaged` when its records are corrupt.
#[inline]
pub fn highest_ns(segment: &Segment, block: &Block) -> std::result::Result<i64, DecodeError> {
    let appended = appended_ns(segment, block);
    if block.header.flags & (flag::EVENT_TIME | flag::CODEC) != flag::EVENT_TIME {
        return Ok(appended);
    }
    let body = segment.body(block);
    let mut records = record::RecordCursor::new(block.header.flags, block.header.count, body)?;
    let mut highest = i64::MIN;
    while let Some(parts) = records.next(body)? {
        highest = highest.max(parts.event_time_ns.unwrap_or(appended));
    }
    Ok(highest)
}

#[cfg(all(test, not(loom)))]
#[path = "walk_tests.rs"]
mod tests;
