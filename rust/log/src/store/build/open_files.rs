//! The files of segments that are being written.
//!
//! A store may have more segments than a process has descriptors, so only some stay open. Invariant: a file
//! that was written is synced through the descriptor that wrote to it, before that is closed. So no
//! failed write of the kernel goes unseen. A sync that failed once is never tried again: the kernel
//! reports a lost page once.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{IoResult, Result};
use crate::storage::{File, OpenMode, Storage};

use super::super::files;

/// Most files that stay open while no thread uses them.
const MOST: usize = 32;

type Known = HashMap<PathBuf, Arc<dyn File>>;

/// Open files by path.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    files: Mutex<Known>,
    /// The file whose sync failed, and the number of the error.
    lost: Mutex<Option<(PathBuf, i32)>>,
}

impl OpenFiles {
    /// Return a file that exists, opened for writing.
    pub(super) fn get(&self, storage: &dyn Storage, path: &Path) -> Result<Arc<dyn File>> {
        if let Some(file) = self.known().get(path) {
            return Ok(Arc::clone(file));
        }
        let opened = storage.open(path, OpenMode::ReadWrite).doing("open", path)?;
        // Another thread may have opened it meanwhile; nothing was written through this one yet.
        let file = Arc::clone(self.known().entry(path.to_path_buf()).or_insert(opened));
        self.close_idle()?;
        Ok(file)
    }

    /// Keep a file open that was just made.
    pub(super) fn keep(&self, path: &Path, file: Arc<dyn File>) -> Result<()> {
        self.known().insert(path.to_path_buf(), file);
        self.close_idle()
    }

    /// Sync all files and close them.
    pub(super) fn sync_all(&self) -> Result<()> {
        let files = std::mem::take(&mut *self.known());
        files.iter().try_for_each(|(path, file)| self.sync(&**file, path))?;
        match &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((path, error)) => Err(io::Error::from_raw_os_error(*error)).doing("sync", path),
        }
    }

    /// Sync what was written to a file so far, while other threads write to it.
    pub(super) fn sync_some(&self, storage: &dyn Storage, path: &Path) -> Result<()> {
        let file = self.get(storage, path)?;
        let synced = file.sync_data().doing("sync", path);
        self.note(synced, path)
    }

    /// Return true after a sync that failed.
    pub(super) fn lost_some(&self) -> bool {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Sync a file and close it, if it is open.
    pub(super) fn close(&self, path: &Path) -> Result<()> {
        let file = self.known().remove(path);
        file.map_or(Ok(()), |file| self.sync(&*file, path))
    }

    fn sync(&self, file: &dyn File, path: &Path) -> Result<()> {
        self.note(files::sync(file, path), path)
    }

    /// Remember a sync that failed.
    fn note(&self, synced: Result<()>, path: &Path) -> Result<()> {
        if let Err(error) = &synced {
            let number = error.os_error().unwrap_or(libc::EIO);
            let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
            lost.get_or_insert((path.to_path_buf(), number));
        }
        synced
    }

    /// Close files that no thread uses, if too many are open.
    fn close_idle(&self) -> Result<()> {
        let mut idle = Known::new();
        {
            let mut known = self.known();
            let surplus = known.len().saturating_sub(MOST);
            let unused = known.iter().filter(|(_, file)| Arc::strong_count(file) == 1);
            let paths: Vec<_> = unused.map(|(path, _)| path.clone()).take(surplus).collect();
            idle.extend(paths.iter().filter_map(|path| known.remove_entry(path)));
        }
        idle.iter().try_for_each(|(path, file)| self.sync(&**file, path))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
