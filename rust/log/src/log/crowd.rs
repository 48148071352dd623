//! One sync for a crowd: who syncs first waits a moment for those who are about to append.
//!
//! Processes that append durably all the time are released by the end of a sync at once. The first
//! of them to come back would sync its own record alone, and the others had to wait for the sync after
//! that: half of them in each. So whoever saw others at the lock lately lets them run before it syncs,
//! as long as the tail moves.
//!
//! It yields and does not nap: where many want the processor, who naps gets it back milliseconds later.
//! Only speed depends on this. It never waits longer than a sync takes, so a fast disk is not slowed
//! down; who is alone does not wait, but for one moment after the others have left. See
//! `docs/PROTOCOL.md`, "Durable".

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::format::address::Address;

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

    /// Note how long a sync takes.
    pub fn timed<T>(&self, sync: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = sync();
        self.sync_us.store(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        done
    }

    /// Before a sync: let the others that are about append too, if any are.
    pub fn gather(&self, tail: impl Fn() -> Address) {
        if !self.is_about.load(Ordering::Relaxed) {
            return;
        }
        let most = Duration::from_micros(self.sync_us.load(Ordering::Relaxed)).min(LONGEST);
        let (began, first) = (Instant::now(), tail());
        let (mut seen, mut moved, mut now) = (first, began, began);
        while now - began < most && now - moved < QUIET {
            std::thread::yield_now();
            now = Instant::now();
            let tail = tail();
            if tail != seen {
                (seen, moved) = (tail, now);
            }
        }
        self.is_about.store(seen != first, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Looks at the tail while gathering, where it moves at the first few of them.
    fn looks(crowd: &Crowd, moves: u64) -> u64 {
        let looks = Cell::new(0);
        crowd.gather(|| {
            looks.set(looks.get() + 1);
            Address(looks.get().min(moves))
        });
        looks.get()
    }

    #[test]
    fn who_is_alone_waits_for_nobody() {
        let crowd = Crowd::default();
        crowd.timed(|| std::thread::sleep(Duration::from_millis(1))); // sleep: a slow sync
        assert_eq!(looks(&crowd, 9), 0);
        crowd.met();
        assert!(looks(&crowd, 1) > 1, "a moment, in which nobody came");
        assert_eq!(looks(&crowd, 9), 0, "so there is nobody");
    }

    #[test]
    fn who_saw_others_waits_while_they_come_and_not_longer_than_a_sync_takes() {
        let crowd = Crowd::default();
        crowd.met();
        assert_eq!(looks(&crowd, 9), 1, "a sync that takes no time");
        crowd.met();
        crowd.timed(|| std::thread::sleep(Duration::from_millis(1))); // sleep: a slow sync
        assert!(looks(&crowd, u64::MAX) > 1, "it ends although they come and come");
        assert_ne!(looks(&crowd, 9), 0, "and remembers them");
    }
}
