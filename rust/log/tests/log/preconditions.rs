//! Conditional appends: no record twice, and none where another writer was faster.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::common::place::Place;
use crate::common::*;
use falaj::internals::error::Error;
use falaj::internals::format::block::Producer;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::{CursorMove, Log, Precondition};
use falaj::internals::storage::Storage;
use falaj::internals::store::{Access, Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{
    After, BodyWriter, CursorState, NewRecord, SequenceSpan, SyncMode, Topic,
};
use falaj_twin::faulty::Call;

const SEGMENT: u64 = 64 << 10;

fn topic(at: &Path, partitions: u32) -> Topic {
    let store = Store::open_with(at, &StoreOptions::default()).unwrap();
    let options = TopicOptions {
        segment_bytes: Some(SEGMENT),
        partitions: Some(partitions),
        ..TopicOptions::default()
    };
    Topic::open(&store, "jobs", &options).unwrap()
}

fn once(topic: &Topic, name: &str, sequence: u64) -> Result<u64, Error> {
    let value = format!("{name} {sequence}");
    let once = [topic.expect_sequence(name, sequence)?];
    topic.append_if_to(0, &NewRecord::new(value.as_bytes()), &once, None)
}

fn fill(topic: &Topic, segments: u64) {
    for _ in 0..segments * SEGMENT / 1000 {
        topic.append_to(0, &NewRecord::new(&[b'x'; 1000]), Some(SyncMode::None)).unwrap();
    }
}

fn value_at(topic: &Topic, offset: u64) -> Vec<u8> {
    topic.get_in(0, offset).unwrap().value().unwrap().to_vec()
}

#[test]
fn a_repeat_is_not_appended_and_answered_with_the_first_offset() {
    let place = tempfile::tempdir().unwrap();
    let topic = topic(place.path(), 1);
    topic.append_to(0, &NewRecord::new(b"before"), None).unwrap();
    assert_eq!(once(&topic, "p", 100).unwrap(), 1);
    assert_eq!(once(&topic, "q", 0).unwrap(), 2);
    assert_eq!(once(&topic, "p", 101).unwrap(), 3);
    for _ in 0..3 {
        assert_eq!(once(&topic, "p", 100).unwrap(), 1);
        assert_eq!(once(&topic, "p", 101).unwrap(), 3);
        assert_eq!(once(&topic, "q", 0).unwrap(), 2);
    }
    assert_eq!(topic.end(0).unwrap(), 4);
    assert_eq!(value_at(&topic, 3), b"p 101");
}

#[test]
fn the_last_five_are_known_after_rolls_and_reopening() {
    let place = tempfile::tempdir().unwrap();
    let mut firsts = Vec::new();
    for sequence in 0..12u64 {
        let topic = topic(place.path(), 1);
        firsts.push(once(&topic, "p", sequence).unwrap());
        if sequence % 3 == 2 {
            fill(&topic, 3);
        }
        let oldest = sequence.saturating_sub(4);
        let end = topic.end(0).unwrap();
        for known in oldest..=sequence {
            assert_eq!(once(&topic, "p", known).unwrap(), firsts[known as usize]);
        }
        for forgotten in 0..oldest {
            let told = once(&topic, "p", forgotten).unwrap_err();
            assert!(matches!(told, Error::DuplicateSequence { .. }), "{told}");
        }
        let told = once(&topic, "p", sequence + 2).unwrap_err();
        assert!(
            matches!(told, Error::OutOfOrderSequence { next, .. } if next == sequence + 1),
            "{told}"
        );
        assert_eq!(topic.end(0).unwrap(), end, "something was appended");
        assert_eq!(topic.last_sequence("p").unwrap(), Some(sequence));
        assert_eq!(topic.last_sequence("nobody").unwrap(), None);
    }
}

#[test]
fn a_repeat_through_another_handle_is_one_too() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (topic(place.path(), 1), topic(place.path(), 1));
    for sequence in 0..300 {
        let handle = if sequence % 2 == 0 { &one } else { &other };
        let first = once(handle, "p", sequence).unwrap();
        assert_eq!(once(&one, "p", sequence).unwrap(), first);
        assert_eq!(once(&other, "p", sequence).unwrap(), first);
    }
    assert_eq!(one.end(0).unwrap(), 300);
}

#[test]
fn of_many_who_expect_an_offset_one_gets_it() {
    let place = tempfile::tempdir().unwrap();
    let appended = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let topic = topic(place.path(), 1);
                for _ in 0..200 {
                    let next = topic.end(0).unwrap();
                    let (expected, record) = (topic.expect_offset_in(0, next), next.to_string());
                    let record = NewRecord::new(record.as_bytes());
                    match topic.append_if_to(0, &record, &[expected.unwrap()], None) {
                        Ok(offset) => {
                            assert_eq!(offset, next);
                            appended.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(Error::OffsetConflict { expected, next: now, .. }) => {
                            assert_eq!(expected, next);
                            assert!(now > next);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    let topic = topic(place.path(), 1);
    let end = topic.end(0).unwrap();
    assert_eq!(end, appended.load(Ordering::Relaxed));
    (0..end).for_each(|i| assert_eq!(value_at(&topic, i), i.to_string().as_bytes()));
}

fn body(values: &[&[u8]]) -> BodyWriter {
    let mut body = BodyWriter::default();
    body.begin(false, None);
    values.iter().for_each(|value| body.push(&NewRecord::new(value)));
    body
}

#[test]
fn a_producers_sequence_runs_over_all_partitions() {
    let place = tempfile::tempdir().unwrap();
    let topic = topic(place.path(), 3);
    let (one, two) = (body(&[b"1", b"2"]), body(&[b"3"]));
    let parts = [(0, &one), (2, &two)];
    let commit = |parts: &[(u32, &BodyWriter)], sequence| {
        let once = [topic.expect_sequence("p", sequence).unwrap()];
        topic.commit_bodies_if(parts, &once, None).map(|(ranges, _)| ranges)
    };
    assert_eq!(commit(&parts, 7).unwrap(), [0..2, 0..1]);
    assert_eq!(commit(&parts, 7).unwrap(), [0..2, 0..1]);
    assert_eq!(commit(&[(1, &one)], 8).unwrap().first(), Some(&(0..2)));
    // Records in partitions 0 and 2 come before those in 1.
    assert_eq!(commit(&parts, 7).unwrap(), [0..2, 0..1]);
    let told = commit(&[(0, &one)], 10).unwrap_err();
    assert!(matches!(told, Error::OutOfOrderSequence { next: 9, .. }), "{told}");
    let told = commit(&[(0, &one)], 8).unwrap_err().to_string();
    assert!(told.contains("other partitions"), "{told}");
    assert_eq!([0, 1, 2].map(|p| topic.end(p).unwrap()), [2, 2, 1]);
}

#[test]
fn an_append_to_several_partitions_may_expect_the_end_of_each() {
    let place = tempfile::tempdir().unwrap();
    let topic = topic(place.path(), 3);
    let (one, two) = (body(&[b"1", b"2"]), body(&[b"3"]));
    let commit = |expected: [(u32, u64); 2]| {
        let expected =
            expected.map(|(partition, next)| topic.expect_offset_in(partition, next).unwrap());
        topic.commit_bodies_if(&[(0, &one), (2, &two)], &expected, None).map(|(ranges, _)| ranges)
    };
    assert_eq!(commit([(0, 0), (2, 0)]).unwrap(), [0..2, 0..1]);
    for (wrong, conflict) in [([(0, 2), (2, 0)], (0, 1)), ([(0, 3), (2, 1)], (3, 2))] {
        let told = commit(wrong).unwrap_err();
        assert!(
            matches!(told, Error::OffsetConflict { expected, next, .. } if (expected, next) == conflict),
            "{told}"
        );
    }
    // A partition without a record in this append.
    assert_eq!(commit([(1, 0), (2, 1)]).unwrap(), [2..4, 1..2]);
    assert!(matches!(
        commit([(1, 1), (2, 2)]),
        Err(Error::OffsetConflict { expected: 1, next: 0, .. })
    ));
    assert_eq!([0, 1, 2].map(|p| topic.end(p).unwrap()), [4, 0, 2]);
    assert!(topic.expect_offset_in(3, 0).is_err());
}

#[test]
fn a_span_of_sequences_is_appended_once_and_the_next_follows_its_last() {
    let place = tempfile::tempdir().unwrap();
    for turn in 0..2 {
        // The repeat is recognised from the blocks, and from a snapshot.
        let topic = topic(place.path(), 1);
        let append = |span: std::ops::RangeInclusive<u64>| {
            let span = [topic.expect_sequence("p", span)?];
            let (ranges, _) = topic.commit_bodies_if(&[(0, &body(&[b"x", b"y"]))], &span, None)?;
            Ok::<_, Error>(ranges[0].start)
        };
        assert_eq!(append(5..=9).unwrap(), 0);
        assert_eq!(append(10..=11).unwrap(), 2);
        assert_eq!(append(5..=9).unwrap(), 0);
        for wrong in [11..=12, 13..=13] {
            let told = append(wrong).unwrap_err();
            assert!(matches!(told, Error::OutOfOrderSequence { next: 12, .. }), "{told}");
        }
        assert!(matches!(append(1..=4), Err(Error::DuplicateSequence { .. })));
        assert_eq!(topic.last_sequence("p").unwrap(), Some(11));
        assert!(turn > 0 || topic.end(0).unwrap() == 4, "a repeat was appended");
        fill(&topic, 2);
    }
    let topic = topic(place.path(), 1);
    let jump = SequenceSpan { after: After::Exactly(11), first: 100, last: 103 };
    let jump = [topic.expect_sequence("p", jump).unwrap()];
    let record = NewRecord::new(b"of another numbering");
    let offset = topic.append_if_to(0, &record, &jump, None).unwrap();
    assert_eq!(once(&topic, "p", 103).unwrap(), offset);
    for wrong in [
        SequenceSpan { after: After::Nothing, first: 3, last: 2 },
        SequenceSpan { after: After::Exactly(3), first: 3, last: 4 },
    ] {
        assert!(matches!(topic.expect_sequence("p", wrong), Err(Error::InvalidArgument { .. })));
    }
}

#[test]
fn a_repeat_is_one_whatever_else_it_requires() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    let body = encode(&[b"x"]);
    let append = |name: &str, sequence: u64, from: CursorState| {
        let to = CursorState { offset: 7, crc: 0, turn: 1 };
        let preconditions = [
            Precondition::NextOffset { topic: 0, offset: sequence },
            Precondition::Cursor(CursorMove {
                name: b"billing",
                to,
                from: Some(from),
                metadata: b"",
            }),
            Precondition::producer(name, sequence, 0..1),
        ];
        log.append_if(&preconditions, &[block_of(0, 1, body.body())], false, &mut [0])
    };
    assert_eq!(append("p", 0, CursorState::NONE).unwrap().first, 0);
    // Neither the offset nor the cursor exists any more.
    assert_eq!(append("p", 0, CursorState::NONE).unwrap().first, 0);
    // The first condition that fails is reported, and nothing is done.
    assert!(matches!(
        append("q", 0, CursorState::NONE),
        Err(Error::OffsetConflict { next: 1, .. })
    ));
    assert!(matches!(append("q", 1, CursorState::NONE), Err(Error::CursorMoved { .. })));
    assert_eq!(log.last_sequence("q", 0..1).unwrap(), None);
    assert_eq!(read_all(&log, 0, 0).0.len(), 1);
    let two = [Precondition::producer("p", 1, 0..1), Precondition::producer("q", 0, 0..1)];
    let told = log.append_if(&two, &[block_of(0, 1, body.body())], false, &mut [0]).unwrap_err();
    assert!(told.to_string().contains("one producer"), "{told}");
    let told = log.append_if(&two[..1], &[], false, &mut []).unwrap_err();
    assert!(matches!(told, Error::InvalidArgument { .. }), "{told}");
}

#[test]
fn one_producer_more_than_is_remembered_is_refused_and_the_others_go_on() {
    let place = tempfile::tempdir().unwrap();
    let topic = topic(place.path(), 1);
    let limit = topic.log().max_producers() as u64;
    (0..limit).for_each(|i| assert_eq!(once(&topic, &format!("p{i}"), 0).unwrap(), i));
    let told = once(&topic, "one more", 0).unwrap_err().to_string();
    assert!(told.contains(&format!("remembers {limit} producers")), "{told}");
    fill(&topic, 2);
    assert_eq!(once(&topic, "p0", 0).unwrap(), 0);
    assert_eq!(once(&topic, "p0", 1).unwrap(), topic.end(0).unwrap() - 1);
}

#[test]
fn a_producer_that_was_forgotten_is_new_and_stays_forgotten() {
    let place = tempfile::tempdir().unwrap();
    let jobs = topic(place.path(), 1);
    for sequence in 5..8 {
        once(&jobs, "p", sequence).unwrap();
    }
    assert_eq!(once(&jobs, "q", 0).unwrap(), 3);
    // Another process that had seen the producer learns of it too.
    let other = topic(place.path(), 1);
    assert_eq!(once(&other, "p", 7).unwrap(), 2);
    assert!(jobs.forget_producer("p").unwrap());
    assert!(!jobs.forget_producer("p").unwrap() && !jobs.forget_producer("nobody").unwrap());
    assert_eq!(other.last_sequence("p").unwrap(), None);
    fill(&jobs, 3);
    drop((jobs, other));
    let jobs = topic(place.path(), 1);
    assert_eq!(jobs.last_sequence("p").unwrap(), None);
    let end = jobs.end(0).unwrap();
    assert_eq!(once(&jobs, "p", 7).unwrap(), end, "the former repeat must be appended");
    assert_eq!(once(&jobs, "p", 7).unwrap(), end);
    assert_eq!(once(&jobs, "q", 0).unwrap(), 3, "other producers must still be known");
}

#[test]
fn producers_are_listed_with_their_last_sequence_and_when_it_was_appended() {
    let place = tempfile::tempdir().unwrap();
    let jobs = topic(place.path(), 3);
    assert_eq!(jobs.producers().unwrap(), []);
    for (sequence, partition) in [(3, 1), (4, 2), (5, 0)] {
        let once = [jobs.expect_sequence("p", sequence).unwrap()];
        jobs.append_if_to(partition, &NewRecord::new(b"x"), &once, None).unwrap();
    }
    once(&jobs, "q", 0).unwrap();
    let mut known = jobs.producers().unwrap();
    known.sort_by_key(|known| std::cmp::Reverse(known.sequence));
    let ids: Vec<_> = ["p", "q"].map(Producer::id_of).into();
    assert_eq!(known.iter().map(|known| known.id).collect::<Vec<_>>(), ids);
    assert_eq!((known[0].sequence, known[0].partition, known[0].offset), (5, 0, 0));
    assert_eq!((known[1].sequence, known[1].partition, known[1].offset), (0, 0, 1));
    let appended = jobs.get_in(0, 1).unwrap().block().appended_ns();
    assert_eq!(known[1].appended_ns, Some(appended));
    let reader = StoreOptions { access: Access::Read, ..StoreOptions::default() };
    let store = Store::open_with(place.path(), &reader).unwrap();
    let read = Topic::open(&store, "jobs", &TopicOptions::default()).unwrap();
    assert_eq!(read.producers().unwrap().len(), 2);
    assert!(matches!(read.forget_producer("p"), Err(Error::NotWritable { .. })));
    jobs.trim(&[(0, 1)]).unwrap();
    fill(&jobs, 2);
    jobs.trim(&[(0, jobs.end(0).unwrap())]).unwrap();
    assert!(jobs.producers().unwrap().iter().all(|known| known.appended_ns.is_none()));
    assert_eq!(jobs.forget_producers(&ids).unwrap(), 2);
    assert_eq!(jobs.producers().unwrap(), []);
}

#[test]
fn a_forgotten_producer_makes_room_for_another() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    let append = |name: &str| {
        let body = encode(&[b"x"]);
        let blocks = [block_of(0, body.count(), body.body())];
        log.append_if(&[Precondition::producer(name, 0, 0..1)], &blocks, false, &mut [0])
    };
    let limit = log.max_producers();
    for i in 0..limit {
        append(&format!("p{i}")).unwrap();
    }
    let told = append("more").unwrap_err().to_string();
    assert!(told.contains("forget_producer"), "{told}");
    assert_eq!(log.forget_producers(&[Producer::id_of("p0")], 0..1).unwrap(), 1);
    append("more").unwrap();
    append("p0").unwrap_err();
    let all: Vec<_> = log.producers(0..1).unwrap().iter().map(|known| known.id).collect();
    assert_eq!(log.forget_producers(&all, 0..1).unwrap(), limit);
    append("p0").unwrap();
}

#[test]
fn a_power_cut_leaves_a_producer_known_or_forgotten_and_forgotten_for_good_once_that_was_said() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for sequence in 0..3 {
        append_sequence(&log, sequence);
    }
    log.sync().unwrap();
    let begun = p.memory.events();
    log.forget_producers(&[Producer::id_of("p")], 0..1).unwrap();
    let journal = p.memory.journal();
    let mut seen = std::collections::BTreeSet::new();
    for crash in journal.crashes_from(begun) {
        for choice in [crash.nothing(), crash.everything()] {
            let image: Arc<dyn Storage> = Arc::new(crash.image(&choice));
            let log = open_as(&image, &p.dir, TestMember::new(0, 2), WriteMode::Mapped).unwrap();
            let known = log.last_sequence("p", 0..1).unwrap();
            seen.insert(known);
            let done = crash.time() == journal.len();
            assert!(!done || known.is_none(), "the forgetting was reported as done");
            // Appends must agree with that.
            let first = append_sequence(&log, 2);
            assert_eq!(first, if known.is_some() { 2 } else { 3 });
        }
    }
    assert_eq!(seen, [None, Some(2)].into());
}

#[test]
fn a_repeat_is_on_the_medium_when_that_is_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let topic = topic(place.path(), 1);
    let (record, once) = (NewRecord::new(b"x"), [topic.expect_sequence("p", 0).unwrap()]);
    topic.append_if_to(0, &record, &once, Some(SyncMode::None)).unwrap();
    topic.append_if_to(0, &record, &once, Some(SyncMode::Durable)).unwrap();
    assert_eq!(topic.durable(0).unwrap(), 1);
}

#[test]
fn a_producer_without_a_name_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let topic = topic(place.path(), 1);
    for name in [String::new(), "x".repeat(1025)] {
        let told = once(&topic, &name, 0).unwrap_err();
        assert!(matches!(told, Error::InvalidArgument { .. }), "{told}");
    }
    assert_eq!(topic.end(0).unwrap(), 0);
}

fn append_sequence(log: &Log, sequence: u64) -> u64 {
    let body = encode(&[sequence.to_string().as_bytes()]);
    let block = block_of(0, body.count(), body.body());
    let once = [Precondition::producer("p", sequence, 0..1)];
    log.append_if(&once, &[block], false, &mut [0]).unwrap().first
}

#[test]
fn what_a_power_cut_took_is_appended_again_and_what_it_left_is_not() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    (0..3).for_each(|sequence| assert_eq!(append_sequence(&log, sequence), sequence));
    log.sync().unwrap();
    assert_eq!(append_sequence(&log, 3), 3);
    let crash = p.memory.journal().crash_at_end();
    let image: Arc<dyn Storage> = Arc::new(crash.image(&crash.nothing()));
    let log = open_as(&image, &p.dir, TestMember::new(0, 2), WriteMode::Mapped).unwrap();
    assert_eq!(append_sequence(&log, 2), 2);
    assert_eq!(read_all(&log, 0, 0).0.len(), 3, "the power cut must take the last one alone");
    (0..2).for_each(|_| assert_eq!(append_sequence(&log, 3), 3));
    let values: Vec<_> = read_all(&log, 0, 0).0.into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, [b"0", b"1", b"2", b"3"]);
}

#[test]
fn what_was_carried_over_after_a_failed_sync_is_not_appended_again() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    (0..3).for_each(|sequence| assert_eq!(append_sequence(&log, sequence), sequence));
    p.fail(Call::SyncData, 1, libc::EIO);
    log.sync().unwrap();
    assert_eq!(log.committed().unwrap().sequence(), 1, "nothing was carried over");
    (0..4).for_each(|sequence| assert_eq!(append_sequence(&log, sequence), sequence));
    assert_eq!(read_all(&log, 0, 0).0.len(), 4);
}
