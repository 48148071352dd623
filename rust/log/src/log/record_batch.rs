//! A run: the records of consecutive blocks, held together.
//!
//! Where blocks are small, what is kept for each costs more than reading it. A [`RecordBatch`] holds the map
//! of its segment once and forty bytes for each block; a record of it is a [`RecordRef`] of twenty bytes,
//! which holds nothing. Invariant: as for [`DataBlock`], of which it is made: every block was checked
//! as far as its cursor was told to. See `docs/PROTOCOL.md`, "Read".

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::DecodeError;
use crate::format::block::flag;
use crate::format::record::{RecordCursor as Records, RecordLayout, RecordSpan};
use crate::segment::walk::ns_of;
use crate::segment::{BlockError, BodyExtent, Check, Segment};

use super::DataBlock;

/// Records for which room is made at once: more may never come.
const MOST_RESERVED: usize = 1 << 14;

/// Records of consecutive blocks of one segment. Holds its map.
#[derive(Clone, Debug)]
pub struct RecordBatch {
    segment: Arc<Segment>,
    pieces: Vec<BatchBlock>,
    offsets: Range<u64>,
    records: u32,
    /// Records of the first block that lie before `offsets`.
    skipped: u32,
}

/// What of a block is needed to read its records.
#[derive(Clone, Debug)]
struct BatchBlock {
    first: u64,
    /// As in the block's header.
    time: u64,
    body: BodyExtent,
    /// Records of the run before it.
    before: u32,
    count: u32,
}

/// A record of a [`RecordBatch`], by its place in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef {
    piece: u32,
    spot: RecordSpan,
}

/// Walks the records of a [`RecordBatch`] which it is given at each step.
#[derive(Clone, Debug, Default)]
pub struct RecordRefs {
    piece: u32,
    /// Records that were returned: behind the last one may lie what the run does not vouch for.
    told: u32,
    records: Option<Records>,
}

impl RecordBatch {
    /// A run that begins with what is wanted of a block, and is to have so many records.
    ///
    /// # Errors
    /// As [`RecordBatch::push`].
    pub(crate) fn new(block: &DataBlock, wanted: &Range<u64>, records: usize) -> Result<Self> {
        let segment = Arc::clone(&block.segment);
        let offsets = wanted.start..wanted.start;
        // As many blocks as that takes if the others are like the first.
        let likely = records.min(MOST_RESERVED) / block.count().max(1) as usize + 1;
        let pieces = Vec::with_capacity(likely);
        let mut run = Self { segment, pieces, offsets, records: 0, skipped: 0 };
        if wanted.start > block.first() {
            run.skipped = count_before(block, wanted.start);
        }
        run.push(block, wanted)?;
        Ok(run)
    }

    /// True when the block can be added: it lies in the same segment.
    #[inline]
    pub(crate) fn takes(&self, block: &DataBlock) -> bool {
        Arc::ptr_eq(&self.segment, &block.segment) && self.pieces.len() < 1 << 24
    }

    /// Add what is wanted of the block that follows.
    ///
    /// # Errors
    /// `Newer` for a codec that this version does not read, `Corrupt` where its records are.
    #[inline]
    pub(crate) fn push(&mut self, block: &DataBlock, wanted: &Range<u64>) -> Result<()> {
        if block.block.header.flags & (flag::CODEC | flag::EVENT_TIME) != 0 {
            block.records()?;
        }
        let skipped = if self.pieces.is_empty() { self.skipped } else { 0 };
        let until =
            if wanted.end < block.end() { count_before(block, wanted.end) } else { block.count() };
        self.pieces.push(BatchBlock {
            first: block.first(),
            time: block.block.header.time,
            body: self.segment.extent(&block.block),
            before: self.records,
            count: block.count(),
        });
        self.records += until.saturating_sub(skipped);
        self.offsets.end = wanted.end;
        Ok(())
    }

    /// Offsets of its records; where compaction was, not each of them has one.
    #[inline]
    pub fn offsets(&self) -> Range<u64> {
        self.offsets.clone()
    }

    /// Number of its records.
    #[inline]
    pub fn len(&self) -> usize {
        self.records as usize
    }

    /// True when compaction left none of them.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The blocks that it is made of, and which offsets are wanted of each. A header is read again for that.
    ///
    /// # Errors
    /// `Corrupt` where a file that is not mapped cannot be read any more.
    pub fn blocks(&self) -> impl Iterator<Item = Result<(DataBlock, Range<u64>)>> {
        self.pieces.iter().map(|piece| {
            let position = piece.body.block();
            // It was checked before it became part of this.
            let found = match self.segment.block(position, Check::None) {
                Ok(Some(block)) => Ok(block),
                Ok(None) => {
                    Err(BlockError { position, what: DecodeError::Damaged("a block that is gone") })
                }
                Err(bad) => Err(bad),
            };
            let block = found.map_err(|bad| self.segment.error(bad))?;
            let segment = Arc::clone(&self.segment);
            let block = DataBlock { segment, block, first: piece.first };
            let wanted = block.first().max(self.offsets.start)..block.end().min(self.offsets.end);
            Ok((block, wanted))
        })
    }

    /// The `n`-th record: a walk through its block, by lengths alone where values are plain.
    ///
    /// # Errors
    /// `Corrupt` where a record is damaged.
    pub fn record(&self, n: usize) -> Result<Option<RecordRef>> {
        if n >= self.len() {
            return Ok(None);
        }
        let n = n as u32;
        let piece = self.pieces.partition_point(|piece| piece.before <= n) - 1;
        let skipped = if piece == 0 { self.skipped } else { 0 };
        let mut left = n - self.pieces[piece].before + skipped;
        let body = self.body(piece);
        let damaged = |what| self.damaged(piece, what);
        let mut records = self.records(piece)?;
        if records.is_plain() && records.skip_plain(body, left) {
            left = 0;
        }
        while let Some(spot) = records.next_spot(body).map_err(damaged)? {
            if left == 0 {
                return Ok(Some(RecordRef { piece: piece as u32, spot }));
            }
            left -= 1;
        }
        Ok(None)
    }

    /// Offset of a record.
    #[inline]
    pub fn offset(&self, place: &RecordRef) -> u64 {
        self.pieces[place.piece as usize].first + u64::from(place.spot.offset_delta)
    }

    /// Value of a record; `None` for a tombstone.
    #[inline]
    pub fn value(&self, place: &RecordRef) -> Option<&[u8]> {
        place.spot.value().map(|range| &self.body(place.piece as usize)[range])
    }

    /// All parts of a record, as ranges of [`RecordBatch::body_of`].
    ///
    /// # Errors
    /// None for a place of this run.
    pub fn parts(&self, place: &RecordRef) -> Result<RecordLayout> {
        let piece = place.piece as usize;
        let parts = self.records(piece)?.parts_of(self.body(piece), &place.spot);
        parts.map_err(|what| self.damaged(piece, what))
    }

    /// The encoded records of the block that a record is in, in mapped memory.
    #[inline]
    pub fn body_of(&self, place: &RecordRef) -> &[u8] {
        self.body(place.piece as usize)
    }

    /// When the block that a record is in was appended, nanoseconds since 1970.
    #[inline]
    pub fn appended_ns(&self, place: &RecordRef) -> i64 {
        ns_of(&self.segment, self.pieces[place.piece as usize].time)
    }

    #[inline]
    fn body(&self, piece: usize) -> &[u8] {
        self.segment.bytes(&self.pieces[piece].body)
    }

    #[inline]
    fn records(&self, piece: usize) -> Result<Records> {
        let BatchBlock { body, count, .. } = &self.pieces[piece];
        let records = Records::new(body.flags(), *count, self.body(piece));
        records.map_err(|what| self.damaged(piece, what))
    }

    #[cold]
    fn damaged(&self, piece: usize, what: DecodeError) -> Error {
        self.segment.error(BlockError { position: self.pieces[piece].body.block(), what })
    }
}

impl RecordRefs {
    /// The next record of the run, always the same one; `None` after the last.
    ///
    /// # Errors
    /// `Corrupt` where a record is damaged.
    #[inline]
    pub fn next(&mut self, run: &RecordBatch) -> Result<Option<RecordRef>> {
        while self.told < run.records {
            let Some(there) = run.pieces.get(self.piece as usize) else { break };
            let piece = self.piece as usize;
            if there.count == 1 && self.records.is_none() {
                // A block is in a run because something of it is wanted: then all of this one.
                let alone = RecordSpan::alone(there.body.flags(), run.body(piece));
                if let Some(spot) = alone {
                    (self.piece, self.told) = (self.piece + 1, self.told + 1);
                    return Ok(Some(RecordRef { piece: piece as u32, spot }));
                }
            }
            let records = match &mut self.records {
                Some(records) => records,
                None => self.records.insert(run.records(piece)?),
            };
            let found = records.next_spot(run.body(piece));
            let Some(spot) = found.map_err(|what| run.damaged(piece, what))? else {
                self.piece += 1;
                self.records = None;
                continue;
            };
            if run.offsets.contains(&(there.first + u64::from(spot.offset_delta))) {
                self.told += 1;
                return Ok(Some(RecordRef { piece: self.piece, spot }));
            }
        }
        Ok(None)
    }
}

/// Records of a block before an offset, or before a damaged one.
#[cold]
fn count_before(block: &DataBlock, offset: u64) -> u32 {
    let Ok(mut records) = block.records() else { return 0 };
    if records.is_plain() {
        return (offset - block.first()) as u32;
    }
    let (mut before, body) = (0, block.body());
    while let Ok(Some(spot)) = records.next_spot(body) {
        if block.first() + u64::from(spot.offset_delta) >= offset {
            break;
        }
        before += 1;
    }
    before
}
