//! Records as most are that have more than a value: a key, a time, a value, and nothing else.
//!
//! Owns the short way through them. What goes through millions of records for their columns
//! (`rust/arrow`) spends more on telling what a record might have than on reading it. Invariant: what
//! is found here is what [`super::RecordCursor::next`] finds; where there is any doubt, nothing is, and it is asked.

use super::{RecordCursor, RecordSpan, attribute, flag};
use crate::format::varint;

/// Where a key or a value stands in its block's body, or that there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyedPlace {
    /// The first byte.
    pub start: u32,
    /// One more than there are bytes; 0 for none.
    len: u32,
}

impl KeyedPlace {
    /// Of a range in a body, which has less than 4 GiB.
    #[inline(always)]
    pub fn of(range: Option<std::ops::Range<usize>>) -> Self {
        range.map_or(Self::default(), |range| Self::new(range.start, range.end - range.start))
    }

    #[inline(always)]
    pub(super) fn new(start: usize, len: usize) -> Self {
        Self { start: start as u32, len: len as u32 + 1 }
    }

    /// False where there is none.
    #[inline(always)]
    pub fn is_some(self) -> bool {
        self.len != 0
    }

    /// How many bytes it has; 0 for none too.
    #[inline(always)]
    pub fn len(self) -> u32 {
        self.len.saturating_sub(1)
    }

    /// True of none, and of a value without bytes.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len <= 1
    }

    /// Where the bytes stand.
    #[inline(always)]
    pub fn range(self) -> Option<std::ops::Range<usize>> {
        let start = self.start as usize;
        self.is_some().then(|| start..start + self.len() as usize)
    }

    /// The bytes, of the body in which it was found.
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
    /// When it happened, nanoseconds since 1970; when it was appended where it does not say.
    pub time_ns: i64,
}

impl RecordCursor {
    /// The next record, if it has a value, perhaps a key and a time, and nothing else. `None` says no
    /// more than that [`super::RecordCursor::next`] has to be asked: nothing was passed over.
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
            // Longer ones are rare enough; and of this one the end overflows nothing.
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

    /// As [`RecordCursor::next_keyed`], by its place alone.
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
