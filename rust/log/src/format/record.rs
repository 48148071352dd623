//! Records inside the body of a data block with codec 0.
//!
//! ```text
//! body   = [base event time: i64 ns, if EVENT_TIME] record*
//! record = [offset delta: varint, if SPARSE] [attributes: 1, if RICH]
//!          [key len: varint, key] [event time delta: zigzag varint ns]
//!          [header count: varint, (name len: varint, name, value len + 1 or 0: varint, value)*]
//!          [value len: varint, value]
//! ```
//!
//! An attribute byte says which optional parts a record has. A block without `RICH` holds values
//! only, and an absent part takes no space. The value is contiguous, so that a view of it needs no
//! copy. Layout: `docs/FORMAT.md`, "Record".

use std::ops::Range;

use super::block::flag;
use super::{DecodeError, Decoded, u64_at, varint};

mod building;
mod keyed;
mod lead;

pub use building::ns_since_1970;
pub use keyed::{KeyedPlace, KeyedRecord};
pub use lead::RecordLead;

/// Bits of the attribute byte.
pub mod attribute {
    /// The record has a key.
    pub const KEY: u8 = 1;
    /// The record has headers.
    pub const HEADERS: u8 = 2;
    /// The record has an event time of its own.
    pub const EVENT_TIME: u8 = 4;
    /// The record has no value: a tombstone.
    pub const NO_VALUE: u8 = 8;
    /// All attributes that this version knows.
    pub const KNOWN: u8 = KEY | HEADERS | EVENT_TIME | NO_VALUE;

    /// Return the attributes of a record.
    #[inline]
    pub fn of(record: &super::NewRecord<'_>) -> u8 {
        let mut attributes = 0;
        attributes |= if record.key.is_some() { KEY } else { 0 };
        attributes |= if record.headers.is_empty() { 0 } else { HEADERS };
        attributes |= if record.event_time_ns.is_some() { EVENT_TIME } else { 0 };
        attributes |= if record.value.is_none() { NO_VALUE } else { 0 };
        attributes
    }
}

/// A record to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// The payload; `None` is a tombstone, which compaction understands.
    pub value: Option<&'a [u8]>,
    /// The key, by which partitions and compaction go.
    pub key: Option<&'a [u8]>,
    /// Ordered names and values; a name may appear twice, a value may be missing.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
    /// When it happened, nanoseconds since 1970; if absent, the time of the append.
    pub event_time_ns: Option<i64>,
}

impl<'a> NewRecord<'a> {
    /// Return true when its block needs the attribute byte.
    #[doc(hidden)]
    #[inline]
    pub fn is_rich(&self) -> bool {
        self.key.is_some()
            || !self.headers.is_empty()
            || self.event_time_ns.is_some()
            || self.value.is_none()
    }

    /// Return an upper bound of its encoded size, bytes.
    #[doc(hidden)]
    pub fn max_len(&self) -> usize {
        let headers = self.headers.iter();
        let headers: usize =
            headers.map(|(name, v)| name.len() + v.map_or(0, <[u8]>::len) + 20).sum();
        let key = self.key.map_or(0, <[u8]>::len);
        let value = self.value.map_or(0, <[u8]>::len);
        headers + key + value + 1 + 4 * varint::MAX_LEN
    }
}

/// Encodes the body of one block; reuses its memory for the next block.
#[derive(Debug, Default)]
pub struct BodyWriter {
    body: Vec<u8>,
    flags: u16,
    base_ns: i64,
    count: u32,
    highest_ns: Option<i64>,
    plain: bool,
}

impl BodyWriter {
    /// Begin a body. `rich` is true when any record of the block is [`NewRecord::is_rich`].
    /// `base_ns` is set when any has an event time: it is the base of their deltas.
    #[inline]
    pub fn begin(&mut self, rich: bool, base_ns: Option<i64>) {
        self.body.clear();
        self.count = 0;
        self.highest_ns = None;
        self.plain = false;
        self.flags = if rich { flag::RICH } else { 0 };
        self.base_ns = base_ns.unwrap_or(0);
        if base_ns.is_some() {
            self.flags |= flag::EVENT_TIME;
            self.body.extend_from_slice(&self.base_ns.to_le_bytes());
        }
    }

    /// Append a value to a body that is not rich.
    #[inline]
    pub fn push_value(&mut self, value: &[u8]) {
        debug_assert_eq!(self.flags, 0);
        self.plain = true;
        self.count += 1;
        self.body.reserve(varint::MAX_LEN + value.len());
        varint::put(&mut self.body, value.len() as u64);
        self.body.extend_from_slice(value);
    }

    /// Append a record.
    pub fn push(&mut self, record: &NewRecord<'_>) {
        if self.flags & flag::RICH == 0 {
            debug_assert!(!record.is_rich());
            return self.push_value(record.value.unwrap_or_default());
        }
        self.count += 1;
        self.body.push(attribute::of(record));
        if let Some(key) = record.key {
            self.put_bytes(key);
        }
        self.put_event_time(record.event_time_ns);
        if !record.headers.is_empty() {
            varint::put(&mut self.body, record.headers.len() as u64);
            for (name, value) in record.headers {
                self.put_bytes(name.as_bytes());
                varint::put(&mut self.body, value.map_or(0, |v| v.len() as u64 + 1));
                self.body.extend_from_slice(value.unwrap_or_default());
            }
        }
        if let Some(value) = record.value {
            self.put_bytes(value);
        }
    }

    /// Append any record. If the body began for simpler records than [this one](BodyWriter::takes),
    /// its records are encoded again.
    #[inline]
    pub fn push_any(&mut self, record: &NewRecord<'_>) {
        if !self.takes(record.is_rich(), record.event_time_ns.is_some()) {
            self.widen(record.event_time_ns);
        }
        self.push(record);
    }

    #[cold]
    fn widen(&mut self, base_ns: Option<i64>) {
        let mut wide = Self::default();
        wide.begin(true, base_ns);
        if let Ok(mut records) = RecordCursor::new(self.flags, self.count, &self.body) {
            while let Ok(Some(at)) = records.next(&self.body) {
                let headers: Vec<_> = headers(&self.body[at.headers]).collect();
                wide.push(&NewRecord {
                    value: at.value.map(|value| &self.body[value]),
                    key: at.key.map(|key| &self.body[key]),
                    headers: &headers,
                    event_time_ns: at.event_time_ns,
                });
            }
        }
        debug_assert_eq!(wide.count, self.count);
        *self = wide;
    }

    fn put_event_time(&mut self, event_time_ns: Option<i64>) {
        let Some(time) = event_time_ns else {
            self.plain = true;
            return;
        };
        let delta = time.wrapping_sub(self.base_ns);
        varint::put(&mut self.body, varint::zigzag(delta));
        self.highest_ns = self.highest_ns.max(Some(time));
    }

    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        varint::put(&mut self.body, bytes.len() as u64);
        self.body.extend_from_slice(bytes);
    }

    /// Return the body encoded so far.
    #[inline]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Return the header flags of this body.
    #[inline]
    pub fn flags(&self) -> u16 {
        self.flags
    }

    /// Return true when its records may be more than values.
    #[inline]
    pub fn is_rich(&self) -> bool {
        self.flags & flag::RICH != 0
    }

    /// Return true if a body that began like this one fits a record: one that is more than a value,
    /// or has an event time.
    #[inline]
    pub fn takes(&self, is_rich: bool, has_time: bool) -> bool {
        (self.is_rich() || !is_rich) && (self.flags & flag::EVENT_TIME != 0 || !has_time)
    }

    /// Return the number of records so far.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Return the highest event time in it, and whether any record has the time of the append.
    #[inline]
    pub fn times(&self) -> (Option<i64>, bool) {
        (self.highest_ns, self.plain)
    }

    /// Return the bytes of its memory, filled or not.
    #[inline]
    pub fn room(&self) -> usize {
        self.body.capacity()
    }

    /// Free memory beyond this many bytes, which one large block left.
    pub fn shrink(&mut self, keep: usize) {
        if self.body.capacity() > keep {
            self.body.clear();
            self.body.shrink_to(keep);
        }
    }
}

/// Places of a record's parts in its block's body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordLayout {
    /// Offset relative to the block's first one.
    pub offset_delta: u32,
    /// The value; `None` for a tombstone.
    pub value: Option<Range<usize>>,
    /// The key.
    pub key: Option<Range<usize>>,
    /// All headers, still encoded (see [`headers`]); empty when there are none.
    pub headers: Range<usize>,
    /// Event time, nanoseconds since 1970.
    pub event_time_ns: Option<i64>,
    /// Where the next record begins.
    pub end: usize,
}

/// The least that finds a record again: where it begins in its block's body, its key and its value.
/// [`RecordCursor::layout_of`] reads the rest on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordSpan {
    /// Offset relative to the block's first one.
    pub offset_delta: u32,
    start: u32,
    key: KeyedPlace,
    value: KeyedPlace,
}

impl RecordSpan {
    /// Return the only record of a block with these flags, if it is just a short value, as most
    /// records are that were appended singly. `None` only means that [`RecordCursor`] must read the
    /// body.
    #[inline(always)]
    pub fn alone(flags: u16, body: &[u8]) -> Option<Self> {
        let len = *body.first()?;
        let plain = flags & (flag::RICH | flag::SPARSE | flag::EVENT_TIME) == 0;
        let whole = len < 0x80 && usize::from(len) < body.len();
        let (key, value) = (KeyedPlace::default(), KeyedPlace::new(1, usize::from(len)));
        (plain && whole).then_some(Self { offset_delta: 0, start: 0, key, value })
    }

    /// Return the place of its value in the body; `None` for a tombstone.
    #[inline(always)]
    pub fn value(&self) -> Option<Range<usize>> {
        self.value.range()
    }

    /// Return the place of its key in the body.
    #[inline(always)]
    pub fn key(&self) -> Option<Range<usize>> {
        self.key.range()
    }
}

/// The interval of values whose places are remembered, see [`RecordCursor::skip_plain_along`].
pub const WAY: u32 = 32;

/// Walks the records of a body.
#[derive(Clone, Debug)]
pub struct RecordCursor {
    at: usize,
    index: u32,
    count: u32,
    flags: u16,
    /// Least offset delta of the next record, in a body with gaps.
    least: u32,
    base_ns: i64,
}

const CUT_OFF: DecodeError = DecodeError::Damaged("a record that reaches beyond its block");
/// A reader that goes by offsets would read the same record again and again.
const NOT_RISING: DecodeError = DecodeError::Damaged("records whose offsets do not rise");

#[inline]
fn take(body: &[u8], at: &mut usize) -> Option<Range<usize>> {
    let len = varint::get(body, at)?;
    let end = at.checked_add(usize::try_from(len).ok()?)?;
    if end > body.len() {
        return None;
    }
    let range = *at..end;
    *at = end;
    Some(range)
}

impl RecordCursor {
    /// Begin at a body's first record.
    ///
    /// # Errors
    /// `Damaged` when the body is too short for its base event time.
    #[inline]
    pub fn new(flags: u16, count: u32, body: &[u8]) -> Decoded<Self> {
        let mut walk = Self { at: 0, index: 0, count, flags, least: 0, base_ns: 0 };
        if flags & flag::EVENT_TIME != 0 {
            if body.len() < 8 {
                return Err(CUT_OFF);
            }
            walk.base_ns = u64_at(body, 0) as i64;
            walk.at = 8;
        }
        Ok(walk)
    }

    /// Return the number of records not walked yet.
    #[inline]
    pub fn left(&self) -> u32 {
        self.count - self.index
    }

    /// Return true when every record is only a value, and offsets have no gaps.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.flags & (flag::RICH | flag::SPARSE) == 0
    }

    /// Return the next value of a body of plain values; `None` after the last or when it is cut
    /// off.
    #[inline]
    pub fn next_plain(&mut self, body: &[u8]) -> Option<Range<usize>> {
        if self.index == self.count {
            return None;
        }
        let mut at = self.at;
        let range = take(body, &mut at)?;
        (self.at, self.index) = (at, self.index + 1);
        Some(range)
    }

    /// Pass over values of a body of plain values, by their lengths alone. False when there are
    /// fewer values, or one of them is cut off.
    pub fn skip_plain(&mut self, body: &[u8], values: u32) -> bool {
        if values > self.left() {
            return false;
        }
        let (mut at, mut left) = (self.at, values);
        while left > 0 {
            let Some(&len) = body.get(at) else { return false };
            if len >= 0x80 {
                if take(body, &mut at).is_none() {
                    return false;
                }
                left -= 1;
                continue;
            }
            // While lengths repeat, the next place is known before this one is loaded. The machine
            // then waits for many loads at once, not for one after the other.
            let step = 1 + usize::from(len);
            loop {
                at += step;
                left -= 1;
                if left == 0 || body.get(at) != Some(&len) {
                    break;
                }
            }
        }
        if at > body.len() {
            return false;
        }
        self.at = at;
        self.index += values;
        true
    }

    /// Do as [`RecordCursor::skip_plain`] from the body's beginning, using the known places `way`:
    /// those of every [`WAY`]th value up to where an earlier call came. Adds the places that it
    /// passes.
    pub fn skip_plain_along(&mut self, body: &[u8], values: u32, way: &mut Vec<u32>) -> bool {
        if self.index > 0 || values > self.left() {
            return false;
        }
        let wanted = (values / WAY) as usize;
        let known = wanted.min(way.len());
        if let Some(&at) = known.checked_sub(1).and_then(|last| way.get(last)) {
            (self.at, self.index) = (at as usize, known as u32 * WAY);
        }
        while way.len() < wanted {
            if !self.skip_plain(body, WAY) {
                return false;
            }
            way.push(self.at as u32);
        }
        self.skip_plain(body, values - self.index)
    }

    /// Return the place of the next record; `None` after the last.
    ///
    /// # Errors
    /// As [`RecordCursor::next`].
    #[inline]
    pub fn next_span(&mut self, body: &[u8]) -> Decoded<Option<RecordSpan>> {
        if self.index == self.count {
            return Ok(None);
        }
        if !self.is_plain() {
            return self.next_rich_span(body).map(Some);
        }
        self.next_plain_span(body).map(Some).ok_or(CUT_OFF)
    }

    /// Return the next record of a body of plain values; `None` as [`RecordCursor::next_plain`].
    #[inline(always)]
    pub fn next_plain_span(&mut self, body: &[u8]) -> Option<RecordSpan> {
        let (start, offset_delta) = (self.at as u32, self.index);
        let value = KeyedPlace::of(Some(self.next_plain(body)?));
        Some(RecordSpan { offset_delta, start, key: KeyedPlace::default(), value })
    }

    #[inline(always)] // so that it is put together where it is kept
    fn next_rich_span(&mut self, body: &[u8]) -> Decoded<RecordSpan> {
        let (start, parts) = (self.at as u32, self.next_rich(body)?);
        self.pass(&parts);
        let (key, value) = (KeyedPlace::of(parts.key), KeyedPlace::of(parts.value));
        Ok(RecordSpan { offset_delta: parts.offset_delta, start, key, value })
    }

    /// Read all of a record that a walk through the same body found at this place.
    ///
    /// # Errors
    /// As [`RecordCursor::next`]; none for a place of this body.
    pub fn layout_of(&self, body: &[u8], span: &RecordSpan) -> Decoded<RecordLayout> {
        let (index, at) = (span.offset_delta, span.start as usize);
        let mut there = Self { at, index, least: 0, ..self.clone() };
        if !self.is_plain() {
            return there.next_rich(body);
        }
        there.next(body)?.ok_or(CUT_OFF)
    }

    /// Return the next record; `None` after the last.
    ///
    /// # Errors
    /// `Damaged` when it reaches beyond the body or its offset does not rise. `Unknown` for
    /// attributes of a newer version.
    #[inline(always)] // what the caller does not look at is then never put together
    pub fn next(&mut self, body: &[u8]) -> Decoded<Option<RecordLayout>> {
        if self.index == self.count {
            return Ok(None);
        }
        if self.is_plain() {
            let offset_delta = self.index;
            let value = self.next_plain(body).ok_or(CUT_OFF)?;
            return Ok(Some(RecordLayout {
                offset_delta,
                value: Some(value),
                end: self.at,
                ..RecordLayout::default()
            }));
        }
        let parts = self.next_rich(body)?;
        self.pass(&parts);
        Ok(Some(parts))
    }

    #[inline(always)]
    fn pass(&mut self, parts: &RecordLayout) {
        self.index += 1;
        self.at = parts.end;
        if self.flags & flag::SPARSE != 0 {
            self.least = parts.offset_delta.saturating_add(1);
        }
    }

    #[inline(always)] // as Walk::next
    fn next_rich(&self, body: &[u8]) -> Decoded<RecordLayout> {
        let mut at = self.at;
        let mut parts = RecordLayout { offset_delta: self.index, ..RecordLayout::default() };
        if self.flags & flag::SPARSE != 0 {
            let delta = varint::get(body, &mut at).ok_or(CUT_OFF)?;
            parts.offset_delta = u32::try_from(delta).map_err(|_| CUT_OFF)?;
            if parts.offset_delta < self.least {
                return Err(NOT_RISING);
            }
        }
        let mut attributes = 0;
        if self.flags & flag::RICH != 0 {
            attributes = *body.get(at).ok_or(CUT_OFF)?;
            at += 1;
        }
        if attributes & !attribute::KNOWN != 0 {
            return Err(DecodeError::Unknown("a record attribute of a newer version"));
        }
        if attributes & attribute::KEY != 0 {
            parts.key = Some(take(body, &mut at).ok_or(CUT_OFF)?);
        }
        if attributes & attribute::EVENT_TIME != 0 {
            let delta = varint::get(body, &mut at).ok_or(CUT_OFF)?;
            parts.event_time_ns = Some(self.base_ns.wrapping_add(varint::unzigzag(delta)));
        }
        if attributes & attribute::HEADERS != 0 {
            let start = at;
            let count = varint::get(body, &mut at).ok_or(CUT_OFF)?;
            for _ in 0..count {
                next_header(body, &mut at).ok_or(CUT_OFF)?;
            }
            parts.headers = start..at;
        }
        if attributes & attribute::NO_VALUE == 0 {
            parts.value = Some(take(body, &mut at).ok_or(CUT_OFF)?);
        }
        parts.end = at;
        Ok(parts)
    }
}

fn next_header(body: &[u8], at: &mut usize) -> Option<(Range<usize>, Option<Range<usize>>)> {
    let name = take(body, at)?;
    std::str::from_utf8(&body[name.clone()]).ok()?;
    let len = varint::get(body, at)?;
    if len == 0 {
        return Some((name, None));
    }
    let start = *at;
    let end = start.checked_add(usize::try_from(len - 1).ok()?)?;
    if end > body.len() {
        return None;
    }
    *at = end;
    Some((name, Some(start..end)))
}

/// Iterate over the headers of a record, in order: names and values. `encoded` is
/// [`RecordLayout::headers`] of a body that was walked.
pub fn headers(encoded: &[u8]) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
    let mut at = 0;
    let mut left = if encoded.is_empty() { 0 } else { varint::get(encoded, &mut at).unwrap_or(0) };
    std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let (name, value) = next_header(encoded, &mut at)?;
        let name = std::str::from_utf8(&encoded[name]).ok()?;
        Some((name, value.map(|range| &encoded[range])))
    })
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
