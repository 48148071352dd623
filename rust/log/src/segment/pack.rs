//! Writing a whole sealed segment at once, by plain writes.
//!
//! For a segment that replaces others, and gets no appends. It is written from its beginning to its
//! end without a map, so a full disk is only an error. Void blocks fill the space between its last
//! block and the place where its content has to end. Only their headers are stored: the file has a
//! hole there. No process sees it before it is renamed. Invariant: after [`Packer::finish`] all of
//! it is on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::canary::{Canary, planted};
use crate::error::{IoResult, Result};
use crate::format::FIRST_BLOCK;
use crate::format::address::align;
use crate::format::block::{BlockHeader, HEADER_LEN, MAX_HEADER_LEN};
use crate::format::checksum;
use crate::format::segment::{Mark, SegmentHeader, header_pages};
use crate::storage::{File, OpenMode, Storage};

use super::create::void_header;
use super::named::has_name;

/// Bytes written at once.
const PIECE: usize = 1 << 20;
/// Bytes of the longest void block.
const LONGEST: u64 = 1 << 30;

/// A sealed segment under construction, or one whose size is computed without writing it.
#[derive(Debug)]
pub struct Packer {
    path: PathBuf,
    /// `None` if it only counts.
    file: Option<Arc<dyn File>>,
    salt: u64,
    seed: u32,
    /// The bytes that are not written yet, and their position.
    buffer: Vec<u8>,
    written: u64,
}

impl Packer {
    /// Make the file. An existing file of that name is removed: it belongs to the holder of the
    /// lock for such files. Blocks will be tied to this salt.
    ///
    /// # Errors
    /// `SystemCallFailed`, `NoSpace`.
    pub fn new(storage: &dyn Storage, path: PathBuf, salt: u64, mode: u32) -> Result<Self> {
        let _ = storage.unlink(&path);
        let made = storage.open(&path, OpenMode::CreateNew(mode));
        let file = made.doing("create", &path)?;
        let (seed, buffer) = (checksum::seed(salt), Vec::with_capacity(PIECE + PIECE / 4));
        Ok(Self { path, file: Some(file), salt, seed, buffer, written: FIRST_BLOCK })
    }

    /// Make one that writes nothing, to compute where blocks would end.
    pub fn counting() -> Self {
        let (path, buffer) = (PathBuf::new(), Vec::new());
        Self { path, file: None, salt: 0, seed: 0, buffer, written: FIRST_BLOCK }
    }

    /// Return where the next block goes.
    pub fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Return its path, until it is renamed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Return whether its file has its name.
    ///
    /// # Errors
    /// `SystemCallFailed`, unless no file has the name.
    pub fn has_its_name(&self, storage: &dyn Storage) -> Result<bool> {
        self.file.as_ref().map_or(Ok(false), |file| has_name(storage, &**file, &self.path))
    }

    /// Append a block.
    ///
    /// # Errors
    /// `SystemCallFailed`, `NoSpace`.
    pub fn block(&mut self, header: &BlockHeader, body: &[u8]) -> Result<()> {
        debug_assert_eq!(header.body_len(), body.len());
        if self.file.is_none() {
            self.written += header.padded();
            return Ok(());
        }
        self.head(header);
        self.buffer.extend_from_slice(body);
        let end = align(self.buffer.len() as u64) as usize;
        self.buffer.resize(end, 0);
        if self.buffer.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Cover everything up to a position, which is the next block's or at least one header further.
    ///
    /// # Errors
    /// As [`Packer::block`].
    pub fn cover(&mut self, until: u64) -> Result<()> {
        while self.position() < until {
            let from = self.position();
            let rest = until - from;
            debug_assert!(rest >= HEADER_LEN as u64);
            let len = if rest > LONGEST { LONGEST / 2 } else { rest };
            self.head(&void_header(from, from + len));
            self.flush()?;
            self.written = from + len;
        }
        Ok(())
    }

    /// Store the first page, extend the file to `len`, and sync all of it.
    ///
    /// # Errors
    /// As [`Packer::block`].
    pub fn finish(&mut self, header: &SegmentHeader, mark: &Mark, len: u64) -> Result<()> {
        self.flush()?;
        self.write(&header_pages(header, mark), 0)?;
        let Some(file) = &self.file else { return Ok(()) };
        let there = file.stat().doing("stat", &self.path)?.len;
        if there < len {
            // Only a hole follows the last void block's header.
            self.write(&[0; 8], len - 8)?;
        }
        if planted(Canary::SwapBeforeSync) {
            return Ok(());
        }
        file.sync_all().doing("sync", &self.path)
    }

    fn head(&mut self, header: &BlockHeader) {
        let mut bytes = [0; MAX_HEADER_LEN];
        let (word, len) = header.encode(self.salt, self.seed, self.position(), &mut bytes);
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        self.buffer.extend_from_slice(&bytes[..len]);
    }

    fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer, self.written)?;
        self.written += buffer.len() as u64;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn write(&self, bytes: &[u8], position: u64) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.write_at(bytes, position).doing("write", &self.path)
    }
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
