//! Notes of what processes share: which worker has which job, reads which partition, and what was
//! done.
//!
//! The notes are a shared map of a file of its own, outside of falaj. The kernel keeps what was
//! stored when a process is killed.
//!
//! Owns the rules for a queue and a group, from the calls' answers and the time before and after
//! each. Before a call that may take something from a worker, the worker says so here. So
//! everything that is noted here of a living process is true.
//!
//! ```text
//! words 0 to 7   counts            words 8 to 16  partitions: owner, meant, committed
//! words 32 …     keys: the highest offset of each    words 64 to 4095  process ids, by worker
//! words 4096 …   jobs: kind (2 bits), attempt (12), worker (18), end of the lease in ms (32)
//! ```

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;

use crate::system;
use crate::worker::now_us;

/// Most jobs.
pub const JOBS: u64 = 1 << 20;
/// Partitions of the topic that the group reads.
pub const PARTITIONS: u32 = 3;
/// Keys of the topic that is compacted.
pub const KEYS: u64 = 16;

/// Count: jobs that were taken.
pub const TAKEN: usize = 0;
/// Count: jobs that were acked.
pub const ACKED: usize = 1;
/// Count: records that were read and committed.
pub const READ: usize = 2;
/// Count: steps of the cursor that is kept by hand.
pub const STEPS: usize = 3;
/// Count: bulk loads of the sink that were committed.
pub const SUNK: usize = 4;
/// Count: compactions.
pub const COMPACTED: usize = 5;
/// Count: partitions that changed owners.
pub const HANDS: usize = 6;
/// Count: jobs that were delivered again in a log that was carried over.
pub const AGAIN: usize = 7;
/// Names of the counts, for the summary.
pub const COUNTS: [&str; 8] = [
    "jobs_taken",
    "jobs_acked",
    "records_consumed",
    "cursor_steps",
    "sink_jobs",
    "compactions",
    "partitions_taken",
    "jobs_again",
];

const PARTS_AT: usize = 8;
const KEYS_AT: usize = 32;
const PIDS_AT: usize = 64;
const JOBS_AT: usize = 4096;
const LEN: u64 = (JOBS_AT as u64 + JOBS) * 8;

const FREE: u64 = 0;
const HELD: u64 = 1;
const ACKING: u64 = 2;
const DONE: u64 = 3;

/// A broken rule.
pub type Found = Result<(), String>;

/// A job's word: the last attempt that was noted, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    kind: u64,
    attempt: u32,
    worker: u32,
    /// The lease lasts at least until then; 0 where nothing is certain.
    until_ms: u64,
}

impl Word {
    fn of(word: u64) -> Self {
        let (attempt, worker) = ((word >> 50) as u32 & 0xfff, (word >> 32) as u32 & 0x3_ffff);
        Self { kind: word >> 62, attempt, worker, until_ms: word & 0xffff_ffff }
    }

    fn encode(self) -> u64 {
        let (attempt, worker) = (u64::from(self.attempt) << 50, u64::from(self.worker) << 32);
        self.kind << 62 | attempt | worker | self.until_ms
    }
}

/// A job that this worker has.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Its offset.
    pub offset: u64,
    /// How often it was delivered.
    pub attempt: u32,
}

/// Milliseconds of a clock that all processes of the machine share.
pub fn now_ms() -> u64 {
    (now_us() / 1000) & 0xffff_ffff
}

/// The notes, mapped by one worker.
#[derive(Debug)]
pub struct Shared {
    map: MmapMut,
    me: u32,
}

impl Shared {
    /// Map the notes of a round's workers in this directory; the worker 0 only looks.
    pub fn open(accounts: &Path, me: u32) -> io::Result<Self> {
        let shared = Self { map: system::map_shared(&accounts.join("shared"), LEN)?, me };
        if let Some(at) = shared.pid_of(me) {
            at.store(std::process::id().into(), Ordering::SeqCst);
        }
        Ok(shared)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &system::words(&self.map)[at]
    }

    fn pid_of(&self, worker: u32) -> Option<&AtomicU64> {
        let at = PIDS_AT + worker as usize;
        (worker > 0 && at < JOBS_AT).then(|| self.word(at))
    }

    /// Add to a count.
    pub fn add(&self, count: usize, more: u64) {
        self.word(count).fetch_add(more, Ordering::SeqCst);
    }

    /// A count.
    pub fn count(&self, count: usize) -> u64 {
        self.word(count).load(Ordering::SeqCst)
    }

    /// Whether a worker lives for certain.
    ///
    /// A process that ends frees its memory, and so its command line, before its locks. A process
    /// id that was reused belongs to another command line.
    fn is_alive(&self, worker: u32) -> bool {
        let Some(pid) = self.pid_of(worker).map(|pid| pid.load(Ordering::SeqCst)) else {
            return false;
        };
        let told = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&told).contains(&format!("\"id\":{worker},"))
    }

    fn job(&self, offset: u64) -> &AtomicU64 {
        self.word(JOBS_AT + offset as usize)
    }

    /// Note that a job was taken: by a call that began and ended then, with a lease that lasts so
    /// long.
    ///
    /// If all processes die during a sync, the next ones carry the log over. Finished jobs may then
    /// be delivered again as never tried (docs/PROTOCOL.md, "Queues").
    pub fn took(
        &self,
        held: Held,
        (began, ended): (u64, u64),
        lease_ms: u64,
        is_carried_over: &dyn Fn() -> bool,
    ) -> Found {
        let (Held { offset, attempt }, until_ms) = (held, began + lease_ms);
        self.add(TAKEN, 1);
        let noted = self.change(offset, |before| {
            let word = Word { kind: HELD, attempt, worker: self.me, until_ms };
            (before.attempt < attempt).then_some(word)
        });
        let before = match noted {
            Ok(before) => before,
            // Another worker had it after this one, whose lease is over.
            Err(_) if now_ms() >= until_ms => return Ok(()),
            Err(_) if is_carried_over() => {
                let word = Word { kind: HELD, attempt, worker: self.me, until_ms };
                self.job(offset).store(word.encode(), Ordering::SeqCst);
                self.add(AGAIN, 1);
                return Ok(());
            }
            Err(after) => {
                return Err(format!("attempt {attempt} at job {offset}, and {after:?} before"));
            }
        };
        match before.kind {
            DONE if !is_carried_over() => {
                Err(format!("job {offset} was delivered, and was done: {before:?}"))
            }
            HELD | ACKING if before.until_ms > ended && self.is_alive(before.worker) => {
                Err(format!("job {offset} was delivered by {ended} ms, and was held: {before:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Change a job's word; the error is the word that must not change.
    fn change(&self, offset: u64, to: impl Fn(Word) -> Option<Word>) -> Result<Word, Word> {
        let change = |word| to(Word::of(word)).map(Word::encode);
        let changed = self.job(offset).fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
        changed.map(Word::of).map_err(Word::of)
    }

    /// Change the word of a job that this worker has, unless another worker took it since.
    fn change_mine(&self, held: Held, kind: u64, until_ms: impl Fn(u64) -> u64) -> bool {
        let changed = self.change(held.offset, |word| {
            let until_ms = until_ms(word.until_ms);
            (word.attempt == held.attempt).then_some(Word { kind, until_ms, ..word })
        });
        changed.is_ok()
    }

    /// Note that a job is about to be acked.
    ///
    /// False if another worker took it since, so that the ack must be refused.
    pub fn acks(&self, held: Held) -> bool {
        self.change_mine(held, ACKING, |until_ms| until_ms)
    }

    /// Note that it was acked.
    pub fn acked(&self, held: Held) -> Found {
        self.add(ACKED, 1);
        if self.change_mine(held, DONE, |until_ms| until_ms) {
            return Ok(());
        }
        let word = Word::of(self.job(held.offset).load(Ordering::SeqCst));
        Err(format!("{held:?} was acked, but another worker had it: {word:?}"))
    }

    /// Note that a job is about to be given back, or left for another worker.
    pub fn leaves(&self, held: Held) {
        self.change_mine(held, FREE, |_| 0);
    }

    /// Note that a lease is about to be extended: until then nothing is certain of the job.
    pub fn extends(&self, held: Held) {
        self.change_mine(held, HELD, |_| 0);
    }

    /// Note that it was extended, by a call that began then.
    pub fn extended(&self, held: Held, began: u64, lease_ms: u64) {
        self.change_mine(held, HELD, |_| began + lease_ms);
    }

    /// Whether a job is done, or may be.
    pub fn may_be_done(&self, offset: u64) -> bool {
        matches!(Word::of(self.job(offset).load(Ordering::SeqCst)).kind, ACKING | DONE)
    }

    fn part(&self, partition: u32) -> [&AtomicU64; 3] {
        let at = PARTS_AT + 3 * partition as usize;
        [self.word(at), self.word(at + 1), self.word(at + 2)]
    }

    /// Note that a partition may be lost in the next call.
    pub fn may_lose(&self, partition: u32) {
        let [owner, ..] = self.part(partition);
        let me = u64::from(self.me);
        let _ = owner.compare_exchange(me, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Note that this worker owns a partition; a new one resumes at `next`.
    pub fn has(&self, partition: u32, next: Option<u64>) -> Found {
        let [owner, meant, committed] = self.part(partition);
        let before = owner.swap(self.me.into(), Ordering::SeqCst) as u32;
        if before != 0 && before != self.me && self.is_alive(before) {
            return Err(format!(
                "partition {partition} is owned by {before}, which lives, and by {}",
                self.me
            ));
        }
        let Some(next) = next else { return Ok(()) };
        self.add(HANDS, 1);
        let sure = committed.load(Ordering::SeqCst)..=meant.load(Ordering::SeqCst);
        if sure.contains(&next) {
            return Ok(());
        }
        Err(format!("partition {partition} resumes at {next}, and was committed up to {sure:?}"))
    }

    /// Note that a partition is about to be committed.
    pub fn commits(&self, partition: u32, offset: u64) {
        self.part(partition)[1].fetch_max(offset, Ordering::SeqCst);
    }

    /// Note that it was committed.
    pub fn committed(&self, partition: u32, offset: u64) {
        self.part(partition)[2].fetch_max(offset, Ordering::SeqCst);
    }

    /// The committed offset.
    pub fn is_committed_to(&self, partition: u32) -> u64 {
        self.part(partition)[2].load(Ordering::SeqCst)
    }

    /// Note that a record of a key was appended.
    pub fn keyed(&self, key: u64, offset: u64) {
        self.word(KEYS_AT + key as usize).fetch_max(offset + 1, Ordering::SeqCst);
    }

    /// One more than the highest acknowledged offset of a key; 0 for none.
    pub fn last_of(&self, key: u64) -> u64 {
        self.word(KEYS_AT + key as usize).load(Ordering::SeqCst)
    }
}
