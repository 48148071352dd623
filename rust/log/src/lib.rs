//! falaj: an event log that many processes on one machine share.
//!
//! No broker, no daemon, nothing to operate: a directory is the whole system. Any number of processes
//! append to the topics of a store and read them, in Rust with this crate, in Python with the package
//! of the same name, at the same time. Records are ordered and stay; readers go where they like, and
//! one that has read all sleeps in the kernel until there is more.
//!
//! ```
//! use falaj::{NewRecord, Store, StoreOptions, Topic, TopicOptions};
//! # let directory = tempfile::tempdir().expect("a directory for a test");
//! # let path = directory.path().join("events");
//!
//! let store = Store::open(path, &StoreOptions::default())?; // created on first use
//! let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
//! let offset = orders.append(0, &NewRecord::value(b"two coffees"), None)?;
//! let record = orders.get(0, offset)?;
//! assert_eq!(record.value(), Some(b"two coffees".as_slice()));
//! # Ok::<(), falaj::Error>(())
//! ```
//!
//! Going through a topic, and on as it grows:
//!
//! ```no_run
//! # use falaj::{Store, StoreOptions, Topic, TopicOptions};
//! # let store = Store::open("events", &StoreOptions::reading())?;
//! # let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
//! for record in orders.follow(0, orders.first(0)?)? {
//!     let record = record?;
//!     println!("{} {:?}", record.offset(), record.value());
//! }
//! # Ok::<(), falaj::Error>(())
//! ```
//!
//! # When is it safe?
//!
//! An append that returned is visible to all, and killing any process takes nothing away. What a loss
//! of power may take is for [`SyncMode`] to say: nothing with `Durable`, about the
//! last tenth of a second with `Interval`. `docs/GUARANTEES.md` has the whole list, each promise with
//! its test. Every error is an [`Error`] that says what helps.
//!
//! # Modules
//!
//! All that a program needs stands in this root. The engine's own modules are private. The *format* is stable from
//! version 1 on, whatever the crate's version (`docs/FORMAT.md`).
//!
//! # Features and platform
//!
//! There is nothing to choose: no optional dependencies, and two cargo features, `failpoints` and
//! `canaries`, which are for our own tests and let them end a process at named points or plant bugs.
//! Linux, 64-bit, little-endian: words are mapped and waits are futexes; anything else refuses to
//! compile. Threads may share every handle;
//! after a `fork` the child opens anew ([`HandleClosed`](Error::HandleClosed) reminds it). Local file
//! systems only: network ones and FUSE are refused.
#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_endian = "little", target_pointer_width = "64")))]
compile_error!(
    "falaj runs on 64-bit little-endian Linux: its words are mapped and its waits are futexes"
);

mod canary;
#[cfg(not(any(loom, shuttle)))]
mod consumer;
#[cfg(not(any(loom, shuttle)))]
mod error;
#[cfg(not(any(loom, shuttle)))]
mod failpoints;
#[cfg(not(any(loom, shuttle)))]
mod format;
mod group_commit;
mod lock;
#[cfg(not(any(loom, shuttle)))]
mod log;
mod publish;
#[cfg(not(any(loom, shuttle)))]
mod queue;
#[cfg(not(any(loom, shuttle)))]
mod segment;
#[cfg(not(any(loom, shuttle)))]
mod sink;
#[cfg(not(any(loom, shuttle)))]
mod storage;
#[cfg(not(any(loom, shuttle)))]
mod store;
mod sync;
#[cfg(not(any(loom, shuttle)))]
mod topic;
mod wake;

/// The engine's modules, for the bindings, the harnesses and the benchmarks of this repository. Any release may
/// change them.
#[doc(hidden)]
pub mod internals {
    pub mod canary {
        pub use crate::canary::*;
    }
    #[cfg(not(any(loom, shuttle)))]
    pub mod consumer {
        pub use crate::consumer::*;
    }
    #[cfg(not(any(loom, shuttle)))]
    pub mod error {
        pub use crate::error::*;
    }
    #[cfg(not(any(loom, shuttle)))]
    pub mod failpoints {
        pub use crate::failpoints::*;
    }
    #[cfg(not(any(loom, shuttle)))]
    pub mod format {
        pub use crate::format::*;
    }
    pub mod group_commit {
        pub use crate::group_commit::*;
    }
    pub mod lock {
        pub use crate::lock::*;
    }
    #[cfg(not(any(loom, shuttle)))]
    pub mod log {
        pub use crate::log::*;
    }
    pub mod publish {
        pub use crate::publish::*;
    }
    #[cfg(not(any(loom, shuttle)))]
    pub mod queue {
        pub use crate::queue::*;
    }
    #[cfg(not(any(loom, shuttle)))]
    pub mod segment {
        pub use crate::segment::*;
    }
    #[cfg(not(any(loom, shuttle)))]
    pub mod sink {
        pub use crate::sink::*;
    }
    #[cfg(not(any(loom, shuttle)))]
    pub mod storage {
        pub use crate::storage::*;
    }
    #[cfg(not(any(loom, shuttle)))]
    pub mod store {
        pub use crate::store::*;
    }
    pub mod sync {
        pub use crate::sync::*;
    }
    #[cfg(not(any(loom, shuttle)))]
    pub mod topic {
        pub use crate::topic::*;
    }
    pub mod wake {
        pub use crate::wake::*;
    }
}

#[cfg(not(any(loom, shuttle)))]
pub use {
    consumer::{Consumer, GroupPartition, Start, forget_topic},
    error::{Error, Remedy, Result},
    log::{Interrupt, Visibility, Wait},
    queue::{Job, Lease, Queue, QueueOptions},
    sink::BulkLoad,
    store::{
        Access, BackupReport, RepairReport, RetentionChange, Store, StoreInfo, StoreOptions,
        TopicOptions, Verification,
    },
    topic::{
        CompactOptions, Compacted, CursorMove, CursorState, Follow, Merge, NewRecord, Precondition,
        Record, RecordBatch, RecordRef, Scan, ScanRange, Skipped, SyncMode, Topic, Transaction,
        partition_for_key,
    },
};
