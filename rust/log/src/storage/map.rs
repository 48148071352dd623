//! A mapped file: loads, and the only way to store bytes.
//!
//! The module owns every raw pointer into mapped memory. Its invariant, on which all readers rely:
//! a store changes only bytes that no [`Map::committed`] slice covers. The engine ensures it: it
//! never writes a byte twice at or below a non-zero commit word (see `docs/PROTOCOL.md`).
//!
//! ```text
//! engine --write / store_release / word--> Map --sink: none--> memory (one copy, one store)
//!                                              --sink: some--> journal (memory twin), pwrite
//! ```
//!
//! Bounds are always checked here. The modules above check a corrupt length before they call, and
//! return `None` or an error. A length that they miss panics instead of reading foreign memory.
#![allow(unsafe_code)]

use std::any::Any;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::mm::Advice;

use crate::format::PAGE;
use crate::publish::{observe, publish};
use crate::sync::{SharedWord, Slept};

/// Receives stores in place of memory: the journal of the memory twin, or `pwrite`.
///
/// After a call returns, loads from the map see the stored bytes. `store_u64` is a single store of
/// eight aligned bytes with at least release ordering.
pub trait StoreSink: Send + Sync {
    /// Store bytes at a position of the file.
    ///
    /// # Errors
    /// Those of `pwrite`.
    fn write(&self, position: u64, bytes: &[u8]) -> io::Result<()>;
    /// Store eight aligned bytes at once, after everything stored before.
    ///
    /// # Errors
    /// Those of `pwrite`.
    fn store_u64(&self, position: u64, value: u64) -> io::Result<()>;
    /// Return true where compare-and-swap on mapped memory is possible; then [`StoreSink::noted`]
    /// is called after each change.
    fn shares_memory(&self) -> bool;
    /// Note that a word was changed in place, in memory that [`StoreSink::shares_memory`].
    fn noted(&self, position: u64, value: u64);
}

/// A mapped file, `len` bytes from its beginning.
///
/// Cloning is cheap; the memory stays mapped until the last clone is gone, even after the file was
/// unlinked.
#[derive(Clone)]
pub struct Map {
    base: NonNull<u8>,
    len: u64,
    sink: Option<Arc<dyn StoreSink>>,
    writable: bool,
    /// How many bytes stores reach directly: all, or none.
    direct: u64,
    /// The memory is a file's: it keeps its contents after [`Map::leave`].
    of_file: bool,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory belongs to `_owner`, which is Send + Sync and lives as long as any clone. All
// access through `base` is by atomic words, by copies into bytes that no slice covers, or by slices
// of bytes that never change again.
unsafe impl Send for Map {}
// SAFETY: as above; no method needs exclusive access.
unsafe impl Sync for Map {}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Map({} bytes{})", self.len, if self.writable { ", writable" } else { "" })
    }
}

impl Map {
    /// Take over mapped memory.
    ///
    /// # Safety
    /// `base` points to `len` bytes, aligned to eight, that stay mapped while `owner` lives and are
    /// changed by this process through `Map`s only. If `writable` and no sink is given, they are
    /// mapped for writing.
    pub unsafe fn new(
        base: NonNull<u8>,
        len: u64,
        writable: bool,
        sink: Option<Arc<dyn StoreSink>>,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let direct = if sink.is_none() && writable { len } else { 0 };
        Self { base, len, sink, writable, direct, of_file: false, _owner: owner }
    }

    /// Mark this map's memory as shared with a file.
    ///
    /// # Safety
    /// It was mapped `MAP_SHARED`: the kernel keeps the stored bytes when the pages are released.
    pub(super) unsafe fn of_file(self) -> Self {
        Self { of_file: true, ..self }
    }

    /// Return the length in bytes. The file need not have all of them allocated yet.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Return false: the kernel maps no empty range.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Send stores to another sink, which may pass them on to the previous one. A map that stores
    /// directly stays as it is.
    #[must_use]
    pub fn with_sink(
        mut self,
        wrap: impl FnOnce(Arc<dyn StoreSink>) -> Arc<dyn StoreSink>,
    ) -> Self {
        self.sink = self.sink.take().map(wrap);
        self
    }

    /// Return true when stores are allowed, directly or by a sink.
    #[inline(always)]
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Return true when words can be changed in place, by compare-and-swap.
    #[inline(always)]
    pub fn shares_memory(&self) -> bool {
        self.sink.as_ref().is_none_or(|sink| sink.shares_memory())
    }

    /// Return the address of the memory, and how many bytes of it stores reach directly: none with
    /// a sink.
    #[inline(always)]
    pub(super) fn direct(&self) -> (*mut u8, u64) {
        (self.base.as_ptr(), self.direct)
    }

    /// Check that words can be changed in place, which a map that stores by `pwrite` cannot do.
    #[inline(always)]
    fn assert_shared(&self) {
        assert!(
            self.writable && self.shares_memory(),
            "compare-and-swap on a map that is not mapped for writing"
        );
    }

    #[inline(always)]
    fn check(&self, position: u64, len: u64) {
        if len > self.len || position > self.len - len {
            self.outside(position, len);
        }
    }

    /// Apart from [`Map::check`], which then needs no memory for the message.
    #[cold]
    #[inline(never)]
    fn outside(&self, position: u64, len: u64) -> ! {
        panic!("{len} bytes at {position} lie outside a map of {} bytes", self.len);
    }

    #[inline(always)]
    fn at(&self, position: u64, len: u64) -> *mut u8 {
        self.check(position, len);
        self.base.as_ptr().wrapping_add(position as usize)
    }

    /// Return eight aligned bytes as an atomic.
    ///
    /// # Panics
    /// When they are not aligned or outside the map.
    #[inline(always)]
    fn atomic(&self, position: u64) -> &AtomicU64 {
        assert!(position % 8 == 0, "word at {position} is not aligned");
        #[allow(clippy::cast_ptr_alignment, reason = "the base is aligned, and see above")]
        let word = self.at(position, 8).cast::<u64>();
        // SAFETY: aligned (as the base is, and position is a multiple of eight) and inside the map,
        // which `self` keeps mapped for the returned lifetime. Other processes change the word by
        // atomic instructions only.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// Load eight aligned bytes with acquire: all stored before them is visible.
    #[inline(always)]
    pub fn load(&self, position: u64) -> u64 {
        observe(&self.word(position))
    }

    /// Load a few aligned words in no particular order.
    ///
    /// # Panics
    /// When they are not aligned or outside the map.
    #[inline(always)]
    pub fn load_words<const N: usize>(&self, position: u64) -> [u64; N] {
        assert!(position % 8 == 0, "words at {position} are not aligned");
        #[allow(clippy::cast_ptr_alignment, reason = "the base is aligned, and see above")]
        let first = self.at(position, 8 * N as u64).cast::<u64>();
        std::array::from_fn(|i| {
            // SAFETY: as in `atomic`, for each of the words whose bounds were checked together.
            unsafe { AtomicU64::from_ptr(first.wrapping_add(i)) }.load(Ordering::Relaxed)
        })
    }

    /// Load a word as [`Map::load`] does, and then the following words as [`Map::load_words`] does,
    /// with one check of bounds.
    ///
    /// # Panics
    /// As [`Map::load_words`].
    #[inline(always)]
    pub fn load_head<const N: usize>(&self, position: u64) -> (u64, [u64; N]) {
        assert!(position % 8 == 0, "words at {position} are not aligned");
        #[allow(clippy::cast_ptr_alignment, reason = "the base is aligned, and see above")]
        let first = self.at(position, 8 * (N as u64 + 1)).cast::<u64>();
        // SAFETY: as in `atomic`.
        let atomic = unsafe { AtomicU64::from_ptr(first) };
        let word = observe(&Word { atomic, position, map: self });
        let behind = std::array::from_fn(|i| {
            // SAFETY: as in `atomic`, for each of the words whose bounds were checked together.
            unsafe { AtomicU64::from_ptr(first.wrapping_add(i + 1)) }.load(Ordering::Relaxed)
        });
        (word, behind)
    }

    /// Return bytes that never change again.
    ///
    /// # Safety
    /// `[position, position + len)` lies inside the allocated part of the file. It also lies below
    /// a committed end that the caller loaded with acquire, or in a file that no process writes.
    #[inline]
    pub unsafe fn committed(&self, position: u64, len: u64) -> &[u8] {
        let start = self.at(position, len);
        // SAFETY: in bounds (checked by `at`), kept mapped by `self`; the caller guarantees that no
        // process writes these bytes any more.
        unsafe { std::slice::from_raw_parts(start, len as usize) }
    }

    /// Copy bytes that may be changing meanwhile, word by word; the caller must check them before
    /// it believes them.
    pub fn copy(&self, position: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let at = position + done as u64;
            let word = self.load(at & !7).to_le_bytes();
            let skip = (at & 7) as usize;
            let take = (8 - skip).min(into.len() - done);
            into[done..done + take].copy_from_slice(&word[skip..skip + take]);
            done += take;
        }
    }

    /// Store bytes. They become visible to others in no particular order.
    ///
    /// # Errors
    /// Those of `pwrite`, if stores are writes; none in mapped memory.
    ///
    /// # Panics
    /// Outside the map, and when it is not for writing.
    #[inline(always)]
    pub fn write(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(self.writable, "store into a read-only map");
        let Some(sink) = &self.sink else {
            assert!(self.writable, "store into a read-only map");
            let target = self.at(position, bytes.len() as u64);
            // SAFETY: in bounds and mapped for writing. The regions cannot overlap: `bytes` is a
            // live shared slice, and no slice covers the target bytes (the module's invariant).
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
            return Ok(());
        };
        self.check(position, bytes.len() as u64);
        sink.write(position, bytes)
    }

    /// Store a few aligned words, as [`Map::write`] stores their bytes. They come from registers,
    /// and need no memory that would be read back before it is written out.
    ///
    /// # Errors
    /// As [`Map::write`].
    ///
    /// # Panics
    /// As [`Map::write`].
    #[inline(always)]
    pub fn write_words(&self, position: u64, words: impl AsRef<[u64]>) -> io::Result<()> {
        let words = words.as_ref();
        if self.sink.is_some() {
            for (at, words) in (position..).step_by(8 * 16).zip(words.chunks(16)) {
                let mut bytes = [[0; 8]; 16];
                for (bytes, word) in bytes.iter_mut().zip(words) {
                    *bytes = word.to_le_bytes();
                }
                self.write(at, bytes[..words.len()].as_flattened())?;
            }
            return Ok(());
        }
        assert!(self.writable, "store into a read-only map");
        for (i, word) in (0..).zip(words) {
            self.atomic(position + 8 * i).store(word.to_le(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Store eight aligned bytes with release: a reader that loads them sees all stored before.
    ///
    /// # Errors
    /// As [`Map::write`].
    #[inline(always)]
    pub fn store(&self, position: u64, value: u64) -> io::Result<()> {
        let word = self.word(position);
        let Some(sink) = &self.sink else {
            publish(&word, value);
            return Ok(());
        };
        sink.store_u64(position, value)
    }

    /// Return a word that processes change by compare-and-swap.
    #[inline(always)]
    pub fn word(&self, position: u64) -> Word<'_> {
        Word { atomic: self.atomic(position), position, map: self }
    }

    /// Touch pages ahead of a writer, so that its stores find them there. Only a hint: errors and
    /// kernels without it are ignored.
    pub fn populate(&self, position: u64, len: u64) {
        let start = position & !(PAGE - 1);
        let len = (position + len).min(self.len).saturating_sub(start);
        if self.sink.is_some() || !self.writable || len == 0 {
            return;
        }
        let target = self.at(start, len);
        let advice = Advice::LinuxPopulateWrite;
        // SAFETY: the range lies in this map; populating faults pages in and changes no byte.
        let _ = unsafe { rustix::mm::madvise(target.cast(), len as usize, advice) };
    }

    /// Unmap the whole pages of `[from, until)` from this process; a touch maps them again. A sync
    /// must remove the write permission from each mapped page, and interrupts every core that runs
    /// a thread of this process. For a segment that is thousands of interruptions. Only a hint:
    /// maps whose memory is no file's stay as they are.
    pub fn leave(&self, from: u64, until: u64) {
        let (start, end) = (from.next_multiple_of(PAGE), until.min(self.len) & !(PAGE - 1));
        if !self.of_file || start >= end {
            return;
        }
        let (target, len) = (self.at(start, end - start), (end - start) as usize);
        // SAFETY: these are whole pages of this map, which is a shared map of a file. Their bytes
        // stay in the page cache, changed ones too, and every later load and store finds them
        // there.
        let _ = unsafe { rustix::mm::madvise(target.cast(), len, Advice::LinuxDontNeed) };
    }

    /// Return the address of a committed byte, for exporters that keep a clone of this map beside
    /// it.
    #[inline]
    pub fn address(&self, position: u64, len: u64) -> *const u8 {
        self.at(position, len)
    }
}

/// A shared word of a map, see [`SharedWord`].
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    atomic: &'a AtomicU64,
    position: u64,
    map: &'a Map,
}

impl Word<'_> {
    #[inline(always)]
    fn note(&self) {
        if let Some(sink) = &self.map.sink {
            sink.noted(self.position, self.atomic.load(Ordering::Relaxed));
        }
    }
}

/// Return the half of a word that is a futex.
pub(super) fn low_half(word: &AtomicU64) -> &std::sync::atomic::AtomicU32 {
    let low = word.as_ptr().cast::<u32>();
    // SAFETY: the low half of a mapped, aligned word (little-endian machines only, see `lib.rs`);
    // the kernel compares and this process only passes the address.
    unsafe { std::sync::atomic::AtomicU32::from_ptr(low) }
}

impl SharedWord for Word<'_> {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.atomic.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.map.assert_shared();
        self.atomic.store(value, order);
        self.note();
    }

    #[inline(always)]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.map.assert_shared();
        let old = self.atomic.swap(value, order);
        self.note();
        old
    }

    #[inline(always)]
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.map.assert_shared();
        let result = self.atomic.compare_exchange(current, new, success, failure);
        if result.is_ok() {
            self.note();
        }
        result
    }

    #[inline(always)]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.map.assert_shared();
        let old = self.atomic.fetch_add(value, order);
        self.note();
        old
    }

    fn sleep(&self, low: u32, mask: u32, bound: Duration) -> Slept {
        super::real::futex::sleep(low_half(self.atomic), low, mask, bound)
    }

    fn wake(&self, count: u32, mask: u32) {
        super::real::futex::wake(low_half(self.atomic), count, mask);
    }
}
