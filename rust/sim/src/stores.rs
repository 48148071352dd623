//! Stores on a machine in memory that concurrent processes share.
//!
//! No process waits for a lock here: the one that holds it is not running. The engine's own threads
//! run freely beside the processes. They find nothing to do, since nothing is appended while the
//! turns change.

use std::sync::Arc;
use std::time::Duration;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::Topic;
use falaj_twin::memory::MemoryStorage;

/// Time on such a machine, in microseconds since 1970.
pub const NOW_US: i64 = 1_767_225_600_000_000;
/// Tries after which a process that is in the way counts as one that stays.
const TRIES: usize = 1_000;

/// An empty machine.
pub fn machine(seed: u64) -> MemoryStorage {
    MemoryStorage::with_capacity(1 << 20).seeded(seed)
}

/// Open the topic that everything is about, and create it if needed.
///
/// # Errors
/// Those of the engine.
pub fn topic(storage: &MemoryStorage, mode: WriteMode, partitions: u32) -> Result<Topic> {
    let options = StoreOptions {
        lock_timeout: Duration::ZERO,
        write_mode: Some(mode),
        ..StoreOptions::default()
    };
    let wanted = TopicOptions {
        segment_bytes: Some(64 << 10),
        partitions: Some(partitions),
        ..TopicOptions::default()
    };
    settled(|| {
        let store = Store::open_on(Arc::new(storage.clone()), "/store", &options)?;
        Topic::open(&store, "jobs", &wanted)
    })
}

/// Repeat a call while only the engine's own threads are in the way.
///
/// # Errors
/// The call's own errors.
pub fn settled<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..TRIES {
        match call() {
            Err(Error::LockTimeout { .. }) => std::thread::yield_now(),
            done => return done,
        }
    }
    call()
}
