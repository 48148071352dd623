//! Corruption below the durable mark: no offset is used again, whichever block is corrupt and
//! whichever process comes next.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::common::place::Place;
use crate::common::*;
use falaj::internals::error::Error;
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::{Log, RepairKind, mend, plan};
use falaj::internals::segment::walk::SegmentWalker;
use falaj::internals::segment::{Check, Reading, Segment};
use falaj::internals::storage::{OpenMode, Storage};

const TOPICS: u32 = 3;

/// Changes to the header of a block.
const HURTS: [(&str, u64, &[u8]); 5] = [
    ("its commit word is zero", 0, &[0; 8]),
    ("its commit word is another", 0, &[0xa5; 8]),
    ("its header's checksum", 12, &[0x5a; 4]),
    ("its offset and count", 16, &[0xff; 8]),
    ("its whole header", 0, &[0x77; 36]),
];

/// A closed log of several topics, one with only a block or two, in two segments.
fn closed(mode: WriteMode) -> (Place, BTreeMap<u32, u64>) {
    let p = Place::new(TOPICS, mode);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 2, &[b"the only one of its topic here"]).unwrap();
    append(&log, 0, &[b"a", b"b"]).unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"a", b"b", b"c"]).unwrap();
    append(&log, 1, &[b"one"]).unwrap();
    append(&log, 0, &[&[b'x'; 200]]).unwrap();
    append_groups(&log, &[(1, &[b"in a", b"group"]), (2, &[b"with others"])]).unwrap();
    append(&log, 0, &[b"d", b"e"]).unwrap();
    append(&log, 1, &[b"the last one"]).unwrap();
    log.sync_clean().unwrap();
    let ends = (0..TOPICS).map(|topic| (topic, end(&log, topic))).collect();
    drop(log);
    (p, ends)
}

fn append_values(log: &Log, count: usize) {
    for _ in 0..count {
        append(log, 0, &[b"value"]).unwrap();
    }
}

fn end(log: &Arc<Log>, topic: u32) -> u64 {
    log.offset_at(topic, log.committed().unwrap()).unwrap()
}

/// Positions of all blocks of a segment.
fn blocks(p: &Place, sequence: u64) -> Vec<u64> {
    let s = &*p.storage;
    let segment = Segment::open_to_read(s, &p.dir, LOG, sequence, 0, Reading::Pread).unwrap();
    let mut walk = SegmentWalker::new();
    let mut found = Vec::new();
    loop {
        found.push(walk.position);
        if !matches!(walk.step(&segment, Check::Full), Ok(Some(_))) {
            found.pop();
            return found;
        }
    }
}

fn hurt(storage: &Arc<dyn Storage>, p: &Place, sequence: u64, position: u64, bytes: &[u8]) {
    let path = p.dir.join(names::segment(sequence));
    storage.open(&path, OpenMode::ReadWrite).unwrap().write_at(bytes, position).unwrap();
}

/// Offsets of a topic that a reader finds when it skips all corruption.
fn offsets(log: &Arc<Log>, topic: u32) -> Vec<u64> {
    let mut cursor = log.cursor_at(topic, 0, Check::Full).unwrap();
    let mut found = Vec::new();
    for _ in 0..100 {
        match cursor.next_block() {
            Ok(Some(block)) => found.extend(block.first()..block.end()),
            Ok(None) => return found,
            Err(_) => drop(cursor.skip_damage()),
        }
    }
    panic!("a reader of topic {topic} loops: {found:?}");
}

/// Append to every topic in turn, and check that no offset is used again.
fn append_beyond(log: &Arc<Log>, ends: &BTreeMap<u32, u64>, what: &str) -> BTreeMap<u32, u64> {
    let mut after = BTreeMap::new();
    for (topic, end) in ends {
        let first = append(log, *topic, &[b"new", b"new"]).unwrap().first;
        assert!(first >= *end, "{what}: topic {topic} uses {first} again, its end was {end}");
        assert!(first < end + 1000, "{what}: topic {topic} jumps from {end} to {first}");
        after.insert(*topic, first + 2);
    }
    after
}

#[test]
fn damage_in_any_header_never_makes_an_offset_be_given_again() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let (p, ends) = closed(mode);
        let (mut exact, mut refused) = (0, 0);
        for position in blocks(&p, 1) {
            for (name, at, bytes) in HURTS {
                let what = format!("{mode:?}, block at {position}, {name}");
                let image: Arc<dyn Storage> = Arc::new(p.memory.survivor());
                hurt(&image, &p, 1, position + at, bytes);
                let log = match open_as(&image, &p.dir, TestMember::new(0, 2), mode) {
                    Ok(log) => log,
                    Err(error) => {
                        assert!(matches!(error, Error::CorruptData { .. }), "{what}: {error}");
                        refused += 1;
                        continue;
                    }
                };
                let after = append_beyond(&log, &ends, &what);
                exact += after.iter().filter(|(topic, end)| ends[topic] + 2 == **end).count();
                for topic in 0..TOPICS {
                    let found = offsets(&log, topic);
                    assert!(found.is_sorted_by(|a, b| a < b), "{what}: {found:?}");
                    assert_eq!(found.last(), Some(&(after[&topic] - 1)), "{what}");
                }
                // A later process finds what this one left.
                drop(log);
                let log = open_as(&image, &p.dir, TestMember::new(0, 3), mode).unwrap();
                let again = append_beyond(&log, &after, &what);
                assert!(again.iter().all(|(topic, end)| after[topic] + 2 == *end), "{what}");
            }
        }
        assert_eq!(refused, 0, "a log with a corrupt block must take appends");
        assert!(exact > 60, "{exact}: later blocks must give exact offsets");
    }
}

/// The place of each block of records: topic, offsets, position, and whether it is in no group.
fn places(p: &Place, log: &Arc<Log>, sequence: u64) -> Vec<(u32, Range<u64>, u64, bool)> {
    let segment =
        Segment::open_to_read(&*p.storage, &p.dir, LOG, sequence, 0, Reading::Pread).unwrap();
    let mut found = Vec::new();
    for topic in 0..TOPICS {
        let mut cursor = log.cursor_at(topic, 0, Check::Full).unwrap();
        while let Some(data) = cursor.next_block().unwrap() {
            if data.path().ends_with(names::segment(sequence)) {
                let header = segment.block(data.position(), Check::Full).unwrap().unwrap().header;
                let alone = header.group_len == 0 && !header.is_member();
                found.push((topic, data.first()..data.end(), data.position(), alone));
            }
        }
    }
    found
}

#[test]
fn damage_in_a_header_hides_what_is_in_that_block_and_nothing_behind_it() {
    let (p, ends) = closed(WriteMode::Mapped);
    let whole = open_to_read(&p.storage, &p.dir).unwrap();
    let tail = whole.committed().unwrap();
    let places = places(&p, &whole, 1);
    for (damaged, how) in places.iter().flat_map(|place| HURTS.map(|how| (place, how))) {
        let image: Arc<dyn Storage> = Arc::new(p.memory.survivor());
        hurt(&image, &p, 1, damaged.2 + how.1, how.2);
        let log = open_to_read(&image, &p.dir).unwrap();
        for (topic, offsets, position, _) in &places {
            let what = format!("{} at {}: topic {topic}, {offsets:?}", how.0, damaged.2);
            // The first record introduces a topic. If it is corrupt, only the way there tells where
            // the topic is.
            for offset in offsets.clone().filter(|offset| *offset > 0) {
                let cursor = log.cursor_at(*topic, offset, Check::Full);
                match cursor.and_then(|mut cursor| Ok(cursor.next_block()?.cloned())) {
                    Ok(found) => {
                        let found = found.unwrap();
                        assert_eq!((found.first(), found.position()), (offsets.start, *position));
                        assert_ne!(*position, damaged.2, "{what}");
                    }
                    Err(Error::CorruptData { .. }) => {
                        assert!(*position == damaged.2 || !damaged.3, "{what}");
                    }
                    Err(other) => panic!("{what}: {other}"),
                }
            }
        }
        for (topic, end) in &ends {
            let is_told = places.iter().any(|place| place.0 == *topic && place.2 > damaged.2);
            match log.offset_at(*topic, tail) {
                Ok(found) => assert_eq!(found, *end, "{} at {}", how.0, damaged.2),
                Err(error) => assert!(!is_told || !damaged.3, "{error}: {} {damaged:?}", how.0),
            }
        }
    }
}

#[test]
fn damage_in_any_body_costs_no_offset_at_all() {
    let (p, mut ends) = closed(WriteMode::Mapped);
    // The log was not closed, so recovery checks bodies too.
    let log = p.open(TestMember::new(0, 2));
    append(&log, 0, &[b"one more"]).unwrap();
    log.sync().unwrap();
    log.sync_mark().unwrap();
    std::mem::forget(log);
    ends.entry(0).and_modify(|end| *end += 1);
    let s = &*p.storage;
    let segment = Segment::open_to_read(s, &p.dir, LOG, 1, 0, Reading::Pread).unwrap();
    for position in blocks(&p, 1).into_iter().skip(2) {
        let image: Arc<dyn Storage> = Arc::new(p.memory.survivor());
        let block = segment.block(position, Check::Full).unwrap().unwrap();
        hurt(&image, &p, 1, block.body(), &[0x33]);
        let told = plan(&image, &p.dir, &settings(p.mode), 3).unwrap();
        assert!(told.steps.is_empty(), "{:?}", told.steps);
        let log = open(&image, &p.dir, TestMember::new(0, 3)).unwrap();
        for (topic, end) in &ends {
            let first = append(&log, *topic, &[b"new"]).unwrap().first;
            assert_eq!(first, *end, "block at {position}: topic {topic}");
        }
    }
}

#[test]
fn a_process_that_comes_after_the_damage_gives_no_offset_again() {
    for (name, at, bytes) in HURTS {
        let (p, ends) = closed(WriteMode::Mapped);
        let member = TestMember::new(0, 2);
        let (other, third) = (member.beside(1), member.beside(2));
        let first = p.open(member);
        // The first process knows the end; the others find the corruption between the last recovery
        // and the end.
        let positions = blocks(&p, 1);
        append(&first, 0, &[b"known to the first"]).unwrap();
        // The last block of topic 1; only the one of topic 0 follows it.
        hurt(&p.storage, &p, 1, positions[positions.len() - 1] + at, bytes);
        let second = p.open(other);
        assert!(append(&second, 0, &[b"the block behind tells"]).unwrap().first >= ends[&0]);
        let given = append(&second, 1, &[b"beyond"]).unwrap().first;
        assert!(given >= ends[&1], "{name}: {given}");
        assert_eq!(append(&first, 1, &[b"both agree"]).unwrap().first, given + 1, "{name}");
        let third = p.open(third);
        assert_eq!(append(&third, 1, &[b"all agree"]).unwrap().first, given + 2, "{name}");
    }
}

#[test]
fn a_log_of_one_topic_goes_on_with_the_next_offset_behind_damage() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append_values(&log, 10);
    log.sync_clean().unwrap();
    drop(log);
    let positions = blocks(&p, 0);
    for (i, position) in positions.iter().enumerate().skip(1) {
        for (name, at, bytes) in HURTS {
            let image: Arc<dyn Storage> = Arc::new(p.memory.survivor());
            hurt(&image, &p, 0, position + at, bytes);
            let log = open(&image, &p.dir, TestMember::new(0, 2)).unwrap();
            let first = append(&log, 0, &[b"new"]).unwrap().first;
            let is_last = i == positions.len() - 1;
            assert!(if is_last { first >= 10 } else { first == 10 }, "block {i}, {name}: {first}");
            let found = offsets(&log, 0);
            assert_eq!(found.len(), 10, "block {i}, {name}: one is lost, one is new");
            let (_, ended) = read_all(&log, 0, 0);
            assert!(
                matches!(ended, Err(Error::CorruptData { .. })),
                "the reader must get an error: {ended:?}"
            );
        }
    }
}

/// A reader that came before the corruption was noticed gets an error for the gap, and can skip it.
#[test]
fn a_jump_over_offsets_that_may_be_lost_is_an_error_for_readers() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append_values(&log, 3);
    log.sync_clean().unwrap();
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    let mut cursor = reader.cursor_at(0, 0, Check::Full).unwrap();
    while cursor.next_block().unwrap().is_some() {}
    drop(log);
    let last = *blocks(&p, 0).last().unwrap();
    hurt(&p.storage, &p, 0, last, &[0xee; 20]);
    let log = p.open(TestMember::new(0, 2));
    let first = append(&log, 0, &[b"new"]).unwrap().first;
    assert!(first > 3, "{first}");
    let error = cursor.next_block().unwrap_err();
    assert!(matches!(error, Error::CorruptData { .. }), "{error}");
    assert_eq!(cursor.skip_damage().unwrap(), first);
    assert_eq!(cursor.next_block().unwrap().unwrap().first(), first);
    let lost =
        log.cursor_at(0, first - 1, Check::Full).unwrap().next_block().map(drop).unwrap_err();
    assert!(
        matches!(lost, Error::CorruptData { .. }),
        "a lost offset must not give another record: {lost}"
    );
}

#[test]
fn what_a_recovery_will_go_on_with_is_told_before() {
    let (p, ends) = closed(WriteMode::Mapped);
    let last = *blocks(&p, 1).last().unwrap();
    hurt(&p.storage, &p, 1, last, &[0; 8]);
    let told = plan(&p.storage, &p.dir, &settings(p.mode), 2).unwrap();
    let leaps: Vec<_> =
        told.steps.iter().filter(|step| step.mend == RepairKind::GoBeyond).collect();
    assert_eq!(leaps.len(), TOPICS as usize, "{leaps:?}");
    assert!(leaps.iter().all(|step| step.position == last));
    let log = p.open(TestMember::new(0, 2));
    let done = log.mend_offsets().unwrap();
    assert_eq!(told.steps, done, "a dry run must list what a repair does");
    assert!(log.mend_offsets().unwrap().is_empty());
    for (topic, next) in told.ends {
        assert!(next >= ends[&topic]);
        assert_eq!(append(&log, topic, &[b"new"]).unwrap().first, next);
    }
}

/// Only the first snapshot says which topics a log has. Without it falaj does not guess.
#[test]
fn a_log_whose_first_snapshot_is_damaged_is_refused_and_not_emptied() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append_values(&log, 3);
    log.sync_clean().unwrap();
    drop(log);
    hurt(&p.storage, &p, 0, FIRST_BLOCK + 40, &[0xee; 4]);
    let before = p.storage.list(&p.dir).unwrap();
    let error = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap_err();
    assert!(matches!(error, Error::CorruptData { position: FIRST_BLOCK, .. }), "{error}");
    let error = mend(&p.storage, &p.dir, &settings(p.mode), &TestMember::new(0, 2)).unwrap_err();
    assert!(matches!(error, Error::CorruptData { position: FIRST_BLOCK, .. }), "{error}");
    assert_eq!(before, p.storage.list(&p.dir).unwrap(), "the log must be unchanged");
}

#[test]
fn what_was_durable_is_not_given_again_where_its_segments_are_lost() {
    for lost in [1..=1, 2..=2, 1..=2] {
        let p = Place::new(1, WriteMode::Mapped);
        let log = p.open(TestMember::new(0, 1));
        for _ in 0..3 {
            append_values(&log, 5);
            log.roll_now().unwrap();
        }
        append_values(&log, 5);
        log.sync_clean().unwrap();
        drop(log);
        lost.clone().for_each(|s| p.storage.unlink(&p.dir.join(names::segment(s))).unwrap());
        mend(&p.storage, &p.dir, &settings(p.mode), &TestMember::new(0, 2)).unwrap();
        let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
        assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 20, "without {lost:?}");
    }
    // Nothing is left that says how many records there were, so the next offset is past all that a
    // segment can hold.
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append_values(&log, 5);
    log.roll_now().unwrap();
    append_values(&log, 5);
    log.sync_clean().unwrap();
    drop(log);
    p.storage.unlink(&p.dir.join(names::segment(1))).unwrap();
    mend(&p.storage, &p.dir, &settings(p.mode), &TestMember::new(0, 2)).unwrap();
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 5 + (1 << 32));
}

/// A second snapshot holds what changed since the first was prepared.
///
/// Without the second, the first would give every record of the segment a wrong offset.
#[test]
fn a_segment_without_its_second_snapshot_is_not_read_with_wrong_offsets() {
    for (name, at, bytes) in HURTS {
        let p = Place::new(1, WriteMode::Mapped);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"zero"]).unwrap();
        // Sets the failed-sync state with the next segment prepared, and keeps that segment.
        p.set_latch();
        log.roll_now().unwrap();
        append(&log, 0, &[b"one"]).unwrap();
        log.roll_now().unwrap();
        append(&log, 0, &[b"two"]).unwrap();
        append(&log, 0, &[b"three"]).unwrap();
        log.sync_clean().unwrap();
        let newest = log.committed().unwrap().sequence();
        drop(log);
        hurt(&p.storage, &p, newest, blocks(&p, newest)[1] + at, bytes);
        let log = p.open(TestMember::new(0, 2));
        for log in [log, open_to_read(&p.storage, &p.dir).unwrap()] {
            for from in 0..4 {
                let (found, ended) = read_all(&log, 0, from);
                assert!(matches!(ended, Err(Error::CorruptData { .. })), "{name}: {ended:?}");
                let sound = [(0, b"zero".to_vec()), (1, b"one".to_vec())];
                assert_eq!(found, sound[sound.len().min(from as usize)..], "{name}");
            }
        }
        let log = p.open(TestMember::new(0, 3));
        assert_eq!(append(&log, 0, &[b"four"]).unwrap().first, 4, "{name}");
    }
}
