//! One sync for a crowd: who syncs first waits a moment for those who are about to append.
//!
//! Processes that append durably all the time are released by the end of a sync at once. The first
//! of them to come back would sync its own record alone, and the others had to wait for the sync after
//! that: half of them in each. So whoever saw others at the lock lately lets them run before it syncs,
//! until as much is there as when its last sync ended, or no more comes.
//!
//! It yields and does not nap: where many want the processor, who naps gets it back milliseconds later.
//! Only speed depends on this. It never waits longer than a sync takes, so a fast disk is not slowed
//! down; who is alone does not wait, but for one moment after the others have left.
//!
//! Left to others: who syncs, and what ([`crate::log`]). Models: `tests/loom/durable.rs`. See
//! `docs/PROTOCOL.md`, "Sync".

use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU64, Ordering, yield_now};

/// Where nothing has come for this long nothing more is waited for: what it takes to wake a process
/// that is not the first in line for a processor.
const QUIET: Duration = Duration::from_micros(50);
/// Longest time that is waited for others.
const LONGEST: Duration = Duration::from_micros(100);

/// What this process knows of the others.
#[derive(Debug, Default)]
pub struct CommitDelay {
    is_about: AtomicBool,
    /// Of this process's last sync: how long it took, and how much was not durable at its end, what
    /// came too late for it included; 0 before the first.
    sync_us: AtomicU64,
    at_end: AtomicU64,
}

impl CommitDelay {
    /// Somebody else was at the sync lock.
    pub fn met(&self) {
        self.is_about.store(true, Ordering::Relaxed);
    }

    /// Note how long a sync takes, by a clock that starts when it is first read
    /// ([`crate::lock::stopwatch`]), and how much there is at its end `behind` what was durable before.
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

    /// Before a sync: let the others that are about append too, if any are. How much there is `behind`
    /// what is durable tells whether they came.
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

    /// A clock that goes on by so much each time it is read.
    fn every(micros: u64) -> impl FnMut() -> Duration {
        let mut now = Duration::ZERO;
        move || {
            now += Duration::from_micros(micros);
            now
        }
    }

    /// Looks at what is there while gathering, by a clock that goes on by 5 µs between them, where
    /// more has come at the first few of them.
    fn looks(crowd: &CommitDelay, moves: u64) -> u64 {
        let looks = Cell::new(0);
        let behind = || {
            looks.set(looks.get() + 1);
            looks.get().min(moves)
        };
        crowd.wait_for_peers(behind, every(5));
        looks.get()
    }

    /// One whose last sync took so long, and at the end of which nobody would come near.
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
        assert_eq!(looks(&crowd, 1), 1 + 10, "50 µs, in which nobody came");
        assert_eq!(looks(&crowd, 9), 0, "so there is nobody");
    }

    #[test]
    fn who_saw_others_waits_while_they_come_and_not_longer_than_a_sync_takes() {
        let crowd = that_syncs_in(1_000);
        crowd.met();
        assert_eq!(looks(&crowd, 4), 4 + 10, "until 50 µs after the last of them");
        assert_eq!(looks(&crowd, u64::MAX), 1 + 20, "it ends although they come and come");
        assert_eq!(looks(&crowd, 1), 1 + 10, "and remembers them, but not for ever");
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
        assert_eq!(looks(&crowd, 9), 1, "those who left are waited for no more");
        assert_eq!(looks(&crowd, 9), 1, "and who finds all of them there forgets none");
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
