//! Reading: cursors over the committed blocks of one topic.
//!
//! A cursor takes no lock and writes nothing. It loads commit words in order and believes a zero
//! only after asking whether the log's tail lies behind it: zero below the tail is damage, never an
//! end. It leaves a segment where the successor's header says, not where valid bytes stop, so that
//! what a cut left behind is not read. Invariant: the blocks handed out hold offsets without a gap.
//! See `docs/PROTOCOL.md`, "Read".

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::Malformed;
use crate::format::address::Address;
use crate::format::block::{Codec, Kind, flag};
use crate::format::index::Entry;
use crate::format::record::{Parts, Walk as Records};
use crate::format::state::{End, LogState, TopicState};
use crate::segment::walk::{appended_ns, highest_ns};
use crate::segment::{Bad, Block, Check, Segment};

use super::Log;
use super::chain::Next;

/// A committed block of records, and what is needed to read them. Holds the segment's map.
#[derive(Clone, Debug)]
pub struct DataBlock {
    segment: Arc<Segment>,
    block: Block,
    first: u64,
}

impl DataBlock {
    /// Offset of its first record.
    #[inline]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Offset behind its last record.
    #[inline]
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.block.header.span)
    }

    /// Number of records.
    #[inline]
    pub fn count(&self) -> u32 {
        self.block.header.count
    }

    /// When it was appended, nanoseconds since 1970.
    #[inline]
    pub fn appended_ns(&self) -> i64 {
        appended_ns(&self.segment, &self.block)
    }

    /// The encoded records, in mapped memory.
    #[inline]
    pub fn body(&self) -> &[u8] {
        self.segment.body(&self.block)
    }

    /// CRC-32 of the body, which positions of consumers keep.
    #[inline]
    pub fn body_crc(&self) -> u32 {
        self.block.header.body_crc
    }

    /// Where it ends in the log.
    #[inline]
    pub fn address(&self) -> Address {
        Address::new(self.segment.sequence(), self.block.end())
    }

    /// Walks its records.
    ///
    /// # Errors
    /// `Newer` for a codec that this version does not read, `Corrupt` when the body is too short.
    #[inline]
    pub fn records(&self) -> Result<Records> {
        let header = &self.block.header;
        let codec = header.codec();
        let plain = codec.and_then(|codec| match codec {
            Codec::Plain => Ok(()),
            _ => Err(Malformed::Unknown("a body codec of a newer version")),
        });
        plain
            .and_then(|()| Records::new(header.flags, header.count, self.body()))
            .map_err(|what| self.damaged(what))
    }

    /// The record with this offset; `None` where compaction removed it.
    ///
    /// # Errors
    /// As [`DataBlock::records`], and when a record is damaged.
    pub fn find(&self, offset: u64) -> Result<Option<Parts>> {
        let mut records = self.records()?;
        let body = self.body();
        while let Some(parts) = records.next(body).map_err(|what| self.damaged(what))? {
            let found = self.first + u64::from(parts.offset_delta);
            if found >= offset {
                return Ok((found == offset).then_some(parts));
            }
        }
        Ok(None)
    }

    /// An error that names the block.
    pub fn damaged(&self, what: Malformed) -> Error {
        self.segment.error(Bad { position: self.block.position, what })
    }

    /// Address of a range of the body in memory, valid while a clone of this block lives.
    pub fn address_of(&self, range: &Range<usize>) -> *const u8 {
        self.body()[range.clone()].as_ptr()
    }

    /// Path of its segment, for messages.
    pub fn path(&self) -> &Path {
        self.segment.path()
    }
}

/// A place in one topic of a log, from which blocks are read onwards.
#[derive(Clone, Debug)]
pub struct Cursor {
    log: Arc<Log>,
    topic: u32,
    check: Check,
    segment: Arc<Segment>,
    position: u64,
    base: Option<u64>,
    limit: Option<u64>,
    expected: Option<u64>,
    /// Where to look again for what comes next while `expected` is not known.
    floor: u64,
}

/// What a cursor does where there is no block.
enum Turn {
    Again,
    End,
}

impl Cursor {
    /// The next block of the topic; `None` at the committed end.
    ///
    /// # Errors
    /// `Corrupt`, `NeedsRecovery`, `Newer`; the cursor stays where it is.
    #[inline]
    pub fn next_block(&mut self) -> Result<Option<DataBlock>> {
        loop {
            // Again for a segment that was cut at its beginning: what lies there is not read.
            while self.limit.is_some_and(|limit| self.position >= limit) {
                self.leave()?;
            }
            if self.segment.is_heavy() {
                self.segment = self.log.chain.afresh(&self.segment)?;
            }
            match self.segment.block(self.position, self.check) {
                Ok(Some(block)) => {
                    if let Some(data) = self.accept(block)? {
                        return Ok(Some(data));
                    }
                }
                Ok(None) => match self.at_zero()? {
                    Turn::Again => {}
                    Turn::End => return Ok(None),
                },
                Err(bad) => self.at_damage(bad)?,
            }
        }
    }

    #[inline]
    fn accept(&mut self, block: Block) -> Result<Option<DataBlock>> {
        if block.header.kind == Kind::Data {
            if block.header.group_len > 0 && self.check == Check::Full {
                let whole = self.segment.check_group(&block);
                if let Err(bad) = whole {
                    self.at_damage(bad)?;
                    return Ok(None);
                }
            }
            if block.header.topic != self.topic {
                self.position = block.end();
                return Ok(None);
            }
            let first = self.first_offset(&block)?;
            self.position = block.end();
            self.expected = Some(first + u64::from(block.header.span));
            return Ok(Some(DataBlock { segment: Arc::clone(&self.segment), block, first }));
        }
        self.pass(block)?;
        Ok(None)
    }

    #[inline]
    fn first_offset(&self, block: &Block) -> Result<u64> {
        let base =
            self.base.ok_or(Malformed::Damaged("a block of a topic that the log does not know"));
        let first = base.map(|base| base.saturating_add(u64::from(block.header.offset)));
        let dense = first.and_then(|first| match self.expected {
            Some(expected) if expected != first => Err(Malformed::Damaged("offsets with a gap")),
            _ => Ok(first),
        });
        dense.map_err(|what| self.doubt(Bad { position: block.position, what }))
    }

    #[cold]
    fn pass(&mut self, block: Block) -> Result<()> {
        match block.header.kind {
            Kind::End => {
                let end = End::decode(self.segment.body(&block));
                let bad = |what| Bad { position: block.position, what };
                let end = end.map_err(|what| self.segment.error(bad(what)))?;
                return self.follow_end(end);
            }
            Kind::Meta | Kind::Snapshot => {
                let (topic, mut base) = (self.topic, self.base);
                let seen = |number, state: &TopicState| {
                    if number == topic {
                        base = Some(state.next);
                    }
                };
                let applied = LogState::default().apply_body(self.segment.body(&block), seen);
                let bad = |what| Bad { position: block.position, what };
                applied.map_err(|what| self.segment.error(bad(what)))?;
                self.base = base;
            }
            Kind::Data | Kind::Void | Kind::Newer => {}
        }
        self.position = block.end();
        Ok(())
    }

    /// Go where an end block leads, unless what it names was cut away.
    fn follow_end(&mut self, end: End) -> Result<()> {
        let next = self.log.chain.segment(end.sequence);
        match next {
            Ok(next) if next.salt() == end.salt => self.enter(next),
            _ => self.leave(),
        }
    }

    /// Go to the segment that continues this one.
    #[cold]
    fn leave(&mut self) -> Result<()> {
        match self.log.chain.next(&self.segment)? {
            Next::Segment { sequence, end } if self.position <= end => {
                let next = self.log.chain.segment(sequence)?;
                self.enter(next)
            }
            Next::Segment { end, .. } if self.limit == Some(end) => {
                let what = "a block that reaches beyond the end of its segment's content";
                Err(self.doubt(Bad { position: end, what: Malformed::Damaged(what) }))
            }
            // What was read behind a cut stands in another segment at the same offsets.
            Next::Segment { .. } | Next::Superseded => self.reenter(),
            Next::Nothing => {
                let what = Malformed::Damaged("the segment that follows is missing");
                Err(self.doubt(Bad { position: self.position, what }))
            }
        }
    }

    fn enter(&mut self, segment: Arc<Segment>) -> Result<()> {
        let opening = segment.opening()?;
        self.position = opening.position;
        self.base = opening.bases.get(self.topic).or(self.base);
        // Nothing of the topic lies between the base and the segment's first block.
        self.floor = self.base.unwrap_or(self.floor).max(self.floor);
        self.limit = self.log.limit(&segment)?;
        self.segment = segment;
        Ok(())
    }

    /// Go on by offset, where the log is now.
    fn reenter(&mut self) -> Result<()> {
        self.log.chain.refresh()?;
        let wanted = self.expected.unwrap_or(self.floor);
        let other = self.log.cursor_at(self.topic, wanted, self.check)?;
        if other.address() == self.address() {
            // It was left for a reason that is still there: going round would never end.
            let what = Malformed::Damaged("a segment that its own log leads away from");
            return Err(self.doubt(Bad { position: self.position, what }));
        }
        *self = Self { expected: self.expected, floor: wanted.min(other.floor), ..other };
        Ok(())
    }

    #[cold]
    fn at_zero(&mut self) -> Result<Turn> {
        let Some(tail) = self.log.committed() else { return Ok(Turn::End) };
        // The tail was loaded after the word: whatever lies below it must be there now.
        if self.segment.word(self.position) != 0 {
            return Ok(Turn::Again);
        }
        let sequence = self.segment.sequence();
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
        let what = Malformed::Damaged("nothing where a committed block should be");
        Err(self.doubt(Bad { position: self.position, what }))
    }

    /// Bytes that are no block: perhaps a cut was made here since the cursor came.
    #[cold]
    fn at_damage(&mut self, bad: Bad) -> Result<()> {
        if !matches!(bad.what, Malformed::Unknown(_)) && self.is_behind_cut()? {
            return self.leave();
        }
        Err(self.doubt(bad))
    }

    /// True when what lies here is not, or no more, part of the log.
    fn is_behind_cut(&self) -> Result<bool> {
        Ok(match self.log.chain.next(&self.segment)? {
            Next::Segment { end, .. } => self.position >= end,
            Next::Superseded => true,
            Next::Nothing => false,
        })
    }

    /// What damage means here: corruption, or a log that nobody recovered yet.
    #[cold]
    fn doubt(&self, bad: Bad) -> Error {
        let Malformed::Damaged(what) = bad.what else { return self.segment.error(bad) };
        if self.log.is_writable() || self.was_durable(bad.position) {
            return self.segment.error(bad);
        }
        let path = self.segment.path().to_path_buf();
        Error::NeedsRecovery { path, position: bad.position, what }
    }

    /// True when a mark says so: this segment's, or any of a later one.
    fn was_durable(&self, position: u64) -> bool {
        let chain = &self.log.chain;
        let claims = |sequence: &u64| {
            let later = *sequence > self.segment.sequence();
            later
                && chain.segment(*sequence).is_ok_and(|s| s.mark().is_some_and(|m| m.position > 0))
        };
        self.segment.mark().is_some_and(|mark| mark.position > position)
            || chain.sequences().is_ok_and(|all| all.iter().any(claims))
    }

    /// Step over damage, to the next sound block; returns the offset that it begins with. Only for
    /// readers that were told to: what lies between is lost to them.
    ///
    /// # Errors
    /// As [`Cursor::next_block`], also when nothing sound follows.
    pub fn skip_damage(&mut self) -> Result<u64> {
        self.floor = self.expected.take().unwrap_or(self.floor);
        let from = self.position;
        let limit = self.limit.unwrap_or(self.segment.map().len());
        if let Some(position) = self.segment.next_sound(from + 8, limit) {
            self.position = position;
        } else if let Next::Segment { sequence, .. } = self.log.chain.next(&self.segment)? {
            let next = self.log.chain.segment(sequence)?;
            self.enter(next)?;
        } else if let Some(tail) = self.log.committed() {
            self.position = tail.position();
        }
        let mut ahead = self.clone();
        let next = ahead.next_block()?;
        Ok(next.map_or_else(|| self.expected.unwrap_or_default(), |block| block.first()))
    }

    /// The segment that it stands in, for messages.
    pub fn path(&self) -> &Path {
        self.segment.path()
    }

    /// Where it stands.
    pub fn address(&self) -> Address {
        Address::new(self.segment.sequence(), self.position)
    }

    /// Move to the block that holds an offset, or to the end when it was not written yet. Blocks on
    /// the way are passed over by their headers.
    fn skip_to(&mut self, offset: u64) -> Result<()> {
        let check = std::mem::replace(&mut self.check, Check::Header);
        let reached = loop {
            let before = self.clone_place();
            match self.next_block() {
                Ok(Some(block)) if block.end() > offset => {
                    self.restore(before);
                    break Ok(());
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    // Not written yet: what comes next is not that offset.
                    self.floor = self.floor.min(self.base.unwrap_or(0));
                    break Ok(());
                }
                Err(error) => break Err(error),
            }
        };
        self.check = check;
        reached
    }

    fn clone_place(&self) -> (Arc<Segment>, u64, Option<u64>, Option<u64>, Option<u64>) {
        (Arc::clone(&self.segment), self.position, self.base, self.limit, self.expected)
    }

    fn restore(&mut self, place: (Arc<Segment>, u64, Option<u64>, Option<u64>, Option<u64>)) {
        (self.segment, self.position, self.base, self.limit, self.expected) = place;
    }
}

impl Log {
    /// Where a segment's content ends, unless it is the newest.
    fn limit(&self, segment: &Segment) -> Result<Option<u64>> {
        if self.committed().is_some_and(|tail| tail.sequence() == segment.sequence()) {
            return Ok(None);
        }
        Ok(match self.chain.next(segment)? {
            Next::Segment { end, .. } => Some(end),
            Next::Nothing | Next::Superseded => None,
        })
    }

    /// A cursor at the block that holds an offset of a topic, or at the end. The offset is not
    /// checked against what was trimmed.
    ///
    /// # Errors
    /// `Corrupt`, `NeedsRecovery`, `Newer`, `Io`.
    pub fn cursor_at(self: &Arc<Self>, topic: u32, offset: u64, check: Check) -> Result<Cursor> {
        let segment = self.last_segment_where(|segment| {
            let base = segment.opening()?.bases.get(topic);
            Ok(base.is_none_or(|base| base <= offset))
        })?;
        let mut cursor = self.cursor_in(segment, topic, check)?;
        cursor.floor = offset;
        let entry = self.index_of(&cursor.segment).find(topic, |e| e.offset <= offset);
        cursor.jump(entry);
        if offset > 0 {
            cursor.skip_to(offset)?;
        }
        Ok(cursor)
    }

    /// Offset of the first record whose timestamp is at or after a time, nanoseconds since 1970.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn offset_at_time(
        self: &Arc<Self>,
        topic: u32,
        time_ns: i64,
        check: Check,
    ) -> Result<Option<u64>> {
        let segment = self.last_segment_where(|segment| {
            let known = segment.opening()?.state.topic(topic).map(|topic| topic.highest_ns);
            Ok(known.is_none_or(|highest| highest < time_ns))
        })?;
        let mut cursor = self.cursor_in(segment, topic, check)?;
        let entry = self.index_of(&cursor.segment).find(topic, |e| e.highest_ns < time_ns);
        cursor.jump(entry);
        while let Some(data) = cursor.next_block()? {
            let highest =
                highest_ns(&data.segment, &data.block).map_err(|what| data.damaged(what))?;
            if highest < time_ns {
                continue;
            }
            let (mut records, body) = (data.records()?, data.body());
            while let Some(parts) = records.next(body).map_err(|what| data.damaged(what))? {
                if parts.event_time_ns.unwrap_or(data.appended_ns()) >= time_ns {
                    return Ok(Some(data.first + u64::from(parts.offset_delta)));
                }
            }
        }
        Ok(None)
    }

    /// Offset of the first record of a topic at or after an address: what is committed or durable,
    /// told in offsets.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn offset_at(self: &Arc<Self>, topic: u32, address: Address) -> Result<u64> {
        let segment = self.chain.segment(address.sequence())?;
        let mut cursor = self.cursor_in(segment, topic, Check::Header)?;
        let base = cursor.base.unwrap_or(0);
        let until = address.position();
        let entry = self.index_of(&cursor.segment).find(topic, |e| e.position < until);
        cursor.jump(entry);
        let mut next = entry.filter(|_| cursor.position > 0).map_or(base, |entry| entry.offset);
        next = next.max(base);
        while cursor.position < until && cursor.segment.sequence() == address.sequence() {
            match cursor.next_block()? {
                // In a log of several topics the next one of this topic may lie far behind.
                Some(data) if data.address() <= address => next = data.end(),
                _ => break,
            }
        }
        Ok(next)
    }

    /// Offset behind the last record of a topic in a log without a control page: as far as its
    /// blocks are sound.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn last_offset(self: &Arc<Self>, topic: u32) -> Result<u64> {
        let mut cursor = self.cursor_at(topic, u64::MAX, Check::Header)?;
        while cursor.next_block()?.is_some() {}
        Ok(cursor.expected.or(cursor.base).unwrap_or(0))
    }

    /// Lowest offset of a topic that is still there.
    ///
    /// # Errors
    /// As [`Log::cursor_at`]; `Corrupt` when older segments are missing that nobody trimmed.
    pub fn first_offset(&self, topic: u32) -> Result<u64> {
        let sequences = self.chain.sequences()?;
        let oldest = self.chain.segment(sequences[0])?;
        let newest = self.chain.segment(sequences[sequences.len() - 1])?;
        let base = oldest.opening()?.bases.get(topic).unwrap_or(0);
        let trimmed = newest.opening()?.state.topic(topic).map_or(0, |topic| topic.first);
        if base > trimmed && base > trimmed_since(&newest, topic) {
            return Err(self.lost_beginning(&oldest));
        }
        Ok(base.max(trimmed))
    }

    /// Retention notes a trim before it removes a segment: without one, the segment was lost.
    #[cold]
    fn lost_beginning(&self, oldest: &Segment) -> Error {
        let before = oldest.header().previous.map_or(0, |previous| previous.sequence);
        let path = self.dir.join(crate::format::names::segment(before));
        Error::Corrupt { path, position: 0, what: "the segment is missing" }
    }

    fn cursor_in(
        self: &Arc<Self>,
        segment: Arc<Segment>,
        topic: u32,
        check: Check,
    ) -> Result<Cursor> {
        let limit = self.limit(&segment)?;
        let opening = segment.opening()?;
        let (position, base) = (opening.position, opening.bases.get(topic));
        let log = Arc::clone(self);
        let floor = base.unwrap_or(0);
        Ok(Cursor { log, topic, check, segment, position, base, limit, expected: None, floor })
    }

    /// The last segment for which `before` holds; it must hold for a prefix of them.
    fn last_segment_where(
        &self,
        before: impl Fn(&Segment) -> Result<bool>,
    ) -> Result<Arc<Segment>> {
        let mut sequences = self.chain.sequences()?;
        if self.committed().is_some_and(|tail| sequences.last() != Some(&tail.sequence())) {
            sequences = self.chain.refresh()?;
        }
        let (mut low, mut high) = (0, sequences.len() - 1);
        while low < high {
            let middle = high - (high - low) / 2;
            let segment = self.chain.segment(sequences[middle])?;
            if before(&segment)? {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        self.chain.segment(sequences[low])
    }
}

/// Up to where a topic was trimmed, by all that the newest segment says.
#[cold]
fn trimmed_since(newest: &Segment, topic: u32) -> u64 {
    let Ok(opening) = newest.opening() else { return 0 };
    let mut walk = opening.clone();
    while let Ok(Some(_)) = walk.step(newest, Check::Header) {}
    walk.state.topic(topic).map_or(0, |topic| topic.first)
}

impl Cursor {
    /// Go to an index entry, if the block there is what it says.
    fn jump(&mut self, entry: Option<Entry>) {
        let Some(entry) = entry else { return };
        let found = self.segment.block(entry.position, Check::Header);
        let Ok(Some(head)) = found else { return };
        if head.header.is_member() || self.limit.is_some_and(|limit| entry.position >= limit) {
            return;
        }
        let own = head.header.kind == Kind::Data && head.header.topic == self.topic;
        let in_group = head.header.flags & flag::GROUP != 0;
        let first = self.base.map(|base| base + u64::from(head.header.offset));
        if (own && first == Some(entry.offset)) || (!own && in_group) {
            self.position = entry.position;
        }
    }
}
