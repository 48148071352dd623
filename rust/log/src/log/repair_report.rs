//! The steps of repairing a log, as values: planned or done.
//!
//! Owns the words in which recovery, the end of a failed-sync state and the rebuilding of indexes
//! report. None of their steps deletes bytes: what is cut off stays in its file behind the cut, or
//! moves to `quarantine/` beside it. [`super::recover`], [`super::latch`], [`super::lost_offsets`],
//! [`super::header_repair`] and [`super::index_rebuild`] decide what is done, and when.

use std::path::PathBuf;

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepairKind {
    /// The log ends here: the rest of the file stays and is no longer part of it.
    Cut,
    /// A file that the log does not reach moves to `quarantine/`.
    SetAside,
    /// Bytes that a failed or interrupted sync left in doubt are written again, at the same
    /// offsets.
    Save,
    /// Corruption hides which offsets of a topic were used, so it continues beyond all that may be.
    GoBeyond,
    /// Corruption may hide newer cursors, idempotency keys and producers, so the known ones are
    /// declared valid.
    AsKnown,
    /// One of the two copies of a segment's header is corrupt and is restored from the other.
    RestoreHeader,
    /// The control page is missing or corrupt and is rebuilt.
    NewControl,
    /// An index is missing or corrupt and is rebuilt.
    Reindex,
    /// A left-over temporary file is removed.
    RemoveTemporary,
}

impl RepairKind {
    /// Return a phrase for it.
    pub fn name(self) -> &'static str {
        match self {
            RepairKind::Cut => "cut",
            RepairKind::SetAside => "set aside",
            RepairKind::Save => "save",
            RepairKind::GoBeyond => "continue beyond corruption",
            RepairKind::AsKnown => "take as known",
            RepairKind::RestoreHeader => "restore header",
            RepairKind::NewControl => "new control page",
            RepairKind::Reindex => "rebuild index",
            RepairKind::RemoveTemporary => "remove temporary file",
        }
    }
}

/// One step of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairStep {
    /// The kind of the step.
    pub mend: RepairKind,
    /// The file.
    pub path: PathBuf,
    /// The position in it, bytes.
    pub position: u64,
    /// How many bytes are concerned: those after a cut, or of the file.
    pub bytes: u64,
    /// The reason, in one sentence.
    pub why: String,
}
