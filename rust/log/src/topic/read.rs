//! Reading records: one by offset, ranges, and scans that continue as the topic grows.
//!
//! Readers get batches ([`RecordBatch`]). A [`Record`] refers to its batch, which holds the map of
//! its segment. So it stays valid after the topic, the store and the file are gone. Nothing is
//! copied. Several partitions at once: [`super::Scan`]; waiting for more: [`super::Follow`].

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::settings::TopicSettings;
use crate::log::{BatchBlock, BatchBuilder, BlockCursor, DataBlock};
use crate::log::{RecordBatch, RecordRef, RecordRefs};
use crate::segment::Check;
use crate::store::Closing;

use super::{Topic, Visibility};

/// A committed record: its batch, and its place in it. A clone costs one reference.
#[derive(Clone, Debug)]
pub struct Record {
    batch: RecordBatch,
    at: RecordRef,
}

impl Record {
    /// Make a record of a batch.
    #[doc(hidden)]
    #[inline]
    pub fn new(batch: RecordBatch, at: RecordRef) -> Self {
        Self { batch, at }
    }

    /// Get the number of its partition.
    #[inline]
    pub fn partition(&self) -> u32 {
        self.batch.partition()
    }

    /// Get its offset.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.batch.offset(&self.at)
    }

    /// Get its value, a view of the mapped file; `None` for a tombstone.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.batch.value(&self.at)
    }

    /// Get its key.
    pub fn key(&self) -> Option<&[u8]> {
        self.batch.key(&self.at)
    }

    /// Get its headers in order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.batch.headers(&self.at)
    }

    /// Get the time when it happened, or otherwise when it was appended, in nanoseconds since 1970.
    pub fn timestamp_ns(&self) -> i64 {
        self.batch.timestamp_ns(&self.at)
    }

    /// Return its block.
    #[doc(hidden)]
    pub fn block(&self) -> BatchBlock<'_> {
        self.batch.block_of(&self.at)
    }

    /// Return its batch, and its place in it.
    #[doc(hidden)]
    pub fn into_parts(self) -> (RecordBatch, RecordRef) {
        (self.batch, self.at)
    }
}

/// A part that a reader stepped over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The corrupt segment.
    pub path: PathBuf,
    /// Where in it the corruption begins.
    pub position: u64,
    /// Offsets that are lost to the reader; empty if no valid block follows that would tell.
    pub offsets: Range<u64>,
}

/// Most records that a scan reads ahead of the one that it returns.
const AHEAD: usize = 64;

/// Bytes that a scan reads before it notes them, so that their pages are released.
const NOTED: u64 = 1 << 20;

/// No word of trims.
const NOT_LOOKED: Address = Address(u64::MAX);

/// Reads a partition from an offset on. At the end it returns `None`, and continues when there is
/// more, unless it has an end.
///
/// As an iterator it returns records. After an error it stays where it is and returns the error
/// again, until [`PartitionScan::skip_damage`] steps over the corruption. Records and
/// [`PartitionScan::next_batch`] may be mixed.
///
/// Invariant: everything that it returns lies before `end`. If only durable or remote records are
/// visible, `end` is an offset that was so when it was set. It returns no record that was trimmed
/// before the call, also of those that it read ahead.
#[derive(Debug)]
pub struct PartitionScan {
    cursor: BlockCursor,
    /// Part of the cursor's block is not in a batch yet.
    has_block: bool,
    /// Offset with which the next batch begins.
    read: u64,
    /// The records read ahead, and how many of them were returned.
    ahead: Option<(RecordBatch, RecordRefs)>,
    /// Offset of the next record to return.
    next: u64,
    /// Up to where the log knows that it read.
    noted: Address,
    end: u64,
    range: ScanRange,
    /// For messages.
    topic: Arc<TopicSettings>,
    /// The log's word of trims when the next record was last known to be untrimmed.
    trims: Address,
    /// Which records are visible, unless all are, and how far those reached when `end` was set.
    reached: Option<(Visibility, Address)>,
    /// A scan is a handle of its log too; dropped right after the cursor.
    _closing: Option<Closing>,
}

/// A range of a partition to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRange {
    /// Number of the partition.
    pub partition: u32,
    /// Offset to begin with.
    pub from: u64,
    /// Offset to end before; without one reading continues as records are appended.
    pub end: Option<u64>,
}

impl Iterator for PartitionScan {
    type Item = Result<Record>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_ref().transpose()?;
        Some(next.map(|(batch, at)| Record::new(batch.clone(), at)))
    }
}

impl PartitionScan {
    /// Return the offset of the next record.
    #[inline]
    pub fn next_offset(&self) -> u64 {
        self.next
    }

    /// Return the range that is left.
    pub fn range(&self) -> ScanRange {
        ScanRange { from: self.next, ..self.range }
    }

    /// Return the next record as its batch and its place in it, which costs no reference; `None` at
    /// the end.
    ///
    /// # Errors
    /// `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`: the scan stays where it is, and
    /// [`PartitionScan::skip_damage`] continues. `OffsetOutOfRange` when the next records were
    /// trimmed meanwhile.
    #[inline]
    pub fn next_ref(&mut self) -> Result<Option<(&RecordBatch, RecordRef)>> {
        // Also for records that were read ahead.
        if self.has_new_trims() {
            self.expect_untrimmed(self.next)?;
        }
        let quick = self.ahead.as_mut().and_then(|(batch, refs)| refs.next_short(batch));
        let at = match quick {
            Some((at, offset)) => {
                self.next = offset + 1;
                at
            }
            None => {
                let mut at = RecordRef::default();
                if !self.next_other(&mut at)? {
                    return Ok(None);
                }
                at
            }
        };
        Ok(self.batch().map(|batch| (batch, at)))
    }

    /// Return true if something was trimmed since it was last known that nothing of the next records
    /// was. Costs a load.
    #[inline(always)]
    pub(super) fn has_new_trims(&self) -> bool {
        self.cursor.log().trim_word().is_some_and(|word| word != self.trims)
    }

    /// Check that an offset, at or before the next one, is not trimmed. A caller that holds records
    /// that it has not delivered does this before it delivers more of them.
    ///
    /// # Errors
    /// `OffsetOutOfRange`, each time.
    #[doc(hidden)]
    #[inline]
    pub fn expect_kept(&mut self, offset: u64) -> Result<()> {
        let now = self.cursor.log().trim_word_by_call();
        if now.is_some_and(|word| word != self.trims) {
            self.expect_untrimmed(offset)
        } else {
            Ok(())
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn expect_untrimmed(&mut self, offset: u64) -> Result<()> {
        let (log, number) = (self.cursor.log(), self.cursor.topic());
        let (first, word) = log.trimmed_with_word(number);
        if offset < first && self.range.end.is_none_or(|end| offset < end) {
            let error = log.out_of_range(number, offset)?;
            return Err(topic_error(error, &self.topic));
        }
        self.trims = word.unwrap_or(NOT_LOOKED);
        Ok(())
    }

    /// Take any step, with every check.
    #[inline(never)]
    fn next_other(&mut self, at: &mut RecordRef) -> Result<bool> {
        loop {
            if let Some((batch, refs)) = &mut self.ahead {
                if let Some(offset) = refs.next_other(batch, at)? {
                    self.next = offset + 1;
                    return Ok(true);
                }
            }
            (self.ahead, self.next) = (None, self.read);
            // Corruption is reported at its place.
            let Some(batch) = self.read_batch(AHEAD, false)? else { return Ok(false) };
            self.ahead = Some((batch, RecordRefs::default()));
        }
    }

    /// Return the batch that [`PartitionScan::next_ref`] returned last.
    #[inline]
    pub(super) fn batch(&self) -> Option<&RecordBatch> {
        self.ahead.as_ref().map(|(batch, _)| batch)
    }

    /// Return the records of the next blocks of one segment, about as many as requested. The last
    /// block is not divided, so there may be more. A batch ends before an error, which the next
    /// call returns. `None` at the end.
    ///
    /// # Errors
    /// As [`PartitionScan::next_ref`].
    pub fn next_batch(&mut self, records: usize) -> Result<Option<RecordBatch>> {
        if self.ahead.as_ref().is_some_and(|(batch, refs)| !refs.is_done(batch)) {
            self.go_to(self.next)?;
        }
        self.ahead = None;
        let batch = self.read_batch(records, true)?;
        self.next = self.read;
        Ok(batch)
    }

    /// Read on from an offset, which is not less than the first one.
    ///
    /// # Errors
    /// As [`Topic::scan`].
    pub(super) fn go_to(&mut self, offset: u64) -> Result<()> {
        self.cursor.go_to(offset).map_err(|error| topic_error(error, &self.topic))?;
        (self.ahead, self.has_block, self.read, self.next) = (None, false, offset, offset);
        self.noted = self.cursor.address();
        Ok(())
    }

    /// Note what was read of the current segment, if it is at least so much. The cursor left the
    /// segments before it.
    #[inline]
    fn note_read(&mut self, least: u64) {
        let (now, noted) = (self.cursor.address(), self.noted);
        let before = if now.sequence() == noted.sequence() { noted.position() } else { 0 };
        let bytes = now.position().saturating_sub(before);
        if bytes >= least {
            self.cursor.note_read(bytes);
            self.noted = now;
        }
    }

    /// Read the next blocks with records. If `careful`, only the readable part of unverified
    /// blocks.
    fn read_batch(&mut self, records: usize, careful: bool) -> Result<Option<RecordBatch>> {
        // Verified blocks are what a writer committed, bit for bit.
        let careful = careful && !self.cursor.verifies();
        // First, so that the pages of the batch that is read now stay.
        self.note_read(NOTED);
        self.expect_kept(self.read)?;
        while self.has_wanted()? {
            let wanted = self.wanted(careful)?;
            let left = usize::try_from(self.end - wanted.start).unwrap_or(usize::MAX);
            let (block, partition) = (self.cursor.block(), self.range.partition);
            let mut batch = BatchBuilder::new(block, partition, &wanted, records.min(left))?;
            self.take(&wanted);
            while batch.len() < records && matches!(self.has_wanted(), Ok(true)) {
                let (Ok(wanted), block) = (self.wanted(careful), self.cursor.block()) else {
                    break;
                };
                if !batch.takes(block) || batch.push(block, &wanted).is_err() {
                    break;
                }
                self.take(&wanted);
            }
            // Compaction may have left no record of some blocks.
            if batch.len() > 0 {
                return Ok(Some(batch.finish()));
            }
        }
        Ok(None)
    }

    /// Return the wanted offsets of the cursor's block.
    #[inline(always)]
    fn wanted(&self, careful: bool) -> Result<Range<u64>> {
        let (block, wanted) = (self.cursor.block(), self.wanted_of(self.cursor.block()));
        if careful { block.sound_part(wanted) } else { Ok(wanted) }
    }

    /// Move to a block with wanted offsets; return false at the end.
    #[inline(always)]
    fn has_wanted(&mut self) -> Result<bool> {
        while self.read < self.end || self.reaches_further()? {
            if !self.has_block {
                let next = self.cursor.next_block();
                if next.map_err(|error| topic_error(error, &self.topic))?.is_none() {
                    return Ok(false);
                }
                self.has_block = true;
            }
            if !self.wanted_of(self.cursor.block()).is_empty() {
                return Ok(true);
            }
            self.has_block = false;
        }
        Ok(false)
    }

    #[inline(always)]
    fn wanted_of(&self, block: &DataBlock) -> Range<u64> {
        block.first().max(self.read)..block.end().min(self.end)
    }

    /// Continue after a part of the cursor's block; the next call handles the rest.
    #[inline(always)]
    fn take(&mut self, part: &Range<u64>) {
        // If the end moves, the rest of a block is wanted.
        self.has_block = part.end < self.cursor.block().end();
        self.read = part.end;
    }

    /// Find out, at the end, whether it is further now, because more of the log is on disk. Costs a
    /// load if not.
    #[cold]
    fn reaches_further(&mut self) -> Result<bool> {
        let Some((visibility, seen)) = self.reached else { return Ok(false) };
        let (log, last) = (self.cursor.log(), self.range.end.unwrap_or(u64::MAX));
        let reached = log.reached(visibility).unwrap_or_default();
        if self.end == last || reached <= seen {
            return Ok(false);
        }
        let end = log.offset_reached(self.cursor.topic(), || log.reached(visibility))?;
        self.end = end.max(self.end).min(last);
        self.reached = Some((visibility, reached));
        Ok(self.read < self.end)
    }

    /// Step over corruption to the next valid block, for readers that asked for it; return what
    /// they lose. The scan continues at the end of those offsets.
    ///
    /// # Errors
    /// As [`PartitionScan::next_ref`], when the next block is corrupt as well: call it again.
    pub fn skip_damage(&mut self) -> Result<Skipped> {
        let lost_from = self.next;
        if let Some((batch, refs)) =
            self.ahead.as_mut().filter(|(batch, refs)| !refs.is_done(batch))
        {
            // The block is what its writer committed, and one of its records cannot be read.
            let (block, end) = refs.skip_block(batch);
            self.next = end.max(lost_from);
            let (path, position) = (block.path().to_path_buf(), block.position());
            return Ok(Skipped { path, position, offsets: lost_from..self.next });
        }
        self.ahead = None;
        let (path, position, on) = if std::mem::take(&mut self.has_block) {
            let block = self.cursor.block();
            (block.path().to_path_buf(), block.position(), block.end())
        } else {
            let position = self.cursor.address().position();
            (self.cursor.path().to_path_buf(), position, self.cursor.skip_damage()?)
        };
        self.next = on.max(lost_from);
        self.read = self.next;
        Ok(Skipped { path, position, offsets: lost_from..self.next })
    }

    /// Step over corruption, of several blocks too.
    ///
    /// # Errors
    /// As [`PartitionScan::next_ref`], when nothing after it can be read.
    pub fn step_over(&mut self) -> Result<Skipped> {
        let (path, first) = (self.cursor.path().to_path_buf(), self.cursor.address());
        let mut before = first;
        let mut skipped = self.skip_damage();
        while matches!(skipped, Err(Error::CorruptData { .. })) && self.cursor.address() > before {
            before = self.cursor.address();
            let (path, position) = (path.clone(), first.position());
            let more = self.skip_damage();
            skipped = more.map(|more| Skipped { path, position, ..more });
        }
        skipped
    }

    /// Return its cursor in the log: after the records read ahead.
    pub fn cursor(&self) -> &BlockCursor {
        &self.cursor
    }
}

impl Drop for PartitionScan {
    fn drop(&mut self) {
        self.note_read(1);
    }
}

/// Convert a log's error about one of its topics to one of the topic.
#[cold]
pub(super) fn topic_error(error: Error, of: &TopicSettings) -> Error {
    match error {
        Error::TopicDeleted { .. } => Error::TopicDeleted { name: of.name.clone() },
        mut other => {
            if let Some((topic, partition)) = other.part_mut() {
                topic.clone_from(&of.name);
                *partition = partition.saturating_sub(of.number);
            }
            other
        }
    }
}

impl Topic {
    /// Return the record with this offset.
    ///
    /// # Errors
    /// `OffsetOutOfRange`, `RecordCompacted`; `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`.
    #[doc(hidden)]
    pub fn get_in(&self, partition: u32, offset: u64) -> Result<Record> {
        match self.visibility {
            Visibility::Visible => self.look_up(partition, offset),
            Visibility::Durable | Visibility::Remote => self.look_up_reached(partition, offset),
        }
    }

    #[inline(never)]
    fn look_up_reached(&self, partition: u32, offset: u64) -> Result<Record> {
        let found = self.look_up(partition, offset);
        // Corruption after the visible end does not concern the reader.
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
        let Some(span) = block.find(offset)? else {
            return Err(Error::RecordCompacted { topic: self.name().to_owned(), offset });
        };
        let (batch, at) = RecordBatch::one(block, partition, span)?;
        Ok(Record { batch, at })
    }

    fn is_visible(&self, block: &DataBlock) -> bool {
        let reached = || {
            let reached = self.log.reached(self.visibility);
            reached.is_some_and(|reached| block.address() <= reached)
        };
        self.visibility == Visibility::Visible || reached()
    }

    /// Make the error for an offset without a record.
    ///
    /// # Errors
    /// When the topic's bounds cannot be read.
    #[doc(hidden)]
    pub fn out_of_range(&self, partition: u32, offset: i128) -> Result<Error> {
        let (topic, first, end) =
            (self.name().to_owned(), self.first(partition)?, self.end(partition)?);
        Ok(Error::OffsetOutOfRange { topic, partition, offset, first, end })
    }

    /// Scan a partition from an offset on. With a `last` it stops before that; without one it
    /// continues as records are appended.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for an offset that retention deleted or that was never written (the end
    /// itself is fine); `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`.
    #[doc(hidden)]
    pub fn scan_partition(
        &self,
        partition: u32,
        from: u64,
        last: Option<u64>,
    ) -> Result<PartitionScan> {
        let number = self.number(partition)?;
        if from < self.first(partition)? {
            return Err(self.out_of_range(partition, from.into())?);
        }
        let cursor = self.log.cursor_at(number, from, self.check);
        let cursor = cursor.map_err(|error| self.topic_error(error))?;
        let (end, reached) = match self.visibility {
            Visibility::Visible => (last.unwrap_or(u64::MAX), None),
            visibility => (0, Some((visibility, Address::default()))),
        };
        let (topic, _closing) = (Arc::clone(&self.settings), self._closing.clone());
        let (has_block, ahead, read, next, noted) = (false, None, from, from, cursor.address());
        let range = ScanRange { partition, from, end: last };
        Ok(PartitionScan {
            cursor,
            has_block,
            read,
            ahead,
            next,
            noted,
            end,
            range,
            trims: NOT_LOOKED,
            topic,
            reached,
            _closing,
        })
    }

    /// Return the offset of the first record whose timestamp is at or after a time, nanoseconds
    /// since 1970.
    ///
    /// # Errors
    /// As [`Topic::first`].
    #[doc(hidden)]
    pub fn offset_at_time(&self, partition: u32, time_ns: i64) -> Result<Option<u64>> {
        let until = match self.visibility {
            Visibility::Visible => Address(u64::MAX),
            Visibility::Durable | Visibility::Remote => {
                self.log.reached(self.visibility).unwrap_or_default()
            }
        };
        let found =
            self.log.offset_at_time_before(until, self.number(partition)?, time_ns, Check::Full);
        found.map_err(|error| self.topic_error(error))
    }
}
