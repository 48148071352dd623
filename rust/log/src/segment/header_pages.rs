//! Reading a segment file's first two pages without opening the segment.
//!
//! Reads by `pread` alone, so a look at many segments maps none of them. Invariant: every returned
//! value was decoded from checksummed bytes. Bytes: `docs/FORMAT.md`, "Segment".

use std::path::Path;

use crate::error::{Error, IoResult, Result};
use crate::format::FIRST_BLOCK;
use crate::format::segment::{HEADER_LEN, HEADERS, Mark, SegmentHeader};
use crate::storage::File;

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
