//! Checking the index against the blocks.
//!
//! An index is a hint, so an error in one loses no record: it only makes readers walk. Each entry
//! must be whole. At its position the walk must have met a block, or the head of a group, with that
//! topic and offset.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::format::index::STRIDE;
use crate::format::{FIRST_BLOCK, names};
use crate::segment::Segment;
use crate::segment::index::Index;
use crate::storage::Storage;

use super::{Finding, Severity};

/// Entries of an index, ticked off as the walk meets their blocks.
pub(super) struct Hints {
    path: PathBuf,
    entries: HashMap<(u64, u32), u64>,
    wrong: Option<String>,
    loaded: usize,
    reached: u64,
}

impl Hints {
    /// Read the index of a segment.
    pub(super) fn load(storage: &dyn Storage, dir: &Path, segment: &Segment) -> Self {
        let path = dir.join(names::index(segment.sequence()));
        let (entries, wrong) = match Index::load(storage, dir, segment) {
            Ok(entries) => (entries, None),
            Err(error) if error.is_not_found() => {
                (Vec::new(), Some("the index is missing".to_owned()))
            }
            Err(Error::CorruptData { position, what, .. }) => {
                (Vec::new(), Some(format!("{what}, at byte {position}")))
            }
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let loaded = entries.len();
        let entries = entries.iter().map(|e| ((e.position, e.topic), e.offset)).collect();
        Self { path, entries, wrong, loaded, reached: FIRST_BLOCK }
    }

    /// Note a block of a topic, in the group that begins at `head`.
    pub(super) fn saw(&mut self, head: u64, topic: u32, first: u64) {
        self.reached = head;
        if self.entries.get(&(head, topic)) == Some(&first) {
            self.entries.remove(&(head, topic));
        }
    }

    /// Ignore entries into this range: the blocks there are corrupt, not the index.
    pub(super) fn hurt(&mut self, from: u64, to: u64) {
        self.entries.retain(|(at, _), _| !(from..to).contains(at));
    }

    /// Return what is wrong with the index. That of the active segment may be ahead of the walk.
    pub(super) fn verdict(self, end: Option<u64>) -> Option<Finding> {
        // The part of a segment that a cut left may still be indexed.
        let end = end.unwrap_or(self.reached + 1);
        let unmet = self.entries.keys().filter(|(at, _)| *at < end).count();
        let what = if let Some(wrong) = self.wrong {
            wrong
        } else if unmet > 0 {
            format!("{unmet} of {} index entries point at nothing", self.loaded)
        } else if self.loaded == 0 && self.reached >= FIRST_BLOCK + 2 * STRIDE {
            "the index is empty".to_owned()
        } else {
            return None;
        };
        Some(Finding::new(Severity::Rebuildable, &self.path, 0, what))
    }
}
