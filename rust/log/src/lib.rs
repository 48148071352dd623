//! An event log that many processes on one machine share.
//!
//! A *store* is a directory. Processes append records to its *topics* and read them at the same
//! time. Rust programs use this crate, Python programs the package of the same name. There is no
//! broker and no daemon. Records keep their order and stay until they are deleted or expire. A
//! reader that has read everything sleeps in the kernel until there is more.
//!
//! # Quickstart
//!
//! ```
//! use falaj::{NewRecord, Store};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("events");
//!
//! let store = Store::open(path)?; // created on first use
//! let orders = store.topic("orders")?; // so is this
//! orders.append(b"two coffees")?;
//! orders.append(NewRecord::new("10 apples").key("eu"))?;
//! for record in orders.scan(..)? {
//!     let record = record?;
//!     println!("{} {:?} {:?}", record.offset(), record.key(), record.value());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to | call |
//! |---|---|
//! | append one record, or several at once | [`Topic::append`], [`Topic::extend`] |
//! | append idempotently, or at an expected offset only | [`Topic::append_if`] |
//! | read ranges of offsets or times | [`Topic::scan`], [`Topic::scan_times`], [`Topic::get`] |
//! | follow a topic as it grows | [`Topic::follow`] |
//! | share the partitions of topics among processes, and resume after a restart | [`Store::consumer`] |
//! | deliver each record to one worker | [`Store::queue`] |
//! | append to several topics together, with a group's offsets | [`Store::transaction`], [`Consumer::commit_with`] |
//! | load much data from many processes at once | [`Topic::bulk_load`] |
//! | delete old records | [`Topic::set_retention`], [`Topic::compact`], [`Topic::trim_before`], [`Store::maintain`] |
//! | inspect and repair a store | [`Store::info`], [`Store::verify`], [`StoreBuilder::repair`], [`Store::backup`] |
//!
//! The examples of the repository are programs to start from: `orders_service`, `consumer_group`, `workers`,
//! `transaction`.
//!
//! # Topics and partitions
//!
//! A topic has one partition unless [`TopicBuilder::partitions`] asks for more. Each partition has offsets of its own,
//! from 0. The key of a record chooses its partition; records without a key take turns. Scans and followers merge the
//! partitions by timestamp. Calls that take an offset belong to one partition: [`Topic::partition`] gives a handle for
//! one, with the same methods.
//!
//! # Durability
//!
//! An append that returned is visible to every process and survives the death of its process.
//! [`SyncMode`] says what a power failure may lose: nothing with `Durable`, about the last tenth of
//! a second with `Interval`, which is the default. A reader that may only act on durable records
//! reads with [`Topic::with_visibility`]. After a failed sync the topic refuses appends until the
//! data is safe elsewhere; reads continue. `docs/GUARANTEES.md` in the repository lists every
//! promise with its test.
//!
//! # Processes and threads
//!
//! Any number of processes may write to a store at once. Threads may share every handle; a clone
//! costs a few reference counts. A process that is killed at any point blocks no other, and no
//! other sees a half-done operation. After a `fork` the child opens the store itself: the parent's
//! handles return [`Error::HandleClosed`].
//!
//! Calls that wait block their thread. In an async service give them a thread of their own, and
//! pass records on through a channel.
//!
//! # Errors
//!
//! Every call returns [`Error`], one enum. Match the variant, or call [`Error::remedy`] to learn
//! what helps: retry, change the call, repair the store. The error's text names the topic or the
//! path, and what to do next. Bad input never panics. A read of corrupt data is an error too,
//! unless a reader [steps over it](Scan::step_over).
//!
//! # Platform
//!
//! 64-bit little-endian Linux and local file systems. On other platforms the crate does not
//! compile; other file systems are refused by name. There are no cargo features. The *format* of a
//! store has a version of its own. It freezes with the crate's first release: a later version of
//! the crate reads what an earlier one wrote, or refuses it by name.
#![warn(missing_docs)]
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
mod shipper;
#[cfg(not(any(loom, shuttle)))]
mod sink;
#[cfg(not(any(loom, shuttle)))]
mod storage;
#[cfg(not(any(loom, shuttle)))]
mod store;
mod sync;
#[cfg(not(any(loom, shuttle)))]
mod topic;
#[cfg(all(test, not(any(loom, shuttle))))]
#[path = "../../twin/src/lib.rs"]
#[allow(dead_code, unused_imports, reason = "the harnesses use what the unit tests do not")]
mod twin;
mod wake;

#[doc(hidden)]
pub mod internals;

#[cfg(not(any(loom, shuttle)))]
pub use {
    consumer::{Consumer, ConsumerBuilder, Delivery, GroupOffset},
    error::{Error, Remedy, Result},
    format::settings::WriteMode,
    log::Visibility,
    queue::{Backoff, Job, Jobs, NOT_BEFORE, Queue, QueueBuilder, Ticket},
    sink::{BulkLoad, StagedPart},
    store::{RetentionChange, Store, StoreBuilder},
    topic::{
        After, Committed, CompactOptions, Follow, NewRecord, Position, Precondition, ProducerName,
        Record, RecordBatch, RecordRef, Scan, SequenceSpan, Skipped, Start, SyncMode, Topic,
        TopicBuilder, Transaction, Watch, Watched, partition_for_key,
    },
};

/// Results of calls that report about a store, for people and for monitoring.
#[cfg(not(any(loom, shuttle)))]
pub mod report {
    pub use crate::consumer::{GroupInfo, GroupPartitionInfo, MemberInfo};
    pub use crate::log::verify::{Finding, LogReport, Progress, Severity, TopicReport};
    pub use crate::queue::QueueInfo;
    pub use crate::store::{
        BackupReport, LogInfo, LogMaintenance, LogRepair, Maintenance, PartitionInfo,
        PartitionTrim, RepairReport, StoreInfo, TopicInfo, Verification,
    };
    pub use crate::topic::{Compacted, KnownProducer};
}

// The twin names the engine as other crates do.
#[cfg(test)]
extern crate self as falaj;
