//! Records as bytes: the form of a read that costs the least to write and to read.
//!
//! ```text
//! frame    length of the rest u32 │ offset u64 │ time i64 │ key u32 │ headers u32 │ value u32 │ key │ value │ header …
//! header   name u32 │ value u32 │ name │ value
//! ```
//!
//! All numbers are little-endian. A length of 2^32 − 1 stands for what is not there: no key, a tombstone, a header
//! without a value. A reader skips what follows the last header of a frame. The user's page of it is `docs/guide/server.md`.

use falaj::{RecordBatch, RecordRef};

/// Bytes of a frame and of a header besides their parts.
const FRAME: usize = 32;
const HEADER: usize = 8;
/// The length of a part that is not there.
const NONE: u32 = u32::MAX;

/// A record, to be written as a frame.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// Where the record is.
    pub batch: &'a RecordBatch,
    /// Which one it is.
    pub at: &'a RecordRef,
}

impl Frame<'_> {
    /// Count its bytes.
    pub fn len(&self) -> usize {
        let (batch, at) = (self.batch, self.at);
        let len = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        let headers = batch.headers(at).map(|(name, value)| HEADER + name.len() + len(value));
        FRAME + len(batch.key(at)) + len(batch.value(at)) + headers.sum::<usize>()
    }

    /// Write it.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (batch, at) = (self.batch, self.at);
        let (key, value) = (batch.key(at), batch.value(at));
        let begin = out.len();
        number(out, 0);
        out.extend_from_slice(&batch.offset(at).to_le_bytes());
        out.extend_from_slice(&batch.timestamp_ns(at).to_le_bytes());
        length(out, key);
        number(out, batch.headers(at).count());
        length(out, value);
        out.extend_from_slice(key.unwrap_or_default());
        out.extend_from_slice(value.unwrap_or_default());
        for (name, value) in batch.headers(at) {
            number(out, name.len());
            length(out, value);
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(value.unwrap_or_default());
        }
        let rest = out.len() - begin - 4;
        out[begin..begin + 4].copy_from_slice(&narrow(rest).to_le_bytes());
    }
}

/// A record is smaller than a segment, and a segment is at most 4 GiB.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("a part of a record is smaller than 4 GiB")
}

fn number(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&narrow(number).to_le_bytes());
}

fn length(out: &mut Vec<u8>, part: Option<&[u8]>) {
    let len = part.map_or(NONE, |part| narrow(part.len()));
    out.extend_from_slice(&len.to_le_bytes());
}
