//! What consumers and queues still need of a topic.
//!
//! Owns the look into `consumers/` and `queues/` for whoever lets go of records. It changes nothing and
//! takes no lock: a cursor and the floor of a queue rise while they are looked at, so what is found is
//! at most too low. Invariant: where it is not known what somebody needs, that is an error and not
//! nothing; a file that is damaged, or of a newer version, holds back what waits for it. What cursors
//! mean is left to [`crate::consumer`], floors to [`crate::queue`].

use std::path::Path;

use super::super::sidecar_check::read_consumer;
use super::super::{Store, files};
use crate::error::{DecodedIn, Error, Result};
use crate::format::consumer::{CUT, at, check_header, cut_at, entries, entry};
use crate::format::queue::{QueueEnds, QueueHeader};
use crate::format::{PAGE, queue};

/// What is kept for the sake of somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The consumer or the queue, as messages name it.
    pub who: String,
    /// Which partition.
    pub partition: u32,
    /// Lowest offset that is still needed.
    pub offset: u64,
}

impl Store {
    /// What each consumer and each queue still needs of the topic of a generation. Costs a read of each
    /// consumer's file and of a page of each queue's.
    ///
    /// # Errors
    /// `CorruptData` and `UnsupportedVersion` where it is not known what somebody needs; `SystemCallFailed`.
    #[doc(hidden)]
    pub fn needs(&self, generation: &[u8; 16]) -> Result<Vec<Need>> {
        let mut needs = Vec::new();
        for name in files::list(self.storage().as_ref(), &self.layout().consumers())? {
            if let Ok(path) = self.layout().consumer(&name) {
                self.consumer_needs(&name, &path, generation, &mut needs)?;
            }
        }
        for name in self.queues()? {
            let path = self.layout().queue(&name)?;
            let offset = self.queue_needs(&path, generation)?;
            let who = format!("queue {name}");
            needs.extend(offset.map(|offset| Need { who, partition: 0, offset }));
        }
        Ok(needs)
    }

    fn consumer_needs(
        &self,
        name: &str,
        path: &Path,
        generation: &[u8; 16],
        needs: &mut Vec<Need>,
    ) -> Result<()> {
        let read = read_consumer(self.storage().as_ref(), path)?;
        let Some(bytes) = read else { return Ok(()) };
        check_header(&bytes, self.settings().id).in_file(path, 0)?;
        let corrupt =
            |position, what| Error::CorruptData { path: path.to_path_buf(), position, what };
        if let Some(len) = cut_at(&bytes) {
            return Err(corrupt(len, CUT));
        }
        for (index, entry) in (0..).zip(entries(&bytes)) {
            // What does not tell what it is of may be of this one.
            if entry.of().is_some_and(|(of, _)| of != *generation) {
                continue;
            }
            let Some((cursor, (_, partition))) = entry.cursor().zip(entry.of()) else {
                // One that was never begun needs nothing yet.
                if let Some(what) = entry.complaint() {
                    return Err(corrupt(self::entry(index) + at::CURSORS, what));
                }
                continue;
            };
            let who = format!("consumer {name}");
            let offset = cursor.committed.offset.min(cursor.safe.offset);
            needs.push(Need { who, partition, offset });
        }
        Ok(())
    }

    /// The floor of a queue of that topic.
    fn queue_needs(&self, path: &Path, generation: &[u8; 16]) -> Result<Option<u64>> {
        let read = files::read_up_to(self.storage().as_ref(), path, PAGE)?;
        let Some(bytes) = read else { return Ok(None) };
        let header = QueueHeader::decode(&bytes).in_file(path, 0)?;
        if header.generation != *generation {
            return Ok(None);
        }
        let newest = QueueEnds::newest(QueueEnds::in_page(&bytes, header.id))
            .in_file(path, queue::at::ENDS[0]);
        newest.map(|(ends, _)| Some(ends.floor))
    }
}
