//! Recognising a position in a log.
//!
//! Owns how an offset becomes a [`CursorPosition`], and whether a position is still where it was. The
//! block before it is identified by the checksum of its body and the time of its append. If a power
//! failure takes a block and the same records are appended again, the new block has another time. The time is a
//! fingerprint here; it says nothing about older or newer. Compacted records have no fingerprint: their
//! blocks differ each time. All of them were on disk before, so nothing can take them back.

use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::consumer::CursorPosition;
use crate::log::BlockCursor;
use crate::segment::Check;
use crate::topic::Topic;

/// Distance, in records, up to which the next position is reached block by block, without a lookup.
const NEAR: u64 = 512;

/// The block before a position.
#[derive(Clone, Copy, Debug)]
struct Before {
    first: u64,
    end: u64,
    crc: u32,
    time_us: i64,
    address: Address,
    is_compacted: bool,
}

/// Finds positions in one partition; the next one is most often near the last.
#[derive(Debug, Default)]
pub(super) struct Finder {
    cursor: Option<BlockCursor>,
    last: Option<Before>,
}

impl Finder {
    /// Find the position of an offset, and the address below which all its records lie. A corrupt block
    /// has no fingerprint.
    ///
    /// # Errors
    /// `OffsetOutOfRange` below the start offset and beyond the end; `SystemCallFailed`,
    /// `NeedsRecovery`.
    pub(super) fn find(
        &mut self,
        topic: &Topic,
        partition: u32,
        offset: u64,
    ) -> Result<(CursorPosition, Address)> {
        let bare = (CursorPosition { offset, ..CursorPosition::default() }, Address::default());
        let Some(wanted) = offset.checked_sub(1) else { return Ok(bare) };
        let block = match self.block(topic, partition, wanted) {
            Err(Error::CorruptData { .. }) => {
                let end = topic.log().committed().unwrap_or_default();
                return Ok((bare.0, end));
            }
            block => block?,
        };
        if let Some(before) = block {
            let Before { crc, time_us, address, .. } = before;
            let (crc, time_us) = if before.is_compacted { (0, 0) } else { (crc, time_us) };
            return Ok((CursorPosition { offset, crc, time_us }, address));
        }
        if offset == topic.first(partition)? {
            return Ok(bare);
        }
        Err(topic.out_of_range(partition, offset.into())?)
    }

    /// Find the same for an offset that is to be committed. A trim or a limit may have passed it since
    /// its records were delivered. That is no reason to refuse: later, nothing below it is compared.
    ///
    /// # Errors
    /// `OffsetOutOfRange` beyond the end; `SystemCallFailed`, `NeedsRecovery`.
    pub(super) fn find_to_commit(
        &mut self,
        topic: &Topic,
        partition: u32,
        offset: u64,
    ) -> Result<(CursorPosition, Address)> {
        match self.find(topic, partition, offset) {
            Err(Error::OffsetOutOfRange { first, .. }) if offset < first => {
                Ok((CursorPosition { offset, ..CursorPosition::default() }, Address::default()))
            }
            found => found,
        }
    }

    fn block(&mut self, topic: &Topic, partition: u32, wanted: u64) -> Result<Option<Before>> {
        if let Some(last) = self.last.filter(|last| (last.first..last.end).contains(&wanted)) {
            return Ok(Some(last));
        }
        let near = self.last.is_some_and(|last| (last.end..last.end + NEAR).contains(&wanted));
        let cursor = self.cursor.take().filter(|_| near);
        // Between the last position and this one, records may be trimmed: then it is looked up.
        if let Some(Ok(true)) = cursor.map(|cursor| self.walk(cursor, wanted)) {
            return Ok(self.last);
        }
        self.last = None;
        if wanted < topic.first(partition)? {
            return Ok(None);
        }
        let number = topic.settings().number + partition;
        self.walk(topic.log().cursor_at(number, wanted, Check::Header)?, wanted)?;
        Ok(self.last)
    }

    /// Walk to the block of a record, and remember it; return false where the log does not have it.
    fn walk(&mut self, mut cursor: BlockCursor, wanted: u64) -> Result<bool> {
        while let Some(block) = cursor.next_block()? {
            if block.end() <= wanted {
                continue;
            }
            let before = Before {
                first: block.first(),
                end: block.end(),
                crc: block.body_crc(),
                time_us: block.appended_ns() / 1000,
                address: block.address(),
                is_compacted: block.is_compacted(),
            };
            let found = (before.first..before.end).contains(&wanted);
            if found {
                (self.cursor, self.last) = (Some(cursor), Some(before));
            }
            return Ok(found);
        }
        Ok(false)
    }
}

/// Find the position of an offset, for a caller that keeps it elsewhere and recognises it later. The
/// records before it are the same as long as its checksum and time are. Costs a lookup in the index.
///
/// # Errors
/// `OffsetOutOfRange` below the start offset and beyond the end; `CorruptData`, `SystemCallFailed`.
pub fn position_of(topic: &Topic, partition: u32, offset: u64) -> Result<CursorPosition> {
    Finder::default().find(topic, partition, offset).map(|(position, _)| position)
}

/// Check whether a position is still where it was. Not compared at or below the start offset, nor where
/// compaction made other blocks.
///
/// # Errors
/// `CorruptData`, `SystemCallFailed`.
pub(super) fn is_recognised(
    topic: &Topic,
    partition: u32,
    position: &CursorPosition,
) -> Result<bool> {
    let end = topic.committed(partition)?;
    if position.offset > end {
        return Ok(false);
    }
    if position.is_bare() || position.offset <= topic.first(partition)? {
        return Ok(true);
    }
    let (found, _) = Finder::default().find(topic, partition, position.offset)?;
    Ok(found.is_bare() || found == *position)
}
