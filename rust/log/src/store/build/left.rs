//! Files of segments that an earlier builder of the same store left. Some of their bytes are right.
//!
//! Owns the folder `left` in the directory of a builder. Segments are moved into it when a builder takes
//! over, and out of it when the caller begins them. So the rest of the directory is made as in a new
//! one. Invariant: at the end there is no such folder. Bytes in these files count only once they were
//! compared with a checksum. [`crate::log::SegmentPiece`] says whether a file is of a segment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::files;
use super::super::layout::{Layout, top};
use super::super::unfinished::remove;
use super::pieces::log_generation;
use crate::error::{IoResult, Result};
use crate::format::checksum::crc32_from;
use crate::format::names;
use crate::log::SegmentPiece;
use crate::storage::{File, Storage};

/// Name of the folder; no store has one like it.
const LEFT: &str = "left";
/// Bytes that are read and compared at once: they stay in the processor's cache.
pub(super) const CHUNK: usize = 128 << 10;

/// Segments that were left, in a folder of their own.
#[derive(Debug)]
pub(super) struct Left(PathBuf);

impl Left {
    /// Move the segments in a directory out of the way, and remove everything else but its lock. A builder
    /// that died here is no obstacle for the next.
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub(super) fn set_aside(storage: &dyn Storage, layout: &Layout, mode: u32) -> Result<Self> {
        let left = Self(layout.root().join(LEFT));
        // A link would lead out of here.
        if !files::is_dir(storage, &left.0)? {
            let _ = storage.unlink(&left.0);
            files::make_dir(storage, &left.0, mode)?;
        }
        let logs = layout.logs();
        let there = files::is_dir(storage, &logs)?.then(|| files::list(storage, &logs));
        for log in there.transpose()?.unwrap_or_default() {
            let (from, to) = (logs.join(&log), left.0.join(&log));
            if log_generation(&log).is_err() || !files::is_dir(storage, &from)? {
                continue;
            }
            files::make_dir(storage, &to, mode)?;
            files::expect_dir(storage, &to)?;
            for name in files::list(storage, &from)? {
                if names::parse_segment(&name).is_some() {
                    let path = to.join(&name);
                    storage.rename_over(&from.join(&name), &path).doing("rename to", &path)?;
                }
            }
        }
        for name in files::list(storage, layout.root())? {
            let path = layout.root().join(&name);
            if name == LEFT || name == top::CLAIM {
            } else if files::is_dir(storage, &path)? {
                remove(storage, &path);
            } else {
                files::unlink(storage, &path)?;
            }
        }
        Ok(left)
    }

    /// Move the file of a segment to `path`, if one was left that is of it.
    ///
    /// # Errors
    /// `SystemCallFailed`, `NoSpace`.
    pub(super) fn take(
        &self,
        storage: &dyn Storage,
        log: &str,
        piece: &SegmentPiece,
        path: &Path,
        mode: u32,
    ) -> Result<Option<Arc<dyn File>>> {
        let from = self.0.join(log).join(names::segment(piece.sequence()));
        if !files::is_dir(storage, &self.0.join(log))?
            || files::stat(storage, &from)?.is_none_or(|stat| stat.is_dir)
        {
            return Ok(None);
        }
        let file = piece.adopt_at(storage, &from, mode)?;
        if file.is_some() {
            storage.rename_new(&from, path).doing("rename to", path)?;
        }
        Ok(file)
    }

    /// Remove what no segment needs.
    pub(super) fn remove(&self, storage: &dyn Storage) {
        remove(storage, &self.0);
    }
}

/// Return true if a file has bytes with this CRC-32 at a position. Those that cannot be read are not
/// there: they are written again.
pub(super) fn is_there(file: &dyn File, position: u64, len: u64, crc: u32) -> bool {
    // Bytes that were written are no hole.
    if !matches!(file.next_data(position), Ok(Some(data)) if data == position) {
        return false;
    }
    let mut chunk = vec![0; CHUNK.min(len as usize)];
    let (mut at, end, mut found) = (position, position + len, 0);
    while at < end {
        let wanted = chunk.len().min((end - at) as usize);
        if !matches!(file.read_at(&mut chunk[..wanted], at), Ok(read) if read == wanted) {
            return false;
        }
        found = crc32_from(found, &chunk[..wanted]);
        at += wanted as u64;
    }
    found == crc
}
