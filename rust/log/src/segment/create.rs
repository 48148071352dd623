//! Laying out blocks, and whole new segments that no other process sees yet.
//!
//! A new segment is built in a file with a temporary name: first its blocks, then its header page.
//! It counts only after both have their name. [`LaidBlock::put`] is the one place where a block's
//! bytes are stored into a map, in new segments and in the active one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::address::align;
use crate::format::block::{BlockHeader, HEADER_LEN, Kind, LaidHeader};
use crate::format::segment::{Mark, SegmentHeader, header_pages};
use crate::format::{FIRST_BLOCK, checksum};
use crate::storage::{File, Map, MapAccess, OpenMode, Storage, StoreTarget};

use super::Segment;

/// The place of a block: map, position, and what ties checksums to the segment.
#[derive(Clone, Copy, Debug)]
pub struct BlockPlace<'a> {
    /// Map of the segment's file.
    pub map: &'a Map,
    /// Position of the block.
    pub position: u64,
    /// Salt of the segment.
    pub salt: u64,
    /// [`checksum::seed`] of the salt.
    pub seed: u32,
}

/// A block whose header is laid out for its place, with the checksums.
#[derive(Clone, Copy, Debug)]
pub struct LaidBlock<'a> {
    /// Where it begins in the segment.
    pub position: u64,
    /// Its header.
    pub head: LaidHeader,
    /// The beginning of its body, if it lies apart from the rest.
    pub lead: &'a [u8],
    /// The rest of its body.
    pub body: &'a [u8],
}

impl LaidBlock<'_> {
    /// Return where the next block begins.
    #[inline(always)]
    pub fn end(&self) -> u64 {
        self.position + align(u64::from(self.head.word() as u32))
    }

    /// Store all of it but its commit word: first what follows the 32 bytes that every header has,
    /// then those. This function stores every block of a mapped segment.
    ///
    /// # Errors
    /// Those of `pwrite`, if stores are writes; none in mapped memory.
    #[inline(always)]
    pub fn put<S: StoreTarget>(&self, map: &S) -> io::Result<()> {
        if planted(Canary::CommitWordEarly) {
            map.write_words(self.position + 8, &self.head.fixed())?;
            self.commit(map)?;
        }
        // The last of these words may reach into the body, which is stored over it.
        let position = self.position + HEADER_LEN as u64;
        match self.head.rest_words() {
            0 => {}
            1 => map.write_words(position, &[self.head.first_of_rest()])?,
            _ => put_long(map, position, self.head)?,
        }
        let body = self.position + self.head.len() as u64;
        if !self.lead.is_empty() {
            map.write_short(body, self.lead)?;
        }
        if !self.body.is_empty() {
            map.write(body + self.lead.len() as u64, self.body)?;
        }
        pass(Point::BlockBody);
        map.write_words(self.position + 8, &self.head.fixed())
    }

    /// Store its commit word: now all processes see the block.
    ///
    /// # Errors
    /// As [`LaidBlock::put`].
    #[inline(always)]
    pub fn commit<S: StoreTarget>(&self, map: &S) -> io::Result<()> {
        map.store(self.position, self.head.word())
    }
}

#[inline(never)]
fn put_long(map: &impl StoreTarget, position: u64, head: LaidHeader) -> io::Result<()> {
    map.write_words(position, head.rest())
}

impl BlockPlace<'_> {
    /// Lay a block out for this place.
    #[inline]
    pub fn lay_out<'b>(&self, header: &BlockHeader, body: &'b [u8]) -> LaidBlock<'b> {
        let head = header.lay_out(self.salt, self.position).seal(self.seed, || header.body_crc);
        LaidBlock { position: self.position, head, lead: &[], body }
    }
}

/// Store header and body of a block, not yet its commit word; return that word.
///
/// # Errors
/// As [`LaidBlock::put`].
#[inline]
pub fn put_block(place: BlockPlace<'_>, header: &BlockHeader, body: &[u8]) -> io::Result<u64> {
    debug_assert_eq!(header.body_len(), body.len());
    let BlockPlace { map, .. } = place;
    let laid = place.lay_out(header, body);
    laid.put(map).map(|()| laid.head.word())
}

/// Store the header of a block whose body is there already, or does not matter.
///
/// # Errors
/// As [`LaidBlock::put`].
#[inline]
pub fn put_header(place: BlockPlace<'_>, header: &BlockHeader) -> io::Result<u64> {
    let laid = place.lay_out(header, &[]);
    laid.put(place.map).map(|()| laid.head.word())
}

/// Store a commit word: now all processes see the block.
///
/// # Errors
/// As [`LaidBlock::put`].
#[inline]
pub fn commit(place: BlockPlace<'_>, word: u64) -> io::Result<()> {
    place.map.store(place.position, word)
}

/// Make the header of a block of the log's own, for a body.
pub fn own_header(kind: Kind, body: &[u8], time: u64) -> BlockHeader {
    BlockHeader {
        len: (HEADER_LEN + body.len()) as u32,
        body_crc: checksum::crc32(body),
        time,
        ..BlockHeader::new(kind)
    }
}

/// Return the bytes of a block of the log's own.
pub fn own_len(body: usize) -> u64 {
    align((HEADER_LEN + body) as u64)
}

/// Make the header of the void block that covers `[from, to)`.
pub fn void_header(from: u64, to: u64) -> BlockHeader {
    let len = (to - from).max(HEADER_LEN as u64);
    BlockHeader { len: len as u32, ..BlockHeader::new(Kind::Void) }
}

/// A segment under construction, with a temporary name.
#[derive(Debug)]
pub struct Builder {
    path: PathBuf,
    file: Arc<dyn File>,
    map: Map,
    salt: u64,
    seed: u32,
    position: u64,
    len: u64,
}

impl Builder {
    /// Make the file, `len` bytes allocated and `reach` bytes mapped. An existing file of that name
    /// is removed: temporary names belong to one process, or to the holder of the log's recovery
    /// lock.
    ///
    /// # Errors
    /// `SystemCallFailed` or `NoSpace`; then no file is left.
    pub fn new(
        storage: &dyn Storage,
        path: PathBuf,
        len: u64,
        reach: u64,
        mode: u32,
        access: MapAccess,
    ) -> Result<Self> {
        let _ = storage.unlink(&path);
        let salt = storage.random().doing("draw a random number for", &path)?;
        let file = storage.open(&path, OpenMode::CreateNew(mode)).doing("create", &path)?;
        let mapped = file.allocate(len).and_then(|()| file.map(reach.max(len), access));
        let map = mapped.map_err(|e| {
            let _ = storage.unlink(&path);
            Error::io("allocate", &path, e)
        })?;
        Ok(Self { path, file, map, salt, seed: checksum::seed(salt), position: FIRST_BLOCK, len })
    }

    /// Return its salt.
    pub fn salt(&self) -> u64 {
        self.salt
    }

    /// Return where the next block goes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Return the allocated bytes.
    pub fn allocated(&self) -> u64 {
        self.len
    }

    /// Return its file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Return its map.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Return its temporary path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Allocate at least this many bytes.
    ///
    /// # Errors
    /// `SystemCallFailed` or `NoSpace`.
    pub fn grow(&mut self, len: u64) -> Result<()> {
        if len > self.len {
            self.file.allocate(len).doing("allocate", &self.path)?;
            self.len = len;
        }
        Ok(())
    }

    /// Touch everything up to a position, so that stores find the pages there.
    pub fn populate(&self, until: u64) {
        self.map.populate(0, until);
    }

    /// Append a block; the caller ensures that it fits.
    ///
    /// # Errors
    /// `SystemCallFailed` or `NoSpace`, if stores are writes.
    pub fn block(&mut self, header: &BlockHeader, body: &[u8]) -> Result<()> {
        self.block_at(self.position, header, body)?;
        self.position += header.padded();
        Ok(())
    }

    /// Store a block at a place that was [left free](Builder::leave).
    ///
    /// # Errors
    /// As [`Builder::block`].
    pub fn block_at(&self, position: u64, header: &BlockHeader, body: &[u8]) -> Result<()> {
        let place = self.place_at(position);
        let stored = put_block(place, header, body).and_then(|word| commit(place, word));
        stored.doing("write", &self.path)
    }

    /// Leave space for blocks that are stored later; return where it begins.
    pub fn leave(&mut self, len: u64) -> u64 {
        let position = self.position;
        self.position += len;
        position
    }

    /// Cover the space that was left free and not used.
    ///
    /// # Errors
    /// As [`Builder::block`].
    pub fn cover(&self, from: u64, to: u64) -> Result<()> {
        let place = self.place_at(from);
        let stored = put_header(place, &void_header(from, to)).and_then(|word| commit(place, word));
        stored.doing("write", &self.path)
    }

    fn place_at(&self, position: u64) -> BlockPlace<'_> {
        BlockPlace { map: &self.map, position, salt: self.salt, seed: self.seed }
    }

    /// Store the header page: identity, and a first mark.
    ///
    /// # Errors
    /// As [`Builder::block`].
    pub fn header(&self, header: &SegmentHeader, mark: &Mark) -> Result<()> {
        let stored = self.map.write(0, &header_pages(header, mark));
        stored.doing("write", &self.path)
    }

    /// Sync everything stored so far.
    ///
    /// # Errors
    /// `SystemCallFailed`; the caller must then discard the file.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().doing("sync", &self.path)
    }

    /// Remove the file, after a failure.
    pub fn discard(self, storage: &dyn Storage) {
        // The next recovery sweeps a leftover temporary file; nothing else can be done here.
        let _ = storage.unlink(&self.path);
    }

    /// Return the segment, under the new name of its file.
    pub fn into_segment(self, path: PathBuf, header: SegmentHeader) -> Segment {
        Segment::from_map(path, self.file, header, self.map, self.len)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "create_tests.rs"]
mod tests;
