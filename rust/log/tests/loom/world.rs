//! Loom's replacements for threads, mutexes and plain memory.
#![allow(
    unsafe_code,
    reason = "the models share plain memory between threads, as processes share a page"
)]

use falaj::internals::sync::{AtomicU64, Ordering};
use loom::cell::UnsafeCell;
pub use loom::sync::{Mutex, MutexGuard};
pub use loom::thread;

/// Makes loom see that two uses of a word depend on each other.
///
/// Loom remembers only the last use of each atomic. Suppose one thread loads a word and then stores
/// to it. Loom does not notice that another thread's earlier load races with the store, and never
/// tries the other order. So a durable end with relaxed ordering passed. A relaxed exchange of an
/// unused number before each use puts all uses of a word in one sequence. Loom tries each two
/// neighbours both ways; the exchange orders nothing else.
pub struct Turns(AtomicU64);

impl Turns {
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }
    pub fn take(&self) {
        self.0.swap(0, Ordering::Relaxed);
    }
}

/// Bytes that one thread writes while no other looks; loom reports a violation.
pub struct Bytes(UnsafeCell<u64>);

// SAFETY: every access goes through loom's cell, which fails the model when two of them race.
unsafe impl Sync for Bytes {}
// SAFETY: as above; the cell holds a plain number.
unsafe impl Send for Bytes {}

impl Bytes {
    pub fn new() -> Self {
        Self(UnsafeCell::new(0))
    }
    pub fn write(&self, value: u64) {
        // SAFETY: loom checks that no thread reads or writes meanwhile.
        self.0.with_mut(|cell| unsafe { *cell = value });
    }
    pub fn read(&self) -> u64 {
        // SAFETY: loom checks that no thread writes meanwhile.
        self.0.with(|cell| unsafe { *cell })
    }
    pub fn add_one(&self) {
        // SAFETY: loom checks that no thread reads or writes meanwhile.
        self.0.with_mut(|cell| unsafe { *cell += 1 });
    }
}
