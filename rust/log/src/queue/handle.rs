//! A queue as programs use it: its topic, and jobs that a program acks, nacks or buries.
//!
//! Owns the topic, and the length of a lease that the calls of [`QueueFile`] get. A job holds both.
//! So any thread can ack it, even after the queue was dropped.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{
    Backoff, Lease, LeasedJob, NOT_BEFORE, Now, QueueFile, QueueInfo, QueueOptions, admin, micros,
    redrive, topic_of,
};
use crate::error::{Error, IoResult, Result};
use crate::format::queue::ATTEMPTS_MAX;
use crate::format::record::NewRecord;
use crate::store::Store;
use crate::topic::{Record, Topic};

/// How long a worker has for a job unless asked otherwise.
const LEASE: Duration = Duration::from_secs(60);
/// When jobs whose dead letters could not be written are tried again.
const AGAIN: Duration = Duration::from_secs(1);

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
pub(super) struct Shared {
    file: QueueFile,
    topic: Topic,
    lease: Duration,
    backoff: Option<Backoff>,
    dead_letters: Option<(u32, Topic)>,
}

impl Shared {
    pub(super) fn file(&self) -> &QueueFile {
        &self.file
    }

    pub(super) fn topic(&self) -> &Topic {
        &self.topic
    }

    /// The topic of dead letters, where a job was begun as often as it may be.
    fn gives_up(&self, begun: u32) -> Option<&Topic> {
        let (most, letters) = self.dead_letters.as_ref()?;
        (begun >= *most).then_some(letters)
    }
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
    backoff: Option<Backoff>,
    dead_letters: Option<(u32, Topic)>,
}

impl Store {
    /// Open a work queue, over its own topic. If there is none, create it over the topic of the same name, which is
    /// created as well. All existing records of the topic become jobs of a new queue.
    ///
    /// # Errors
    /// As [`QueueBuilder::open`].
    pub fn queue(&self, name: &str) -> Result<Queue> {
        self.queue_options(name).open()
    }

    /// Choose how to open a queue.
    pub fn queue_options(&self, name: &str) -> QueueBuilder {
        let (store, name) = (self.clone(), name.to_owned());
        let (topic, ordered, backoff, dead_letters) = Default::default();
        let (lease, create) = (LEASE, true);
        QueueBuilder { store, name, topic, ordered, lease, create, backoff, dead_letters }
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
    /// Take the jobs from this topic, which has one partition. A queue that exists has its own topic; a new one takes
    /// the topic of its name by default.
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

    /// Deliver failed jobs again after these delays, unless [`Job::nack`] gives one; at once by
    /// default.
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff: Some(backoff), ..self }
    }

    /// Give a job up after so many attempts: append it to a topic of dead letters. [`Queue::redrive`] puts it back.
    pub fn dead_letters(self, max_attempts: u32, letters: &Topic) -> Self {
        Self { dead_letters: Some((max_attempts, letters.clone())), ..self }
    }

    /// Create the queue, and the topic of its name, if they do not exist; true by default.
    pub fn create(self, create: bool) -> Self {
        Self { create, ..self }
    }

    /// Refuse dead letters that would not be given up.
    fn expect_letters(&self, topic: &Topic) -> Result<()> {
        let Some((most, letters)) = &self.dead_letters else { return Ok(()) };
        if !(1..=ATTEMPTS_MAX).contains(most) {
            return Err(Error::invalid(format!(
                "a queue gives jobs up after 1 to {ATTEMPTS_MAX} attempts, not {most}"
            )));
        }
        if letters.settings().generation == topic.settings().generation {
            return Err(Error::invalid(format!(
                "topic {:?} is that of the queue: dead letters would become jobs again; name another topic",
                topic.name()
            )));
        }
        Ok(())
    }

    /// Open the queue.
    ///
    /// # Errors
    /// `UnknownQueue` if it does not exist and may not be created. `InvalidArgument` for a topic
    /// with several partitions, and for dead letters in the queue's own topic or after 0 attempts. `SettingsMismatch` if the queue has another topic or order.
    /// `InvalidName`, `NotWritable`, `CorruptData`, `UnsupportedVersion`, `NoSpace`, `LockTimeout`,
    /// `SystemCallFailed`.
    pub fn open(self) -> Result<Queue> {
        if !self.create {
            admin::expect(&self.store, &self.name)?;
        }
        let own = topic_of(&self.store, &self.name)?;
        let named = || self.store.topic(own.as_deref().unwrap_or(&self.name));
        if let Some(backoff) = &self.backoff {
            backoff.check()?;
        }
        let topic = self.topic.clone().map_or_else(named, Ok)?;
        self.expect_letters(&topic)?;
        let options = QueueOptions { ordered: self.ordered, ..QueueOptions::default() };
        let file = QueueFile::open(&topic, &self.name, options)?;
        let Self { lease, backoff, dead_letters, .. } = self;
        Ok(Queue { shared: Arc::new(Shared { file, topic, lease, backoff, dead_letters }) })
    }
}

impl Queue {
    /// Get its name.
    pub fn name(&self) -> &str {
        self.shared.file.name()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
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

    /// Take up to `n` jobs that are ready, and wait for the first one. Without a timeout it waits
    /// as long as it takes; with [`Duration::ZERO`] it does not wait. After the timeout it returns
    /// no jobs.
    ///
    /// A job begins when the iteration reaches it, which counts as an attempt. Jobs that it does
    /// not reach return to the queue when the iterator is dropped. A job whose worker died comes
    /// alone.
    ///
    /// # Errors
    /// `InvalidArgument` for a lease below a millisecond; `TopicDeleted`, `CorruptData`, `LockTimeout`, `SystemCallFailed`; as
    /// [`Topic::append`] for dead letters. Nothing is leased then, or it returns to the queue.
    pub fn take(&self, n: usize, timeout: impl Into<Option<Duration>>) -> Result<Jobs> {
        let Shared { file, topic, lease, .. } = &*self.shared;
        let (timeout, began) = (timeout.into(), Instant::now());
        loop {
            let taken = file.take(topic, n, *lease)?;
            let jobs = self.give_up(taken)?;
            let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            if !jobs.is_empty() || n == 0 || left == Some(Duration::ZERO) {
                return Ok(Jobs { shared: Arc::clone(&self.shared), left: jobs.into_iter() });
            }
            file.wait(topic, left, &|| false)?;
        }
    }

    /// Write dead letters of the jobs that were begun too often before, and return the others.
    fn give_up(&self, taken: Vec<LeasedJob>) -> Result<Vec<LeasedJob>> {
        let Shared { file, topic, .. } = &*self.shared;
        let begun = |job: &LeasedJob| job.lease.attempt - 1;
        let is_worn = |job: &LeasedJob| self.shared.gives_up(begun(job)).is_some();
        let (worn, jobs): (Vec<_>, Vec<_>) = taken.into_iter().partition(is_worn);
        let Some(letters) = worn.first().and_then(|job| self.shared.gives_up(begun(job))) else {
            return Ok(jobs);
        };
        if let Err(error) = file.dead_letter(topic, &worn, None, letters) {
            // The caller gets none of these jobs.
            file.put_back(topic, &leases(&jobs), Duration::ZERO)?;
            file.put_back(topic, &leases(&worn), AGAIN)?;
            return Err(error);
        }
        Ok(jobs)
    }

    /// Put dead letters of this queue back into it, at most `limit` of them, and count them. They are new jobs. The
    /// letters stay in their topic, and repeating this puts none back twice.
    ///
    /// # Errors
    /// `InvalidArgument` for a queue without [dead letters](QueueBuilder::dead_letters); as [`Topic::scan`] and
    /// [`Topic::append_if`].
    pub fn redrive(&self, limit: impl Into<Option<u64>>) -> Result<u64> {
        let Some((_, letters)) = &self.shared.dead_letters else {
            let what = format!(
                "queue {:?} was opened without dead letters: name their topic",
                self.name()
            );
            return Err(Error::InvalidArgument { what });
        };
        let (mut done, limit) = (0, limit.into().unwrap_or(u64::MAX));
        redrive(self.name(), self.topic(), letters, limit, false, &mut done)?;
        Ok(done)
    }

    /// Get the queue in numbers.
    ///
    /// # Errors
    /// `TopicDeleted`, `CorruptData`, `LockTimeout`, `SystemCallFailed`.
    pub fn info(&self) -> Result<QueueInfo> {
        self.shared.file.info(&self.shared.topic)
    }
}

fn leases(jobs: &[LeasedJob]) -> Vec<Lease> {
    jobs.iter().map(|job| job.lease).collect()
}

/// Jobs that were taken; each begins when the iteration reaches it. [`Queue::take`] makes it.
#[derive(Debug)]
pub struct Jobs {
    shared: Arc<Shared>,
    left: std::vec::IntoIter<LeasedJob>,
}

impl Jobs {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The jobs that the iteration has not reached.
    pub(super) fn rest(&self) -> &[LeasedJob] {
        self.left.as_slice()
    }

    /// Take away the first `n` of these jobs, which others look after; the rest goes back to the queue.
    pub(super) fn split(&mut self, n: usize) -> Vec<LeasedJob> {
        self.left.by_ref().take(n).collect()
    }
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

/// A job that a worker has begun: a record, and the right to work on it until its lease ends. It
/// dereferences to its [`Record`]. A job that is dropped is neither acked nor returned to the
/// queue.
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
    pub(super) fn of(shared: &Arc<Shared>, leased: LeasedJob) -> Self {
        Self { shared: Arc::clone(shared), leased }
    }

    /// Get its record.
    pub fn record(&self) -> &Record {
        &self.leased.record
    }

    /// Get how often work on it was begun, this time included.
    pub fn attempt(&self) -> u32 {
        self.leased.lease.attempt
    }

    /// Tell whether the last worker that had begun it died or was late.
    pub fn is_suspect(&self) -> bool {
        self.leased.lease.suspect
    }

    /// Mark the job as done.
    ///
    /// # Errors
    /// `LeaseExpired` if its lease is over: another worker may have the job.
    pub fn ack(&self) -> Result<()> {
        self.shared.file.ack(&self.shared.topic, &[self.leased.to_ack()])
    }

    /// Mark the job as failed, and say why. It is delivered again after this delay, or after that
    /// of the queue's [backoff](QueueBuilder::backoff). After the last attempt it becomes a [dead
    /// letter](QueueBuilder::dead_letters), which keeps the reason. If the dead letter cannot be
    /// written now, a later take writes it.
    ///
    /// # Errors
    /// As [`Job::ack`]; `InvalidArgument` for a delay that leads out of the calendar.
    pub fn nack(&self, delay: impl Into<Option<Duration>>, reason: &str) -> Result<()> {
        let Shared { file, topic, backoff, .. } = &*self.shared;
        if let Some(letters) = self.shared.gives_up(self.attempt()) {
            let jobs = std::slice::from_ref(&self.leased);
            // Where the lease is over, that is said below. Any other error is the next take's to raise.
            if let Ok(true) = file.dead_letter(topic, jobs, Some(reason), letters) {
                return Ok(());
            }
        }
        let storage = topic.store().storage();
        let random = storage.random().doing("draw a random number for", topic.store().path())?;
        let backoff = backoff.map(|backoff| backoff.delay(self.attempt(), random));
        let delay = delay.into().or(backoff).unwrap_or_default();
        file.nack(topic, &[self.leased.lease], delay)
    }

    /// Give the job up: it is done, and counts as dead. It leaves no dead letter.
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
