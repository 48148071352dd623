//! A record batch: the records of consecutive blocks, held together.
//!
//! Reading gives batches. Where blocks are small, what is kept for each costs more than reading it, so a
//! [`RecordBatch`] holds the map of its segment once and 48 bytes for each block. A record of a batch is a
//! [`RecordRef`] of 28 bytes, which holds nothing. Invariant: as for [`DataBlock`], of which it is
//! made: every block was checked as far as its cursor was told to. See `docs/PROTOCOL.md`, "Read".

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::DecodeError;
use crate::format::address::Address;
use crate::format::block::flag;
use crate::format::record::{RecordCursor, RecordLayout, RecordSpan, headers};
use crate::segment::walk::ns_of;
use crate::segment::{BlockError, BodyExtent, Segment};

use super::DataBlock;

/// Records for which room is made at once: more may never come.
const MOST_RESERVED: usize = 1 << 14;

/// Records of consecutive blocks of one segment. Holds the segment's map; a clone costs one reference.
#[derive(Clone, Debug)]
pub struct RecordBatch(Arc<BatchContents>);

#[derive(Debug)]
struct BatchContents {
    segment: Arc<Segment>,
    partition: u32,
    first: BlockExtent,
    others: Vec<BlockExtent>,
    offsets: Range<u64>,
    records: u32,
    /// Records of the first block that lie before `offsets`.
    skipped: u32,
}

/// What of a block is needed to read its records.
#[derive(Clone, Debug)]
struct BlockExtent {
    first: u64,
    /// As in the block's header.
    time: u64,
    body: BodyExtent,
    body_crc: u32,
    /// Records of the batch before it.
    before: u32,
    /// Its records up to the last one of the batch.
    count: u32,
}

/// A record of a [`RecordBatch`], by its place in that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordRef {
    block: u32,
    span: RecordSpan,
}

/// Walks the records of a [`RecordBatch`] which it is given at each step.
#[derive(Clone, Debug, Default)]
pub struct RecordRefs {
    block: u32,
    records: Option<RecordCursor>,
}

/// A block of a [`RecordBatch`].
#[derive(Clone, Copy, Debug)]
pub struct BatchBlock<'a> {
    batch: &'a BatchContents,
    number: usize,
    extent: &'a BlockExtent,
}

/// A batch that is being made.
#[derive(Debug)]
pub(crate) struct BatchBuilder(BatchContents);

impl BatchBuilder {
    /// A batch that begins with what is wanted of a block, and is to have so many records.
    ///
    /// # Errors
    /// As [`BatchBuilder::push`].
    #[inline]
    pub(crate) fn new(
        block: &DataBlock,
        partition: u32,
        wanted: &Range<u64>,
        records: usize,
    ) -> Result<Self> {
        let first = extent(block, wanted)?;
        let skipped = if wanted.start > first.first { before(block, wanted.start) } else { 0 };
        // As many blocks as that takes if the others are like the first.
        let likely = records.min(MOST_RESERVED) / block.count().max(1) as usize;
        let (offsets, records) = (wanted.clone(), first.count.saturating_sub(skipped));
        let (segment, others) = (Arc::clone(&block.segment), Vec::with_capacity(likely));
        Ok(Self(BatchContents { segment, partition, first, others, offsets, records, skipped }))
    }

    /// True when the block can be added: it lies in the same segment.
    #[inline]
    pub(crate) fn takes(&self, block: &DataBlock) -> bool {
        Arc::ptr_eq(&self.0.segment, &block.segment) && self.0.others.len() < 1 << 24
    }

    /// Add what is wanted of the block that follows.
    ///
    /// # Errors
    /// `UnsupportedVersion` for a codec that this version does not read, `CorruptData` for a body that is too
    /// short.
    #[inline]
    pub(crate) fn push(&mut self, block: &DataBlock, wanted: &Range<u64>) -> Result<()> {
        let before = self.0.records;
        let extent = BlockExtent { before, ..extent(block, wanted)? };
        self.0.records += extent.count;
        self.0.others.push(extent);
        self.0.offsets.end = wanted.end;
        Ok(())
    }

    /// Number of its records so far.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.records as usize
    }

    /// The batch.
    #[inline]
    pub(crate) fn finish(self) -> RecordBatch {
        RecordBatch(Arc::new(self.0))
    }
}

#[inline]
fn extent(block: &DataBlock, wanted: &Range<u64>) -> Result<BlockExtent> {
    let header = &block.block.header;
    if header.flags & (flag::CODEC | flag::EVENT_TIME) != 0 {
        block.records()?;
    }
    let count = if wanted.end < block.end() { before(block, wanted.end) } else { block.count() };
    let (first, body) = (block.first(), block.segment.extent(&block.block));
    let (time, body_crc) = (header.time, header.body_crc);
    Ok(BlockExtent { first, time, body, body_crc, before: 0, count })
}

/// Records of a block before an offset, or before a damaged one.
#[cold]
fn before(block: &DataBlock, offset: u64) -> u32 {
    let Ok(mut records) = block.records() else { return 0 };
    if records.is_plain() {
        return (offset - block.first()) as u32;
    }
    let (mut before, body) = (0, block.body());
    while let Ok(Some(span)) = records.next_span(body) {
        if block.first() + u64::from(span.offset_delta) >= offset {
            break;
        }
        before += 1;
    }
    before
}

impl RecordBatch {
    /// One record, which was found in this block.
    ///
    /// # Errors
    /// As [`DataBlock::records`].
    pub(crate) fn one(
        block: &DataBlock,
        partition: u32,
        span: RecordSpan,
    ) -> Result<(Self, RecordRef)> {
        let first = extent(block, &(block.first()..block.end()))?;
        let offset = block.first() + u64::from(span.offset_delta);
        let (segment, others, offsets) =
            (Arc::clone(&block.segment), Vec::new(), offset..offset + 1);
        let held =
            BatchContents { segment, partition, first, others, offsets, records: 1, skipped: 0 };
        Ok((Self(Arc::new(held)), RecordRef { block: 0, span }))
    }

    /// Number of the partition that its records are of.
    #[inline]
    pub fn partition(&self) -> u32 {
        self.0.partition
    }

    /// Offsets of its records; where compaction was, not each of them has one.
    #[inline]
    pub fn offsets(&self) -> Range<u64> {
        self.0.offsets.clone()
    }

    /// Number of its records.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.records as usize
    }

    /// True when compaction left none of them.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.records == 0
    }

    /// True for a clone of the same batch.
    #[doc(hidden)]
    #[inline]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The `n`-th record: a walk through its block, by lengths alone where values are plain.
    ///
    /// # Errors
    /// `CorruptData` where a record is damaged.
    pub fn record(&self, n: usize) -> Result<Option<RecordRef>> {
        if n >= self.len() {
            return Ok(None);
        }
        let n = n as u32;
        let block = self.0.others.partition_point(|block| block.before <= n);
        let here = self.block(block);
        let skipped = if block == 0 { self.0.skipped } else { 0 };
        let mut left = n - here.extent.before + skipped;
        let (mut records, body) = (here.records()?, here.body());
        if records.is_plain() && records.skip_plain(body, left) {
            left = 0;
        }
        while let Some(span) = records.next_span(body).map_err(|what| here.damaged(what))? {
            if left == 0 {
                return Ok(Some(RecordRef { block: block as u32, span }));
            }
            left -= 1;
        }
        Ok(None)
    }

    /// Number of the blocks that it is made of.
    #[doc(hidden)]
    #[inline]
    pub fn blocks(&self) -> usize {
        self.0.others.len() + 1
    }

    /// One of its blocks.
    ///
    /// # Panics
    /// For a number that is not less than [`RecordBatch::blocks`].
    #[doc(hidden)]
    #[inline(always)]
    pub fn block(&self, number: usize) -> BatchBlock<'_> {
        let extent = match number.checked_sub(1) {
            None => &self.0.first,
            Some(other) => &self.0.others[other],
        };
        BatchBlock { batch: &self.0, number, extent }
    }

    /// The block that a record is in.
    #[doc(hidden)]
    #[inline(always)]
    pub fn block_of(&self, at: &RecordRef) -> BatchBlock<'_> {
        self.block(at.block as usize)
    }

    /// Offset of a record.
    #[inline]
    pub fn offset(&self, at: &RecordRef) -> u64 {
        self.block_of(at).extent.first + u64::from(at.span.offset_delta)
    }

    /// Value of a record; `None` for a tombstone.
    #[inline]
    pub fn value(&self, at: &RecordRef) -> Option<&[u8]> {
        at.span.value().map(|range| &self.block_of(at).body()[range])
    }

    /// Key of a record.
    #[inline]
    pub fn key(&self, at: &RecordRef) -> Option<&[u8]> {
        at.span.key().map(|range| &self.block_of(at).body()[range])
    }

    /// Headers of a record, in order.
    pub fn headers(&self, at: &RecordRef) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        headers(&self.block_of(at).body()[self.layout(at).headers])
    }

    /// The event time of a record, nanoseconds since 1970; `None` where it has none of its own.
    pub fn event_time_ns(&self, at: &RecordRef) -> Option<i64> {
        let is_rich = self.block_of(at).extent.body.flags() & flag::RICH != 0;
        if is_rich { self.layout(at).event_time_ns } else { None }
    }

    /// When a record happened, or else was appended: nanoseconds since 1970.
    pub fn timestamp_ns(&self, at: &RecordRef) -> i64 {
        self.event_time_ns(at).unwrap_or_else(|| self.block_of(at).appended_ns())
    }

    /// All parts of a record. Its bytes were walked before: they cannot fail to decode, unless somebody
    /// else wrote to the file since, and then it has none.
    fn layout(&self, at: &RecordRef) -> RecordLayout {
        let block = self.block_of(at);
        let layout = block.records().ok().map(|records| records.layout_of(block.body(), &at.span));
        layout.and_then(std::result::Result::ok).unwrap_or_default()
    }
}

impl RecordRefs {
    /// The next record of the batch, always the same one; `None` after the last.
    ///
    /// # Errors
    /// `CorruptData` where a record is damaged, again each time.
    #[inline]
    pub fn next(&mut self, batch: &RecordBatch) -> Result<Option<RecordRef>> {
        match self.next_short(batch) {
            Some((at, _)) => Ok(Some(at)),
            None => {
                let mut at = RecordRef::default();
                Ok(self.next_other(batch, &mut at)?.map(|_| at))
            }
        }
    }

    /// The next record and its offset, where it has no headers, and stands in a block that was entered or is
    /// alone in its block. `None` says no more than that [`RecordRefs::next_other`] has to be asked.
    #[inline(always)]
    pub(crate) fn next_short(&mut self, batch: &RecordBatch) -> Option<(RecordRef, u64)> {
        let number = self.block;
        let extent = match (number as usize).checked_sub(1) {
            None if batch.0.skipped > 0 => return None,
            None => &batch.0.first,
            Some(other) => batch.0.others.get(other)?,
        };
        let body = batch.0.segment.bytes(&extent.body);
        let span = match &mut self.records {
            // A block is in a batch because something of it is wanted: then all of this one.
            None if extent.count == 1 => {
                let flags = extent.body.flags();
                let keyed = || RecordCursor::new(flags, 1, body).ok()?.next_keyed_span(body);
                let span = RecordSpan::alone(flags, body).or_else(keyed)?;
                self.block += 1;
                span
            }
            Some(records) if records.is_plain() => records.next_plain_span(body)?,
            Some(records) => records.next_keyed_span(body)?,
            None => return None,
        };
        let offset = extent.first + u64::from(span.offset_delta);
        Some((RecordRef { block: number, span }, offset))
    }

    /// Any step, with every check: where the next record is, which is put into `at`, and its offset.
    #[inline(never)]
    pub(crate) fn next_other(
        &mut self,
        batch: &RecordBatch,
        at: &mut RecordRef,
    ) -> Result<Option<u64>> {
        while !self.is_done(batch) {
            let (number, block) = (self.block, batch.block(self.block as usize));
            let records = match &mut self.records {
                Some(records) => records,
                None => self.records.insert(block.records()?),
            };
            let found = records.next_span(block.body());
            let found = found.map_err(|what| block.damaged(what))?;
            if records.left() == 0 {
                (self.block, self.records) = (number + 1, None);
            }
            let Some(span) = found else { continue };
            let offset = block.extent.first + u64::from(span.offset_delta);
            if offset >= batch.0.offsets.start {
                *at = RecordRef { block: number, span };
                return Ok(Some(offset));
            }
        }
        Ok(None)
    }

    /// Pass over what is left of a block; says which, and the offset behind it.
    pub(crate) fn skip_block<'b>(&mut self, batch: &'b RecordBatch) -> (BatchBlock<'b>, u64) {
        let block = batch.block(self.block as usize);
        self.block += 1;
        self.records = None;
        (block, block.wanted().end)
    }

    /// True when nothing of the batch was left at the last step.
    #[inline]
    pub(crate) fn is_done(&self, batch: &RecordBatch) -> bool {
        self.block as usize >= batch.blocks()
    }
}

impl<'a> BatchBlock<'a> {
    /// Offset of its first record.
    #[inline]
    pub fn first(&self) -> u64 {
        self.extent.first
    }

    /// Number of its records, up to the last one that is in the batch.
    #[inline]
    pub fn count(&self) -> u32 {
        self.extent.count
    }

    /// The offsets of it that are in the batch.
    pub fn wanted(&self) -> Range<u64> {
        let behind = self.batch.others.get(self.number).map(|block| block.first);
        self.first().max(self.batch.offsets.start)..behind.unwrap_or(self.batch.offsets.end)
    }

    /// The encoded records, in mapped memory.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.batch.segment.bytes(&self.extent.body)
    }

    /// All bytes from the beginning of its body to the end of a later block's, where they lie in mapped
    /// memory; `None` for a block of another segment, or one before it, and where they cannot be read.
    pub fn body_through(&self, last: &BatchBlock<'_>) -> Option<&'a [u8]> {
        let same = Arc::ptr_eq(&self.batch.segment, &last.batch.segment);
        same.then(|| self.batch.segment.through(&self.extent.body, &last.extent.body)).flatten()
    }

    /// Walks its records, up to the last one that is in the batch.
    ///
    /// # Errors
    /// None: what the batch was made of was looked at.
    #[inline]
    pub fn records(&self) -> Result<RecordCursor> {
        let BlockExtent { body, count, .. } = self.extent;
        let records = RecordCursor::new(body.flags(), *count, self.body());
        records.map_err(|what| self.damaged(what))
    }

    /// When it was appended, nanoseconds since 1970.
    #[inline]
    pub fn appended_ns(&self) -> i64 {
        ns_of(&self.batch.segment, self.extent.time)
    }

    /// Where it begins in its segment.
    #[inline]
    pub fn position(&self) -> u64 {
        self.extent.body.block()
    }

    /// Where it ends in the log.
    #[inline]
    pub fn address(&self) -> Address {
        Address::new(self.batch.segment.sequence(), self.extent.body.end())
    }

    /// Path of its segment, for messages.
    pub fn path(&self) -> &'a Path {
        self.batch.segment.path()
    }

    /// True when compaction made its segment: its records may have been in several blocks before, and may
    /// be in another one later.
    #[inline]
    pub fn is_compacted(&self) -> bool {
        self.batch.segment.is_compacted()
    }

    /// What tells it from other blocks that its log had or will have at any place: salt of its segment,
    /// position, body and time. One that was carried over to another segment has another.
    pub fn fingerprint(&self) -> u64 {
        let crc = self.extent.body_crc.into();
        let parts = [self.position(), self.appended_ns() as u64, crc];
        // Multiplied by odd constants and folded, so that no part undoes another.
        parts.iter().fold(self.batch.segment.salt(), |mark, part| {
            (mark ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        })
    }

    /// An error that names it.
    #[cold]
    pub fn damaged(&self, what: DecodeError) -> Error {
        self.batch.segment.error(BlockError { position: self.position(), what })
    }
}
