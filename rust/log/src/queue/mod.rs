//! Work queues: what became of each record of a topic, kept beside it in one file.
//!
//! Owns leases: a record is handed out to one process at a time, until that acks it, gives it back,
//! dies, or its time is over. Invariants, each with its proof in `docs/PROTOCOL.md`, "Queues": no
//! record is lost (it counts as done only after its holder said so, or was trimmed); none is handed to
//! two living holders at a time. A job may be done twice: when its holder dies or is late after the
//! work and before the ack, and when a loss of power takes an ack back.
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
//! A job that is leased is *begun* or not. Beginning is what counts as an attempt. A job that was never
//! begun comes back as if it had not been delivered, whatever becomes of its holder. Where the holder dies
//! or is late, what it had begun is *suspect*: it is delivered alone, so that the next death accuses no
//! other job.
//!
//! Records are read from the topic by their offsets; nothing of them is copied into the state. What
//! becomes of jobs that were tried too often is left to who takes them. Bytes: `docs/FORMAT.md`,
//! "Queue".

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
pub use overview::{QueueInfo, look, overview};
use ring::{Back, Ring, Room};

/// How often a process looks for dead holders, while there are others' leases.
const LOOK_EVERY_US: u64 = 20_000;
/// Places of a new queue.
const CAPACITY: u64 = 4096;

/// What a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Of records with the same key, hand out the next one only when the one before is done. `None`: as
    /// the queue has it.
    pub ordered: Option<bool>,
    /// How many places a new one has at first, a power of two: for tests.
    pub capacity: u64,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { ordered: None, capacity: CAPACITY }
    }
}

/// What time it is.
#[derive(Clone, Copy, Debug)]
struct Now {
    steady: u64,
    wall: u64,
}

impl Now {
    fn of(store: &Store) -> Self {
        let storage = store.storage();
        // 0 means "at once" to the heap.
        let steady = storage.steady_us().max(1) as u64;
        Self { steady, wall: storage.now_us().max(0) as u64 }
    }
}

/// A right to a job, of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Which record.
    pub offset: u64,
    /// How often work on it was begun, this time included, whether it has begun yet or not.
    pub attempt: u32,
    /// How often it was delivered, modulo 2³¹: no two leases of a job have the same.
    pub delivery: u32,
    /// True where the last process that worked on it died or was late: it is alone in its batch.
    pub suspect: bool,
    /// Which process has it.
    pub holder: u32,
    /// Of which state: when the queue is reset it has another.
    pub lineage: u64,
}

/// That a lease was kept, or of which job it could not be, and why.
type Kept = std::result::Result<(), (u64, &'static str)>;

/// What tells that something was given back since, or that the queue was reset.
type Changes = (u64, u64);

/// When there may be something to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Now,
    /// Microseconds from now, at the latest; `None`: when something is appended or given back.
    In(Option<u64>),
}

/// A work queue. Threads may share it; each call is given the topic, whose store it uses.
#[derive(Debug)]
pub struct QueueFile {
    name: String,
    path: PathBuf,
    options: QueueOptions,
    /// When this handle looked for dead holders last.
    looked: AtomicU64,
    /// When it asked last how far the topic is on the medium.
    asked: AtomicU64,
    /// Up to where the topic was seen to be on the medium.
    durable: AtomicU64,
    /// Whether it kept the order of keys when this handle saw its state last.
    was_ordered: AtomicBool,
    reader: jobs::Reader,
    owed: undelivered::Undelivered,
}

impl QueueFile {
    /// Open a queue over a topic, creating it where there is none: then all records that the topic has
    /// are to be done.
    ///
    /// # Errors
    /// `InvalidName`; `InvalidArgument` for a topic with several partitions; `SettingsMismatch` where the queue is
    /// one of another topic or order; `NotWritable`; `CorruptData`, `UnsupportedVersion`; `NoSpace`, `LockTimeout`, `SystemCallFailed`.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ack a job: its record is done. Jobs that cannot be acked do not keep the others from it.
    ///
    /// # Errors
    /// `LeaseExpired` for the first whose lease is over or is another's: somebody else may have the job.
    pub fn ack(&self, topic: &Topic, jobs: &[(Lease, u64)]) -> Result<()> {
        self.finish(topic, jobs, false)
    }

    /// Ack jobs and count them as given up.
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
        // They are acked, whatever becomes of this.
        if let Some(durable) = is_lagging.then(|| topic.durable(0).ok()).flatten() {
            self.durable.fetch_max(durable, Ordering::Relaxed);
        }
        if frees {
            topic.log().wake_all();
        }
        self.all_were_ours(refused)
    }

    /// Begin work on jobs: from here on, this is an attempt, however it ends. Begin each before its work;
    /// [`QueueFile::each`] does. Without it, a job that kills its worker is never counted. Costs a store into the
    /// queue's file, and no sync: a power failure may take it back.
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

    /// Give jobs back that were tried in vain, to be delivered again at once or after a delay. That is an
    /// attempt, begun or not; [`QueueFile::put_back`] gives back what was not begun.
    ///
    /// # Errors
    /// As [`QueueFile::ack`]; `InvalidArgument` for a delay that leads out of the calendar.
    pub fn nack(&self, topic: &Topic, leases: &[Lease], delay: Duration) -> Result<()> {
        let delay = micros(delay)?;
        let refused = self.changed(topic, |ring, now| {
            let until = (delay > 0).then_some(now.wall + delay);
            let mut refused = None;
            for lease in leases {
                match ring.held(lease, now) {
                    Ok(found) => ring.give_back(lease.offset, &found, until, Back::Failed, now)?,
                    Err(why) => refused = refused.or(Some((lease.offset, why))),
                }
            }
            ring.tell()?;
            Ok(refused)
        })?;
        topic.log().wake_all();
        self.all_were_ours(refused)
    }

    /// Have leases end so long after now.
    ///
    /// # Errors
    /// As [`QueueFile::ack`].
    pub fn extend(&self, topic: &Topic, leases: &[Lease], lease: Duration) -> Result<()> {
        let refused =
            self.kept(topic, leases, lease)?.into_iter().find_map(std::result::Result::err);
        self.all_were_ours(refused)
    }

    /// The same for those that are not over: tells which these are.
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
                Ok(found) => ring.extend(held.offset, &found, now.steady + lease).map(Ok),
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

    /// Take leases of up to `n` jobs; of a suspect only if `may_suspect`, and of no other then.
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

    /// A long delay may have made the file large, of which little is needed any more. It does no harm
    /// that it cannot be made smaller.
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

    /// True every 20 ms.
    fn is_due(&self, last: &AtomicU64, now: u64) -> bool {
        let is_due = now.abs_diff(last.load(Ordering::Relaxed)) >= LOOK_EVERY_US;
        if is_due {
            last.store(now, Ordering::Relaxed);
        }
        is_due
    }

    /// Take back what dead processes have. Looks every 20 ms at most.
    fn reclaim(&self, topic: &Topic) -> Result<()> {
        if !self.is_due(&self.looked, Now::of(topic.store()).steady) {
            return Ok(());
        }
        let member = topic.store().membership()?;
        let holders = self.locked(topic, |ring, _| {
            if !ring.file.is_in_place(topic.store())? {
                // Somebody put another in its place without a word, or died before saying it.
                ring.file.set(at::REPLACED, 1)?;
            }
            Ok(ring.due.holders(member.identity()))
        })?;
        for holder in holders {
            let fate = member.fate(holder).doing("ask for a holder of", &self.path)?;
            // The proof is kept until its jobs are taken back: nobody gets its slot meanwhile.
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

    /// How long there is nothing to take, unless something is appended or given back before.
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
                // One of them may die.
                bound = Some(bound.map_or(LOOK_EVERY_US, |bound| bound.min(LOOK_EVERY_US)));
            }
            Ok((Next::In(bound), changes))
        })
    }

    /// Get the queue in numbers. Where jobs came back, this reads the state of all jobs from the floor on.
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

/// Microseconds, of a length that added to any time does not leave the calendar.
fn micros(duration: Duration) -> Result<u64> {
    let micros = u64::try_from(duration.as_micros()).ok().filter(|micros| *micros < 1 << 56);
    micros.ok_or_else(|| Error::InvalidArgument {
        what: format!("{duration:?} is longer than a job lasts"),
    })
}
