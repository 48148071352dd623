//! Space and pages prepared ahead of the writer.
//!
//! Allocating a page of a file, and the first store into it, cost many times an append. A helper
//! thread, which the store lends to its logs, does both before the writer gets there. The faster
//! the writer is, the further ahead the helper works. A slow writer gets little, since every
//! touched page is written to disk even if it stays empty. Only speed depends on this: what the
//! helper does not do, or does late, the writer does. The helper never waits for a lock of the log.
//! See `docs/PROTOCOL.md`, "Append".

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::Thread;

use crate::format::address::Address;
use crate::segment::Segment;
use crate::storage::{File, Map};

use super::sync::punch_rest;
use super::{Control, Log, enter};

/// How far ahead of a slow and of a fast writer pages are touched, bytes.
const NEAREST: u64 = 256 << 10;
pub const FARTHEST: u64 = 16 << 20;
/// Most bytes that a segment grows by at once; a process that wants the same meanwhile waits for
/// it.
const LARGEST_STEP: u64 = 16 << 20;
/// Bytes touched before it looks at the writer's position again.
const PIECE: u64 = 2 << 20;
/// A writer that asks again within this time, in microseconds, is a fast one.
const SOON_US: i64 = 20_000;

/// The requested work, and the thread that does it.
#[derive(Debug, Default)]
pub struct Prefaulter {
    helper: OnceLock<Thread>,
    wanted: Mutex<Option<(Arc<Segment>, u64, u64)>>,
    next: Mutex<Option<NextSegment>>,
}

/// A prepared segment that is not in use yet.
#[derive(Clone, Debug)]
pub struct NextSegment {
    file: Arc<dyn File>,
    map: Map,
    /// How far its pages are to be touched.
    pub until: u64,
    /// The result of its sync.
    synced: Arc<Mutex<Option<io::Result<()>>>>,
}

impl NextSegment {
    /// Make it from a file that was written and not synced.
    pub fn new(file: Arc<dyn File>, map: Map) -> Self {
        Self { file, map, until: 0, synced: Arc::default() }
    }

    /// Return the result of the sync of its contents. The helper or the process that needs it syncs
    /// once: the kernel reports an error to only one of them.
    fn synced(&self) -> MutexGuard<'_, Option<io::Result<()>>> {
        let mut synced = enter(&self.synced);
        synced.get_or_insert_with(|| self.file.sync_all());
        synced
    }

    /// Sync it.
    ///
    /// # Errors
    /// Those of the sync, whichever thread did it. The segment must then be discarded.
    pub fn sync(&self) -> io::Result<()> {
        let mut synced = self.synced();
        match synced.take() {
            Some(Err(error)) => Err(error),
            done => {
                *synced = done;
                Ok(())
            }
        }
    }

    fn make_ready(&self) {
        drop(self.synced());
        // After the sync, which would otherwise write all these pages.
        for at in (0..self.until).step_by(PIECE as usize) {
            self.map.populate(at, PIECE.min(self.until - at));
        }
    }
}

/// A writer's requests so far, in its active segment.
#[derive(Debug)]
pub struct PrefaultCursor {
    until: u64,
    distance: u64,
    last_us: i64,
    is_next_ready: bool,
}

impl Default for PrefaultCursor {
    fn default() -> Self {
        Self { until: 0, distance: NEAREST, last_us: i64::MIN, is_next_ready: false }
    }
}

impl PrefaultCursor {
    /// Begin a new segment at the same speed; this much of it was requested already.
    pub fn begin_segment(&mut self, until: u64) {
        (self.until, self.is_next_ready) = (until, false);
    }

    /// Return true once in a segment of this size. It does when a fast writer is so near its end
    /// that its next pages lie in the next segment. Otherwise it would begin there with nothing
    /// prepared, and a helper that begins where a fast writer is never gets ahead of it.
    pub fn reaches_next(&mut self, segment_bytes: u64) -> bool {
        let is_fast = self.distance == FARTHEST && segment_bytes >= 2 * FARTHEST;
        let reaches = is_fast && self.until == segment_bytes && !self.is_next_ready;
        self.is_next_ready |= reaches;
        reaches
    }

    /// Request the pages after a position, as far as the segment may grow. Returns the position at
    /// which to request again.
    #[cold]
    pub fn request(&mut self, log: &Log, segment: &Arc<Segment>, position: u64) -> u64 {
        let now = log.storage.tick_us();
        let soon = now.saturating_sub(self.last_us) < SOON_US;
        let distance = if soon { self.distance * 2 } else { self.distance / 2 };
        (self.distance, self.last_us) = (distance.clamp(NEAREST, FARTHEST), now);
        let until = (position + self.distance).min(log.settings.segment_bytes);
        log.request_prefault(segment, self.until.max(position), until);
        self.until = until;
        position + self.distance / 4
    }
}

impl Log {
    /// Name the thread to wake when there is work; it then calls [`Log::prefault`]. The first one
    /// named stays.
    pub fn set_helper(&self, helper: Thread) {
        // A second one has no work.
        let _ = self.ahead.helper.set(helper);
    }

    /// Request `[from, until)` of a segment.
    fn request_prefault(&self, segment: &Arc<Segment>, from: u64, until: u64) {
        let Some(helper) = self.ahead.helper.get() else { return };
        // This runs under the append lock: it spends no time waiting for the helper.
        let Ok(mut wanted) = self.ahead.wanted.try_lock() else { return };
        // An earlier request that has not begun stays part of this one.
        let before = wanted.take().filter(|(before, ..)| before.sequence() == segment.sequence());
        let from = before.map_or(from, |(_, before, _)| before.min(from));
        *wanted = Some((Arc::clone(segment), from, until));
        drop(wanted);
        helper.unpark();
    }

    /// Request the sync and the pages of a prepared segment.
    pub(super) fn request_next(&self, next: NextSegment) {
        let Some(helper) = self.ahead.helper.get() else { return };
        *enter(&self.ahead.next) = Some(next);
        helper.unpark();
    }

    /// Allocate and touch the requested pages. The helper calls it.
    pub fn prefault(&self) {
        self.prefault_active();
        let next = enter(&self.ahead.next).take();
        if let Some(next) = next {
            next.make_ready();
        }
    }

    fn prefault_active(&self) {
        let wanted = enter(&self.ahead.wanted).take();
        let (Some((segment, from, until)), Some(control)) = (wanted, self.control.get()) else {
            return;
        };
        // Space comes first: a writer that must allocate loses more than by an untouched page.
        while self.grow_ahead(control, &segment, until) {}
        let mut at = from;
        while at < until {
            // A fast writer overtakes: the pages before it are done.
            let tail = control.tail();
            let begin = at.max(tail.position());
            let end = (begin + PIECE).min(until).min(control.allocated().position());
            if tail.sequence() != segment.sequence() || begin >= end {
                return;
            }
            segment.map().populate(begin, end - begin);
            at = end;
        }
    }

    /// Allocate the next piece of the active segment, if it does not reach so far already. False
    /// when there is nothing to do, or it cannot be done here: the writer then does it, and returns
    /// the error.
    fn grow_ahead(&self, control: &Control, segment: &Segment, until: u64) -> bool {
        let allocated = control.allocated();
        let (room, wanted) = (allocated.position(), self.growth_target(allocated.position()));
        let is_active = allocated.sequence() == segment.sequence() && control.flags() == 0;
        // If stores are writes, only the lock's owner changes the word.
        if self.fast.is_none() || !is_active || room >= until || wanted <= room {
            return false;
        }
        if segment.file().allocate(wanted).is_err() {
            return false;
        }
        if control.tail().sequence() != segment.sequence() {
            // It was sealed meanwhile, perhaps full: a helper that was stopped here does not know
            // its end.
            if let Ok((_, end)) = self.chain.successor(segment) {
                punch_rest(segment, end);
            }
            return false;
        }
        control.raise_allocated(Address::new(segment.sequence(), wanted)).is_ok()
    }

    /// Return the size to which a segment of this allocation grows: twice that, with a limit on
    /// each step.
    pub(super) fn growth_target(&self, room: u64) -> u64 {
        (room + room.min(LARGEST_STEP)).min(self.settings.segment_bytes)
    }
}
