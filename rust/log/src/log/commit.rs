//! The one order in which an append stores its bytes.
//!
//! Owns that order: dirty end, body and header of each block, the commit words, tail. In a group
//! the commit word of the first block comes last. All code that stores blocks into the active
//! segment calls it, over the maps themselves or over bare memory ([`StoreTarget`]). That is the
//! fast and the slow append, the log's own metadata, and the space before an end block. The caller
//! holds the append lock, and has checked that the log ends where the first block begins. See
//! `docs/PROTOCOL.md`, "Append".

use std::io;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::canary::{Canary, planted};
use crate::failpoints::{Point, pass};
use crate::format::address::Address;
use crate::format::control::at;
use crate::segment::create::LaidBlock;
use crate::storage::StoreTarget;

/// A word of the control page that rises with the dirty end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// None.
    Nothing,
    /// The end up to which blocks must be on disk within the log's interval.
    Wanted,
    /// The end of blocks that may record a trim, or that a topic is finished. A reader that looks
    /// before they are there finds nothing, and looks again.
    Trimmed,
    /// Both.
    WantedAndTrimmed,
}

/// Store a block at the end of the log, followed by the other members of its group, which have this
/// many bytes. Returns the log's new end: all of them are visible to all processes. An error leaves
/// the dirty end in place, so that the next owner of the lock repairs.
///
/// # Errors
/// Those of `pwrite`, if stores are writes; none in mapped memory.
#[inline(always)]
pub fn commit_blocks<'a, S: StoreTarget>(
    (page, map): (&S, &S),
    start: Address,
    kept: Kept,
    first: &LaidBlock<'_>,
    (members, len): (impl Iterator<Item = LaidBlock<'a>>, u64),
) -> io::Result<Address> {
    // Checked before a byte is stored: at a wrong place it would overwrite committed bytes.
    let (mut position, whole) = (first.end(), first.end() + len);
    let end = start.behind(whole - first.position);
    let is_in_place = first.position == start.position() && end.sequence() == start.sequence();
    assert!(is_in_place, "an append must begin where the log ends");
    page.store(at::DIRTY, end.0)?;
    match kept {
        Kept::Nothing => {}
        Kept::Wanted => page.store(at::WANTED, end.0)?,
        Kept::Trimmed => page.store(at::TRIMMED, end.0)?,
        Kept::WantedAndTrimmed => {
            page.store(at::TRIMMED, end.0)?;
            page.store(at::WANTED, end.0)?;
        }
    }
    compiler_fence(Ordering::SeqCst);
    pass(Point::AppendDirty);
    if planted(Canary::TailBeforeData) {
        page.store(at::TAIL, end.0)?;
    }
    first.put(map)?;
    for member in members {
        let fits = member.position == position && member.end() <= whole;
        assert!(fits, "a block must follow the previous one");
        position = member.end();
        member.put(map)?;
        member.commit(map)?;
        pass(Point::GroupMember);
    }
    assert!(position == whole, "a group must have the announced length");
    pass(Point::BlockHeader);
    first.commit(map)?;
    pass(Point::AppendCommitted);
    Ok(end)
}

/// Store a single block, as [`commit_blocks`].
///
/// # Errors
/// As [`commit_blocks`].
#[inline(always)]
pub fn commit_block<S: StoreTarget>(
    maps: (&S, &S),
    start: Address,
    kept: Kept,
    block: &LaidBlock<'_>,
) -> io::Result<Address> {
    commit_blocks(maps, start, kept, block, (std::iter::empty(), 0))
}

/// Store the tail after committed blocks, and their index entries.
///
/// # Errors
/// As [`commit_blocks`]; the blocks are visible all the same, and the next owner of the lock moves
/// the tail.
#[inline(always)]
pub fn commit_tail<S: StoreTarget>(page: &S, end: Address) -> io::Result<()> {
    let stored = page.store(at::TAIL, end.0);
    pass(Point::AppendTail);
    stored
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::format::PAGE;
    use crate::format::address::MAX_POSITION;
    use crate::format::block::{BlockHeader, Kind};
    use crate::segment::create::BlockPlace;
    use crate::storage::Map;
    use crate::storage::real::private_memory;

    /// Append blocks at an end of the log, each at its position; all but the first have this many
    /// bytes. Return whether that succeeded, and the resulting control page and segment.
    fn appended(start: Address, blocks: &[u64], len: u64) -> (Option<Address>, Map, Map) {
        let [page, map] = [(); 2].map(|()| private_memory(2 * PAGE).expect("memory"));
        for target in [&page, &map] {
            target.write(0, &[0; 2 * PAGE as usize]).expect("a store");
        }
        let header = BlockHeader { len: 40, ..BlockHeader::new(Kind::Data) };
        let laid = blocks.iter().map(|position| {
            let place = BlockPlace { map: &map, position: *position, salt: 7, seed: 8 };
            place.lay_out(&header, b"12345678")
        });
        let laid: Vec<_> = laid.collect();
        let append = std::panic::AssertUnwindSafe(|| {
            let members = (laid[1..].iter().copied(), len);
            commit_blocks((&page, &map), start, Kept::Nothing, &laid[0], members).expect("stores")
        });
        (std::panic::catch_unwind(append).ok(), page, map)
    }

    #[test]
    fn blocks_that_fill_what_they_announce_are_stored() {
        let start = Address::new(1, PAGE);
        let (end, page, map) = appended(start, &[PAGE, PAGE + 40], 40);
        assert_eq!(end, Some(Address::new(1, PAGE + 80)));
        assert!(map.load(PAGE) != 0 && map.load(PAGE + 40) != 0);
        assert_eq!(page.load(at::DIRTY), Address::new(1, PAGE + 80).0);
    }

    #[test]
    fn an_append_to_a_wrong_place_stores_nothing() {
        let last = Address::new(1, MAX_POSITION - 32);
        for (start, block) in [
            (Address::new(1, PAGE + 40), PAGE),
            (Address::new(1, PAGE), PAGE + 8),
            // It would end in the next segment.
            (last, last.position()),
        ] {
            let (end, page, map) = appended(start, &[block], 0);
            assert_eq!((end, page.load(at::DIRTY)), (None, 0), "{start:?} {block}");
            assert!((0..2 * PAGE).step_by(8).all(|position| map.load(position) == 0));
        }
    }

    #[test]
    fn a_group_that_does_not_fill_what_it_announced_is_not_there() {
        let start = Address::new(1, PAGE);
        for (blocks, len) in [
            (&[PAGE][..], 40),
            (&[PAGE, PAGE + 48], 40),
            (&[PAGE, PAGE + 40], 0),
            (&[PAGE, PAGE + 40], 80),
            (&[PAGE, PAGE + 40, PAGE + 80], 40),
        ] {
            let (end, _, map) = appended(start, blocks, len);
            assert_eq!((end, map.load(PAGE)), (None, 0), "{blocks:?}");
        }
    }
}
