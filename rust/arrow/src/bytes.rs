//! Columns of byte strings.
//!
//! There are two forms. Every reader of Arrow accepts [`Copied`]. [`Viewed`] holds sixteen bytes
//! for each value; the value stays in the mapped segment. Invariant of [`Viewed`]: its buffers are
//! committed bytes, which no process writes again, and they keep the segment mapped.
#![allow(unsafe_code)]

use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::{ArrayRef, BinaryArray, BinaryViewArray};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use falaj::internals::format::record::KeyedPlace;
use falaj::internals::topic::{BatchBlock, RecordBatch};

/// The values of a column while it grows.
#[derive(Debug)]
pub enum Bytes {
    /// In memory of the batch.
    Copied(Copied),
    /// Views of the mapped segments.
    Viewed(Viewed),
}

impl Bytes {
    /// Make an empty column with space for so many values.
    pub fn new(views: bool, rows: usize) -> Self {
        if views { Self::Viewed(Viewed::new(rows)) } else { Self::Copied(Copied::new(rows)) }
    }

    /// Take the next values from this block of a batch.
    #[inline]
    pub fn enter(&mut self, batch: &RecordBatch, block: usize) {
        if let Self::Viewed(viewed) = self {
            viewed.enter(batch, block);
        }
    }

    /// Add one value, or null: bytes in the body of the block that was entered last.
    #[inline(always)]
    pub fn push(&mut self, value: Option<&[u8]>) {
        match self {
            Self::Copied(copied) => copied.push(value),
            Self::Viewed(viewed) => viewed.push(value),
        }
    }

    /// Add several values of the body of the block that was entered last.
    #[inline(always)]
    pub fn extend(
        &mut self,
        body: &[u8],
        places: impl ExactSizeIterator<Item = KeyedPlace> + Clone,
    ) {
        match self {
            Self::Copied(copied) => places.for_each(|place| copied.push(place.bytes(body))),
            Self::Viewed(viewed) => viewed.extend(body, places),
        }
    }

    /// Make the array.
    ///
    /// # Errors
    /// None for what was pushed as it should be.
    pub fn finish(self) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Copied(copied) => copied.finish(),
            Self::Viewed(viewed) => viewed.finish(),
        }
    }
}

/// Values in memory of the batch.
#[derive(Debug)]
pub struct Copied {
    ends: Vec<i32>,
    bytes: Vec<u8>,
    nulls: NullBufferBuilder,
}

impl Copied {
    /// Make a column with space for so many values.
    pub fn new(rows: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self { ends, bytes: Vec::new(), nulls: NullBufferBuilder::new(rows) }
    }

    /// Add a value. The code that fills a batch ensures that their sum stays below 2 GiB.
    #[inline]
    pub fn push(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => {
                self.bytes.extend_from_slice(value);
                self.nulls.append_non_null();
            }
            None => self.nulls.append_null(),
        }
        self.ends.push(self.bytes.len() as i32);
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        let Self { ends, bytes, mut nulls } = self;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        Ok(Arc::new(BinaryArray::try_new(offsets, Buffer::from_vec(bytes), nulls.finish())?))
    }
}

/// Values as views of the mapped segments.
#[derive(Debug)]
pub struct Viewed {
    views: Vec<u128>,
    spans: Vec<Span>,
    nulls: NullBufferBuilder,
    /// Number of the last span, and address of its first body.
    here: (u32, usize),
}

/// A buffer: consecutive blocks of a segment. The first and the last are named by batch and number.
#[derive(Debug)]
struct Span {
    first: (RecordBatch, usize),
    last: (RecordBatch, usize),
}

impl Span {
    /// Return all bytes from its first body to the end of the body of a block.
    fn through(&self, last: &BatchBlock<'_>) -> Option<&[u8]> {
        let (batch, number) = &self.first;
        batch.block(*number).body_through(last)
    }
}

/// Most bytes of a buffer: Arrow numbers them by 31 bits.
const SPAN_MAX: usize = i32::MAX as usize;

impl Viewed {
    fn new(rows: usize) -> Self {
        let views = Vec::with_capacity(rows);
        Self { views, spans: Vec::new(), nulls: NullBufferBuilder::new(rows), here: (0, 0) }
    }

    fn enter(&mut self, batch: &RecordBatch, number: usize) {
        let block = batch.block(number);
        if let Some(span) = self.spans.last_mut() {
            let through = span.through(&block);
            if through.is_some_and(|bytes| bytes.len() <= SPAN_MAX) {
                span.last.1 = number;
                if !span.last.0.is(batch) {
                    span.last.0 = batch.clone();
                }
                return;
            }
        }
        self.here = (self.spans.len() as u32, block.body().as_ptr() as usize);
        let (first, last) = ((batch.clone(), number), (batch.clone(), number));
        self.spans.push(Span { first, last });
    }

    #[inline(always)] // of a record that has it what is not inlined costs as much as all the rest
    fn push(&mut self, value: Option<&[u8]>) {
        let Some(value) = value else {
            self.nulls.append_null();
            self.views.push(0);
            return;
        };
        let (buffer, base) = self.here;
        self.nulls.append_non_null();
        self.views.push(make_view(value, buffer, (value.as_ptr() as usize - base) as u32));
    }

    #[inline(always)]
    fn extend(&mut self, body: &[u8], places: impl ExactSizeIterator<Item = KeyedPlace> + Clone) {
        let (buffer, base) = self.here;
        let from = (body.as_ptr() as usize - base) as u32;
        if places.clone().all(KeyedPlace::is_some) {
            self.nulls.append_n_non_nulls(places.len());
        } else {
            places.clone().for_each(|place| self.nulls.append(place.is_some()));
        }
        self.views.extend(places.map(|place| view(body, place, buffer, from)));
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        let Self { views, spans, mut nulls, .. } = self;
        let buffers: Vec<Buffer> = spans.iter().map(buffer).collect();
        let views = ScalarBuffer::from(views);
        if cfg!(debug_assertions) {
            return Ok(Arc::new(BinaryViewArray::try_new(views, buffers, nulls.finish())?));
        }
        // `push` made each view of bytes in a block that was entered before. The view has the
        // number of the span that contains the block, and the place of the bytes in that span.
        // SAFETY: so each view lies in its buffer, and there are as many views as entries for
        // nulls. Builds for tests check all of this, in the lines above.
        let array = unsafe { BinaryViewArray::new_unchecked(views, buffers, nulls.finish()) };
        Ok(Arc::new(array))
    }
}

/// For a short value that its view holds: the bits of sixteen bytes that belong to it, by its
/// length.
const FITTING: [u128; 13] = {
    let (mut masks, mut len) = ([0; 13], 0);
    while len < masks.len() {
        masks[len] = (1 << (8 * len)) - 1;
        len += 1;
    }
    masks
};

/// Make the view of a value of a body; `from` is where the body begins in its buffer. It gives the
/// same as [`make_view`], but without a call, and without a copy of unknown length.
#[inline(always)]
fn view(body: &[u8], place: KeyedPlace, buffer: u32, from: u32) -> u128 {
    let (start, len) = (place.start as usize, place.len());
    match body.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
        Some(chunk) if len < FITTING.len() as u32 => {
            let kept = u128::from_le_bytes(*chunk) & FITTING[len as usize];
            kept << 32 | u128::from(len)
        }
        Some(chunk) => {
            let prefix = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
            let where_ = u64::from(from + place.start) << 32 | u64::from(buffer);
            u128::from(where_) << 64 | u128::from(prefix) << 32 | u128::from(len)
        }
        // Near the end of the body.
        None => place.bytes(body).map_or(0, |value| make_view(value, buffer, from + place.start)),
    }
}

/// Make a buffer of the bytes of a span, which keeps their segment mapped.
fn buffer(span: &Span) -> Buffer {
    let (batch, number) = &span.last;
    let bytes = span.through(&batch.block(*number)).unwrap_or_default();
    let (len, start) = (bytes.len(), NonNull::from(bytes).cast::<u8>());
    let keeper = Arc::new(AssertUnwindSafe(span.first.0.clone()));
    // SAFETY: `start` and `len` are those of a slice of committed bytes in a mapped segment. No
    // process writes these bytes again (invariants 1 and 2 of docs/ARCHITECTURE.md). They stay
    // mapped, or held, while a batch of that segment lives, and the keeper is such a batch.
    unsafe { Buffer::from_custom_allocation(start, len, keeper) }
}
