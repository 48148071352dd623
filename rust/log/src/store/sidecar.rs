//! Sidecar files: the state of consumer groups and queues, in shared files beside the logs.
//!
//! Owns how such a file is found, mapped in the store's write mode, recognised, and shared by the
//! handles of a process. Invariant: a process has one identity in lock words. So at most one of its
//! threads may wait for, hold or release the lock of a queue's file at a time ([`FileMutex`],
//! [`crate::lock`]). A forked child has a [`super::Membership`], and so mutexes, of its own.
//! [`crate::consumer`] and [`crate::queue`] define the contents of a file, and which process
//! changes it when.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::Store;
use crate::error::{IoResult, Result};
use crate::format::queue::QueueHeader;
use crate::format::settings::WriteMode;
use crate::storage::{File, Map, MapAccess, OpenMode, Stat};

/// An open sidecar file. `H` is the content of its header.
#[derive(Debug)]
pub struct Sidecar<H> {
    pub(crate) header: H,
    pub(crate) map: Map,
    pub(crate) path: PathBuf,
    stat: Stat,
}

impl<H> Sidecar<H> {
    /// Map an open file up to `len`, which is allocated first. A copy may have holes, into which no
    /// store would fit on a full disk.
    ///
    /// # Errors
    /// `NoSpace`, `SystemCallFailed`.
    pub(crate) fn over(
        store: &Store,
        file: &dyn File,
        header: H,
        path: &Path,
        len: u64,
    ) -> Result<Self> {
        let stat = file.stat().doing("look at", path)?;
        file.allocate(len).doing("allocate", path)?;
        let access = match store.settings().write_mode {
            WriteMode::Mapped => MapAccess::Write,
            WriteMode::Pwrite => MapAccess::WriteThrough,
        };
        let map = file.map(len, access).doing("map", path)?;
        Ok(Self { header, map, path: path.to_path_buf(), stat })
    }

    /// Return true for this file.
    pub(crate) fn is(&self, stat: &Stat) -> bool {
        stat.id() == self.stat.id()
    }

    /// Return true while the path leads to this file.
    pub(crate) fn is_in_place(&self, store: &Store) -> Result<bool> {
        let now = store.storage().stat(&self.path).if_there("look at", &self.path)?;
        Ok(now.is_some_and(|now| self.is(&now)))
    }

    #[inline]
    pub(crate) fn load(&self, position: u64) -> u64 {
        self.map.load(position)
    }

    /// Store a word that no other thread or process changes meanwhile.
    #[inline]
    pub(crate) fn set(&self, position: u64, value: u64) -> Result<()> {
        self.map.store(position, value).doing("write", &self.path)
    }

    pub(crate) fn write(&self, position: u64, bytes: &[u8]) -> Result<()> {
        self.map.write(position, bytes).doing("write", &self.path)
    }

    #[inline]
    pub(crate) fn write_words<const N: usize>(&self, position: u64, words: [u64; N]) -> Result<()> {
        self.map.write_words(position, words).doing("write", &self.path)
    }
}

impl Store {
    /// Open a sidecar file; `None` when it does not exist.
    ///
    /// # Errors
    /// `SystemCallFailed`, including the error for a symbolic link in place of a directory.
    pub(crate) fn open_sidecar(&self, path: &Path, how: OpenMode) -> Result<Option<Arc<dyn File>>> {
        self.expect_inside(path)?;
        self.storage().open(path, how).if_there("open", path)
    }
}

/// The mutex before a queue's file, and the file as this process has it open.
pub(crate) type FileMutex = Mutex<Option<Sidecar<QueueHeader>>>;

/// One value for each file, shared by all handles of a process.
#[derive(Debug)]
pub(super) struct PerFile<T>(Mutex<HashMap<PathBuf, Arc<T>>>);

impl<T> Default for PerFile<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Default> PerFile<T> {
    /// Return the value of a file. Values without a handle are dropped, if they are idle.
    pub(super) fn of(&self, path: &Path, is_idle: impl Fn(&T) -> bool) -> Arc<T> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(path) {
            return Arc::clone(found);
        }
        known.retain(|_, one| Arc::strong_count(one) > 1 || !is_idle(one));
        Arc::clone(known.entry(path.to_path_buf()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_a_file_is_one_for_all_handles_and_goes_when_it_is_idle() {
        let known = PerFile::<Mutex<Option<u32>>>::default();
        let is_idle = |one: &Mutex<Option<u32>>| one.lock().unwrap().is_none();
        let of = |name: &str| known.of(Path::new(name), is_idle);
        let (first, busy) = (of("a"), of("b"));
        assert!(Arc::ptr_eq(&first, &of("a")) && !Arc::ptr_eq(&first, &busy));
        *busy.lock().unwrap() = Some(7);
        drop(busy);
        drop(of("c"));
        drop(of("d"));
        let names = || {
            let known = known.0.lock().unwrap();
            let mut names: Vec<_> = known.keys().map(|path| path.display().to_string()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["a", "b", "d"], "`c` was idle, and no handle had it");
        assert_eq!(*of("b").lock().unwrap(), Some(7), "an open file stays open between two calls");
    }
}
