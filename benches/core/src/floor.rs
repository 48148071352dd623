//! Lower bounds: the least work of a log of this kind, without being one.
//!
//! Each append into a mapped, allocated file does a compare-and-swap, a copy, a checksum and a
//! release store of a commit word. The file wraps around in place, so its memory is warm, unless a
//! fresh one is asked for.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{Map, MapAccess, OpenMode, Storage};
use falaj::internals::sync::SharedWord;

const BLOCK: u64 = 136;

/// A file with the fastest possible appends.
pub(crate) struct Floor {
    map: Map,
    at: AtomicU64,
    blocks: u64,
}

impl Floor {
    pub(crate) fn new(path: &Path, blocks: u64) -> Self {
        let floor = Self::fresh(path, blocks);
        floor.map.populate(0, floor.map.len());
        floor
    }

    /// Create one in a new file whose pages are untouched; a file of that name is replaced.
    pub(crate) fn fresh(path: &Path, blocks: u64) -> Self {
        let storage = RealStorage::new();
        let _ = storage.unlink(path);
        let file = storage.open(path, OpenMode::CreateNew(0o600)).expect("a file");
        let len = 4096 + blocks * BLOCK;
        file.allocate(len).expect("room");
        let map = file.map(len, MapAccess::Write).expect("a map");
        Self { map, at: AtomicU64::new(0), blocks }
    }

    /// One that was filled once, for walks.
    pub(crate) fn filled(path: &Path, blocks: u64) -> Self {
        let floor = Self::new(path, blocks);
        (0..blocks).for_each(|_| floor.append(&[b'v'; super::VALUE]));
        floor
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    #[inline]
    pub(crate) fn append(&self, value: &[u8]) {
        let lock = self.map.word(0);
        let taken = lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        assert!(taken.is_ok(), "no other thread appends");
        let at = self.at.load(Ordering::Relaxed);
        let position = 4096 + at * BLOCK;
        self.at.store(if at + 1 == self.blocks { 0 } else { at + 1 }, Ordering::Relaxed);
        let crc = crc32fast::hash(value);
        self.map.write(position + 32, value).expect("a store");
        self.map.write(position + 8, &crc.to_le_bytes()).expect("a store");
        self.map.store(position, BLOCK).expect("a store");
        lock.store(0, Ordering::Release);
    }

    pub(crate) fn walk(&self) {
        let mut position = 4096;
        let mut seen = 0u64;
        for _ in 0..self.blocks {
            let len = self.map.load(position);
            // The value's first byte, as the contestants read it.
            seen = seen.wrapping_add(self.map.load(position + 32));
            position += len;
        }
        std::hint::black_box(seen);
    }
}
