//! What a handle owes the queue: leases that it got, and that no caller was told of.
//!
//! Owns them from where a record turns out to be none to hand out now until that is stored under the
//! queue's lock: by the same call, or, where others kept the lock from it, by whatever the handle does
//! next. Invariant: of a lease that is in here no caller knows.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::store::fork;

use super::ring::{Back, Ring};
use super::{Lease, Now};

/// What becomes of the job.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReturnKind {
    /// It goes back as it is, to be delivered at once, or from a time of the wall clock on.
    Back(Option<u64>),
    /// Its record is gone for a newer one of its key.
    Done,
    /// The records before this one are gone.
    Trimmed(u64),
}

/// Leases to be settled.
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

    /// A forked child may have inherited it locked. What is in it is the parent's to settle then.
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

    /// Settle all, under the queue's lock; true where that may concern who waits.
    pub(super) fn return_leases(&self, ring: &mut Ring<'_>, now: Now) -> Result<bool> {
        let Some(mut list) = self.is_any().then(|| self.list()).flatten() else {
            return Ok(false);
        };
        let is_any = !list.is_empty();
        while let Some((lease, how)) = list.front() {
            // What is over is somebody else's, and needs nothing.
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
