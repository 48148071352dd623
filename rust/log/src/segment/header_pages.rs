//! Reading a segment file's first two pages without opening the segment.
//!
//! Reads by `pread` alone, so a look at many segments maps none of them. Invariant: every returned
//! value was decoded from checksummed bytes. Bytes: `docs/FORMAT.md`, "Segment".

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, IoResult, Result};
use crate::format::segment::{HEADER_LEN, HEADERS, Mark, SegmentHeader};
use crate::format::{DecodeError, FIRST_BLOCK, names};
use crate::storage::{File, OpenMode, Storage};

/// Read and decode the header of a segment file.
///
/// # Errors
/// `SystemCallFailed`, `CorruptData` or `UnsupportedVersion`.
pub fn read_header(file: &dyn File, path: &Path) -> Result<SegmentHeader> {
    read_header_pages(file, path).map(|(header, _)| header)
}

/// Read the first pages of a segment file: its header, and its valid durable mark.
///
/// # Errors
/// As [`read_header`].
pub fn read_header_pages(file: &dyn File, path: &Path) -> Result<(SegmentHeader, Option<Mark>)> {
    let (pages, got) = read_pages(file, path)?;
    let header = SegmentHeader::in_pages(&pages[..got]);
    let header = header.map_err(|what| Error::malformed(path, 0, what))?;
    let mark = Mark::newest(&pages[..got], header.salt);
    Ok((header, mark))
}

/// Return the position of the header or the copy that differs from `header`, if one does.
///
/// # Errors
/// `SystemCallFailed`.
pub fn corrupt_header(file: &dyn File, header: &SegmentHeader, path: &Path) -> Result<Option<u64>> {
    let (pages, _) = read_pages(file, path)?;
    let sector = header.encode();
    Ok(HEADERS.into_iter().find(|at| pages[*at as usize..][..HEADER_LEN] != sector))
}

fn read_pages(file: &dyn File, path: &Path) -> Result<([u8; FIRST_BLOCK as usize], usize)> {
    let mut pages = [0; FIRST_BLOCK as usize];
    let got = file.read_at(&mut pages, 0).doing("read", path)?;
    Ok((pages, got))
}

/// Open a segment file of a log, and check that it is the one that its name says.
pub(super) fn open_file(
    storage: &dyn Storage,
    dir: &Path,
    log: [u8; 16],
    sequence: u64,
    how: OpenMode,
) -> Result<(PathBuf, Arc<dyn File>, SegmentHeader)> {
    let path = dir.join(names::segment(sequence));
    let file = storage.open(&path, how).doing("open", &path)?;
    let header = read_header(&*file, &path)?;
    expect_own(&header, log, sequence, &path)?;
    Ok((path, file, header))
}

/// Check that a file's header belongs to its name.
///
/// # Errors
/// `CorruptData` for a segment of another log, and for a copy of one under a name that is not its own.
pub fn expect_own(header: &SegmentHeader, log: [u8; 16], sequence: u64, path: &Path) -> Result<()> {
    if header.log == log && header.sequence == sequence {
        return Ok(());
    }
    let what = DecodeError::Damaged("a segment of another log, or under another's name");
    Err(Error::malformed(path, 0, what))
}
