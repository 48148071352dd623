//! The live bytes of one file of the twin: memory that maps share.
//!
//! The module owns the memory and the twin's only unsafe code. Its invariant: the memory has a
//! fixed place and size from the first byte to the last map, so growing a file moves nothing. Every
//! access is by aligned atomic words, so threads may read while others store.
//!
//! The memory is anonymous and the kernel zeroes it on demand. So an image of a thousand files
//! costs what its bytes cost, not what its capacity would. Memory without maps is zeroed where it
//! was touched and reused. Mapping and unmapping would be the most expensive part of an image, and
//! more so with every thread.
#![allow(unsafe_code)]

use std::any::Any;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::{Advice, MmapOptions, MmapRaw};

use falaj::internals::storage::{Map, StoreSink};

use super::disk::PAGE;

/// Above this size the kernel may use huge pages, whose zeroing costs more than a small test.
const HUGE: u64 = 2 << 20;

/// Most pieces of memory, none larger than [`HUGE`], that wait for reuse.
const SPARE: usize = 64;

/// Return the clean, unused memory.
fn spare() -> MutexGuard<'static, Vec<MmapRaw>> {
    static POOL: Mutex<Vec<MmapRaw>> = Mutex::new(Vec::new());
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Zeroed, page-aligned memory.
pub(super) struct Memory {
    /// Taken only when it is dropped.
    raw: Option<MmapRaw>,
    /// A bit for each page that was stored to.
    touched: Box<[AtomicU64]>,
}

impl Memory {
    /// Allocate `capacity` bytes, a multiple of the page size.
    pub(super) fn new(capacity: u64) -> io::Result<Self> {
        let pages = (capacity / PAGE).div_ceil(64) as usize;
        let touched = (0..pages).map(|_| AtomicU64::new(0)).collect();
        let mut pool = spare();
        let fits = pool.iter().rposition(|spare| spare.len() as u64 == capacity);
        let reused = fits.map(|index| pool.swap_remove(index));
        drop(pool);
        let raw = match reused {
            Some(raw) => raw,
            None => fresh(capacity)?,
        };
        Ok(Self { raw: Some(raw), touched })
    }

    fn raw(&self) -> &MmapRaw {
        self.raw.as_ref().expect("the memory is there until it is dropped")
    }

    /// Note that `[position, position + len)` was stored to. Every store must call this.
    pub(super) fn touch(&self, position: u64, len: usize) {
        for page in position / PAGE..(position + len as u64).div_ceil(PAGE) {
            self.touched[(page / 64) as usize].fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
    }

    /// Zero every page that was stored to. There is no other user of this memory any more.
    fn clean(&mut self) {
        for (index, bits) in self.touched.iter().enumerate() {
            let bits = bits.load(Ordering::Relaxed);
            for page in (0..64).filter(|page| bits >> page & 1 == 1) {
                let first = (index * 64 + page) * PAGE as usize;
                assert!(first + PAGE as usize <= self.raw().len());
                let first = self.raw().as_mut_ptr().wrapping_add(first);
                // SAFETY: a page of the memory, as was just checked. `self` is borrowed for
                // writing, and every map holds a share of it, so there is none.
                unsafe { first.write_bytes(0, PAGE as usize) };
            }
        }
    }

    fn words(&self) -> &[AtomicU64] {
        #[allow(clippy::cast_ptr_alignment, reason = "mapped memory begins at a page")]
        let words = self.raw().as_mut_ptr().cast::<AtomicU64>();
        debug_assert!(words.is_aligned() && self.raw().len() % 8 == 0);
        // SAFETY: page-aligned, zero-initialised memory of this length that `self` keeps mapped. It
        // is accessed only through atomics and through `Map`s, whose slices cover bytes that never
        // change again.
        unsafe { std::slice::from_raw_parts(words, self.raw().len() / 8) }
    }

    /// Load the aligned word at a position.
    pub(super) fn word(&self, position: u64) -> u64 {
        self.words()[position as usize / 8].load(Ordering::Acquire)
    }

    /// Copy bytes out.
    pub(super) fn read(&self, position: u64, into: &mut [u8]) {
        let mut done = 0;
        if position % 8 == 0 && !into.is_empty() {
            let words = &self.words()[position as usize / 8..];
            for (word, bytes) in words.iter().zip(into.chunks_exact_mut(8)) {
                bytes.copy_from_slice(&word.load(Ordering::Acquire).to_le_bytes());
                done += 8;
            }
        }
        while done < into.len() {
            let at = position + done as u64;
            let (skip, word) = ((at % 8) as usize, self.word(at & !7).to_le_bytes());
            let take = (8 - skip).min(into.len() - done);
            into[done..done + take].copy_from_slice(&word[skip..skip + take]);
            done += take;
        }
    }

    /// Copy bytes in; each word is stored at once, with release, in rising order.
    pub(super) fn write(&self, position: u64, bytes: &[u8]) {
        self.touch(position, bytes.len());
        let mut done = 0;
        if position % 8 == 0 && !bytes.is_empty() {
            let words = &self.words()[position as usize / 8..];
            for (word, bytes) in words.iter().zip(bytes.chunks_exact(8)) {
                let bytes = bytes.try_into().expect("eight bytes");
                word.store(u64::from_le_bytes(bytes), Ordering::Release);
                done += 8;
            }
        }
        while done < bytes.len() {
            let at = position + done as u64;
            let skip = (at % 8) as usize;
            let take = (8 - skip).min(bytes.len() - done);
            let word = &self.words()[at as usize / 8];
            let mut new = word.load(Ordering::Relaxed).to_le_bytes();
            new[skip..skip + take].copy_from_slice(&bytes[done..done + take]);
            word.store(u64::from_le_bytes(new), Ordering::Release);
            done += take;
        }
    }

    /// Map the first `len` bytes, which `owner` outlives with this memory.
    pub(super) fn map(
        self: &Arc<Self>,
        len: u64,
        writable: bool,
        sink: Option<Arc<dyn StoreSink>>,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Map {
        assert!(len <= self.raw().len() as u64, "a map longer than its memory");
        let base = NonNull::new(self.raw().as_mut_ptr()).expect("mmap returns no null pointer");
        // SAFETY: `len` bytes from a page boundary, which the owner keeps mapped by holding this
        // memory. They are mapped for writing, and this process changes them only through maps and
        // the twin's own stores, which the journal orders.
        unsafe { Map::new(base, len, writable, sink, Arc::new((self.clone(), owner))) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.clean();
        let Some(raw) = self.raw.take() else { return };
        let mut pool = spare();
        if raw.len() as u64 <= HUGE && pool.len() < SPARE {
            pool.push(raw);
        }
    }
}

/// Memory that is lent without being cleaned, and returned: for copies of files, whose readers read
/// only what was stored. Another reader would find another file's bytes, which shows the bug.
struct Lent(Option<MmapRaw>);

fn lendable() -> MutexGuard<'static, Vec<MmapRaw>> {
    static POOL: Mutex<Vec<MmapRaw>> = Mutex::new(Vec::new());
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(raw) = self.0.take() else { return };
        let mut pool = lendable();
        if raw.len() as u64 <= HUGE && pool.len() < SPARE {
            pool.push(raw);
        }
    }
}

/// See `File::private_memory`.
pub(super) fn private(len: u64) -> io::Result<Map> {
    let mut pool = lendable();
    let fits = pool.iter().rposition(|spare| spare.len() as u64 == len);
    let reused = fits.map(|index| pool.swap_remove(index));
    drop(pool);
    let raw = match reused {
        Some(raw) => raw,
        None if len == 0 => return Err(io::ErrorKind::InvalidInput.into()),
        None => MmapOptions::new().len(len as usize).no_reserve_swap().map_anon()?.into(),
    };
    let base = NonNull::new(raw.as_mut_ptr()).expect("mmap returns no null pointer");
    debug_assert!(raw.len() as u64 == len);
    // SAFETY: `len` bytes from a page boundary, mapped for writing. The owner keeps them mapped,
    // and lends them to no other map before it is dropped with the last clone of this one.
    Ok(unsafe { Map::new(base, len, true, None, Arc::new(Lent(Some(raw)))) })
}

fn fresh(capacity: u64) -> io::Result<MmapRaw> {
    let memory = MmapOptions::new().len(capacity as usize).map_anon()?;
    if capacity >= HUGE {
        memory.advise(Advice::NoHugePage)?;
    }
    Ok(memory.into())
}

#[cfg(test)]
#[path = "bytes_tests.rs"]
mod tests;
