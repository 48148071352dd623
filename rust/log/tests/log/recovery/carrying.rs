//! Segments that supersede: what is carried over into them.

use super::*;
use crate::common::open;
use falaj::error::Error;
use falaj::format::address::Address;
use falaj::format::block::Kind;
use falaj::format::control::at;
use falaj::format::segment::Mark;
use falaj::segment::create::{Place as At, commit, own_header, put_block};
use falaj::storage::Access;
use falaj::storage::faulty::Call;

#[test]
fn a_block_that_was_damaged_after_it_was_checked_is_not_carried_over() {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"seen and sound"]).unwrap();
    let durable = log.durable().unwrap();
    assert_eq!(values_of(&log, 0).len(), 2, "each block is checked once by this process");
    p.segment(0).write_at(b"X", durable.position() + 40).unwrap();
    p.set_latch();
    let names = p.storage.list(&p.dir).unwrap();
    let error = append(&log, 0, &[b"more"]).unwrap_err();
    assert!(matches!(error, Error::Latched { .. }), "{error}");
    assert!(error.to_string().contains("cannot be carried over"), "{error}");
    assert!(p.is_latched());
    assert_eq!(p.storage.list(&p.dir).unwrap(), names, "what was begun is removed");
}

#[test]
fn a_segment_that_does_not_get_its_name_leaves_the_log_as_it_was() {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"two"]).unwrap();
    p.set_latch();
    let names = p.storage.list(&p.dir).unwrap();
    p.fail(Call::Rename, 1, libc::EIO);
    let error = append(&log, 0, &[b"three"]).unwrap_err();
    assert!(matches!(error, Error::Latched { .. }), "{error}");
    assert_eq!(p.storage.list(&p.dir).unwrap(), names, "what was begun is removed");
    append(&log, 0, &[b"three"]).unwrap();
    assert!(!p.is_latched());
    assert_eq!(values_of(&log, 0), [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
}

/// The topic's last durable record is damaged, and what is carried over tells where it went on.
#[test]
fn what_is_carried_over_tells_with_which_offset_a_damaged_topic_goes_on() {
    let p = Place::new(2, WriteMode::Mapped);
    let member = TestMember::new(0, 1);
    let other = member.beside(1);
    let log = p.open(member);
    append(&log, 1, &[b"z"]).unwrap();
    let hurt = log.committed().unwrap().position();
    append(&log, 0, &[b"lost"]).unwrap();
    append(&log, 1, &[b"y"]).unwrap();
    log.sync().unwrap();
    append(&log, 0, &[b"in doubt"]).unwrap();
    append(&log, 0, &[b"in doubt too"]).unwrap();
    p.set_latch();
    p.segment(0).write_at(&[0xee; 8], hurt).unwrap();
    drop(log);
    let log = p.open(other);
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 3);
    assert_eq!(append(&log, 1, &[b"new"]).unwrap().first, 2);
    let (found, ended) = read_all(&log, 0, 1);
    ended.unwrap();
    let found: Vec<_> = found.into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(found, [1, 2, 3]);
    assert!(read_all(&log, 0, 0).1.is_err(), "the lost one is told");
}

#[test]
fn a_mark_of_a_superseding_segment_claims_what_is_on_the_medium_and_no_more() {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"two"]).unwrap();
    p.set_latch();
    append(&log, 0, &[b"three"]).unwrap();
    let made = log.committed().unwrap().sequence();
    let mark: Mark = segment_of(&p.storage, &p.dir, made).mark().unwrap();
    assert_eq!((mark.clean, mark.succeeded, mark.incarnation), (false, false, 1));
    assert!(mark.position > 4096 && mark.control != 0, "{mark:?}");
    let image = p.after_power_cut();
    let log = open(&image, &p.dir, TestMember::new(0, 2)).unwrap();
    assert_eq!(values_of(&log, 0), [b"one".to_vec(), b"two".to_vec()], "as the clearing synced");
}

/// Nothing that is carried over tells where the damaged topic went on: it leaps.
#[test]
fn a_damaged_topic_of_which_nothing_is_carried_over_goes_on_beyond_the_damage() {
    let p = Place::new(2, WriteMode::Mapped);
    let member = TestMember::new(0, 1);
    let other = member.beside(1);
    let log = p.open(member);
    let hurt = log.committed().unwrap().position();
    append(&log, 0, &[b"lost"]).unwrap();
    append(&log, 1, &[b"y"]).unwrap();
    log.sync().unwrap();
    append(&log, 1, &[b"in doubt"]).unwrap();
    p.set_latch();
    p.segment(0).write_at(&[0xee; 8], hurt).unwrap();
    drop(log);
    let log = p.open(other);
    assert_eq!(append(&log, 1, &[b"new"]).unwrap().first, 2, "sure of it");
    let given = append(&log, 0, &[b"new"]).unwrap().first;
    assert!((1..100).contains(&given), "{given}");
}

/// A fact that a log notes between its records; this version writes none, and carries all.
#[test]
fn what_the_log_noted_between_its_records_is_carried_over_with_them() {
    let p = left();
    let member = TestMember::new(0, 1);
    let other = member.beside(1);
    let log = p.open(member);
    append(&log, 0, &[b"two"]).unwrap();
    let tail = log.committed().unwrap();
    drop(log);
    // As a newer writer of this format would: topic 0 is trimmed to offset 1.
    let trim = [&[3, 12][..], &0u32.to_le_bytes(), &1u64.to_le_bytes()].concat();
    let segment =
        Segment::open(&*p.storage, &p.dir, LOG, 0, Access::Write, tail.position()).unwrap();
    let place = At {
        map: segment.map(),
        position: tail.position(),
        salt: segment.salt(),
        seed: segment.seed(),
    };
    let header = own_header(Kind::Meta, &trim, 0);
    let word = put_block(place, &header, &trim).unwrap();
    commit(place, word).unwrap();
    let end = Address::new(0, tail.position() + header.padded());
    [at::DIRTY, at::TAIL].iter().for_each(|word| p.page().store(*word, end.0).unwrap());
    p.set_latch();
    let log = p.open(other);
    append(&log, 0, &[b"three"]).unwrap();
    let made = log.committed().unwrap();
    assert!(made.sequence() > 0, "a new segment");
    let mut segment = Arc::new(segment_of(&p.storage, &p.dir, made.sequence()));
    let mut walk = segment.opening().unwrap().clone();
    walk.go_to(&mut segment, made.position()).unwrap();
    let topic = walk.state.topic(0).unwrap();
    assert_eq!((topic.first, topic.next), (1, 3));
}
