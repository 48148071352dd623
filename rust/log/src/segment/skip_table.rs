//! Known places in large blocks: where some values begin in a body of plain values.
//!
//! A lookup in a block of thousands of values would walk over half of them each time. This module
//! remembers the places that it passes, one in [`WAY`] values, four bytes each, so that the next
//! lookup walks over a few. Invariant: places belong to the block at their position, whose bytes
//! never change. Bounded: when more than `MOST` places are known all are forgotten.
//! [`crate::format::record`] defines a body.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, TryLockError};

use crate::format::record::{RecordCursor, WAY};

/// Most places that are remembered in a segment: 1 MiB of them.
const MOST: usize = 1 << 18;

/// Known places in the blocks of a segment.
#[derive(Default)]
pub struct SkipTable(Mutex<KnownSkips>);

#[derive(Default)]
struct KnownSkips {
    /// By the position of the block.
    blocks: HashMap<u64, Vec<u32>>,
    places: usize,
}

impl fmt::Debug for SkipTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ways")
    }
}

impl SkipTable {
    /// Pass over the first values of a body of plain values, as [`RecordCursor::skip_plain`] does.
    /// The body is that of the block at this position, and the walk is at its beginning.
    pub fn skip(&self, block: u64, records: &mut RecordCursor, body: &[u8], values: u32) -> bool {
        if records.left() <= 2 * WAY {
            return records.skip_plain(body, values);
        }
        let mut known = match self.0.try_lock() {
            Ok(known) => known,
            Err(TryLockError::Poisoned(known)) => known.into_inner(),
            // Another lookup is running: waiting for it would take longer than a walk.
            Err(TryLockError::WouldBlock) => return records.skip_plain(body, values),
        };
        let KnownSkips { blocks, places } = &mut *known;
        if *places > MOST {
            (*blocks, *places) = Default::default();
        }
        let way = blocks.entry(block).or_default();
        let before = way.len();
        let passed = records.skip_plain_along(body, values, way);
        *places += way.len() - before;
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::BodyWriter;

    #[test]
    fn whatever_was_looked_up_before_a_lookup_finds_the_same() {
        let mut writer = BodyWriter::default();
        writer.begin(false, None);
        // Lengths of one, two and three bytes, in no order.
        let lengths: Vec<usize> = (0..1000).map(|i| [3, 200, 0, 90, 20_000][i * i % 5]).collect();
        lengths.iter().for_each(|len| writer.push_value(&vec![b'v'; *len]));
        let body = writer.body().to_vec();
        let ways = SkipTable::default();
        for round in 0..3 {
            for i in 0..1000u32 {
                let wanted = i * 617 % 1000;
                let mut walk = RecordCursor::new(0, 1000, &body).unwrap();
                assert!(ways.skip(4096, &mut walk, &body, wanted), "{round}");
                let mut slow = RecordCursor::new(0, 1000, &body).unwrap();
                assert!((0..wanted).all(|_| slow.next_plain(&body).is_some()));
                assert_eq!(walk.next_plain(&body), slow.next_plain(&body));
                assert_eq!(walk.left(), 1000 - wanted - 1);
            }
        }
        let mut walk = RecordCursor::new(0, 1000, &body).unwrap();
        assert!(ways.skip(4096, &mut walk, &body, 1000));
        assert!(!ways.skip(4096, &mut RecordCursor::new(0, 1000, &body).unwrap(), &body, 1001));
        assert!(!ways.skip(
            8,
            &mut RecordCursor::new(0, 1000, &body).unwrap(),
            &body[..body.len() - 1],
            1000
        ));
    }

    #[test]
    fn no_more_is_remembered_than_a_segment_may_cost() {
        let mut writer = BodyWriter::default();
        writer.begin(false, None);
        (0..100_000).for_each(|_| writer.push_value(b""));
        let (body, ways) = (writer.body().to_vec(), SkipTable::default());
        for block in 0..200 {
            let mut walk = RecordCursor::new(0, 100_000, &body).unwrap();
            assert!(ways.skip(block, &mut walk, &body, 99_999));
            let known = ways.0.lock().unwrap();
            let held: usize = known.blocks.values().map(Vec::len).sum();
            assert_eq!(held, known.places);
            assert!(held <= MOST + 100_000 / WAY as usize);
        }
    }

    #[test]
    fn nothing_is_forgotten_before_more_is_known_than_a_segment_may_cost() {
        let mut writer = BodyWriter::default();
        writer.begin(false, None);
        let values = 4096 * WAY;
        (0..values).for_each(|_| writer.push_value(b""));
        let (body, ways) = (writer.body().to_vec(), SkipTable::default());
        // 64 blocks fill 1 MiB of places, of four bytes each; the next block exceeds it.
        let blocks = (1..=65).chain([100, 101]).map(|block: u64| {
            let mut walk = RecordCursor::new(0, values, &body).unwrap();
            assert!(ways.skip(block, &mut walk, &body, values));
            ways.0.lock().unwrap().blocks.len()
        });
        assert_eq!(blocks.collect::<Vec<_>>(), (1..=65).chain([1, 2]).collect::<Vec<_>>());
    }

    #[test]
    fn who_finds_the_ways_in_use_or_left_by_a_panic_finds_the_value_all_the_same() {
        let mut writer = BodyWriter::default();
        writer.begin(false, None);
        (0..100u8).for_each(|i| writer.push_value(&vec![i; usize::from(i)]));
        let (body, ways) = (writer.body().to_vec(), SkipTable::default());
        let look = |wanted: u32| {
            let mut walk = RecordCursor::new(0, 100, &body).unwrap();
            assert!(ways.skip(8, &mut walk, &body, wanted));
            let value = walk.next_plain(&body).unwrap();
            assert_eq!(value.len() as u32, wanted);
        };
        let remembered = |known: &KnownSkips| known.places;
        let in_use = ways.0.lock().unwrap();
        look(90);
        assert_eq!(remembered(&in_use), 0, "nobody waits, nothing is noted");
        drop(in_use);
        let panics = std::panic::AssertUnwindSafe(|| {
            let _held = ways.0.lock().unwrap();
            panic!("on purpose");
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        look(90);
        look(50);
        let known = ways.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        assert_eq!(remembered(&known), (90 / WAY) as usize);
    }

    #[test]
    fn a_small_block_is_walked_and_costs_no_memory() {
        let mut writer = BodyWriter::default();
        writer.begin(false, None);
        (0..2 * WAY + 1).for_each(|_| writer.push_value(b"v"));
        let (body, ways) = (writer.body().to_vec(), SkipTable::default());
        for (values, places) in [(2 * WAY, 0), (2 * WAY + 1, 2)] {
            let mut walk = RecordCursor::new(0, values, &body).unwrap();
            assert!(ways.skip(8, &mut walk, &body, values - 1));
            assert_eq!(ways.0.lock().unwrap().places, places);
        }
    }
}
