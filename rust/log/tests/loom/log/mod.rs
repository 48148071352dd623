//! A small log: segments of a few blocks, the words of its control page, and a disk.
//!
//! Locking, publishing, waking, gathering, and changing shared words are the shipped functions. The
//! work of `src/log` on files in between is written here once more over words. It follows the order
//! in `docs/PROTOCOL.md` (Append, Repair, Roll, Sync, Failed sync, Read). So models can explore it:
//! with a few threads every interleaving, with many threads long random ones. Each step that
//! matters can be [`Broken`], and then some model must fail.
//!
//! This file has its parts, and appends, repairs and rolls; `read` and `durable` have the rest. One
//! thread is one process. Every record is its own number, from 1, so density is the only thing to
//! check. The kernel's part is in [`Segment::named`] (a rename) and `Log::fdatasync`.

mod durable;
mod read;

use std::sync::atomic::AtomicUsize as Tally;
use std::time::Duration;

use falaj::internals::group_commit::CommitDelay;
use falaj::internals::lock::{self, Acquired, Identity};
use falaj::internals::sync::{Ordering, SharedWord, update};
use falaj::internals::{publish, wake};

use crate::processes::{Nobody, Slots, always, ticking};
use crate::word::{Impatient, ModelWord};
use crate::world::Bytes;

const FOREVER: Duration = Duration::from_secs(3600);
const END: u64 = u64::MAX;
const VOID: u64 = u64::MAX - 1;
const LATCHED: u64 = 1;

/// A step that is left out or moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A roll ends the active segment before the next one has its name.
    EndBeforeName,
    /// More space is stored, not raised: over the word that a roll left there.
    RoomStored,
    /// A reader treats zero as the end without a look at the tail.
    ZeroIsTheEnd,
    /// The tail is stored before the commit word.
    TailEarly,
    /// The durable end is stored before its sync.
    DurableEarly,
    /// The durable end is stored without release ordering.
    DurableRelaxed,
    /// A sync promises what is there when it is done, not what was there when it began.
    DurableTooFar,
    /// A sync after a roll leaves the directory out.
    NoDirectorySync,
    /// A failed sync is tried again.
    SyncedAgain,
    /// The failed-sync state is cleared without waiting for a process that appends.
    Unsettled,
    /// Appends do not look at the failed-sync flag.
    LatchUnseen,
    /// The sync lock is released without waking processes that want the same sync.
    CrowdAsleep,
    /// A process that takes over from a dead writer does not repair.
    Unrepaired,
}

/// The point at which a writer dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// With the lock, before any store.
    Locked,
    /// After it stored where it would write.
    Dirty,
    /// After it wrote, before the commit word.
    Written,
    /// After the commit word, before the tail.
    Committed,
}

struct Block {
    word: ModelWord,
    bytes: Bytes,
    medium: Bytes,
    /// Whether a failed sync made the kernel forget it.
    forgotten: Bytes,
}

struct Segment {
    /// Whether the file has its name: the kernel orders earlier writes before a rename.
    named: ModelWord,
    name_on_medium: Bytes,
    /// Header: how many records lie before it, and the address from which it continues the log.
    base: Bytes,
    cut: Bytes,
    blocks: Vec<Block>,
}

/// The size of the log, and what may happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    pub segments: usize,
    /// Blocks of a segment, the end block included.
    pub room: usize,
    /// How many of them are allocated when it is created; 0 for all.
    pub allocated: usize,
    /// How many calls of `fdatasync` fail.
    pub failing: usize,
    /// Writers may die, so waiters ask.
    pub mortal: bool,
    pub broken: Option<Broken>,
}

/// One record and the end block in each segment.
pub const ONE_A_SEGMENT: Shape =
    Shape { segments: 3, room: 2, allocated: 0, failing: 0, mortal: false, broken: None };

/// Three of them, so that there is no roll.
pub const THREE_A_SEGMENT: Shape = Shape { segments: 2, room: 4, ..ONE_A_SEGMENT };

pub struct Log {
    shape: Shape,
    failing: Tally,
    slots: Slots,
    append_lock: ModelWord,
    sync_lock: ModelWord,
    tail: ModelWord,
    dirty: ModelWord,
    durable: ModelWord,
    allocated: ModelWord,
    flags: ModelWord,
    counter: ModelWord,
    waiting: ModelWord,
    /// The last record, known to the holder of the append lock.
    last: Bytes,
    segments: Vec<Segment>,
}

fn at(sequence: usize, block: usize) -> u64 {
    (sequence as u64) << 32 | block as u64
}

fn sequence(address: u64) -> usize {
    (address >> 32) as usize
}

fn block(address: u64) -> usize {
    address as u32 as usize
}

/// A process that uses the log.
pub struct Process {
    pub me: Identity,
    group_commit: CommitDelay,
}

impl Process {
    pub fn new(slot: u16) -> Self {
        Self::again(slot, 1)
    }

    /// A process that has claimed a slot for the nth time.
    pub fn again(slot: u16, generation: u32) -> Self {
        let group_commit = CommitDelay::default();
        // A process that gathers looks at the tail once more.
        group_commit.timed(|| (), || 0, ticking(15));
        Self { me: Identity::new(slot, generation).unwrap(), group_commit }
    }
}

/// A reader's place, and the last record it saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    place: u64,
    pub seen: u64,
}

impl Segment {
    fn new(room: usize) -> Self {
        let block = |_| Block {
            word: ModelWord::new(0),
            bytes: Bytes::new(),
            medium: Bytes::new(),
            forgotten: Bytes::new(),
        };
        Self {
            named: ModelWord::new(0),
            name_on_medium: Bytes::new(),
            base: Bytes::new(),
            cut: Bytes::new(),
            blocks: (0..room).map(block).collect(),
        }
    }
}

impl Log {
    pub fn new(shape: Shape) -> Self {
        let segments: Vec<_> = (0..shape.segments).map(|_| Segment::new(shape.room)).collect();
        segments[0].named.store(1, Ordering::Relaxed);
        segments[0].name_on_medium.write(1);
        let allocated = if shape.allocated == 0 { shape.room } else { shape.allocated };
        let word = ModelWord::new;
        Self {
            shape: Shape { allocated, ..shape },
            failing: Tally::new(shape.failing),
            slots: Slots::new(),
            append_lock: word(0),
            sync_lock: word(0),
            tail: word(0),
            dirty: word(0),
            durable: word(0),
            allocated: word(at(0, allocated)),
            flags: word(0),
            counter: word(0),
            waiting: word(0),
            last: Bytes::new(),
            segments,
        }
    }

    fn is(&self, broken: Broken) -> bool {
        self.shape.broken == Some(broken)
    }

    fn block(&self, address: u64) -> &Block {
        &self.segments[sequence(address)].blocks[block(address)]
    }

    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    fn notify(&self) {
        if wake::is_awaited_after_unlock(&self.waiting) {
            wake::notify(&self.counter, &self.waiting, None);
        }
    }

    /// True when the owner before died.
    fn lock(&self, me: Identity) -> bool {
        let acquired = match self.shape.mortal {
            false => lock::lock(&self.append_lock, me, &Nobody, None, always(0)),
            true => lock::lock(&Impatient(&self.append_lock), me, &&self.slots, None, ticking(10)),
        };
        matches!(acquired.unwrap(), Acquired::TakenOver(_))
    }

    fn unlock(&self, me: Identity) {
        assert!(lock::unlock(&self.append_lock, me));
    }

    /// Append a record; return its number and where it ends.
    pub fn append(&self, who: &Process) -> (u64, u64) {
        self.append_or_die(who, None).unwrap()
    }

    /// The same, or die on the way, with the lock.
    pub fn append_or_die(&self, who: &Process, death: Option<Death>) -> Option<(u64, u64)> {
        loop {
            let taken_over = self.lock(who.me);
            if self.is_latched() {
                self.unlock(who.me);
                self.clear_latch(who);
                continue;
            }
            self.settle(taken_over);
            let tail = self.tail.load(Ordering::Acquire);
            let allocated = self.allocated.load(Ordering::Acquire);
            if sequence(allocated) != sequence(tail) || block(tail) + 2 > block(allocated) {
                self.unlock(who.me);
                self.make_room(who, tail);
                continue;
            }
            if death == Some(Death::Locked) {
                return None;
            }
            let record = self.place(tail, death)?;
            self.unlock(who.me);
            self.notify();
            return Some((record, tail + 1));
        }
    }

    /// Roll at this end of the log and append a record, as the only writer, without the lock.
    ///
    /// The stores are those of a roll and an append, and no others.
    pub fn roll_and_append_alone(&self, tail: u64) {
        self.hand_over(tail);
        assert!(self.place(at(sequence(tail) + 1, 0), None).is_some());
    }

    fn place(&self, tail: u64, death: Option<Death>) -> Option<u64> {
        let record = self.last.read() + 1;
        let here = self.block(tail);
        self.dirty.store(tail + 1, Ordering::Release);
        if death == Some(Death::Dirty) {
            return None;
        }
        if self.is(Broken::TailEarly) {
            self.tail.store(tail + 1, Ordering::Release);
        }
        here.bytes.write(record);
        if death == Some(Death::Written) {
            return None;
        }
        publish::publish(&here.word, 1);
        if death == Some(Death::Committed) {
            return None;
        }
        self.last.write(record);
        self.tail.store(tail + 1, Ordering::Release);
        Some(record)
    }

    /// Repair what a dead writer left.
    fn settle(&self, taken_over: bool) {
        let mut tail = self.tail.load(Ordering::Acquire);
        let dirty = self.dirty.load(Ordering::Acquire);
        if (!taken_over && dirty == tail) || self.is(Broken::Unrepaired) {
            return;
        }
        while block(tail) < self.shape.room && publish::observe(&self.block(tail).word) != 0 {
            let record = self.block(tail).bytes.read();
            if record != VOID {
                self.last.write(record);
            }
            tail += 1;
        }
        if dirty > tail {
            self.block(tail).bytes.write(VOID);
            publish::publish(&self.block(tail).word, 1);
            tail += 1;
        }
        self.tail.store(tail, Ordering::Release);
        self.dirty.store(tail, Ordering::Release);
    }

    fn make_room(&self, who: &Process, tail: u64) {
        if block(tail) + 2 <= self.shape.room {
            self.more_room(at(sequence(tail), self.shape.room));
        } else {
            self.roll(who, tail);
        }
    }

    /// Store that a segment is allocated further; a process's helper does so without the lock.
    pub fn more_room(&self, grown: u64) {
        if self.is(Broken::RoomStored) {
            return self.allocated.store(grown, Ordering::Release);
        }
        update(&self.allocated, |now| {
            (sequence(now) == sequence(grown) && now < grown).then_some(grown)
        });
    }

    /// Continue in the next segment, if the log still ends where it did.
    pub fn roll(&self, who: &Process, before: u64) {
        let taken_over = self.lock(who.me);
        if self.is_latched() {
            return self.unlock(who.me);
        }
        self.settle(taken_over);
        let tail = self.tail.load(Ordering::Acquire);
        if sequence(tail) == sequence(before) {
            self.hand_over(tail);
        }
        self.unlock(who.me);
        self.notify();
    }

    fn hand_over(&self, tail: u64) {
        let next = &self.segments[sequence(tail) + 1];
        next.base.write(self.last.read());
        next.cut.write(tail);
        if !self.is(Broken::EndBeforeName) {
            next.named.store(1, Ordering::Release);
        }
        self.dirty.store(tail + 1, Ordering::Release);
        self.block(tail).bytes.write(END);
        publish::publish(&self.block(tail).word, 1);
        if self.is(Broken::EndBeforeName) {
            next.named.store(1, Ordering::Release);
        }
        let first = at(sequence(tail) + 1, 0);
        // The engine uses a store here. Given a store and an exchange without an ordering, loom
        // lets the exchange read the older value and still come later, which is impossible.
        self.allocated.swap(first + self.shape.allocated as u64, Ordering::AcqRel);
        self.tail.store(first, Ordering::Release);
        self.dirty.store(first, Ordering::Release);
    }

    /// How many blocks of records all allocated segments have; the tail must lie in them.
    pub fn is_full_at(&self) -> u64 {
        let allocated = sequence(self.allocated.load(Ordering::Acquire));
        assert_eq!(
            allocated,
            sequence(self.tail.load(Ordering::Acquire)),
            "space in a segment that ended"
        );
        ((allocated + 1) * (self.shape.room - 1)) as u64
    }
}
