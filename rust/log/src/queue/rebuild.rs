//! Rebuilding a state file: in a new incarnation, after a death, when it is copied into one of another
//! size.
//!
//! Owns which entries of a file count when no process has it open. After a power failure each sector of
//! the file may be of any age, and the log may have lost its tail. So a *done* counts only if its
//! record is still there ([`crate::log::BatchBlock::fingerprint`]). Leases are over, as their holders
//! are dead. Entries that do not count are ready, so that at worst a job is done twice. A rebuild that
//! runs again changes nothing, so dying in the middle does no harm.

use crate::error::{Error, Result};
use crate::format::queue::{JobEntry, Parts, QueueEnds, QueueHeader, State, at};
use crate::store::Store;
use crate::topic::Topic;

use super::Now;
use super::key_hash::lane_or;
use super::ring::Ring;
use super::state::StateFile;

impl Ring<'_> {
    /// Rebuild from entries and ends alone, which are of an earlier incarnation.
    pub(super) fn review(&mut self, topic: &Topic, now: Now, incarnation: u64) -> Result<()> {
        self.begin()?;
        let (first, end) = (topic.first(0)?, topic.committed(0)?);
        self.ends.floor = self.ends.floor.min(end);
        // The ends may be older than the entries.
        let capacity = self.file.parts().capacity;
        let top = (self.ends.floor + capacity).min(end);
        let known = (self.ends.floor..top).rev().find(|offset| self.file.entry(*offset).is_known);
        self.ends.head =
            known.map_or(self.ends.floor, |last| last + 1).max(self.ends.head.min(top));
        for offset in self.ends.floor..self.ends.head {
            let found = self.file.entry(offset);
            let entry = found.entry;
            // Compacted records were on disk before.
            let is_same = || match topic.get_in(0, offset) {
                Ok(record) => {
                    record.block().is_compacted() || record.block().fingerprint() == entry.mark
                }
                Err(error) => matches!(error, Error::RecordCompacted { .. }),
            };
            match entry.state {
                State::Done if offset < first || is_same() => {}
                State::Ready | State::Delayed if !self.file.parts().ordered => {}
                State::Ready | State::Delayed => {
                    // The record may be another, of another key.
                    let mark = lane_or(topic, offset, entry.mark)?;
                    self.file.put(offset, &found, JobEntry { mark, ..entry })?;
                }
                State::Done => self.file.put(offset, &found, JobEntry::FRESH)?,
                State::InFlight => {
                    let ordered = self.file.parts().ordered;
                    let mark = if ordered { lane_or(topic, offset, entry.mark)? } else { 0 };
                    let (attempts, deliveries) = (entry.attempts, entry.deliveries);
                    let suspect = entry.is_suspect();
                    let back = JobEntry { suspect, attempts, deliveries, mark, ..JobEntry::FRESH };
                    self.file.put(offset, &found, back)?;
                }
            }
        }
        self.save()?;
        self.derive(topic, now)?;
        self.trimmed(first, now)?;
        self.pass(topic.durable(0)?)?;
        self.finish()?;
        self.file.set(at::REPLACED, 0)?;
        self.file.set(at::INCARNATION, incarnation)
    }

    /// Rebuild the derived part: a process died while changing it, or found it corrupt.
    pub(super) fn mend(&mut self, topic: &Topic, now: Now) -> Result<()> {
        self.begin()?;
        self.derive(topic, now)?;
        self.finish()
    }

    fn derive(&self, topic: &Topic, now: Now) -> Result<()> {
        self.due.clear()?;
        for offset in self.ends.floor..self.ends.head {
            let found = self.file.entry(offset);
            let (mut entry, place) = (found.entry, self.file.parts().place(offset));
            if entry.state == State::Done {
                self.due.add(at::DONE, 1)?;
                continue;
            }
            if self.file.parts().ordered && entry.mark == 0 {
                // An entry that does not count has lost its key too; for one without a key the look
                // finds none.
                entry.mark = lane_or(topic, offset, 0)?;
                self.file.put(offset, &found, entry)?;
            }
            if StateFile::is_in_flight(&entry) {
                self.due.count(entry.holder, 1)?;
            }
            if self.due.join(place, entry.mark)? {
                let time = Self::time_of(&entry, now).max(self.rank(offset, now));
                self.due.put(place, time)?;
            }
        }
        Ok(())
    }

    /// Replace this file by another: with more places, with fewer, or in today's layout.
    pub(super) fn resize(&mut self, topic: &Topic, capacity: u64, now: Now) -> Result<()> {
        let store = topic.store();
        self.begin()?;
        let parts = Parts { capacity, ..self.file.parts() };
        let doublings = |parts: Parts| u64::from(parts.capacity.trailing_zeros());
        let id = self.file.lineage().wrapping_add(doublings(parts));
        let header = QueueHeader { id, parts, counts_begun: true, ..self.file.header.clone() };
        create(store, &self.file.path, header, self.ends, |other| {
            for offset in self.ends.floor..self.ends.head {
                other.put(offset, &other.entry(offset), self.file.entry(offset).entry)?;
            }
            let mut ring = self.of(other)?;
            ring.mend(topic, now)?;
            other.set(at::INCARNATION, self.file.load(at::INCARNATION))
        })?;
        self.file.set(at::REPLACED, 1)?;
        self.finish()
    }
}

/// Create a state file, and give it its name when `fill` has made it whole.
pub(super) fn create(
    store: &Store,
    path: &std::path::Path,
    header: QueueHeader,
    ends: QueueEnds,
    fill: impl FnOnce(&StateFile) -> Result<()>,
) -> Result<()> {
    let len = header.parts.file_len();
    let file = store.begin_queue_file(path, &header.encode(), len)?;
    let state = StateFile::over(store, &*file, header, path, len)?;
    state.put_ends(&QueueEnds { serial: ends.serial.wrapping_add(1), ..ends }, 0)?;
    fill(&state)?;
    store.finish_queue_file(&*file, path)
}
