//! One batch: from blocks to columns.
//!
//! Owns the columns of a batch while they grow. Decides when the batch is full: after so many rows,
//! or so many bytes. The records of a block are decoded once for all columns; columns that are not
//! wanted are skipped.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, SchemaRef};
use falaj::internals::error::{Error, Result};
use falaj::internals::format::DecodeError;
use falaj::internals::format::record::{KeyedPlace, KeyedRecord, RecordCursor, headers};
use falaj::internals::topic::{BatchBlock, RecordBatch as Run, Skipped};

use crate::bytes::Bytes;
use crate::columns::{Column, Columns, header_field, header_fields};
use crate::filter::Filter;

/// Kafka's number for "the producer's clock".
const CREATE_TIME: i32 = 0;

/// How large a batch may become.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most rows; at least 1.
    pub rows: usize,
    /// Bytes of bodies after which no further record is added. Bytes of records that a filter
    /// leaves out count, too, so that a batch with few records is returned in time.
    pub bytes: usize,
}

impl Limits {
    /// Most rows: Arrow counts the bytes of a column by 31 bits, also in the column of topic names.
    pub const ROWS_MAX: usize = 1 << 23;
    /// Most bytes, for the same reason; after so many there is still space for one more record.
    pub const BYTES_MAX: usize = 1 << 30;

    /// Refuse limits that allow no batch.
    ///
    /// # Errors
    /// `InvalidArgument` for limits of 0, and for those above the largest.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::InvalidArgument { what });
        let Self { rows, bytes } = *self;
        if rows == 0 || bytes == 0 {
            return refuse("a batch holds at least one record and one byte".into());
        }
        if rows > Self::ROWS_MAX {
            return refuse(format!("a batch holds at most {} rows, not {rows}", Self::ROWS_MAX));
        }
        if bytes > Self::BYTES_MAX {
            return refuse(format!("a batch holds at most {} bytes, not {bytes}", Self::BYTES_MAX));
        }
        Ok(())
    }
}

/// The part of a batch that is left to read.
#[derive(Debug)]
pub struct Rest {
    batch: Run,
    /// The current block.
    number: usize,
    walk: RecordCursor,
    /// The wanted offsets of the block that are not read yet.
    next: u64,
    until: u64,
}

impl Rest {
    /// Begin with a whole batch.
    ///
    /// # Errors
    /// As [`falaj::internals::topic::BatchBlock::records`].
    pub fn new(batch: Run) -> Result<Self> {
        let (walk, wanted) = (batch.block(0).records()?, batch.block(0).wanted());
        Ok(Self { batch, number: 0, walk, next: wanted.start, until: wanted.end })
    }

    /// Return the offset with which it continues.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Go to the next block; false if there is none.
    ///
    /// # Errors
    /// As [`Rest::new`].
    fn next_block(&mut self) -> Result<bool> {
        self.number += 1;
        if self.number == self.batch.blocks() {
            return Ok(false);
        }
        let block = self.batch.block(self.number);
        self.walk = block.records()?;
        (self.next, self.until) = (block.wanted().start, block.wanted().end);
        Ok(true)
    }

    /// Skip the rest of its block, which is lost; return the lost offsets, and what is left after
    /// them.
    ///
    /// # Errors
    /// As [`Rest::new`].
    pub fn skip_block(mut self) -> Result<(Skipped, Option<Self>)> {
        let block = self.batch.block(self.number);
        let (path, position) = (block.path().to_path_buf(), block.position());
        let lost = Skipped { path, position, offsets: self.next..self.until };
        let more = self.next_block()?;
        Ok((lost, more.then_some(self)))
    }
}

/// How many records are decoded before their columns grow, so that their places stay in the nearest
/// cache.
const RUN: usize = 64;

/// The columns of a batch while they grow.
#[derive(Debug)]
pub struct Fill<'a> {
    rows: usize,
    bytes: usize,
    limits: Limits,
    /// None if it leaves nothing out.
    filter: Option<&'a Filter>,
    key: Option<Bytes>,
    value: Option<Bytes>,
    offset: Option<Vec<i64>>,
    timestamp: Option<Vec<i64>>,
    headers: Option<ListBuilder<StructBuilder>>,
}

impl<'a> Fill<'a> {
    /// Make an empty batch of these columns, for at most so many records that pass a filter.
    pub fn new(columns: &Columns, limits: Limits, filter: &'a Filter, records: u64) -> Self {
        let rows = limits.rows.min(usize::try_from(records).unwrap_or(usize::MAX));
        let bytes = |column| columns.has(column).then(|| Bytes::new(columns.views(), rows));
        let numbers = |column| columns.has(column).then(|| Vec::with_capacity(rows));
        Self {
            rows: 0,
            bytes: 0,
            limits,
            filter: Some(filter).filter(|filter| !filter.is_all()),
            key: bytes(Column::Key),
            value: bytes(Column::Value),
            offset: numbers(Column::Offset),
            timestamp: numbers(Column::Timestamp),
            headers: columns.has(Column::Headers).then(new_headers),
        }
    }

    /// The number of rows so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// True if no further record may be added.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.rows >= self.limits.rows || self.bytes >= self.limits.bytes
    }

    /// Add records until this is full, or nothing is left; return true if nothing is left.
    ///
    /// # Errors
    /// `CorruptData` for a corrupt record, and `UnsupportedVersion`; the records before it were
    /// added.
    pub fn add(&mut self, rest: &mut Rest) -> Result<bool> {
        while !self.is_full() {
            if self.add_block(rest)? && !rest.next_block()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Add records of a block until the batch is full, or the block ends; return true if it ended.
    fn add_block(&mut self, rest: &mut Rest) -> Result<bool> {
        let (is_plain, block) = (rest.walk.is_plain(), rest.batch.block(rest.number));
        if is_plain && !self.has_plain(block) {
            self.bytes += block.body().len();
            return Ok(true);
        }
        for column in [&mut self.key, &mut self.value].into_iter().flatten() {
            column.enter(&rest.batch, rest.number);
        }
        if is_plain { self.add_plain(rest) } else { self.add_rich(rest) }
    }

    /// Tell whether the records of a block with values alone are wanted. They have no key, and the
    /// time of their block, so either all are wanted or none is.
    fn has_plain(&self, block: BatchBlock<'_>) -> bool {
        let us = block.appended_ns().div_euclid(1000);
        self.filter.is_none_or(|filter| filter.has_key(None) && filter.has_time(us))
    }

    /// Add records that are values and nothing else: as many as the block has, and as there is
    /// space for. Their common columns are added at once.
    fn add_plain(&mut self, rest: &mut Rest) -> Result<bool> {
        let Rest { batch, number, walk, next, until } = rest;
        let block = batch.block(*number);
        let (body, walked) = (block.body(), block.first() + u64::from(block.count() - walk.left()));
        let before = next.saturating_sub(walked) as u32;
        let wanted = until.saturating_sub(walked.max(*next)) as usize;
        let rows = wanted.min(self.limits.rows - self.rows);
        let torn = |walk: &mut RecordCursor| match walk.next(body) {
            Err(what) => block.damaged(what),
            Ok(_) => block.damaged(DecodeError::Damaged("fewer records than its header says")),
        };
        let mut added = rows;
        if let Some(value) = &mut self.value {
            if !walk.skip_plain(body, before) {
                return Err(torn(walk));
            }
            added = 0;
            while added < rows && self.bytes < self.limits.bytes {
                let Some(range) = walk.next_plain(body) else { break };
                self.bytes += range.len();
                value.push(Some(&body[range]));
                added += 1;
            }
        } else if !walk.skip_plain(body, before + rows as u32) {
            return Err(torn(walk));
        }
        let offsets = *next as i64..(*next + added as u64) as i64;
        let timestamp = block.appended_ns().div_euclid(1000);
        if let Some(key) = &mut self.key {
            (0..added).for_each(|_| key.push(None));
        }
        if let Some(column) = &mut self.offset {
            column.extend(offsets);
        }
        if let Some(column) = &mut self.timestamp {
            column.extend(std::iter::repeat_n(timestamp, added));
        }
        if let Some(column) = &mut self.headers {
            (0..added).for_each(|_| column.append(false));
        }
        self.rows += added;
        *next += added as u64;
        if added < rows && self.bytes < self.limits.bytes {
            return Err(torn(walk));
        }
        Ok(*next >= *until)
    }

    /// Add records with keys, headers or times of their own.
    fn add_rich(&mut self, rest: &mut Rest) -> Result<bool> {
        let in_runs = self.takes_all(rest);
        let mut run = [KeyedRecord::default(); RUN];
        while !self.is_full() {
            if in_runs && self.add_run(rest, &mut run) {
                continue;
            }
            if self.add_one(rest)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tell whether all records left in a block are wanted, and too short to fill the batch.
    fn takes_all(&self, rest: &Rest) -> bool {
        let Rest { batch, number, walk, next, until } = rest;
        let block = batch.block(*number);
        let (end, left) = (block.first() + u64::from(block.count()), u64::from(walk.left()));
        let whole = *next <= end.saturating_sub(left) && *until >= end;
        let room = self.limits.bytes.saturating_sub(self.bytes);
        self.filter.is_none() && whole && block.body().len() < room
    }

    /// Add some records without headers, if such records come next. It first finds their places,
    /// and then fills one column after the other, each in a loop of its own.
    fn add_run(&mut self, rest: &mut Rest, run: &mut [KeyedRecord; RUN]) -> bool {
        let Rest { batch, number, walk, next, .. } = rest;
        let block = batch.block(*number);
        let (body, first, appended) = (block.body(), block.first(), block.appended_ns());
        let most = RUN.min(self.limits.rows - self.rows);
        let mut at = walk.clone();
        let mut found = 0;
        for record in &mut run[..most] {
            let Some(keyed) = at.next_keyed(body, appended) else { break };
            *record = keyed;
            found += 1;
        }
        let run = &run[..found];
        let Some(last) = run.last() else { return false };
        *walk = at;
        *next = first + u64::from(last.offset_delta) + 1;
        self.rows += found;
        let bytes_of = |place: fn(&KeyedRecord) -> KeyedPlace| {
            run.iter().map(|record| place(record).len() as usize).sum::<usize>()
        };
        if let Some(column) = &mut self.key {
            self.bytes += bytes_of(|record| record.key);
            column.extend(body, run.iter().map(|record| record.key));
        }
        if let Some(column) = &mut self.value {
            self.bytes += bytes_of(|record| record.value);
            column.extend(body, run.iter().map(|record| record.value));
        }
        if let Some(column) = &mut self.offset {
            let offset = |record: &KeyedRecord| (first + u64::from(record.offset_delta)) as i64;
            column.extend(run.iter().map(offset));
        }
        if let Some(column) = &mut self.timestamp {
            column.extend(run.iter().map(|record| record.time_ns.div_euclid(1000)));
        }
        if let Some(column) = &mut self.headers {
            (0..found).for_each(|_| column.append(false));
        }
        true
    }

    /// Add a record, or skip one that is not wanted; true if nothing of the block is left.
    fn add_one(&mut self, rest: &mut Rest) -> Result<bool> {
        let Rest { batch, number, walk, next, until } = rest;
        let block = batch.block(*number);
        let (body, first, appended) = (block.body(), block.first(), block.appended_ns());
        let Some(parts) = walk.next(body).map_err(|what| block.damaged(what))? else {
            return Ok(true);
        };
        let offset = first + u64::from(parts.offset_delta);
        if offset < *next {
            return Ok(false);
        }
        if offset >= *until {
            return Ok(true);
        }
        *next = offset + 1;
        let timestamp = || parts.event_time_ns.unwrap_or(appended).div_euclid(1000);
        let bytes = parts.key.map(|range| &body[range]);
        if let Some(filter) = self.filter
            && !(filter.has_time(timestamp()) && filter.has_key(bytes))
        {
            self.bytes += parts.value.map_or(1, |range| range.len() + 1);
            return Ok(false);
        }
        self.rows += 1;
        if let Some(column) = &mut self.key {
            self.bytes += bytes.map_or(0, <[u8]>::len);
            column.push(bytes);
        }
        if let Some(value) = &mut self.value {
            self.bytes += parts.value.as_ref().map_or(0, ExactSizeIterator::len);
            value.push(parts.value.map(|range| &body[range]));
        }
        if let Some(offsets) = &mut self.offset {
            offsets.push(offset as i64);
        }
        if let Some(timestamps) = &mut self.timestamp {
            timestamps.push(timestamp());
        }
        if let Some(column) = &mut self.headers {
            self.bytes += parts.headers.len();
            push_headers(column, &body[parts.headers]);
        }
        Ok(false)
    }

    /// Make the batch; its records are of one partition.
    ///
    /// # Errors
    /// None for what was added as it should be.
    pub fn finish(
        self,
        columns: &Columns,
        schema: &SchemaRef,
        topic: &str,
        partition: u32,
    ) -> std::result::Result<RecordBatch, ArrowError> {
        let Self { rows, mut key, mut value, mut offset, mut timestamp, mut headers, .. } = self;
        let lacking = || ArrowError::InvalidArgumentError("a column that was not filled".into());
        let arrays = columns.wanted().iter().map(|column| {
            let array = match column {
                Column::Key => key.take().map(Bytes::finish).transpose()?,
                Column::Value => value.take().map(Bytes::finish).transpose()?,
                Column::Topic => Some(repeated(topic, rows)?),
                Column::Partition => Some(all_of(partition as i32, rows)),
                Column::TimestampType => Some(all_of(CREATE_TIME, rows)),
                Column::Offset => offset.take().map(|v| Arc::new(Int64Array::from(v)) as ArrayRef),
                Column::Timestamp => timestamp.take().map(|v| {
                    Arc::new(TimestampMicrosecondArray::from(v).with_timezone("UTC")) as ArrayRef
                }),
                Column::Headers => headers.take().map(|mut h| Arc::new(h.finish()) as ArrayRef),
            };
            array.ok_or_else(lacking)
        });
        let arrays = arrays.collect::<std::result::Result<Vec<_>, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)
    }
}

fn all_of(number: i32, rows: usize) -> ArrayRef {
    Arc::new(Int32Array::from(vec![number; rows]))
}

fn repeated(text: &str, rows: usize) -> std::result::Result<ArrayRef, ArrowError> {
    let ends: Vec<i32> = (0..=rows).map(|row| (row * text.len()) as i32).collect();
    let bytes = text.as_bytes().repeat(rows);
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    Ok(Arc::new(StringArray::try_new(offsets, bytes.into(), None)?))
}

fn new_headers() -> ListBuilder<StructBuilder> {
    ListBuilder::new(StructBuilder::from_fields(header_fields(), 0)).with_field(header_field())
}

fn push_headers(column: &mut ListBuilder<StructBuilder>, encoded: &[u8]) {
    let mut any = false;
    let each = column.values();
    for (name, value) in headers(encoded) {
        any = true;
        if let Some(names) = each.field_builder::<StringBuilder>(0) {
            names.append_value(name);
        }
        if let Some(values) = each.field_builder::<BinaryBuilder>(1) {
            values.append_option(value);
        }
        each.append(true);
    }
    column.append(any);
}
