//! Pages touched ahead of the writer.
//!
//! The first store into a fresh page of a file costs many times an append. A helper thread, which
//! the store lends to its logs, touches them before the writer gets there. Only speed depends on it:
//! what it does not do, or does late, the writer's own store does.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;

use crate::segment::Segment;

use super::{Log, enter};

/// What is to be touched, and who does it.
#[derive(Debug, Default)]
pub struct Ahead {
    helper: OnceLock<Thread>,
    wanted: Mutex<Option<(Arc<Segment>, u64, u64)>>,
}

impl Log {
    /// Name the thread that is woken when there is something to touch; it then calls
    /// [`Log::touch`]. The first one named stays.
    pub fn set_helper(&self, helper: Thread) {
        // A second one has nothing to do.
        let _ = self.ahead.helper.set(helper);
    }

    /// Ask for `[from, until)` of a segment to be touched.
    pub(super) fn ask_to_touch(&self, segment: &Arc<Segment>, from: u64, until: u64) {
        let Some(helper) = self.ahead.helper.get() else { return };
        // Under the append lock: not a moment is spent waiting for the helper.
        let Ok(mut wanted) = self.ahead.wanted.try_lock() else { return };
        *wanted = Some((Arc::clone(segment), from, until));
        drop(wanted);
        helper.unpark();
    }

    /// Touch what was asked for. Called by the helper.
    pub fn touch(&self) {
        let wanted = enter(&self.ahead.wanted).take();
        let Some((segment, from, until)) = wanted else { return };
        let allocated = self.control.get().map_or(0, |control| {
            let allocated = control.allocated();
            if allocated.sequence() == segment.sequence() { allocated.position() } else { 0 }
        });
        let until = until.min(allocated);
        if until > from {
            segment.map().populate(from, until - from);
        }
    }
}
