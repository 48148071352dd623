//! The shared word of the models: its sleepers are woken, or sleep without end.
//!
//! Loom's models and shuttle's use the same file; `world` is what differs.

use std::sync::Arc; // loom's own cannot be dropped in the panic that a deadlock is
use std::time::Duration;

use falaj::internals::sync::{AtomicU64, Ordering, SharedWord, Slept};

use crate::world::{Mutex, Turns, thread};

/// A word whose sleepers are woken or sleep without end: loom reports a lost wake-up as a deadlock.
///
/// The queue under the mutex stands for the kernel's hash bucket of a futex.
pub struct ModelWord {
    value: AtomicU64,
    turns: Turns,
    asleep: Mutex<Vec<Sleeper>>,
}

struct Sleeper {
    mask: u32,
    thread: thread::Thread,
    ended: Arc<Mutex<Option<Slept>>>,
}

impl ModelWord {
    pub fn new(value: u64) -> Self {
        Self { value: AtomicU64::new(value), turns: Turns::new(), asleep: Mutex::new(Vec::new()) }
    }

    pub fn end(&self, count: u32, mask: u32, how: Slept) {
        let mut asleep = self.asleep.lock().unwrap();
        for _ in 0..count {
            let Some(first) = asleep.iter().position(|other| other.mask & mask != 0) else { break };
            let sleeper = asleep.remove(first);
            *sleeper.ended.lock().unwrap() = Some(how);
            sleeper.thread.unpark();
        }
    }

    /// Time out all sleepers under this mask.
    pub fn expire(&self, mask: u32) {
        self.end(u32::MAX, mask, Slept::TimedOut);
    }
}

impl SharedWord for ModelWord {
    fn load(&self, order: Ordering) -> u64 {
        self.turns.take();
        self.value.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.turns.take();
        self.value.store(value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.turns.take();
        self.value.swap(value, order)
    }
    fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        yes: Ordering,
        no: Ordering,
    ) -> Result<u64, u64> {
        self.turns.take();
        self.value.compare_exchange(old, new, yes, no)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.turns.take();
        self.value.fetch_add(value, order)
    }

    fn sleep(&self, low: u32, mask: u32, _bound: Duration) -> Slept {
        let ended = Arc::new(Mutex::new(None));
        {
            let mut asleep = self.asleep.lock().unwrap();
            if self.value.load(Ordering::Relaxed) as u32 != low {
                return Slept::Changed;
            }
            asleep.push(Sleeper { mask, thread: thread::current(), ended: Arc::clone(&ended) });
        }
        loop {
            let how = *ended.lock().unwrap();
            match how {
                Some(how) => return how,
                None => thread::park(),
            }
        }
    }

    fn wake(&self, count: u32, mask: u32) {
        self.end(count, mask, Slept::Woken);
    }
}

/// The same word, with sleeps that always time out at once.
pub struct Impatient<'a>(pub &'a ModelWord);

impl SharedWord for Impatient<'_> {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        yes: Ordering,
        no: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(old, new, yes, no)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
    fn sleep(&self, _low: u32, _mask: u32, _bound: Duration) -> Slept {
        thread::yield_now();
        Slept::TimedOut
    }
    fn wake(&self, count: u32, mask: u32) {
        self.0.wake(count, mask);
    }
}
