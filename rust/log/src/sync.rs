//! Atomics and the word that processes share, so that models can stand in for memory.
//!
//! The lock-free rooms ([`crate::lock`], [`crate::wake`], [`crate::publish`]) are written over
//! [`SharedWord`]. In the shipped crate that is eight aligned bytes of a mapped page
//! ([`crate::storage::Word`]); under `cfg(loom)` it is a loom atomic, and the very same functions
//! run through every interleaving that the memory model allows (`tests/loom`).

use std::time::Duration;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

/// How a bounded sleep on a word ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// Somebody woke this waiter, or a signal did: look again.
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
    /// Replace, returning what was there.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// Replace if it still holds `current`.
    ///
    /// # Errors
    /// What it holds instead.
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    /// Add, wrapping, returning what was there.
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// Sleep while the low half equals `low`, at most `bound`; only wakes whose `mask` shares a bit
    /// with this one count.
    fn sleep(&self, low: u32, mask: u32, bound: Duration) -> Slept;
    /// Wake up to `count` sleepers whose mask shares a bit with `mask`.
    fn wake(&self, count: u32, mask: u32);
}

/// A mask that every sleeper and every wake shares.
pub const EVERYONE: u32 = u32::MAX;
