//! Superseding segments, and the blocks that are carried over into them.

use super::*;
use crate::common::open;
use crate::common::place::lock_word;
use falaj::internals::error::Error;
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::format::address::Address;
use falaj::internals::format::block::Kind;
use falaj::internals::format::control::at;
use falaj::internals::format::segment::Mark;
use falaj::internals::segment::create::{BlockPlace as At, commit, own_header, put_block};
use falaj::internals::storage::MapAccess;
use falaj_twin::faulty::Call;

#[test]
fn a_block_that_was_damaged_after_it_was_checked_is_not_carried_over() {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"seen and sound"]).unwrap();
    let durable = log.durable().unwrap();
    assert_eq!(values_of(&log, 0).len(), 2, "this process must have checked each block once");
    p.segment(0).write_at(b"X", durable.position() + 40).unwrap();
    p.set_latch();
    let names = p.storage.list(&p.dir).unwrap();
    let error = append(&log, 0, &[b"more"]).unwrap_err();
    assert!(matches!(error, Error::SyncFailed { .. }), "{error}");
    assert!(error.to_string().contains("cannot be carried over"), "{error}");
    assert!(p.is_latched());
    assert_eq!(p.storage.list(&p.dir).unwrap(), names, "the begun segment must be removed");
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
    assert!(matches!(error, Error::SyncFailed { .. }), "{error}");
    assert_eq!(p.storage.list(&p.dir).unwrap(), names, "the begun segment must be removed");
    append(&log, 0, &[b"three"]).unwrap();
    assert!(!p.is_latched());
    assert_eq!(values_of(&log, 0), [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
}

/// The topic's last durable record is corrupt; the carried blocks show where its offsets continue.
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
    append(&log, 1, &[b"in doubt, of another topic"]).unwrap();
    append(&log, 0, &[b"in doubt"]).unwrap();
    append(&log, 0, &[b"in doubt too"]).unwrap();
    p.set_latch();
    p.segment(0).write_at(&[0xee; 8], hurt).unwrap();
    drop(log);
    let log = p.open(other);
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 3);
    assert_eq!(append(&log, 1, &[b"new"]).unwrap().first, 3);
    let (found, ended) = read_all(&log, 0, 1);
    ended.unwrap();
    let found: Vec<_> = found.into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(found, [1, 2, 3]);
    assert!(read_all(&log, 0, 0).1.is_err(), "the lost record must be an error");
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
    assert!(mark.position > FIRST_BLOCK && mark.control != 0, "{mark:?}");
    let image = p.after_power_cut();
    let log = open(&image, &p.dir, TestMember::new(0, 2)).unwrap();
    assert_eq!(
        values_of(&log, 0),
        [b"one".to_vec(), b"two".to_vec()],
        "both records must be durable"
    );
}

/// No carried block shows where the corrupt topic continues, so its offsets jump.
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
    assert_eq!(append(&log, 1, &[b"new"]).unwrap().first, 2, "this offset is certain");
    let given = append(&log, 0, &[b"new"]).unwrap().first;
    assert!((1..100).contains(&given), "{given}");
}

/// A fact that the log noted between records: this version writes none, and carries all over.
#[test]
fn what_the_log_noted_between_its_records_is_carried_over_with_them() {
    let p = left();
    let member = TestMember::new(0, 1);
    let other = member.beside(1);
    let log = p.open(member);
    append(&log, 0, &[b"two"]).unwrap();
    let tail = log.committed().unwrap();
    drop(log);
    // As a newer version of this format would do: topic 0 is trimmed to offset 1.
    let trim = [&[3, 12][..], &0u32.to_le_bytes(), &1u64.to_le_bytes()].concat();
    let segment =
        Segment::open(&*p.storage, &p.dir, LOG, 0, MapAccess::Write, tail.position()).unwrap();
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
    assert!(made.sequence() > 0, "there must be a new segment");
    let mut segment = Arc::new(segment_of(&p.storage, &p.dir, made.sequence()));
    let mut walk = segment.opening().unwrap().clone();
    walk.go_to(&mut segment, made.position()).unwrap();
    let topic = walk.state.topic(0).unwrap();
    assert_eq!((topic.first, topic.next), (1, 3));
}

/// However much it carries: it fits that, and no more than the next append needs.
#[test]
fn a_superseding_segment_is_as_long_as_what_it_carries_and_what_comes_next() {
    let p = Place::new(200, WriteMode::Mapped);
    let member = TestMember::new(0, 1);
    let dies = member.obituary();
    let log = p.open(member);
    append(&log, 0, &[b"durable"]).unwrap();
    log.sync().unwrap();
    // More than a segment of its own.
    for _ in 0..12 {
        append(&log, 0, &[&[b'x'; 8000]]).unwrap();
    }
    dies();
    drop(log);
    p.set_latch();
    mend(&p.storage, &p.dir, &settings(p.mode), &TestMember::new(0, 2)).unwrap();
    let [tail, allocated] = [at::TAIL, at::ALLOCATED].map(|word| Address(p.page().load(word)));
    assert_eq!(allocated.sequence(), tail.sequence());
    assert!(tail.position() > 12 * 8000, "{tail:?}");
    let room = allocated.position() - tail.position();
    assert!((4096..3 * 4096).contains(&room), "{room}");
    assert_eq!(p.segment(tail.sequence()).stat().unwrap().len, allocated.position());
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    assert_eq!(values_of(&log, 0).len(), 13);
}

/// It is written again hours later.
#[test]
fn what_is_carried_over_was_appended_when_it_was() {
    const HOUR: i64 = 3_600_000_000;
    let began = 2_000_000_000_000_000;
    let p = Place::new(1, WriteMode::Mapped);
    p.memory.set_now_us(began);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"durable"]).unwrap();
    log.sync().unwrap();
    p.memory.set_now_us(began + HOUR);
    append(&log, 0, &[b"in doubt"]).unwrap();
    p.set_latch();
    p.memory.set_now_us(began + 3 * HOUR);
    append(&log, 0, &[b"new"]).unwrap();
    let mut cursor = log.cursor_at(0, 0, Check::Full).unwrap();
    for (offset, hours) in [(0, 0), (1, 1), (2, 3)] {
        let block = cursor.next_block().unwrap().unwrap();
        assert_eq!((block.first(), block.appended_ns()), (offset, 1000 * (began + hours * HOUR)));
    }
}

/// Half an append is covered by no valid checksum.
#[test]
fn what_somebody_left_half_done_when_he_died_is_not_carried_over() {
    let p = left();
    let member = TestMember::new(0, 1);
    let (other, dead) = (member.beside(1), member.beside(2));
    let log = p.open(member);
    append(&log, 0, &[b"two"]).unwrap();
    let tail = log.committed().unwrap();
    // As an append leaves it that ended before its last store.
    p.segment(0).write_at(b"half a block", tail.position() + 32).unwrap();
    p.page().store(at::DIRTY, tail.0 + 64).unwrap();
    p.page().store(at::APPEND_LOCK, lock_word(2)).unwrap();
    dead.dies();
    let log_of_other = p.open(other);
    append(&log_of_other, 0, &[b"three"]).unwrap();
    let covered = segment_of(&p.storage, &p.dir, 0).block(tail.position(), Check::Header).unwrap();
    assert_eq!(covered.map(|block| block.header.kind), Some(Kind::Void));
    p.set_latch();
    append(&log_of_other, 0, &[b"four"]).unwrap();
    assert!(!p.is_latched());
    assert_eq!(values_of(&log_of_other, 0).len(), 4);
    let made = log_of_other.committed().unwrap().sequence();
    let segment = segment_of(&p.storage, &p.dir, made);
    let kinds = blocks_of(&p.storage, &p.dir, made).into_iter();
    let kinds = kinds.map(|at| segment.block(at, Check::Header).unwrap().unwrap().header.kind);
    assert!(kinds.into_iter().all(|kind| kind != Kind::Void));
}
