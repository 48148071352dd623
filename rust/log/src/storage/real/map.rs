//! Maps of real files, and stores by `pwrite` beside a read-only map.
//!
//! The module owns the `mmap` calls. A map may be longer than its file: only allocated bytes of the
//! file may be touched (the rest is SIGBUS). Bytes allocated later appear without mapping again.
//! `pwrite` and shared maps meet in the page cache, so loads see such stores at once.
//!
//! The modules above decide what may be touched, and ensure that no process truncates a mapped file
//! (invariant 3 in `docs/ARCHITECTURE.md`).
#![allow(unsafe_code)]

use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use rustix::io::Errno;

use super::super::{Map, MapAccess, StoreSink};
use super::descriptor::{Descriptor, within_limit};

/// Map `[0, len)` of an open file.
pub(super) fn map(descriptor: &Arc<Descriptor>, len: u64, access: MapAccess) -> io::Result<Map> {
    let writable = access != MapAccess::Read;
    if writable && !descriptor.writable() {
        return Err(Errno::ACCESS.into());
    }
    let size = usize::try_from(len).ok().filter(|size| *size > 0).ok_or(Errno::INVAL)?;
    let mut options = MmapOptions::new();
    options.len(size);
    let memory = descriptor.with(|file| match access {
        MapAccess::Write => options.map_raw(file),
        MapAccess::Read | MapAccess::WriteThrough => options.map_raw_read_only(file),
    })?;
    let sink: Option<Arc<dyn StoreSink>> = match access {
        MapAccess::WriteThrough => Some(Arc::new(WriteThrough(descriptor.clone()))),
        MapAccess::Read | MapAccess::Write => None,
    };
    // SAFETY: memmap2's raw maps of a file are shared ones.
    Ok(unsafe { owned(memory, len, writable, sink).of_file() })
}

/// Up to this many bytes come from the allocator, which can reuse them. A map costs two calls, and
/// a fault for each page.
const SMALL: u64 = 32 << 10;
/// Memory shorter than a large page has none.
const LARGE_PAGE: u64 = 2 << 20;

/// Allocate zeroed memory of this process alone, without a file: for bytes that are read rather
/// than mapped. Beyond a small size it uses memory only as it is filled.
///
/// # Errors
/// `ENOMEM`.
pub fn private(len: u64) -> io::Result<Map> {
    let size = usize::try_from(len).ok().filter(|size| *size > 0).ok_or(Errno::INVAL)?;
    if len <= SMALL {
        return Ok(small(len));
    }
    let memory = MmapOptions::new().len(size).no_reserve_swap().map_anon()?;
    Ok(owned(memory.into(), len, true, None))
}

/// Do as [`private`], for a caller that soon fills all of it: large pages save most of the faults.
///
/// # Errors
/// `ENOMEM`.
pub fn private_to_fill(len: u64) -> io::Result<Map> {
    if len < LARGE_PAGE {
        return private(len);
    }
    let size = usize::try_from(len).map_err(|_| Errno::INVAL)?;
    let memory = MmapOptions::new().len(size).no_reserve_swap().map_anon()?;
    let memory: MmapRaw = memory.into();
    // Only a hint: a kernel without them uses small pages.
    let _ = memory.advise(memmap2::Advice::HugePage);
    Ok(owned(memory, len, true, None))
}

fn small(len: u64) -> Map {
    let words = vec![0; len.div_ceil(8) as usize].into_iter().map(AtomicU64::new);
    let words: Vec<_> = words.collect();
    let base = NonNull::from(&*words).cast::<u8>();
    // SAFETY: at least `len` bytes of aligned words, which the owner keeps. They are atomics, so
    // they may be changed through shared references, and only this `Map` knows their address.
    unsafe { Map::new(base, len, true, None, Arc::new(words)) }
}

fn owned(memory: MmapRaw, len: u64, writable: bool, sink: Option<Arc<dyn StoreSink>>) -> Map {
    let base = NonNull::new(memory.as_mut_ptr()).expect("mmap returns no null pointer");
    debug_assert!(memory.len() as u64 == len && base.as_ptr() as usize % 4096 == 0);
    // SAFETY: `memory` maps `len` bytes from a page boundary until the owner is dropped. It is
    // mapped for writing unless a sink is given or `writable` is false. Only this `Map` knows its
    // address.
    unsafe { Map::new(base, len, writable, sink, Arc::new(memory)) }
}

/// Stores by `pwrite`, for file systems where a store into allocated memory can fail.
struct WriteThrough(Arc<Descriptor>);

impl StoreSink for WriteThrough {
    fn write(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        within_limit(position, bytes.len() as u64)?;
        self.0.with(|file| file.write_all_at(bytes, position))
    }

    fn store_u64(&self, position: u64, value: u64) -> io::Result<()> {
        // One aligned `pwrite` of eight bytes lies in one page. The kernel copies it under that
        // page's lock, after the calls before it; the fence keeps our own stores before it, too.
        fence(Ordering::Release);
        within_limit(position, 8)?;
        self.0.with(|file| file.write_all_at(&value.to_le_bytes(), position))
    }

    fn shares_memory(&self) -> bool {
        false
    }

    fn noted(&self, _position: u64, _value: u64) {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::storage::real::RealStorage;
    use crate::storage::{OpenMode, Storage};

    const LEN: u64 = 64 << 10;

    fn stored_and_left(map: &Map) -> [u8; 5] {
        map.write(8000, b"falaj").expect("a store");
        map.leave(0, LEN);
        let mut found = [0; 5];
        map.copy(8000, &mut found);
        found
    }

    #[test]
    fn what_was_stored_is_there_after_its_pages_were_given_up() {
        let place = tempfile::tempdir().unwrap();
        let file = RealStorage::new().open(&place.path().join("file"), OpenMode::CreateNew(0o600));
        let file = file.unwrap();
        file.allocate(LEN).unwrap();
        let map = file.map(LEN, MapAccess::Write).unwrap();
        assert_eq!(&stored_and_left(&map), b"falaj");
        let mut bytes = [0; 5];
        file.read_at(&mut bytes, 8000).unwrap();
        assert_eq!(&bytes, b"falaj");
    }

    #[test]
    fn memory_that_no_file_is_behind_is_not_given_up() {
        assert_eq!(&stored_and_left(&private(LEN).unwrap()), b"falaj");
    }
}
