//! Membership: this process is one of those that have the store open for writing.
//!
//! Owns `presence`, held shared for life, and through `slots` one slot. Every log relies on its
//! invariants. An *incarnation* begins only when no process had the store open for writing, and all
//! members of one incarnation know the same number. No other process has a member's identity while
//! a lock word may name it.
//!
//! ```text
//! claim ─> presence exclusively? ─ yes ─> every slot free? ─> new incarnation ─> shared ─┐
//!              └─ no ─> shared, read the incarnation ────────────────────────────────────┴─> slot
//! ```
//!
//! A forked child is no member: its copy returns an error ([`Membership::check`]), and it must not
//! keep its parent's locks ([`super::fork`]). `registry` shares memberships; a log's recovery
//! handles a new incarnation. Races: `docs/PROTOCOL.md`, "Opening for writing".

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::claim::{Claim, Patience};
use super::handles::{Handles, Numbered};
use super::layout::Layout;
use super::lockfile::LockFile;
use super::logs::OpenLogs;
use super::modes::Modes;
use super::registry::{self, Key};
use super::sidecar::{FileMutex, PerFile};
use super::slots::{DeadSlot, Slots};
use super::sync_coalescer::SyncCoalescer;
use super::{files, fork};
use crate::error::{Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::lock::{Fate, Holders, Identity};
use crate::log::Watch;
use crate::storage::{LockKind, Storage};

/// A process's membership among the writers. Ends with its last `Arc`.
#[derive(Debug)]
pub struct Membership {
    storage: Arc<dyn Storage>,
    slots: Slots,
    identity: Identity,
    incarnation: u64,
    epoch: u64,
    // In this order: a slot that is held without presence looks like a replaced lock file.
    slot: LockFile,
    presence: LockFile,
    /// An `Arc` for the threads that serve the logs: a membership must not end in one of them.
    logs: Arc<OpenLogs>,
    syncs: PerFile<SyncCoalescer>,
    mutexes: PerFile<FileMutex>,
    handles: Handles,
}

/// The result of joining.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) member: Arc<Membership>,
    /// True when no other process was there, so that a new incarnation has begun.
    pub(super) alone: bool,
}

impl Membership {
    /// Become a member, under the claim.
    ///
    /// # Errors
    /// [`Error::TooManyWriters`], [`Error::LockFileReplaced`], [`Error::LockTimeout`] when another
    /// program holds `presence`, or those of the file system.
    pub(super) fn acquire(
        storage: &Arc<dyn Storage>,
        layout: &Layout,
        modes: Modes,
        claim: &Claim,
        patience: Patience,
    ) -> Result<Joined> {
        let epoch = fork::epoch();
        let slots = Slots::new(storage, layout);
        // A store that was restored from a backup has no lock files, nor their directory.
        files::make_dir(storage.as_ref(), &layout.slots(), modes.directory)?;
        let presence = LockFile::find_or_create(storage.as_ref(), &layout.presence(), modes.lock)?;
        let here = enter(storage.as_ref(), layout, &presence, &slots, patience)?;
        pass(Point::MemberPresence);
        let (slot, identity) = slots.take(modes, here.seen)?;
        pass(Point::MemberSlot);
        if identity.slot() >= here.seen {
            presence.write(&line(here.incarnation, identity.slot() + 1))?;
        }
        // If the claim was replaced meanwhile, its other holder was not kept out.
        claim.verify()?;
        let (storage, incarnation) = (storage.clone(), here.incarnation);
        let (logs, syncs, mutexes, handles) = Default::default();
        let member = Self {
            storage,
            slots,
            identity,
            incarnation,
            epoch,
            slot,
            presence,
            logs,
            syncs,
            mutexes,
            handles,
        };
        Ok(Joined { member: Arc::new(member), alone: here.alone })
    }

    /// Return this process's membership of the store, shared by all its handles; a new one if it
    /// has none, as in a forked child. `alone` is called, still under the claim, if no other
    /// process was there.
    ///
    /// # Errors
    /// As for [`Membership::acquire`], [`Error::LockTimeout`] for the claim, and those of `alone`.
    pub(super) fn join(
        storage: &Arc<dyn Storage>,
        layout: &Layout,
        modes: Modes,
        patience: Patience,
        alone: impl FnOnce(&Claim) -> Result<()>,
    ) -> Result<Arc<Self>> {
        let key = key(storage.as_ref(), layout)?;
        if let Some(member) = registry::member(key) {
            return Ok(member);
        }
        let claim = Claim::take(storage, layout, modes.lock, patience)?;
        let joined = Self::acquire(storage, layout, modes, &claim, patience)?;
        if joined.alone {
            alone(&claim)?;
        }
        claim.verify()?;
        // Two threads may have come here: the slower one's slot is released.
        Ok(registry::adopt(key, joined.member))
    }

    /// Return this process's identity in lock words.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Return the incarnation of the present members; never 0.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Check that this is still the process that became a member. Costs one load.
    ///
    /// # Errors
    /// [`Error::HandleClosed`] in a forked child: open the store again there.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if fork::epoch() == self.epoch {
            return Ok(());
        }
        Err(Error::HandleClosed { what: "handle was made before a fork and" })
    }

    /// Return a check by one load that [`Membership::check`] holds.
    pub(super) fn watch(&self) -> Watch {
        Watch::new(fork::word(), self.epoch)
    }

    /// Check that the lock files are still the ones that all processes lock. Two system calls each:
    /// for opening a log, creating or deleting a topic, and, once a second, waiting.
    ///
    /// # Errors
    /// [`Error::LockFileReplaced`], or [`Error::HandleClosed`] in a forked child.
    pub fn verify(&self) -> Result<()> {
        self.check()?;
        self.presence.expect_in_place(self.storage.as_ref())?;
        self.slot.expect_in_place(self.storage.as_ref())
    }

    /// Return the storage of the store's files.
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Return the logs that this process has open for writing.
    pub(super) fn logs(&self) -> &Arc<OpenLogs> {
        &self.logs
    }

    /// Return the directory of the slots, for messages.
    pub(crate) fn slots(&self) -> PathBuf {
        self.slots.path()
    }

    /// Return the coalescer for threads of this process that wait for a sync of the same file.
    pub(crate) fn sync_coalescer(&self, path: &Path) -> Arc<SyncCoalescer> {
        self.syncs.of(path, |_| true)
    }

    /// Return the mutex before the file of a queue, which processes lock by a word.
    pub(crate) fn file_mutex(&self, path: &Path) -> Arc<FileMutex> {
        self.mutexes.of(path, |mutex| mutex.try_lock().is_ok_and(|file| file.is_none()))
    }

    /// Wake the waiters for what leaves the machine, in the logs that this process has open.
    pub(super) fn notify_remote(&self) {
        self.logs.living().iter().for_each(|log| log.notify_remote());
    }

    /// Return a number by which others know a thing of this process.
    pub(crate) fn number(&self) -> Numbered {
        self.handles.number()
    }

    /// Return whether the owner of a number of this process still exists.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.handles.is_there(number)
    }

    /// Describe the process of an identity: `process 4711 (slot 3)`.
    pub fn describe(&self, holder: Identity) -> String {
        self.slots.describe(holder)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // Done here, and not when the last of them releases the logs: it wakes the store's
        // sleepers. A forked child has none of these threads, and may have inherited that lock
        // locked.
        if self.check().is_ok() {
            self.logs.end();
        }
    }
}

impl Holders for Membership {
    type Proof = DeadSlot;

    fn fate(&self, holder: Identity) -> io::Result<Fate<DeadSlot>> {
        self.check().map_err(io::Error::other)?;
        if holder == self.identity {
            return Ok(Fate::Alive);
        }
        self.slots.fate(holder).map_err(|error| match error {
            Error::SystemCallFailed { source, .. } => source,
            other => io::Error::other(other),
        })
    }
}

/// The incarnation that a process has entered.
struct Here {
    incarnation: u64,
    /// How many slots, from 0 on, were ever taken in it.
    seen: u16,
    alone: bool,
}

fn enter(
    storage: &dyn Storage,
    layout: &Layout,
    presence: &LockFile,
    slots: &Slots,
    mut patience: Patience,
) -> Result<Here> {
    let alone = presence.try_lock(LockKind::Exclusive)?;
    presence.expect_in_place(storage)?;
    let begun = if alone {
        slots.expect_all_free()?;
        let incarnation = random(storage, layout)?;
        presence.write(&line(incarnation, 0))?;
        Some((incarnation, 0))
    } else {
        None
    };
    // Replacing the exclusive lock by a shared one is not atomic: the claim, which every process
    // needs for either, is held meanwhile. Only another program's lock can be in the way.
    while !presence.try_lock(LockKind::Shared)? {
        if !patience.rest() {
            let holder = "a process of another program".into();
            return Err(Error::LockTimeout {
                path: layout.presence(),
                waited: patience.waited(),
                holder,
            });
        }
    }
    presence.expect_in_place(storage)?;
    let (incarnation, seen) = match begun {
        Some(begun) => begun,
        None => read(presence)?,
    };
    Ok(Here { incarnation, seen, alone })
}

/// Read what the first member wrote. While there are members it cannot be corrupt, unless the file
/// is another.
fn read(presence: &LockFile) -> Result<(u64, u16)> {
    let content = presence.read()?;
    let incarnation = content.word("incarnation").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let seen = content.number("slots");
    incarnation.filter(|id| *id != 0).zip(seen).ok_or_else(|| presence.replaced())
}

/// Return the incarnation in `presence`: that of the present members, or of the last ones.
pub(super) fn incarnation_now(storage: &dyn Storage, layout: &Layout) -> Option<u64> {
    let presence = LockFile::find(storage, &layout.presence()).ok()??;
    read(&presence).ok().map(|(incarnation, _)| incarnation)
}

/// Find out, without joining, whether any process has the store open for writing: return the
/// incarnation if so. The claim keeps processes from joining meanwhile.
///
/// # Errors
/// [`Error::LockTimeout`] for the claim, or those of the file system.
pub(super) fn somebody_writes(
    storage: &Arc<dyn Storage>,
    layout: &Layout,
    patience: Patience,
) -> Result<Option<u64>> {
    if LockFile::find(storage.as_ref(), &layout.claim())?.is_none() {
        // As in a restored backup: the first process makes it.
        return Ok(None);
    }
    let _claim = Claim::take(storage, layout, 0, patience)?;
    let Some(presence) = LockFile::find(storage.as_ref(), &layout.presence())? else {
        return Ok(None);
    };
    if presence.try_lock(LockKind::Exclusive)? {
        return Ok(None);
    }
    read(&presence).map(|(incarnation, _)| Some(incarnation))
}

fn line(incarnation: u64, seen: u16) -> String {
    format!("incarnation {incarnation:016x} slots {seen}")
}

fn random(storage: &dyn Storage, layout: &Layout) -> Result<u64> {
    loop {
        let drawn = storage.random();
        let number = drawn.doing("draw a random number for", layout.root())?;
        if number != 0 {
            return Ok(number);
        }
    }
}

fn key(storage: &dyn Storage, layout: &Layout) -> Result<Key> {
    let stat = storage.stat(&layout.root_itself()).doing("look at", layout.root())?;
    Ok((stat.device, stat.inode, storage.process_number()))
}
