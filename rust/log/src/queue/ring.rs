//! A locked queue: delivering jobs, returning them, passing those that are done.
//!
//! Owns the changes of state, each under the queue's lock. Invariants: an entry says *done* only after
//! its holder said so. `floor` passes only jobs that are done *and* on disk. So no record that a power
//! failure takes back lies below it. A record has at most one lease at a time. Callers read the clock
//! after they have the lock, and pass the time in. [`super::QueueFile`] finds out which processes are
//! dead.

use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::format::queue::{DELIVERIES_MAX, JobEntry, QueueEnds, State, at};
use crate::lock::Identity;

use super::reserve::NO_PROCESS;
use super::state::{FoundEntry, QueueGuard, StateFile};
use super::timer_heap::TimerHeap;
use super::{Lease, Now};

/// Number of done jobs that may wait until their records are on disk; then the queue syncs.
const LAG_MIN: u64 = 1 << 16;
/// Why a job that is done cannot be settled.
const DONE: &str =
    "it is done already, or its record was deleted: settle a job once, and drop this result";

/// A state file whose lock is held.
pub(super) struct Ring<'a> {
    pub(super) file: &'a StateFile,
    pub(super) due: TimerHeap<'a>,
    pub(super) me: Identity,
    pub(super) ends: QueueEnds,
    stored: QueueEnds,
    slot: usize,
    _guard: Option<QueueGuard<'a>>,
}

/// Reasons for which a job returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Back {
    /// Its holder failed at it: that is an attempt, begun or not.
    Failed,
    /// Its holder returns it as it is: an attempt only where work on it began.
    Unworked,
    /// Its holder is dead, or gave up a batch without saying which job failed: the same. Where work on it began, the
    /// job may be to blame.
    Suspected,
}

/// Obstacles to a take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Enough,
    /// Done jobs that are not known to be on disk fill the ring.
    Undurable,
    /// Jobs that are not done fill it.
    Full,
    /// The derived part was found corrupt, and must be rebuilt first.
    Spoilt,
}

impl<'a> Ring<'a> {
    /// Look at a file whose lock is held.
    pub(super) fn new(file: &'a StateFile, me: Identity, guard: QueueGuard<'a>) -> Result<Self> {
        let (ends, slot) = file.ends()?;
        let _guard = Some(guard);
        Ok(Self { file, due: TimerHeap(file), me, ends, stored: ends, slot, _guard })
    }

    /// Make a ring of the same process over a file that no other process knows yet.
    pub(super) fn of<'b>(&self, file: &'b StateFile) -> Result<Ring<'b>> {
        let (ends, slot) = file.ends()?;
        Ok(Ring { file, due: TimerHeap(file), me: self.me, ends, stored: ends, slot, _guard: None })
    }

    /// Get the counters whose change tells waiting workers to look.
    pub(super) fn changes(&self) -> (u64, u64) {
        (self.file.lineage(), self.file.load(at::CHANGES))
    }

    /// Let waiting workers look again, once they wake.
    pub(super) fn tell(&self) -> Result<()> {
        self.file.set(at::CHANGES, self.file.load(at::CHANGES).wrapping_add(1))
    }

    /// Begin a change of the derived part, up to [`Ring::finish`].
    pub(super) fn begin(&self) -> Result<()> {
        self.file.set(at::BUSY, 1)
    }

    /// End the change. If the derived part is corrupt, BUSY stays, and the next process rebuilds it.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.save()?;
        if self.due.is_spoilt() { Ok(()) } else { self.file.set(at::BUSY, 0) }
    }

    /// Store the ends if they changed.
    pub(super) fn save(&mut self) -> Result<()> {
        if self.ends != self.stored {
            // The ends of a forged file begin anywhere.
            self.ends.serial = self.stored.serial.wrapping_add(1);
            self.slot = 1 - self.slot;
            self.file.put_ends(&self.ends, self.slot)?;
            self.stored = self.ends;
        }
        Ok(())
    }

    /// Get the offset of the record in a place.
    pub(super) fn offset(&self, place: u64) -> u64 {
        let floor = self.ends.floor;
        floor.wrapping_add(place.wrapping_sub(floor) & (self.file.parts().capacity - 1))
    }

    /// Get the time at which an entry comes up, by the steady clock.
    pub(super) fn time_of(entry: &JobEntry, now: Now) -> u64 {
        match entry.state {
            State::InFlight => entry.when,
            State::Delayed => now.steady.saturating_add(entry.when.saturating_sub(now.wall)),
            State::Ready | State::Done => 0,
        }
    }

    /// Lease up to `n` jobs until a deadline: first those that came back, then records below `end` that
    /// were never delivered. A suspect job comes alone, and only if `may_suspect`. It has the batch to
    /// itself, so that the next death accuses no other job. `lane` gives the lane of a record, where
    /// keys keep an order. Without one, compaction removed the record, and its job is done. The loop ends, whatever the heap says: each turn leases, removes or delays a
    /// job that was due.
    pub(super) fn take(
        &mut self,
        (n, may_suspect): (usize, bool),
        end: u64,
        deadline: u64,
        now: Now,
        lane: &dyn Fn(u64) -> Result<Option<u64>>,
    ) -> Result<Vec<Lease>> {
        let mut out = Vec::with_capacity(n.min(1024));
        if let Some(before) = self.due.holder_before(self.me) {
            self.reclaim(before, now)?;
        }
        while out.len() < n {
            let Some((_, place)) = self.due.earliest().filter(|(time, _)| *time <= now.steady)
            else {
                break;
            };
            let offset = self.offset(place);
            // From the head on no job ever came back.
            if offset >= self.ends.head || !self.due.is_rooted(place) {
                self.due.spoil()?;
                return Ok(out);
            }
            let found = self.file.entry(offset);
            match found.entry.state {
                State::Done => {
                    self.due.remove(place)?;
                    continue;
                }
                State::Delayed if found.entry.when > now.wall => {
                    self.due.put(place, Self::time_of(&found.entry, now))?;
                    continue;
                }
                State::InFlight
                    if found.entry.when > now.steady && !planted(Canary::ExtensionForgotten) =>
                {
                    // The heap has no checksum, and the entry has one.
                    self.due.put(place, found.entry.when)?;
                    continue;
                }
                State::InFlight | State::Delayed | State::Ready => {}
            }
            let is_let_off = planted(Canary::ReservationUnsuspected) && found.entry.is_reserved();
            let is_suspect = found.entry.is_suspect() && !is_let_off;
            if is_suspect && !(may_suspect && out.is_empty()) {
                return Ok(out);
            }
            if StateFile::is_in_flight(&found.entry) {
                self.due.count(found.entry.holder, -1)?;
            }
            out.push(self.lease(offset, &found, found.entry, deadline)?);
            if is_suspect {
                return Ok(out);
            }
        }
        while out.len() < n
            && self.ends.head < end
            && self.ends.head - self.ends.floor < self.file.parts().capacity
        {
            let offset = self.ends.head;
            let found = self.file.entry(offset);
            let mark = match self.file.parts().ordered.then(|| lane(offset)) {
                None => 0,
                Some(Ok(Some(mark))) => mark,
                Some(Ok(None)) => {
                    // A newer record of its key replaced it, and its own key is not known any more. A
                    // reader of the old file would deliver it beside another job of its key.
                    self.ends.head += 1;
                    self.file.put(
                        offset,
                        &found,
                        JobEntry { state: State::Done, ..JobEntry::FRESH },
                    )?;
                    self.due.add(at::DONE, 1)?;
                    continue;
                }
                // Jobs that are leased already must be returned to the caller; the next take meets the
                // same error.
                Some(Err(_)) if !out.is_empty() => break,
                Some(Err(error)) => return Err(error),
            };
            let fresh = JobEntry { mark, ..JobEntry::FRESH };
            let place = self.file.parts().place(offset);
            self.ends.head += 1;
            if self.due.join(place, mark)? {
                out.push(self.lease(offset, &found, fresh, deadline)?);
            } else {
                self.file.put(offset, &found, fresh)?;
            }
        }
        Ok(out)
    }

    fn lease(
        &self,
        offset: u64,
        found: &FoundEntry,
        before: JobEntry,
        deadline: u64,
    ) -> Result<Lease> {
        let (attempt, suspect) = (before.next_attempt(), before.is_suspect());
        let deliveries = before.deliveries.wrapping_add(1) & DELIVERIES_MAX;
        let (state, holder, when) = (State::InFlight, self.me.bits(), deadline);
        let mut entry =
            JobEntry { state, begun: false, suspect, deliveries, holder, when, ..before };
        if planted(Canary::CountedAtTake) {
            entry = JobEntry { begun: true, attempts: attempt, ..entry };
        }
        self.file.put(offset, found, entry)?;
        self.due.put(self.file.parts().place(offset), deadline)?;
        self.due.count(holder, 1)?;
        let lineage = self.file.lineage();
        Ok(Lease { offset, attempt, delivery: deliveries, suspect, holder, lineage })
    }

    /// Begin work on a job: from here on this is an attempt, whatever happens to the holder. It stores
    /// one new version of the entry, as the derived part does not change.
    pub(super) fn begin_work(&self, offset: u64, found: &FoundEntry) -> Result<()> {
        if found.entry.begun {
            return Ok(());
        }
        let attempts = found.entry.next_attempt();
        self.file.put(offset, found, JobEntry { begun: true, attempts, ..found.entry })
    }

    /// Find the entry of a lease that this process has and that is not over; otherwise say why not.
    pub(super) fn held(
        &self,
        lease: &Lease,
        now: Now,
    ) -> std::result::Result<FoundEntry, &'static str> {
        if lease.lineage != self.file.lineage() {
            return Err("the queue was reset, so drop this result");
        }
        if !(self.ends.floor..self.ends.head).contains(&lease.offset) {
            return Err(DONE);
        }
        if lease.holder == NO_PROCESS {
            return self.reserved(lease, now);
        }
        if lease.holder != self.me.bits() {
            return Err("another process has its lease, so drop this result");
        }
        let found = self.file.entry(lease.offset);
        let entry = &found.entry;
        match entry.state {
            State::Done => Err(DONE),
            State::Ready | State::Delayed => {
                Err("it is back in the queue, by nack or since its lease expired: drop this result")
            }
            State::InFlight
                if (entry.holder, entry.deliveries) != (lease.holder, lease.delivery)
                    && !planted(Canary::LostLeaseAcked) =>
            {
                Err(
                    "its lease expired and another worker has it: drop this result, and take longer leases",
                )
            }
            State::InFlight if entry.when <= now.steady => {
                Err("its lease expired: drop this result, and take longer leases or extend them")
            }
            State::InFlight => Ok(found),
        }
    }

    /// The same for a lease without a process.
    fn reserved(&self, lease: &Lease, now: Now) -> std::result::Result<FoundEntry, &'static str> {
        let found = self.file.entry(lease.offset);
        let entry = &found.entry;
        let is_this = entry.is_reserved() && entry.deliveries == lease.delivery;
        match entry.state {
            State::Done => Err(DONE),
            State::Delayed if is_this && entry.when > now.wall => Ok(found),
            State::Delayed if is_this => {
                Err("its lease expired: drop this result, and take longer leases or extend them")
            }
            State::Ready | State::Delayed | State::InFlight => {
                Err("its lease expired, and another worker may have it: drop this result")
            }
        }
    }

    /// Say whether the job of an offset below the head is done.
    pub(super) fn is_done(&self, offset: u64) -> bool {
        offset < self.ends.floor
            || offset < self.ends.head && self.file.entry(offset).entry.state == State::Done
    }

    /// Begin work on a job, and keep it from all workers until a time of the wall clock. It has no holder from here on.
    pub(super) fn reserve(
        &self,
        offset: u64,
        found: &FoundEntry,
        until: u64,
        now: Now,
    ) -> Result<()> {
        let before = found.entry;
        let attempts = if before.begun { before.attempts } else { before.next_attempt() };
        let (state, begun, holder, when) = (State::Delayed, true, NO_PROCESS, until);
        let entry = JobEntry { state, begun, attempts, holder, when, ..before };
        self.file.put(offset, found, entry)?;
        self.due.count(before.holder, -1)?;
        self.due.put(self.file.parts().place(offset), Self::time_of(&entry, now))
    }

    /// Mark a record done, whatever it was before.
    pub(super) fn done(
        &mut self,
        offset: u64,
        found: &FoundEntry,
        mark: u64,
        now: Now,
    ) -> Result<()> {
        let before = found.entry;
        if before.state == State::Done {
            return Ok(());
        }
        let state = State::Done;
        let done = JobEntry { state, mark, ..JobEntry::FRESH };
        self.file.put(offset, found, done)?;
        if StateFile::is_in_flight(&before) {
            self.due.count(before.holder, -1)?;
        }
        let place = self.file.parts().place(offset);
        self.due.remove(place)?;
        self.due.add(at::DONE, 1)?;
        if let Some(next) = self.due.leave(place, before.mark)? {
            let entry = self.file.entry(self.offset(next)).entry;
            self.due.put(next, Self::time_of(&entry, now))?;
        }
        Ok(())
    }

    /// Return a job: at once, or not before a time of the wall clock.
    pub(super) fn give_back(
        &self,
        offset: u64,
        found: &FoundEntry,
        until: Option<u64>,
        why: Back,
        now: Now,
    ) -> Result<()> {
        let before = found.entry;
        let (attempts, suspect) = match why {
            Back::Failed if !before.begun => (before.next_attempt(), false),
            Back::Failed => (before.attempts, false),
            Back::Unworked => (before.attempts, before.suspect),
            Back::Suspected => (before.attempts, before.is_suspect()),
        };
        let state = if until.is_some() { State::Delayed } else { State::Ready };
        let (begun, holder, when) = (false, 0, until.unwrap_or(0));
        let entry = JobEntry { state, begun, suspect, attempts, holder, when, ..before };
        self.file.put(offset, found, entry)?;
        self.due.count(before.holder, -1)?;
        let time = match until {
            Some(_) => Self::time_of(&entry, now),
            // As if never delivered: in the order of offsets.
            None if why != Back::Failed && !before.begun => self.rank(offset, now),
            // After all that came back before it.
            None => now.steady,
        };
        self.due.put(self.file.parts().place(offset), time)
    }

    /// Get the time of a job that may be delivered at once, in the order of offsets.
    pub(super) fn rank(&self, offset: u64, now: Now) -> u64 {
        (offset - self.ends.floor).min(now.steady)
    }

    /// Move the end of a lease, later or earlier, to so many microseconds from now.
    pub(super) fn extend(
        &self,
        offset: u64,
        found: &FoundEntry,
        lease: u64,
        now: Now,
    ) -> Result<()> {
        if found.entry.is_reserved() {
            return self.reserve(offset, found, now.wall + lease, now);
        }
        let deadline = now.steady + lease;
        self.file.put(offset, found, JobEntry { when: deadline, ..found.entry })?;
        if planted(Canary::ExtensionForgotten) {
            return Ok(());
        }
        self.due.put(self.file.parts().place(offset), deadline)
    }

    /// Return the jobs of a dead process, which may then be delivered at once. Returns how many there
    /// were.
    pub(super) fn reclaim(&self, dead: Identity, now: Now) -> Result<u64> {
        let mut count = 0;
        for offset in self.ends.floor..self.ends.head {
            let found = self.file.entry(offset);
            let is_of_dead =
                StateFile::is_in_flight(&found.entry) && found.entry.holder == dead.bits();
            if is_of_dead || planted(Canary::ReservationReclaimed) && found.entry.is_reserved() {
                self.give_back(offset, &found, None, Back::Suspected, now)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Move `floor` over the jobs that are done, as far as their records are on disk.
    pub(super) fn pass(&mut self, durable: u64) -> Result<()> {
        let from = self.ends.floor;
        let durable = if planted(Canary::FloorPastDurable) { u64::MAX } else { durable };
        let passes = |state| state == State::Done || planted(Canary::FloorPastJob);
        while self.ends.floor < self.ends.head.min(durable)
            && passes(self.file.entry(self.ends.floor).entry.state)
        {
            if planted(Canary::FloorPastJob) {
                self.due.remove(self.file.parts().place(self.ends.floor))?;
            }
            self.ends.floor += 1;
        }
        let passed = (self.ends.floor - from) as i64;
        if passed > 0 { self.due.add(at::DONE, -passed) } else { Ok(()) }
    }

    /// Find out whether there is a free place for another job.
    pub(super) fn room(&self) -> Room {
        if self.ends.head - self.ends.floor < self.file.parts().capacity {
            Room::Enough
        } else if self.file.parts().capacity >= LAG_MIN
            && self.file.entry(self.ends.floor).entry.state == State::Done
        {
            Room::Undurable
        } else {
            Room::Full
        }
    }

    /// Mark trimmed records done.
    pub(super) fn trimmed(&mut self, first: u64, now: Now) -> Result<()> {
        for offset in self.ends.floor..self.ends.head.min(first) {
            let found = self.file.entry(offset);
            if found.entry.state != State::Done {
                self.done(offset, &found, 0, now)?;
                self.ends.trimmed += 1;
            }
        }
        self.pass(first)?;
        if self.ends.head < first {
            self.ends.trimmed += first - self.ends.head;
            (self.ends.floor, self.ends.head) = (first, first);
        }
        Ok(())
    }

    /// Double the places; an error where there are `most` already.
    pub(super) fn larger(&self, most: u64, now: Now) -> Result<u64> {
        let capacity = self.file.parts().capacity * 2;
        if capacity <= most {
            return Ok(capacity);
        }
        let (path, first) = (self.file.path.display(), self.ends.floor);
        let entry = self.file.entry(first).entry;
        let why = match entry.state {
            State::InFlight => "is in flight: ack it first".to_owned(),
            State::Delayed => format!(
                "is delayed for {} s more: until then nothing new is delivered, unless it is put \
                 again and the topic trimmed up to and with it",
                entry.when.saturating_sub(now.wall).div_ceil(1_000_000)
            ),
            State::Ready | State::Done => "is not done: take and ack it first".to_owned(),
        };
        let what = format!(
            "{most} jobs of the queue in {path} are in flight, delayed, or done behind record {first}, which {why}"
        );
        Err(Error::InvalidArgument { what })
    }

    /// Get a lower number of places, at least `least`, where most places are free.
    pub(super) fn smaller(&self, least: u64) -> Option<u64> {
        let (capacity, used) = (self.file.parts().capacity, self.ends.head - self.ends.floor);
        (used <= capacity / 16).then(|| least.max(capacity / 4))
    }
}
