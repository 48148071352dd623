//! Corruption at the beginning of a segment: marks, snapshots, headers.

use super::*;
use crate::common::{open, settings};
use falaj::internals::error::Error;
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::format::index::IndexEntry;
use falaj::internals::format::segment::{HEADER_LEN, MARK_LEN, MARKS, SegmentHeader};
use falaj::internals::format::{VERSION, checksum, names};
use falaj::internals::log::{RepairKind, mend, plan};
use falaj::internals::segment::Check;

#[test]
fn a_log_without_a_sound_mark_is_checked_from_its_beginning_and_nothing_of_it_is_lost() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for i in 0..3u8 {
        append(&log, 0, &[&[i]]).unwrap();
        log.roll_now().unwrap();
    }
    append(&log, 0, &[&[3]]).unwrap();
    log.sync_clean().unwrap();
    drop(log);
    for sequence in p.segments() {
        let path = p.dir.join(names::segment(sequence));
        MARKS.iter().for_each(|at| rewrite(&p.storage, &path, *at, &[0; MARK_LEN]));
    }
    let log = p.open(TestMember::new(0, 2));
    assert_eq!(values_of(&log, 0), [[0], [1], [2], [3]]);
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 4);
}

/// A closed log of two segments, and the positions of the blocks of each.
fn two_segments() -> (Place, [Vec<u64>; 2]) {
    let p = Place::new(2, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"a"]).unwrap();
    append(&log, 1, &[b"b"]).unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"c"]).unwrap();
    append(&log, 1, &[b"d"]).unwrap();
    log.sync_clean().unwrap();
    drop(log);
    let blocks = [0, 1].map(|sequence| {
        let segment = segment_of(&p.storage, &p.dir, sequence);
        let (mut position, mut found) = (FIRST_BLOCK, Vec::new());
        while let Some(block) = segment.block(position, Check::Full).unwrap() {
            found.push(position);
            position = block.end();
        }
        found
    });
    (p, blocks)
}

#[test]
fn a_corrupt_snapshot_is_restored_only_from_certain_facts() {
    let (sound, [before, after]) = two_segments();
    // The bytes that are corrupt besides the snapshot (segment, position), and whether the next
    // offsets can still be found.
    type Case<'a> = (&'a str, &'a [(u64, u64)], bool);
    let index_of_1 = sound.dir.join(names::index(1));
    let cases: [Case<'_>; 6] = [
        ("nothing else", &[], true),
        ("the snapshot before", &[(0, before[0] + 40)], false),
        ("a header before", &[(0, before[1] + 12)], false),
        ("the second snapshot", &[(1, after[1] + 12)], true),
        ("the record behind it", &[(1, after[2] + 12)], true),
        ("both of these", &[(1, after[1] + 12), (1, after[2] + 12)], true),
    ];
    for (what, hurts, certain) in cases {
        for forged_index in [false, true] {
            let image: Arc<dyn Storage> = Arc::new(sound.memory.survivor());
            let flip = |sequence: u64, position: u64| {
                let path = sound.dir.join(names::segment(sequence));
                rewrite(&image, &path, position, &[0xee; 4]);
            };
            flip(1, after[0] + 40);
            hurts.iter().for_each(|(sequence, position)| flip(*sequence, *position));
            let first_is_there = hurts.iter().all(|hurt| *hurt != (1, after[2] + 12));
            if forged_index {
                // It gives a valid block another offset than the segment before does.
                let salt = segment_of(&image, &sound.dir, 1).salt();
                let entry = IndexEntry { topic: 0, offset: 7, position: after[2], highest_ns: 1 };
                rewrite(&image, &index_of_1, 64, &entry.encode(salt));
            }
            let contradicted = forged_index && first_is_there;
            let log = open(&image, &sound.dir, TestMember::new(0, 2));
            if !certain || contradicted {
                let error = log.unwrap_err();
                assert!(matches!(error, Error::CorruptData { .. }), "{what}: {error}");
                continue;
            }
            let log = log.unwrap_or_else(|error| panic!("{what}, {forged_index}: {error}"));
            for topic in 0..2 {
                let given = append(&log, topic, &[b"new"]).unwrap().first;
                assert!((2..1000).contains(&given), "{what}: topic {topic} continues with {given}");
            }
        }
    }
}

/// All its blocks are corrupt, so only its mark shows how many records there were.
#[test]
fn a_segment_of_which_nothing_is_left_gives_no_offset_again() {
    let (p, [_, after]) = two_segments();
    for position in &after {
        rewrite(&p.storage, &p.dir.join(names::segment(1)), *position, &[0xee; 16]);
    }
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    for topic in 0..2 {
        let given = append(&log, topic, &[b"new"]).unwrap().first;
        assert!(given >= 2, "topic {topic} continues with {given}");
    }
}

/// A closed log of four segments, with a record in each.
fn closed() -> Place {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for value in [b"a", b"b", b"c"] {
        append(&log, 0, &[value]).unwrap();
        log.roll_now().unwrap();
    }
    append(&log, 0, &[b"d"]).unwrap();
    log.sync_clean().unwrap();
    p
}

/// This holds wherever it is. An older falaj that treated it as corruption would move the log's end
/// aside.
#[test]
fn a_segment_of_a_newer_version_is_refused_by_name_and_left_where_it_is() {
    for sequence in 0..4 {
        let p = closed();
        let path = p.dir.join(names::segment(sequence));
        let mut bytes = segment_of(&p.storage, &p.dir, sequence).header().encode();
        bytes[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        let crc = checksum::crc32(&bytes[..HEADER_LEN - 4]);
        bytes[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        rewrite_header(&p.storage, &path, &bytes);
        let before = p.storage.list(&p.dir).unwrap();
        let newer = |error: Error| {
            let named =
                matches!(&error, Error::UnsupportedVersion { path: named, .. } if *named == path);
            assert!(named, "segment {sequence}: {error}");
        };
        newer(plan(&p.storage, &p.dir, &settings(p.mode), 2).unwrap_err());
        if sequence >= 2 {
            // The others lie before what the last incarnation wrote; their readers get an error.
            let member = TestMember::new(0, 2);
            newer(mend(&p.storage, &p.dir, &settings(p.mode), &member).unwrap_err());
            newer(open(&p.storage, &p.dir, member).unwrap_err());
        }
        assert_eq!(p.storage.list(&p.dir).unwrap(), before, "segment {sequence}");
    }
}

#[test]
fn a_newest_segment_without_a_header_is_named_and_what_it_held_is_told() {
    let p = closed();
    let path = p.dir.join(names::segment(3));
    rewrite_header(&p.storage, &path, &[0; HEADER_LEN]);
    let error = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap_err();
    assert!(matches!(&error, Error::CorruptData { path: named, .. } if *named == path), "{error}");
    let told = plan(&p.storage, &p.dir, &settings(p.mode), 2).unwrap();
    assert!(
        told.steps.iter().all(|step| step.mend != RepairKind::RestoreHeader),
        "{:?}",
        told.steps
    );
    assert_eq!(told.ends, [(0, 3 + (1 << 32))], "past all that the lost segment could hold");
}

/// An index entry is only a hint: one that leads to no record of its topic says nothing.
#[test]
fn an_index_entry_of_another_topic_neither_proves_nor_disproves() {
    let (p, [_, after]) = two_segments();
    let salt = segment_of(&p.storage, &p.dir, 1).salt();
    let entry = IndexEntry { topic: 1, offset: 7, position: after[2], highest_ns: 1 };
    rewrite(&p.storage, &p.dir.join(names::index(1)), 64, &entry.encode(salt));
    rewrite(&p.storage, &p.dir.join(names::segment(1)), after[0] + 40, &[0xee; 4]);
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    assert_eq!([0, 1].map(|topic| append(&log, topic, &[b"new"]).unwrap().first), [2, 2]);
}

/// The segment before is another one than the header names, or ends in the middle of a block.
#[test]
fn a_segment_before_that_does_not_end_where_it_should_tells_nothing() {
    for (salt, end) in [(1, 0), (0, 8)] {
        let p = closed();
        // The newest mark is in segment 2, whose snapshot is corrupt.
        let newest = p.dir.join(names::segment(3));
        MARKS.iter().for_each(|at| rewrite(&p.storage, &newest, *at, &[0; MARK_LEN]));
        let path = p.dir.join(names::segment(2));
        let header = segment_of(&p.storage, &p.dir, 2).header().clone();
        let mut previous = header.previous.unwrap();
        previous.salt ^= salt;
        previous.end -= end;
        let header = SegmentHeader { previous: Some(previous), ..header };
        rewrite_header(&p.storage, &path, &header.encode());
        rewrite(&p.storage, &path, FIRST_BLOCK + 40, &[0xee; 4]);
        let error = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap_err();
        let told = matches!(&error, Error::CorruptData { path: named, .. } if *named == path);
        assert!(told, "{salt}, {end}: {error}");
    }
}

/// A segment that is left behind a lost one shows how far the topics came, if it can be walked.
#[test]
fn where_a_left_over_segment_is_hurt_too_offsets_go_on_beyond_what_any_can_number() {
    for (snapshot_too, next) in [(false, 4), (true, 4 + (1 << 32))] {
        let p = closed();
        let end = segment_of(&p.storage, &p.dir, 3).header().previous.unwrap().end;
        p.storage.unlink(&p.dir.join(names::segment(1))).unwrap();
        let path = p.dir.join(names::segment(2));
        // Its end names the last segment no more, so both are left over.
        rewrite(&p.storage, &path, end, &[0xee; 8]);
        if snapshot_too {
            rewrite(&p.storage, &path, FIRST_BLOCK + 40, &[0xee; 4]);
        }
        mend(&p.storage, &p.dir, &settings(p.mode), &TestMember::new(0, 2)).unwrap();
        let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
        assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, next);
    }
}

/// Without a control page a reader cannot see what could be repaired.
#[test]
fn a_log_without_a_control_page_has_no_offsets_to_mend() {
    let p = left();
    p.storage.unlink(&p.dir.join("control")).unwrap();
    let log = crate::common::open_to_read(&p.storage, &p.dir).unwrap();
    assert_eq!(log.offsets_to_mend().unwrap(), []);
}
