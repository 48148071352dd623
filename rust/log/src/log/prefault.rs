//! Room and pages made ahead of the writer.
//!
//! Allocating a page of a file, and the first store into it, cost many times an append. A helper
//! thread, which the store lends to its logs, does both before the writer gets there: the faster it
//! writes, the further ahead, for a page that is touched will be written out even if nothing comes to
//! lie on it. Only speed depends on this: what the helper does not do, or does late, the writer does.
//! The helper never waits for a lock of the log. See `docs/PROTOCOL.md`, "Append".

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
/// Most that a segment grows by at once, bytes: whoever wants the same meanwhile waits for it.
const LARGEST_STEP: u64 = 16 << 20;
/// Bytes that are touched before looking how far the writer is.
const PIECE: u64 = 2 << 20;
/// A writer that asks again within this time is a fast one, microseconds.
const SOON_US: i64 = 20_000;

/// What is to be touched, and who does it.
#[derive(Debug, Default)]
pub struct Prefaulter {
    helper: OnceLock<Thread>,
    wanted: Mutex<Option<(Arc<Segment>, u64, u64)>>,
    next: Mutex<Option<NextSegment>>,
}

/// What can be done for a segment that is only prepared yet.
#[derive(Clone, Debug)]
pub struct NextSegment {
    file: Arc<dyn File>,
    map: Map,
    /// Up to where it is to be touched.
    pub until: u64,
    /// How its sync ended.
    synced: Arc<Mutex<Option<io::Result<()>>>>,
}

impl NextSegment {
    /// Of a file that was written and not synced.
    pub fn new(file: Arc<dyn File>, map: Map) -> Self {
        Self { file, map, until: 0, synced: Arc::default() }
    }

    /// How the sync of what is in it ended. The helper does it or who needs it, once: of an error the
    /// kernel tells one of them only.
    fn synced(&self) -> MutexGuard<'_, Option<io::Result<()>>> {
        let mut synced = enter(&self.synced);
        synced.get_or_insert_with(|| self.file.sync_all());
        synced
    }

    /// Have it on the medium.
    ///
    /// # Errors
    /// Those of the sync, whoever did it. It must then be thrown away.
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
        // Not before the sync, which would write all these pages out.
        for at in (0..self.until).step_by(PIECE as usize) {
            self.map.populate(at, PIECE.min(self.until - at));
        }
    }
}

/// What a writer has asked for so far, of its active segment.
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
    /// Go on in a new segment, as fast as in the one before; of this one so much was asked for.
    pub fn begin_segment(&mut self, until: u64) {
        (self.until, self.is_next_ready) = (until, false);
    }

    /// True once in a segment of this size: when a fast writer is so near to its end that what it will
    /// want touched lies in the next one. Without that it would begin there with nothing, and a helper
    /// that begins where the writer is gets no lead on a fast one.
    pub fn reaches_next(&mut self, segment_bytes: u64) -> bool {
        let is_fast = self.distance == FARTHEST && segment_bytes >= 2 * FARTHEST;
        let reaches = is_fast && self.until == segment_bytes && !self.is_next_ready;
        self.is_next_ready |= reaches;
        reaches
    }

    /// Ask for what follows a position, as far as the segment may grow. Returns the position at which
    /// to ask again.
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
    /// Name the thread that is woken when there is something to touch; it then calls
    /// [`Log::prefault`]. The first one named stays.
    pub fn set_helper(&self, helper: Thread) {
        // A second one has nothing to do.
        let _ = self.ahead.helper.set(helper);
    }

    /// Ask for `[from, until)` of a segment to be touched.
    fn request_prefault(&self, segment: &Arc<Segment>, from: u64, until: u64) {
        let Some(helper) = self.ahead.helper.get() else { return };
        // Under the append lock: not a moment is spent waiting for the helper.
        let Ok(mut wanted) = self.ahead.wanted.try_lock() else { return };
        // What was asked for before and not begun yet is still wanted.
        let before = wanted.take().filter(|(before, ..)| before.sequence() == segment.sequence());
        let from = before.map_or(from, |(_, before, _)| before.min(from));
        *wanted = Some((Arc::clone(segment), from, until));
        drop(wanted);
        helper.unpark();
    }

    /// Ask for a segment that is only prepared yet to be made ready.
    pub(super) fn request_next(&self, next: NextSegment) {
        let Some(helper) = self.ahead.helper.get() else { return };
        *enter(&self.ahead.next) = Some(next);
        helper.unpark();
    }

    /// Allocate and touch what was asked for. Called by the helper.
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
        // Room first: a writer that has to make it itself loses more than by a page not touched.
        while self.grow_ahead(control, &segment, until) {}
        let mut at = from;
        while at < until {
            // A fast writer overtakes: what it has behind it is done.
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

    /// Allocate the next piece of the active segment, if it does not reach so far already. False when
    /// there is nothing to do, or it cannot be done here: the writer then does it, and says what is
    /// wrong.
    fn grow_ahead(&self, control: &Control, segment: &Segment, until: u64) -> bool {
        let allocated = control.allocated();
        let (room, wanted) = (allocated.position(), self.growth_target(allocated.position()));
        let is_active = allocated.sequence() == segment.sequence() && control.flags() == 0;
        // Where stores are writes, the word is changed under the lock alone.
        if self.fast.is_none() || !is_active || room >= until || wanted <= room {
            return false;
        }
        if segment.file().allocate(wanted).is_err() {
            return false;
        }
        if control.tail().sequence() != segment.sequence() {
            // Sealed meanwhile, and perhaps filled before: who was stopped here does not know up to where.
            if let Ok((_, end)) = self.chain.successor(segment) {
                punch_rest(segment, end);
            }
            return false;
        }
        control.raise_allocated(Address::new(segment.sequence(), wanted)).is_ok()
    }

    /// How far a segment grows that is allocated up to here: to twice that, and not too much at once.
    pub(super) fn growth_target(&self, room: u64) -> u64 {
        (room + room.min(LARGEST_STEP)).min(self.settings.segment_bytes)
    }
}
