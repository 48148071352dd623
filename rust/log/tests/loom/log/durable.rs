//! Syncs of the small log, the durable end, the failed-sync state: `docs/PROTOCOL.md`, "Sync" and
//! "Failed sync".

use std::sync::atomic::Ordering::Relaxed as Counted;

use falaj::internals::lock::{self, Acquired, Identity};
use falaj::internals::sync::{Ordering, SharedWord, update};
use falaj::internals::{publish, wake};

use super::{Broken, END, FOREVER, LATCHED, Log, Process, VOID, at, block, sequence};
use crate::processes::{Nobody, always, ticking};

impl Log {
    pub(super) fn is_latched(&self) -> bool {
        let flags = self.flags.load(Ordering::Acquire);
        flags & LATCHED != 0 && !self.is(Broken::LatchUnseen)
    }

    /// Return once everything before an address is on the disk.
    pub fn sync_to(&self, who: &Process, target: u64) {
        while self.durable.load(Ordering::Acquire) < target {
            if !lock::try_lock_or_sleep(&self.sync_lock, who.me, FOREVER) {
                who.group_commit.met();
                continue;
            }
            if self.durable.load(Ordering::Acquire) >= target {
                who.group_commit.met();
                self.unlock_sync(who.me);
                return;
            }
            who.group_commit.wait_for_peers(|| self.tail.load(Ordering::Acquire), ticking(10));
            let synced = self.sync_under_lock();
            self.unlock_sync(who.me);
            match synced {
                true => self.notify(),
                false => self.clear_latch(who),
            }
        }
    }

    fn unlock_sync(&self, me: Identity) {
        match self.is(Broken::CrowdAsleep) {
            true => assert!(lock::unlock(&self.sync_lock, me)),
            false => assert!(lock::unlock_to_all(&self.sync_lock, me)),
        }
    }

    fn sync_under_lock(&self) -> bool {
        let from = self.durable.load(Ordering::Acquire);
        let mut to = self.tail.load(Ordering::Acquire);
        if self.flags.load(Ordering::Acquire) & LATCHED != 0 {
            return false;
        }
        if self.is(Broken::DurableEarly) {
            self.durable.store(to, Ordering::Release);
        }
        for number in sequence(from)..=sequence(to) {
            let first = if number == sequence(from) { block(from) } else { 0 };
            let last = if number == sequence(to) { block(to) } else { self.shape.room };
            if number > sequence(from) && !self.is(Broken::NoDirectorySync) {
                self.segments[number].name_on_medium.write(1);
            }
            if !self.fdatasync(number, first, last) && !self.is(Broken::SyncedAgain) {
                update(&self.flags, |flags| Some(flags | LATCHED));
                wake::wake_all(&self.counter);
                return false;
            }
        }
        if self.is(Broken::DurableTooFar) {
            to = self.tail.load(Ordering::Acquire);
        }
        let order =
            if self.is(Broken::DurableRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        if !self.is(Broken::DurableEarly) {
            self.durable.store(to, order);
        }
        true
    }

    /// The kernel's part: after a failed sync, it treats what it did not write as written.
    fn fdatasync(&self, number: usize, first: usize, last: usize) -> bool {
        let failing = self.failing.load(Counted);
        if failing > 0 {
            self.failing.store(failing - 1, Counted);
        }
        for here in &self.segments[number].blocks[first..last] {
            if publish::observe(&here.word) == 0 {
                break; // past an end block
            }
            let record = here.bytes.read();
            if failing > 0 {
                here.forgotten.write(1);
            } else if here.forgotten.read() == 0 {
                here.medium.write(record);
            }
            if record == END {
                break;
            }
        }
        failing == 0
    }

    /// Save the records in doubt after a failed sync, in a segment that supersedes theirs.
    pub fn clear_latch(&self, who: &Process) {
        let got = lock::lock(&self.sync_lock, who.me, &Nobody, None, always(0));
        assert_eq!(got.unwrap(), Acquired::Clean);
        if self.flags.load(Ordering::Acquire) & LATCHED != 0 {
            if !self.is(Broken::Unsettled) {
                let taken_over = self.lock(who.me);
                self.settle(taken_over);
                self.unlock(who.me);
            }
            self.save(who.me);
        }
        self.unlock_sync(who.me);
    }

    fn save(&self, me: Identity) {
        let (durable, tail) =
            (self.durable.load(Ordering::Acquire), self.tail.load(Ordering::Acquire));
        let mut records = Vec::new();
        for number in sequence(durable)..=sequence(tail) {
            let first = if number == sequence(durable) { block(durable) } else { 0 };
            let last = if number == sequence(tail) { block(tail) } else { self.shape.room };
            let blocks = self.segments[number].blocks[first..last].iter();
            let blocks = blocks.take_while(|here| publish::observe(&here.word) != 0);
            records.extend(blocks.map(|here| here.bytes.read()).filter(|record| *record < VOID));
        }
        let next = &self.segments[sequence(tail) + 1];
        let last = self.known_before(durable) + records.len() as u64;
        next.base.write(last - records.len() as u64);
        next.cut.write(durable);
        for (here, record) in next.blocks.iter().zip(&records) {
            here.bytes.write(*record);
            here.medium.write(*record);
            publish::publish(&here.word, 1);
        }
        next.name_on_medium.write(1);
        next.named.store(1, Ordering::Release);
        let end = at(sequence(tail) + 1, records.len());
        self.lock(me);
        assert_eq!(self.tail.load(Ordering::Acquire), tail, "appended in the failed-sync state");
        assert_eq!(self.last.read(), last, "the last record differs");
        self.allocated.store(at(sequence(end), self.shape.room), Ordering::Release);
        self.tail.store(end, Ordering::Release);
        self.dirty.store(end, Ordering::Release);
        self.durable.store(end, Ordering::Release);
        update(&self.flags, |flags| Some(flags & !LATCHED));
        wake::wake_all(&self.counter);
        self.unlock(me);
    }

    /// How many records lie before an address.
    fn known_before(&self, address: u64) -> u64 {
        let segment = &self.segments[sequence(address)];
        let blocks = segment.blocks[..block(address)].iter();
        let records = blocks.filter(|here| here.bytes.read() < VOID).count() as u64;
        let base = if sequence(address) == 0 { 0 } else { segment.base.read() };
        base + records
    }

    /// The records that a power cut at this moment leaves at least: the last record on disk, and
    /// all before it.
    ///
    /// For a process that has seen a durable end, and looks there.
    pub fn survives(&self) -> u64 {
        let end = self.durable.load(Ordering::Acquire);
        let (mut number, mut until) = (sequence(end), block(end));
        let mut chain = Vec::new();
        loop {
            chain.push((number, until));
            if number == 0 {
                break;
            }
            assert_eq!(
                self.segments[number].name_on_medium.read(),
                1,
                "a segment without its name"
            );
            let cut = self.segments[number].cut.read();
            (number, until) = (sequence(cut), block(cut));
        }
        let mut last = 0;
        for (number, until) in chain.into_iter().rev() {
            for here in &self.segments[number].blocks[..until] {
                match here.medium.read() {
                    VOID | END => {}
                    record => {
                        assert_eq!(record, last + 1, "not on the disk");
                        last = record;
                    }
                }
            }
        }
        last
    }
}
