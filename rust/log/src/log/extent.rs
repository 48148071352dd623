//! The size of a log and the owners of its locks, for people who look at them.
//!
//! No code decides by it: all of it may have changed when it is read.

use crate::error::{IoResult, Result};
use crate::format::address::Address;
use crate::format::control::{at, flag};
use crate::format::settings::WriteMode;
use crate::lock::{self, Identity};
use crate::storage::{LockKind, OpenMode};

use super::Log;
use super::guard::Which;

/// A segment of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its sequence.
    pub sequence: u64,
    /// Bytes of its content, the first page included.
    pub live: u64,
    /// Bytes that it and its index have on disk.
    pub reserved: u64,
}

/// One of the two locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockInfo {
    /// True when it is held.
    pub held: bool,
    /// The owner, if the lock names it.
    pub owner: Option<Identity>,
    /// True when others wait for it.
    pub contended: bool,
}

/// A log as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogExtent {
    /// How far it is committed, as its control page says; `None` without one.
    pub committed: Option<Address>,
    /// How far it is on disk, if known.
    pub durable: Option<Address>,
    /// How far it has left the machine, if known.
    pub remote: Option<Address>,
    /// Bytes that retention removed before they were shipped, in this incarnation.
    pub unshipped: u64,
    /// Incarnation in which it was last opened for writing; 0 for none.
    pub incarnation: u64,
    /// True in the failed-sync state.
    pub latched: bool,
    /// True when it was deleted.
    pub deleted: bool,
    /// Its segments, oldest first.
    pub segments: Vec<SegmentInfo>,
    /// Bytes of content.
    pub live: u64,
    /// Bytes of all its files on disk, prepared segments included.
    pub reserved: u64,
    /// Bytes that recoveries and repairs set aside, not counted in `reserved`.
    pub quarantined: u64,
    /// The lock for appends.
    pub append_lock: LockInfo,
    /// The lock for syncs.
    pub sync_lock: LockInfo,
}

impl Log {
    /// Measure the log and look at the owners of its locks.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion` or `SystemCallFailed` when its segments cannot be listed.
    pub fn extent(&self) -> Result<LogExtent> {
        let control = self.control();
        let flags = control.map_or(0, super::Control::flags);
        let (committed, durable) = (self.committed(), self.durable());
        let segments = self.segment_infos(committed)?;
        let live = segments.iter().map(|segment| segment.live).sum();
        Ok(LogExtent {
            committed,
            durable,
            remote: self.remote(),
            unshipped: self.unshipped_bytes(),
            incarnation: control.map_or(0, super::Control::incarnation),
            latched: flags & flag::LATCHED != 0,
            deleted: flags & flag::DELETED != 0,
            live,
            reserved: self.allocated_in(&self.dir)?,
            quarantined: self.allocated_in(&self.dir.join("quarantine")).unwrap_or(0),
            segments,
            append_lock: self.lock_info(Which::Append, at::APPEND_LOCK),
            sync_lock: self.lock_info(Which::Sync, at::SYNC_LOCK),
        })
    }

    fn segment_infos(&self, committed: Option<Address>) -> Result<Vec<SegmentInfo>> {
        let sequences = self.chain.refresh()?;
        let mut infos = Vec::with_capacity(sequences.len());
        for (i, sequence) in sequences.iter().enumerate() {
            let next = sequences.get(i + 1).map(|next| self.chain.header(*next)).transpose()?;
            let end = next.and_then(|header| header.previous).map(|previous| previous.end);
            let tail = committed.filter(|tail| tail.sequence() == *sequence);
            let mark = || self.chain.segment(*sequence).ok()?.mark().map(|mark| mark.position);
            let live = end.or(tail.map(Address::position)).or_else(mark).unwrap_or(0);
            let reserved = self.allocated_for(*sequence);
            infos.push(SegmentInfo { sequence: *sequence, live, reserved });
        }
        Ok(infos)
    }

    fn allocated_in(&self, dir: &std::path::Path) -> Result<u64> {
        let names = self.storage.list(dir).doing("list", dir)?;
        let stats = names.iter().filter_map(|name| self.storage.stat(&dir.join(name)).ok());
        Ok(stats.filter(|stat| !stat.is_dir).map(|stat| stat.allocated).sum())
    }

    fn lock_info(&self, which: Which, word: u64) -> LockInfo {
        if self.settings.write_mode == WriteMode::Pwrite {
            return self.lock_file_info(which);
        }
        let word = self.control().map_or(0, |control| control.word_value(word));
        match lock::decode(word) {
            Ok(Some(held)) => {
                LockInfo { held: true, owner: Some(held.owner), contended: held.sleepers }
            }
            _ => LockInfo::default(),
        }
    }

    /// Look at a lock that is a file: it tells whether it is held, but not by which process. A
    /// process that polls for it may find us there for a moment.
    fn lock_file_info(&self, which: Which) -> LockInfo {
        let path = self.dir.join(which.file());
        let file = self.storage.open(&path, OpenMode::ReadWrite);
        let free = file.and_then(|file| {
            let free = file.try_lock(LockKind::Shared)?;
            file.close();
            Ok(free)
        });
        LockInfo { held: !free.unwrap_or(true), ..LockInfo::default() }
    }
}
