//! A record batch: the records of consecutive blocks, held together.
//!
//! Readers get batches. For small blocks, a copy of each block's state would cost more than reading
//! it. So a [`RecordBatch`] holds the map of its segment once and 48 bytes for each block. A record
//! of a batch is a [`RecordRef`] of 28 bytes, which holds nothing. Invariant, as for [`DataBlock`]:
//! the cursor checked every block as far as it was set to check. See `docs/PROTOCOL.md`, "Read".

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

/// Most records for which space is reserved at once: more may never come.
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

/// The parts of a block that reading its records needs.
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

/// Walks the records of a [`RecordBatch`], which the caller passes at each step.
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

/// A batch under construction.
#[derive(Debug)]
pub(crate) struct BatchBuilder(BatchContents);

impl BatchBuilder {
    /// Begin a batch with the wanted records of a block; it is to have this many records.
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
        // Enough blocks for those records if the others are like the first.
        let likely = records.min(MOST_RESERVED) / block.count().max(1) as usize;
        let (offsets, records) = (wanted.clone(), first.count.saturating_sub(skipped));
        let (segment, others) = (Arc::clone(&block.segment), Vec::with_capacity(likely));
        Ok(Self(BatchContents { segment, partition, first, others, offsets, records, skipped }))
    }

    /// Return true when the block can be added: it lies in the same segment.
    #[inline]
    pub(crate) fn takes(&self, block: &DataBlock) -> bool {
        Arc::ptr_eq(&self.0.segment, &block.segment) && self.0.others.len() < 1 << 24
    }

    /// Add the wanted records of the next block.
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

    /// Return the number of its records so far.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.records as usize
    }

    /// Return the batch.
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

/// Count the records of a block before an offset, or before a corrupt one.
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
    /// Make a batch of one record that was found in this block.
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

    /// Return the partition of its records.
    #[inline]
    pub fn partition(&self) -> u32 {
        self.0.partition
    }

    /// Return the offsets of its records; after compaction, some have no record.
    #[inline]
    pub fn offsets(&self) -> Range<u64> {
        self.0.offsets.clone()
    }

    /// Return the number of its records.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.records as usize
    }

    /// Return true when compaction left none of them.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.records == 0
    }

    /// Return true for a clone of the same batch.
    #[doc(hidden)]
    #[inline]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Find the `n`-th record by a walk through its block, which skips by lengths if values are
    /// plain.
    ///
    /// # Errors
    /// `CorruptData` if a record is corrupt.
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

    /// Return the number of its blocks.
    #[doc(hidden)]
    #[inline]
    pub fn blocks(&self) -> usize {
        self.0.others.len() + 1
    }

    /// Return one of its blocks.
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

    /// Return the block of a record.
    #[doc(hidden)]
    #[inline(always)]
    pub fn block_of(&self, at: &RecordRef) -> BatchBlock<'_> {
        self.block(at.block as usize)
    }

    /// Return the offset of a record.
    #[inline]
    pub fn offset(&self, at: &RecordRef) -> u64 {
        self.block_of(at).extent.first + u64::from(at.span.offset_delta)
    }

    /// Return the value of a record; `None` for a tombstone.
    #[inline]
    pub fn value(&self, at: &RecordRef) -> Option<&[u8]> {
        at.span.value().map(|range| &self.block_of(at).body()[range])
    }

    /// Return the key of a record.
    #[inline]
    pub fn key(&self, at: &RecordRef) -> Option<&[u8]> {
        at.span.key().map(|range| &self.block_of(at).body()[range])
    }

    /// Iterate over the headers of a record, in order.
    pub fn headers(&self, at: &RecordRef) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        headers(&self.block_of(at).body()[self.layout(at).headers])
    }

    /// Return the event time of a record, nanoseconds since 1970; `None` without one of its own.
    pub fn event_time_ns(&self, at: &RecordRef) -> Option<i64> {
        let is_rich = self.block_of(at).extent.body.flags() & flag::RICH != 0;
        if is_rich { self.layout(at).event_time_ns } else { None }
    }

    /// Return when a record happened, or else was appended: nanoseconds since 1970.
    pub fn timestamp_ns(&self, at: &RecordRef) -> i64 {
        self.event_time_ns(at).unwrap_or_else(|| self.block_of(at).appended_ns())
    }

    /// Return all parts of a record. Its bytes were walked before, so they decode, unless another
    /// program wrote to the file since; then it has no parts.
    fn layout(&self, at: &RecordRef) -> RecordLayout {
        let block = self.block_of(at);
        let layout = block.records().ok().map(|records| records.layout_of(block.body(), &at.span));
        layout.and_then(std::result::Result::ok).unwrap_or_default()
    }
}

impl RecordRefs {
    /// Return the next record of the batch, which must always be the same one; `None` after the
    /// last.
    ///
    /// # Errors
    /// `CorruptData` if a record is corrupt, again each time.
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

    /// Return the next record and its offset, if it has no headers, and its block was entered or
    /// has no other record. `None` only means that the caller must use [`RecordRefs::next_other`].
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
            // A block is in a batch because some of its records are wanted: here its only one.
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

    /// Take any step, with every check: put the next record into `at`, and return its offset.
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

    /// Pass over the rest of a block; return the block, and the offset after it.
    pub(crate) fn skip_block<'b>(&mut self, batch: &'b RecordBatch) -> (BatchBlock<'b>, u64) {
        let block = batch.block(self.block as usize);
        self.block += 1;
        self.records = None;
        (block, block.wanted().end)
    }

    /// Return true when the last step left nothing of the batch.
    #[inline]
    pub(crate) fn is_done(&self, batch: &RecordBatch) -> bool {
        self.block as usize >= batch.blocks()
    }
}

/// Compute the number that distinguishes a block from all others of its log.
pub(super) fn fingerprint(segment: &Segment, position: u64, appended_ns: i64, crc: u32) -> u64 {
    let parts = [position, appended_ns as u64, crc.into()];
    // Multiplied by odd constants and folded, so that no part cancels another.
    parts.iter().fold(segment.salt(), |mark, part| {
        (mark ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

impl<'a> BatchBlock<'a> {
    /// Return the offset of its first record.
    #[inline]
    pub fn first(&self) -> u64 {
        self.extent.first
    }

    /// Return the number of its records, up to the last one in the batch.
    #[inline]
    pub fn count(&self) -> u32 {
        self.extent.count
    }

    /// Return its offsets that are in the batch.
    pub fn wanted(&self) -> Range<u64> {
        let behind = self.batch.others.get(self.number).map(|block| block.first);
        self.first().max(self.batch.offsets.start)..behind.unwrap_or(self.batch.offsets.end)
    }

    /// Return the encoded records, in mapped memory.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.batch.segment.bytes(&self.extent.body)
    }

    /// Return all bytes from the beginning of its body to the end of a later block's, in mapped
    /// memory. `None` for a block of another segment or an earlier one, and if they cannot be read.
    pub fn body_through(&self, last: &BatchBlock<'_>) -> Option<&'a [u8]> {
        let same = Arc::ptr_eq(&self.batch.segment, &last.batch.segment);
        same.then(|| self.batch.segment.through(&self.extent.body, &last.extent.body)).flatten()
    }

    /// Walk its records, up to the last one in the batch.
    ///
    /// # Errors
    /// None: the batch's blocks were checked when it was made.
    #[inline]
    pub fn records(&self) -> Result<RecordCursor> {
        let BlockExtent { body, count, .. } = self.extent;
        let records = RecordCursor::new(body.flags(), *count, self.body());
        records.map_err(|what| self.damaged(what))
    }

    /// Return when it was appended, nanoseconds since 1970.
    #[inline]
    pub fn appended_ns(&self) -> i64 {
        ns_of(&self.batch.segment, self.extent.time)
    }

    /// Return where it begins in its segment.
    #[inline]
    pub fn position(&self) -> u64 {
        self.extent.body.block()
    }

    /// Return where it ends in the log.
    #[inline]
    pub fn address(&self) -> Address {
        Address::new(self.batch.segment.sequence(), self.extent.body.end())
    }

    /// Return the path of its segment, for messages.
    pub fn path(&self) -> &'a Path {
        self.batch.segment.path()
    }

    /// Return true when compaction made its segment: its records may have been in several blocks
    /// before, and may be in another one later.
    #[inline]
    pub fn is_compacted(&self) -> bool {
        self.batch.segment.is_compacted()
    }

    /// Compute a number that distinguishes it from all other blocks of its log: from its segment's
    /// salt, position, body and time. After it was carried over to another segment, it has another
    /// number.
    pub fn fingerprint(&self) -> u64 {
        fingerprint(&self.batch.segment, self.position(), self.appended_ns(), self.extent.body_crc)
    }

    /// Make an error that names it.
    #[cold]
    pub fn damaged(&self, what: DecodeError) -> Error {
        self.batch.segment.error(BlockError { position: self.position(), what })
    }
}
