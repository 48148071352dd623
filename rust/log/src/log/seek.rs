//! Lookups: from an offset, a time or an address to a place in the log.
//!
//! A lookup goes from the chain of segments, by their opening snapshots, to an entry of the index
//! and from there over the headers. The index and everything else on the way are hints: the result
//! is checked where it is found. See `docs/PROTOCOL.md`, "Read".

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
    /// Return where a segment's content ends, unless it is the newest.
    pub(super) fn limit(&self, segment: &Segment) -> Result<Option<u64>> {
        let active = self.committed().map(Address::sequence);
        if active == Some(segment.sequence()) {
            return Ok(None);
        }
        // None follows the segment that a dead process left beyond the page's tail: the page changes as
        // soon as another one counts. A reader that came later doubts that tail.
        let is_doubted = || self.control().is_some();
        let is_beyond = active.map_or_else(is_doubted, |active| active < segment.sequence());
        if is_beyond && self.current_sequences()?.last() == Some(&segment.sequence()) {
            return Ok(None);
        }
        Ok(match self.chain.next(segment)? {
            Next::Segment { end, .. } => Some(end),
            Next::Nothing | Next::Superseded => None,
            // The end of its content can no longer be known.
            Next::Removed => return Err(missing(&self.dir, segment.sequence())),
        })
    }

    /// Make a cursor at the block that holds an offset of a topic, or at the end, or at corruption
    /// that may have held it. In the last case its next block is the error. Trimmed records that
    /// still exist are found: a caller that cares asks [`Log::trimmed`].
    ///
    /// # Errors
    /// `OffsetOutOfRange` for records that retention removed; `CorruptData`, `NeedsRecovery`,
    /// `UnsupportedVersion`, `SystemCallFailed`.
    pub fn cursor_at(
        self: &Arc<Self>,
        topic: u32,
        offset: u64,
        check: Check,
    ) -> Result<BlockCursor> {
        let found = self.while_segments_go(|| self.find_cursor(topic, offset, check));
        found.map_err(|e| self.unless_deleted(e))
    }

    /// Look again while listed segments are gone when they are opened: retention removes the
    /// lowest, and compaction those that it replaced. A segment that is in a new listing and still
    /// does not exist is missing.
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

    /// Return the last entry of a topic for which `before` holds, among those that may be followed.
    /// The blocks that an entry skips are not checked, so no entry may point beyond the tail. After
    /// a crash the log may end at a hole there.
    fn entry_before(
        &self,
        segment: &Segment,
        topic: u32,
        before: impl Fn(&IndexEntry) -> bool,
    ) -> Option<IndexEntry> {
        let most = match self.committed() {
            Some(tail) if tail.sequence() == segment.sequence() => tail.position(),
            // The page from before the crash may not know this segment.
            Some(tail) if tail.sequence() < segment.sequence() => 0,
            _ => u64::MAX,
        };
        self.index_of(segment).find(topic, |entry| entry.position <= most && before(entry))
    }

    /// Check an offset before all that the oldest segment holds: an error, unless nothing came
    /// before it.
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

    /// Make the error for an offset that a topic does not hold, with the log's name.
    ///
    /// # Errors
    /// When the topic's bounds cannot be read.
    #[cold]
    pub(crate) fn out_of_range(self: &Arc<Self>, topic: u32, offset: u64) -> Result<Error> {
        let (first, end) = (self.first_offset(topic)?, self.end_offset(topic)?);
        let (name, offset) = (self.name(), offset.into());
        Ok(Error::OffsetOutOfRange { topic: name, partition: topic, offset, first, end })
    }

    /// Return the offset of the first untrimmed record whose timestamp is at or after a time,
    /// nanoseconds since 1970.
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

    /// Find the same among the records before an address; nothing after it is read.
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

    /// Return the offset of the first record of a topic at or after an address: it turns a
    /// committed or durable address into an offset. Corruption before the last block that tells it
    /// changes nothing.
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
                // In a log of several topics the next one of this topic may be far away.
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

    /// Return the offset after the last record of a topic that readers find.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn end_offset(self: &Arc<Self>, topic: u32) -> Result<u64> {
        // The tail may be wrong. A writer that died after its commit word left the tail before an
        // existing block. While a log is recovered the tail may lie in a segment that was put away.
        let at_end = |tail: &Address| {
            let segment = self.chain.segment(tail.sequence());
            segment.is_ok_and(|segment| segment.word(tail.position()) == 0)
        };
        let look = |tail: Option<Address>| match tail.filter(at_end) {
            Some(tail) => match self.known_end(topic, tail) {
                Some(end) => Ok(end),
                None => self.offset_at(topic, tail),
            },
            None => self.last_offset(topic),
        };
        settled(|| self.committed(), look)
    }

    /// Return the offset of a topic at an address that moves, as that of [`Log::durable`]. It is 0 if
    /// there is none.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn offset_reached(
        self: &Arc<Self>,
        topic: u32,
        reached: impl Fn() -> Option<Address>,
    ) -> Result<u64> {
        settled(reached, |at| at.map_or(Ok(0), |at| self.offset_at(topic, at)))
    }

    /// Return the offset after the last record of a topic in a log without a control page: as far
    /// as its blocks are valid.
    ///
    /// # Errors
    /// As [`Log::cursor_at`].
    pub fn last_offset(self: &Arc<Self>, topic: u32) -> Result<u64> {
        let mut cursor = self.cursor_at(topic, u64::MAX, Check::Header)?;
        while cursor.next_block()?.is_some() {}
        Ok(cursor.expected.or(cursor.base).unwrap_or(0))
    }

    /// Return the lowest offset of a topic that is left.
    ///
    /// # Errors
    /// As [`Log::cursor_at`]; `CorruptData` when older segments are missing that were not trimmed.
    pub fn first_offset(&self, topic: u32) -> Result<u64> {
        self.while_segments_go(|| self.find_first(topic))
    }

    fn find_first(&self, topic: u32) -> Result<u64> {
        let sequences = self.current_sequences()?;
        let oldest = self.chain.beginning_of(sequences[0])?;
        let newest = self.chain.segment(sequences[sequences.len() - 1])?;
        let base = self.opening(&oldest)?.bases.get(topic).unwrap_or(0);
        let trimmed = self.trimmed(topic);
        if base > trimmed && !begins_where_trimmed(&oldest, &newest)? {
            return Err(self.lost_beginning(&oldest));
        }
        Ok(base.max(trimmed))
    }

    /// Make the error for a lost beginning: retention records a trim before it removes a segment,
    /// so without one the segment was lost.
    #[cold]
    fn lost_beginning(&self, oldest: &Segment) -> Error {
        let before = oldest.header().previous.map_or(0, |previous| previous.sequence);
        missing(&self.dir, before)
    }

    /// List the sequences of the segments, oldest first, up to the one that the log ends in. One more
    /// may follow, which a dead process left.
    pub(super) fn current_sequences(&self) -> Result<Vec<u64>> {
        let sequences = self.chain.sequences()?;
        let is_current = |tail: Address| {
            let active = tail.sequence();
            sequences.last() == Some(&active) || self.chain.still_goes_beyond(active, &sequences)
        };
        if self.committed().is_none_or(is_current) { Ok(sequences) } else { self.chain.refresh() }
    }

    /// Return the last segment for which `before` holds; it must hold for a prefix of them. A
    /// corrupt segment, which cannot be asked, is left to a reader that comes from the previous
    /// one.
    fn last_segment_where(
        &self,
        before: impl Fn(&Segment) -> Result<bool>,
    ) -> Result<Arc<Segment>> {
        let mut sequences = self.current_sequences()?;
        let (mut low, mut high) = (0, sequences.len() - 1);
        // If segments are elsewhere, the newest is here: it is asked first. Then the second one is,
        // as most scans begin with the first: they fetch no other for the search.
        let asked: &[usize] = if self.storage.is_elsewhere() { &[high, 1] } else { &[] };
        let mut asked = asked.iter().copied();
        while low < high {
            let between = |at: &usize| (low + 1..=high).contains(at);
            let middle = asked.find(between).unwrap_or(high - (high - low) / 2);
            let segment = self.chain.beginning_of(sequences[middle]);
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

/// Look at the log where an address is that moves. If it went on in another segment meanwhile, look
/// again. The one before may have been compacted, and its addresses then mean other places.
fn settled<T>(
    address: impl Fn() -> Option<Address>,
    look: impl Fn(Option<Address>) -> Result<T>,
) -> Result<T> {
    let sequence = |address: Option<Address>| address.map(Address::sequence);
    loop {
        let before = address();
        let found = look(before);
        if sequence(address()) <= sequence(before) {
            return found;
        }
    }
}

/// Return true for corrupt bytes. A missing segment is another matter.
fn is_damage(error: &Error) -> bool {
    matches!(error, Error::CorruptData { .. }) && !is_missing(error)
}

/// Return whether all before the oldest segment was trimmed, according to the newest one. Otherwise
/// segments are missing.
pub(super) fn begins_where_trimmed(oldest: &Segment, newest: &Segment) -> Result<bool> {
    let bases = &oldest.opening()?.bases;
    let Some(known) = known_at_end(newest) else { return Ok(false) };
    let holds = |(number, topic): (u32, &TopicState)| {
        bases.get(number).is_none_or(|base| base <= topic.first)
    };
    Ok(known.topics().all(holds))
}

/// Return the state at the end of the newest segment, as far as it is valid.
#[cold]
fn known_at_end(newest: &Segment) -> Option<LogState> {
    let mut walk = newest.opening().ok()?.clone();
    while let Ok(Some(_)) = walk.step(newest, Check::Header) {}
    Some(walk.state)
}

impl BlockCursor {
    /// Go to an index entry, if the block there matches it.
    fn jump(&mut self, entry: Option<&IndexEntry>) {
        let Some(entry) = entry else { return };
        let found = self.segment().block(entry.position, Check::Header);
        let Ok(Some(head)) = found else { return };
        if head.header.is_member() || self.limit.is_some_and(|limit| entry.position >= limit) {
            return;
        }
        let own = head.header.kind == Kind::Data && head.header.topic == self.topic;
        // If the topic began in this segment, its base lies on the way: that has to be walked.
        let in_group = head.header.flags & flag::GROUP != 0 && self.base.is_some();
        let first = self.base.map(|base| base + u64::from(head.header.offset));
        if (own && first == Some(entry.offset)) || (!own && in_group) {
            self.position = entry.position;
        }
    }

    /// Skip blocks of other topics, as far as known. It goes to the next block of its own topic by
    /// the index, or to the next segment that holds one by the snapshots. The unknown rest is
    /// walked.
    #[cold]
    pub(super) fn skip_foreign(&mut self) {
        // Also if it met no block of its own here: then the next one begins at the base.
        let Some(wanted) = self.expected.or(self.base) else { return };
        let entry = self.log.entry_before(self.segment(), self.topic, |e| e.offset <= wanted);
        let ahead = entry.filter(|entry| entry.offset == wanted && entry.position > self.position);
        if ahead.is_some() {
            self.jump(ahead.as_ref());
        } else if self.limit.is_some() && wanted >= self.log.trimmed(self.topic) {
            let _ = self.leave_out_segments(wanted);
        }
    }

    /// Go to the place of an offset, if the rest of this segment holds nothing of the topic.
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

    /// Move to the block that holds an offset, or to the end when it was not written yet. The
    /// cursor passes over blocks on the way by their headers. If one of those is corrupt, and no
    /// later block holds the offset, the cursor stays at the corruption: its next read returns the
    /// error.
    fn skip_to(&mut self, offset: u64) -> Result<()> {
        let check = std::mem::replace(&mut self.check, Check::Header);
        let mut reached = self.walk_to(offset);
        if reached.as_ref().is_err_and(is_damage) {
            let there = self.clone();
            let found = self.get_past_damage(offset);
            if !found {
                *self = there;
            }
            // Without checks, corrupt bytes would be read as if they were valid.
            if found || check != Check::None {
                reached = Ok(true);
            }
        }
        self.check = check;
        reached.map(drop)
    }

    /// Walk to an offset; return false at the end.
    fn walk_to(&mut self, offset: u64) -> Result<bool> {
        let mut before = Arc::clone(self.segment());
        loop {
            if !Arc::ptr_eq(&before, self.segment()) {
                before = Arc::clone(self.segment());
            }
            let place = (self.position, self.base, self.limit, self.expected);
            match self.next_block()? {
                Some(block) if block.end() > offset => {
                    // Not to the block itself: it may be within a group, which is entered at its
                    // head.
                    self.turn_back(before);
                    (self.position, self.base, self.limit, self.expected) = place;
                    return Ok(true);
                }
                Some(_) => {}
                None => {
                    // Not written yet: the next record does not have that offset.
                    self.floor = self.floor.min(self.base.unwrap_or(0));
                    return Ok(false);
                }
            }
        }
    }

    /// Move from corruption to the block that holds an offset, or to the end if that is the next
    /// one. The corruption then hides nothing that is wanted. False if it may.
    #[cold]
    fn get_past_damage(&mut self, offset: u64) -> bool {
        let mut met = None;
        loop {
            // Corruption that reaches to the end of the log is not behind a reader that steps over
            // it.
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

    /// Do as [`BlockCursor::jump`] and [`BlockCursor::skip_to`] together in the usual case; else
    /// return false, without moving.
    ///
    /// On the way each block is believed by its commit word alone, and the index entry is not
    /// checked. That is safe because nothing on the way counts: a flipped length or number there
    /// can lead to a wrong block or to none. The accepted block is only a plain block whose header,
    /// checksum included, says that it holds the offset. The checksum covers the segment's salt and
    /// the block's own position, and a plain block is committed by nothing but its own word. So a
    /// segment has one such block, whichever way leads to it. Anything else is left to the slow
    /// walk, which checks every header and names what is wrong.
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[test]
    fn a_look_is_repeated_only_if_the_log_went_on_in_another_segment_meanwhile() {
        let tail = Cell::new(Some(Address::new(3, 8192)));
        let looks = RefCell::new(Vec::new());
        let moves = [Some(Address::new(4, 9000)), Some(Address::new(4, 9504)), None];
        let found = settled(
            || tail.get(),
            |address| {
                looks.borrow_mut().push(address);
                let count = looks.borrow().len();
                tail.set(moves[count - 1]);
                Ok(count)
            },
        );
        assert_eq!(found.unwrap(), 2);
        assert_eq!(looks.into_inner(), [Some(Address::new(3, 8192)), Some(Address::new(4, 9000))]);
    }

    #[test]
    fn an_error_of_a_look_counts_only_where_the_log_did_not_go_on() {
        let tail = Cell::new(None);
        let found = settled(
            || tail.get(),
            |address: Option<Address>| match address {
                None => {
                    tail.set(Some(Address::new(0, 8192)));
                    Err(Error::invalid("it was not there yet"))
                }
                Some(address) => Ok(address.position()),
            },
        );
        assert_eq!(found.unwrap(), 8192);
    }
}
