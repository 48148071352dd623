//! Whether an open segment's file still has its name.
//!
//! Compaction gives a segment's name, sequence and salt to another file; an open map stays as it
//! was. Another program may also remove a file in use. So a process that keeps segments open checks
//! here now and then; `log` decides what to do.

use std::path::Path;

use crate::error::{Error, IoResult, Result};
use crate::storage::{File, Stat, Storage};

use super::Segment;

impl Segment {
    /// Return true when compaction made it: records may be left out, and blocks merged.
    #[inline]
    pub fn is_compacted(&self) -> bool {
        self.header.replaces.is_some()
    }

    /// Return whether its file has its name now.
    ///
    /// # Errors
    /// `SystemCallFailed`, unless no file has the name.
    pub fn has_its_name(&self, storage: &dyn Storage) -> Result<bool> {
        has_name(storage, &*self.file, &self.path)
    }
}

/// Check that an open file still has a name: one without is gone with its last handle, and a sync
/// of it keeps nothing. One `fstat`; if the file system counts no names, it checks the path too.
///
/// # Errors
/// `FilesRemoved`.
pub fn expect_not_removed(storage: &dyn Storage, file: &dyn File, path: &Path) -> Result<()> {
    // A file without `fstat` cannot be synced either, and that is reported.
    let has_names = file.stat().map_or(true, |stat| stat.links > 0);
    if has_names || has_name(storage, file, path).unwrap_or(false) {
        return Ok(());
    }
    Err(Error::FilesRemoved { path: path.to_path_buf() })
}

/// Return whether a file has this name now.
pub(super) fn has_name(storage: &dyn Storage, file: &dyn File, path: &Path) -> Result<bool> {
    let own = file.stat().doing("stat", path)?;
    let there = storage.stat(path).if_there("stat", path)?;
    Ok(there.is_some_and(|there| there.id() == own.id()))
}

/// Make sure that a path still leads to the file that was there when it was opened.
///
/// # Errors
/// `LockFileReplaced` when it leads to another, `FilesRemoved` when it leads nowhere.
pub fn expect_in_place(storage: &dyn Storage, own: &Stat, path: &Path) -> Result<()> {
    match storage.stat(path).if_there("look at", path)? {
        Some(there) if there.id() == own.id() => Ok(()),
        Some(_) => Err(Error::LockFileReplaced { path: path.to_path_buf() }),
        None => Err(Error::FilesRemoved { path: path.to_path_buf() }),
    }
}

#[cfg(all(test, not(loom)))]
#[path = "named_tests.rs"]
mod tests;
