//! A mapped state file: its entries, its ends, and its lock.
//!
//! Owns the loads and stores of [`crate::format::queue`]. Invariant: a new version of an entry is
//! stored over the older of the two, never over the current one. So a process that dies in the middle
//! leaves the entry as it was. The same holds for the ends. Two stores to BUSY enclose each change of
//! the derived part. A process that finds BUSY set rebuilds that part; one that finds it corrupt leaves
//! BUSY set.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::error::{DecodedIn, Error, IoResult, Result};
use crate::format::queue::{
    CUT, ENDS_LEN, HEADER_LEN, JobEntry, NO_LOCK_WORD, Parts, QueueEnds, QueueHeader, State,
    VERSION_LEN, at, serial,
};
use crate::lock::{self, Fate, Holders, Identity, LockError};
use crate::log::wait_for_flock;
use crate::storage::{File, OpenMode};
use crate::store::sidecar::Sidecar;
use crate::store::{DeadSlot, Membership, Store};

/// An open state file.
pub(super) type StateFile = Sidecar<QueueHeader>;

/// An entry as it was found, and where a new version goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundEntry {
    /// [`JobEntry::FRESH`] where no version is valid.
    pub(super) entry: JobEntry,
    pub(super) is_known: bool,
    /// The slot of the next version.
    pub(super) next: usize,
    serial: u32,
}

impl Sidecar<QueueHeader> {
    /// Open the file of a queue; `None` where there is none.
    pub(super) fn open(store: &Store, path: &Path) -> Result<Option<Self>> {
        let Some(file) = store.open_sidecar(path, OpenMode::ReadWrite)? else { return Ok(None) };
        let mut bytes = [0; HEADER_LEN];
        let got = file.read_at(&mut bytes, 0).doing("read", path)?;
        let header = QueueHeader::decode(&bytes[..got]).in_file(path, 0)?;
        let (len, position) = (header.parts.file_len(), file.stat().doing("look at", path)?.len);
        if position < len {
            return Err(Error::CorruptData { path: path.to_path_buf(), position, what: CUT });
        }
        Self::over(store, &*file, header, path, len).map(Some)
    }

    /// Get a number that stays the same while the queue grows and shrinks, and differs after a reset.
    #[inline]
    pub(super) fn lineage(&self) -> u64 {
        // With each doubling the id rises by one, with each halving it sinks.
        self.header.id.wrapping_sub(u64::from(self.header.parts.capacity.trailing_zeros()))
    }

    #[inline]
    pub(super) fn parts(&self) -> Parts {
        self.header.parts
    }

    /// Load the current version of an offset's entry.
    #[inline]
    pub(super) fn entry(&self, offset: u64) -> FoundEntry {
        let position = self.parts().entry(offset);
        let versions: [[u64; 4]; 2] =
            [self.map.load_words(position), self.map.load_words(position + VERSION_LEN)];
        let newest = JobEntry::newest(&versions, self.header.id, offset);
        let (is_known, next) = (newest.value.is_some(), newest.other());
        // The slot of the older version: a serial in there no longer counts.
        let serial = serial(&versions[newest.slot]);
        FoundEntry { entry: newest.value.unwrap_or(JobEntry::FRESH), is_known, next, serial }
    }

    /// Store a new version of an entry.
    #[inline]
    pub(super) fn put(&self, offset: u64, found: &FoundEntry, entry: JobEntry) -> Result<()> {
        let entry = JobEntry { serial: found.serial.wrapping_add(1), ..entry };
        let position = self.parts().entry(offset) + VERSION_LEN * found.next as u64;
        let words = entry.encode(self.header.id, offset);
        self.write_words(position, words)
    }

    /// Load the ends, with their slot.
    ///
    /// # Errors
    /// `CorruptData` when both slots are corrupt.
    pub(super) fn ends(&self) -> Result<(QueueEnds, usize)> {
        let slots = at::ENDS.map(|position| {
            let words: [u64; ENDS_LEN / 8] = self.map.load_words(position);
            QueueEnds::decode(&words, self.header.id).filter(|ends| ends.fit(self.parts().capacity))
        });
        QueueEnds::newest(slots).in_file(&self.path, at::ENDS[0])
    }

    /// Store the ends in the slot that is not current.
    pub(super) fn put_ends(&self, ends: &QueueEnds, slot: usize) -> Result<()> {
        self.write_words(at::ENDS[slot], ends.encode(self.header.id))
    }

    /// Take the lock of the queue. `None` where another file, or none, has this one's name. The caller
    /// holds the file's mutex.
    pub(super) fn lock(
        &self,
        store: &Store,
        member: &Membership,
    ) -> Result<Option<QueueGuard<'_>>> {
        let timeout = store.lock_timeout();
        if !self.map.shares_memory() {
            let file = match store.open_to_lock(&self.path) {
                Err(Error::SystemCallFailed { source, .. })
                    if source.kind() == io::ErrorKind::NotFound =>
                {
                    return Ok(None);
                }
                file => file?,
            };
            wait_for_flock(&*file, &self.path, Some(timeout))?;
            let is_this = self.is(&file.stat().doing("look at", &self.path)?);
            return Ok(is_this.then_some(QueueGuard::File(file)));
        }
        let (word, me) = (self.map.word(at::LOCK), member.identity());
        let got = lock::lock(&word, me, &QueueHolders(member), Some(timeout), lock::stopwatch());
        // A process that died in between has left BUSY behind, in either kind of store.
        let _acquired = got.map_err(|error| match error {
            LockError::Timeout { holder } => Error::LockTimeout {
                path: self.path.clone(),
                waited: timeout,
                holder: member.describe(holder),
            },
            LockError::Damaged { .. } => Error::CorruptData {
                path: self.path.clone(),
                position: at::LOCK,
                what: NO_LOCK_WORD,
            },
            LockError::Io(error) => Error::io("look for the lock's holder in", &self.path, error),
        })?;
        Ok(Some(QueueGuard::Word(self, me)))
    }

    /// Remove the queue; processes that have it open find that out when they get the lock. False where
    /// another file had taken this one's place before. The caller has the claim, so no process creates
    /// a file meanwhile.
    pub(super) fn remove(&self, store: &Store, member: &Membership) -> Result<bool> {
        self.free_stale_lock(member.incarnation());
        let Some(_guard) = self.lock(store, member)? else { return Ok(false) };
        if self.load(at::REPLACED) != 0 && !self.is_in_place(store)? {
            return Ok(false);
        }
        // A process that dies in between leaves this behind; the next one then checks the file's name.
        self.set(at::BUSY, 1)?;
        store.remove_queue_file(&self.path)?;
        self.set(at::REPLACED, 1)?;
        Ok(true)
    }

    /// Free a lock word of an earlier incarnation: its holder is dead, and its slot may be ours.
    pub(super) fn free_stale_lock(&self, incarnation: u64) {
        if self.map.shares_memory() && self.load(at::INCARNATION) != incarnation {
            let _ = self.map.store(at::LOCK, 0);
        }
    }

    /// True when a worker has the job, as the entry says.
    pub(super) fn is_in_flight(entry: &JobEntry) -> bool {
        entry.state == State::InFlight
    }
}

struct QueueHolders<'a>(&'a Membership);

impl Holders for QueueHolders<'_> {
    type Proof = DeadSlot;

    fn fate(&self, holder: Identity) -> io::Result<Fate<DeadSlot>> {
        self.0.fate(holder)
    }
}

/// The lock of a queue, until it is dropped.
pub(super) enum QueueGuard<'a> {
    Word(&'a StateFile, Identity),
    File(Arc<dyn File>),
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        match self {
            QueueGuard::Word(file, me) => drop(lock::unlock(&file.map.word(at::LOCK), *me)),
            // Closing gives the flock back too.
            QueueGuard::File(file) => drop(file.unlock()),
        }
    }
}
