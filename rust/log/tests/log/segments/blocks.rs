//! Blocks, groups, and bytes that are neither.

use super::*;
use falaj::internals::error::Error;
use falaj::internals::format::block::HEADER_LEN;
use falaj::internals::format::{DecodeError, FIRST_BLOCK, PAGE};
use falaj::internals::segment::create::void_header;
use falaj::internals::segment::index::write_file;
use falaj::internals::segment::{CANNOT_READ, Check};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};

#[test]
fn beside_a_block_behind_the_end_and_beyond_the_file_there_is_none() {
    let made = four_records();
    for reading in BOTH {
        let segment = made.open(reading);
        assert_eq!(segment.reading(), reading);
        for position in [made.end, LEN - 8, LEN, LEN + 8, u64::MAX - 7, u64::MAX] {
            assert_eq!(segment.word(position), 0, "{position}");
            assert!(segment.block(position, Check::Full).unwrap().is_none(), "{position}");
            assert!(segment.plain(position, Check::Full).is_none(), "{position}");
            assert_eq!(segment.kind(position), Ok(None), "{position}");
            assert!(segment.sound(position).unwrap().is_none(), "{position}");
        }
        for uneven in 1..8 {
            assert_eq!(segment.word(made.blocks[1] + uneven), 0);
            assert!(segment.plain(made.blocks[1] + uneven, Check::None).is_none());
        }
        let beside = made.blocks[1] + 8;
        assert!(segment.block(beside, Check::None).is_err() && segment.kind(beside).is_err());
        assert!(segment.sound(beside).unwrap().is_none());
    }
}

#[test]
fn the_last_word_of_a_file_is_part_of_it() {
    let made = four_records();
    let segment = made.open(Reading::Map);
    made.file().write_at(&7u64.to_le_bytes(), LEN - 8).unwrap();
    assert_eq!(segment.word(LEN - 8), 7);
}

#[test]
fn a_block_is_found_whole_with_its_body_and_by_its_extent() {
    let made = four_records();
    let bodies: [&[u8]; 3] = [b"\x01a", b"\x01b", &[&[0xf4, 3][..], &[7; 500]].concat()];
    for reading in BOTH {
        let segment = made.open(reading);
        for (position, body) in made.blocks[1..].iter().zip(bodies) {
            let block = segment.block(*position, Check::Full).unwrap().unwrap();
            assert_eq!(segment.kind(*position), Ok(Some(Kind::Data)));
            assert_eq!(segment.body(&block), body);
            let extent = segment.extent(&block);
            assert_eq!((extent.block(), extent.flags()), (*position, block.header.flags));
            assert_eq!(segment.bytes(&extent), body);
            assert_eq!(block.body() - position, block.header.header_len() as u64);
            assert!(block.end() >= block.body() + body.len() as u64 && block.end() % 8 == 0);
        }
    }
}

#[test]
fn the_quick_look_at_a_block_says_what_the_thorough_one_says_or_nothing() {
    let made = four_records();
    let segment = made.open(Reading::Map);
    for position in &made.blocks {
        let block = segment.block(*position, Check::Full).unwrap().unwrap();
        let quick = [Check::None, Check::Header, Check::Full].map(|c| segment.plain(*position, c));
        let plain = block.header.kind == Kind::Data && block.header.flags == 0;
        for quick in quick {
            assert_eq!(quick.map(BlockHeader::from), plain.then_some(block.header));
        }
    }
    let unmapped = made.open(Reading::Pread);
    assert!(made.blocks.iter().all(|position| unmapped.plain(*position, Check::None).is_none()));
}

#[test]
fn a_look_finds_what_it_was_asked_to_check_and_no_more() {
    let made = four_records();
    let (body, header) = (made.blocks[1], made.blocks[4]);
    made.hurt(body + HEADER_LEN as u64 + 1);
    made.hurt(header + 16);
    for reading in BOTH {
        let sound = |position, check| made.open(reading).block(position, check).is_ok();
        let quick = |position, check| made.open(Reading::Map).plain(position, check).is_some();
        for (check, body_passes, header_passes) in
            [(Check::None, true, true), (Check::Header, true, false), (Check::Full, false, false)]
        {
            assert_eq!(sound(body, check), body_passes, "{check:?}");
            assert_eq!(sound(header, check), header_passes, "{check:?}");
            assert_eq!(quick(body, check), body_passes, "{check:?}");
            assert_eq!(quick(header, check), header_passes, "{check:?}");
        }
        assert!(made.open(reading).sound(body).unwrap().is_none());
    }
}

#[test]
fn a_void_block_is_sound_whatever_it_covers() {
    let mut draft = Draft::new();
    let (from, covered) = (draft.builder.position(), [0x5a; 64]);
    let header = void_header(from, from + 96);
    draft.put(&header, &covered);
    assert_eq!((header.kind, header.len), (Kind::Void, 96));
    assert_eq!(void_header(from, from + 8).len, HEADER_LEN as u32, "at least a header");
    let made = draft.finish(None);
    made.hurt(from + 40);
    for reading in BOTH {
        let block = made.open(reading).block(from, Check::Full).unwrap().unwrap();
        assert_eq!(block.end(), from + 96);
    }
}

#[test]
fn a_segment_of_another_log_or_number_is_refused() {
    let made = four_records();
    for reading in BOTH {
        let other = Segment::open_to_read(&made.memory, &made.dir, [8; 16], 3, 0, reading);
        assert!(matches!(other, Err(Error::CorruptData { position: 0, .. })), "{other:?}");
        made.memory.unlink(&made.dir.join(names::segment(4))).ok();
        let copy = made.dir.join(names::segment(4));
        let mut bytes = vec![0; LEN as usize];
        made.file().read_at(&mut bytes, 0).unwrap();
        write_file(&made.memory, &copy, &bytes, LEN, 0o600).unwrap();
        let other = Segment::open_to_read(&made.memory, &made.dir, LOG, 4, 0, reading);
        assert!(matches!(other, Err(Error::CorruptData { position: 0, .. })), "{other:?}");
        assert!(format!("{:?}", made.open(reading)).contains("00000000000000000003.log"));
    }
}

#[test]
fn a_file_cut_off_in_its_header_pages_is_not_mapped() {
    let made = four_records();
    let (header, path) = (made.open(Reading::Map).header().clone(), made.dir.join("short"));
    for (len, sound) in [(FIRST_BLOCK - 1, false), (FIRST_BLOCK, true)] {
        write_file(&made.memory, &path, &header.encode(), len, 0o600).unwrap();
        let file = made.memory.open(&path, OpenMode::ReadWrite).unwrap();
        if file.stat().unwrap().len != len {
            // The memory storage allocates whole pages, so this length is impossible there.
            continue;
        }
        for access in [MapAccess::Read, MapAccess::Write] {
            let file = Arc::clone(&file);
            let segment = Segment::from_file(path.clone(), file, header.clone(), access, LEN);
            assert_eq!(segment.is_ok(), sound, "{len} {access:?}");
        }
    }
    let short = made.memory.open(&path, OpenMode::ReadWrite).unwrap();
    let empty = made.dir.join("empty");
    let none = made.memory.open(&empty, OpenMode::CreateNew(0o600)).unwrap();
    drop(short);
    let segment = Segment::from_file(empty.clone(), none, header, MapAccess::Write, LEN);
    let told =
        matches!(&segment, Err(Error::CorruptData { path, position: 0, .. }) if *path == empty);
    assert!(told, "{segment:?}");
}

/// A group of two blocks that claims `told` more bytes than it has, the second block with these
/// flags.
fn group(told: i64, second: u16) -> (Made, u64) {
    let mut draft = Draft::new();
    let own = |flags| data(1, 0, flags, b"\x01x");
    let (head, member) = (own(flag::GROUP), own(second));
    let whole = head.padded() + member.padded();
    let group_len = (whole as i64 + told) as u32;
    let at = draft.put(&BlockHeader { group_len, ..head }, b"\x01x");
    draft.put(&member, b"\x01x");
    draft.data(0, 0, b"\x01y");
    (draft.finish(None), at)
}

#[test]
fn a_group_is_its_members_up_to_its_end_and_nothing_else() {
    for reading in BOTH {
        let check = |told, second| {
            let (made, at) = group(told, second);
            let segment = made.open(reading);
            let head = segment.block(at, Check::Full).unwrap().unwrap();
            (segment.check_group(&head).map_err(|bad| bad.position), made.blocks)
        };
        assert_eq!(check(0, flag::MEMBER).0, Ok(()));
        let (stranger, blocks) = check(0, 0);
        assert_eq!(stranger, Err(blocks[2]), "a block that is not a member");
        let (short, blocks) = check(-8, flag::MEMBER);
        assert_eq!(short, Err(blocks[2]), "a member that reaches beyond the group");
        let (long, blocks) = check(8, flag::MEMBER);
        assert_eq!(long, Err(blocks[3]), "the next append");
        let (made, at) = group(0, flag::MEMBER);
        made.file().write_at(&[0; 8], made.blocks[2]).unwrap();
        let segment = made.open(reading);
        let head = segment.block(at, Check::Full).unwrap().unwrap();
        let bad = segment.check_group(&head).unwrap_err();
        assert_eq!(
            (bad.position, bad.what),
            (made.blocks[2], DecodeError::Damaged("a group that is not whole"))
        );
    }
}

#[test]
fn behind_damage_the_next_sound_block_is_found_wherever_one_begins_to_look() {
    let (made, head) = group(0, flag::MEMBER);
    let [snapshot, _, member, last] = made.blocks[..] else { panic!("{:?}", made.blocks) };
    for reading in BOTH {
        let segment = made.open(reading);
        for (from, any, group) in [
            (0, snapshot, snapshot),
            (snapshot, snapshot, snapshot),
            (snapshot + 1, head, head),
            (head + 1, member, last),
            (member, member, last),
            (last, last, last),
        ] {
            assert_eq!(segment.next_block(from, LEN), Some(any), "from {from}");
            assert_eq!(segment.next_sound(from, LEN), Some(group), "from {from}");
        }
        assert_eq!(segment.next_block(last + 1, u64::MAX), None);
        assert_eq!(segment.next_block(last, last + HEADER_LEN as u64), Some(last));
        assert_eq!(segment.next_block(last, last + HEADER_LEN as u64 - 1), None);
    }
}

/// Pages that a disk refuses hide what is in them, and nothing behind them.
#[test]
fn a_sound_block_is_found_behind_pages_that_cannot_be_read() {
    let mut draft = Draft::new();
    // In the next page, and in the pages that are read at once.
    draft.data(0, 0, &[9; PAGE as usize + 2000]);
    let behind = draft.data(0, 1, b"\x01z");
    let made = draft.finish(None);
    assert!(behind / PAGE == made.blocks[1] / PAGE + 1 && behind < made.blocks[1] + 8000);
    for refused in [1, 2] {
        let faulty = FaultyStorage::over_memory(made.memory.clone());
        let segment = made.open_on(&faulty, Reading::Pread);
        let reads = faulty.count(Call::Read);
        for nth in 1..=refused {
            let eio = FailureKind::Errno(libc::EIO);
            faulty.plan(Fault::at(reads + nth, eio).only(Call::Read));
        }
        assert_eq!(segment.next_block(made.blocks[1] + 8, LEN), Some(behind), "{refused}");
        assert_eq!(faulty.failed(), refused);
    }
}

#[test]
fn unreadable_bytes_are_distinguished_from_corrupt_ones() {
    let made = four_records();
    let faulty = FaultyStorage::over_memory(made.memory.clone());
    let segment = made.open_on(&faulty, Reading::Pread);
    let reads = faulty.count(Call::Read);
    faulty.plan(Fault::at(reads + 1, FailureKind::Errno(libc::EIO)).only(Call::Read).forever());
    let bad = segment.block(made.blocks[3], Check::Full).unwrap_err();
    assert_eq!((bad.position, bad.what), (made.blocks[3], CANNOT_READ));
    assert!(segment.sound(made.blocks[3]).is_err(), "it may be valid");
    assert!(segment.read_mark().is_err() && segment.mark().is_none());
    faulty.heal();
    assert!(segment.sound(made.blocks[3]).unwrap().is_some());
    assert!(segment.read_mark().unwrap().is_some() && segment.mark().is_some());
}
