//! Metadata of a commit: a text that a member leaves beside the committed offsets.
//!
//! Owns the calls that set and return it. It is in the sector of its cursor, or in the cursor's
//! entry in a log. So it is stored together with the offset or not at all ([`super::cursors`],
//! [`super::log_cursors`]). Invariant: an offset never has the metadata of another commit. See
//! `docs/PROTOCOL.md`, "Committing".

use super::cursors;
use super::handle::GroupMember;
use crate::error::{Error, Result};
use crate::format::consumer::{CommitMetadata, cursor_name};

impl GroupMember {
    /// Leave this text beside the offsets of the next commit, for the group's next commit or reader;
    /// a commit without one leaves none. It is committed with the offset or not at all, also if that
    /// offset was committed before.
    ///
    /// # Errors
    /// `InvalidArgument` for more than 384 bytes.
    pub fn set_metadata(&mut self, metadata: &str) -> Result<()> {
        let checked = CommitMetadata::new(metadata.as_bytes());
        self.metadata = checked.ok_or_else(|| Error::long_metadata(metadata.len()))?;
        Ok(())
    }

    /// Get the metadata of the committed offset of a partition; empty if it has none.
    ///
    /// # Errors
    /// As [`GroupMember::committed`].
    pub fn metadata(&self, topic: &str, partition: u32) -> Result<String> {
        let lane = &self.lanes[self.number(topic, partition)?];
        let topic = &self.topics[lane.topic];
        if let Some(home) = &self.home {
            let name = cursor_name(&self.group, &topic.settings().generation, partition);
            return Ok(text_of(&home.cursor_metadata(&name)?));
        }
        let cursor = match &lane.held {
            Some(held) => held.cursor,
            None => {
                let now = Some(self.who.incarnation());
                let cursor = self.noted(lane)?;
                let told = cursors::group_error(topic, partition, &cursor, now)?;
                cursor.standing_at(told)
            }
        };
        Ok(text_of(cursor.metadata.as_bytes()))
    }
}

/// Decode metadata as text.
pub(super) fn text_of(metadata: &[u8]) -> String {
    String::from_utf8_lossy(metadata).into_owned()
}
