//! Which blocks of a map were found valid already, so that each is checked once.
//!
//! Owns the bits: [`super::Segment`] sets one when header and body of a block were valid.
//! Invariant: a set bit stays set; a lost one costs a second check.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::block::HEADER_LEN;

/// Words of a chunk: a page of bits, for 1 MiB of the map.
const CHUNK: usize = 512;

type Chunk = Box<[AtomicU64; CHUNK]>;

/// Which blocks were checked already: a bit for each 32 bytes, since no two blocks start within
/// those. Memory is allocated only for checked parts, so that one lookup in a large segment takes a
/// page of it.
pub(super) struct VerifiedBitmap(Box<[OnceLock<Chunk>]>);

impl VerifiedBitmap {
    pub(super) fn new(map_len: u64) -> Self {
        let chunks = map_len / (HEADER_LEN * 64 * CHUNK) as u64 + 1;
        Self((0..chunks).map(|_| OnceLock::new()).collect())
    }

    /// Return the chunk of a position, the word in it, and the bit.
    #[inline]
    fn place(position: u64) -> (usize, usize, u64) {
        let granule = (position / HEADER_LEN as u64) as usize;
        (granule / 64 / CHUNK, granule / 64 % CHUNK, 1 << (granule % 64))
    }

    #[inline]
    pub(super) fn contains(&self, position: u64) -> bool {
        let (chunk, word, bit) = Self::place(position);
        let chunk = self.0.get(chunk).and_then(OnceLock::get);
        chunk.is_some_and(|chunk| chunk[word].load(Ordering::Relaxed) & bit != 0)
    }

    /// Note a block. If two threads note neighbours at once, one of them may be lost. That block is
    /// checked once more, which costs less than a locked instruction for each.
    #[inline]
    pub(super) fn insert(&self, position: u64) {
        let (chunk, word, bit) = Self::place(position);
        let Some(chunk) = self.0.get(chunk) else { return };
        let chunk = chunk.get_or_init(|| Box::new([const { AtomicU64::new(0) }; CHUNK]));
        chunk[word].store(chunk[word].load(Ordering::Relaxed) | bit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_noted_for_itself_and_none_beyond_the_map() {
        let checked = VerifiedBitmap::new(4 << 20);
        let places = [0, 32, 2016, 2048, (1 << 20) - 32, 1 << 20, (4 << 20) - 32];
        assert!(places.iter().all(|place| !checked.contains(*place)));
        for (i, place) in places.iter().enumerate() {
            checked.insert(*place);
            let noted = places.iter().filter(|place| checked.contains(**place)).count();
            assert_eq!(noted, i + 1, "{place}");
        }
        let beyond = 1 << 30;
        checked.insert(beyond);
        assert!(!checked.contains(beyond));
        assert!(!checked.contains(64) && !checked.contains(32 * 64 + 32));
    }

    #[test]
    fn a_place_that_two_found_sound_stays_noted() {
        let checked = VerifiedBitmap::new(64 << 10);
        for place in [2048, 2080, 2048, 2048] {
            checked.insert(place);
            assert!(checked.contains(2048) && checked.contains(place));
        }
    }
}
