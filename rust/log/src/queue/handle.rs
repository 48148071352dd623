//! A queue as programs use it: with its topic, and jobs that say themselves what became of them.
//!
//! Owns the topic and the length of a lease that the calls of [`QueueFile`] are given. A job holds both, so that it
//! can be acked from any thread, also after the queue was dropped.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{LeasedJob, NOT_BEFORE, Now, QueueFile, QueueInfo, QueueOptions, admin, micros};
use crate::error::Result;
use crate::format::record::NewRecord;
use crate::store::Store;
use crate::topic::{Record, Topic};

/// How long a worker has for a job unless asked otherwise.
const LEASE: Duration = Duration::from_secs(60);

/// A work queue over a topic with one partition. Workers in any process take jobs; each job goes to one at a time.
///
/// A job that is acked is done. One that is not is delivered again: at once when its process dies, and otherwise
/// after its lease.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use falaj::Store;
/// # let dir = tempfile::tempdir()?;
/// let store = Store::open(dir.path().join("events"))?;
/// let emails = store.queue("emails")?;
/// emails.put(b"welcome ann")?;
/// for job in emails.take(10, Duration::ZERO)? {
///     let job = job?;
///     assert_eq!(job.value(), Some(b"welcome ann".as_slice()));
///     job.ack()?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: QueueFile,
    topic: Topic,
    lease: Duration,
}

/// How to open a queue; [`Store::queue_options`] makes one.
#[derive(Clone, Debug)]
#[must_use = "`open` opens the queue"]
pub struct QueueBuilder {
    store: Store,
    name: String,
    topic: Option<Topic>,
    ordered: Option<bool>,
    lease: Duration,
    create: bool,
}

impl Store {
    /// Open a work queue over the topic of the same name; both are created where they are missing. All records that
    /// the topic has are jobs of a new queue.
    ///
    /// # Errors
    /// As [`QueueBuilder::open`].
    pub fn queue(&self, name: &str) -> Result<Queue> {
        self.queue_options(name).open()
    }

    /// Choose how to open a queue.
    pub fn queue_options(&self, name: &str) -> QueueBuilder {
        let (store, name) = (self.clone(), name.to_owned());
        QueueBuilder { store, name, topic: None, ordered: None, lease: LEASE, create: true }
    }

    /// List the names of all queues, sorted.
    ///
    /// # Errors
    /// `SystemCallFailed` when the directory cannot be read.
    pub fn queue_names(&self) -> Result<Vec<String>> {
        self.queues()
    }

    /// Delete a queue. Its records stay in their topic; jobs that are in flight cannot be acked any more.
    ///
    /// # Errors
    /// `UnknownQueue`, `NotWritable`, `LockTimeout`, `SystemCallFailed`.
    pub fn delete_queue(&self, name: &str) -> Result<()> {
        admin::delete(self, name)
    }
}

impl QueueBuilder {
    /// Take the jobs from this topic, which has one partition, instead of the topic of the queue's name.
    pub fn topic(self, topic: &Topic) -> Self {
        Self { topic: Some(topic.clone()), ..self }
    }

    /// Deliver a record only when the one before it with the same key is done. A queue keeps what it was created
    /// with.
    pub fn ordered(self, ordered: bool) -> Self {
        Self { ordered: Some(ordered), ..self }
    }

    /// Give workers so long for a job, a minute by default.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Create the queue, and the topic of its name, where they are missing; true by default.
    pub fn create(self, create: bool) -> Self {
        Self { create, ..self }
    }

    /// Open the queue.
    ///
    /// # Errors
    /// `InvalidName`; `UnknownQueue` where it may not be created; `InvalidArgument` for a topic with several partitions; `SettingsMismatch` where the queue has another topic
    /// or order; `NotWritable`; `CorruptData`, `UnsupportedVersion`; `NoSpace`, `LockTimeout`, `SystemCallFailed`.
    pub fn open(self) -> Result<Queue> {
        if !self.create {
            admin::expect(&self.store, &self.name)?;
        }
        let topic = self.topic.map_or_else(|| self.store.topic(&self.name), Ok)?;
        let options = QueueOptions { ordered: self.ordered, ..QueueOptions::default() };
        let file = QueueFile::open(&topic, &self.name, options)?;
        Ok(Queue { shared: Arc::new(Shared { file, topic, lease: self.lease }) })
    }
}

impl Queue {
    /// Get its name.
    pub fn name(&self) -> &str {
        self.shared.file.name()
    }

    /// Get the topic that its jobs are records of.
    pub fn topic(&self) -> &Topic {
        &self.shared.topic
    }

    /// Put a job into the queue: append a record to its topic. Returns its offset.
    ///
    /// # Errors
    /// As [`Topic::append`].
    pub fn put<'a>(&self, record: impl Into<NewRecord<'a>>) -> Result<u64> {
        Ok(self.topic().append(record)?.offset)
    }

    /// Put a job into the queue that is delivered after a delay. The record gets a header that says when.
    ///
    /// # Errors
    /// As [`Topic::append`]; `InvalidArgument` for a delay that leads out of the calendar.
    pub fn put_after<'a>(&self, record: impl Into<NewRecord<'a>>, delay: Duration) -> Result<u64> {
        let (record, delay) = (record.into(), micros(delay)?);
        let until = (Now::of(self.topic().store()).wall + delay).to_string();
        let mut headers = record.headers.to_vec();
        headers.push((NOT_BEFORE, Some(until.as_bytes())));
        self.put(record.headers(&headers))
    }

    /// Take up to `n` jobs that are ready, and wait for the first one: without a timeout as long as it takes, with
    /// [`Duration::ZERO`] not at all. After the timeout there are none.
    ///
    /// A job begins when the iteration reaches it, which counts as an attempt. Those that are not reached go back to
    /// the queue when the iterator is dropped. A job whose worker died comes alone.
    ///
    /// # Errors
    /// `InvalidArgument` for a lease below a millisecond; `TopicDeleted`, `CorruptData`, `LockTimeout`, `SystemCallFailed`. Nothing is leased
    /// then.
    pub fn take(&self, n: usize, timeout: impl Into<Option<Duration>>) -> Result<Jobs> {
        let Shared { file, topic, lease } = &*self.shared;
        let (timeout, began) = (timeout.into(), Instant::now());
        loop {
            let jobs = file.take(topic, n, *lease)?;
            let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            if !jobs.is_empty() || n == 0 || left == Some(Duration::ZERO) {
                return Ok(Jobs { shared: Arc::clone(&self.shared), left: jobs.into_iter() });
            }
            file.wait(topic, left, &|| false)?;
        }
    }

    /// Get the queue in numbers.
    ///
    /// # Errors
    /// `TopicDeleted`, `CorruptData`, `LockTimeout`, `SystemCallFailed`.
    pub fn info(&self) -> Result<QueueInfo> {
        self.shared.file.info(&self.shared.topic)
    }
}

/// Jobs that were taken; each begins when the iteration reaches it. [`Queue::take`] makes it.
#[derive(Debug)]
pub struct Jobs {
    shared: Arc<Shared>,
    left: std::vec::IntoIter<LeasedJob>,
}

impl Iterator for Jobs {
    type Item = Result<Job>;

    fn next(&mut self) -> Option<Self::Item> {
        let Shared { file, topic, .. } = &*self.shared;
        let begun = file.begin_next(topic, &mut self.left)?;
        Some(begun.map(|leased| Job { shared: Arc::clone(&self.shared), leased }))
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.shared.file.return_rest(&self.shared.topic, &self.left);
    }
}

/// A job that a worker has begun: a record, and the right to work on it until its lease ends. It dereferences to its
/// [`Record`]. A job that is dropped is neither acked nor given back.
#[derive(Clone, Debug)]
pub struct Job {
    shared: Arc<Shared>,
    leased: LeasedJob,
}

impl Deref for Job {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.leased.record
    }
}

impl Job {
    /// Get its record.
    pub fn record(&self) -> &Record {
        &self.leased.record
    }

    /// Get how often work on it was begun, this time included.
    pub fn attempt(&self) -> u32 {
        self.leased.lease.attempt
    }

    /// Say whether the last worker that had begun it died or was late.
    pub fn is_suspect(&self) -> bool {
        self.leased.lease.suspect
    }

    /// Say that it is done.
    ///
    /// # Errors
    /// `LeaseExpired` where its lease is over: another worker may have the job.
    pub fn ack(&self) -> Result<()> {
        self.shared.file.ack(&self.shared.topic, &[self.leased.to_ack()])
    }

    /// Say that it failed: it is delivered again after this delay.
    ///
    /// # Errors
    /// As [`Job::ack`]; `InvalidArgument` for a delay that leads out of the calendar.
    pub fn nack(&self, delay: Duration) -> Result<()> {
        self.shared.file.nack(&self.shared.topic, &[self.leased.lease], delay)
    }

    /// Give up on it: it is done, and counts as dead. A program that wants to keep dead jobs appends the record to a
    /// dead-letter topic first.
    ///
    /// # Errors
    /// As [`Job::ack`].
    pub fn bury(&self) -> Result<()> {
        self.shared.file.bury(&self.shared.topic, &[self.leased.to_ack()])
    }

    /// Ask for more time: let the lease end so long after now.
    ///
    /// # Errors
    /// As [`Job::ack`].
    pub fn extend(&self, lease: Duration) -> Result<()> {
        self.shared.file.extend(&self.shared.topic, &[self.leased.lease], lease)
    }
}
