//! Slots: files whose lock a writing process holds for life, so that its death is known.
//!
//! Owns `slots/<n>`: taking one, and finding out whether its process lives. A slot's *generation*
//! says how often it was taken; slot and generation are the [`Identity`] in lock words. Invariants:
//! only the holder of the slot's lock raises its generation, and does so before any process sees
//! the identity. An identity is dead as soon as another process has had the lock of its slot, and
//! nothing else makes it dead.
//!
//! ```text
//! claimed ── holder lives: locked, generation g ──┬─ dies: lock free, generation g ──> dead
//!                                                 └─ next claim: locked, generation g+1 ─> g is dead
//! ```
//!
//! [`super::membership`] decides when a slot may be taken (under the claim). Process ids and times
//! in the files only explain; no decision uses them (`docs/PROTOCOL.md`, "Slots").

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::claim::Patience;
use super::layout::{self, Layout};
use super::lockfile::{Content, LockFile};
use super::modes::Modes;
use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult, Result};
use crate::lock::{Fate, GENERATION_MAX, Identity, SLOTS};
use crate::storage::{LockKind, Storage};

/// How long a slot may stay locked after presence is free: the kernel closes a dying process's
/// files one after the other.
const DYING: Duration = Duration::from_secs(1);

/// Evidence that a process is dead: the lock of its slot, unless the slot was taken again.
#[derive(Debug)]
pub struct DeadSlot(#[allow(dead_code, reason = "holding it is its use")] Option<LockFile>);

/// A slot, and its last process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotInfo {
    /// Its number.
    pub slot: u16,
    /// How often it was taken.
    pub generation: Option<u32>,
    /// Process number of its last process, in the namespace of that process.
    pub process: Option<u32>,
    /// When it was taken, microseconds since 1970.
    pub since_us: Option<i64>,
    /// Whether that process lives; `None` if unknown.
    pub alive: Option<bool>,
}

/// The slots of a store.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    storage: Arc<dyn Storage>,
    layout: Layout,
}

impl Slots {
    pub(super) fn new(storage: &Arc<dyn Storage>, layout: &Layout) -> Self {
        Self { storage: storage.clone(), layout: layout.clone() }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.layout.slots()
    }

    /// List every slot file that this user may read: its last process, and whether that one lives.
    /// A shared lock, held for a moment, tells; a process that tries to take the slot just then
    /// takes another.
    pub(super) fn look(&self) -> Vec<SlotInfo> {
        let names = self.storage.list(&self.layout.slots()).unwrap_or_default();
        let mut slots: Vec<_> = names.iter().filter_map(|name| layout::parse_slot(name)).collect();
        slots.sort_unstable();
        slots.into_iter().filter_map(|slot| self.look_into(slot)).collect()
    }

    fn look_into(&self, slot: u16) -> Option<SlotInfo> {
        let file = LockFile::find(self.storage.as_ref(), &self.layout.slot(slot)).ok()??;
        let alive = file.try_lock(LockKind::Shared).ok().map(|free| !free);
        let content = file.read().unwrap_or(Content::Damaged);
        Some(SlotInfo {
            slot,
            generation: content.number("generation"),
            process: content.number("process"),
            since_us: content.number("since_us"),
            alive,
        })
    }

    /// Check that no slot is held, by the exclusive holder of presence.
    ///
    /// # Errors
    /// [`Error::LockFileReplaced`] when one is: its holder holds another presence file than ours.
    pub(super) fn expect_all_free(&self) -> Result<()> {
        let path = self.layout.slots();
        let names = self.storage.list(&path).doing("list", &path)?;
        let mut patience = Patience::new(DYING);
        for slot in names.iter().filter_map(|name| layout::parse_slot(name)) {
            let Some(file) = LockFile::find(self.storage.as_ref(), &self.layout.slot(slot))? else {
                continue;
            };
            while !file.try_lock(LockKind::Exclusive)? {
                if !patience.rest() {
                    return Err(Error::LockFileReplaced { path: self.layout.presence() });
                }
            }
        }
        Ok(())
    }

    /// Take the first free slot. `seen` says how many were ever taken in this incarnation. Below
    /// that, a missing or empty slot file was replaced while its holder may live.
    ///
    /// # Errors
    /// [`Error::TooManyWriters`], [`Error::LockFileReplaced`], or those of the file system.
    pub(super) fn take(&self, modes: Modes, seen: u16) -> Result<(LockFile, Identity)> {
        for slot in 0..SLOTS {
            if let Some(taken) = self.try_take(slot, modes, slot < seen)? {
                return Ok(taken);
            }
        }
        Err(Error::TooManyWriters { path: self.layout.slots(), limit: SLOTS.into() })
    }

    fn try_take(
        &self,
        slot: u16,
        modes: Modes,
        seen: bool,
    ) -> Result<Option<(LockFile, Identity)>> {
        let storage = self.storage.as_ref();
        let path = self.layout.slot(slot);
        let file = if seen {
            let replaced = Error::LockFileReplaced { path: path.clone() };
            LockFile::find(storage, &path)?.ok_or(replaced)?
        } else {
            LockFile::find_or_create(storage, &path, modes.lock)?
        };
        if !file.try_lock(LockKind::Exclusive)? {
            return Ok(None);
        }
        file.expect_in_place(storage)?;
        let generation = match (file.read()?, seen) {
            // No process of this incarnation has had it. Lock words that name it are of an earlier
            // incarnation, and are reset before any process waits for them.
            (Content::Nothing | Content::Damaged, false) => 1,
            (Content::Nothing, true) => return Err(file.replaced()),
            // Its generation is lost, so its former holder could not be distinguished from us.
            (Content::Damaged, true) => return Ok(None),
            (line, _) => match line.number("generation") {
                Some(generation) => next_generation(generation),
                None => return Ok(None),
            },
        };
        let Some(identity) = Identity::new(slot, generation) else { return Ok(None) };
        let (process, now_us) = (std::process::id(), storage.now_us());
        file.write(&format!("generation {generation} process {process} since_us {now_us}"))?;
        Ok(Some((file, identity)))
    }

    /// Find out whether a process lives, by its identity. Not for the process's own.
    pub(super) fn fate(&self, holder: Identity) -> Result<Fate<DeadSlot>> {
        let storage = self.storage.as_ref();
        let path = self.layout.slot(holder.slot());
        let replaced = Error::LockFileReplaced { path: path.clone() };
        let file = LockFile::find(storage, &path)?.ok_or(replaced)?;
        let free = file.try_lock(LockKind::Exclusive)?;
        file.expect_in_place(storage)?;
        let now = file.read()?.number::<u32>("generation");
        match now {
            // A process that raised it had the lock, so the previous one had lost it.
            Some(now) if is_later(now, holder.generation()) => {
                Ok(Fate::Dead(DeadSlot(free.then_some(file))))
            }
            Some(now) if free && now == holder.generation() => Ok(Fate::Dead(DeadSlot(Some(file)))),
            _ if free => Err(file.replaced()),
            // Its holder, another check like this one, or a process that is about to raise it.
            _ => Ok(Fate::Alive),
        }
    }

    /// Describe the process of an identity.
    pub(super) fn describe(&self, holder: Identity) -> String {
        let slot = holder.slot();
        let file = LockFile::find(self.storage.as_ref(), &self.layout.slot(slot)).ok().flatten();
        let content = file.and_then(|file| file.read().ok());
        let found =
            content.as_ref().and_then(|c| Some((c.number("generation")?, c.number("process")?)));
        match found {
            Some((generation, process)) if generation == holder.generation() => {
                let process: u32 = process;
                format!("process {process} (slot {slot})")
            }
            Some((generation, _)) if is_later(generation, holder.generation()) => {
                format!("a process that has ended (slot {slot})")
            }
            _ => format!("an unknown process (slot {slot})"),
        }
    }
}

/// Return the next generation, from 1 again after the highest: 0 means none.
fn next_generation(generation: u32) -> u32 {
    if planted(Canary::NoGeneration) {
        return generation;
    }
    if generation >= GENERATION_MAX { 1 } else { generation + 1 }
}

/// Return true when `now` came after `then`. Generations wrap around; half of the range is the
/// past.
fn is_later(now: u32, then: u32) -> bool {
    let ahead = now.wrapping_sub(then) & GENERATION_MAX;
    ahead != 0 && ahead <= GENERATION_MAX / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_go_round_without_zero_and_stay_ordered() {
        assert_eq!(next_generation(0), 1);
        assert_eq!(next_generation(GENERATION_MAX), 1);
        assert!(is_later(2, 1) && !is_later(1, 2) && !is_later(1, 1));
        assert!(is_later(1, GENERATION_MAX) && !is_later(GENERATION_MAX, 1));
    }
}
