//! The sparse index of a segment, a hint where to start.
//!
//! It is read from its file if that is valid, and otherwise built by walking the segment. Each
//! entry is checked against the block it points at before any code relies on it. The worst that a
//! missing, torn or hostile index can do is cost a walk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{DecodedIn, Error, IoResult, Result};
use crate::format::address::MAX_POSITION;
use crate::format::block::BlockHeader;
use crate::format::index::{
    ENTRY_LEN, HEADER_LEN, IndexEntry, STRIDE, check_header, encode_header, file_len,
};
use crate::format::{DecodeError, PAGE, names};
use crate::storage::{File, Map, MapAccess, OpenMode, Storage};

use super::walk::{SegmentWalker, Step};
use super::{Check, Reading, Segment};

/// Bytes after which a topic gets another entry, if other topics get theirs.
const RARE: u64 = 16 * STRIDE;
/// Bytes of the longest possible index file.
const MAX_FILE: u64 = file_len(MAX_POSITION);

/// The source of the entries.
#[derive(Debug)]
#[allow(missing_docs, reason = "a variant's sentence says what its fields are")]
pub enum Index {
    /// The mapped file: how many entries fit it, the salt of their checksums, and its disk space,
    /// if it is open for writing.
    Mapped { map: Map, salt: u64, entries: u64, space: Option<IndexSpace> },
    /// Built in memory, in the order of positions.
    Built(Vec<IndexEntry>),
}

/// The disk space of an index file that is open for writing. The file has its whole length from the
/// beginning, and its blocks are allocated shortly before entries are stored in them.
#[derive(Debug)]
pub struct IndexSpace {
    file: Arc<dyn File>,
    /// Bytes from the beginning that this process knows to be allocated.
    allocated: AtomicU64,
}

impl IndexSpace {
    /// Ensure that stores before `end` reach allocated blocks: allocate one page first, then all
    /// `len` bytes.
    #[cold]
    fn extend(&self, end: u64, len: u64) -> bool {
        let wanted = if end <= PAGE { PAGE.min(len) } else { len };
        let is_done = self.file.allocate(wanted).is_ok();
        if is_done {
            self.allocated.store(wanted, Ordering::Relaxed);
        }
        is_done
    }
}

impl Index {
    /// Open the index of a segment for reading, in the way that the segment is read.
    ///
    /// # Errors
    /// As [`Index::open_file`].
    pub fn open_existing(storage: &dyn Storage, dir: &Path, segment: &Segment) -> Result<Self> {
        match segment.reading() {
            Reading::Map => Self::open_file(storage, dir, segment, MapAccess::Read),
            Reading::Pread => Self::load(storage, dir, segment).map(Self::Built),
        }
    }

    /// Read the index file of a segment: all entries up to the first place where none is.
    ///
    /// # Errors
    /// `SystemCallFailed` when it cannot be read, `CorruptData` when it is not this segment's or an
    /// entry is corrupt.
    pub fn load(storage: &dyn Storage, dir: &Path, segment: &Segment) -> Result<Vec<IndexEntry>> {
        let path = dir.join(names::index(segment.sequence()));
        let file = storage.open(&path, OpenMode::Read).doing("open", &path)?;
        let len = file.stat().doing("stat", &path)?.len;
        let mut bytes = vec![0; usize::try_from(len.min(MAX_FILE)).unwrap_or(0)];
        let got = file.read_at(&mut bytes, 0).doing("read", &path)?;
        bytes.truncate(got);
        let (log, salt) = (segment.header().log, segment.salt());
        check_header(&bytes, log, segment.sequence(), salt).in_file(&path, 0)?;
        let mut entries = Vec::new();
        for (i, bytes) in (0..).zip(bytes[HEADER_LEN..].chunks_exact(ENTRY_LEN)) {
            match IndexEntry::decode(bytes, salt) {
                Some(entry) => entries.push(entry),
                None if bytes.iter().all(|byte| *byte == 0) => break,
                None => {
                    let what = DecodeError::Damaged("a corrupt index entry");
                    return Err(Error::malformed(&path, entry_position(i), what));
                }
            }
        }
        Ok(entries)
    }

    /// Open the index file of a segment.
    ///
    /// # Errors
    /// `SystemCallFailed` when it cannot be opened, `CorruptData` when it is not this segment's.
    pub fn open_file(
        storage: &dyn Storage,
        dir: &Path,
        segment: &Segment,
        access: MapAccess,
    ) -> Result<Self> {
        let path = dir.join(names::index(segment.sequence()));
        let how = if access == MapAccess::Read { OpenMode::Read } else { OpenMode::ReadWrite };
        let file = storage.open(&path, how).doing("open", &path)?;
        let len = file.stat().doing("stat", &path)?.len;
        let mut header = [0; HEADER_LEN];
        let got = file.read_at(&mut header, 0).doing("read", &path)?;
        check_header(&header[..got], segment.header().log, segment.sequence(), segment.salt())
            .in_file(&path, 0)?;
        let map = file.map(len, access).doing("map", &path)?;
        let entries = len.saturating_sub(HEADER_LEN as u64) / ENTRY_LEN as u64;
        let is_writable = access != MapAccess::Read;
        let space = is_writable.then(|| IndexSpace { file, allocated: AtomicU64::new(0) });
        Ok(Self::Mapped { map, salt: segment.salt(), entries, space })
    }

    /// Walk a segment as far as it is valid and note places to start from.
    pub fn build(segment: &Segment) -> Self {
        let mut noted = IndexBuild::default();
        let mut walk = SegmentWalker::new();
        let mut light: Option<Segment> = None;
        loop {
            let segment = light.as_ref().unwrap_or(segment);
            if segment.exceeds_cache() {
                let Ok(fresh) = segment.reopen_empty() else { break };
                light = Some(fresh);
                continue;
            }
            match walk.step(segment, Check::Header) {
                Ok(Some(Step::End { .. }) | None) | Err(_) => break,
                Ok(Some(step)) => noted.note(&step),
            }
        }
        Self::Built(noted.entries)
    }

    /// Write a new index file for a segment, in place of any file with its name.
    ///
    /// # Errors
    /// `SystemCallFailed` or `NoSpace`.
    pub fn replace(
        storage: &dyn Storage,
        dir: &Path,
        segment: &Segment,
        segment_bytes: u64,
        entries: &[IndexEntry],
        mode: u32,
    ) -> Result<()> {
        let path = dir.join(names::index(segment.sequence()));
        let temporary = dir.join(format!("{}.tmp", names::index(segment.sequence())));
        let bytes = encode(segment, entries.iter().copied());
        let len = file_len(segment_bytes).max(bytes.len() as u64);
        write_sparse(storage, &temporary, &bytes, len, mode)?;
        storage.rename_over(&temporary, &path).doing("rename", &temporary)
    }

    /// Write this index, built in memory, as the segment's index file. Returns its entries.
    ///
    /// # Errors
    /// As [`Index::replace`].
    pub fn save(
        &self,
        storage: &dyn Storage,
        dir: &Path,
        segment: &Segment,
        segment_bytes: u64,
        mode: u32,
    ) -> Result<u64> {
        let entries: Vec<_> = (0..self.len()).map_while(|i| self.entry(i)).collect();
        Self::replace(storage, dir, segment, segment_bytes, &entries, mode)?;
        Ok(entries.len() as u64)
    }

    fn entry(&self, i: u64) -> Option<IndexEntry> {
        match self {
            Self::Built(entries) => entries.get(i as usize).copied(),
            Self::Mapped { map, salt, entries, .. } => {
                if i >= *entries {
                    return None;
                }
                let mut bytes = [0; ENTRY_LEN];
                map.copy(entry_position(i), &mut bytes);
                IndexEntry::decode(&bytes, *salt)
            }
        }
    }

    /// Return an entry by its words, valid or not; `None` if it was never written.
    #[inline(always)]
    fn entry_unchecked(&self, i: u64) -> Option<IndexEntry> {
        match self {
            Self::Built(entries) => entries.get(i as usize).copied(),
            Self::Mapped { map, entries, .. } if i < *entries => {
                IndexEntry::believe(map.load_words(entry_position(i)))
            }
            Self::Mapped { .. } => None,
        }
    }

    /// Encode the index file with these entries for a segment, no longer than needed.
    pub fn encode(&self, segment: &Segment) -> Vec<u8> {
        encode(segment, (0..self.len()).map_while(|i| self.entry(i)))
    }

    /// Return the number of entries, up to the first place without a valid one.
    pub fn filled(&self) -> u64 {
        (0..self.len()).take_while(|i| self.entry(*i).is_some()).count() as u64
    }

    /// Return the number of entries that fit; for one built in memory, the entries that exist.
    pub fn len(&self) -> u64 {
        match self {
            Self::Built(entries) => entries.len() as u64,
            Self::Mapped { entries, .. } => *entries,
        }
    }

    /// Return true when no entry fits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the last entry of a topic for which `at_or_before` holds; it must hold for a prefix
    /// of them. Corrupt entries hide what follows them, which only costs time.
    pub fn find(
        &self,
        topic: u32,
        at_or_before: impl Fn(&IndexEntry) -> bool,
    ) -> Option<IndexEntry> {
        // A corrupt entry can lead astray, as its absence can; the result is checked.
        if let Some((i, found)) = self.search(topic, &at_or_before, |i| self.entry_unchecked(i)) {
            if self.entry(i) == Some(found) {
                return Some(found);
            }
        }
        let careful = self.search(topic, &at_or_before, |i| self.entry(i));
        careful.map(|(_, entry)| entry)
    }

    fn search(
        &self,
        topic: u32,
        at_or_before: impl Fn(&IndexEntry) -> bool,
        entry: impl Fn(u64) -> Option<IndexEntry>,
    ) -> Option<(u64, IndexEntry)> {
        let (mut low, mut high) = (0, self.len());
        let mut best = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(there) = entry(middle) else {
                high = middle;
                continue;
            };
            let of_topic = if there.topic == topic {
                Some((middle, there))
            } else {
                let before = (low..middle).rev().filter_map(|i| Some((i, entry(i)?)));
                before.into_iter().find(|(_, entry)| entry.topic == topic)
            };
            match of_topic {
                Some((_, entry)) if !at_or_before(&entry) => high = middle,
                Some(found) => (best, low) = (Some(found), middle + 1),
                None => low = middle + 1,
            }
        }
        best
    }

    /// Store the `i`-th entry of a writable index; beyond its capacity, and on a full disk, do
    /// nothing.
    ///
    /// # Errors
    /// Those of `pwrite`, if stores are writes.
    #[inline]
    pub fn put(&self, i: u64, entry: &IndexEntry) -> std::io::Result<bool> {
        let Self::Mapped { map, salt, entries, space: Some(space) } = self else {
            return Ok(false);
        };
        let end = entry_position(i + 1);
        let is_there = i < *entries
            && (end <= space.allocated.load(Ordering::Relaxed) || space.extend(end, map.len()));
        if !is_there {
            return Ok(false);
        }
        map.write(entry_position(i), &entry.encode(*salt))?;
        Ok(true)
    }

    /// Return the position of the `i`-th entry's block, if the entry is valid.
    pub fn position(&self, i: u64) -> Option<u64> {
        self.entry(i).map(|entry| entry.position)
    }
}

fn encode(segment: &Segment, entries: impl Iterator<Item = IndexEntry>) -> Vec<u8> {
    let header = segment.header();
    let mut bytes = encode_header(header.log, header.sequence, header.salt).to_vec();
    entries.for_each(|entry| bytes.extend(entry.encode(header.salt)));
    bytes
}

fn entry_position(i: u64) -> u64 {
    HEADER_LEN as u64 + i * ENTRY_LEN as u64
}

/// Make a file of `len` allocated bytes that begins with these bytes.
///
/// # Errors
/// `SystemCallFailed` or `NoSpace`; an unfinished file is removed.
pub fn write_file(
    storage: &dyn Storage,
    path: &Path,
    bytes: &[u8],
    len: u64,
    mode: u32,
) -> Result<Arc<dyn File>> {
    fill_new(storage, path, mode, |file| {
        file.allocate(len)?;
        file.write_at(bytes, 0)
    })
}

/// Make a file of `len` bytes that begins with these bytes. Only they are allocated: a hole up to
/// the last byte follows.
///
/// # Errors
/// As [`write_file`].
pub fn write_sparse(
    storage: &dyn Storage,
    path: &Path,
    bytes: &[u8],
    len: u64,
    mode: u32,
) -> Result<Arc<dyn File>> {
    fill_new(storage, path, mode, |file| {
        file.allocate(bytes.len() as u64)?;
        file.write_at(bytes, 0)?;
        if len > bytes.len() as u64 { file.write_at(&[0], len - 1) } else { Ok(()) }
    })
}

fn fill_new(
    storage: &dyn Storage,
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&dyn File) -> std::io::Result<()>,
) -> Result<Arc<dyn File>> {
    let _ = storage.unlink(path);
    let file = storage.open(path, OpenMode::CreateNew(mode)).doing("create", path)?;
    let filled = fill(&*file);
    if filled.is_err() {
        let _ = storage.unlink(path);
    }
    filled.doing("write", path)?;
    Ok(file)
}

/// Notes of a walk over a segment from its beginning: for its index, and for a process that appends
/// after it.
#[derive(Clone, Debug, Default)]
pub struct IndexBuild {
    /// The entries of its index.
    pub entries: Vec<IndexEntry>,
    /// The sampler of blocks with an entry.
    pub pacer: IndexSampler,
    /// The latest time of a block, relative to the segment's time base.
    pub time: u64,
    head: u64,
}

impl IndexBuild {
    /// Note the next step.
    #[inline]
    pub fn note(&mut self, step: &Step) {
        let Step::Data { block, first, highest_before_ns } = step else { return };
        if !block.header.is_member() {
            self.head = block.position;
        }
        let BlockHeader { topic, time, .. } = block.header;
        self.note_records(topic, self.head, time, *first, *highest_before_ns);
    }

    /// Note a block of records that stands alone or in a group that begins at this position.
    #[inline]
    pub(super) fn note_records(
        &mut self,
        topic: u32,
        position: u64,
        time: u64,
        offset: u64,
        highest_ns: i64,
    ) {
        self.time = self.time.max(time);
        if self.pacer.is_due(topic, position) {
            self.entries.push(IndexEntry { topic, offset, position, highest_ns });
        }
    }
}

/// Decides which blocks get an entry: the first of a topic in the segment, and one in each
/// [`STRIDE`] bytes, of any topic. A topic without an entry for 64 KiB gets one too, while there
/// are no more entries than strides. So a reader of one topic among many jumps over the others.
#[derive(Clone, Debug, Default)]
pub struct IndexSampler {
    /// Position from which the next block is due, of any topic.
    next: u64,
    /// Position from which the next block of each topic may be due, by number.
    own: Vec<u64>,
    entries: u64,
}

impl IndexSampler {
    /// Return true when the block (or group) at this position is due for an entry, and note that it
    /// has one.
    #[inline]
    pub fn is_due(&mut self, topic: u32, position: u64) -> bool {
        let wants = self.wants(topic, position);
        if wants {
            self.note(topic, position);
        }
        wants
    }

    /// Return true when the block (or group) at this position is due for an entry.
    #[inline(always)]
    pub fn wants(&self, topic: u32, position: u64) -> bool {
        let own = self.own.get(topic as usize).copied().unwrap_or(0);
        position >= self.next || (position >= own && self.is_rare(own, position))
    }

    /// Return true for the first block of its topic, or one of a topic without an entry for long.
    fn is_rare(&self, own: u64, position: u64) -> bool {
        own == 0 || self.entries * STRIDE < position
    }

    /// Note an entry.
    pub fn note(&mut self, topic: u32, position: u64) {
        let index = topic as usize;
        if self.own.len() <= index {
            self.own.resize(index + 1, 0);
        }
        self.own[index] = position + RARE;
        self.next = self.next.max(position + STRIDE);
        self.entries += 1;
    }
}

#[cfg(all(test, not(loom)))]
#[path = "index_tests.rs"]
mod tests;
