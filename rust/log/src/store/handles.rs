//! Handles: numbers by which other processes know things of this process.
//!
//! Owns the numbers, from 1 and never used twice, and whether the owner of each still exists. A
//! file may have a word with a number of this process whose owner is gone: it could not clear the
//! word. Such a word names no owner. Other processes cannot ask; they see whether the process
//! lives. A forked child has numbers of its own, because it has a membership of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A number, reserved while this value lives.
#[derive(Debug)]
pub(crate) struct Numbered {
    pub(crate) number: u32,
    /// Dropped without a lock, which a forked child may have inherited locked.
    _alive: Arc<()>,
}

/// The numbers of a process.
#[derive(Debug, Default)]
pub(super) struct Handles {
    last: AtomicU32,
    alive: Mutex<BTreeMap<u32, Weak<()>>>,
}

impl Handles {
    /// Return a number that was never used before.
    pub(super) fn number(&self) -> Numbered {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let is_there = Arc::new(());
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        alive.retain(|_, thing| thing.strong_count() > 0);
        alive.insert(number, Arc::downgrade(&is_there));
        Numbered { number, _alive: is_there }
    }

    /// Return whether the owner of a number still exists.
    pub(super) fn is_there(&self, number: u32) -> bool {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        alive.get(&number).is_some_and(|thing| thing.strong_count() > 0)
    }
}
