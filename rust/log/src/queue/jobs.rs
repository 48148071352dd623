//! Jobs: leases with their records.
//!
//! Owns reading what was leased, outside of the queue's lock. Invariant: whatever is leased here is
//! handed to the caller, or given back, or found to be trimmed; an error gives all back.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::store::fork;
use crate::topic::{RecordView, Scan, Topic};

use super::{Lease, Now, Queue};

/// Name of the header that says when a record may be handed out first: microseconds since 1970, in
/// decimal digits.
pub const NOT_BEFORE: &str = "falaj-not-before";

/// How many records are walked over rather than looked up.
const NEAR: u64 = 1024;

/// A record, and the right to work on it.
#[derive(Clone, Debug)]
pub struct Job {
    /// The right.
    pub lease: Lease,
    /// The record.
    pub record: RecordView,
}

impl Job {
    /// What [`Queue::ack`] takes.
    pub fn to_ack(&self) -> (Lease, u64) {
        (self.lease, self.record.block().mark())
    }
}

/// Where the last take stopped reading; the next one mostly goes on there.
#[derive(Debug, Default)]
pub(super) struct Reader {
    at: Mutex<Option<(u64, Scan)>>,
}

impl Reader {
    /// The record with this offset.
    fn read(&self, topic: &Topic, offset: u64) -> Result<RecordView> {
        // A forked child may have inherited it locked.
        let Ok(mut at) = self.at.try_lock() else { return topic.get(0, offset) };
        if at.as_ref().is_some_and(|(epoch, _)| *epoch != fork::epoch()) {
            *at = None;
        }
        if let Some((_, scan)) = &mut *at {
            let from = scan.next_offset();
            if from <= offset && offset - from <= NEAR {
                while let Ok(Some((block, parts))) = scan.next_parts() {
                    let here = block.first() + u64::from(parts.offset_delta);
                    if here == offset {
                        return Ok(RecordView::new(block.clone(), parts));
                    }
                    if here > offset {
                        break;
                    }
                }
                *at = None;
            }
        }
        let record = topic.get(0, offset)?;
        let ahead = at.as_ref().is_none_or(|(_, scan)| offset > scan.next_offset());
        if ahead {
            *at = topic.scan(0, offset + 1, None).ok().map(|scan| (fork::epoch(), scan));
        }
        Ok(record)
    }

    /// Let go of the log.
    fn forget(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Queue {
    /// Take up to `n` jobs that may be worked on now; none where there are none.
    ///
    /// # Errors
    /// `Invalid` for a lease of no length; those of the queue's state; those of reading the records:
    /// then nothing is leased, and the next take meets the same.
    pub fn take(&self, topic: &Topic, n: usize, lease: Duration) -> Result<Vec<Job>> {
        if lease < Duration::from_millis(1) {
            return Err(Error::Invalid { what: "a lease lasts a millisecond at least".into() });
        }
        let mut jobs = Vec::new();
        while jobs.len() < n {
            let leases = self.lease(topic, n - jobs.len(), lease)?;
            if leases.is_empty() {
                break;
            }
            for (i, lease) in leases.iter().enumerate() {
                match self.reader.read(topic, lease.offset) {
                    Ok(record) => match not_before(&record, topic) {
                        None => jobs.push(Job { lease: *lease, record }),
                        until => self.put_off(topic, &[*lease], until)?,
                    },
                    Err(Error::OffsetOutOfRange { first, .. }) if lease.offset < first => {
                        self.changed(topic, |ring, now| ring.trimmed(first, now))?;
                    }
                    Err(Error::Compacted { .. }) => self.ack(topic, &[(*lease, 0)])?,
                    Err(error) => {
                        let read = jobs.iter().map(|job| job.lease);
                        let all: Vec<_> = read.chain(leases[i..].iter().copied()).collect();
                        self.put_off(topic, &all, None)?;
                        return Err(error);
                    }
                }
            }
        }
        Ok(jobs)
    }

    /// Let go of what reading keeps open.
    pub fn rest(&self) {
        self.reader.forget();
    }
}

/// Until when a record wants to wait, if that is not over.
fn not_before(record: &RecordView, topic: &Topic) -> Option<u64> {
    if record.parts().headers.is_empty() {
        return None;
    }
    let mut headers = record.headers();
    let (_, value) = headers.find(|(name, _)| *name == NOT_BEFORE)?;
    let until: u64 = std::str::from_utf8(value?).ok()?.parse().ok()?;
    (until > Now::of(topic.store()).wall && until < 1 << 60).then_some(until)
}
