//! A short way to read common records: a key, a time, a value, and nothing else.
//!
//! Owns the short way through them. Code that reads the columns of millions of records
//! (`rust/arrow`) would spend more time on finding out what a record has than on reading it.
//! Invariant: it finds exactly what [`super::RecordCursor::next`] finds. In case of doubt it finds
//! nothing, and the caller uses that one.

use super::{RecordCursor, RecordSpan, attribute, flag};
use crate::format::varint;

/// The place of a key or a value in its block's body, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyedPlace {
    /// The first byte.
    pub start: u32,
    /// The number of bytes plus one; 0 for none.
    len: u32,
}

impl KeyedPlace {
    /// Make it from a range in a body, which has less than 4 GiB.
    #[inline(always)]
    pub fn of(range: Option<std::ops::Range<usize>>) -> Self {
        range.map_or(Self::default(), |range| Self::new(range.start, range.end - range.start))
    }

    #[inline(always)]
    pub(super) fn new(start: usize, len: usize) -> Self {
        Self { start: start as u32, len: len as u32 + 1 }
    }

    /// Return false for none.
    #[inline(always)]
    pub fn is_some(self) -> bool {
        self.len != 0
    }

    /// Return the number of bytes; 0 for none too.
    #[inline(always)]
    pub fn len(self) -> u32 {
        self.len.saturating_sub(1)
    }

    /// Return true for none, and for a value without bytes.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len <= 1
    }

    /// Return the range of the bytes.
    #[inline(always)]
    pub fn range(self) -> Option<std::ops::Range<usize>> {
        let start = self.start as usize;
        self.is_some().then(|| start..start + self.len() as usize)
    }

    /// Return the bytes, in the body in which it was found.
    #[inline(always)]
    pub fn bytes(self, body: &[u8]) -> Option<&[u8]> {
        self.range().map(|range| &body[range])
    }
}

/// A record without headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyedRecord {
    /// Offset relative to the block's first one.
    pub offset_delta: u32,
    /// The key.
    pub key: KeyedPlace,
    /// The value.
    pub value: KeyedPlace,
    /// When it happened, nanoseconds since 1970; without such a time, when it was appended.
    pub time_ns: i64,
}

impl RecordCursor {
    /// Return the next record, if it has a value, perhaps a key and a time, and nothing else.
    /// `None` only means that the caller must use [`super::RecordCursor::next`]: nothing was passed
    /// over.
    #[inline(always)]
    pub fn next_keyed(&mut self, body: &[u8], appended_ns: i64) -> Option<KeyedRecord> {
        if self.index == self.count || self.flags & (flag::RICH | flag::SPARSE) != flag::RICH {
            return None;
        }
        let mut at = self.at;
        let attributes = *body.get(at)?;
        if attributes & !(attribute::KEY | attribute::EVENT_TIME) != 0 {
            return None;
        }
        at += 1;
        let mut found = KeyedRecord {
            offset_delta: self.index,
            time_ns: appended_ns,
            ..KeyedRecord::default()
        };
        if attributes & attribute::KEY != 0 {
            // Longer keys are rare; and the end of this one cannot overflow.
            let len = body.get(at).copied().filter(|len| *len < 0x80)?;
            found.key = KeyedPlace::new(at + 1, usize::from(len));
            at += 1 + usize::from(len);
        }
        if attributes & attribute::EVENT_TIME != 0 {
            let delta = varint::get(body, &mut at)?;
            found.time_ns = self.base_ns.wrapping_add(varint::unzigzag(delta));
        }
        // It is there only if all before it is.
        let len = usize::try_from(varint::get(body, &mut at)?).ok()?;
        if len > body.len().checked_sub(at)? {
            return None;
        }
        found.value = KeyedPlace::new(at, len);
        self.at = at + len;
        self.index += 1;
        Some(found)
    }

    /// Do as [`RecordCursor::next_keyed`], but return its place alone.
    #[inline(always)]
    pub fn next_keyed_span(&mut self, body: &[u8]) -> Option<RecordSpan> {
        let start = self.at as u32;
        let KeyedRecord { offset_delta, key, value, .. } = self.next_keyed(body, 0)?;
        Some(RecordSpan { offset_delta, start, key, value })
    }
}

#[cfg(test)]
#[path = "keyed_tests.rs"]
mod tests;
