//! Reading records: one by offset, ranges, and scans that go on as the topic grows.
//!
//! A [`Record`] holds the map of its segment, so it stays valid after the topic, the store and
//! the file are gone. Nothing is copied.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::Decoded;
use crate::format::address::Address;
use crate::format::record::{RecordCursor as Records, RecordLayout, RecordSpan, headers};
use crate::format::settings::TopicSettings;
use crate::log::{BlockCursor, DataBlock, RecordBatch};
use crate::segment::Check;
use crate::store::Closing;

use super::{Topic, Visibility};

/// A committed record, where it lies in mapped memory.
#[derive(Clone, Debug)]
pub struct Record {
    block: DataBlock,
    parts: RecordLayout,
}

impl Record {
    /// A record of a block whose parts were walked already, see [`DataBlock::records`].
    #[inline]
    pub fn new(block: DataBlock, parts: RecordLayout) -> Self {
        Self { block, parts }
    }

    /// Its offset.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.block.first() + u64::from(self.parts.offset_delta)
    }

    /// Its value; `None` for a tombstone.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.parts.value.clone().map(|range| &self.block.body()[range])
    }

    /// Its key.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.parts.key.clone().map(|range| &self.block.body()[range])
    }

    /// Its headers, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        headers(&self.block.body()[self.parts.headers.clone()])
    }

    /// When it happened, or else was appended: nanoseconds since 1970.
    #[inline]
    pub fn timestamp_ns(&self) -> i64 {
        self.parts.event_time_ns.unwrap_or_else(|| self.block.appended_ns())
    }

    /// The block that it is in.
    pub fn block(&self) -> &DataBlock {
        &self.block
    }

    /// Where its parts lie in the block's body.
    pub fn parts(&self) -> &RecordLayout {
        &self.parts
    }
}

/// Records of one block, within the bounds of a scan.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The block.
    pub block: DataBlock,
    /// Offsets wanted of it.
    pub offsets: Range<u64>,
}

/// What a reader stepped over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The damaged segment.
    pub path: PathBuf,
    /// Where in it the damage begins.
    pub position: u64,
    /// Offsets that are lost to the reader; empty where nothing sound follows that would tell.
    pub offsets: Range<u64>,
}

/// Goes through a partition from an offset on. At the end it returns `None`, and goes on when there
/// is more, unless it was given an end.
///
/// Invariant: what it returns lies before `end`; where only what is durable is visible, `end` is an
/// offset that was durable when it was set.
#[derive(Debug)]
pub struct Scan {
    cursor: BlockCursor,
    /// What of the cursor's block is still to come.
    rest: Remaining,
    next: u64,
    end: u64,
    /// For messages.
    topic: Arc<TopicSettings>,
    held_back: Option<HeldBack>,
    /// A scan is a handle of its log too; dropped right behind the cursor.
    _closing: Option<Closing>,
}

/// What a scan waits for that reads only what is on the medium.
#[derive(Debug)]
struct HeldBack {
    topic: u32,
    /// How far the log was durable when `end` was set.
    durable: Address,
    /// Where it ends in any case.
    last: u64,
}

#[derive(Debug)]
enum Remaining {
    Nothing,
    /// All of it, not looked at yet.
    Whole,
    Records(Records),
}

impl Scan {
    /// Offset of the next record that it will return.
    #[inline]
    pub fn next_offset(&self) -> u64 {
        self.next
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt`, `NeedsRecovery`, `Newer`: the scan stays where it is, and [`Scan::skip_damage`] goes
    /// on. `OffsetOutOfRange` when what comes next was trimmed meanwhile.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        let next = self.next_parts()?;
        Ok(next.map(|(block, parts)| Record { block: block.clone(), parts }))
    }

    /// The next record as its block, which is not cloned, and where its parts lie in it.
    ///
    /// # Errors
    /// As [`Scan::next_record`].
    #[inline]
    pub fn next_parts(&mut self) -> Result<Option<(&DataBlock, RecordLayout)>> {
        let next = self.advance(Records::next, |parts| parts.offset_delta)?;
        Ok(next.map(|parts| (self.cursor.block(), parts)))
    }

    /// The next record as its block and its place in that: the least that can be told of it, and
    /// the cheapest way through many. [`DataBlock::parts_of`] tells the rest.
    ///
    /// # Errors
    /// As [`Scan::next_record`].
    #[inline]
    pub fn next_spot(&mut self) -> Result<Option<(&DataBlock, RecordSpan)>> {
        let next = self.advance(Records::next_spot, |spot| spot.offset_delta)?;
        Ok(next.map(|spot| (self.cursor.block(), spot)))
    }

    #[inline(always)]
    fn advance<T>(
        &mut self,
        next: impl Fn(&mut Records, &[u8]) -> Decoded<Option<T>>,
        delta: impl Fn(&T) -> u32,
    ) -> Result<Option<T>> {
        while self.next < self.end || self.reaches_further()? {
            let Remaining::Records(records) = &mut self.rest else {
                if !self.has_block()? {
                    return Ok(None);
                }
                self.rest = Remaining::Records(self.cursor.block().records()?);
                continue;
            };
            let block = self.cursor.block();
            let found = next(records, block.body()).map_err(|what| block.damaged(what))?;
            let Some(found) = found else {
                self.next = self.next.max(block.end());
                self.rest = Remaining::Nothing;
                continue;
            };
            let offset = block.first() + u64::from(delta(&found));
            if offset >= self.end {
                // Should the end move, the block is gone through again from there.
                (self.next, self.rest) = (self.end, Remaining::Whole);
            } else if offset >= self.next {
                self.next = offset + 1;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// At the end: whether it lies further now, because more of the log is on the medium. It costs a
    /// load where that is not so.
    #[cold]
    fn reaches_further(&mut self) -> Result<bool> {
        let Some(held) = &mut self.held_back else { return Ok(false) };
        let log = self.cursor.log();
        let durable = log.durable().unwrap_or_default();
        if self.end == held.last || durable <= held.durable {
            return Ok(false);
        }
        self.end = log.offset_at(held.topic, durable)?.max(self.end).min(held.last);
        held.durable = durable;
        Ok(self.next < self.end)
    }

    /// Have a block of which something is to come; false at the end.
    #[inline(always)]
    fn has_block(&mut self) -> Result<bool> {
        if matches!(self.rest, Remaining::Nothing) {
            let next = self.cursor.next_block();
            if next.map_err(|error| topic_error(error, &self.topic))?.is_some() {
                self.rest = Remaining::Whole;
            }
        }
        Ok(!matches!(self.rest, Remaining::Nothing))
    }

    /// The next block, or what is wanted of it; `None` at the end. Do not mix with
    /// [`Scan::next_record`] within one block: what that returned already is left out.
    ///
    /// # Errors
    /// As [`Scan::next_record`].
    #[inline]
    pub fn next_slice(&mut self) -> Result<Option<Slice>> {
        if !self.has_wanted()? {
            return Ok(None);
        }
        let block = self.cursor.block().clone();
        let offsets = self.wanted_of(&block);
        self.take(&offsets);
        Ok(Some(Slice { block, offsets }))
    }

    /// The records of the next blocks, until there are as many as asked for, the segment ends, or
    /// something is wrong, about which the next call then tells; `None` at the end. Do not mix with
    /// [`Scan::next_record`] within one block, as with [`Scan::next_slice`].
    ///
    /// # Errors
    /// As [`Scan::next_record`].
    pub fn next_run(&mut self, records: usize) -> Result<Option<RecordBatch>> {
        if !self.has_wanted()? {
            return Ok(None);
        }
        let wanted = self.sound()?;
        let left = usize::try_from(self.end - wanted.start).unwrap_or(usize::MAX);
        let mut run = RecordBatch::new(self.cursor.block(), &wanted, records.min(left))?;
        self.take_part(&wanted);
        while run.len() < records && matches!(self.has_wanted(), Ok(true)) {
            let (Ok(wanted), block) = (self.sound(), self.cursor.block()) else { break };
            if !run.takes(block) || run.push(block, &wanted).is_err() {
                break;
            }
            self.take_part(&wanted);
        }
        Ok(Some(run))
    }

    /// What is wanted of the cursor's block, up to a record that is damaged.
    #[inline(always)]
    fn sound(&self) -> Result<Range<u64>> {
        let block = self.cursor.block();
        let wanted = self.wanted_of(block);
        // What a writer committed, bit for bit, is sound.
        if self.cursor.verifies() { Ok(wanted) } else { block.sound_part(wanted) }
    }

    /// Have a block of which something is wanted; false at the end.
    #[inline(always)]
    fn has_wanted(&mut self) -> Result<bool> {
        while (self.next < self.end || self.reaches_further()?) && self.has_block()? {
            if !self.wanted_of(self.cursor.block()).is_empty() {
                return Ok(true);
            }
            self.rest = Remaining::Nothing;
        }
        Ok(false)
    }

    #[inline(always)]
    fn wanted_of(&self, block: &DataBlock) -> Range<u64> {
        block.first().max(self.next)..block.end().min(self.end)
    }

    #[inline(always)]
    fn take(&mut self, wanted: &Range<u64>) {
        self.rest = Remaining::Nothing;
        self.next = wanted.end;
    }

    /// As [`Scan::take`]; of what is behind it in the block the next call tells.
    #[inline(always)]
    fn take_part(&mut self, part: &Range<u64>) {
        let whole = part.end == self.wanted_of(self.cursor.block()).end;
        self.rest = if whole { Remaining::Nothing } else { Remaining::Whole };
        self.next = part.end;
    }

    /// Step over damage to the next sound block, for readers that were told to; says what they lose.
    /// It goes on with the end of those offsets.
    ///
    /// # Errors
    /// As [`Scan::next_record`], where the next block is damaged as well: ask again.
    pub fn skip_damage(&mut self) -> Result<Skipped> {
        let lost_from = self.next;
        let (path, position, on) = match std::mem::replace(&mut self.rest, Remaining::Nothing) {
            Remaining::Nothing => {
                let position = self.cursor.address().position();
                (self.cursor.path().to_path_buf(), position, self.cursor.skip_damage()?)
            }
            // A sound block of what cannot be read: the cursor is past it already.
            Remaining::Whole | Remaining::Records(_) => {
                let block = self.cursor.block();
                (block.path().to_path_buf(), block.position(), block.end())
            }
        };
        self.next = on.max(lost_from);
        Ok(Skipped { path, position, offsets: lost_from..self.next })
    }

    /// Where it stands in the log.
    pub fn cursor(&self) -> &BlockCursor {
        &self.cursor
    }
}

/// What a log says of one of its topics, said of the topic.
#[cold]
pub(super) fn topic_error(error: Error, of: &TopicSettings) -> Error {
    match error {
        Error::OffsetOutOfRange { partition, offset, first, end, .. } => {
            let (topic, partition) = (of.name.clone(), partition.saturating_sub(of.number));
            Error::OffsetOutOfRange { topic, partition, offset, first, end }
        }
        Error::TopicDeleted { .. } => Error::TopicDeleted { name: of.name.clone() },
        other => other,
    }
}

impl Topic {
    /// The record with this offset.
    ///
    /// # Errors
    /// `OffsetOutOfRange`, `Compacted`; `Corrupt`, `NeedsRecovery`, `Newer`.
    pub fn get(&self, partition: u32, offset: u64) -> Result<Record> {
        match self.visibility {
            Visibility::Committed => self.look_up(partition, offset),
            Visibility::Durable => self.look_up_durable(partition, offset),
        }
    }

    #[inline(never)]
    fn look_up_durable(&self, partition: u32, offset: u64) -> Result<Record> {
        let found = self.look_up(partition, offset);
        // Damage behind what is visible is none of the reader's business.
        if found.is_err() && offset >= self.end(partition)? {
            return Err(self.out_of_range(partition, offset.into())?);
        }
        found
    }

    #[inline(always)]
    fn look_up(&self, partition: u32, offset: u64) -> Result<Record> {
        let number = self.number(partition)?;
        if offset < self.log.trimmed(number) {
            return Err(self.out_of_range(partition, offset.into())?);
        }
        let cursor = self.log.cursor_at(number, offset, self.check);
        let mut cursor = cursor.map_err(|error| self.topic_error(error))?;
        let block = cursor.next_block()?.filter(|block| {
            (block.first()..block.end()).contains(&offset) && self.is_visible(block)
        });
        let Some(block) = block else {
            return Err(self.out_of_range(partition, offset.into())?);
        };
        let Some(parts) = block.find(offset)? else {
            return Err(Error::Compacted { topic: self.name().to_owned(), offset });
        };
        Ok(Record { block: block.clone(), parts })
    }

    fn is_visible(&self, block: &DataBlock) -> bool {
        let durable = || self.log.durable().is_some_and(|durable| block.address() <= durable);
        self.visibility == Visibility::Committed || durable()
    }

    /// The error for an offset that no record has.
    ///
    /// # Errors
    /// When the topic's bounds cannot be read.
    pub fn out_of_range(&self, partition: u32, offset: i128) -> Result<Error> {
        let (topic, first, end) =
            (self.name().to_owned(), self.first(partition)?, self.end(partition)?);
        Ok(Error::OffsetOutOfRange { topic, partition, offset, first, end })
    }

    /// Go through a partition from an offset on. With an `end` it stops there; without one it goes on
    /// as records are appended.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for what retention took or was never written (the end itself is fine);
    /// `Corrupt`, `NeedsRecovery`, `Newer`.
    pub fn scan(&self, partition: u32, from: u64, end: Option<u64>) -> Result<Scan> {
        let number = self.number(partition)?;
        if from < self.first(partition)? {
            return Err(self.out_of_range(partition, from.into())?);
        }
        let cursor = self.log.cursor_at(number, from, self.check);
        let cursor = cursor.map_err(|error| self.topic_error(error))?;
        let (rest, last, _closing) =
            (Remaining::Nothing, end.unwrap_or(u64::MAX), self._closing.clone());
        let (end, held_back) = match self.visibility {
            Visibility::Committed => (last, None),
            Visibility::Durable => {
                let durable = Address::default();
                (0, Some(HeldBack { topic: number, durable, last }))
            }
        };
        let topic = Arc::clone(&self.settings);
        Ok(Scan { cursor, rest, next: from, end, topic, held_back, _closing })
    }

    /// Offset of the first record whose timestamp is at or after a time, nanoseconds since 1970.
    ///
    /// # Errors
    /// As [`Topic::first`].
    pub fn offset_at_time(&self, partition: u32, time_ns: i64) -> Result<Option<u64>> {
        let until = match self.visibility {
            Visibility::Committed => Address(u64::MAX),
            Visibility::Durable => self.log.durable().unwrap_or_default(),
        };
        let found =
            self.log.offset_at_time_before(until, self.number(partition)?, time_ns, Check::Full);
        found.map_err(|error| self.topic_error(error))
    }
}
