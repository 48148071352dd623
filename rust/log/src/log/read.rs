//! Reading: cursors over the committed blocks of one topic.
//!
//! A cursor takes no lock and writes nothing. It loads commit words in order. It believes a zero
//! only after checking whether the log's tail lies beyond it: a zero below the tail is corruption,
//! never an end. It leaves a segment where the successor's header says, not where valid bytes stop,
//! so it does not read what a cut left. Invariant: the returned blocks hold offsets without a gap.
//! See `docs/PROTOCOL.md`, "Read".

use std::path::Path;
use std::sync::Arc;

use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::format::DecodeError;
use crate::format::address::Address;
use crate::format::block::{BlockHeader, Kind, flag};
use crate::format::segment::Mark;
use crate::format::state::{End, TopicState, topics_of};
use crate::segment::walk::SegmentWalker;
use crate::segment::{Block, BlockError, Check, NO_BLOCK, Segment};

use super::chain::{Next, is_missing, is_same_file};
use super::{DataBlock, Log};

/// A place in one topic of a log, from which blocks are read onwards.
#[derive(Clone, Debug)]
pub struct BlockCursor {
    pub(super) log: Arc<Log>,
    pub(super) topic: u32,
    pub(super) check: Check,
    /// The block returned last, if there is one; in any case it names the current segment.
    here: DataBlock,
    pub(super) position: u64,
    pub(super) base: Option<u64>,
    pub(super) limit: Option<u64>,
    pub(super) expected: Option<u64>,
    /// Lowest offset to look for when `expected` is not known.
    pub(super) floor: u64,
    /// Blocks of other topics since its own topic's last one.
    pub(super) foreign: u32,
}

/// After this many blocks of other topics in a row, it looks up its own topic's next one.
const FAR: u32 = 64;

/// The next step of a cursor that found no block.
enum Turn {
    Again,
    End,
}

impl BlockCursor {
    /// Make a cursor at the first block of a segment.
    pub(super) fn new(
        log: Arc<Log>,
        segment: Arc<Segment>,
        topic: u32,
        check: Check,
    ) -> Result<Self> {
        let limit = log.limit(&segment)?;
        let opening = log.opening(&segment)?;
        let (position, base) = (opening.position, opening.bases.get(topic));
        let none = Block { position, header: BlockHeader::new(Kind::Void) };
        let floor = base.unwrap_or(0);
        let here = DataBlock { segment, block: none, first: floor };
        Ok(Self {
            log,
            topic,
            check,
            here,
            position,
            base,
            limit,
            expected: None,
            floor,
            foreign: 0,
        })
    }

    /// Return its current segment.
    #[inline]
    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.here.segment
    }

    /// Return the block that [`BlockCursor::next_block`] returned last, if no other call followed.
    #[inline]
    pub(crate) fn block(&self) -> &DataBlock {
        &self.here
    }

    /// Note that a scan read so many bytes of its current segment, up to its position.
    pub(crate) fn note_read(&self, bytes: u64) {
        self.log.chain.note_read(self.segment().sequence(), bytes);
    }

    /// Return the log that it reads.
    #[inline]
    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Return true when it checks the blocks that it returns in full.
    #[inline]
    pub(crate) fn verifies(&self) -> bool {
        self.check == Check::Full
    }

    /// Return the number of the topic that it reads.
    #[inline]
    pub(crate) fn topic(&self) -> u32 {
        self.topic
    }

    /// Read on from an offset, as [`Log::cursor_at`].
    ///
    /// # Errors
    /// As that one; then it stays where it is.
    pub(crate) fn go_to(&mut self, offset: u64) -> Result<()> {
        *self = self.log.cursor_at(self.topic, offset, self.check)?;
        Ok(())
    }

    /// Return to another segment; the caller sets the place in it.
    pub(super) fn turn_back(&mut self, segment: Arc<Segment>) {
        self.here.segment = segment;
    }

    /// Return the next block of the topic; `None` at the committed end. It is lent until the cursor
    /// moves on: a caller that keeps it longer clones it.
    ///
    /// # Errors
    /// `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`; the cursor stays where it is.
    #[inline(always)]
    pub fn next_block(&mut self) -> Result<Option<&DataBlock>> {
        let found =
            self.next_plain() || self.next_other().map_err(|e| self.log.unless_deleted(e))?;
        Ok(found.then_some(&self.here))
    }

    /// Take the usual step in as few instructions as possible: a plain block at the expected
    /// offset. False for all else, including the end and corruption, for which
    /// [`BlockCursor::next_other`] finds the reason.
    #[inline(always)]
    fn next_plain(&mut self) -> bool {
        let (Some(base), Some(first)) = (self.base, self.expected) else { return false };
        let position = self.position;
        if self.topic != 0 || self.limit.is_some_and(|limit| position >= limit) {
            return false;
        }
        let Some(header) = self.here.segment.plain(position, self.check) else { return false };
        if base.saturating_add(u64::from(header.offset)) != first {
            return false;
        }
        self.here.block = Block { position, header: header.into() };
        self.here.first = first;
        self.position = self.here.block.end();
        self.expected = Some(self.here.end());
        true
    }

    /// Take any step, with every check and its reason. True when there is a block.
    #[inline(never)]
    fn next_other(&mut self) -> Result<bool> {
        let mut seen = None;
        loop {
            match self.go_on() {
                Err(error) if is_missing(&error) => {
                    let changes = self.log.chain.changes();
                    self.after_removal(error, seen == Some(changes))?;
                    seen = Some(self.log.chain.changes());
                }
                done => return done,
            }
        }
    }

    fn go_on(&mut self) -> Result<bool> {
        loop {
            // Repeated for a segment that was cut at its beginning: the rest of it is not read.
            while self.limit.is_some_and(|limit| self.position >= limit) {
                self.leave()?;
            }
            if self.segment().exceeds_cache() {
                self.here.segment = self.log.chain.reopen_empty(self.segment())?;
            }
            match self.segment().block(self.position, self.check) {
                Ok(Some(block)) => {
                    if self.accept(&block)? {
                        return Ok(true);
                    }
                }
                Ok(None) => match self.at_zero()? {
                    Turn::Again => {}
                    Turn::End => return Ok(false),
                },
                Err(bad) => self.at_damage(bad)?,
            }
        }
    }

    #[inline]
    fn accept(&mut self, block: &Block) -> Result<bool> {
        if block.header.kind != Kind::Data {
            self.pass(block)?;
            return Ok(false);
        }
        let is_part = block.header.group_len > 0 && !planted(Canary::HalfGroup);
        if is_part && self.check == Check::Full {
            let whole = self.segment().check_group(block);
            if let Err(bad) = whole {
                self.at_damage(bad)?;
                return Ok(false);
            }
        }
        let own = block.header.topic == self.topic;
        if own {
            let first = self.first_offset(block)?;
            self.expected = Some(first + u64::from(block.header.span));
            (self.here.block, self.here.first) = (*block, first);
            self.foreign = 0;
        }
        self.position = block.end();
        if !own {
            self.foreign = self.foreign.saturating_add(1);
            if self.foreign == FAR {
                self.skip_foreign();
            }
        }
        Ok(own)
    }

    #[inline]
    fn first_offset(&self, block: &Block) -> Result<u64> {
        let base =
            self.base.ok_or(DecodeError::Damaged("a block of a topic that the log does not know"));
        let first = base.map(|base| base.saturating_add(u64::from(block.header.offset)));
        // Compaction merges blocks: a reader that has read some of them may be in the middle of
        // one.
        let within = |first: u64, expected: u64| {
            block.header.flags & flag::SPARSE != 0
                && first < expected
                && expected - first < u64::from(block.header.span)
        };
        let dense = first.and_then(|first| match self.expected {
            Some(expected) if expected != first && !within(first, expected) => {
                Err(DecodeError::Damaged("offsets with a gap"))
            }
            _ => Ok(first),
        });
        dense.map_err(|what| self.doubt(BlockError { position: block.position, what }))
    }

    #[cold]
    fn pass(&mut self, block: &Block) -> Result<()> {
        // Blocks of the log's own are never believed by their header alone.
        let speaks = matches!(block.header.kind, Kind::End | Kind::Meta | Kind::Snapshot);
        let checked = speaks.then(|| self.segment().block(block.position, Check::Full));
        if let Some(Err(bad)) = checked {
            return self.at_damage(bad);
        }
        match block.header.kind {
            Kind::End => {
                let end = End::decode(self.segment().body(block));
                let bad = |what| BlockError { position: block.position, what };
                let end = end.map_err(|what| self.segment().error(bad(what)))?;
                return self.follow_end(end);
            }
            Kind::Meta | Kind::Snapshot => {
                let (topic, mut base) = (self.topic, self.base);
                let seen = |number, state: &TopicState| {
                    if number == topic {
                        base = Some(state.next);
                    }
                };
                let applied = topics_of(self.segment().body(block), seen);
                let bad = |what| BlockError { position: block.position, what };
                applied.map_err(|what| self.segment().error(bad(what)))?;
                self.base = base;
            }
            Kind::Data | Kind::Void | Kind::Newer => {}
        }
        self.position = block.end();
        Ok(())
    }

    /// Go to the segment that an end block names, unless it was cut away.
    fn follow_end(&mut self, end: End) -> Result<()> {
        let next = self.log.chain.segment(end.sequence);
        match next {
            Ok(next) if next.salt() == end.salt && self.log.chain.holds(end.sequence)? => {
                self.enter(next)
            }
            _ => self.leave(),
        }
    }

    /// Go to the segment that continues this one.
    #[cold]
    fn leave(&mut self) -> Result<()> {
        match self.log.chain.next(self.segment())? {
            Next::Segment { sequence, end } if self.position <= end => {
                match self.log.chain.segment(sequence) {
                    Ok(next) => self.enter(next),
                    // It may have been superseded, and put away since the listing. A segment that
                    // is still part of the log is met again on every way.
                    Err(error) => match self.log.chain.refresh() {
                        Ok(listed) if !listed.contains(&sequence) => {
                            self.reenter().map_err(|other| unless_trimmed(other, error))
                        }
                        _ => Err(error),
                    },
                }
            }
            Next::Segment { end, .. } if self.limit == Some(end) => {
                let what = "a block that reaches beyond the end of its segment's content";
                Err(self.doubt(BlockError { position: end, what: DecodeError::Damaged(what) }))
            }
            // Another segment holds the same offsets as the cut part that was read.
            Next::Segment { .. } | Next::Superseded | Next::Removed => self.reenter(),
            Next::Nothing => {
                let what = DecodeError::Damaged("the segment that follows is missing");
                Err(self.doubt(BlockError { position: self.position, what }))
            }
        }
    }

    /// Handle a missing segment on the way. If the current one is gone as well, retention deleted
    /// both: the cursor continues by offset, or returns that the next records were trimmed. If only
    /// the way changed, compaction ran: it looks again, with `again` set if it did so before.
    #[cold]
    fn after_removal(&mut self, error: Error, again: bool) -> Result<()> {
        if self.log.chain.refresh()?.contains(&self.segment().sequence()) {
            return if again { Err(error) } else { Ok(()) };
        }
        self.reenter().map_err(|other| unless_trimmed(other, error))
    }

    fn enter(&mut self, segment: Arc<Segment>) -> Result<()> {
        // Also if the segment still exists, or is still mapped: the error must not depend on when
        // files are removed.
        let wanted = self.expected.unwrap_or(self.floor);
        if wanted < self.log.trimmed(self.topic) {
            return Err(self.log.out_of_range(self.topic, wanted)?);
        }
        let opening = self.log.opening(&segment)?;
        let limit = self.log.limit(&segment)?;
        let base = opening.bases.get(self.topic);
        if let (Some(expected), Some(base)) = (self.expected, base) {
            if base > expected {
                let what =
                    DecodeError::Damaged("what the topic held up to the next segment is lost");
                return Err(self.segment().error(BlockError { position: self.position, what }));
            }
            if base < expected {
                // It replaces more segments than the next one.
                return self.reenter();
            }
        }
        self.position = opening.position;
        self.foreign = 0;
        self.base = base.or(self.base);
        // The topic has no record between the base and the segment's first block.
        self.floor = self.base.unwrap_or(self.floor).max(self.floor);
        self.limit = limit;
        self.go_to_segment(segment);
        Ok(())
    }

    /// Move to another segment, and leave the previous one.
    fn go_to_segment(&mut self, segment: Arc<Segment>) {
        let (before, now) = (self.segment().sequence(), segment.sequence());
        // First, so that the cursor no longer uses the previous one.
        self.here.segment = segment;
        if before != now {
            self.log.chain.leave(before);
        }
    }

    /// Continue by offset, in the log as it is now.
    fn reenter(&mut self) -> Result<()> {
        self.log.chain.refresh()?;
        let wanted = self.expected.unwrap_or(self.floor);
        let other = self.log.cursor_at(self.topic, wanted, self.check)?;
        if other.address() == self.address() && is_same_file(other.segment(), self.segment()) {
            // It left this segment for a reason that still exists: going round would never end.
            let what = DecodeError::Damaged("a segment that its own log leads away from");
            return Err(self.doubt(BlockError { position: self.position, what }));
        }
        self.go_on_as(other, wanted);
        Ok(())
    }

    /// Continue at the place of another cursor, which was sent to the next offset.
    pub(super) fn go_on_as(&mut self, other: Self, wanted: u64) {
        self.go_to_segment(Arc::clone(other.segment()));
        *self = Self { expected: self.expected, floor: wanted.min(other.floor), ..other };
    }

    #[cold]
    fn at_zero(&mut self) -> Result<Turn> {
        let Some(tail) = self.log.committed() else {
            // No process recovered the log. If another segment follows, this is a hole, not its
            // end.
            let goes_on = self.limit.is_some_and(|limit| self.position < limit);
            let bad = BlockError { position: self.position, what: NO_BLOCK };
            return if goes_on { self.at_damage(bad).map(|()| Turn::Again) } else { Ok(Turn::End) };
        };
        // The tail was loaded after the word: all that lies below it must be visible now.
        if self.segment().word(self.position) != 0 {
            return Ok(Turn::Again);
        }
        let sequence = self.segment().sequence();
        if tail.sequence() < sequence || tail == Address::new(sequence, self.position) {
            return Ok(Turn::End);
        }
        if tail.sequence() > sequence {
            if self.is_behind_cut()? {
                return self.leave().map(|()| Turn::Again);
            }
        } else if tail.position() < self.position {
            return Ok(Turn::End);
        }
        if self.is_replaced() {
            return self.reenter().map(|()| Turn::Again);
        }
        Err(self.doubt(BlockError { position: self.position, what: NO_BLOCK }))
    }

    /// Return true if another file has the name of its segment now. Where a place is read, the state
    /// before may have had only the beginning of a segment that was compacted since.
    fn is_replaced(&self) -> bool {
        matches!(self.segment().has_its_name(&*self.log.storage), Ok(false))
    }

    /// Handle bytes that are no block: there may be a cut here since the cursor came.
    #[cold]
    fn at_damage(&mut self, bad: BlockError) -> Result<()> {
        if !bad.what.is_newer() && self.is_behind_cut()? {
            return self.leave();
        }
        Err(self.doubt(bad))
    }

    /// Return true when this place is not, or no longer, part of the log.
    fn is_behind_cut(&self) -> Result<bool> {
        Ok(match self.log.chain.next(self.segment())? {
            Next::Segment { end, .. } => self.position >= end,
            Next::Superseded | Next::Removed => true,
            Next::Nothing => false,
        })
    }

    #[cold]
    fn doubt(&self, bad: BlockError) -> Error {
        self.log.doubted(self.segment(), bad)
    }

    /// Step over corruption, to the next valid block; return its first offset. Only for readers
    /// that asked for it: they lose what lies between.
    ///
    /// # Errors
    /// As [`BlockCursor::next_block`], and when no valid block follows.
    pub fn skip_damage(&mut self) -> Result<u64> {
        let before = (self.expected, self.floor);
        self.floor = self.expected.take().unwrap_or(self.floor);
        let from = self.position;
        let limit = self.limit.unwrap_or(self.segment().map().len());
        if let Some(position) = self.segment().next_sound(from + 8, limit) {
            self.position = position;
        } else if let Next::Segment { sequence, .. } = self.log.chain.next(self.segment())? {
            self.enter_sound(sequence)?;
        } else if let Some(tail) = self.log.committed() {
            // If the end lies in another segment, the way there is corrupt. Going to its position
            // in this segment would go back, over and over.
            let is_here = tail.sequence() == self.segment().sequence();
            if !is_here || tail.position() < from {
                (self.expected, self.floor) = before;
                let what = DecodeError::Damaged("nothing that can be read follows here");
                return Err(self.doubt(BlockError { position: from, what }));
            }
            self.position = tail.position();
        }
        let next = self.clone().next_block()?.map(DataBlock::first);
        Ok(next.unwrap_or_else(|| self.expected.unwrap_or_default()))
    }

    /// Go to a segment or, if that cannot be entered, to the first later one that can.
    fn enter_sound(&mut self, mut sequence: u64) -> Result<()> {
        loop {
            let next = self.log.chain.segment(sequence)?;
            let Err(error) = self.enter(Arc::clone(&next)) else { return Ok(()) };
            match self.log.chain.next(&next)? {
                Next::Segment { sequence: further, .. } => sequence = further,
                Next::Nothing | Next::Superseded | Next::Removed => return Err(error),
            }
        }
    }

    /// Return the path of the current segment, for messages.
    pub fn path(&self) -> &Path {
        self.segment().path()
    }

    /// Return its address.
    pub fn address(&self) -> Address {
        Address::new(self.segment().sequence(), self.position)
    }
}

/// Prefer the reason that a record was trimmed over any error on the way to it.
fn unless_trimmed(found: Error, met: Error) -> Error {
    if matches!(found, Error::OffsetOutOfRange { .. }) { found } else { met }
}

impl Log {
    /// Return the log's state at a segment's beginning. If that is torn and never was durable, the
    /// log is unrecovered, not corrupt.
    pub(super) fn opening<'s>(&self, segment: &'s Segment) -> Result<&'s SegmentWalker> {
        segment.opening().map_err(|error| match error {
            Error::CorruptData { path, position, what }
                if !self.is_writable() && !self.was_durable(segment, position) =>
            {
                Error::NeedsRecovery { path, position, what }
            }
            other => other,
        })
    }

    /// Decide what a bad block means for a reader: corruption, or an unrecovered log.
    #[cold]
    pub(super) fn doubted(&self, segment: &Segment, bad: BlockError) -> Error {
        let DecodeError::Damaged(what) = bad.what else { return segment.error(bad) };
        if self.is_writable() || self.was_durable(segment, bad.position) {
            return segment.error(bad);
        }
        let path = segment.path().to_path_buf();
        Error::NeedsRecovery { path, position: bad.position, what }
    }

    /// Return true when a mark shows it on disk: the segment's own, which may cover the next
    /// segment too, or that of any later one.
    fn was_durable(&self, segment: &Segment, position: u64) -> bool {
        let claims = |sequence: &u64| {
            let later = *sequence > segment.sequence();
            let marked = |s: Arc<Segment>| s.mark().is_some_and(|m| m.position > 0);
            later && self.chain.segment(*sequence).is_ok_and(marked)
        };
        let ends = |mark: &Mark| mark.succeeded && mark.position <= position;
        segment.mark().is_some_and(|mark| mark.position > position || ends(&mark))
            || self.chain.sequences().is_ok_and(|all| all.iter().any(claims))
    }
}
