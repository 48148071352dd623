//! Files that stand for segments whose bytes are elsewhere.
//!
//! Owns who may open such a file. Invariant: no segment is mapped, and none is read as a whole, while
//! its file lacks bytes. They would read as zero, which is an end. `storage::elsewhere` brings the bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Segment;
use super::header_pages::open_file;
use crate::error::{Error, Result};
use crate::format::segment::SegmentHeader;
use crate::storage::{File, OpenMode, Storage};

impl Segment {
    /// Open a segment for reading without a map. Its file may stand for bytes that are elsewhere:
    /// then only the parts that are on this machine can be read.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub fn open_stand_in(
        storage: &dyn Storage,
        dir: &Path,
        log: [u8; 16],
        sequence: u64,
    ) -> Result<Self> {
        let (path, file, header) = open_file(storage, dir, log, sequence, OpenMode::Read)?;
        Self::without_map(path, file, header, 0)
    }
}

/// Open a segment file as [`open_file`], if its bytes are on this machine. If a file only stands for
/// them, the bytes that it lacks read as zero, which would be an end.
pub(super) fn open_here(
    storage: &dyn Storage,
    dir: &Path,
    log: [u8; 16],
    sequence: u64,
    how: OpenMode,
) -> Result<(PathBuf, Arc<dyn File>, SegmentHeader)> {
    let opened = open_file(storage, dir, log, sequence, how)?;
    if opened.1.is_stand_in() {
        return Err(Error::io("read", &opened.0, std::io::Error::from_raw_os_error(libc::ESTALE)));
    }
    Ok(opened)
}
