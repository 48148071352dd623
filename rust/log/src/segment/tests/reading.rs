//! Reads of one segment: bytes added since it was opened, lengths beyond it, unreadable bytes, and
//! the memory of checks.

use super::draft::{BOTH, Draft, LEN, REACH, data};
use crate::format::block::{BlockHeader, HEADER_LEN};
use crate::segment::create::{BlockPlace, commit, put_header, void_header};
use crate::segment::index::Index;
use crate::segment::*;
use crate::twin::faulty::{Call, FailureKind, Fault, FaultyStorage};

const CHECKS: [Check; 3] = [Check::None, Check::Header, Check::Full];

/// Make a body of this length, which no test decodes.
fn long(len: usize) -> Vec<u8> {
    vec![3; len]
}

/// Append a void block that ends with this page.
fn fill_page(draft: &mut Draft) {
    let from = draft.end();
    let to = (from + HEADER_LEN as u64).next_multiple_of(PAGE);
    draft.put(&void_header(from, to), &vec![0; (to - from) as usize - HEADER_LEN]);
}

#[test]
fn blocks_of_a_file_that_grew_since_it_was_opened_are_found() {
    for reading in BOTH {
        let mut draft = Draft::new();
        // One for each look: a segment remembers a length that it found out.
        let opened = [(); 2].map(|()| draft.open(reading));
        draft.builder.grow(REACH).unwrap();
        draft.builder.leave(LEN - 2000 - draft.end());
        let across = draft.data(0, 0, &long(4000));
        let behind = draft.data(1, 0, b"\x01b");
        for (segment, position) in opened.iter().zip([across, behind]) {
            let found = segment.block(position, Check::Full).unwrap();
            assert_eq!(found.map(|block| block.position), Some(position), "{reading:?}");
        }
    }
}

#[test]
fn who_looks_for_the_next_block_looks_as_far_as_the_file_has_grown() {
    for reading in BOTH {
        let mut draft = Draft::new();
        let segment = draft.open(reading);
        draft.builder.grow(REACH).unwrap();
        let hurt = draft.end();
        draft.builder.leave(LEN - hurt);
        let behind = draft.data(0, 0, b"\x01a");
        assert_eq!(segment.next_block(hurt, REACH), Some(behind), "{reading:?}");
    }
}

#[test]
fn a_block_that_reaches_beyond_its_file_is_damage_and_one_that_ends_with_it_is_sound() {
    for (beyond, sound) in [(0, true), (8, false), (1 << 20, false)] {
        let draft = Draft::new();
        let (map, salt, position) = (draft.builder.map(), draft.builder.salt(), LEN - 64);
        let place = BlockPlace { map, position, salt, seed: checksum::seed(salt) };
        let header = BlockHeader { len: 64 + beyond, ..data(0, 0, 0, &[0; 32]) };
        commit(place, put_header(place, &header).unwrap()).unwrap();
        for check in CHECKS {
            for reading in BOTH {
                let found = draft.open(reading).block(position, check);
                let end = found.map(|block| block.map(|block| block.end()));
                let what = DecodeError::Damaged("a block that reaches beyond its file");
                let told = if sound { Ok(Some(LEN)) } else { Err(BlockError { position, what }) };
                assert_eq!(end, told, "{beyond} {check:?}");
            }
            let quick = draft.open(Reading::Map).plain(position, check);
            assert_eq!(quick.is_some(), sound, "{beyond} {check:?}");
        }
    }
}

#[test]
fn the_quick_look_finds_a_plain_block_that_nobody_checked_before() {
    let mut draft = Draft::new();
    let plain = [draft.data(0, 0, b"\x01a"), draft.data(0, 1, &long(700)), draft.data(0, 2, b"")];
    for position in plain {
        for check in CHECKS {
            // Opened each time: a checked block is believed from then on.
            let quick = draft.open(Reading::Map).plain(position, check);
            let whole = draft.open(Reading::Map).block(position, check).unwrap().unwrap();
            assert_eq!(quick.map(BlockHeader::from), Some(whole.header), "{check:?}");
        }
        let segment = draft.open(Reading::Map);
        assert!(segment.plain(position, Check::Full).is_some());
        assert!(segment.checked.contains(position), "once, and no second time");
    }
}

#[test]
fn a_block_is_checked_once_and_then_believed_and_other_blocks_are_not() {
    let mut draft = Draft::new();
    let [one, other] = [0, 1].map(|offset| draft.data(0, offset, &long(100)));
    for reading in BOTH {
        let segment = draft.open(reading);
        segment.block(one, Check::Header).unwrap();
        assert!(!segment.checked.contains(one), "its body was not read");
        segment.block(one, Check::Full).unwrap();
        assert!(segment.checked.contains(one) && !segment.checked.contains(other));
    }
}

#[test]
fn a_place_where_reading_failed_once_can_be_damaged_all_the_same() {
    let mut draft = Draft::new();
    let position = draft.data(0, 0, b"\x01a");
    draft.hurt(position + 16);
    let faulty = FaultyStorage::over_memory(draft.memory.clone());
    let segment = draft.open_on(&faulty, Reading::Pread);
    let damage = draft.open(Reading::Map).block(position, Check::Full).unwrap_err();
    faulty.spoil(&draft.path(), position..position + 8).unwrap();
    let failed = segment.block(position, Check::Full).unwrap_err();
    assert_eq!((failed.position, failed.what), (position, CANNOT_READ));
    faulty.heal();
    assert_eq!(segment.block(position, Check::Full).unwrap_err(), damage);
    assert!(segment.sound(position).unwrap().is_none(), "it is known not to be");
}

#[test]
fn a_word_that_looks_like_one_that_cannot_be_read_is_damage_where_it_was_read() {
    let draft = Draft::new();
    let position = draft.end();
    draft.file().write_at(&UNREADABLE.to_le_bytes(), position).unwrap();
    let [mapped, read] = BOTH.map(|reading| draft.open(reading).block(position, Check::Full));
    assert_eq!(mapped.unwrap_err(), read.unwrap_err());
    assert!(draft.open(Reading::Pread).sound(position).unwrap().is_none());
}

#[test]
fn a_body_on_a_bad_place_of_the_disk_cannot_be_read_and_its_neighbours_can() {
    let mut draft = Draft::new();
    let before = draft.data(0, 0, b"\x01a");
    let hit = draft.data(0, 1, &long(3 * PAGE as usize));
    fill_page(&mut draft);
    let behind = draft.data(0, 2, b"\x01b");
    let faulty = FaultyStorage::over_memory(draft.memory.clone());
    let bad = (hit + PAGE).next_multiple_of(PAGE);
    faulty.spoil(&draft.path(), bad..bad + 512).unwrap();
    for check in CHECKS {
        let segment = draft.open_on(&faulty, Reading::Pread);
        let failed = segment.block(hit, check).unwrap_err();
        assert_eq!((failed.position, failed.what), (hit, CANNOT_READ));
        for position in [before, behind] {
            assert!(segment.block(position, check).unwrap().is_some(), "{check:?}");
        }
    }
    assert!(faulty.failed() > 0);
}

#[test]
fn what_a_void_block_covers_need_not_come_back_from_the_disk() {
    let mut draft = Draft::new();
    let void = draft.end();
    let (header, bad) = (void_header(void, void + 3 * PAGE), void.next_multiple_of(PAGE));
    draft.put(&header, &vec![0; header.body_len()]);
    let behind = draft.data(0, 0, b"\x01a");
    let faulty = FaultyStorage::over_memory(draft.memory.clone());
    faulty.spoil(&draft.path(), bad..bad + 512).unwrap();
    for check in CHECKS {
        let segment = draft.open_on(&faulty, Reading::Pread);
        let block = segment.block(void, check).unwrap().unwrap();
        assert_eq!((block.header.kind, block.end()), (Kind::Void, behind));
        assert!(segment.sound(behind).unwrap().is_some());
    }
    assert!(faulty.failed() > 0, "who reads ahead meets it");
}

#[test]
fn behind_much_damage_the_next_block_is_found_however_far_away_it_is() {
    for gap in [8000, 8192, 8200, 16_384, 40_000u64] {
        let mut draft = Draft::new();
        let hurt = draft.data(0, 0, b"\x01a");
        draft.builder.leave(gap);
        let next = draft.data(0, 1, b"\x01b");
        for reading in BOTH {
            assert_eq!(draft.open(reading).next_block(hurt + 8, LEN), Some(next), "{gap}");
        }
    }
}

/// A disk refuses a sector, and every read that includes it: the pages before and after stay
/// readable.
#[test]
fn beside_a_bad_place_of_the_disk_the_next_sound_block_is_found() {
    let mut draft = Draft::new();
    let hurt = draft.data(0, 0, &long(900));
    let before = draft.data(0, 1, b"\x01b");
    fill_page(&mut draft);
    let bad = draft.end();
    draft.data(0, 2, b"\x01c");
    fill_page(&mut draft);
    let behind = draft.data(0, 3, b"\x01d");
    let faulty = FaultyStorage::over_memory(draft.memory.clone());
    for spoiled in [bad..bad + 8, bad + 4088..bad + 4096, bad..bad + 4096] {
        faulty.heal();
        faulty.spoil(&draft.path(), spoiled).unwrap();
        let segment = draft.open_on(&faulty, Reading::Pread);
        assert_eq!(segment.next_block(hurt + 8, LEN), Some(before));
        assert_eq!(segment.next_block(bad, LEN), Some(behind));
    }
}

#[test]
fn all_from_one_body_to_the_end_of_a_later_one_is_read_through() {
    let mut draft = Draft::new();
    let bodies = [b"\x01a".to_vec(), long(5000), b"\x02cd".to_vec()];
    let places: Vec<u64> = bodies.iter().map(|body| draft.data(0, 0, body)).collect();
    let mut file = vec![0; LEN as usize];
    draft.file().read_at(&mut file, 0).unwrap();
    for reading in BOTH {
        let segment = draft.open(reading);
        let block = |i: usize| segment.block(places[i], Check::Full).unwrap().unwrap();
        let extent = |i: usize| segment.extent(&block(i));
        for (first, last) in [(0, 0), (0, 1), (1, 2), (0, 2)] {
            let end = block(last).body() as usize + bodies[last].len();
            let whole = &file[block(first).body() as usize..end];
            assert!(segment.through(&extent(first), &extent(last)) == Some(whole), "{reading:?}");
            assert!(whole.starts_with(&bodies[first]) && whole.ends_with(&bodies[last]));
        }
        assert_eq!(segment.through(&extent(1), &extent(0)), None, "the wrong way round");
    }
}

#[test]
fn who_cannot_read_what_lies_between_two_blocks_does_not_read_through() {
    let mut draft = Draft::new();
    let first = draft.data(0, 0, b"\x01a");
    draft.data(0, 1, &long(3 * PAGE as usize));
    let last = draft.data(0, 2, b"\x01c");
    let faulty = FaultyStorage::over_memory(draft.memory.clone());
    faulty.spoil(&draft.path(), 3 * PAGE + 8..3 * PAGE + 16).unwrap();
    let segment = draft.open_on(&faulty, Reading::Pread);
    let block = |at| segment.block(at, Check::Full).unwrap().unwrap();
    let [first, last] = [first, last].map(|at| segment.extent(&block(at)));
    assert_eq!(segment.through(&first, &last), None);
    faulty.heal();
    assert!(segment.through(&first, &last).is_some());
}

#[test]
fn the_first_index_that_was_kept_is_the_segments_for_all_who_ask() {
    let segment = Draft::new().open(Reading::Map);
    assert!(segment.index().is_none());
    let kept = segment.keep_index(Index::Built(Vec::new()));
    assert!(std::ptr::eq(kept, segment.keep_index(Index::build(&segment))), "the first one stays");
    assert!(segment.index().is_some_and(|index| std::ptr::eq(index, kept)));
}

#[test]
fn ways_through_a_segments_blocks_are_the_same_for_all_who_ask() {
    let draft = Draft::new();
    let [one, other] = BOTH.map(|reading| draft.open(reading));
    assert!(std::ptr::eq(one.ways(), one.ways()));
    assert!(!std::ptr::eq(one.ways(), other.ways()), "each segment has its own");
}

#[test]
fn a_first_page_that_does_not_come_back_is_no_page_without_a_mark() {
    let draft = Draft::new();
    let faulty = FaultyStorage::over_memory(draft.memory.clone());
    let segment = draft.open_on(&faulty, Reading::Pread);
    assert_eq!(segment.read_mark().unwrap().map(|mark| mark.serial), Some(1));
    let reads = faulty.count(Call::Read);
    faulty.plan(Fault::at(reads + 1, FailureKind::Errno(libc::EIO)).only(Call::Read).forever());
    assert!(segment.mark().is_none() && segment.read_mark().is_err());
}
