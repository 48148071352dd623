//! Opening a store with other settings than the defaults.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Access, RepairReport, Store, StoreOptions, repair};
use crate::error::Result;
use crate::format::settings::WriteMode;
use crate::log::Reading;
use crate::storage::real::RealStorage;

/// How to open a store; [`Store::options`] makes one.
///
/// # Examples
/// ```
/// use falaj::Store;
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("events");
/// # Store::open(&path)?;
/// let reader = Store::options().read_only(true).open(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "`open` opens the store"]
pub struct StoreBuilder {
    options: StoreOptions,
}

impl Store {
    /// Choose how to open a store.
    pub fn options() -> StoreBuilder {
        StoreBuilder::default()
    }
}

impl StoreBuilder {
    /// Open it for reading only: nothing is created or changed, and no lock is taken.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.options.access = if read_only { Access::Read } else { Access::Write };
        self
    }

    /// Set the permission bits of a new store's directories. The default is 0o700; 0o750 lets a
    /// group read, 0o770 lets it write. Those of the files follow.
    pub fn permissions(mut self, mode: u32) -> Self {
        self.options.mode = mode;
        self
    }

    /// Fail if there is no store, when this is false. True by default.
    pub fn create(mut self, create: bool) -> Self {
        self.options.create = create;
        self
    }

    /// Write in this mode. By default a new store gets the mode that suits its file system, and an
    /// existing one keeps its own.
    pub fn write_mode(mut self, write_mode: WriteMode) -> Self {
        self.options.write_mode = Some(write_mode);
        self
    }

    /// Use the store although its file system cannot keep the promises of durability.
    pub fn allow_network_fs(mut self, allow_network_fs: bool) -> Self {
        self.options.allow_network_fs = allow_network_fs;
        self
    }

    /// Wait at most this long for processes that open or change the store now, 10 seconds by
    /// default.
    pub fn lock_timeout(mut self, lock_timeout: Duration) -> Self {
        self.options.lock_timeout = lock_timeout;
        self
    }

    /// Read by `pread` instead of maps. It is slower, and safe when a disk is failing or another
    /// program truncates files.
    pub fn pread(mut self, pread: bool) -> Self {
        self.options.reading = if pread { Reading::Pread } else { Reading::Map };
        self
    }

    /// Open the store in a directory, as [`Store::open`] does.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        Store::open_with(path, &self.options)
    }

    /// Find out how to repair a store that may fail to open, and repair it unless this is a dry
    /// run.
    ///
    /// # Errors
    /// `StoreNotFound`, `NotAStore`, `LockTimeout`; without a dry run also those of [`Store::open`].
    /// Errors in a single log or topic are in the report.
    ///
    /// # Examples
    /// ```
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("events");
    /// # Store::open(&path)?;
    /// let found = Store::options().repair(path, true)?;
    /// assert!(found.is_complete() && found.steps().next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn repair(&self, path: impl AsRef<Path>, dry_run: bool) -> Result<RepairReport> {
        repair(Arc::new(RealStorage::new()), path.as_ref(), &self.options, dry_run)
    }
}
