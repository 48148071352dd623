//! Appending after corruption that hides a topic's next offset, or the moves of cursors.
//!
//! A walk over corruption is unsure of the topics that may have records in it ([`SegmentWalker`]).
//! Appends to them need no help: they begin a new segment, whose snapshot has an offset that is
//! certainly beyond. This module does the same at once, for `falaj repair`, and reports it. After
//! corruption, the cursors, idempotency keys and producers that the log knows are in doubt
//! ([`LogState::doubt`]), in all later segments too. Reads and moves of them fail until `falaj
//! repair` declares the known ones valid. Invariants: no offset that a reader may have seen is
//! given again. No cursor, key or producer that corruption may have set back is believed silently.
//! See `docs/PROTOCOL.md`, "Corruption and offsets".

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::names;
use crate::format::state::{LogState, encode_trust};
use crate::segment::Segment;
use crate::segment::walk::{OffsetGap, SegmentWalker};

use super::repair_report::{RepairKind, RepairStep};
use super::{Log, enter};

/// Describe the steps after which topics continue whose next offset a walk does not know.
pub fn leaps(segment: &Segment, walk: &SegmentWalker) -> Vec<RepairStep> {
    let state = walk.state_beyond_damage();
    let step = |(number, lost): (u32, OffsetGap)| {
        let known = walk.state.topic(number)?;
        let next = state.topic(number)?.next;
        let (path, position) = (segment.path().to_path_buf(), lost.position);
        let why = format!(
            "offsets from {} of partition {} (topic number {number}) may lie in corruption: it continues \
             with {next}",
            known.next, known.partition
        );
        Some(RepairStep { mend: RepairKind::GoBeyond, path, position, bytes: 0, why })
    };
    walk.unsure().filter_map(step).collect()
}

/// Describe the step after which cursors, idempotency keys and producers are believed again.
pub fn doubted(dir: &Path, state: &LogState) -> Option<RepairStep> {
    let from = state.doubt()?;
    let path = dir.join(names::segment(from.sequence()));
    let why = format!(
        "corruption may hide newer cursors, idempotency keys and producers: the known {}, {} and {} count as \
         valid, and work that was done since may be done again",
        counted(state.cursors().count(), "cursor"),
        counted(state.tokens().count(), "idempotency key"),
        counted(state.producers(0..u32::MAX).count(), "producer"),
    );
    Some(RepairStep { mend: RepairKind::AsKnown, path, position: from.position(), bytes: 0, why })
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Log {
    /// Refuse facts that corruption may have set back.
    ///
    /// # Errors
    /// `CorruptData`, with the place where the corruption begins.
    #[inline]
    pub(super) fn sure_of_facts(&self, state: &LogState) -> Result<()> {
        let Some(from) = state.doubt() else { return Ok(()) };
        let path = self.dir.join(names::segment(from.sequence()));
        let what = "from here on corruption may hide newer cursors, idempotency keys and producers; \
                    `falaj repair` declares the known ones valid";
        Err(Error::corrupt(&path, from.position(), what))
    }

    /// List what [`Log::mend_offsets`] would do.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    pub fn offsets_to_mend(&self) -> Result<Vec<RepairStep>> {
        let Some(tail) = self.committed() else { return Ok(Vec::new()) };
        let mut segment = self.chain.segment(tail.sequence())?;
        let mut walk = segment.opening()?.clone();
        walk.go_to(&mut segment, tail.position())?;
        Ok(leaps(&segment, &walk).into_iter().chain(doubted(&self.dir, &walk.state)).collect())
    }

    /// Begin a new segment if corruption hides the next offset of any topic, with offsets beyond
    /// all that may lie in it. Declare the known cursors, idempotency keys and producers valid.
    /// Returns what was done. If this process knew the log before it was corrupted, the new segment
    /// has all that it knows instead.
    ///
    /// # Errors
    /// As [`Log::append`] and [`Log::sync_to`].
    pub fn mend_offsets(&self) -> Result<Vec<RepairStep>> {
        let (control, member) = self.writing()?;
        member.check()?;
        let seen = self.offsets_to_mend()?;
        let (leaps, doubted) = {
            let mut slot = enter(&self.writer);
            let writer = self.writer_in(&mut slot, control)?;
            writer.catch_up(self, control)?;
            (leaps(&writer.segment, &writer.walk), doubted(&self.dir, &writer.walk.state))
        };
        let is_known = doubted.is_none();
        if !leaps.is_empty() || (is_known && !seen.is_empty()) {
            self.roll_now()?;
        }
        if !is_known {
            self.append_metadata(control, member, |state| {
                state.doubt().map(|_| encode_trust()).unwrap_or_default()
            })?;
            self.sync()?;
        }
        let told = |step: RepairStep| match is_known {
            true => RepairStep { mend: RepairKind::Save, why: SAID_ANEW.into(), ..step },
            false => step,
        };
        Ok(seen.into_iter().map(told).collect())
    }
}

const SAID_ANEW: &str =
    "a process that has the log open knows what the corruption hides, and stores it again";
