//! Stores of the fast path: the same through every map, and without detours where there are none.
//!
//! A [`Map`] asks at each store whether it goes to memory or through a sink, and checks its bounds.
//! An append stores a dozen times. So what it stores is written once, over [`StoreTarget`], and exists
//! twice: over a [`Map`], where the twin in memory sees every store, and over a [`RawMap`] one, which
//! was found to have no sink when it was made. The invariant is that of the map's room: only bytes
//! that no slice covers are stored to.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::failpoints::{Point, pass};
use crate::format::PAGE;
use crate::format::block::HEADER_LEN;
use crate::format::varint::LengthPrefix;
use crate::publish::publish;
use crate::sync::{Ordering, SharedWord, Slept};

use super::{Map, Word, real};

/// What an append needs of the maps that it stores to.
pub trait StoreTarget {
    /// A word that is shared with other processes.
    type Word<'a>: SharedWord
    where
        Self: 'a;

    /// The word at a position in the first page.
    ///
    /// # Panics
    /// When it is not aligned or not there.
    fn word(&self, position: u64) -> Self::Word<'_>;

    /// Store a block whose header has four words: its body, which is `lead` and then `rest`; its
    /// header; and last, with release, the header's first word. What `lead` leaves of its eight bytes
    /// may be stored to as well, as far as the block is padded.
    ///
    /// # Errors
    /// Those of the sink; none in mapped memory.
    ///
    /// # Panics
    /// When the position is not aligned, or the block reaches out of the map.
    fn put_block(
        &self,
        position: u64,
        header: [u64; HEADER_LEN / 8],
        lead: LengthPrefix,
        rest: &[u8],
    ) -> io::Result<()>;
}

impl StoreTarget for Map {
    type Word<'a> = Word<'a>;

    #[inline]
    fn word(&self, position: u64) -> Word<'_> {
        Map::word(self, position)
    }

    fn put_block(
        &self,
        position: u64,
        [first, others @ ..]: [u64; HEADER_LEN / 8],
        lead: LengthPrefix,
        rest: &[u8],
    ) -> io::Result<()> {
        let body = position + HEADER_LEN as u64;
        lead.with_bytes(|bytes| self.write(body, bytes))?;
        self.write(body + lead.len() as u64, rest)?;
        self.write_words(position + 8, others)?;
        self.store(position, first)
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
    /// The map, if its stores go to memory; it has a page at least.
    #[inline(always)]
    pub fn new(map: &'a Map) -> Option<Self> {
        let (base, len) = map.direct()?;
        (len >= PAGE).then_some(Self { base, len, map: PhantomData })
    }

    /// The word at a position that is known to lie in the map.
    #[inline(always)]
    fn atomic(&self, position: u64) -> &'a AtomicU64 {
        debug_assert!(position % 8 == 0 && position + 8 <= self.len);
        #[allow(clippy::cast_ptr_alignment, reason = "the base is page aligned, and see above")]
        let word = self.base.wrapping_add(position as usize).cast::<u64>();
        // SAFETY: aligned, and inside the map, as its callers have checked; the map stays mapped for
        // the lifetime. Other processes change the word by atomic instructions only.
        unsafe { AtomicU64::from_ptr(word) }
    }
}

impl StoreTarget for RawMap<'_> {
    type Word<'a>
        = BareWord<'a>
    where
        Self: 'a;

    /// In its first page, where shared words are.
    #[inline(always)]
    fn word(&self, position: u64) -> BareWord<'_> {
        assert!(position % 8 == 0 && position < PAGE);
        BareWord(self.atomic(position))
    }

    #[inline(always)]
    fn put_block(
        &self,
        position: u64,
        [first, others @ ..]: [u64; HEADER_LEN / 8],
        lead: LengthPrefix,
        rest: &[u8],
    ) -> io::Result<()> {
        let before = HEADER_LEN + lead.len();
        // One check for all stores: eight bytes are stored behind the header, if the body has fewer.
        let reach = (before + rest.len()).max(HEADER_LEN + 8) as u64;
        assert!(position % 8 == 0 && reach <= self.len && position <= self.len - reach);
        if !lead.is_empty() {
            let word = self.atomic(position + HEADER_LEN as u64);
            word.store(lead.word().to_le(), Ordering::Relaxed);
        }
        let target = self.base.wrapping_add(position as usize + before);
        // SAFETY: `[position, position + reach)` is in the map, which is for writing; the regions
        // cannot overlap, `rest` being a live shared slice and the target bytes covered by none (the
        // room's invariant).
        unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), target, rest.len()) };
        pass(Point::BlockBody);
        for (i, word) in (1..).zip(others) {
            self.atomic(position + 8 * i).store(word.to_le(), Ordering::Relaxed);
        }
        pass(Point::BlockHeader);
        publish(&BareWord(self.atomic(position)), first);
        Ok(())
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

    #[test]
    fn a_bare_map_and_any_other_get_the_same_block() {
        for len in [0, 1, 5, 6, 7, 8, 100, 200] {
            let value: Vec<u8> = (0..len).map(|i| i as u8 | 1).collect();
            for lead in [LengthPrefix::default(), LengthPrefix::of(value.len()).unwrap()] {
                let maps = [(); 2].map(|()| private_memory(2 * PAGE).unwrap());
                let (position, header) = (PAGE - 8, [11, 12, 13, 14]);
                maps[0].put_block(position, header, lead, &value).unwrap();
                let bare = RawMap::new(&maps[1]).unwrap();
                bare.put_block(position, header, lead, &value).unwrap();
                let mut bytes = [[0; 2 * PAGE as usize]; 2];
                maps.iter().zip(&mut bytes).for_each(|(map, bytes)| map.copy(0, bytes));
                assert!(bytes[0] == bytes[1], "{len} bytes");
            }
        }
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn a_block_that_reaches_out_of_the_map_is_not_stored() {
        let map = private_memory(PAGE).unwrap();
        let lead = LengthPrefix::default();
        let _ = RawMap::new(&map).unwrap().put_block(PAGE - 40, [0; 4], lead, b"more than a word");
    }
}
