//! Dead-lettering jobs whose records are corrupt, when a caller asks for it.
//!
//! Owns the choice of these jobs. Invariants: a job is dead-lettered here only if this call found its
//! record corrupt and no worker has it. Where keys keep an order it must be the first of its key. The
//! jobs after it resume in their order.

use crate::error::{Error, Result};
use crate::format::queue::{CAPACITY_MAX, JobEntry, State};
use crate::topic::{Skipped, Topic};

use super::ring::{Ring, Room};
use super::{Now, QueueFile};

impl QueueFile {
    /// Dead-letter the jobs that block the queue because their records are corrupt. These are the jobs
    /// that came back since they cannot be read, and the next ones that were never delivered. They
    /// count as dead.
    ///
    /// # Returns
    /// The place of each corruption, and the offsets of its jobs; empty where there was none.
    ///
    /// # Errors
    /// Those of the queue's state, and of reading but for `CorruptData`; returned only where no job was
    /// dead-lettered.
    pub fn skip_damage(&self, topic: &Topic) -> Result<Vec<Skipped>> {
        let mut told = Vec::new();
        match self.give_up_damaged(topic, &mut told) {
            Err(error) if told.is_empty() => Err(error),
            _ => Ok(joined(told)),
        }
    }

    /// Repeat until nothing is found: each round may uncover more.
    fn give_up_damaged(&self, topic: &Topic, told: &mut Vec<Skipped>) -> Result<()> {
        self.settle(topic)?;
        loop {
            let mut damaged = Vec::new();
            for offset in self.in_the_way(topic)? {
                damaged.extend(damage_at(topic, offset)?);
            }
            if damaged.is_empty() {
                return Ok(());
            }
            let durable = topic.durable(0)?;
            let (given_up, is_new_file) = self.changed(topic, |ring, now| {
                ring.pass(durable)?;
                let mut given_up = Vec::new();
                for found in &damaged {
                    let offset = found.offsets.start;
                    if offset == ring.ends.head && ring.room() != Room::Enough {
                        ring.resize(topic, ring.larger(CAPACITY_MAX, now)?, now)?;
                        return Ok((given_up, true));
                    }
                    if give_up(ring, offset, now)? {
                        given_up.push(found.clone());
                    }
                }
                ring.pass(durable)?;
                ring.tell()?;
                Ok((given_up, false))
            })?;
            topic.log().wake_all();
            // Others may have taken them meanwhile: their reads then report the corruption.
            if given_up.is_empty() && !is_new_file {
                return Ok(());
            }
            told.extend(given_up);
        }
    }

    /// List the jobs that could be delivered now or later, and the first that was never delivered.
    fn in_the_way(&self, topic: &Topic) -> Result<Vec<u64>> {
        let end = topic.end(0)?;
        self.locked(topic, |ring, _| {
            let old = (ring.ends.floor..ring.ends.head).filter(|offset| is_first(ring, *offset));
            let new = (ring.ends.head < end).then_some(ring.ends.head);
            Ok(old.chain(new).collect())
        })
    }
}

/// True where no worker has the job, and no job of its key comes before it.
fn is_first(ring: &Ring<'_>, offset: u64) -> bool {
    let entry = ring.file.entry(offset).entry;
    let is_free = matches!(entry.state, State::Ready | State::Delayed) && !entry.is_reserved();
    is_free && ring.due.has(ring.file.parts().place(offset))
}

fn damage_at(topic: &Topic, offset: u64) -> Result<Option<Skipped>> {
    match topic.get_in(0, offset) {
        Err(Error::CorruptData { path, position, .. }) => {
            Ok(Some(Skipped { path, position, offsets: offset..offset + 1 }))
        }
        // The next take finds a record that is deleted.
        Ok(_) | Err(Error::OffsetOutOfRange { .. } | Error::RecordCompacted { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Dead-letter a job; false where another process was faster.
fn give_up(ring: &mut Ring<'_>, offset: u64, now: Now) -> Result<bool> {
    if offset == ring.ends.head {
        ring.file.put(offset, &ring.file.entry(offset), JobEntry::FRESH)?;
        ring.ends.head += 1;
    } else if !(ring.ends.floor..ring.ends.head).contains(&offset) || !is_first(ring, offset) {
        return Ok(false);
    }
    let found = ring.file.entry(offset);
    ring.done(offset, &found, 0, now)?;
    ring.ends.dead += 1;
    Ok(true)
}

/// Merge the jobs of one corruption that are neighbours.
fn joined(mut told: Vec<Skipped>) -> Vec<Skipped> {
    told.sort_by_key(|found| found.offsets.start);
    told.dedup_by(|next, before| {
        let is_same = (&next.path, next.position, next.offsets.start)
            == (&before.path, before.position, before.offsets.end);
        if is_same {
            before.offsets.end = next.offsets.end;
        }
        is_same
    });
    told
}
