//! What a segment file says in its first page, for who wants no more of it.
//!
//! Reads by `pread` alone, so a look at many segments maps none of them. Invariant: what is returned
//! was decoded from checksummed bytes. Bytes: `docs/FORMAT.md`, "Segment".

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::PAGE;
use crate::format::segment::{HEADER_LEN, Mark, SegmentHeader};
use crate::storage::File;

/// Read and decode the header of a segment file.
///
/// # Errors
/// `Io`, `Corrupt` or `Newer`.
pub fn read_header(file: &dyn File, path: &Path) -> Result<SegmentHeader> {
    let mut bytes = [0; HEADER_LEN];
    let got = file.read_at(&mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
    SegmentHeader::decode(&bytes[..got]).map_err(|what| Error::malformed(path, 0, what))
}

/// Read what the first page of a segment file says: its header, and its valid durable mark.
///
/// # Errors
/// As [`read_header`].
pub fn read_first_page(file: &dyn File, path: &Path) -> Result<(SegmentHeader, Option<Mark>)> {
    let mut page = [0; PAGE as usize];
    let got = file.read_at(&mut page, 0).map_err(|e| Error::io("read", path, e))?;
    let header = SegmentHeader::decode(&page[..got.min(HEADER_LEN)]);
    let header = header.map_err(|what| Error::malformed(path, 0, what))?;
    let mark = Mark::newest(&page[..got], header.salt);
    Ok((header, mark))
}
