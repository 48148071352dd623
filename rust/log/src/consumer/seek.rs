//! Where a consumer begins, and going on from elsewhere.
//!
//! Owns what the words for places mean ([`Start`]), and moving the place from which a member hands out.
//! Invariant: seeking changes nothing that others see; what is committed next does.

use super::handle::GroupMember;
use crate::error::Result;
use crate::topic::Start;

impl GroupMember {
    /// Read on from another place. It is committed with the next commit.
    ///
    /// # Errors
    /// `OffsetOutOfRange`, `PartitionNotAssigned`, `InvalidArgument` for a partition that it does not read.
    pub fn seek(&mut self, topic: &str, partition: u32, to: Start) -> Result<u64> {
        let number = self.number(topic, partition)?;
        let offset = to.offset(&self.topics[self.lanes[number].topic], partition)?;
        self.held(number)?.next = Ok(offset);
        Ok(offset)
    }

    /// Go back to where it was committed: what was handed out since is handed out again.
    pub fn rewind(&mut self) {
        for held in self.lanes.iter_mut().filter_map(|lane| lane.held.as_mut()) {
            let committed = held.cursor.committed.offset;
            held.next = if held.rewound { Err(()) } else { Ok(committed) };
        }
    }

    /// [`GroupMember::seek`], in all partitions that it has and that are meant.
    ///
    /// # Errors
    /// As [`GroupMember::seek`]; then nothing was sought.
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
            // Who names a partition is told when it is another's.
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
