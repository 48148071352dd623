//! The records of a topic that consumer groups and queues still need.
//!
//! Owns the look into `consumers/` and `queues/` before records are deleted. It changes nothing and
//! takes no lock: a cursor and the lower bound of a queue rise meanwhile. So the result is at most
//! too low. Invariant: an unknown need is an error and not none; a corrupt or newer file keeps the
//! records that wait for it. [`super::settled`] has what was synced since a file was written.
//! [`crate::consumer`] defines cursors, [`crate::queue`] lower bounds.

use std::path::Path;
use std::sync::Arc;

use super::super::sidecar_check::read_consumer;
use super::super::{Store, files};
use super::settled::Settled;
use crate::error::{DecodedIn, Error, IoResult, Result};
use crate::format::consumer::{CUT, at, check_header, cut_at, entries, entry};
use crate::format::queue::{QueueEnds, QueueHeader};
use crate::format::settings::TopicSettings;
use crate::format::{PAGE, queue};
use crate::log::Log;

/// Records that are kept for a consumer group or a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The group or the queue, as messages name it.
    pub who: String,
    /// The partition.
    pub partition: u32,
    /// Lowest offset that is still needed.
    pub offset: u64,
}

impl Store {
    /// List the needs of each consumer group and each queue of the topic of a generation, as their
    /// files say them alone. Costs a read of each group's file and of a page of each queue's.
    ///
    /// # Errors
    /// `CorruptData` and `UnsupportedVersion` if a need is unknown; `SystemCallFailed`.
    #[doc(hidden)]
    pub fn needs(&self, generation: &[u8; 16]) -> Result<Vec<Need>> {
        self.needs_of(generation, None)
    }

    /// List them with what is on the disk of the topic by now. Costs a lookup in the log
    /// for each committed offset, and a look at each job that is done behind a queue's lower bound.
    ///
    /// # Errors
    /// As [`Store::needs`].
    pub(super) fn needs_in(&self, log: &Arc<Log>, topic: &TopicSettings) -> Result<Vec<Need>> {
        self.needs_of(&topic.generation, Some(Settled::of(log, topic)))
    }

    /// Sync the files of all groups and queues. A power failure after that brings back no need that is
    /// lower than what was listed before.
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub(super) fn sync_needs(&self) -> Result<()> {
        let storage = self.storage().as_ref();
        let groups = files::list(storage, &self.layout().consumers())?;
        let groups = groups.iter().filter_map(|name| self.layout().consumer(name).ok());
        let queues = self.queues()?;
        let queues: Result<Vec<_>> = queues.iter().map(|name| self.layout().queue(name)).collect();
        for path in groups.chain(queues?) {
            // It was removed meanwhile, and needs nothing.
            let Some(file) = files::open_to_read(storage, &path)? else { continue };
            file.sync_data().doing("sync", &path)?;
        }
        Ok(())
    }

    fn needs_of(&self, generation: &[u8; 16], settled: Option<Settled<'_>>) -> Result<Vec<Need>> {
        let mut needs = Vec::new();
        for name in files::list(self.storage().as_ref(), &self.layout().consumers())? {
            if let Ok(path) = self.layout().consumer(&name) {
                self.consumer_needs((&name, &path), generation, settled, &mut needs)?;
            }
        }
        for name in self.queues()? {
            let path = self.layout().queue(&name)?;
            let offset = self.queue_needs(&path, generation, settled)?;
            let who = format!("queue {name}");
            needs.extend(offset.map(|offset| Need { who, partition: 0, offset }));
        }
        Ok(needs)
    }

    fn consumer_needs(
        &self,
        (name, path): (&str, &Path),
        generation: &[u8; 16],
        settled: Option<Settled<'_>>,
        needs: &mut Vec<Need>,
    ) -> Result<()> {
        let read = read_consumer(self.storage().as_ref(), path)?;
        let Some(bytes) = read else { return Ok(()) };
        let home = check_header(&bytes, self.settings().id).in_file(path, 0);
        let home = home.map_err(|error| self.replaced_or(error))?;
        if let Some(len) = cut_at(&bytes) {
            return Err(Error::corrupt(path, len, CUT));
        }
        for (index, entry) in (0..).zip(entries(&bytes)) {
            // An entry without a name may be of this topic.
            if entry.of().is_some_and(|(of, _)| of != *generation) {
                continue;
            }
            let Some((cursor, (_, partition))) = entry.cursor().zip(entry.of()) else {
                // An entry that was never begun needs nothing yet.
                if let Some(what) = entry.complaint() {
                    return Err(Error::corrupt(path, self::entry(index) + at::CURSORS, what));
                }
                continue;
            };
            let who = format!("consumer {name}");
            // Where a log keeps the cursor, a lower *safe* may be where a member is about to move it.
            let settled = settled.filter(|_| home == [0; 16]);
            let offset = match settled.filter(|on| on.has(partition, &cursor.committed)) {
                Some(_) => cursor.committed.offset,
                None => cursor.committed.offset.min(cursor.safe.offset),
            };
            needs.push(Need { who, partition, offset });
        }
        Ok(())
    }

    /// Return the lower bound of a queue of that topic.
    fn queue_needs(
        &self,
        path: &Path,
        generation: &[u8; 16],
        settled: Option<Settled<'_>>,
    ) -> Result<Option<u64>> {
        let Some(file) = files::open_to_read(self.storage().as_ref(), path)? else {
            return Ok(None);
        };
        let bytes = files::read_at(&*file, path, 0, PAGE as usize)?;
        let header = QueueHeader::decode(&bytes).in_file(path, 0)?;
        if header.generation != *generation {
            return Ok(None);
        }
        let newest = QueueEnds::newest(QueueEnds::in_page(&bytes, header.id))
            .in_file(path, queue::at::ENDS[0]);
        let ends = newest?.0;
        let bound = settled.and_then(|on| on.lower_bound(&*file, path, &header, &ends).ok());
        Ok(Some(bound.unwrap_or(ends.floor)))
    }
}
