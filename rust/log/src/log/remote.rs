//! The words REMOTE and SHIPPED, which say what has left the machine, and the wait for them.
//!
//! Owns both words. The process that ships the store raises REMOTE after enough places have the
//! bytes. It raises SHIPPED, which is for retention, after all of them have.
//! Waiters sleep under bits of their own ([`crate::wake`]). Invariants: an acknowledged address is
//! one of the log and not beyond its durable end, so no later segment supersedes it. A waiter waits
//! for such an address too, so that comparing the two is enough. A wait ends when the shipper does:
//! its word in the wake page changes, or the lock of its slot is free.
//!
//! Left to others: which process may ship ([`crate::store`]), and what a place is (Python). The
//! words are hints after a crash: recovery sets them to 0. See `docs/PROTOCOL.md`, "Shipping".

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, IoResult, Result};
use crate::format::FIRST_BLOCK;
use crate::format::address::Address;
use crate::format::control::at;
use crate::lock::Fate;
use crate::shipper::{self, Shipper, decode};
use crate::wake;

use super::chain::Next;
use super::follow::{Interrupt, Wait};
use super::{Control, Log, enter};

/// How often a waiter asks whether the shipper lives: a process that dies wakes no other.
const ASK_EVERY: Duration = Duration::from_millis(100);

impl Log {
    /// Return the address up to which everything is on disk and has left the machine; 0 without a
    /// page that says so. It is for readers. It falls to the beginning of a segment that
    /// compaction wrote, until the shipper has sent that one.
    pub fn remote(&self) -> Option<Address> {
        let durable = self.durable()?;
        Some(self.as_it_stands(self.acknowledged()?, durable))
    }

    /// Return the address up to which retention need not keep anything for the shipper.
    pub fn shipped(&self) -> Address {
        let durable = self.durable().unwrap_or_default();
        let shipped = self.control().map_or(Address(0), Control::shipped);
        self.as_it_stands(shipped.min(durable), durable)
    }

    /// Return the word REMOTE, as far as it counts.
    fn acknowledged(&self) -> Option<Address> {
        let remote = self.control().map_or(0, |control| control.remote().0);
        Some(Address(shipper::reached(remote, self.durable()?.0)))
    }

    /// Return an address as offsets can be looked up by it. Compaction replaces durable segments by
    /// one with other blocks: of that one nothing counts.
    fn as_it_stands(&self, end: Address, durable: Address) -> Address {
        if end.sequence() == durable.sequence() || end == Address(0) {
            return end;
        }
        let sequences = self.chain.sequences().unwrap_or_default();
        let Some(at) = sequences.iter().copied().find(|at| *at >= end.sequence()) else {
            return Address(0);
        };
        let is_itself = at == end.sequence()
            && self.chain.header(at).is_ok_and(|header| header.replaces.is_none());
        if is_itself { end } else { Address::new(at, FIRST_BLOCK) }
    }

    /// Return how many bytes retention removed before they were shipped, in this incarnation.
    pub fn unshipped_bytes(&self) -> u64 {
        self.control().map_or(0, |control| control.word_value(at::UNSHIPPED))
    }

    /// Note that everything before an address has left the machine, and wake those that wait for
    /// it. An address beyond the durable end counts up to that end. One of a segment that was
    /// superseded there counts up to where that segment's content ends.
    ///
    /// # Errors
    /// `NotWritable`, `HandleClosed` in a forked child; `CorruptData`, `SystemCallFailed` when a
    /// sealed segment cannot be looked at: nothing is acknowledged then.
    pub fn acknowledge(&self, end: Address) -> Result<()> {
        let (control, member) = self.writing()?;
        member.check()?;
        let Some(end) = self.within_log(end, control)? else { return Ok(()) };
        {
            let _turn = enter(&self.acknowledging);
            control.raise(at::REMOTE, end)?;
        }
        control.notify(false);
        Ok(())
    }

    /// Note that all places have everything before an address, so retention need not keep it for
    /// them. Otherwise as [`Log::acknowledge`], without waking anybody.
    ///
    /// # Errors
    /// As [`Log::acknowledge`].
    pub fn note_shipped(&self, end: Address) -> Result<()> {
        let (control, member) = self.writing()?;
        member.check()?;
        let Some(end) = self.within_log(end, control)? else { return Ok(()) };
        let _turn = enter(&self.acknowledging);
        control.raise(at::SHIPPED, end)
    }

    /// Return the last address of the log up to this one that is durable; `None` in a segment that
    /// is not part of the log.
    fn within_log(&self, end: Address, control: &Control) -> Result<Option<Address>> {
        let durable = control.durable();
        if end.sequence() >= durable.sequence() {
            return Ok(Some(end.min(durable)));
        }
        let first = self.chain.refresh()?.first().copied().unwrap_or_default();
        if end.sequence() < first {
            // Its segment was deleted, and so were the records before it.
            return Ok(Some(end));
        }
        let segment = self.chain.segment(end.sequence())?;
        Ok(match self.chain.next(&segment)? {
            Next::Segment { end: cut, .. } => Some(end.min(Address::new(end.sequence(), cut))),
            Next::Nothing => Some(end.min(durable)),
            Next::Removed => Some(end),
            Next::Superseded => None,
        })
    }

    /// Sync everything before an address, and return the address whose leaving the machine means
    /// that all of it has left. It is another one if the log moved to a later segment: the bytes may
    /// stand there by now.
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn durable_address_of(&self, end: Address) -> Result<Address> {
        self.sync_to(end)?;
        let (control, _) = self.writing()?;
        let durable = control.durable();
        Ok(if durable.sequence() == end.sequence() { end.min(durable) } else { durable })
    }

    /// Wait until everything before an address has left the machine, whether a process ships the
    /// store or not.
    ///
    /// # Errors
    /// As [`Log::wait_for_news`].
    pub fn wait_for_remote(
        &self,
        target: Address,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        let reached = |log: &Self| log.remote().is_some_and(|remote| remote >= target);
        self.wait_until(wake::REMOTE_FOLLOWERS, reached, timeout, interrupt)
    }

    /// Wait until the shipper has acknowledged everything before an address, which
    /// [`Log::durable_address_of`] returned.
    ///
    /// # Errors
    /// `NoShipper` and `Fenced` once the shipper stopped, died, or another process claimed its
    /// place; otherwise as [`Log::wait_for_news`].
    pub fn wait_for_shipper(
        &self,
        target: Address,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        let (control, _) = self.writing()?;
        // The word, and when its process was last seen alive.
        let seen: Cell<Option<(u64, Instant)>> = Cell::new(None);
        let is_done = |log: &Self| log.is_remote(target);
        let stirred = || seen.get().is_none_or(|(word, _)| word != control.shipper());
        let check = || {
            let is_due = seen.get().is_none_or(|(_, asked)| asked.elapsed() >= ASK_EVERY);
            if !is_due && !stirred() {
                return Ok(());
            }
            // Read first: a shipper that comes later is asked for in the next turn.
            let word = control.shipper();
            match self.expect_shipper() {
                // It acknowledged this, and then stopped.
                Err(Error::NoShipper { .. } | Error::Fenced { .. }) if is_done(self) => Ok(()),
                checked => {
                    seen.set(Some((word, Instant::now())));
                    checked
                }
            }
        };
        let sensible = (ASK_EVERY, stirred, check);
        self.wait_while_sensible(wake::REMOTE_APPENDERS, is_done, sensible, timeout, interrupt)
    }

    /// Check that a living process ships the store.
    ///
    /// # Errors
    /// `NoShipper`, `Fenced`; `NotWritable` for a reader, `HandleClosed` in a forked child,
    /// `SystemCallFailed` when it cannot be found out.
    pub fn expect_shipper(&self) -> Result<()> {
        let (control, member) = self.writing()?;
        member.check()?;
        match decode(control.shipper()) {
            Shipper::Process(process) if process == member.identity() => Ok(()),
            Shipper::Process(process) => match member.fate(process).doing("look at", &self.dir)? {
                Fate::Alive => Ok(()),
                Fate::Dead(_) => Err(Error::NoShipper { store: self.store(), offset: None }),
            },
            Shipper::Fenced => Err(Error::Fenced { store: self.store(), offset: None }),
            Shipper::Absent => Err(Error::NoShipper { store: self.store(), offset: None }),
        }
    }

    /// Wake all that wait for what leaves the machine: the process that ships has stopped.
    pub fn notify_remote(&self) {
        self.control.get().into_iter().for_each(|control| control.notify(false));
    }

    /// Return whether a process may be asleep until what it appended has left the machine.
    pub fn is_remote_awaited(&self) -> bool {
        self.control().is_some_and(Control::is_remote_awaited)
    }

    /// Count bytes that retention removes before they were shipped.
    ///
    /// # Errors
    /// `NotWritable`, `SystemCallFailed`.
    pub fn note_unshipped(&self, bytes: u64) -> Result<()> {
        let (control, _) = self.writing()?;
        let _turn = enter(&self.acknowledging);
        let before = control.word_value(at::UNSHIPPED);
        // A hint for people: two processes that count at once may lose one of the counts.
        control.set(at::UNSHIPPED, before.saturating_add(bytes))
    }

    /// Return whether everything before an address that was durable has left the machine.
    pub fn is_remote(&self, target: Address) -> bool {
        self.acknowledged().is_some_and(|remote| remote >= target)
    }

    /// Return the directory of the store.
    fn store(&self) -> PathBuf {
        let above = self.dir.parent().and_then(Path::parent);
        above.unwrap_or(&self.dir).to_path_buf()
    }
}
