//! Work queues: one file beside a topic, which keeps what became of each record.
//!
//! Owns leases. A queue delivers a record to one process at a time. The lease lasts until that process acks
//! the record, gives it back or dies, or until its time is over. `docs/PROTOCOL.md`, "Queues", proves the
//! invariants. No record is lost: it counts as done only after its holder said so, or after it was trimmed.
//! No two living holders have a record at the same time. A job may be done twice. That happens if its holder
//! dies or is late between the work and the ack, or if a power failure undoes the ack.
//!
//! ```text
//!            take                     ack
//!   ready ─────────> leased ────────────────────────> done ──> passed by the floor
//!     ^               │  │ nack(delay)
//!     │  nack, death, │  └───────> delayed
//!     └── deadline ───┘               │ take, when its time has come
//!     ^                               v
//!     └──────────────────────────── leased
//! ```
//!
//! A leased job is *begun* or not. Its attempt counts when the job is begun. A job that was never begun
//! returns as if it had not been delivered, whatever becomes of its holder. If the holder dies or is
//! late, the jobs that it had begun become *suspects*. So do several that were begun, when an error ends their
//! batch. Each suspect is delivered alone, so that another death makes no other job a suspect.
//!
//! A lease ends with its process, unless the job is *reserved* ([`reserve`]). A reserved job's lease lasts until its
//! time is over, and any process that has the job's ticket may settle it.
//!
//! A take reads records from the topic by their offsets, and copies nothing of them into the state. The
//! caller decides what becomes of jobs that were tried too often. Bytes: `docs/FORMAT.md`, "Queue".

mod admin;
mod backoff;
mod damage;
mod dead_letters;
mod handle;
mod jobs;
mod key_hash;
mod open;
mod overview;
mod rebuild;
mod reserve;
mod ring;
mod state;
#[cfg(test)]
mod tests;
mod timer_heap;
mod undelivered;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult, Result};
use crate::format::queue::{CAPACITY_MAX, CAPACITY_MIN, NO_HEAP, at};
use crate::lock::{Fate, Holders};
use crate::log::{Interrupt, Wait};
use crate::store::Store;
use crate::topic::Topic;

pub use admin::{delete, expect, list};
pub use backoff::Backoff;
pub use dead_letters::redrive;
pub use handle::{Job, Jobs, Queue, QueueBuilder};
pub use jobs::{Each, LeasedJob, NOT_BEFORE};
use key_hash::lane_of;
pub use overview::{QueueInfo, look, overview, topic_of};
pub use reserve::Ticket;
use ring::{Back, Ring, Room};

/// Time between two looks for dead holders, while other processes have leases.
const LOOK_EVERY_US: u64 = 20_000;
/// Number of places of a new queue.
const CAPACITY: u64 = 4096;

/// Options of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// If true, the queue delivers a record only when the record before it with the same key is done.
    /// `None` keeps the queue's own setting.
    pub ordered: Option<bool>,
    /// Number of places that a new queue begins with, a power of two: for tests.
    pub capacity: u64,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { ordered: None, capacity: CAPACITY }
    }
}

/// The time by two clocks, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Now {
    steady: u64,
    wall: u64,
}

impl Now {
    fn of(store: &Store) -> Self {
        let storage = store.storage();
        // To the heap, 0 means "at once".
        let steady = storage.steady_us().max(1) as u64;
        Self { steady, wall: storage.now_us().max(0) as u64 }
    }
}

/// The right of one process to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Offset of the record.
    pub offset: u64,
    /// Number of attempts, this one included, whether it has begun yet or not.
    pub attempt: u32,
    /// Number of deliveries, modulo 2³¹: no two leases of a job have the same number.
    pub delivery: u32,
    /// True if the last process that worked on the job died, was late, or failed at one of several. Then it is alone
    /// in its batch.
    pub suspect: bool,
    /// The process that has the job; 0 for a reserved job, which needs none.
    pub holder: u32,
    /// Number of the queue's state: a reset gives the queue another.
    pub lineage: u64,
}

/// Success if a lease was kept; otherwise the offset of its job, and why not.
type Kept = std::result::Result<(), (u64, &'static str)>;

/// Numbers that change when a job returns to the queue, or when the queue is reset.
type Changes = (u64, u64);

/// The time when there may be something to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Now,
    /// Microseconds from now, at the latest; `None`: when a record is appended or a job returns.
    In(Option<u64>),
}

/// A work queue. Threads may share it. Each call gets the topic, and uses the topic's store.
#[derive(Debug)]
pub struct QueueFile {
    name: String,
    path: PathBuf,
    options: QueueOptions,
    /// Time when this handle last looked for dead holders.
    looked: AtomicU64,
    /// Time when this handle last asked how far the topic is on the disk.
    asked: AtomicU64,
    /// Offset up to which this handle saw the topic on the disk.
    durable: AtomicU64,
    /// True if the queue kept the order of keys when this handle last saw its state.
    was_ordered: AtomicBool,
    reader: jobs::Reader,
    owed: undelivered::Undelivered,
}

impl QueueFile {
    /// Open a queue over a topic. If there is none, create it, with all records of the topic to be done.
    ///
    /// # Errors
    /// `InvalidName`; `InvalidArgument` for a topic with several partitions; `SettingsMismatch` if the queue
    /// has another topic or order; `NotWritable`; `CorruptData`, `UnsupportedVersion`; `NoSpace`, `LockTimeout`,
    /// `SystemCallFailed`.
    pub fn open(topic: &Topic, name: &str, options: QueueOptions) -> Result<Self> {
        let path = topic.store().layout().queue(name)?;
        if topic.partitions() != 1 {
            let what = format!(
                "topic {:?} has {} partitions: a queue needs none, many processes share it as it is; \
                 make one of a topic with one partition",
                topic.name(),
                topic.partitions()
            );
            return Err(Error::InvalidArgument { what });
        }
        let is_sound = options.capacity.is_power_of_two()
            && (CAPACITY_MIN..=CAPACITY_MAX).contains(&options.capacity);
        if !is_sound {
            let what = format!("a queue cannot begin with {} places", options.capacity);
            return Err(Error::InvalidArgument { what });
        }
        let (name, was_ordered) = (name.to_owned(), AtomicBool::new(false));
        let (looked, asked, durable, reader) = Default::default();
        let owed = undelivered::Undelivered::none();
        let queue = Self { name, path, options, looked, asked, durable, was_ordered, reader, owed };
        queue.locked(topic, |_, _| Ok(()))?;
        Ok(queue)
    }

    /// Return the name of the queue.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ack jobs: their records are done. If some cannot be acked, the others still are.
    ///
    /// # Errors
    /// `LeaseExpired` for the first job whose lease is over or is not this process's: another worker may
    /// have the job.
    pub fn ack(&self, topic: &Topic, jobs: &[(Lease, u64)]) -> Result<()> {
        self.finish(topic, jobs, false)
    }

    /// Ack jobs and count them as dead.
    ///
    /// # Errors
    /// As [`QueueFile::ack`].
    pub fn bury(&self, topic: &Topic, jobs: &[(Lease, u64)]) -> Result<()> {
        self.finish(topic, jobs, true)
    }

    fn finish(&self, topic: &Topic, jobs: &[(Lease, u64)], buries: bool) -> Result<()> {
        let durable = self.durable.load(Ordering::Relaxed);
        let (refused, is_lagging, frees) = self.changed(topic, |ring, now| {
            let mut refused = None;
            for (lease, mark) in jobs {
                match ring.held(lease, now) {
                    Ok(found) => {
                        ring.done(lease.offset, &found, *mark, now)?;
                        ring.ends.dead += u64::from(buries);
                    }
                    Err(why) => refused = refused.or(Some((lease.offset, why))),
                }
            }
            ring.pass(durable)?;
            let is_lagging = ring.ends.floor >= durable && self.is_due(&self.asked, now.steady);
            let frees = ring.file.parts().ordered;
            if frees {
                ring.tell()?;
            }
            Ok((refused, is_lagging, frees))
        })?;
        // The jobs are acked, whether this succeeds or not.
        if let Some(durable) = is_lagging.then(|| topic.durable(0).ok()).flatten() {
            self.durable.fetch_max(durable, Ordering::Relaxed);
        }
        if frees {
            topic.log().wake_all();
        }
        self.all_were_ours(refused)
    }

    /// Begin work on jobs: from here on, this counts as an attempt, however it ends. Begin each job before
    /// its work; [`QueueFile::each`] does. Otherwise a job that kills its worker never counts an attempt.
    /// This costs a store into the queue's file, and no sync: a power failure may undo it.
    ///
    /// # Errors
    /// As [`QueueFile::ack`]: do not work on that job.
    pub fn begin(&self, topic: &Topic, leases: &[Lease]) -> Result<()> {
        let refused = self.locked(topic, |ring, now| {
            let mut refused = None;
            for lease in leases {
                match ring.held(lease, now) {
                    Ok(found) => ring.begin_work(lease.offset, &found)?,
                    Err(why) => refused = refused.or(Some((lease.offset, why))),
                }
            }
            Ok(refused)
        })?;
        self.all_were_ours(refused)
    }

    /// Give back jobs that failed, to be delivered again at once or after a delay. Each counts an attempt,
    /// begun or not; [`QueueFile::put_back`] gives back jobs that were not begun.
    ///
    /// # Errors
    /// As [`QueueFile::ack`]; `InvalidArgument` for a delay that is too long.
    pub fn nack(&self, topic: &Topic, leases: &[Lease], delay: Duration) -> Result<()> {
        self.give_back(topic, leases, delay, Back::Failed)
    }

    /// Give back jobs whose batch failed at one of them, where the worker does not know at which. Those that were
    /// begun count an attempt, and are suspects from here on: each is delivered alone.
    ///
    /// # Errors
    /// As [`QueueFile::nack`].
    pub fn suspect(&self, topic: &Topic, leases: &[Lease], delay: Duration) -> Result<()> {
        self.give_back(topic, leases, delay, Back::Suspected)
    }

    fn give_back(&self, topic: &Topic, leases: &[Lease], delay: Duration, why: Back) -> Result<()> {
        let delay = micros(delay)?;
        let refused = self.changed(topic, |ring, now| {
            let until = (delay > 0).then_some(now.wall + delay);
            let mut refused = None;
            for lease in leases {
                match ring.held(lease, now) {
                    Ok(found) => ring.give_back(lease.offset, &found, until, why, now)?,
                    Err(why) => refused = refused.or(Some((lease.offset, why))),
                }
            }
            ring.tell()?;
            Ok(refused)
        })?;
        topic.log().wake_all();
        self.all_were_ours(refused)
    }

    /// Extend leases, each to end `lease` from now.
    ///
    /// # Errors
    /// As [`QueueFile::ack`].
    pub fn extend(&self, topic: &Topic, leases: &[Lease], lease: Duration) -> Result<()> {
        let refused =
            self.kept(topic, leases, lease)?.into_iter().find_map(std::result::Result::err);
        self.all_were_ours(refused)
    }

    /// Extend the leases that are not over, and return for each whether it was extended.
    ///
    /// # Errors
    /// Those of the queue's state.
    pub fn keep(&self, topic: &Topic, leases: &[Lease], lease: Duration) -> Result<Vec<bool>> {
        Ok(self.kept(topic, leases, lease)?.iter().map(std::result::Result::is_ok).collect())
    }

    fn kept(&self, topic: &Topic, leases: &[Lease], lease: Duration) -> Result<Vec<Kept>> {
        let lease = micros(lease)?;
        self.changed(topic, |ring, now| {
            let keep = |held: &Lease| match ring.held(held, now) {
                Ok(found) => ring.extend(held.offset, &found, lease, now).map(Ok),
                Err(why) => Ok(Err((held.offset, why))),
            };
            leases.iter().map(keep).collect()
        })
    }

    fn all_were_ours(&self, refused: Option<(u64, &'static str)>) -> Result<()> {
        let queue = || self.name.clone();
        refused.map_or(Ok(()), |(offset, why)| {
            Err(Error::LeaseExpired { queue: queue(), offset, why })
        })
    }

    /// Take leases of up to `n` jobs. If `may_suspect`, it may take a suspect, and then no other job.
    fn lease(
        &self,
        topic: &Topic,
        (n, may_suspect): (usize, bool),
        lease: Duration,
    ) -> Result<Vec<Lease>> {
        let (lease, end) = (micros(lease)?, topic.end(0)?);
        self.reclaim(topic)?;
        let durable = self.durable.load(Ordering::Relaxed);
        let trimmed = topic.trimmed(0)?;
        let mut was_spoilt = false;
        loop {
            let (out, room) = self.changed(topic, |ring, now| {
                if ring.ends.floor < trimmed {
                    ring.trimmed(trimmed, now)?;
                }
                if ring.room() != Room::Enough {
                    ring.pass(durable.max(self.durable.load(Ordering::Relaxed)))?;
                }
                let lane = |offset| lane_of(topic, offset);
                let out = ring.take((n, may_suspect), end, now.steady + lease, now, &lane)?;
                if out.is_empty() && ring.due.is_spoilt() {
                    return Ok((out, Room::Spoilt));
                }
                let wants = out.is_empty() && ring.ends.head < end;
                let room = if wants { ring.room() } else { Room::Enough };
                if room == Room::Full {
                    ring.resize(topic, ring.larger(CAPACITY_MAX, now)?, now)?;
                } else if out.is_empty() {
                    self.shrink(topic, ring, now)?;
                }
                Ok((out, room))
            })?;
            match room {
                Room::Enough => return Ok(out),
                Room::Full => {}
                Room::Spoilt if was_spoilt => {
                    let (path, position) = (self.path.clone(), at::HEAP);
                    return Err(Error::CorruptData { path, position, what: NO_HEAP });
                }
                Room::Spoilt => was_spoilt = true,
                Room::Undurable => {
                    topic.flush()?;
                    self.durable.fetch_max(topic.durable(0)?, Ordering::Relaxed);
                }
            }
        }
    }

    /// Shrink a file that a long delay made larger than is needed now. It does no harm if the file cannot
    /// be made smaller.
    fn shrink(&self, topic: &Topic, ring: &mut Ring<'_>, now: Now) -> Result<()> {
        let least = self.options.capacity;
        if ring.file.parts().capacity <= least {
            return Ok(());
        }
        ring.pass(topic.durable(0)?)?;
        let Some(fewer) = ring.smaller(least) else { return Ok(()) };
        if ring.resize(topic, fewer, now).is_err() && !ring.file.is_in_place(topic.store())? {
            ring.file.set(at::REPLACED, 1)?;
        }
        Ok(())
    }

    /// Return true every 20 ms.
    fn is_due(&self, last: &AtomicU64, now: u64) -> bool {
        let is_due = now.abs_diff(last.load(Ordering::Relaxed)) >= LOOK_EVERY_US;
        if is_due {
            last.store(now, Ordering::Relaxed);
        }
        is_due
    }

    /// Take back the jobs of dead processes. It looks every 20 ms at most.
    fn reclaim(&self, topic: &Topic) -> Result<()> {
        if !self.is_due(&self.looked, Now::of(topic.store()).steady) {
            return Ok(());
        }
        let member = topic.store().membership()?;
        let holders = self.locked(topic, |ring, _| {
            if !ring.file.is_in_place(topic.store())? {
                // A process replaced the file and did not mark it, or died before it could.
                ring.file.set(at::REPLACED, 1)?;
            }
            Ok(ring.due.holders(member.identity()))
        })?;
        for holder in holders {
            let fate = member.fate(holder).doing("ask for a holder of", &self.path)?;
            // `fate` lives until the jobs are taken back: no other process gets the slot meanwhile.
            if matches!(fate, Fate::Dead(_)) || planted(Canary::HolderRobbed) {
                self.changed(topic, |ring, now| {
                    ring.reclaim(holder, now)?;
                    ring.tell()
                })?;
                topic.log().wake_all();
            }
        }
        Ok(())
    }

    /// Wait until there may be something to take.
    ///
    /// # Errors
    /// `TopicDeleted`, `LockFileReplaced`, and those of the queue's state.
    pub fn wait(
        &self,
        topic: &Topic,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        let start = Instant::now();
        loop {
            let seen = topic.log().committed().unwrap_or_default();
            let (next, changes) = self.next(topic)?;
            let Next::In(bound) = next else { return Ok(Wait::News) };
            if interrupt() {
                return Ok(Wait::Interrupted);
            }
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            if left == Some(Duration::ZERO) {
                return Ok(Wait::TimedOut);
            }
            let bound = bound.map(Duration::from_micros);
            let nap = [left, bound].into_iter().flatten().min();
            let changed = || interrupt() || self.changes(topic).is_none_or(|now| now != changes);
            topic.log().wait_for_news(seen, nap, &changed)?;
            self.reclaim(topic)?;
        }
    }

    /// Return how long there is nothing to take, unless a record is appended or a job returns before.
    ///
    /// # Errors
    /// Those of the queue's state.
    pub fn due(&self, topic: &Topic) -> Result<Option<Duration>> {
        self.reclaim(topic)?;
        Ok(match self.next(topic)?.0 {
            Next::Now => Some(Duration::ZERO),
            Next::In(micros) => micros.map(Duration::from_micros),
        })
    }

    fn changes(&self, topic: &Topic) -> Option<Changes> {
        self.locked(topic, |ring, _| Ok(ring.changes())).ok()
    }

    fn next(&self, topic: &Topic) -> Result<(Next, Changes)> {
        self.settle(topic)?;
        let end = topic.end(0)?;
        let me = topic.store().membership()?.identity();
        self.locked(topic, |ring, now| {
            let changes = ring.changes();
            let earliest = ring.due.earliest().map(|(time, _)| time);
            if ring.ends.head < end || earliest.is_some_and(|time| time <= now.steady) {
                return Ok((Next::Now, changes));
            }
            let mut bound = earliest.map(|time| time - now.steady);
            if !ring.due.holders(me).is_empty() {
                // One of the holders may die.
                bound = Some(bound.map_or(LOOK_EVERY_US, |bound| bound.min(LOOK_EVERY_US)));
            }
            Ok((Next::In(bound), changes))
        })
    }

    /// Get the queue in numbers. If jobs returned, this reads the state of all jobs from the lower bound on.
    ///
    /// # Errors
    /// Those of the queue's state and of the topic.
    pub fn info(&self, topic: &Topic) -> Result<QueueInfo> {
        self.settle(topic)?;
        let missing = || Error::LockFileReplaced { path: self.path.clone() };
        // Under the lock all numbers are of one moment.
        let mut info = self.locked(topic, |_, _| overview::look(topic.store(), &self.name))?;
        let info = info.as_mut().ok_or_else(missing)?;
        // Not under the lock: it may take long.
        info.ready += topic.count_in(0, info.head, None)?;
        Ok(info.clone())
    }
}

/// Convert to microseconds, few enough that adding them to any time does not overflow.
fn micros(duration: Duration) -> Result<u64> {
    const LIMIT: u64 = 1 << 56;
    let micros = u64::try_from(duration.as_micros()).ok().filter(|micros| *micros < LIMIT);
    micros.ok_or_else(|| Error::InvalidArgument {
        what: format!(
            "a lease or a delay is at most {} seconds, not {}",
            LIMIT / 1_000_000,
            duration.as_secs()
        ),
    })
}
