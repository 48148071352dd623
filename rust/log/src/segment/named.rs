//! Whether a segment that is open is the one that has its name.
//!
//! Compaction gives another file the name, sequence and salt of one; what is mapped stays what it was.
//! Somebody may also remove a file that is in use. So a process that keeps segments open asks here now
//! and then. What to do about it is left to `log`.

use std::path::Path;

use crate::error::{Error, Result};
use crate::storage::{File, Storage};

use super::Segment;

impl Segment {
    /// True when compaction made it: records may be left out, and blocks put together anew.
    #[inline]
    pub fn is_compacted(&self) -> bool {
        self.header.replaces.is_some()
    }

    /// Whether its file is the one that has its name now.
    ///
    /// # Errors
    /// `SystemCallFailed`, other than that nothing has the name.
    pub fn has_its_name(&self, storage: &dyn Storage) -> Result<bool> {
        has_name(storage, &*self.file, &self.path)
    }
}

/// Make sure that an open file still has a name: one that has none is gone with its last handle, and a
/// sync of it keeps nothing. One `fstat`; a file system that counts no names is asked for the path too.
///
/// # Errors
/// `FilesRemoved`.
pub fn expect_not_removed(storage: &dyn Storage, file: &dyn File, path: &Path) -> Result<()> {
    // A file that cannot be looked at could not be synced either, and that is reported.
    let has_names = file.stat().map_or(true, |stat| stat.links > 0);
    if has_names || has_name(storage, file, path).unwrap_or(false) {
        return Ok(());
    }
    Err(Error::FilesRemoved { path: path.to_path_buf() })
}

/// Whether a file is the one that has a name now.
pub(super) fn has_name(storage: &dyn Storage, file: &dyn File, path: &Path) -> Result<bool> {
    let own = file.stat().map_err(|e| Error::io("stat", path, e))?;
    match storage.stat(path) {
        Ok(there) => Ok((there.device, there.inode) == (own.device, own.inode)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("stat", path, e)),
    }
}

#[cfg(all(test, not(loom)))]
#[path = "named_tests.rs"]
mod tests;
