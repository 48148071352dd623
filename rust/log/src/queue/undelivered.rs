//! Leases that a handle owes the queue: it got them, and delivered them to no caller.
//!
//! Owns each such lease from the moment when its record cannot be delivered now until the queue has it
//! back. That is stored under the queue's lock by the same call. If others hold the lock, the handle's
//! next call stores it. Invariant: no caller knows of a lease in here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::store::fork;

use super::ring::{Back, Ring};
use super::{Lease, Now};

/// The way in which a job returns to the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReturnKind {
    /// It returns as it is, to be delivered at once, or from a time of the wall clock on.
    Back(Option<u64>),
    /// Compaction removed its record for a newer one of its key.
    Done,
    /// The records before this offset were deleted.
    Trimmed(u64),
}

/// Leases to return.
#[derive(Debug)]
pub(super) struct Undelivered {
    epoch: u64,
    is_any: AtomicBool,
    list: Mutex<VecDeque<(Lease, ReturnKind)>>,
}

impl Undelivered {
    pub(super) fn none() -> Self {
        Self { epoch: fork::epoch(), is_any: AtomicBool::new(false), list: Mutex::default() }
    }

    /// A forked child may have inherited it locked. The leases in it are then the parent's to return.
    fn list(&self) -> Option<MutexGuard<'_, VecDeque<(Lease, ReturnKind)>>> {
        if self.epoch == fork::epoch() {
            return Some(self.list.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.list.try_lock().ok()
    }

    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, lease: Lease, how: ReturnKind) {
        if let Some(mut list) = self.list() {
            list.push_back((lease, how));
            self.is_any.store(true, Ordering::Relaxed);
        }
    }

    /// Return all leases, under the queue's lock; true where waiting workers may have to look.
    pub(super) fn return_leases(&self, ring: &mut Ring<'_>, now: Now) -> Result<bool> {
        let Some(mut list) = self.is_any().then(|| self.list()).flatten() else {
            return Ok(false);
        };
        let is_any = !list.is_empty();
        while let Some((lease, how)) = list.front() {
            // A lease that is over is another worker's, and needs nothing.
            if let Ok(found) = ring.held(lease, now) {
                match *how {
                    ReturnKind::Back(until) => {
                        ring.give_back(lease.offset, &found, until, Back::Unworked, now)?;
                    }
                    ReturnKind::Done => ring.done(lease.offset, &found, 0, now)?,
                    ReturnKind::Trimmed(first) => ring.trimmed(first, now)?,
                }
            }
            list.pop_front();
        }
        self.is_any.store(false, Ordering::Relaxed);
        if is_any {
            ring.tell()?;
        }
        Ok(is_any)
    }
}
