//! One sync for a crowd: who syncs first waits a moment for those who are about to append.
//!
//! Processes that append durably all the time are released by the end of a sync at once. The first
//! of them to come back would sync its own record alone, and the others had to wait for the sync after
//! that: half of them in each. So whoever saw others at the lock lately lets them run before it syncs,
//! as long as the tail moves.
//!
//! It yields and does not nap: where many want the processor, who naps gets it back milliseconds later.
//! Only speed depends on this. It never waits longer than a sync takes, so a fast disk is not slowed
//! down; who is alone does not wait, but for one moment after the others have left.
//!
//! Left to others: who syncs, and what ([`crate::log`]). Models: `tests/loom/durable.rs`. See
//! `docs/PROTOCOL.md`, "Durable".

use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU64, Ordering, yield_now};

/// A tail that has not moved for this long is not waited for: about what it takes to wake a process.
const QUIET: Duration = Duration::from_micros(20);
/// Longest time that is waited for others.
const LONGEST: Duration = Duration::from_micros(100);

/// What this process knows of the others.
#[derive(Debug, Default)]
pub struct Crowd {
    is_about: AtomicBool,
    sync_us: AtomicU64,
}

impl Crowd {
    /// Somebody else was at the sync lock.
    pub fn met(&self) {
        self.is_about.store(true, Ordering::Relaxed);
    }

    /// Note how long a sync takes, by a clock that starts when it is first read
    /// ([`crate::lock::stopwatch`]).
    pub fn timed<T>(&self, sync: impl FnOnce() -> T, mut clock: impl FnMut() -> Duration) -> T {
        let began = clock();
        let done = sync();
        let took = clock().saturating_sub(began);
        self.sync_us.store(took.as_micros() as u64, Ordering::Relaxed);
        done
    }

    /// Before a sync: let the others that are about append too, if any are.
    pub fn gather<T: PartialEq + Copy>(
        &self,
        tail: impl Fn() -> T,
        mut clock: impl FnMut() -> Duration,
    ) {
        if !self.is_about.load(Ordering::Relaxed) {
            return;
        }
        let most = Duration::from_micros(self.sync_us.load(Ordering::Relaxed)).min(LONGEST);
        let (began, first) = (clock(), tail());
        let (mut seen, mut moved, mut now) = (first, began, began);
        while now - began < most && now - moved < QUIET {
            yield_now();
            now = clock();
            let tail = tail();
            if tail != seen {
                (seen, moved) = (tail, now);
            }
        }
        self.is_about.store(seen != first, Ordering::Relaxed);
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

    /// Looks at the tail while gathering, by a clock that goes on by 5 µs between them, where the
    /// tail moves at the first few of them.
    fn looks(crowd: &Crowd, moves: u64) -> u64 {
        let looks = Cell::new(0);
        let tail = || {
            looks.set(looks.get() + 1);
            looks.get().min(moves)
        };
        crowd.gather(tail, every(5));
        looks.get()
    }

    fn that_syncs_in(micros: u64) -> Crowd {
        let crowd = Crowd::default();
        assert_eq!(crowd.timed(|| "done", every(micros)), "done");
        crowd
    }

    #[test]
    fn who_is_alone_waits_for_nobody() {
        let crowd = that_syncs_in(1_000);
        assert_eq!(looks(&crowd, 9), 0);
        crowd.met();
        assert_eq!(looks(&crowd, 1), 1 + 4, "20 µs, in which nobody came");
        assert_eq!(looks(&crowd, 9), 0, "so there is nobody");
    }

    #[test]
    fn who_saw_others_waits_while_they_come_and_not_longer_than_a_sync_takes() {
        let crowd = that_syncs_in(1_000);
        crowd.met();
        assert_eq!(looks(&crowd, 4), 4 + 4, "until 20 µs after the last of them");
        assert_eq!(looks(&crowd, u64::MAX), 1 + 20, "it ends although they come and come");
        assert_eq!(looks(&crowd, 1), 1 + 4, "and remembers them, but not for ever");
        assert_eq!(looks(&crowd, 9), 0);

        let fast = that_syncs_in(10);
        fast.met();
        assert_eq!(looks(&fast, u64::MAX), 1 + 2, "10 µs");
        let instant = that_syncs_in(0);
        instant.met();
        assert_eq!(looks(&instant, 9), 1, "a sync that takes no time");
    }

    #[test]
    fn others_that_have_left_are_forgotten_also_by_who_has_no_time_to_wait() {
        let crowd = that_syncs_in(0);
        crowd.met();
        assert_eq!((looks(&crowd, 9), looks(&crowd, 9)), (1, 0));
    }
}
