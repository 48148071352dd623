//! Indexes: built, kept in a file, corrupt, full.

use super::*;
use falaj::internals::error::Error;
use falaj::internals::format::index::{
    ENTRY_LEN, HEADER_LEN as INDEX_HEADER, IndexEntry, STRIDE, file_len,
};
use falaj::internals::segment::Check;
use falaj::internals::segment::index::{Index, IndexSampler};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};

fn many_records() -> Made {
    let mut draft = Draft::new();
    for i in 0..40u32 {
        draft.data(i % 2, i / 2, &[&[0xe8, 7][..], &[i as u8; 1000]].concat());
    }
    draft.finish(None)
}

#[test]
fn an_index_has_each_topics_first_block_and_one_in_so_many_bytes() {
    let made = many_records();
    let segment = made.open(Reading::Map);
    let index = Index::build(&segment);
    let positions: Vec<_> = (0..index.len()).map(|i| index.position(i).unwrap()).collect();
    assert_eq!(positions[..2], made.blocks[1..3], "the first block of each topic");
    let far = positions[1..].windows(2).map(|pair| pair[1] - pair[0]);
    assert!(far.clone().all(|bytes| bytes >= STRIDE), "{positions:?}");
    assert!(far.clone().all(|bytes| bytes < STRIDE + 1100), "{positions:?}");
    assert_eq!(index.position(index.len()), None);
    assert!(!index.is_empty() && Index::Built(Vec::new()).is_empty());
    let unmapped = Index::build(&made.open(Reading::Pread));
    assert_eq!(index.encode(&segment), unmapped.encode(&segment));
}

#[test]
fn an_index_in_its_file_says_what_the_one_in_memory_says() {
    let made = many_records();
    let segment = made.open(Reading::Map);
    let built = Index::build(&segment);
    let entries = built.save(&made.memory, &made.dir, &segment, LEN, 0o600).unwrap();
    assert_eq!(entries, built.len());
    let path = made.dir.join(names::index(3));
    assert_eq!(made.memory.stat(&path).unwrap().len, file_len(LEN));
    let opened = [Reading::Map, Reading::Pread]
        .map(|reading| Index::open_existing(&made.memory, &made.dir, &made.open(reading)).unwrap());
    for index in opened.iter().chain([&built]) {
        for topic in 0..2 {
            for offset in 10..30 {
                let found = index.find(topic, |entry| entry.offset <= offset).unwrap();
                assert!(found.topic == topic && found.offset <= offset);
                let next = (0..built.len())
                    .filter_map(|i| built.position(i))
                    .filter(|position| *position > found.position)
                    .filter_map(|position| segment.block(position, Check::Full).unwrap())
                    .find(|block| block.header.topic == topic);
                let next = next.map(|block| 10 + u64::from(block.header.offset));
                assert!(next.is_none_or(|next| next > offset), "it must be the last one that fits");
            }
            assert_eq!(index.find(topic, |entry| entry.offset < 10), None);
        }
        assert_eq!(index.find(7, |_| true), None);
        assert_eq!(index.encode(&segment), built.encode(&segment));
    }
}

#[test]
fn a_corrupt_index_entry_never_leads_to_a_wrong_record() {
    let made = many_records();
    let segment = made.open(Reading::Map);
    let built = Index::build(&segment);
    built.save(&made.memory, &made.dir, &segment, LEN, 0o600).unwrap();
    let path = made.dir.join(names::index(3));
    let file = made.memory.open(&path, OpenMode::ReadWrite).unwrap();
    for i in 0..built.len() {
        for byte in [4, 8, 16, 24] {
            let at = INDEX_HEADER as u64 + i * ENTRY_LEN as u64 + byte;
            let mut kept = [0];
            file.read_at(&mut kept, at).unwrap();
            file.write_at(&[kept[0] ^ 0x41], at).unwrap();
            let index = Index::open_existing(&made.memory, &made.dir, &segment).unwrap();
            for offset in [10, 17, 29] {
                let found = index.find(0, |entry| entry.offset <= offset);
                let sound = found.is_none_or(|found| {
                    let block = segment.block(found.position, Check::Full).unwrap().unwrap();
                    found.topic == 0 && found.offset == 10 + u64::from(block.header.offset)
                });
                assert!(sound, "entry {i}, byte {byte}: {found:?}");
            }
            let read = Index::load(&made.memory, &made.dir, &segment);
            assert!(
                matches!(read, Err(Error::CorruptData { position, .. }) if position == at - byte)
            );
            file.write_at(&kept, at).unwrap();
        }
    }
    assert_eq!(Index::load(&made.memory, &made.dir, &segment).unwrap().len() as u64, built.len());
}

#[test]
fn an_entry_that_there_is_no_room_for_is_left_out() {
    let made = four_records();
    let segment = made.open(Reading::Map);
    Index::replace(&made.memory, &made.dir, &segment, 0, &[], 0o600).unwrap();
    let open = || Index::open_file(&made.memory, &made.dir, &segment, MapAccess::Write).unwrap();
    let index = open();
    assert_eq!(index.len(), 2, "an index has at least so many");
    let entry =
        |i: u64| IndexEntry { topic: 0, offset: i, position: made.blocks[1], highest_ns: 0 };
    let stored: Vec<_> = (0..4).map(|i| index.put(i, &entry(i)).unwrap()).collect();
    assert_eq!(stored, [true, true, false, false]);
    for index in [index, open()] {
        assert_eq!([0, 1, 2].map(|i| index.position(i).is_some()), [true, true, false]);
        assert_eq!(index.find(0, |_| true), Some(entry(1)));
        assert_eq!(index.find(0, |entry| entry.offset < 1), Some(entry(0)));
    }
    assert!(!Index::Built(Vec::new()).put(0, &entry(0)).unwrap(), "it has no file");
}

#[test]
fn an_index_of_another_segment_is_refused_and_one_that_cannot_be_made_leaves_nothing() {
    let made = four_records();
    let segment = made.open(Reading::Map);
    let index = Index::build(&segment);
    index.save(&made.memory, &made.dir, &segment, LEN, 0o600).unwrap();
    let path = made.dir.join(names::index(3));
    made.memory.open(&path, OpenMode::ReadWrite).unwrap().write_at(&[9], 40).unwrap();
    for found in [
        Index::open_existing(&made.memory, &made.dir, &segment).err(),
        Index::load(&made.memory, &made.dir, &segment).err(),
    ] {
        assert!(
            matches!(&found, Some(Error::CorruptData { path: p, .. }) if *p == path),
            "{found:?}"
        );
    }
    let before = made.memory.list(&made.dir).unwrap();
    for call in [Call::Open, Call::Allocate, Call::Write] {
        let faulty = FaultyStorage::over_memory(made.memory.clone());
        faulty.plan(Fault::at(1, FailureKind::Errno(libc::ENOSPC)).only(call));
        let saved = index.save(&faulty, &made.dir, &segment, LEN, 0o600);
        assert!(matches!(saved, Err(Error::NoSpace { .. })), "{call:?}");
        assert_eq!(made.memory.list(&made.dir).unwrap(), before, "{call:?}");
    }
}

#[test]
fn entries_are_paced_by_bytes_and_by_topics_not_seen_yet() {
    let mut pacer = IndexSampler::default();
    assert!(pacer.wants(0, 0) && pacer.wants(1, 0));
    assert!(pacer.is_due(0, 4096), "the first of all");
    assert!(!pacer.is_due(0, 4096 + STRIDE - 1));
    assert!(pacer.is_due(70, 4100), "the first of its topic");
    assert!(!pacer.wants(70, 4104) && pacer.wants(6, 4104) && pacer.wants(71, 4104));
    assert!(!pacer.wants(70, 4100 + STRIDE - 1) && pacer.wants(70, 4100 + STRIDE));
    pacer.note(0, 20_000);
    pacer.note(0, 10_000);
    assert!(!pacer.is_due(0, 20_000 + STRIDE - 1), "an older block must not reset the pace");
    assert!(pacer.is_due(0, 20_000 + STRIDE));
}
