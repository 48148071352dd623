//! Ending the active segment before it is full, so that compaction may look at it.
//!
//! Owns that, and what a segment that is ended early needs: room. What compaction leaves of a segment, and
//! of those before it, has to end where the segment ended, so one that ends right behind a handful of
//! records could neither be put together with others nor lose a tombstone. A void block in front of its
//! end gives it that room; compaction turns what it does not need of it into a hole. Invariant: it is
//! placed as any block is, under the append lock and behind a dirty end, so whatever dies here is mended
//! as an append is.

use crate::error::Result;
use crate::format::address::ALIGN;
use crate::segment::create::void_header;

use super::append::RESERVE;
use super::commit::Kept;
use super::{Control, Log, Member};

/// Bytes of room at most. Small segments become one as long as what is left of all of them fits into it.
const ROOM: u64 = 64 << 10;
/// The share of a segment that it is at most.
const SHARE: u64 = 16;

impl Log {
    /// End the active segment, unless nothing was appended to it.
    pub(super) fn seal(&self) -> Result<()> {
        let (control, member) = self.writing()?;
        let mut tail = self.sync()?;
        // A sync that clears a latch leaves the end of the log in another segment, as a roll does.
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

    /// Leave room at the end of a segment, if that is the active one and not full anyhow: a void block.
    fn leave_room(&self, control: &Control, member: &dyn Member, sequence: u64) -> Result<()> {
        let needs = ROOM.min(self.settings.segment_bytes / SHARE).next_multiple_of(ALIGN);
        self.append_own(control, member, Kept::Nothing, |writer| {
            let is_full = writer.tail.position() + needs + RESERVE > self.settings.segment_bytes;
            let is_active = writer.tail.sequence() == sequence;
            (is_active && !is_full).then(|| (void_header(0, needs), Vec::new()))
        })
    }
}
