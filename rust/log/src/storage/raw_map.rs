//! Stores of an append, which work through every map, and without indirection for plain memory.
//!
//! A [`Map`] checks at each store whether it goes to memory or through a sink. An append stores a
//! dozen times. So its stores are written once, over [`StoreTarget`], and compiled twice. One
//! version is over a [`Map`], where the memory twin sees every store, the other over a [`RawMap`],
//! which was found to have no sink. Both offer the same few stores, of words and of bytes, and do
//! not interpret them. The invariant is that of `map`: stores change only bytes that no slice
//! covers.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::format::PAGE;
use crate::publish::publish;
use crate::sync::{Ordering, SharedWord, Slept};

use super::{Map, Word, real};

/// The operations that an append needs of its maps.
pub trait StoreTarget {
    /// A word that is shared with other processes.
    type Word<'a>: SharedWord
    where
        Self: 'a;

    /// Return the word at a position in the first page.
    ///
    /// # Panics
    /// When it is not aligned or outside the map.
    fn word(&self, position: u64) -> Self::Word<'_>;

    /// Store eight aligned bytes with release: a process that loads them sees all stored before.
    ///
    /// # Errors
    /// Those of the sink; none in mapped memory.
    ///
    /// # Panics
    /// When they are not aligned, or not in the map.
    fn store(&self, position: u64, value: u64) -> io::Result<()>;

    /// Store aligned words in sequence. They become visible in no particular order.
    ///
    /// # Errors
    /// As [`StoreTarget::store`].
    ///
    /// # Panics
    /// As [`StoreTarget::store`].
    fn write_words(&self, position: u64, words: &[u64]) -> io::Result<()>;

    /// Store bytes. They become visible in no particular order.
    ///
    /// # Errors
    /// As [`StoreTarget::store`].
    ///
    /// # Panics
    /// When they reach out of the map.
    fn write(&self, position: u64, bytes: &[u8]) -> io::Result<()>;

    /// Store as [`StoreTarget::write`], bytes that are usually few.
    ///
    /// # Errors
    /// As [`StoreTarget::write`].
    ///
    /// # Panics
    /// As [`StoreTarget::write`].
    #[inline(always)]
    fn write_short(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(position, bytes)
    }
}

impl StoreTarget for Map {
    type Word<'a> = Word<'a>;

    #[inline]
    fn word(&self, position: u64) -> Word<'_> {
        Map::word(self, position)
    }

    #[inline]
    fn store(&self, position: u64, value: u64) -> io::Result<()> {
        Map::store(self, position, value)
    }

    #[inline]
    fn write_words(&self, position: u64, words: &[u64]) -> io::Result<()> {
        Map::write_words(self, position, words)
    }

    #[inline]
    fn write(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        Map::write(self, position, bytes)
    }
}

/// A map for writing that has no sink.
#[derive(Clone, Copy, Debug)]
pub struct RawMap<'a> {
    base: *mut u8,
    len: u64,
    map: PhantomData<&'a Map>,
}

impl<'a> RawMap<'a> {
    /// Wrap the map, if its stores go to memory; it has a page at least.
    #[inline(always)]
    pub fn new(map: &'a Map) -> Option<Self> {
        let (base, len) = map.direct();
        (len >= PAGE).then_some(Self { base, len, map: PhantomData })
    }

    /// Return the word at a position that is known to lie in the map.
    #[inline(always)]
    fn atomic(&self, position: u64) -> &'a AtomicU64 {
        debug_assert!(position % 8 == 0 && position + 8 <= self.len);
        #[allow(clippy::cast_ptr_alignment, reason = "the base is page aligned, and see above")]
        let word = self.base.wrapping_add(position as usize).cast::<u64>();
        // SAFETY: aligned, and inside the map, as its callers have checked; the map stays mapped
        // for the lifetime. Other processes change the word by atomic instructions only.
        unsafe { AtomicU64::from_ptr(word) }
    }
}

impl StoreTarget for RawMap<'_> {
    type Word<'a>
        = BareWord<'a>
    where
        Self: 'a;

    /// Shared words lie in the first page.
    #[inline(always)]
    fn word(&self, position: u64) -> BareWord<'_> {
        assert!(position % 8 == 0 && position < PAGE);
        BareWord(self.atomic(position))
    }

    #[inline(always)]
    fn store(&self, position: u64, value: u64) -> io::Result<()> {
        assert!(position % 8 == 0 && position <= self.len - 8);
        publish(&BareWord(self.atomic(position)), value);
        Ok(())
    }

    #[inline(always)]
    fn write_words(&self, position: u64, words: &[u64]) -> io::Result<()> {
        let len = 8 * words.len() as u64;
        assert!(position % 8 == 0 && len <= self.len && position <= self.len - len);
        for (i, word) in (0..).zip(words) {
            self.atomic(position + 8 * i).store(word.to_le(), Ordering::Relaxed);
        }
        Ok(())
    }

    #[inline(always)]
    fn write(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let len = bytes.len() as u64;
        assert!(len <= self.len && position <= self.len - len);
        let target = self.base.wrapping_add(position as usize);
        // SAFETY: in the map, which is for writing. The regions cannot overlap: `bytes` is a live
        // shared slice, and no slice covers the target bytes (the module's invariant).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    /// Up to 16 bytes are stored as two overlapping pieces, which costs less than a call.
    #[inline(always)]
    fn write_short(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        match bytes {
            [byte] => self.write(position, &[*byte]),
            _ => match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
                (Some(first), Some(last)) if bytes.len() <= 16 => {
                    self.write(position, first)?;
                    self.write(position + bytes.len() as u64 - 8, last)
                }
                _ => self.write(position, bytes),
            },
        }
    }
}

/// A shared word of a [`RawMap`] map.
#[derive(Clone, Copy, Debug)]
pub struct BareWord<'a>(&'a AtomicU64);

impl SharedWord for BareWord<'_> {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    #[inline(always)]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }

    #[inline(always)]
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }

    #[inline(always)]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }

    fn sleep(&self, low: u32, mask: u32, bound: Duration) -> Slept {
        real::futex::sleep(super::map::low_half(self.0), low, mask, bound)
    }

    fn wake(&self, count: u32, mask: u32) {
        real::futex::wake(super::map::low_half(self.0), count, mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::real::private_memory;

    fn store_some<S: StoreTarget>(map: &S, bytes: &[u8]) {
        map.write(PAGE - 3, bytes).unwrap();
        map.write_short(PAGE + 1000, bytes).unwrap();
        map.write_words(PAGE - 40, &[11, 12, 13]).unwrap();
        map.write_words(2 * PAGE, &[]).unwrap();
        map.store(2 * PAGE - 8, 14).unwrap();
        map.word(64).store(15, Ordering::Release);
    }

    #[test]
    fn a_raw_map_and_any_other_store_the_same() {
        for len in [0, 1, 5, 7, 8, 9, 15, 16, 17, 100, 200] {
            let value: Vec<u8> = (0..len).map(|i| i as u8 | 1).collect();
            let maps = [(); 2].map(|()| private_memory(2 * PAGE).unwrap());
            store_some(&maps[0], &value);
            store_some(&RawMap::new(&maps[1]).unwrap(), &value);
            let mut bytes = [[0; 2 * PAGE as usize]; 2];
            maps.iter().zip(&mut bytes).for_each(|(map, bytes)| map.copy(0, bytes));
            assert!(bytes[0] == bytes[1], "{len} bytes");
        }
    }

    fn stored_outside(store: impl FnOnce(RawMap<'_>) + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(|| {
            let map = private_memory(PAGE).unwrap();
            store(RawMap::new(&map).unwrap());
        })
        .is_ok()
    }

    #[test]
    fn what_reaches_out_of_the_map_or_is_not_aligned_is_not_stored() {
        assert!(stored_outside(|map| map.write(PAGE - 3, b"abc").unwrap()));
        for len in [1, 8, 9, 16, 17] {
            let bytes = [1; 17];
            let at = PAGE - len as u64;
            assert!(stored_outside(move |map| map.write_short(at, &bytes[..len]).unwrap()));
            assert!(!stored_outside(move |map| map.write_short(at + 1, &bytes[..len]).unwrap()));
        }
        for end in [PAGE - 2, PAGE, u64::MAX] {
            assert!(!stored_outside(move |map| map.write(end, b"abc").unwrap()), "{end}");
            assert!(!stored_outside(move |map| map.store(end & !7, 1).unwrap()) || end < PAGE);
            let words = end & !7;
            assert!(!stored_outside(move |map| map.write_words(words, &[1, 2]).unwrap()), "{end}");
        }
        assert!(!stored_outside(|map| map.store(4, 1).unwrap()));
        assert!(!stored_outside(|map| map.write_words(4, &[1]).unwrap()));
    }
}
