//! Sleeping on a word that processes share.
//!
//! The module owns the `futex` calls, in their shared flavour. Sleepers and wakers of any process
//! meet on the mapped page, and a read-only map is enough to sleep. The kernel compares the word
//! before it puts a thread to sleep, so a store and wake between load and sleep is never lost.
//!
//! Bounds are relative here and absolute (monotonic clock) in the kernel's bitset call. A sleep may
//! end early for no reason: callers look again. The lock and wake modules decide who sleeps on
//! which word (`docs/PROTOCOL.md`).

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{Flags, Timespec, wait_bitset, wake_bitset};
use rustix::time::{ClockId, clock_gettime};

use crate::sync::Slept;

/// Sleep while `word` holds `expected`, at most `bound`; only wakes whose mask shares a bit with
/// `mask` count.
pub(crate) fn sleep(word: &AtomicU32, expected: u32, mask: u32, bound: Duration) -> Slept {
    let until = after(bound);
    match wait_bitset(word, Flags::empty(), expected, until.as_ref(), bits(mask)) {
        Ok(()) | Err(Errno::INTR) => Slept::Woken,
        Err(Errno::AGAIN) => Slept::Changed,
        Err(Errno::TIMEDOUT) => Slept::TimedOut,
        Err(_) => {
            // A sandbox may refuse futexes: poll, but never spin.
            std::thread::sleep(bound.min(Duration::from_millis(1)));
            Slept::Woken
        }
    }
}

/// Wake up to `count` sleepers whose mask shares a bit with `mask`.
pub(crate) fn wake(word: &AtomicU32, count: u32, mask: u32) {
    if count == 0 {
        return; // the kernel would wake one
    }
    // The kernel's count is signed: beyond its range it would wake one.
    let count = count.min(i32::MAX as u32);
    // An error cannot make it miss a sleeper: the only ones are a bad address and a missing call.
    let _ = wake_bitset(word, Flags::empty(), count, bits(mask));
}

fn bits(mask: u32) -> NonZeroU32 {
    debug_assert!(mask != 0, "a mask without bits wakes no sleeper");
    NonZeroU32::new(mask).unwrap_or(NonZeroU32::MAX)
}

/// Return now plus `bound` on the monotonic clock; `None` (no end) when that is beyond its range.
fn after(bound: Duration) -> Option<Timespec> {
    let now = clock_gettime(ClockId::Monotonic);
    let now = Duration::new(u64::try_from(now.tv_sec).ok()?, u32::try_from(now.tv_nsec).ok()?);
    let until = now.checked_add(bound)?;
    let tv_sec = i64::try_from(until.as_secs()).ok()?;
    Some(Timespec { tv_sec, tv_nsec: until.subsec_nanos().into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::EVERYONE;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    #[test]
    fn a_bounded_sleep_ends_at_its_bound() {
        let word = AtomicU32::new(7);
        let began = Instant::now();
        assert_eq!(super::sleep(&word, 7, EVERYONE, Duration::from_millis(20)), Slept::TimedOut);
        assert!(began.elapsed() >= Duration::from_millis(20));
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_changed_word_is_not_slept_on() {
        let word = AtomicU32::new(7);
        assert_eq!(super::sleep(&word, 8, EVERYONE, Duration::from_secs(60)), Slept::Changed);
    }

    #[test]
    fn a_wake_ends_the_sleeps_of_its_mask_and_no_other() {
        let word = Arc::new(AtomicU32::new(0));
        let sleepers = [1, 2].map(|mask| {
            let word = word.clone();
            std::thread::spawn(move || {
                loop {
                    let slept = super::sleep(&word, 0, mask, Duration::from_millis(200));
                    if slept != Slept::Changed && word.load(Ordering::SeqCst) == 0 {
                        return slept;
                    }
                }
            })
        });
        while !sleepers[1].is_finished() {
            wake(&word, u32::MAX, 2);
            // sleep: the second may not have fallen asleep yet; it is woken again then
            std::thread::sleep(Duration::from_millis(1));
        }
        let slept = sleepers.map(|sleeper| sleeper.join().unwrap());
        assert_eq!(slept, [Slept::TimedOut, Slept::Woken]);
    }

    #[test]
    fn a_wake_of_everyone_wakes_more_than_one() {
        let word = Arc::new(AtomicU32::new(0));
        let sleepers: Vec<_> = (0..3)
            .map(|_| {
                let word = word.clone();
                std::thread::spawn(move || {
                    super::sleep(&word, 0, EVERYONE, Duration::from_secs(20))
                })
            })
            .collect();
        // sleep: lets all three fall asleep before the one wake
        std::thread::sleep(Duration::from_millis(100));
        wake(&word, u32::MAX, EVERYONE);
        let began = Instant::now();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
