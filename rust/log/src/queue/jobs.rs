//! Jobs: leases with their records.
//!
//! Owns the reading of leased records, outside of the queue's lock. Invariants: each lease taken here goes
//! to the caller or, by [`super::undelivered`], back to the queue, also if an error ends the take. The
//! caller gets an error only if it gets no job.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::store::fork;
use crate::topic::{PartitionScan, Record, Topic};

use super::undelivered::ReturnKind;
use super::{Lease, Now, QueueFile, micros};

/// Name of the header with the time before which no worker gets the record: microseconds since 1970, in
/// decimal digits.
pub const NOT_BEFORE: &str = "falaj-not-before";

/// Number of unreadable records at which a take ends. Each take reads all of them again.
const UNREAD_MAX: usize = 4096;

/// Number of records up to which a reader walks to a record rather than looks it up.
const NEAR: u64 = 1024;

/// A record, and the right to work on it.
#[derive(Clone, Debug)]
pub struct LeasedJob {
    /// The right to work on it.
    pub lease: Lease,
    /// The record.
    pub record: Record,
}

impl LeasedJob {
    /// Return what [`QueueFile::ack`] takes.
    pub fn to_ack(&self) -> (Lease, u64) {
        (self.lease, self.record.block().fingerprint())
    }
}

/// Position where the last take stopped reading; the next one mostly continues there.
#[derive(Debug, Default)]
pub(super) struct Reader {
    at: Mutex<Option<(u64, PartitionScan)>>,
}

impl Reader {
    /// Read the record with this offset.
    fn read(&self, topic: &Topic, offset: u64) -> Result<Record> {
        // A forked child may have inherited the mutex locked.
        let Ok(mut at) = self.at.try_lock() else { return topic.get_in(0, offset) };
        if at.as_ref().is_some_and(|(epoch, _)| *epoch != fork::epoch()) {
            *at = None;
        }
        if let Some((_, scan)) = &mut *at {
            let from = scan.next_offset();
            if from <= offset && offset - from <= NEAR {
                while let Ok(Some((batch, at))) = scan.next_ref() {
                    let here = batch.offset(&at);
                    if here == offset {
                        return Ok(Record::new(batch.clone(), at));
                    }
                    if here > offset {
                        break;
                    }
                }
                *at = None;
            }
        }
        let record = topic.get_in(0, offset)?;
        let ahead = at.as_ref().is_none_or(|(_, scan)| offset > scan.next_offset());
        if ahead {
            *at = topic.scan_partition(0, offset + 1, None).ok().map(|scan| (fork::epoch(), scan));
        }
        Ok(record)
    }

    /// Release the log.
    fn forget(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl QueueFile {
    /// Take up to `n` jobs that may be worked on now, or none if there are none. A suspect comes alone
    /// ([`Lease::suspect`]).
    ///
    /// The take begins work on none of them: [`QueueFile::each`] or [`QueueFile::begin`] does.
    ///
    /// # Errors
    /// `InvalidArgument` for a lease of less than a millisecond; errors of the queue's state and of reading
    /// the records. An error is returned only if the take gets no job; then nothing is leased.
    pub fn take(&self, topic: &Topic, n: usize, lease: Duration) -> Result<Vec<LeasedJob>> {
        if lease < Duration::from_millis(1) {
            return Err(Error::InvalidArgument {
                what: "a lease lasts a millisecond at least".into(),
            });
        }
        let mut jobs = Vec::new();
        let ended = self.fill(topic, n, lease, &mut jobs);
        // If the lock is not available now, the next call does it.
        let _later = self.settle(topic);
        match ended {
            Err(error) if jobs.is_empty() => Err(error),
            _ => Ok(jobs),
        }
    }

    /// Lease jobs and read their records. Jobs that cannot be read stay leased until this has looked for
    /// all others: if they returned before, they would be the next ones again.
    fn fill(
        &self,
        topic: &Topic,
        n: usize,
        lease: Duration,
        jobs: &mut Vec<LeasedJob>,
    ) -> Result<()> {
        let (mut unread, mut ended) = (Vec::new(), Ok(()));
        let is_alone = |jobs: &[LeasedJob]| jobs.first().is_some_and(|job| job.lease.suspect);
        while jobs.len() < n && unread.len() < UNREAD_MAX && !is_alone(jobs) {
            match self.lease(topic, (n - jobs.len(), jobs.is_empty()), lease) {
                Ok(leases) if leases.is_empty() => break,
                Ok(leases) => ended = ended.and(self.read(topic, &leases, jobs, &mut unread)),
                Err(error) => {
                    ended = ended.and(Err(error));
                    break;
                }
            }
        }
        unread.into_iter().for_each(|lease| self.owed.note(lease, ReturnKind::Back(None)));
        ended
    }

    /// Read leased records. A job that cannot be delivered is owed to the queue, and one that cannot be
    /// read is added to `unread`.
    pub(super) fn read(
        &self,
        topic: &Topic,
        leases: &[Lease],
        jobs: &mut Vec<LeasedJob>,
        unread: &mut Vec<Lease>,
    ) -> Result<()> {
        let mut ended = Ok(());
        for lease in leases {
            let how = match self.reader.read(topic, lease.offset) {
                Ok(record) => match not_before(&record, topic) {
                    None => {
                        jobs.push(LeasedJob { lease: *lease, record });
                        continue;
                    }
                    until => ReturnKind::Back(until),
                },
                Err(Error::OffsetOutOfRange { first, .. }) if lease.offset < first => {
                    ReturnKind::Trimmed(first)
                }
                Err(Error::RecordCompacted { .. }) => ReturnKind::Done,
                Err(error) => {
                    ended = ended.and(Err(error));
                    unread.push(*lease);
                    continue;
                }
            };
            self.owed.note(*lease, how);
        }
        ended
    }

    /// Give jobs back as they are, to be delivered again at once or after a delay. Jobs that were not begun
    /// count no attempt. A lease that is over needs nothing. If the lock is not available, the next call
    /// does it.
    ///
    /// # Errors
    /// `InvalidArgument` for a delay that is too long.
    pub fn put_back(&self, topic: &Topic, leases: &[Lease], delay: Duration) -> Result<()> {
        let delay = micros(delay)?;
        let until = (delay > 0).then(|| Now::of(topic.store()).wall + delay);
        leases.iter().for_each(|lease| self.owed.note(*lease, ReturnKind::Back(until)));
        let _later = self.settle(topic);
        Ok(())
    }

    /// Have the next call of this handle give jobs back as they are. This takes no lock, and never fails.
    pub fn owe(&self, leases: &[Lease]) {
        leases.iter().for_each(|lease| self.owed.note(*lease, ReturnKind::Back(None)));
    }

    /// Iterate over the jobs of a batch, and begin each when the iteration reaches it. The iterator skips
    /// jobs whose lease is over by then, because other workers may have them. When it is dropped, it gives
    /// back the jobs that it did not reach, and they count no attempt.
    pub fn each<'a>(&'a self, topic: &'a Topic, jobs: Vec<LeasedJob>) -> Each<'a> {
        Each { queue: self, topic, left: jobs.into_iter() }
    }

    /// Begin the next of these jobs whose lease is not over.
    pub(super) fn begin_next(
        &self,
        topic: &Topic,
        left: &mut std::vec::IntoIter<LeasedJob>,
    ) -> Option<Result<LeasedJob>> {
        loop {
            let lease = left.as_slice().first()?.lease;
            let begun = self.begin(topic, &[lease]);
            match begun {
                // The job stays among those that return to the queue.
                Err(error) if !matches!(error, Error::LeaseExpired { .. }) => {
                    return Some(Err(error));
                }
                _ => {}
            }
            let job = left.next()?;
            if begun.is_ok() {
                return Some(Ok(job));
            }
        }
    }

    /// Give back the jobs that were not begun.
    pub(super) fn return_rest(&self, topic: &Topic, left: &std::vec::IntoIter<LeasedJob>) {
        let left: Vec<_> = left.as_slice().iter().map(|job| job.lease).collect();
        if !left.is_empty() {
            self.owe(&left);
            // If the lock is not available now, the next call does it.
            let _later = self.settle(topic);
        }
    }

    /// Settle the leases that takes could not deliver, if that is not done yet.
    ///
    /// # Errors
    /// Those of the queue's state.
    pub fn settle(&self, topic: &Topic) -> Result<()> {
        if self.owed.is_any() { self.changed(topic, |_, _| Ok(())) } else { Ok(()) }
    }

    /// Close what reading keeps open.
    pub fn rest(&self) {
        self.reader.forget();
    }
}

/// Iterator that begins each job of a batch when it reaches the job; [`QueueFile::each`] makes it.
#[derive(Debug)]
pub struct Each<'a> {
    queue: &'a QueueFile,
    topic: &'a Topic,
    left: std::vec::IntoIter<LeasedJob>,
}

impl Iterator for Each<'_> {
    type Item = Result<LeasedJob>;

    fn next(&mut self) -> Option<Self::Item> {
        self.queue.begin_next(self.topic, &mut self.left)
    }
}

impl Drop for Each<'_> {
    fn drop(&mut self) {
        self.queue.return_rest(self.topic, &self.left);
    }
}

/// Return the time before which no worker gets a record, if that is still to come.
fn not_before(record: &Record, topic: &Topic) -> Option<u64> {
    let mut headers = record.headers();
    let (_, value) = headers.find(|(name, _)| *name == NOT_BEFORE)?;
    let until: u64 = std::str::from_utf8(value?).ok()?.parse().ok()?;
    (until > Now::of(topic.store()).wall && until < 1 << 60).then_some(until)
}
