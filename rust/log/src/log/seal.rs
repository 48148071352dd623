//! Ending the active segment before it is full, so that it can be compacted.
//!
//! Owns that, and the space that a segment needs if it ends early. The kept records of a segment,
//! and of those before it, have to end where the segment ended. So a segment that ends right after
//! a handful of records could neither be merged with others nor lose a tombstone. A void block
//! before its end gives it that space; compaction turns the unused part into a hole. Invariant: it
//! is placed as any block is, under the append lock and behind a dirty end. So a death here is
//! repaired as one in an append is.

use crate::error::Result;
use crate::format::address::ALIGN;
use crate::segment::create::void_header;

use super::append::RESERVE;
use super::commit::Kept;
use super::{Control, Log, Member};

/// Most bytes of that space. Small segments become one while what is kept of all of them fits into
/// it.
const ROOM: u64 = 64 << 10;
/// Largest share of a segment that it takes.
const SHARE: u64 = 16;

impl Log {
    /// End the active segment, unless nothing was appended to it.
    pub(super) fn seal(&self) -> Result<()> {
        let (control, member) = self.writing()?;
        let mut tail = self.sync()?;
        // A sync that ends the failed-sync state leaves the end of the log in another segment, as a
        // roll does.
        while control.tail().sequence() != tail.sequence() {
            tail = self.sync()?;
        }
        let active = self.chain.segment(tail.sequence())?;
        if self.opening(&active)?.position >= tail.position() {
            return Ok(());
        }
        self.leave_room(control, member, tail.sequence())?;
        self.roll_now()
    }

    /// Leave space at the end of a segment, as a void block, if that is the active one and not
    /// nearly full.
    fn leave_room(&self, control: &Control, member: &dyn Member, sequence: u64) -> Result<()> {
        let needs = ROOM.min(self.settings.segment_bytes / SHARE).next_multiple_of(ALIGN);
        self.append_own(control, member, Kept::Nothing, |writer| {
            let is_full = writer.tail.position() + needs + RESERVE > self.settings.segment_bytes;
            let is_active = writer.tail.sequence() == sequence;
            (is_active && !is_full).then(|| (void_header(0, needs), Vec::new()))
        })
    }
}
