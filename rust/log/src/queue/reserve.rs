//! Reserved jobs: jobs whose leases outlive the process that took them.
//!
//! Owns tickets. A program that takes jobs on behalf of workers in other processes reserves them, and gives each
//! worker the ticket of its job. The end of that program ends no reservation: the job's entry says *delayed* and
//! *begun*, and names no holder. Until its time is over no worker gets the job. Any process that has the ticket may
//! settle it. Invariant: a ticket settles the record that it was made for, and no other one that took its place.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::handle::{Job, Jobs, Queue};
use super::{Lease, QueueFile, micros};
use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::topic::{Record, Topic};

/// The holder in a lease of a reserved job: no process.
pub(super) const NO_PROCESS: u32 = 0;
/// Why a ticket is refused.
const NEVER: &str = "it was never delivered, or a power failure undid that: drop this result";
const REPLACED: &str =
    "its record was lost in a power failure, and another has its place: drop this result";

/// The right to settle a reserved job, as a text that programs can send to each other. [`Jobs::reserve`] makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    offset: u64,
    delivery: u32,
    lineage: u64,
    mark: u64,
}

impl Ticket {
    /// Get the offset of the job's record.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, delivery, lineage, mark } = self;
        write!(f, "{offset}-{delivery}-{lineage:016x}-{mark:016x}")
    }
}

impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| Error::InvalidArgument {
            what: format!("{:?} is no ticket of a job", text.chars().take(80).collect::<String>()),
        })
    }
}

/// Read the text of a ticket. It has one form alone, so that equal tickets are equal texts.
fn parse(text: &str) -> Option<Ticket> {
    let mut parts = text.splitn(4, '-');
    let mut part = || parts.next();
    let (offset, delivery) = (part()?.parse().ok()?, part()?.parse().ok()?);
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let ticket = Ticket { offset, delivery, lineage: hex(part()?)?, mark: hex(part()?)? };
    (ticket.to_string() == text).then_some(ticket)
}

impl QueueFile {
    /// Begin work on jobs, and keep them from other workers for so long, whatever becomes of this process. Returns the
    /// lease of each reservation; none where the job's own lease is over.
    ///
    /// # Errors
    /// `InvalidArgument` for a time that is too long; those of the queue's state.
    pub fn reserve(
        &self,
        topic: &Topic,
        leases: &[Lease],
        time: Duration,
    ) -> Result<Vec<Option<Lease>>> {
        let time = micros(time)?;
        self.changed(topic, |ring, now| {
            let reserve = |lease: &Lease| match ring.held(lease, now) {
                Ok(found) => {
                    ring.reserve(lease.offset, &found, now.wall + time, now)?;
                    Ok(Some(Lease { holder: NO_PROCESS, ..*lease }))
                }
                Err(_) => Ok(None),
            };
            leases.iter().map(reserve).collect()
        })
    }

    /// Find the lease of a reservation; `None` where the job is done.
    fn reserved(&self, topic: &Topic, ticket: &Ticket) -> Result<Option<Lease>> {
        let Ticket { offset, delivery, lineage, .. } = *ticket;
        let (attempt, suspect, holder) = (0, false, NO_PROCESS);
        let lease = Lease { offset, attempt, delivery, suspect, holder, lineage };
        let found = self.locked(topic, |ring, now| {
            let is_of_this = lineage == ring.file.lineage();
            Ok(match ring.held(&lease, now) {
                Ok(found) => Ok(Some(Lease { attempt: found.entry.attempts, ..lease })),
                Err(_) if is_of_this && ring.is_done(offset) => Ok(None),
                Err(_) if is_of_this && offset >= ring.ends.head => Err(NEVER),
                Err(why) => Err(why),
            })
        })?;
        found.map_err(|why| Error::LeaseExpired { queue: self.name().to_owned(), offset, why })
    }
}

impl Jobs {
    /// Look at the records of the jobs that the iteration has not reached. This begins none of them.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.rest().iter().map(|job| &job.record)
    }

    /// Begin the first `n` of these jobs, and keep each from other workers for so long, whatever becomes of this
    /// process. The others go back to the queue, and so does a job whose lease is over.
    ///
    /// So a program can take jobs for workers that are other programs. It sends a worker the ticket, and gets that back
    /// when the job is done. [`Queue::reserved`] finds the job of a ticket, in any process, also after
    /// a restart. A reservation that ends without a word of its worker makes the job a suspect.
    ///
    /// # Errors
    /// `InvalidArgument` for a time that is too long; `TopicDeleted`, `CorruptData`, `LockTimeout`, `SystemCallFailed`.
    /// The jobs go back to the queue then.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use falaj::{Store, Ticket};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("events");
    /// let text = {
    ///     let emails = Store::open(&path)?.queue("emails")?;
    ///     emails.put(b"welcome ann")?;
    ///     let reserved = emails.take(1, Duration::ZERO)?.reserve(1, Duration::from_secs(60))?;
    ///     reserved[0].0.to_string()
    /// };
    /// let emails = Store::open(&path)?.queue("emails")?;
    /// assert_eq!(emails.take(1, Duration::ZERO)?.count(), 0);
    /// let job = emails.reserved(&text.parse::<Ticket>()?)?.expect("it is not done");
    /// job.ack()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(mut self, n: usize, time: Duration) -> Result<Vec<(Ticket, Job)>> {
        let shared = std::sync::Arc::clone(self.shared());
        let first: Vec<_> = self.rest().iter().take(n).map(|job| job.lease).collect();
        let reserved = shared.file().reserve(shared.topic(), &first, time)?;
        let taken = self.split(first.len()).into_iter().zip(reserved);
        Ok(taken
            .filter_map(|(mut job, lease)| {
                job.lease = lease?;
                let mark = job.record.block().fingerprint();
                let Lease { offset, delivery, lineage, .. } = job.lease;
                Some((Ticket { offset, delivery, lineage, mark }, Job::of(&shared, job)))
            })
            .collect())
    }
}

impl Queue {
    /// Find the job of a ticket, to settle it. `None` where the job is done, by this ticket or by another worker.
    ///
    /// # Errors
    /// `LeaseExpired` where the reservation is over: another worker may have the job. `TopicDeleted`, `CorruptData`,
    /// `LockTimeout`, `SystemCallFailed`.
    pub fn reserved(&self, ticket: &Ticket) -> Result<Option<Job>> {
        let (shared, topic) = (self.shared(), self.topic());
        let Some(lease) = shared.file().reserved(topic, ticket)? else { return Ok(None) };
        let record = match topic.get_in(0, lease.offset) {
            Ok(record) => record,
            // Such records count as done.
            Err(Error::RecordCompacted { .. }) => return Ok(None),
            Err(Error::OffsetOutOfRange { first, .. }) if lease.offset < first => return Ok(None),
            Err(error) => return Err(error),
        };
        // Compacted records were on the disk before.
        let block = record.block();
        let is_other = block.fingerprint() != ticket.mark && !planted(Canary::TicketWithoutMark);
        if is_other && !block.is_compacted() {
            let (queue, offset) = (self.name().to_owned(), lease.offset);
            return Err(Error::LeaseExpired { queue, offset, why: REPLACED });
        }
        Ok(Some(Job::of(shared, super::LeasedJob { lease, record })))
    }

    /// Get how long a take finds nothing, unless a record is appended or a job returns to the queue. `None` stands for
    /// as long as that takes. While other processes have jobs it is 20 ms at most, since one of them may die.
    ///
    /// # Errors
    /// `TopicDeleted`, `CorruptData`, `LockTimeout`, `SystemCallFailed`.
    pub fn due(&self) -> Result<Option<Duration>> {
        self.shared().file().due(self.topic())
    }
}
