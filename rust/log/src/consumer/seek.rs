//! Where a consumer begins, and resuming from another offset.
//!
//! Owns the meaning of [`Start`], and moving the offset from which a member delivers. Invariant:
//! seeking changes nothing that others see; the next commit does.

use super::handle::GroupMember;
use crate::error::Result;
use crate::topic::Start;

impl GroupMember {
    /// Read on from another offset. The next commit commits it.
    ///
    /// # Errors
    /// `OffsetOutOfRange`, `PartitionNotAssigned`, `InvalidArgument` for a partition that it does not read.
    pub fn seek(&mut self, topic: &str, partition: u32, to: Start) -> Result<u64> {
        self.seek_all(Some(topic), Some(partition), to)?;
        self.next(topic, partition)
    }

    /// Go back to the committed offsets: records that were delivered since are redelivered.
    pub fn rewind(&mut self) {
        for held in self.lanes.iter_mut().filter_map(|lane| lane.held.as_mut()) {
            let committed = held.cursor.committed.offset;
            held.next = if held.rewound { Err(()) } else { Ok(committed) };
        }
    }

    /// Seek as [`GroupMember::seek`] does, in all chosen partitions that this member has.
    ///
    /// # Errors
    /// As [`GroupMember::seek`]; then no partition was moved.
    pub fn seek_all(
        &mut self,
        topic: Option<&str>,
        partition: Option<u32>,
        to: Start,
    ) -> Result<()> {
        let mut sought = Vec::new();
        for (reads, part) in self.meant(topic, partition)? {
            let name = self.topics[reads].name().to_owned();
            let number = self.number(&name, part)?;
            // A caller that names a partition gets an error when another member has it.
            if partition.is_some() || self.lanes[number].held.is_some() {
                self.held(number)?;
                sought.push((number, to.offset(&self.topics[reads], part)?));
            }
        }
        for (number, offset) in sought {
            self.held(number)?.next = Ok(offset);
        }
        Ok(())
    }
}
