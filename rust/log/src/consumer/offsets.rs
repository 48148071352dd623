//! Commits of chosen offsets, by a caller that keeps account of its records itself.
//!
//! Owns what such a commit checks. Invariant: all offsets are checked before the first one is committed. See
//! `docs/PROTOCOL.md`, "Committing".

use super::handle::GroupMember;
use super::log_cursors::Move;
use crate::error::{Error, Result};
use crate::format::consumer::CommitMetadata;

/// An offset to commit in a partition: all records before it are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOffset<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: u32,
    offset: u64,
    metadata: &'a str,
}

impl<'a> GroupOffset<'a> {
    /// Name a partition and the offset of its next record.
    pub const fn new(topic: &'a str, partition: u32, offset: u64) -> Self {
        Self { topic, partition, offset, metadata: "" }
    }

    /// Leave this text beside the offset, of at most 384 bytes.
    #[must_use]
    pub const fn metadata(self, metadata: &'a str) -> Self {
        Self { metadata, ..self }
    }
}

impl GroupMember {
    /// Commit these offsets; `durable` as for [`GroupMember::commit`].
    ///
    /// # Errors
    /// As [`GroupMember::commit`]; `InvalidArgument` for a partition that is named twice. Offsets that were committed
    /// before a failing system call stay.
    pub(super) fn commit_offsets(
        &mut self,
        offsets: &[GroupOffset<'_>],
        durable: bool,
    ) -> Result<()> {
        if self.home.is_some() {
            let moves = self.moves_to(offsets)?;
            self.commit_moves(&moves, durable)?;
            self.resume_behind(offsets)?;
            return Ok(());
        }
        for (at, number) in offsets.iter().zip(self.checked(offsets)?) {
            self.metadata = CommitMetadata::new(at.metadata.as_bytes()).unwrap_or_default();
            let done = self.put(number, at.offset, durable);
            self.metadata = CommitMetadata::NONE;
            done?;
        }
        self.resume_behind(offsets)?;
        if durable { self.sync() } else { Ok(()) }
    }

    /// Get the moves to these offsets, as [`GroupMember::moves`] does for what was delivered.
    ///
    /// # Errors
    /// As [`GroupMember::moves`] and [`GroupMember::commit_offsets`].
    pub(super) fn moves_to(&mut self, offsets: &[GroupOffset<'_>]) -> Result<Vec<Move>> {
        self.expect_home()?;
        let mut moves = Vec::with_capacity(offsets.len());
        for (at, number) in offsets.iter().zip(self.checked(offsets)?) {
            self.metadata = CommitMetadata::new(at.metadata.as_bytes()).unwrap_or_default();
            let moved = self.move_to(number, at.offset);
            self.metadata = CommitMetadata::NONE;
            moves.push(moved?);
        }
        Ok(moves)
    }

    /// Find the partitions of these offsets. It must be able to commit all of them.
    fn checked(&mut self, offsets: &[GroupOffset<'_>]) -> Result<Vec<usize>> {
        self.check()?;
        let mut numbers = Vec::with_capacity(offsets.len());
        for at in offsets {
            let number = self.number(at.topic, at.partition)?;
            self.held(number)?;
            let topic = &self.topics[self.lanes[number].topic];
            if at.offset > topic.end(at.partition)? {
                return Err(topic.out_of_range(at.partition, at.offset.into())?);
            }
            if CommitMetadata::new(at.metadata.as_bytes()).is_none() {
                return Err(Error::long_metadata(at.metadata.len()));
            }
            numbers.push(number);
        }
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let lane = &self.lanes[twice[0]];
            let topic = self.topics[lane.topic].name();
            return Err(Error::invalid(format!(
                "a commit names partition {} of topic {topic:?} twice; name it once",
                lane.partition
            )));
        }
        Ok(numbers)
    }

    /// Deliver no record before a committed offset.
    pub(super) fn resume_behind(&mut self, offsets: &[GroupOffset<'_>]) -> Result<()> {
        for at in offsets {
            let number = self.number(at.topic, at.partition)?;
            if let Some(held) = &mut self.lanes[number].held {
                held.next = Ok(held.next.unwrap_or(at.offset).max(at.offset));
            }
        }
        Ok(())
    }
}
