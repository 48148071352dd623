//! Files of queues: their places, and their names.
//!
//! Owns `queues/`. Invariant: a file gets its name whole and synced, over the previous one; files
//! with temporary names belong to no process. [`crate::queue`] defines the contents.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::layout::with_ending;
use super::topics::expect_store;
use super::{Store, files, registry};
use crate::error::{IoResult, Result};
use crate::segment::index::write_file;
use crate::storage::{File, OpenMode};

/// Ending of a file under construction; no name of a queue ends so.
const UNFINISHED: &str = "~";

impl Store {
    /// List the names of the queues, sorted.
    ///
    /// # Errors
    /// When the directory cannot be read.
    #[doc(hidden)]
    pub fn queues(&self) -> Result<Vec<String>> {
        let names = files::list_if_there(self.storage().as_ref(), &self.layout().queues())?;
        if names.is_empty() {
            expect_store(self.storage().as_ref(), self.layout())?;
        }
        Ok(names.into_iter().filter(|name| self.layout().queue(name).is_ok()).collect())
    }

    /// Remove the file of a queue; on disk when it returns.
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub(crate) fn remove_queue_file(&self, path: &Path) -> Result<()> {
        files::unlink(self.storage().as_ref(), path)?;
        files::sync_parent(self.storage().as_ref(), path)
    }

    /// Make the file of a queue under a temporary name: zeros after its header.
    ///
    /// # Errors
    /// `NoSpace`, `SystemCallFailed`.
    pub(crate) fn begin_queue_file(
        &self,
        path: &Path,
        header: &[u8],
        len: u64,
    ) -> Result<Arc<dyn File>> {
        let (storage, modes) = (self.storage().as_ref(), self.modes());
        let directory = self.layout().queues();
        if files::make_dir(storage, &directory, modes.directory)? {
            files::sync_parent(storage, &directory)?;
        }
        // As for lock files: a process that may open it could keep it locked.
        write_file(storage, &with_ending(path, UNFINISHED), header, len, modes.lock)
    }

    /// Sync such a file and give it its name, over the previous one.
    ///
    /// # Errors
    /// `SystemCallFailed`, `NoSpace`.
    pub(crate) fn finish_queue_file(&self, file: &dyn File, path: &Path) -> Result<()> {
        let (storage, unfinished) = (self.storage().as_ref(), with_ending(path, UNFINISHED));
        file.sync_all().doing("sync", &unfinished)?;
        storage.rename_over(&unfinished, path).doing("rename to", path)?;
        files::sync_parent(storage, path)
    }

    /// Return how long to wait for a lock.
    pub(crate) fn lock_timeout(&self) -> Duration {
        self.shared.lock_timeout
    }

    /// Open a file again, to lock it for a moment; a forked child closes it.
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub(crate) fn open_to_lock(&self, path: &Path) -> Result<Arc<dyn File>> {
        registry::open_for_a_moment(|| self.storage().open(path, OpenMode::ReadWrite))
            .doing("open", path)
    }
}
