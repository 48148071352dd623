//! Commits and acks that a crash can no longer take back, since their records are on the disk.
//!
//! Owns the look from a group's file or a queue's into the log of their topic. Without it, retention
//! would wait for the next commit or ack to learn that records were synced since the last one.
//! Invariant: a position counts only if the log has it on the disk, and is still the log that it was
//! made for. [`super::needs`] reads the files, and syncs them before records go. So the group or the
//! queue resumes there or later, whatever happens. Where a file or a record cannot be read, the lower
//! position of the file counts.
//! See `docs/PROTOCOL.md`, "Retention by limits".

use std::sync::Arc;

use crate::error::{IoResult, Result};
use crate::format::address::Address;
use crate::format::consumer::CursorPosition;
use crate::format::queue::{ENTRY_LEN, JobEntry, QueueEnds, QueueHeader, State};
use crate::format::settings::TopicSettings;
use crate::format::u64_at;
use crate::log::{BlockCursor, DataBlock, Log};
use crate::segment::Check;
use crate::storage::File;

/// Entries of a queue that are read at once.
const AT_ONCE: u64 = 64;

/// The part of a topic that is on the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled<'a> {
    pub(super) log: &'a Arc<Log>,
    topic: &'a TopicSettings,
    durable: Address,
}

impl<'a> Settled<'a> {
    /// Look how far a topic of a log is on the disk now.
    pub(super) fn of(log: &'a Arc<Log>, topic: &'a TopicSettings) -> Self {
        Self { log, topic, durable: log.durable().unwrap_or_default() }
    }

    fn end(&self, number: u32) -> Result<u64> {
        if self.durable == Address(0) { Ok(0) } else { self.log.offset_at(number, self.durable) }
    }

    /// Return true if all records before a position are on the disk, and the log is the one that
    /// was committed to. Then the group resumes there after any crash.
    pub(super) fn has(&self, partition: u32, position: &CursorPosition) -> bool {
        self.recognises(partition, position).unwrap_or(false)
    }

    fn recognises(&self, partition: u32, position: &CursorPosition) -> Result<bool> {
        let number = self.topic.number + partition;
        if position.offset > self.end(number)? {
            return Ok(false);
        }
        if position.is_bare() || position.offset <= self.log.first_offset(number)? {
            return Ok(true);
        }
        let before = position.offset - 1;
        let mut cursor = self.log.cursor_at(number, before, Check::Header)?;
        let is_it = |block: &DataBlock| {
            let found = (block.body_crc(), block.appended_ns() / 1000);
            (block.first()..block.end()).contains(&before)
                && (block.is_compacted() || found == (position.crc, position.time_us))
        };
        Ok(cursor.next_block()?.is_some_and(is_it))
    }

    /// Return the lower bound of a queue with this file, as the next ack would leave it. It is after
    /// all jobs that are done and whose records are on the disk.
    pub(super) fn lower_bound(
        &self,
        file: &dyn File,
        path: &std::path::Path,
        header: &QueueHeader,
        ends: &QueueEnds,
    ) -> Result<u64> {
        let number = self.topic.number;
        let top = ends.head.min(self.end(number)?);
        let first = self.log.first_offset(number)?;
        let (mut floor, mut cursor) = (ends.floor, None);
        while floor < top {
            let place = header.parts.place(floor);
            let count = (top - floor).min(header.parts.capacity - place).min(AT_ONCE);
            let mut bytes = vec![0; (count * ENTRY_LEN) as usize];
            let got = file.read_at(&mut bytes, header.parts.entry(floor)).doing("read", path)?;
            for entry in bytes[..got].chunks_exact(ENTRY_LEN as usize) {
                let word = |n: usize| u64_at(entry, 8 * n);
                let versions = [0, 4].map(|at| std::array::from_fn(|n| word(at + n)));
                let entry = JobEntry::newest(&versions, header.id, floor).value;
                let Some(entry) = entry.filter(|entry| entry.state == State::Done) else {
                    return Ok(floor);
                };
                if floor >= first && !self.is_record(&mut cursor, floor, entry.mark)? {
                    return Ok(floor);
                }
                floor += 1;
            }
            if got < bytes.len() {
                break;
            }
        }
        Ok(floor)
    }

    /// Return true if the record with this offset is the one that was done. A power failure may
    /// have taken that, and another came.
    fn is_record(&self, cursor: &mut Option<BlockCursor>, offset: u64, mark: u64) -> Result<bool> {
        let is_near = |block: &DataBlock| (block.first()..block.end()).contains(&offset);
        let known = cursor.as_ref().is_some_and(|cursor| is_near(cursor.block()));
        if !known {
            let mut found = self.log.cursor_at(self.topic.number, offset, Check::Header)?;
            if found.next_block()?.is_none() {
                return Ok(false);
            }
            *cursor = Some(found);
        }
        let block = cursor.as_ref().map(BlockCursor::block).filter(|block| is_near(block));
        Ok(block.is_some_and(|block| block.is_compacted() || block.fingerprint() == mark))
    }
}
