//! New segments before others see them: space that is left and filled later, and what is durable
//! when.

#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use super::*;
use crate::segment::Check;
use crate::segment::tests::draft::{BOTH, Draft, LEN, REACH, data};
use crate::twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use crate::twin::memory::MemoryStorage;

fn builder(storage: &dyn Storage) -> Builder {
    Builder::new(storage, PathBuf::from("/new"), LEN, REACH, 0o600, MapAccess::Write).unwrap()
}

#[test]
fn a_block_of_the_logs_own_says_how_long_it_is_what_is_in_it_and_when_it_came() {
    let header = own_header(Kind::Meta, b"12345", 1_000_001);
    let told = (header.kind, header.len, header.time, header.body_crc);
    assert_eq!(told, (Kind::Meta, 37, 1_000_001, checksum::crc32(b"12345")));
    // The header of a block without records has no other values.
    assert_eq!((header.offset, header.count, header.flags), (0, 0, 0));
}

#[test]
fn who_asks_for_no_more_room_than_there_is_needs_no_disk() {
    let faulty = FaultyStorage::over_memory(MemoryStorage::new());
    let mut builder = builder(&faulty);
    let made = faulty.count(Call::Allocate);
    faulty.plan(Fault::at(1, FailureKind::Errno(libc::ENOSPC)).only(Call::Allocate).forever());
    for len in [0, FIRST_BLOCK, LEN] {
        builder.grow(len).unwrap();
    }
    assert_eq!((builder.allocated(), faulty.count(Call::Allocate)), (LEN, made));
    assert!(matches!(builder.grow(LEN + 1), Err(Error::NoSpace { .. })));
    assert_eq!(builder.allocated(), LEN, "what was not given is not counted");
}

#[test]
fn room_that_was_left_takes_blocks_later_and_what_remains_of_it_is_covered() {
    let mut draft = Draft::new();
    let begin = draft.end();
    let room = draft.builder.leave(400);
    let behind = draft.data(0, 1, b"\x01b");
    assert_eq!((room, behind), (begin, begin + 400));
    let first = data(0, 0, 0, b"\x01a");
    draft.builder.block_at(room, &first, b"\x01a").unwrap();
    assert_eq!(draft.end(), behind + first.padded(), "what follows stays where it is");
    let rest = room + first.padded();
    for reading in BOTH {
        assert!(draft.open(reading).block(rest, Check::Full).unwrap().is_none(), "not yet");
    }
    draft.builder.cover(rest, behind).unwrap();
    for reading in BOTH {
        let segment = draft.open(reading);
        let found = [(room, Kind::Data, rest), (rest, Kind::Void, behind)];
        for (position, kind, end) in found {
            let block = segment.block(position, Check::Full).unwrap().unwrap();
            assert_eq!((block.header.kind, block.end()), (kind, end), "{reading:?}");
        }
        assert_eq!(segment.body(&segment.block(behind, Check::Full).unwrap().unwrap()), b"\x01b");
    }
}

#[test]
fn a_segment_that_was_synced_outlives_a_loss_of_power() {
    let machine = MemoryStorage::new();
    let mut builder = builder(&machine);
    let body = b"\x01a";
    builder.block(&data(0, 0, 0, body), body).unwrap();
    machine.sync_dir(Path::new("/")).unwrap();
    let after_loss_of_power = || {
        let crash = machine.journal().crash_at_end();
        let after = crash.image(&crash.nothing());
        let mut found = [0; 2];
        let file = after.open(builder.path(), OpenMode::Read).unwrap();
        file.read_at(&mut found, FIRST_BLOCK + HEADER_LEN as u64).unwrap();
        found
    };
    assert_eq!(after_loss_of_power(), [0; 2], "no sync wrote it");
    builder.sync().unwrap();
    assert_eq!(after_loss_of_power(), *body);
}

#[test]
fn a_segment_that_the_disk_does_not_keep_is_not_called_synced() {
    let faulty = FaultyStorage::over_memory(MemoryStorage::new());
    let builder = builder(&faulty);
    faulty.plan(Fault::at(1, FailureKind::Errno(libc::EIO)).only(Call::SyncAll));
    assert!(matches!(builder.sync(), Err(Error::SystemCallFailed { .. })));
}
