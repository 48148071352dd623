//! Atomics, and the words that processes share, so that models can replace memory.
//!
//! The lock-free modules ([`crate::lock`], [`crate::wake`], [`crate::publish`]) are written over
//! [`SharedWord`]. In the shipped crate that is eight aligned bytes of a mapped page
//! ([`crate::storage::Word`]). Under `cfg(loom)` it is a loom atomic, and the very same functions
//! run through every interleaving that the memory model allows (`tests/loom`). Under `cfg(shuttle)`
//! they run through long random interleavings, with more threads than an exhaustive search could
//! cover (`tests/shuttle`).

use std::time::Duration;

#[cfg(loom)]
pub use loom::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(shuttle)]
pub use shuttle::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    thread::yield_now,
};

/// How a bounded sleep on a word ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// Another process woke this waiter, or a signal did: look again.
    Woken,
    /// The word had changed before the sleep began: look again.
    Changed,
    /// The bound was reached.
    TimedOut,
}

/// Eight aligned bytes shared by processes, on whose low half waiters can sleep.
pub trait SharedWord {
    /// Load.
    fn load(&self, order: Ordering) -> u64;
    /// Store.
    fn store(&self, value: u64, order: Ordering);
    /// Replace the value and return the previous one.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// Replace the value if it still is `current`.
    ///
    /// # Errors
    /// The value that the word holds instead.
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    /// Add, wrapping, and return the previous value.
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// Sleep while the low half equals `low`, at most `bound`; only wakes whose `mask` shares a bit
    /// with this one count.
    fn sleep(&self, low: u32, mask: u32, bound: Duration) -> Slept;
    /// Wake up to `count` sleepers whose mask shares a bit with `mask`.
    fn wake(&self, count: u32, mask: u32);
}

/// A mask that every sleeper and every wake shares.
pub const EVERYONE: u32 = u32::MAX;

/// Replace a word's value by `next` of it, without losing what others store meanwhile; `None`
/// leaves it as it is.
pub fn update(word: &impl SharedWord, next: impl Fn(u64) -> Option<u64>) {
    let mut now = word.load(Ordering::Acquire);
    while let Some(wanted) = next(now) {
        match word.compare_exchange(now, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(other) => now = other,
        }
    }
}
