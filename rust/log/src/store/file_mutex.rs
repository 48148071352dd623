//! Doors: one mutex a process before each file that processes lock by a word.
//!
//! A process has one identity in lock words, so of its threads at most one may wait for, hold or give
//! back such a lock at a time ([`crate::lock`]). Behind its door a process keeps what it has of the
//! file, whatever that is, so that all its handles share one. A forked child has doors of its own,
//! because it has a membership of its own.

use std::any::Any;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What is behind a door: nothing at first.
pub type FileMutex = Mutex<Option<Box<dyn Any + Send>>>;

/// The doors of a process.
#[derive(Debug, Default)]
pub(super) struct FileMutexes {
    doors: Mutex<HashMap<PathBuf, Arc<FileMutex>>>,
}

impl FileMutexes {
    /// The door before a file. It stays while the process is a member: names of queues are few.
    pub(super) fn mutex_of(&self, path: &Path) -> Arc<FileMutex> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(door) = doors.get(path) {
            return Arc::clone(door);
        }
        let door = Arc::default();
        doors.insert(path.to_path_buf(), Arc::clone(&door));
        door
    }
}
