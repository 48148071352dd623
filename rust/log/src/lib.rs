//! falaj: an event log that many processes on one machine share.
//!
//! No broker, no daemon, nothing to operate: a directory is the whole system. Any number of processes
//! append to the topics of a store and read them, in Rust with this crate, in Python with the package
//! of the same name, at the same time. Records are ordered and stay; readers go where they like, and
//! one that has read all sleeps in the kernel until there is more.
//!
//! ```
//! use falaj::store::{Store, StoreOptions, TopicOptions};
//! use falaj::topic::{NewRecord, Topic};
//! # let directory = tempfile::tempdir().expect("a directory for a test");
//! # let path = directory.path().join("events");
//!
//! let store = Store::open(path, &StoreOptions::default())?; // created on first use
//! let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
//! let offset = orders.append(0, &NewRecord::value(b"two coffees"), None)?;
//! let record = orders.get(0, offset)?;
//! assert_eq!(record.value(), Some(b"two coffees".as_slice()));
//! # Ok::<(), falaj::error::Error>(())
//! ```
//!
//! Going through a topic, and on as it grows:
//!
//! ```no_run
//! # use falaj::{store::{Store, StoreOptions, TopicOptions}, topic::Topic};
//! # let store = Store::open("events", &StoreOptions::reading())?;
//! # let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
//! for record in orders.follow(0, orders.first(0)?)? {
//!     let record = record?;
//!     println!("{} {:?}", record.offset(), record.value());
//! }
//! # Ok::<(), falaj::error::Error>(())
//! ```
//!
//! # When is it safe?
//!
//! An append that returned is visible to all, and killing any process takes nothing away. What a loss
//! of power may take is for [`SyncMode`](topic::SyncMode) to say: nothing with `Durable`, about the
//! last tenth of a second with `Interval`. `docs/GUARANTEES.md` has the whole list, each promise with
//! its test. Every error is an [`Error`](error::Error) that says what helps.
//!
//! # Rooms
//!
//! | module | what is in it | for |
//! |---|---|---|
//! | [`store`] | opening a directory; its topics; who writes to it | everybody |
//! | [`topic`] | appending records, reading them | everybody |
//! | [`consumer`] | named readers, whose cursors survive and whose members share partitions | everybody |
//! | [`sink`] | jobs of many processes, whose records become visible at once | everybody |
//! | [`queue`] | handing the records of a topic out as jobs | everybody |
//! | [`error`] | what can go wrong, and what helps | everybody |
//! | [`log`] | the protocols between processes: append, repair, recovery, sync, follow | waiting, and tools |
//! | [`segment`] | one file: checks, walks, index | tools |
//! | [`mod@format`] | what each byte means | tools, other readers |
//! | [`storage`] | files, maps, locks; twins in memory for tests | tests |
//! | [`lock`], [`wake`], [`publish`], [`group_commit`], [`sync`] | what processes do to shared words | `log`, and models |
//!
//! Versions 0.x may change the modules that are for tools and tests without notice; the *format* is
//! stable from version 1 on, whatever the crate's version (`docs/FORMAT.md`).
//!
//! # Features and platform
//!
//! There is nothing to choose: no optional dependencies, and two cargo features, `failpoints` and
//! `canaries`, which are for our own tests and let them end a process at named points or plant bugs.
//! Linux, 64-bit, little-endian: words are mapped and waits are futexes; anything else refuses to
//! compile. Threads may share every handle;
//! after a `fork` the child opens anew ([`Closed`](error::Error::Closed) reminds it). Local file
//! systems only: network ones and FUSE are refused.
#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_endian = "little", target_pointer_width = "64")))]
compile_error!(
    "falaj runs on 64-bit little-endian Linux: its words are mapped and its waits are futexes"
);

#[doc(hidden)]
pub mod canary;
#[cfg(not(any(loom, shuttle)))]
pub mod consumer;
#[cfg(not(any(loom, shuttle)))]
pub mod error;
#[cfg(not(any(loom, shuttle)))]
#[doc(hidden)]
pub mod failpoints;
#[cfg(not(any(loom, shuttle)))]
pub mod format;
pub mod group_commit;
pub mod lock;
#[cfg(not(any(loom, shuttle)))]
pub mod log;
pub mod publish;
#[cfg(not(any(loom, shuttle)))]
pub mod queue;
#[cfg(not(any(loom, shuttle)))]
pub mod segment;
#[cfg(not(any(loom, shuttle)))]
pub mod sink;
#[cfg(not(any(loom, shuttle)))]
pub mod storage;
#[cfg(not(any(loom, shuttle)))]
pub mod store;
pub mod sync;
#[cfg(not(any(loom, shuttle)))]
pub mod topic;
pub mod wake;
