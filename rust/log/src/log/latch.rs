//! Clearing a latch: saving what a failed sync left in doubt.
//!
//! The bytes between the durable end and the committed end are still in the page cache, and readers
//! may have seen them. They are copied, checksums verified, into a new segment that supersedes them
//! at the same offsets, and that one is synced. If it fails, the log stays latched: reads go on,
//! appends raise. What was superseded stays where it is, for those who read it now; it is no part of
//! the chain, and the next recovery puts it away.
//!
//! The new segment's name is the commit point, the flag is lowered last: who dies in between leaves a
//! latch whose next clearing finds the segment and only publishes it. See `docs/PROTOCOL.md`,
//! "Failed sync".

use std::io::ErrorKind;

use crate::error::{Error, Result};
use crate::failpoints::{Point, pass};
use crate::format::address::Address;
use crate::format::control::{at, flag};
use crate::format::{FIRST_BLOCK, names};

use super::append::Writer;
use super::guard::Which;
use super::repair_report::{RepairKind, RepairStep};
use super::supersede::{Maker, NewEnd, adopt, collect_between, supersede};
use super::{Control, Log, Member, enter};

impl Log {
    /// Clear the latch, if there is one. The writer shows that the process's mutex before the append
    /// lock is held.
    ///
    /// # Errors
    /// `SyncFailed` when the bytes could not be saved; the reason is in it. `LockTimeout`: nobody tried.
    pub(super) fn clear_latch(&self, writer: &mut Writer) -> Result<()> {
        let (control, member) = self.writing()?;
        let _turn = enter(&self.syncer);
        let _sync = self.lock_sync(control, member)?;
        if !control.is_latched() {
            return control.refuse_unknown_flags();
        }
        // Also where somebody removed the files: into what was put there nothing is carried.
        control.check_in_place(&*self.storage)?;
        self.expect_last_segment(writer, control)?;
        // Whoever appends from here on sees the flag under the append lock; whoever was in the
        // middle of it is done, or dead, and then this repairs what it left.
        let saved =
            self.repair_tail(writer, control).and_then(|tail| self.save(control, member, tail));
        let (end, durable) = saved.map_err(|error| match error {
            Error::LockTimeout { .. } => error,
            other => Error::SyncFailed { path: self.dir.clone(), why: other.to_string() },
        })?;
        pass(Point::LatchSaved);
        let _append = self.lock(Which::Append)?;
        publish_end(control, end, durable)?;
        pass(Point::LatchPublished);
        self.chain.forget();
        enter(&self.syncer_files).clear();
        control.set_flag(flag::LATCHED, false)?;
        control.wake_all();
        Ok(())
    }

    /// Make sure that the segment in which the log ends was not removed.
    fn expect_last_segment(&self, writer: &Writer, control: &Control) -> Result<()> {
        let sequence = control.tail().sequence();
        if writer.segment.sequence() == sequence {
            return self.expect_not_removed(&writer.segment);
        }
        let path = self.dir.join(names::segment(sequence));
        match self.storage.stat(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::FilesRemoved { path }),
            // Whatever else is wrong is found by what reads it.
            _ => Ok(()),
        }
    }

    /// What clearing the latch would take; `None` when there is none.
    pub fn latch_to_mend(&self) -> Option<RepairStep> {
        let control = self.control().filter(|control| control.is_latched())?;
        let (from, why) = (control.durable(), "a sync failed".to_owned());
        let path = self.dir.join(names::segment(from.sequence()));
        Some(RepairStep { mend: RepairKind::Save, path, position: from.position(), bytes: 0, why })
    }

    /// Clear the latch, if there is one, and say what that took.
    ///
    /// # Errors
    /// `SyncFailed` when the bytes could not be saved.
    pub fn mend_latch(&self) -> Result<Option<RepairStep>> {
        let Some(step) = self.latch_to_mend() else { return Ok(None) };
        let (control, _) = self.writing()?;
        self.clear_latch(self.writer_in(&mut enter(&self.writer), control)?)?;
        Ok(Some(step))
    }

    /// Carry everything that is committed and not durable into a new segment. Returns the log's new
    /// end, and up to where that is on the medium.
    fn save(
        &self,
        control: &Control,
        member: &dyn Member,
        tail: Address,
    ) -> Result<(NewEnd, Address)> {
        let (storage, dir, settings) = (&*self.storage, &*self.dir, &self.settings);
        let newest = self.chain.refresh()?.last().copied().unwrap_or_default();
        if newest > tail.sequence() {
            // Somebody came as far as the segment's name, and no further.
            let segment = self.chain.segment(newest)?;
            let marked = segment.mark().map_or(0, |mark| mark.position);
            let durable = Address::new(newest, marked.max(FIRST_BLOCK));
            return adopt(storage, dir, settings, &segment).map(|end| (end, durable));
        }
        // Who died behind a sync may have come as far as the mark.
        let durable = control.durable().max(self.marked().unwrap_or_default());
        let (cut, carried) = collect_between(&self.chain, durable, tail)?;
        let maker = Maker { control: control.id(), incarnation: member.incarnation() };
        let end = supersede(storage, dir, settings, &cut, &carried, maker)?;
        Ok((end, end.tail))
    }
}

/// Let the log go on at a new end. The durable end last: it never lies beyond the tail.
pub fn publish_end(control: &Control, end: NewEnd, durable: Address) -> Result<()> {
    // Before a word is stored: from these the log would go on as if there were more than there is. Forged
    // bytes may lead here, so it is no assertion.
    if durable > end.tail || end.tail > end.allocated {
        let (path, what) = (control.path().to_path_buf(), "the log's ends are in no order");
        return Err(Error::CorruptData { path, position: at::DURABLE, what });
    }
    control.set(at::ALLOCATED, end.allocated.0)?;
    control.set(at::INDEXED, end.indexed)?;
    control.set(at::TRIMMED, end.trimmed.0)?;
    control.set(at::TAIL, end.tail.0)?;
    control.set(at::DIRTY, end.tail.0)?;
    control.set(at::DURABLE, durable.0)
}
