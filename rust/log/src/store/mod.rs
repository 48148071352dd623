//! A store: a directory that processes share, its topics, and its writers.
//!
//! Owns everything between a path that a user names and a log that can be opened. A store is
//! created completely or not at all. Writers know of each other and of their dead. It knows which
//! topics there are. [`crate::log`] owns the inside of a log.
//!
//! | file | owns |
//! |---|---|
//! | `layout` | paths |
//! | `modes` | permission bits |
//! | `claim`, `sync_coalescer` | one at a time creates, deletes, joins; one sync serves many threads |
//! | `membership`, `slots` | the writers, and which of them are dead |
//! | `handles` | numbers of things that a process has open, and whether they still exist |
//! | `lockfile`, `registry`, `fork` | locks that a process holds, and that its children must not hold |
//! | `sidecar`, `queues` | files of consumer groups and queues, and the part of each that a process shares; names of queues |
//! | `options`, `builder`, `open`, `files` | opening and creating a store |
//! | `logs` | the logs that this process has open, and the threads that serve them |
//! | `cut`, `cut_ends`, `cut_files` | what the store held at one moment: logs with ends that agree, and small files |
//! | `backup`, `unfinished` | a copy of that; the directory in which it is built |
//! | `build` | a store from pieces that come from elsewhere |
//! | `catalog`, `verify`, `repair` | checking and repairing a store that may fail to open |
//! | `sidecar_check` | the same for files of consumer groups and queues |
//! | `info` | facts in numbers |
//! | `codec` | the codec of a topic, as its settings name it |
//! | `origin` | which of the copies of the store this is |
//! | `configure` | changing the settings that may change |
//! | `retention` | which records expire, and the work of deleting them |
//! | `shipping` | which process ships the store, and what it acknowledges |
//! | `staging` | files that bulk loads stage beside a log, and their removal |
//! | `view` | a directory that is read as a store, and kept as a place beyond the machine has it |
//! | `topics`, `sweep` | creating, listing, deleting topics; removing leftovers |
//!
//! Invariant: everything is created under a temporary name and gets its own name when it is whole.
//! The order is logs first, `topic.json` and `falaj.json` last, under the claim. Protocol and
//! races: `docs/PROTOCOL.md`.

mod backup;
mod build;
mod builder;
mod catalog;
mod claim;
mod codec;
mod configure;
mod cut;
mod cut_ends;
mod cut_files;
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
mod origin;
mod queues;
mod registry;
mod repair;
mod retention;
mod sharing;
mod shipping;
pub(crate) mod sidecar;
mod sidecar_check;
mod slots;
mod staging;
mod sweep;
pub(crate) mod sync_coalescer;
mod topics;
mod unfinished;
mod verify;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use backup::BackupReport;
pub use build::{Parent, PieceBuilder, PieceOptions, RestoreReport};
pub use builder::StoreBuilder;
pub use codec::TopicCodec;
pub use configure::RetentionChange;
pub use cut::{Cut, CutLog, TopicEnd};
pub use cut_files::CutFile;
pub(crate) use files::make_dir;
pub use info::{CountFrom, LogInfo, PartitionInfo, SlotInfo, StoreInfo, TopicInfo};
pub use layout::Layout;
pub use logs::Closing;
pub use membership::Membership;
pub use modes::Modes;
pub use options::{Access, StoreOptions, TopicOptions};
pub use repair::{LogRepair, RepairReport, repair};
pub use retention::{Limit, LogMaintenance, Maintenance, Need, PartitionTrim};
pub use shipping::Shipping;
pub(crate) use sidecar_check::{Front, read_consumer};
pub use slots::DeadSlot;
pub use staging::{FrameReader, STALE_AFTER, Stale, remove_load, staging_dir, sweep_staging};
pub use verify::{Finding, LogReport, Progress, Severity, TopicReport, Verification, verify};
pub use view::{PlaceView, SealedSegment, ViewSegment};

use crate::error::{Error, Result};
use crate::format::settings::{StoreSettings, TopicSettings};
use crate::log::{Notifier, Reading, RecordCounts};
use crate::storage::real::RealStorage;
use crate::storage::{Map, Storage};
use claim::Patience;
use cut::CutsState;
use registry::MembershipRef;
use sharing::Siblings;

/// An open store. A clone is the same store, which is closed with the last clone.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<StoreInner>,
}

#[derive(Debug)]
struct StoreInner {
    /// Before the seat: it holds logs of the membership.
    cuts: CutsState,
    storage: Arc<dyn Storage>,
    layout: Layout,
    settings: StoreSettings,
    modes: Modes,
    wake: Option<Map>,
    /// The place of the membership; none for a reader.
    seat: Option<MembershipRef>,
    lock_timeout: Duration,
    reading: Reading,
    siblings: Siblings,
    /// Record counts of compacted segments, for all logs that are opened here.
    counts: Arc<RecordCounts>,
}

impl Store {
    /// Open the store in a directory for writing, and create it if the directory is missing or
    /// empty. The directory above it must exist. [`Store::options`] opens it for reading, which
    /// takes no lock and changes nothing.
    ///
    /// # Errors
    /// [`Error::NotAStore`] for anything else in the directory, or nothing to read;
    /// [`Error::UnsupportedVersion`]; [`Error::CorruptData`] when `falaj.json` is corrupt.
    /// [`Error::UnsupportedFilesystem`] where falaj cannot keep its promises;
    /// [`Error::SettingsMismatch`] for another write mode than the stored one;
    /// [`Error::InvalidArgument`] for permission bits that no store may have.
    /// [`Error::LockTimeout`], [`Error::TooManyWriters`], [`Error::LockFileReplaced`] of the lock
    /// files; [`Error::NoSpace`]; [`Error::SystemCallFailed`] for missing permissions and all else.
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

    /// Open as [`Store::open`], with these options.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[doc(hidden)]
    pub fn open_with(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Self> {
        Self::open_on(Arc::new(RealStorage::new()), path, options)
    }

    /// Open as [`Store::open`], on another storage than the machine's files.
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

    /// Return the store's settings, as they were at opening.
    #[doc(hidden)]
    pub fn settings(&self) -> &StoreSettings {
        &self.shared.settings
    }

    /// Return how it was opened.
    #[doc(hidden)]
    pub fn access(&self) -> Access {
        if self.shared.seat.is_some() { Access::Write } else { Access::Read }
    }

    /// Return the permission bits of its files and directories.
    #[doc(hidden)]
    pub fn modes(&self) -> Modes {
        self.shared.modes
    }

    /// Return its paths.
    #[doc(hidden)]
    pub fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    /// Check that no directory on the way to a path in the store is a symbolic link out of it. The
    /// file itself is checked when it is opened: [`Storage`] follows no link there.
    ///
    /// # Errors
    /// `SystemCallFailed`, with the directory.
    pub(crate) fn expect_inside(&self, path: &Path) -> Result<()> {
        files::expect_inside(self.storage().as_ref(), self.path(), path)
    }

    /// Return its storage.
    #[doc(hidden)]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.shared.storage
    }

    /// Return the page on which waiting processes of the store sleep ([`crate::format::wake`]);
    /// `None` for a reader that may not read it.
    #[doc(hidden)]
    pub fn wake_page(&self) -> Option<&Map> {
        self.shared.wake.as_ref()
    }

    /// Make a bell on which to wait for several logs.
    #[doc(hidden)]
    pub fn bell(&self) -> Notifier {
        Notifier::new(self.shared.wake.clone())
    }

    /// Return this process's membership. A forked child gets its own at the first call.
    ///
    /// # Errors
    /// [`Error::NotWritable`] for a store opened for reading; in a child also those of
    /// [`Store::open`] about lock files.
    #[doc(hidden)]
    pub fn membership(&self) -> Result<Arc<Membership>> {
        self.shared.membership()
    }

    /// Do work that no other process may do or see at the same time: create, delete, join.
    ///
    /// # Errors
    /// [`Error::NotWritable`], [`Error::LockTimeout`], [`Error::LockFileReplaced`], and those of `work`.
    pub(crate) fn under_claim<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let claim = self.shared.claim()?;
        let done = work()?;
        claim.verify()?;
        Ok(done)
    }

    /// Return the directory of a topic's log.
    ///
    /// # Errors
    /// [`Error::InvalidName`] for settings that come from no store.
    #[doc(hidden)]
    pub fn log_dir(&self, topic: &TopicSettings) -> Result<std::path::PathBuf> {
        self.shared.layout.log(topic)
    }
}

impl StoreInner {
    /// Return the same without a membership, for a handle that gets its own.
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
            cuts: CutsState::default(),
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
