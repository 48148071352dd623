//! Ending the active segment before it is full, so that compaction may look at it.
//!
//! Owns that, and what a segment that is ended early needs: room. What compaction leaves of a segment, and
//! of those before it, has to end where the segment ended, so one that ends right behind a handful of
//! records could neither be put together with others nor lose a tombstone. A void block in front of its
//! end gives it that room; compaction turns what it does not need of it into a hole. Invariant: it is
//! placed as any block is, under the append lock and behind a dirty end, so whatever dies here is mended
//! as an append is.

use crate::error::Result;
use crate::failpoints::{Point, pass};
use crate::format::address::ALIGN;
use crate::segment::create::void_header;

use super::append::{Blocked, RESERVE, Writer};
use super::commit::Kept;
use super::guard::Which;
use super::{Control, Log, Member, enter};

type Outcome = std::result::Result<(), Blocked>;

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

    /// Leave room at the end of a segment, if that is the active one and not full anyhow.
    fn leave_room(&self, control: &Control, member: &dyn Member, sequence: u64) -> Result<()> {
        let needs = ROOM.min(self.settings.segment_bytes / SHARE).next_multiple_of(ALIGN);
        let mut slot = enter(&self.writer);
        let writer = self.writer_in(&mut slot, control)?;
        loop {
            writer.catch_up(self, control)?;
            let is_full = writer.tail.position() + needs + RESERVE > self.settings.segment_bytes;
            if writer.tail.sequence() != sequence || is_full {
                return Ok(());
            }
            let guard = self.lock(Which::Append)?;
            pass(Point::AppendLocked);
            let placed = writer
                .under_lock(self, control, &guard)
                .and_then(|()| writer.place_room(control, sequence, needs));
            drop(guard);
            match placed {
                Ok(()) => {
                    pass(Point::AppendUnlocked);
                    control.notify(true);
                    return Ok(());
                }
                Err(obstacle) => self.resolve(obstacle, writer, control, member)?,
            }
        }
    }
}

impl Writer {
    /// Under the append lock: the void block.
    fn place_room(&mut self, control: &Control, wanted: u64, needs: u64) -> Outcome {
        if self.tail.sequence() != wanted {
            return Err(Blocked::Moved);
        }
        let start = self.tail.position();
        self.write_own(control, Kept::Nothing, &void_header(start, start + needs), &[])
    }
}
