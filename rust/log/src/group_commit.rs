//! One sync for many appends: the first process to sync waits a moment for others about to append.
//!
//! The end of a sync releases all processes that append durably at once. The first to come back
//! would sync its own record alone. The others would have to wait for the sync after that, so each
//! sync would serve half of them. So a process that saw others at the lock lately lets them run
//! before it syncs. It waits until as much is there as when its last sync ended, or until no more
//! comes.
//!
//! It yields and does not nap: where many processes want the processor, a napping one gets it back
//! milliseconds later. Only speed depends on this. It never waits longer than a sync takes, so a
//! fast disk is not slowed down. A process that is alone does not wait, except for one moment after
//! the others have left.
//!
//! Left to others: which process syncs, and how far ([`crate::log`]). Models:
//! `tests/loom/durable.rs`. See `docs/PROTOCOL.md`, "Sync".

use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU64, Ordering, yield_now};

/// Waiting ends when nothing has come for this long. It is the time to wake a process that is not
/// the first in line for a processor.
const QUIET: Duration = Duration::from_micros(50);
/// Longest wait for others.
const LONGEST: Duration = Duration::from_micros(100);

/// A record of what other appending processes did, as far as this process saw.
#[derive(Debug, Default)]
pub struct CommitDelay {
    is_about: AtomicBool,
    /// The length of this process's last sync, and how much was not durable at its end; 0 before
    /// the first. Records that came too late for that sync count too.
    sync_us: AtomicU64,
    at_end: AtomicU64,
}

impl CommitDelay {
    /// Note that another process was at the sync lock.
    pub fn met(&self) {
        self.is_about.store(true, Ordering::Relaxed);
    }

    /// Run a sync and note its length and how much is `behind` the durable offset at its end. The
    /// clock starts at its first reading ([`crate::lock::stopwatch`]).
    pub fn timed<T>(
        &self,
        sync: impl FnOnce() -> T,
        behind: impl FnOnce() -> u64,
        mut clock: impl FnMut() -> Duration,
    ) -> T {
        let began = clock();
        let done = sync();
        let took = clock().saturating_sub(began);
        self.sync_us.store(took.as_micros() as u64, Ordering::Relaxed);
        self.at_end.store(behind(), Ordering::Relaxed);
        done
    }

    /// Let other appending processes append before a sync, if there are any. How much there is
    /// `behind` the durable offset shows whether they did.
    pub fn wait_for_peers(&self, behind: impl Fn() -> u64, mut clock: impl FnMut() -> Duration) {
        if !self.is_about.load(Ordering::Relaxed) {
            return;
        }
        let most = Duration::from_micros(self.sync_us.load(Ordering::Relaxed)).min(LONGEST);
        let at_end = self.at_end.load(Ordering::Relaxed);
        let are_all_there = |there| at_end != 0 && there >= at_end;
        let (began, first) = (clock(), behind());
        let (mut seen, mut moved, mut now) = (first, began, began);
        while !are_all_there(seen) && now - began < most && now - moved < QUIET {
            yield_now();
            now = clock();
            let there = behind();
            if there != seen {
                (seen, moved) = (there, now);
            }
        }
        self.is_about.store(seen != first || are_all_there(seen), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Make a clock that advances by this much at each reading.
    fn every(micros: u64) -> impl FnMut() -> Duration {
        let mut now = Duration::ZERO;
        move || {
            now += Duration::from_micros(micros);
            now
        }
    }

    /// Count how often it looks while waiting, by a clock that advances by 5 µs between looks. More
    /// has come at the first `moves` of them.
    fn looks(crowd: &CommitDelay, moves: u64) -> u64 {
        let looks = Cell::new(0);
        let behind = || {
            looks.set(looks.get() + 1);
            looks.get().min(moves)
        };
        crowd.wait_for_peers(behind, every(5));
        looks.get()
    }

    /// Make one whose last sync took this long, with more at its end than can ever come again.
    fn that_syncs_in(micros: u64) -> CommitDelay {
        let crowd = CommitDelay::default();
        assert_eq!(crowd.timed(|| "done", || u64::MAX, every(micros)), "done");
        crowd
    }

    #[test]
    fn who_is_alone_waits_for_nobody() {
        let crowd = that_syncs_in(1_000);
        assert_eq!(looks(&crowd, 9), 0);
        crowd.met();
        assert_eq!(looks(&crowd, 1), 1 + 10, "50 µs, in which none came");
        assert_eq!(looks(&crowd, 9), 0, "so there are no others");
    }

    #[test]
    fn who_saw_others_waits_while_they_come_and_not_longer_than_a_sync_takes() {
        let crowd = that_syncs_in(1_000);
        crowd.met();
        assert_eq!(looks(&crowd, 4), 4 + 10, "until 50 µs after the last of them");
        assert_eq!(looks(&crowd, u64::MAX), 1 + 20, "it ends although they come and come");
        assert_eq!(looks(&crowd, 1), 1 + 10, "and remembers them, but not always");
        assert_eq!(looks(&crowd, 9), 0);

        let fast = that_syncs_in(10);
        fast.met();
        assert_eq!(looks(&fast, u64::MAX), 1 + 2, "10 µs");
        let instant = that_syncs_in(0);
        instant.met();
        assert_eq!(looks(&instant, 9), 1, "a sync that takes no time");
    }

    #[test]
    fn a_crowd_is_not_waited_for_once_all_of_it_is_there() {
        let crowd = CommitDelay::default();
        crowd.met();
        crowd.timed(|| (), || 8, every(1_000));
        assert_eq!(looks(&crowd, 9), 8, "as many as when the last sync ended");
        crowd.timed(|| (), || 1, every(1_000));
        assert_eq!(looks(&crowd, 9), 1, "it no longer waits for those that left");
        assert_eq!(looks(&crowd, 9), 1, "and a process that finds all of them there forgets none");
        crowd.timed(|| (), || 8, every(1_000));
        assert_eq!(looks(&crowd, 9), 8);
    }

    #[test]
    fn others_that_have_left_are_forgotten_also_by_who_has_no_time_to_wait() {
        let crowd = that_syncs_in(0);
        crowd.met();
        assert_eq!((looks(&crowd, 9), looks(&crowd, 9)), (1, 0));
    }
}
