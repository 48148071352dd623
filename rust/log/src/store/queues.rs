//! Files of queues: where they lie, and how one gets its name.
//!
//! Owns `queues/`. Invariant: a file gets its name whole and synced, over the one that had it; what lies
//! there under a temporary name belongs to no process. What is in the files is left to [`crate::queue`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::layout::with_ending;
use super::{Store, files, registry};
use crate::error::{IoResult, Result};
use crate::segment::index::write_file;
use crate::storage::{File, OpenMode};

/// Behind the name of a file that is being made; no name of a queue ends so.
const UNFINISHED: &str = "~";

impl Store {
    /// Names of the queues, sorted.
    ///
    /// # Errors
    /// When the directory cannot be read.
    #[doc(hidden)]
    pub fn queues(&self) -> Result<Vec<String>> {
        let names = files::list_if_there(self.storage().as_ref(), &self.layout().queues())?;
        Ok(names.into_iter().filter(|name| self.layout().queue(name).is_ok()).collect())
    }

    /// Remove the file of a queue, on the medium when it returns.
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub(crate) fn remove_queue_file(&self, path: &Path) -> Result<()> {
        files::unlink(self.storage().as_ref(), path)?;
        files::sync_parent(self.storage().as_ref(), path)
    }

    /// Make the file of a queue under a temporary name: zero, but for its header.
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
        // As lock files: a process that may open it could keep it locked.
        write_file(storage, &with_ending(path, UNFINISHED), header, len, modes.lock)
    }

    /// Sync such a file and give it its name, over what has it.
    ///
    /// # Errors
    /// `SystemCallFailed`, `NoSpace`.
    pub(crate) fn finish_queue_file(&self, file: &dyn File, path: &Path) -> Result<()> {
        let (storage, unfinished) = (self.storage().as_ref(), with_ending(path, UNFINISHED));
        file.sync_all().doing("sync", &unfinished)?;
        storage.rename_over(&unfinished, path).doing("rename to", path)?;
        files::sync_parent(storage, path)
    }

    /// How long to wait for a lock.
    pub(crate) fn lock_timeout(&self) -> Duration {
        self.shared.lock_timeout
    }

    /// Open a file anew, to lock it for a moment; a forked child closes it.
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub(crate) fn open_to_lock(&self, path: &Path) -> Result<Arc<dyn File>> {
        registry::open_for_a_moment(|| self.storage().open(path, OpenMode::ReadWrite))
            .doing("open", path)
    }
}
