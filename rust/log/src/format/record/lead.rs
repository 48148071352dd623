//! Encodes the only record of a block without copying its value.

use crate::format::block::flag;
use crate::format::varint;

use super::{NewRecord, attribute};

/// Bytes of the longest lead; a longer key is left to [`super::BodyWriter`].
const LEAD_MAX: usize = 64;
/// Most bytes before a value, besides a key: base time, attributes, the key's length, an empty
/// delta, the value's length.
const FRAME_MAX: usize = 8 + 1 + 1 + 1 + varint::MAX_LEN;
/// Bytes of the longest key that fits.
const KEY_MAX: usize = LEAD_MAX - FRAME_MAX;

/// The bytes before the value in the body of a block with one record. The value itself stays where
/// the caller has it until it is stored.
#[derive(Debug)]
pub struct RecordLead {
    bytes: [u8; LEAD_MAX],
    len: usize,
    flags: u16,
}

impl RecordLead {
    /// Make an empty one.
    #[inline(always)]
    pub fn empty() -> Self {
        Self { bytes: [0; LEAD_MAX], len: 0, flags: 0 }
    }

    /// Encode what comes before a record's value; `None` for a record with headers or a long key.
    /// The result stays where it is encoded. To move it, the machine would have to read it back
    /// while it is still being stored, and would wait.
    #[inline(always)]
    pub fn encode(&mut self, record: &NewRecord<'_>) -> Option<&Self> {
        (self.len, self.flags) = (0, 0);
        if record.is_rich() {
            self.begin_rich(record)?;
        }
        if let Some(value) = record.value {
            self.put(value.len() as u64)?;
        }
        Some(self)
    }

    #[inline]
    fn begin_rich(&mut self, record: &NewRecord<'_>) -> Option<()> {
        if !record.headers.is_empty() || record.key.is_some_and(|key| key.len() > KEY_MAX) {
            return None;
        }
        self.flags = flag::RICH;
        if let Some(time) = record.event_time_ns {
            // The only time is the base of its own delta.
            self.flags |= flag::EVENT_TIME;
            self.put_bytes(&time.to_le_bytes())?;
        }
        self.put_bytes(&[attribute::of(record)])?;
        if let Some(key) = record.key {
            self.put(key.len() as u64)?;
            self.put_bytes(key)?;
        }
        if record.event_time_ns.is_some() { self.put(0) } else { Some(()) }
    }

    #[inline(always)]
    fn put(&mut self, number: u64) -> Option<()> {
        varint::put_at(&mut self.bytes, &mut self.len, number)
    }

    #[inline(always)]
    fn put_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    /// Return its bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.min(LEAD_MAX)]
    }

    /// Return the header flags of this body.
    #[inline(always)]
    pub fn flags(&self) -> u16 {
        self.flags
    }
}

#[cfg(test)]
mod tests {
    use super::super::BodyWriter;
    use super::*;

    fn body_of(record: &NewRecord<'_>) -> (Vec<u8>, u16) {
        let mut body = BodyWriter::default();
        body.begin(record.is_rich(), record.event_time_ns);
        body.push(record);
        (body.body().to_vec(), body.flags())
    }

    #[test]
    fn a_lead_and_the_value_are_the_body_that_is_written_at_once() {
        let bytes = [b'b'; 40_000];
        let lens = [0, 1, 0x7f, 0x80, 40_000].map(Some);
        let mut room = RecordLead::empty();
        let keys = [None, Some(0), Some(7), Some(KEY_MAX)];
        for value in lens.into_iter().chain([None]) {
            for key in keys {
                for event_time_ns in
                    [None, Some(0), Some(i64::MIN), Some(1_700_000_000_000_000_000)]
                {
                    let [value, key] = [value, key].map(|len| len.map(|len| &bytes[..len]));
                    let record = NewRecord { value, key, event_time_ns, headers: &[] };
                    let lead = room.encode(&record).unwrap();
                    let body = [lead.bytes(), value.unwrap_or_default()].concat();
                    assert_eq!((body, lead.flags()), body_of(&record), "{record:?}");
                }
            }
        }
    }

    #[test]
    fn a_record_with_headers_or_a_long_key_has_no_lead() {
        let long = [b'k'; KEY_MAX + 1];
        let keyed = NewRecord { key: Some(&long), ..NewRecord::new(b"v") };
        let with_headers = NewRecord { headers: &[("name", None)], ..NewRecord::new(b"v") };
        assert!(
            [keyed, with_headers].iter().all(|record| RecordLead::empty().encode(record).is_none())
        );
    }
}
