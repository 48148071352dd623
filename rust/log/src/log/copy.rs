//! Copying a cut of a log into a directory.
//!
//! Owns the contents of a copy. Each segment has the header and the blocks of the cut, and a fresh mark
//! that says so; there is no derived state. A copy is therefore a log that was closed in order. The
//! first process to open it finds all of it durable and appends after it.
//!
//! ```text
//! cut     | header | blocks ……………… end | end block |        segment before the last
//! copy    | header, mark = end, succeeded | blocks …… | end block |
//! cut     | header | blocks …… end                          the last one
//! copy    | header, mark = end, clean | blocks …… |
//! ```
//!
//! Neither source nor copy is mapped. Segments that are wholly on disk never change again, so the
//! kernel may share their blocks with the copy if the file system can. The active one is copied
//! byte by byte. A store to a shared block under a mapped writer would need space on the disk, and
//! there may be none. [`super::cut`] owns the cut. See `docs/PROTOCOL.md`, "Backup".

use std::path::{Path, PathBuf};

use crate::error::{IoResult, Result};
use crate::format::segment::{Mark, header_pages};
use crate::format::{FIRST_BLOCK, names};
use crate::segment::Segment;
use crate::storage::{File, OpenMode, Storage};

use super::create::make_rest;
use super::cut::{LogCut, SegmentCut, holes};
use super::verify::Progress;

/// Bytes copied between two calls of `progress`.
const STRIDE: u64 = 8 << 20;

impl LogCut {
    /// Fill an existing, empty directory with the cut, and sync everything in it.
    ///
    /// # Errors
    /// `CorruptData` when a segment no longer exists, `SystemCallFailed`, `NoSpace`, and the errors
    /// of `progress`. The caller must then remove the directory.
    pub fn carry_out(
        &self,
        storage: &dyn Storage,
        to: &Path,
        done: &mut u64,
        total: u64,
        progress: Progress<'_>,
    ) -> Result<()> {
        for cut in &self.segments {
            let segment = self.open(cut)?;
            cut.copy(&segment, storage, to, self.file_mode, &mut |bytes| {
                *done += bytes;
                progress(*done, total)
            })?;
        }
        // Without an owner: the processes that open the copy lock it.
        make_rest(storage, to, self.write_mode, self.file_mode)?;
        storage.sync_dir(to).doing("sync", to)
    }
}

impl SegmentCut {
    fn copy(
        &self,
        segment: &Segment,
        storage: &dyn Storage,
        to: &Path,
        mode: u32,
        told: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let path: PathBuf = to.join(names::segment(self.header.sequence));
        let target = storage.open(&path, OpenMode::CreateNew(mode)).doing("create", &path)?;
        self.first_pages(segment, &*target).doing("write", &path)?;
        told(FIRST_BLOCK.min(self.len))?;
        let mut at = FIRST_BLOCK;
        let holes = holes(segment, self);
        let nothing = self.len..self.len;
        for hole in holes.iter().chain(std::iter::once(&nothing)) {
            while at < hole.start {
                let wanted = STRIDE.min(hole.start - at);
                self.blocks(segment, &*target, at, wanted, &path)?;
                told(wanted)?;
                at += wanted;
            }
            if !hole.is_empty() {
                told(hole.end - at)?;
                at = hole.end;
            }
        }
        // The file ends there, even if a hole comes last.
        if holes.last().is_some_and(|last| last.end == self.len) {
            target.write_at(&[0; 8], self.len - 8).doing("write", &path)?;
        }
        target.sync_all().doing("sync", &path)
    }

    /// Write the source's header, and a mark of the copy's own.
    fn first_pages(&self, segment: &Segment, target: &dyn File) -> std::io::Result<()> {
        let mark = Mark {
            serial: 1,
            position: self.end,
            clean: !self.sealed,
            succeeded: self.sealed,
            ..Mark::default()
        };
        target.write_at(&header_pages(segment.header(), &mark), 0)
    }

    fn blocks(
        &self,
        segment: &Segment,
        target: &dyn File,
        at: u64,
        len: u64,
        path: &Path,
    ) -> Result<()> {
        let source = segment.file();
        let copied = if self.settled {
            target.copy_from(&**source, at, len).doing("copy to", path)?
        } else {
            0
        };
        let mut at = at + copied;
        let end = at + len - copied;
        let mut buffer = vec![0; (end - at).min(1 << 20) as usize];
        while at < end {
            let wanted = buffer.len().min((end - at) as usize);
            let bytes = &mut buffer[..wanted];
            let got = source.read_at(bytes, at).doing("read", segment.path())?;
            if got < wanted {
                return Err(segment.ends_at(at + got as u64));
            }
            target.write_at(bytes, at).doing("write", path)?;
            at += wanted as u64;
        }
        Ok(())
    }
}
