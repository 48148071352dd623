//! Going on beyond damage that hides what a topic's next offset is.
//!
//! A walk over damage is unsure of the topics that may have records in it ([`Walk`]). Appends to
//! them need no help: they begin a new segment, whose snapshot says an offset that is certainly
//! beyond. This room does the same at once, for `falaj repair`, and tells it. Invariant: no offset
//! that a reader may have seen is given again. See `docs/PROTOCOL.md`, "Damage and offsets".

use crate::error::Result;
use crate::segment::Segment;
use crate::segment::walk::{Lost, Walk};

use super::mending::{Mend, MendStep};
use super::{Log, enter};

/// What has to be done so that each topic of which a walk is unsure goes on, in words.
pub fn leaps(segment: &Segment, walk: &Walk) -> Vec<MendStep> {
    let state = walk.state_beyond_damage();
    let step = |(number, lost): (u32, Lost)| {
        let known = walk.state.topic(number)?;
        let next = state.topic(number)?.next;
        let (path, position) = (segment.path().to_path_buf(), lost.position);
        let why = format!(
            "offsets from {} of partition {} (topic number {number}) may lie in damage: it goes on \
             with {next}",
            known.next, known.partition
        );
        Some(MendStep { mend: Mend::GoBeyond, path, position, bytes: 0, why })
    };
    walk.unsure().filter_map(step).collect()
}

impl Log {
    /// What [`Log::mend_offsets`] would do.
    ///
    /// # Errors
    /// `Corrupt`, `Newer`, `Io`.
    pub fn offsets_to_mend(&self) -> Result<Vec<MendStep>> {
        let Some(tail) = self.committed() else { return Ok(Vec::new()) };
        let mut segment = self.chain.segment(tail.sequence())?;
        let mut walk = segment.opening()?.clone();
        walk.go_to(&mut segment, tail.position())?;
        Ok(leaps(&segment, &walk))
    }

    /// Go on in a new segment if damage hides the next offset of any topic, beyond all that may lie
    /// in it; says what was done.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn mend_offsets(&self) -> Result<Vec<MendStep>> {
        let (control, member) = self.writing()?;
        member.check()?;
        let steps = {
            let mut slot = enter(&self.writer);
            let writer = self.writer_in(&mut slot, control)?;
            writer.catch_up(self, control)?;
            leaps(&writer.segment, &writer.walk)
        };
        if !steps.is_empty() {
            self.roll_now()?;
        }
        Ok(steps)
    }
}
