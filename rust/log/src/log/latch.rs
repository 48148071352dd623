//! Clearing a latch: saving what a failed sync left in doubt.
//!
//! The bytes between the durable end and the committed end are still in the page cache, and readers
//! may have seen them. They are copied, checksums verified, into a new segment that supersedes them
//! at the same offsets, and that one is synced. If it fails, the log stays latched: reads go on,
//! appends raise. See `docs/PROTOCOL.md`, "Latch".

use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::control::{at, flag};

use super::guard::Which;
use super::mending::{Mend, MendStep};
use super::roll::quarantine;
use super::supersede::{Maker, NewEnd, collect_between, supersede};
use super::{Control, Log, Member, enter};
use crate::format::names;

impl Log {
    /// Clear the latch, if there is one.
    ///
    /// # Errors
    /// `Latched` when the bytes could not be saved; the reason is in it.
    pub(super) fn clear_latch(&self) -> Result<()> {
        let (control, member) = self.writing()?;
        let _turn = enter(&self.syncer);
        let _sync = self.lock(Which::Sync)?;
        if !control.is_latched() {
            return Ok(());
        }
        // Whoever appends from here on sees the flag under the append lock; whoever was in the
        // middle of it is done, or dead and not yet repaired.
        let append = self.lock(Which::Append)?;
        let tail = control.tail();
        drop(append);
        let moved = self
            .save(control, member, tail)
            .map_err(|error| Error::Latched { path: self.dir.clone(), why: error.to_string() })?;
        let _append = self.lock(Which::Append)?;
        publish_end(control, moved)?;
        self.chain.forget();
        enter(&self.syncer_files).clear();
        control.set(at::FLAGS, control.flags() & !flag::LATCHED)?;
        control.rouse();
        Ok(())
    }

    /// What clearing the latch would take; `None` when there is none.
    pub fn latch_to_mend(&self) -> Option<MendStep> {
        let control = self.control.as_ref().filter(|control| control.is_latched())?;
        let (from, why) = (control.durable(), "a sync failed".to_owned());
        let path = self.dir.join(names::segment(from.sequence()));
        Some(MendStep { mend: Mend::Save, path, position: from.position(), bytes: 0, why })
    }

    /// Clear the latch, if there is one, and say what that took.
    ///
    /// # Errors
    /// `Latched` when the bytes could not be saved.
    pub fn mend_latch(&self) -> Result<Option<MendStep>> {
        let step = self.latch_to_mend();
        if step.is_some() {
            self.clear_latch()?;
        }
        Ok(step)
    }

    /// Carry everything that is committed and not durable into a new segment.
    fn save(&self, control: &Control, member: &dyn Member, tail: Address) -> Result<NewEnd> {
        let durable = control.durable();
        let (cut, carried) = collect_between(&self.chain, durable, tail)?;
        let maker = Maker { control: control.id(), incarnation: member.incarnation() };
        let storage = &*self.storage;
        let moved = supersede(storage, &self.dir, &self.settings, &cut, &carried, maker)?;
        for sequence in self.chain.refresh()?.into_iter().rev() {
            if sequence > durable.sequence() && sequence < moved.tail.sequence() {
                self.put_away(sequence)?;
            }
        }
        Ok(moved)
    }

    fn put_away(&self, sequence: u64) -> Result<()> {
        let path = self.dir.join(names::segment(sequence));
        quarantine(&*self.storage, &path, self.settings.file_mode)?;
        // An index without its segment is never read.
        let _ = self.storage.unlink(&self.dir.join(names::index(sequence)));
        Ok(())
    }
}

/// Let the log go on at a new end, all of which is on the medium.
pub fn publish_end(control: &Control, end: NewEnd) -> Result<()> {
    control.set(at::ALLOCATED, end.allocated.0)?;
    control.set(at::INDEXED, end.indexed)?;
    control.set(at::DURABLE, end.tail.0)?;
    control.set(at::TAIL, end.tail.0)?;
    control.set(at::DIRTY, end.tail.0)
}
