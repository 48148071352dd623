//! A store: a directory that processes share, its topics, and who is writing to it.
//!
//! Owns everything between a path that a user names and a log that can be opened: that a store is
//! created whole or not at all, that those who write know of each other and of their dead, and which
//! topics there are. What is inside a log is left to [`crate::log`].
//!
//! | file | owns |
//! |---|---|
//! | `layout` | paths |
//! | `modes` | permission bits |
//! | `claim`, `sync_coalescer` | one at a time creates, deletes, joins; one sync serves many threads |
//! | `membership`, `slots` | who writes, and who is dead |
//! | `handles` | numbers of what a process has open, and whether it still is |
//! | `lockfile`, `registry`, `fork` | what of that a process holds, and what its children must not |
//! | `sidecar`, `queues` | files of consumers and queues, and what a process shares of each; names of queues |
//! | `options`, `builder`, `open`, `files` | opening and creating a store |
//! | `logs` | which logs this process has open, and the threads that serve them |
//! | `backup`, `unfinished` | a consistent copy while others write; the place where it is built |
//! | `catalog`, `verify`, `repair` | looking at, and mending, a store that need not open |
//! | `sidecar_check` | what those say of files of consumers and queues |
//! | `info` | what there is, in numbers |
//! | `configure` | changing the settings that may change |
//! | `retention` | which records go by themselves, and who sees to it |
//! | `staging` | what jobs stage beside a log, and how it goes |
//! | `topics`, `sweep` | creating, listing, deleting topics; removing what was left half-way |
//!
//! Invariant: everything is created under a temporary name and gets its own name whole, logs first,
//! `topic.json` and `falaj.json` last, under the claim. Protocol and races: `docs/PROTOCOL.md`.

mod backup;
mod backup_ends;
mod builder;
mod catalog;
mod claim;
mod configure;
mod files;
pub mod fork;
pub(crate) mod handles;
mod info;
pub mod layout;
mod lockfile;
mod logs;
pub mod membership;
pub mod modes;
mod open;
pub mod options;
mod queue_copy;
mod queues;
mod registry;
mod repair;
mod retention;
mod sharing;
pub(crate) mod sidecar;
mod sidecar_check;
mod slots;
mod staging;
mod sweep;
pub(crate) mod sync_coalescer;
mod topics;
mod unfinished;
mod verify;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use backup::BackupReport;
pub use builder::StoreBuilder;
pub use configure::RetentionChange;
pub(crate) use files::make_dir;
pub use info::{CountFrom, LogInfo, PartitionInfo, SlotInfo, StoreInfo, TopicInfo};
pub use layout::Layout;
pub use logs::Closing;
pub use membership::Membership;
pub use modes::Modes;
pub use options::{Access, StoreOptions, TopicOptions};
pub use repair::{LogRepair, RepairReport, repair};
pub use retention::{Limit, LogMaintenance, Maintenance, Need, PartitionTrim};
pub(crate) use sidecar_check::{Front, read_consumer};
pub use slots::DeadSlot;
pub use staging::{STALE_AFTER, Stale, remove_load, staging_dir, sweep_staging};
pub use verify::{Finding, LogReport, Progress, Severity, TopicReport, Verification, verify};

use crate::error::{Error, Result};
use crate::format::settings::{StoreSettings, TopicSettings};
use crate::log::{Notifier, Reading, RecordCounts};
use crate::storage::real::RealStorage;
use crate::storage::{Map, Storage};
use claim::Patience;
use registry::MembershipRef;
use sharing::Siblings;

/// An open store. A clone is the same store, which is closed with the last clone.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<StoreInner>,
}

#[derive(Debug)]
struct StoreInner {
    storage: Arc<dyn Storage>,
    layout: Layout,
    settings: StoreSettings,
    modes: Modes,
    wake: Option<Map>,
    /// Where the membership is kept; none for a reader.
    seat: Option<MembershipRef>,
    lock_timeout: Duration,
    reading: Reading,
    siblings: Siblings,
    /// How many records compacted segments hold, for all logs that are opened here.
    counts: Arc<RecordCounts>,
}

impl Store {
    /// Open the store in a directory for writing, and create it where the directory is missing or empty. The directory
    /// above it must exist. [`Store::options`] opens it for reading, which takes no lock and changes nothing.
    ///
    /// # Errors
    /// [`Error::NotAStore`] for anything else in the directory, or nothing to read;
    /// [`Error::UnsupportedVersion`]; [`Error::CorruptData`] when `falaj.json` is damaged;
    /// [`Error::UnsupportedFilesystem`] where falaj's promises cannot be kept; [`Error::SettingsMismatch`] for
    /// another write mode than the stored one; [`Error::InvalidArgument`] for a mode that makes no store;
    /// [`Error::LockTimeout`], [`Error::TooManyWriters`], [`Error::LockFileReplaced`] of the lock files;
    /// [`Error::NoSpace`]; [`Error::SystemCallFailed`] for missing permissions and all else.
    ///
    /// # Examples
    /// ```
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// store.topic("orders")?.append(b"two coffees")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &StoreOptions::default())
    }

    /// As [`Store::open`], with these options.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[doc(hidden)]
    pub fn open_with(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Self> {
        Self::open_on(Arc::new(RealStorage::new()), path, options)
    }

    /// As [`Store::open`], on another storage than the machine's files.
    ///
    /// # Errors
    /// As for [`Store::open`].
    #[doc(hidden)]
    pub fn open_on(
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        options: &StoreOptions,
    ) -> Result<Self> {
        open::open(storage, path.as_ref(), options)
    }

    /// Get the store's directory, absolute.
    pub fn path(&self) -> &Path {
        self.shared.layout.root()
    }

    /// What the store is.
    #[doc(hidden)]
    pub fn settings(&self) -> &StoreSettings {
        &self.shared.settings
    }

    /// What it was opened for.
    #[doc(hidden)]
    pub fn access(&self) -> Access {
        if self.shared.seat.is_some() { Access::Write } else { Access::Read }
    }

    /// Permission bits of what is in it.
    #[doc(hidden)]
    pub fn modes(&self) -> Modes {
        self.shared.modes
    }

    /// Its paths.
    #[doc(hidden)]
    pub fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    /// See that no directory on the way to a path in the store is a symbolic link out of it. The file
    /// itself is looked at by who opens it: [`Storage`] follows no link there.
    ///
    /// # Errors
    /// `SystemCallFailed`, with the directory.
    pub(crate) fn expect_inside(&self, path: &Path) -> Result<()> {
        files::expect_inside(self.storage().as_ref(), self.path(), path)
    }

    /// What it lies on.
    #[doc(hidden)]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.shared.storage
    }

    /// The page on which those sleep who wait for anything in the store ([`crate::format::wake`]);
    /// `None` for readers who may not read it.
    #[doc(hidden)]
    pub fn wake_page(&self) -> Option<&Map> {
        self.shared.wake.as_ref()
    }

    /// What those sleep on who wait for several logs.
    #[doc(hidden)]
    pub fn bell(&self) -> Notifier {
        Notifier::new(self.shared.wake.clone())
    }

    /// This process's place among those that write. In a forked child it is another one than the
    /// parent's, had when it is first asked for.
    ///
    /// # Errors
    /// [`Error::NotWritable`] for a store opened for reading; in a child also those of [`Store::open`]
    /// that concern lock files.
    #[doc(hidden)]
    pub fn membership(&self) -> Result<Arc<Membership>> {
        self.shared.membership()
    }

    /// Do what no other process may do or see at the same time: create, delete, join.
    ///
    /// # Errors
    /// [`Error::NotWritable`], [`Error::LockTimeout`], [`Error::LockFileReplaced`], and those of `work`.
    pub(crate) fn under_claim<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let claim = self.shared.claim()?;
        let done = work()?;
        claim.verify()?;
        Ok(done)
    }

    /// The directory of the log that a topic lives in.
    ///
    /// # Errors
    /// [`Error::InvalidName`] for settings that come from no store.
    #[doc(hidden)]
    pub fn log_dir(&self, topic: &TopicSettings) -> Result<std::path::PathBuf> {
        self.shared.layout.log(topic)
    }
}

impl StoreInner {
    /// The same for a handle that gets a place of its own.
    fn without_seat(&self) -> Self {
        Self {
            storage: Arc::clone(&self.storage),
            layout: self.layout.clone(),
            settings: self.settings.clone(),
            modes: self.modes,
            wake: self.wake.clone(),
            seat: None,
            lock_timeout: self.lock_timeout,
            reading: self.reading,
            siblings: Siblings::default(),
            counts: Arc::clone(&self.counts),
        }
    }

    fn storage(&self) -> &dyn Storage {
        self.storage.as_ref()
    }

    fn membership(&self) -> Result<Arc<Membership>> {
        let read_only = || Error::NotWritable { path: self.layout.root().to_path_buf() };
        let seat = self.seat.as_ref().ok_or_else(read_only)?;
        if let Some(member) = seat.get().filter(|member| member.check().is_ok()) {
            return Ok(member);
        }
        let patience = Patience::new(self.lock_timeout);
        let member =
            Membership::join(&self.storage, &self.layout, self.modes, patience, |_| Ok(()))?;
        seat.set(member.clone());
        Ok(member)
    }
}

#[cfg(test)]
mod tests;
