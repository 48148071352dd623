//! Shuttle's replacements for threads, mutexes and plain memory.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

pub use shuttle::sync::{Mutex, MutexGuard};
pub use shuttle::thread;

/// Loom's models need this; shuttle may switch threads at each use anyway.
pub struct Turns;

impl Turns {
    pub fn new() -> Self {
        Self
    }
    pub fn take(&self) {}
}

/// Bytes that one thread writes while no other looks.
///
/// Writing and reading take a while, in which other threads run. The atomics are not shuttle's, so
/// they switch no threads.
pub struct Bytes {
    value: AtomicU64,
    readers: AtomicUsize,
    writers: AtomicUsize,
}

impl Bytes {
    pub fn new() -> Self {
        Self {
            value: AtomicU64::new(0),
            readers: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
        }
    }

    pub fn write(&self, value: u64) {
        let others = self.writers.fetch_add(1, SeqCst) + self.readers.load(SeqCst);
        assert_eq!(others, 0, "written while another writes or reads");
        thread::yield_now();
        assert_eq!(self.readers.load(SeqCst), 0, "read while another writes");
        self.value.store(value, SeqCst);
        self.writers.fetch_sub(1, SeqCst);
    }

    pub fn read(&self) -> u64 {
        assert_eq!(self.writers.load(SeqCst), 0, "read while another writes");
        self.readers.fetch_add(1, SeqCst);
        let value = self.value.load(SeqCst);
        self.readers.fetch_sub(1, SeqCst);
        value
    }
}
