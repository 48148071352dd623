//! What mending a log takes, as values: told before it is done, or after.
//!
//! Owns the words in which recovery, the clearing of a latch and the rebuilding of indexes report.
//! Nothing that they do throws bytes away: what is cut off stays in its file behind the cut, or moves
//! to `quarantine/` beside it. What is done, and when, is left to [`super::recover`],
//! [`super::latch`], [`super::lost_offsets`], [`super::header_repair`] and
//! [`super::index_rebuild`].

use std::path::PathBuf;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepairKind {
    /// The log ends here: what lies behind in the file stays there and is no longer part of it.
    Cut,
    /// A file that the log does not reach moves to `quarantine/`.
    SetAside,
    /// What a failed or interrupted sync left in doubt is written anew, at the same offsets.
    Save,
    /// Which offsets of a topic lie in damage is lost, so it goes on beyond all that may.
    GoBeyond,
    /// How cursors, tokens and producers moved on may lie in damage, so they are taken as they are known.
    AsKnown,
    /// One of the two copies of a segment's header is corrupt and is restored from the other.
    RestoreHeader,
    /// The control page is missing or damaged and is made anew.
    NewControl,
    /// An index is missing or damaged and is made anew.
    Reindex,
    /// A temporary file that somebody left behind is removed.
    RemoveTemporary,
}

impl RepairKind {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            RepairKind::Cut => "cut",
            RepairKind::SetAside => "set aside",
            RepairKind::Save => "save",
            RepairKind::GoBeyond => "go on beyond damage",
            RepairKind::AsKnown => "take as known",
            RepairKind::RestoreHeader => "restore header",
            RepairKind::NewControl => "new control page",
            RepairKind::Reindex => "rebuild index",
            RepairKind::RemoveTemporary => "remove temporary file",
        }
    }
}

/// One step of mending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairStep {
    /// What is done.
    pub mend: RepairKind,
    /// To which file.
    pub path: PathBuf,
    /// Where in it, bytes.
    pub position: u64,
    /// How many bytes are concerned: those behind a cut, or of the file.
    pub bytes: u64,
    /// Why, in one sentence.
    pub why: String,
}
