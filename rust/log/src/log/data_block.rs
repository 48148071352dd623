//! A block of records, as a cursor reads it.
//!
//! A [`DataBlock`] holds the map of its segment, so its bytes stay readable after its log was
//! closed and its file unlinked. Invariant: a cursor made it, and checked the block as far as the
//! cursor was set to check. See `docs/PROTOCOL.md`, "Read".

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::DecodeError;
use crate::format::address::Address;
use crate::format::block::{Codec, flag};
use crate::format::record::{RecordCursor as Records, RecordSpan};
use crate::segment::walk::appended_ns;
use crate::segment::{Block, BlockError, Segment};

/// A committed block of records, and what is needed to read them. Holds the segment's map.
#[derive(Clone, Debug)]
pub struct DataBlock {
    pub(super) segment: Arc<Segment>,
    pub(super) block: Block,
    pub(super) first: u64,
}

impl DataBlock {
    /// Return the offset of its first record.
    #[inline]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Return the offset after its last record.
    #[inline]
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.block.header.span)
    }

    /// Return the number of records.
    #[inline]
    pub fn count(&self) -> u32 {
        self.block.header.count
    }

    /// Return when it was appended, nanoseconds since 1970.
    #[inline]
    pub fn appended_ns(&self) -> i64 {
        appended_ns(&self.segment, &self.block)
    }

    /// Return the encoded records, in mapped memory.
    #[inline]
    pub fn body(&self) -> &[u8] {
        self.segment.body(&self.block)
    }

    /// Return the CRC-32 of the body, which positions of consumer groups have.
    #[inline]
    pub fn body_crc(&self) -> u32 {
        self.block.header.body_crc
    }

    /// Compute what [`super::BatchBlock::fingerprint`] does.
    pub(crate) fn fingerprint(&self) -> u64 {
        super::record_batch::fingerprint(
            &self.segment,
            self.position(),
            self.appended_ns(),
            self.body_crc(),
        )
    }

    /// Return where it begins in its segment.
    #[inline]
    pub fn position(&self) -> u64 {
        self.block.position
    }

    /// Return where it ends in the log.
    #[inline]
    pub fn address(&self) -> Address {
        Address::new(self.segment.sequence(), self.block.end())
    }

    /// Return true when compaction made its segment: its records may have been in several blocks
    /// before, and may be in another one later.
    #[inline]
    pub fn is_compacted(&self) -> bool {
        self.segment.is_compacted()
    }

    /// Walk its records.
    ///
    /// # Errors
    /// `UnsupportedVersion` for a codec that this version does not read, `CorruptData` when the body is too
    /// short.
    #[inline]
    pub fn records(&self) -> Result<Records> {
        let header = &self.block.header;
        if header.flags & flag::CODEC != 0 {
            return Err(self.foreign());
        }
        let records = Records::new(header.flags, header.count, self.body());
        records.map_err(|what| self.damaged(what))
    }

    #[cold]
    fn foreign(&self) -> Error {
        let known = self.block.header.codec();
        let unread = DecodeError::Unknown("a body codec of a newer version");
        self.damaged(known.map_or_else(|what| what, |_: Codec| unread))
    }

    /// Return the record with this offset; `None` if compaction removed it.
    ///
    /// # Errors
    /// As [`DataBlock::records`], and when a record is corrupt.
    pub fn find(&self, offset: u64) -> Result<Option<RecordSpan>> {
        let mut records = self.records()?;
        let body = self.body();
        let damaged = |what| self.damaged(what);
        if records.is_plain() {
            // Lengths are skipped, not decoded, from the nearest known place.
            let before = offset.checked_sub(self.first).and_then(|n| u32::try_from(n).ok());
            let Some(before) = before.filter(|n| *n < self.count()) else { return Ok(None) };
            if self.segment.ways().skip(self.block.position, &mut records, body, before) {
                return records.next_span(body).map_err(damaged);
            }
        }
        while let Some(span) = records.next_span(body).map_err(damaged)? {
            let found = self.first + u64::from(span.offset_delta);
            if found >= offset {
                return Ok((found == offset).then_some(span));
            }
        }
        Ok(None)
    }

    /// Return the part of these offsets, which are not empty, before the first corrupt record.
    ///
    /// # Errors
    /// As [`DataBlock::records`]; when that part is empty.
    #[cold]
    pub(crate) fn sound_part(&self, wanted: Range<u64>) -> Result<Range<u64>> {
        let (mut records, body) = (self.records()?, self.body());
        let mut end = wanted.start;
        loop {
            match records.next_span(body) {
                Ok(Some(span)) => end = end.max(self.first + u64::from(span.offset_delta) + 1),
                Ok(None) => return Ok(wanted),
                Err(_) if end >= wanted.end => return Ok(wanted),
                Err(_) if end > wanted.start => return Ok(wanted.start..end),
                Err(what) => return Err(self.damaged(what)),
            }
        }
    }

    /// Read all records and keep none.
    ///
    /// # Errors
    /// As [`DataBlock::records`], and when a record is corrupt.
    pub(super) fn check(&self) -> Result<()> {
        let (mut records, body) = (self.records()?, self.body());
        while records.next(body).map_err(|what| self.damaged(what))?.is_some() {}
        Ok(())
    }

    /// Make an error that names the block.
    pub fn damaged(&self, what: DecodeError) -> Error {
        self.segment.error(BlockError { position: self.block.position, what })
    }

    /// Return the path of its segment, for messages.
    pub fn path(&self) -> &Path {
        self.segment.path()
    }
}
