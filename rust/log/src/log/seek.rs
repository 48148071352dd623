//! Finding: from an offset, a time or an address to a place in the log.
//!
//! A lookup goes from the chain of segments, by their opening snapshots, to an entry of the index and
//! from there over the headers. The index is a hint, and so is everything else on the way: what is
//! found is checked where it is found. See `docs/PROTOCOL.md`, "Read".

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::address::{Address, align};
use crate::format::block::{Kind, flag};
use crate::format::index::IndexEntry;
use crate::format::state::{LogState, TopicState};
use crate::segment::walk::highest_ns;
use crate::segment::{Check, Segment};

use super::chain::{Next, is_missing, missing};
use super::{BlockCursor, Log};

impl Log {
    /// Where a segment's content ends, unless it is the newest.
    pub(super) fn limit(&self, segment: &Segment) -> Result<Option<u64>> {
        if self.committed().is_some_and(|tail| tail.sequence() == segment.sequence()) {
            return Ok(None);
        }
        Ok(match self.chain.next(segment)? {
            Next::Segment { end, .. } => Some(end),
            Next::Nothing | Next::Superseded => None,
            // Nobody can tell any more where its content ends.
            Next::Removed => return Err(missing(&self.dir, segment.sequence())),
        })
    }

    /// A cursor at the block that holds an offset of a topic, or at the end, or at the damage that may have
    /// held it, of which its next block is the error. What was trimmed and is still there is found: who
    /// wants to know asks [`Log::trimmed`].
    ///
    /// # Errors
    /// `OffsetOutOfRange` for what retention removed; `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`,
    /// `SystemCallFailed`.
    pub fn cursor_at(
        self: &Arc<Self>,
        topic: u32,
        offset: u64,
        check: Check,
    ) -> Result<BlockCursor> {
        let found = self.while_segments_go(|| self.find_cursor(topic, offset, check));
        found.map_err(|e| self.unless_deleted(e))
    }

    /// Look again as long as segments that were listed are gone when they are opened: retention takes
    /// them from below, and compaction where another one is in their place. One that is listed and still
    /// not there is missing.
    pub(crate) fn while_segments_go<T>(&self, mut look: impl FnMut() -> Result<T>) -> Result<T> {
        self.chain.sequences()?;
        loop {
            let before = self.chain.changes();
            let done = look();
            match done {
                Err(error) if is_missing(&error) => {
                    self.chain.refresh()?;
                    if self.chain.changes() == before {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    fn find_cursor(self: &Arc<Self>, topic: u32, offset: u64, check: Check) -> Result<BlockCursor> {
        let segment = self.last_segment_where(|segment| {
            let base = self.opening(segment)?.bases.get(topic);
            Ok(base.is_none_or(|base| base <= offset))
        })?;
        let mut cursor = BlockCursor::new(Arc::clone(self), segment, topic, check)?;
        if cursor.base.is_some_and(|base| base > offset) {
            self.check_still_there(cursor.segment(), topic, offset)?;
        }
        cursor.floor = offset;
        let entry = self.entry_before(cursor.segment(), topic, |e| e.offset <= offset);
        if offset > 0 && !cursor.glide_to(offset, entry.as_ref()) {
            cursor.jump(entry.as_ref());
            cursor.skip_to(offset)?;
        }
        Ok(cursor)
    }

    /// The last entry of a topic for which `before` holds, of those that may be followed: what they lead past
    /// is not looked at, so none leads behind the tail. After a crash the log may end at a hole there.
    fn entry_before(
        &self,
        segment: &Segment,
        topic: u32,
        before: impl Fn(&IndexEntry) -> bool,
    ) -> Option<IndexEntry> {
        let most = match self.committed() {
            Some(tail) if tail.sequence() == segment.sequence() => tail.position(),
            // The page of before the crash may know of no such segment.
            Some(tail) if tail.sequence() < segment.sequence() => 0,
            _ => u64::MAX,
        };
        self.index_of(segment).find(topic, |entry| entry.position <= most && before(entry))
    }

    /// An offset before all that the oldest segment holds: an error, unless nothing came before it.
    #[cold]
    fn check_still_there(self: &Arc<Self>, found: &Segment, topic: u32, offset: u64) -> Result<()> {
        if found.header().previous.is_none() {
            return Ok(());
        }
        let first = self.first_offset(topic)?;
        if offset >= first {
            return Ok(());
        }
        Err(self.out_of_range(topic, offset)?)
    }

    /// The error for an offset that a topic does not hold, under the log's name.
    ///
    /// # Errors
    /// When the topic's bounds cannot be read.
    #[cold]
    pub(super) fn out_of_range(self: &Arc<Self>, topic: u32, offset: u64) -> Result<Error> {
        let (first, end) = (self.first_offset(topic)?, self.end_offset(topic)?);
        let (name, offset) = (self.name(), offset.into());
        Ok(Error::OffsetOutOfRange { topic: name, partition: topic, offset, first, end })
    }

    /// Offset of the first record whose timestamp is at or after a time, nanoseconds since 1970, of
    /// those that were not trimmed.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn offset_at_time(
        self: &Arc<Self>,
        topic: u32,
        time_ns: i64,
        check: Check,
    ) -> Result<Option<u64>> {
        self.offset_at_time_before(Address(u64::MAX), topic, time_ns, check)
    }

    /// The same among the records that lie before an address; nothing behind it is looked at.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn offset_at_time_before(
        self: &Arc<Self>,
        until: Address,
        topic: u32,
        time_ns: i64,
        check: Check,
    ) -> Result<Option<u64>> {
        self.while_segments_go(|| self.find_time(until, topic, time_ns, check))
    }

    fn find_time(
        self: &Arc<Self>,
        until: Address,
        topic: u32,
        time_ns: i64,
        check: Check,
    ) -> Result<Option<u64>> {
        let trimmed = self.trimmed(topic);
        let segment = self.last_segment_where(|segment| {
            let opening = self.opening(segment)?;
            let known = opening.state.topic(topic).map(|topic| topic.highest_ns);
            let is_trimmed = opening.bases.get(topic).is_none_or(|base| base <= trimmed);
            Ok(is_trimmed || known.is_none_or(|highest| highest < time_ns))
        })?;
        let mut cursor = BlockCursor::new(Arc::clone(self), segment, topic, check)?;
        let entry = self.entry_before(cursor.segment(), topic, |e| e.highest_ns < time_ns);
        cursor.jump(entry.as_ref());
        while cursor.address() < until {
            let Some(data) = cursor.next_block()?.filter(|data| data.address() <= until) else {
                break;
            };
            let highest =
                highest_ns(&data.segment, &data.block).map_err(|what| data.damaged(what))?;
            if highest < time_ns || data.end() <= trimmed {
                continue;
            }
            let (mut records, body) = (data.records()?, data.body());
            while let Some(parts) = records.next(body).map_err(|what| data.damaged(what))? {
                let offset = data.first + u64::from(parts.offset_delta);
                let time = parts.event_time_ns.unwrap_or(data.appended_ns());
                if time >= time_ns && offset >= trimmed {
                    return Ok(Some(offset));
                }
            }
        }
        Ok(None)
    }

    /// Offset of the first record of a topic at or after an address: what is committed or durable,
    /// told in offsets. Damage before the last block that tells of it changes nothing.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn offset_at(self: &Arc<Self>, topic: u32, address: Address) -> Result<u64> {
        let segment = self.chain.segment(address.sequence())?;
        let mut cursor = BlockCursor::new(Arc::clone(self), segment, topic, Check::Header)?;
        let base = cursor.base.unwrap_or(0);
        let until = address.position();
        let entry = self.entry_before(cursor.segment(), topic, |e| e.position < until);
        cursor.jump(entry.as_ref());
        let mut next = entry.filter(|_| cursor.position > 0).map_or(base, |entry| entry.offset);
        next = next.max(base);
        let mut damage = None;
        while cursor.position < until && cursor.segment().sequence() == address.sequence() {
            match cursor.next_block() {
                // In a log of several topics the next one of this topic may lie far behind.
                Ok(Some(data)) if data.address() <= address => {
                    (next, damage) = (data.end(), None);
                }
                Ok(_) | Err(Error::OffsetOutOfRange { .. }) => break,
                Err(error) if is_damage(&error) && damage.is_none() => {
                    damage = Some(error);
                    cursor.skip_damage().ok();
                }
                Err(error) => return Err(error),
            }
        }
        damage.map_or(Ok(next), Err)
    }

    /// Offset behind the last record of a topic that readers find.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn end_offset(self: &Arc<Self>, topic: u32) -> Result<u64> {
        // A writer that died behind its commit word left the tail before a block that is there; and
        // while a log is recovered the tail may lie in a segment that was put away.
        let at_end = |tail: &Address| {
            let segment = self.chain.segment(tail.sequence());
            segment.is_ok_and(|segment| segment.word(tail.position()) == 0)
        };
        match self.committed().filter(at_end) {
            Some(tail) => match self.known_end(topic, tail) {
                Some(end) => Ok(end),
                None => self.offset_at(topic, tail),
            },
            None => self.last_offset(topic),
        }
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
    /// As [`Log::cursor_at`]; `CorruptData` when older segments are missing that nobody trimmed.
    pub fn first_offset(&self, topic: u32) -> Result<u64> {
        self.while_segments_go(|| self.find_first(topic))
    }

    fn find_first(&self, topic: u32) -> Result<u64> {
        let sequences = self.current_sequences()?;
        let oldest = self.chain.segment(sequences[0])?;
        let newest = self.chain.segment(sequences[sequences.len() - 1])?;
        let base = self.opening(&oldest)?.bases.get(topic).unwrap_or(0);
        let trimmed = self.trimmed(topic);
        if base > trimmed && !begins_where_trimmed(&oldest, &newest)? {
            return Err(self.lost_beginning(&oldest));
        }
        Ok(base.max(trimmed))
    }

    /// Retention notes a trim before it removes a segment: without one, the segment was lost.
    #[cold]
    fn lost_beginning(&self, oldest: &Segment) -> Error {
        let before = oldest.header().previous.map_or(0, |previous| previous.sequence);
        missing(&self.dir, before)
    }

    /// Sequences of the segments, oldest first, up to the one that the log ends in.
    pub(super) fn current_sequences(&self) -> Result<Vec<u64>> {
        let sequences = self.chain.sequences()?;
        if self.committed().is_some_and(|tail| sequences.last() != Some(&tail.sequence())) {
            return self.chain.refresh();
        }
        Ok(sequences)
    }

    /// The last segment for which `before` holds; it must hold for a prefix of them. One that cannot
    /// be asked, being damaged, is left to who comes to it from the one before.
    fn last_segment_where(
        &self,
        before: impl Fn(&Segment) -> Result<bool>,
    ) -> Result<Arc<Segment>> {
        let mut sequences = self.current_sequences()?;
        let (mut low, mut high) = (0, sequences.len() - 1);
        while low < high {
            let middle = high - (high - low) / 2;
            let segment = self.chain.segment(sequences[middle]);
            match segment.and_then(|segment| before(&segment)) {
                Ok(true) => low = middle,
                Ok(false) => high = middle - 1,
                Err(Error::CorruptData { .. } | Error::NeedsRecovery { .. }) => {
                    sequences.remove(middle);
                    high -= 1;
                }
                Err(error) => return Err(error),
            }
        }
        self.chain.segment(sequences[low])
    }
}

/// Bytes that are not what was written. A segment that is missing is another matter.
fn is_damage(error: &Error) -> bool {
    matches!(error, Error::CorruptData { .. }) && !is_missing(error)
}

/// Whether all that lay before the oldest segment was trimmed, by all that the newest one says. Else
/// segments are missing.
pub(super) fn begins_where_trimmed(oldest: &Segment, newest: &Segment) -> Result<bool> {
    let bases = &oldest.opening()?.bases;
    let Some(known) = known_at_end(newest) else { return Ok(false) };
    let holds = |(number, topic): (u32, &TopicState)| {
        bases.get(number).is_none_or(|base| base <= topic.first)
    };
    Ok(known.topics().all(holds))
}

/// What the newest segment says, as far as it is sound.
#[cold]
fn known_at_end(newest: &Segment) -> Option<LogState> {
    let mut walk = newest.opening().ok()?.clone();
    while let Ok(Some(_)) = walk.step(newest, Check::Header) {}
    Some(walk.state)
}

impl BlockCursor {
    /// Go to an index entry, if the block there is what it says.
    fn jump(&mut self, entry: Option<&IndexEntry>) {
        let Some(entry) = entry else { return };
        let found = self.segment().block(entry.position, Check::Header);
        let Ok(Some(head)) = found else { return };
        if head.header.is_member() || self.limit.is_some_and(|limit| entry.position >= limit) {
            return;
        }
        let own = head.header.kind == Kind::Data && head.header.topic == self.topic;
        // Of a topic that began in this segment the base stands on the way: that has to be walked.
        let in_group = head.header.flags & flag::GROUP != 0 && self.base.is_some();
        let first = self.base.map(|base| base + u64::from(head.header.offset));
        if (own && first == Some(entry.offset)) || (!own && in_group) {
            self.position = entry.position;
        }
    }

    /// Leave out what belongs to other topics, where it is known how far that reaches: to the next block
    /// of its own by the index, or to the next segment that holds one by the snapshots. What cannot be
    /// told is walked.
    #[cold]
    pub(super) fn skip_foreign(&mut self) {
        // Also where no block of its own was met here: then the next one begins at the base.
        let Some(wanted) = self.expected.or(self.base) else { return };
        let entry = self.log.entry_before(self.segment(), self.topic, |e| e.offset <= wanted);
        let ahead = entry.filter(|entry| entry.offset == wanted && entry.position > self.position);
        if ahead.is_some() {
            self.jump(ahead.as_ref());
        } else if self.limit.is_some() && wanted >= self.log.trimmed(self.topic) {
            let _ = self.leave_out_segments(wanted);
        }
    }

    /// Go to where an offset is, if the rest of this segment holds nothing of the topic.
    fn leave_out_segments(&mut self, wanted: u64) -> Result<()> {
        let Next::Segment { sequence, .. } = self.log.chain.next(self.segment())? else {
            return Ok(());
        };
        let next = self.log.chain.segment(sequence)?;
        if self.log.opening(&next)?.bases.get(self.topic) != Some(wanted) {
            return Ok(());
        }
        let other = self.log.find_cursor(self.topic, wanted, self.check)?;
        if other.segment().sequence() > self.segment().sequence() {
            self.go_on_as(other, wanted);
        }
        Ok(())
    }

    /// Move to the block that holds an offset, or to the end when it was not written yet. Blocks on
    /// the way are passed over by their headers. Where one of those is damaged, and what is wanted is
    /// not found behind it, the cursor stands at the damage: who reads on is told.
    fn skip_to(&mut self, offset: u64) -> Result<()> {
        let check = std::mem::replace(&mut self.check, Check::Header);
        let mut reached = self.walk_to(offset);
        if reached.as_ref().is_err_and(is_damage) {
            let there = self.clone();
            let found = self.get_past_damage(offset);
            if !found {
                *self = there;
            }
            // Without checks what is damaged would be read as if it were sound.
            if found || check != Check::None {
                reached = Ok(true);
            }
        }
        self.check = check;
        reached.map(drop)
    }

    /// False at the end.
    fn walk_to(&mut self, offset: u64) -> Result<bool> {
        let mut before = Arc::clone(self.segment());
        loop {
            if !Arc::ptr_eq(&before, self.segment()) {
                before = Arc::clone(self.segment());
            }
            let place = (self.position, self.base, self.limit, self.expected);
            match self.next_block()? {
                Some(block) if block.end() > offset => {
                    // Not to the block itself: it may be within a group, which is entered at its head.
                    self.turn_back(before);
                    (self.position, self.base, self.limit, self.expected) = place;
                    return Ok(true);
                }
                Some(_) => {}
                None => {
                    // Not written yet: what comes next is not that offset.
                    self.floor = self.floor.min(self.base.unwrap_or(0));
                    return Ok(false);
                }
            }
        }
    }

    /// From damage on, to the block that holds an offset, or the end if that is the next one: then the
    /// damage took nothing of what is wanted. False where it may have.
    #[cold]
    fn get_past_damage(&mut self, offset: u64) -> bool {
        let mut met = None;
        loop {
            // Damage that reaches to the end of what there is does not lie behind who steps over it.
            let here = Some(self.address());
            if here == met || !self.skip_damage().is_ok_and(|first| first <= offset) {
                return false;
            }
            met = here;
            self.floor = offset;
            match self.walk_to(offset) {
                Ok(found) => return found || self.expected == Some(offset),
                Err(error) if is_damage(&error) => {}
                Err(_) => return false,
            }
        }
    }

    /// As [`BlockCursor::jump`] and [`BlockCursor::skip_to`] together, where all is as usual; else false, and
    /// nothing has moved.
    ///
    /// On the way each block is believed by its commit word alone, the index entry not even asked
    /// for more. That is sound because nothing on the way counts: a flipped length or number there
    /// can lead to a wrong block or to none. What is accepted is only a plain block whose header,
    /// checksum and all, says that it holds the offset. Its checksum covers the segment's salt and
    /// its own position, and a plain block is committed by nothing but its own word, so there is one
    /// such block in a segment, whatever way led to it. Anything else is left to the slow walk, which
    /// checks every header and names what is wrong.
    fn glide_to(&mut self, offset: u64, entry: Option<&IndexEntry>) -> bool {
        let wanted = self.base.and_then(|base| offset.checked_sub(base));
        let Some(wanted) = wanted.filter(|_| self.topic == 0) else { return false };
        let segment = &**self.segment();
        let limit = self.limit.unwrap_or(u64::MAX);
        let mut position = entry.map_or(self.position, |entry| entry.position);
        while position < limit {
            let Some(header) = segment.plain(position, Check::None) else { return false };
            let (first, count) = (u64::from(header.offset), u64::from(header.count));
            if first + count > wanted {
                if first > wanted || segment.plain(position, Check::Header).is_none() {
                    return false;
                }
                (self.position, self.expected) = (position, Some(offset - (wanted - first)));
                return true;
            }
            position += align(u64::from(header.len));
        }
        false
    }
}
