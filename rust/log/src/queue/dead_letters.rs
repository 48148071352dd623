//! Dead letters: jobs that failed too often become records of another topic, and can be put back.
//!
//! Owns the headers of a dead letter. Invariants: a job is buried only after its dead letter is on
//! the disk. A dead letter is put back once, however often a redrive is interrupted and repeated.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{LeasedJob, NOT_BEFORE, QueueFile};
use crate::error::{Error, Result};
use crate::format::names::hex;
use crate::format::record::{BodyWriter, NewRecord};
use crate::store::options::CODEC;
use crate::topic::{After, Record, SequenceSpan, SyncMode, Topic};

const QUEUE: &str = "falaj-queue";
const TOPIC: &str = "falaj-topic";
const OFFSET: &str = "falaj-offset";
const ATTEMPTS: &str = "falaj-attempts";
const REASON: &str = "falaj-reason";
/// The headers that a job loses when it is put back.
const HEADERS: [&str; 6] = [QUEUE, TOPIC, OFFSET, ATTEMPTS, REASON, NOT_BEFORE];
/// The reason of a job whose worker did not give it back.
const WORKER_DIED: &str = "its worker died, or its lease was over";
/// Most bytes of a reason.
const REASON_MAX: usize = 1000;
/// Bytes of a block beside its records, and more.
const BLOCK: u64 = 256;
/// How long a job stays this process's while its letter is written.
const WRITING: Duration = Duration::from_secs(600);

impl QueueFile {
    /// Append dead letters of jobs to a topic, wait until they are on the disk, and bury the jobs.
    /// A dead letter has the job's key, value and headers. More headers say where it comes from,
    /// how often it was begun, and why it failed: `reason`, or else that its worker died. A job
    /// whose lease is over is left out, since another worker may have it.
    ///
    /// A dead letter may be written twice if this call fails, or the process dies, before the job
    /// is buried.
    ///
    /// # Returns
    /// Whether all leases held.
    ///
    /// # Errors
    /// As [`Topic::append`] to the topic of the dead letters, and those of the queue's state. Jobs
    /// that were not buried stay in flight, and belong to this process for ten minutes.
    pub fn dead_letter(
        &self,
        topic: &Topic,
        jobs: &[LeasedJob],
        reason: Option<&str>,
        letters: &Topic,
    ) -> Result<bool> {
        let leases: Vec<_> = jobs.iter().map(|job| job.lease).collect();
        let kept = self.keep(topic, &leases, WRITING)?;
        let held: Vec<_> = jobs.iter().zip(&kept).filter(|(_, kept)| **kept).collect();
        let mut rest = held.as_slice();
        let mut all = held.len() == jobs.len();
        while !rest.is_empty() {
            let mut bodies = BTreeMap::<u32, BodyWriter>::new();
            let (mut bytes, mut count) = (0, 0);
            for (job, _) in rest {
                let before = bytes;
                bytes += self.write_letter(topic, job, reason, letters, |partition, record| {
                    let is_new = !bodies.contains_key(&partition);
                    let len = record.max_len() as u64 + if is_new { BLOCK } else { 0 };
                    let fits = count == 0 || before + len <= letters.log().max_group_len();
                    if fits {
                        bodies.entry(partition).or_default().push_any(record);
                    }
                    fits.then_some(len)
                });
                if bytes == before {
                    break;
                }
                count += 1;
            }
            let parts: Vec<_> = bodies.iter().map(|(partition, body)| (*partition, body)).collect();
            // A letter has the bytes of its job.
            letters.adopt_codec(topic.codec()?.unwrap_or(CODEC))?;
            let appended = letters.commit_bodies(&parts, Some(SyncMode::Durable))?;
            letters.log().sync_to(appended.1.end)?;
            let (buried, left) = rest.split_at(count);
            let to_ack: Vec<_> = buried.iter().map(|(job, _)| job.to_ack()).collect();
            match self.bury(topic, &to_ack) {
                // Another worker has it, and gives it up as well.
                Err(Error::LeaseExpired { .. }) => all = false,
                done => done?,
            }
            rest = left;
        }
        Ok(all)
    }

    /// Lay out one letter, and have it written: `write` says how many bytes it took, or none where it does not fit.
    fn write_letter(
        &self,
        topic: &Topic,
        job: &LeasedJob,
        reason: Option<&str>,
        letters: &Topic,
        write: impl FnOnce(u32, &NewRecord<'_>) -> Option<u64>,
    ) -> u64 {
        let (batch, at) = job.record.clone().into_parts();
        let begun = job.lease.attempt - u32::from(reason.is_none());
        let (offset, begun) = (job.lease.offset.to_string(), begun.to_string());
        let died = job.lease.suspect.then_some(WORKER_DIED);
        let reason = reason.map(shortened).or(died).filter(|reason| !reason.is_empty());
        let mut headers: Vec<_> = batch.headers(&at).collect();
        headers.extend([
            (QUEUE, Some(self.name().as_bytes())),
            (TOPIC, Some(topic.name().as_bytes())),
            (OFFSET, Some(offset.as_bytes())),
            (ATTEMPTS, Some(begun.as_bytes())),
        ]);
        headers.extend(reason.map(|reason| (REASON, Some(reason.as_bytes()))));
        let (value, key, event_time_ns) =
            (batch.value(&at), batch.key(&at), batch.event_time_ns(&at));
        let record = NewRecord { value, key, headers: &headers, event_time_ns };
        write(letters.partition_for(&record), &record).unwrap_or(0)
    }
}

/// The beginning of a reason that is too long to be kept.
fn shortened(reason: &str) -> &str {
    let end = (0..=REASON_MAX.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
    &reason[..end.unwrap_or(0)]
}

/// Put dead letters of a queue back into its topic until `done` counts `limit` of them. With `dry_run`, only count them.
///
/// They are new jobs with the values, keys and headers of the old ones. The dead letters stay where they are. Each
/// partition of the dead letters is a producer of the topic. Its last sequence is the offset up to which dead letters
/// were put back, and a repeated append appends nothing.
///
/// # Errors
/// As [`Topic::scan`] of the dead letters and [`Topic::append_if`] to the topic. `done` counts the dead letters that
/// were put back before the error.
pub fn redrive(
    queue: &str,
    topic: &Topic,
    letters: &Topic,
    limit: u64,
    dry_run: bool,
    done: &mut u64,
) -> Result<()> {
    let generation = hex(&letters.settings().generation);
    for partition in letters.handled() {
        let producer = format!("redrive.{queue}.{generation}.{partition}");
        let mut last = topic.last_sequence(&producer)?;
        let from = letters.first(partition)?.max(last.unwrap_or(0));
        let end = letters.committed(partition)?;
        let mut scan = letters.scan_partition(partition, from, Some(end))?;
        while *done < limit {
            let Some((batch, at)) = scan.next_ref()? else { break };
            let letter = Record::new(batch.clone(), at);
            // The last one: a dead letter that was a job itself also has the header of its first queue.
            let of = letter.headers().filter(|(name, _)| *name == QUEUE).last();
            if of != Some((QUEUE, Some(queue.as_bytes()))) {
                continue;
            }
            if !dry_run {
                let sequence = letter.offset() + 1;
                let after = last.map_or(After::Nothing, After::Exactly);
                let span = SequenceSpan { after, first: sequence, last: sequence };
                put_back(topic, &letter, &producer, span)?;
                last = Some(sequence);
            }
            *done += 1;
        }
    }
    Ok(())
}

/// Append the original job of a dead letter.
fn put_back(topic: &Topic, letter: &Record, producer: &str, span: SequenceSpan) -> Result<()> {
    let headers: Vec<_> = letter.headers().filter(|(name, _)| !HEADERS.contains(name)).collect();
    let (value, key) = (letter.value(), letter.key());
    let job = NewRecord { value, key, headers: &headers, event_time_ns: None };
    topic.append_if(job, &[topic.expect_sequence(producer, span)?]).map(drop)
}
