//! Ending the failed-sync state: saving the bytes that a failed sync left in doubt.
//!
//! The bytes between the durable end and the committed end are still in the page cache, and readers
//! may have seen them. They are copied, with their checksums verified, into a new segment that
//! supersedes them at the same offsets, and that one is synced. If this fails, the log stays in the
//! failed-sync state: reads succeed, appends fail. The superseded bytes stay in place for those
//! that read them now. They are not part of the chain, and the next recovery puts them away.
//!
//! The rename of the new segment is the commit point, and the flag is cleared last. If a process
//! dies in between, the next attempt finds the segment and only publishes it. See
//! `docs/PROTOCOL.md`, "Failed sync".

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
    /// End the failed-sync state, if the log is in it. `writer` shows that the caller holds the
    /// process's mutex before the append lock.
    ///
    /// # Errors
    /// `SyncFailed`, with the reason, when the bytes could not be saved. `LockTimeout`: nothing was
    /// tried.
    pub(super) fn clear_latch(&self, writer: &mut Writer) -> Result<()> {
        let (control, member) = self.writing()?;
        let _turn = enter(&self.syncer);
        let _sync = self.lock_sync(control, member)?;
        if !control.is_latched() {
            return control.refuse_unknown_flags();
        }
        // The files may have been removed: nothing is carried into their replacements.
        control.check_in_place(&*self.storage)?;
        self.expect_last_segment(writer, control)?;
        // Every later append sees the flag under the append lock. A writer that was in the middle
        // of one is done, or dead; in that case this repairs what it left.
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

    /// Check that the log's last segment was not removed.
    fn expect_last_segment(&self, writer: &Writer, control: &Control) -> Result<()> {
        let sequence = control.tail().sequence();
        if writer.segment.sequence() == sequence {
            return self.expect_not_removed(&writer.segment);
        }
        let path = self.dir.join(names::segment(sequence));
        match self.storage.stat(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::FilesRemoved { path }),
            // Readers find all other errors.
            _ => Ok(()),
        }
    }

    /// Describe what ending the failed-sync state would do; `None` if the log is not in it.
    pub fn latch_to_mend(&self) -> Option<RepairStep> {
        let control = self.control().filter(|control| control.is_latched())?;
        let (from, why) = (control.durable(), "a sync failed".to_owned());
        let path = self.dir.join(names::segment(from.sequence()));
        Some(RepairStep { mend: RepairKind::Save, path, position: from.position(), bytes: 0, why })
    }

    /// End the failed-sync state, if the log is in it, and return what was done.
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
    /// end, and how far that is on disk.
    fn save(
        &self,
        control: &Control,
        member: &dyn Member,
        tail: Address,
    ) -> Result<(NewEnd, Address)> {
        let (storage, dir, settings) = (&*self.storage, &*self.dir, &self.settings);
        let newest = self.chain.refresh()?.last().copied().unwrap_or_default();
        if newest > tail.sequence() {
            // An earlier attempt got as far as the segment's name.
            let segment = self.chain.segment(newest)?;
            let marked = segment.mark().map_or(0, |mark| mark.position);
            let durable = Address::new(newest, marked.max(FIRST_BLOCK));
            return adopt(storage, dir, settings, &segment).map(|end| (end, durable));
        }
        // A process that died after a sync may have stored the mark.
        let durable = control.durable().max(self.marked().unwrap_or_default());
        let (cut, carried) = collect_between(&self.chain, durable, tail)?;
        let maker = Maker { control: control.id(), incarnation: member.incarnation() };
        let end = supersede(storage, dir, settings, &cut, &carried, maker)?;
        Ok((end, end.tail))
    }
}

/// Publish a new end of the log. The durable end comes last: it never lies beyond the tail.
pub fn publish_end(control: &Control, end: NewEnd, durable: Address) -> Result<()> {
    // Checked before a word is stored: with such words the log would pretend to have more than it
    // has. Forged bytes may lead here, so it is no assertion.
    if durable > end.tail || end.tail > end.allocated {
        let what = "the log's ends are out of order";
        return Err(Error::corrupt(control.path(), at::DURABLE, what));
    }
    control.set(at::ALLOCATED, end.allocated.0)?;
    control.set(at::INDEXED, end.indexed)?;
    control.set(at::TRIMMED, end.trimmed.0)?;
    control.set(at::TAIL, end.tail.0)?;
    control.set(at::DIRTY, end.tail.0)?;
    control.set(at::DURABLE, durable.0)
}
