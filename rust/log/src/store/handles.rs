//! Handles: which numbers a process gave out to things of it that others know by number.
//!
//! Owns the numbers, from 1 and never given out twice, and whether what got one is still there. A word
//! in a file that names a number of this process of which that is not so names nobody: the thing is
//! gone, and could not take the word away with it. Other processes cannot ask; they see whether the
//! process lives. A forked child has numbers of its own, because it has a membership of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A number, for as long as this is kept.
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
    /// A number that nothing had before.
    pub(super) fn number(&self) -> Numbered {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let is_there = Arc::new(());
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        alive.retain(|_, thing| thing.strong_count() > 0);
        alive.insert(number, Arc::downgrade(&is_there));
        Numbered { number, _alive: is_there }
    }

    /// Whether what got a number is still there.
    pub(super) fn is_there(&self, number: u32) -> bool {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        alive.get(&number).is_some_and(|thing| thing.strong_count() > 0)
    }
}
