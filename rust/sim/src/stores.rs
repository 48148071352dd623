//! Stores on a machine in memory, for processes at once that share one.
//!
//! Nobody waits for a lock here: who has it is not running. The threads that the engine starts for a
//! store run beside the processes as they like; they find nothing to do, as nothing is appended while
//! the turns change.

use std::sync::Arc;
use std::time::Duration;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::storage::memory::MemoryStorage;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::Topic;

/// When it is on such a machine, microseconds since 1970.
pub const NOW_US: i64 = 1_767_225_600_000_000;
/// Tries after which who is in the way is taken for one who stays.
const TRIES: usize = 1_000;

/// A machine with nothing on it.
pub fn machine(seed: u64) -> MemoryStorage {
    MemoryStorage::with_capacity(1 << 20).seeded(seed)
}

/// The topic that everything is about, opened by a process, made where there is none.
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

/// What comes of a call while nobody but the engine's own threads is in the way.
///
/// # Errors
/// Those of the call.
pub fn settled<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..TRIES {
        match call() {
            Err(Error::LockTimeout { .. }) => std::thread::yield_now(),
            done => return done,
        }
    }
    call()
}
