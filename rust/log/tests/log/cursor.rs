//! Cursors and followers while their log is cut, carried over, rolled and recovered.

use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::place::{Place, lock_word};
use crate::common::*;
use falaj::internals::error::Error;
use falaj::internals::format::control::at;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::Wait;
use falaj::internals::segment::Check;
use falaj::internals::storage::OpenMode;
use falaj_twin::faulty::Call;

const SOON: Option<Duration> = Some(Duration::from_secs(5));

#[test]
fn a_cursor_that_has_read_nothing_still_works_after_a_failed_sync_is_cleared() {
    let p = Place::new(2, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    let mut cursor = log.cursor_at(1, 0, Check::Full).unwrap();
    assert!(cursor.next_block().unwrap().is_none());
    p.set_latch();
    append(&log, 1, &[b"two"]).unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        tell.send(cursor.next_block().map(|b| b.map(falaj::internals::log::DataBlock::first)))
    });
    let next = told.recv_timeout(Duration::from_secs(5)).expect("it never returns");
    assert_eq!(next.unwrap(), Some(0));
}

/// A cursor at an offset that is not written yet gets the next record, also after a cut.
#[test]
fn a_cursor_at_the_end_misses_nothing_behind_a_cut() {
    for offset in [1, 7, u64::MAX] {
        let p = Place::new(2, WriteMode::Mapped);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"one"]).unwrap();
        log.roll_now().unwrap();
        append(&log, 1, &[b"other"]).unwrap();
        let mut cursor = log.cursor_at(0, offset, Check::Full).unwrap();
        assert!(cursor.next_block().unwrap().is_none());
        p.set_latch();
        append(&log, 0, &[b"two"]).unwrap();
        append(&log, 0, &[b"three"]).unwrap();
        assert_eq!(
            cursor.next_block().unwrap().map(falaj::internals::log::DataBlock::first),
            Some(1),
            "from {offset}"
        );
    }
}

#[test]
fn a_follower_goes_on_after_its_whole_segment_was_superseded() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"two"]).unwrap();
    let mut cursor = log.cursor_at(0, 0, Check::Full).unwrap();
    assert!(cursor.next_block().unwrap().is_some() && cursor.next_block().unwrap().is_some());
    assert!(cursor.next_block().unwrap().is_none());
    p.set_latch();
    append(&log, 0, &[b"three"]).unwrap();
    assert_eq!(cursor.next_block().unwrap().map(falaj::internals::log::DataBlock::first), Some(2));
}

/// Recovery moves superseded segments away; a reader still knows their old names.
#[test]
fn a_reader_goes_on_after_the_segments_ahead_of_it_were_superseded_and_put_away() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    for value in [b"two", b"six", b"ten"] {
        log.roll_now().unwrap();
        append(&log, 0, &[value]).unwrap();
    }
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    let mut cursor = reader.cursor_at(0, 0, Check::Full).unwrap();
    assert!(cursor.next_block().unwrap().is_some());
    p.set_latch();
    append(&log, 0, &[b"new"]).unwrap();
    std::mem::forget(log);
    let _log = p.open(TestMember::new(0, 2));
    let mut firsts = Vec::new();
    while let Some(block) = cursor.next_block().unwrap() {
        firsts.push(block.first());
    }
    assert_eq!((firsts, p.segments()), (vec![1, 2, 3, 4], vec![0, 4]));
}

/// A roll that failed after the rename leaves a segment under a name that another file then gets.
#[test]
fn an_orphan_seen_once_does_not_hide_its_successor() {
    let p = Place::new(1, WriteMode::Pwrite);
    let a = TestMember::new(0, 1);
    let b = a.beside(1);
    let (log_a, log_b) = (p.open(a), p.open(b));
    append(&log_a, 0, &[b"one"]).unwrap();
    for nth in 1.. {
        p.fail(Call::Write, nth, libc::ENOSPC);
        let failed = log_a.roll_now().is_err();
        p.faulty.heal();
        assert!(failed && log_a.committed().unwrap().sequence() == 0, "rolled before the fault");
        if p.segments() == [0, 1] {
            break;
        }
    }
    assert_eq!(read_all(&log_b, 0, 0).0.len(), 1);
    log_a.roll_now().unwrap();
    append(&log_a, 0, &[b"two"]).unwrap();
    log_b.sync().unwrap();
    assert_eq!(read_all(&log_b, 0, 0).0.len(), 2);
}

#[test]
fn bytes_behind_a_cut_stay_as_they_are() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[&[b'a'; 100]]).unwrap();
    let cut = log.committed().unwrap().position();
    append(&log, 0, &[&[b'b'; 9000]]).unwrap();
    append(&log, 0, &[&[b'c'; 9000]]).unwrap();
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    let mut cursor = reader.cursor_at(0, 2, Check::Full).unwrap();
    let view = cursor.next_block().unwrap().unwrap();
    assert_eq!(view.body()[100], b'c');
    std::mem::forget(log);
    p.segment(0).write_at(b"X", cut + 200).unwrap();
    let log = p.open(TestMember::new(0, 2));
    append(&log, 0, &[b"new"]).unwrap();
    log.sync().unwrap();
    assert_eq!(view.body()[100], b'c', "a view never changes");
}

#[test]
fn a_follower_that_came_before_the_control_page_hears_of_news() {
    let p = Place::new(1, WriteMode::Mapped);
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    let mut cursor = reader.cursor_at(0, 0, Check::Full).unwrap();
    assert!(cursor.next_block().unwrap().is_none());
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    let wait = reader.wait_for_news(cursor.address(), SOON, &|| false);
    assert_eq!(wait.unwrap(), Wait::News);
    assert_eq!(reader.committed(), log.committed());
}

/// A dead writer wakes no follower, but its committed record is there for a follower that looks.
#[test]
fn a_follower_finds_what_a_writer_committed_that_died_before_the_tail() {
    let p = Place::new(1, WriteMode::Mapped);
    let a = TestMember::new(0, 1);
    let b = a.beside(1);
    let (log, other) = (p.open(a), p.open(b));
    let mut cursor = other.cursor_at(0, 0, Check::Full).unwrap();
    assert!(cursor.next_block().unwrap().is_none());
    let before = log.committed().unwrap();
    append(&log, 0, &[b"one"]).unwrap();
    let page = p.page();
    page.store(at::TAIL, before.0).unwrap();
    page.store(at::APPEND_LOCK, lock_word(0)).unwrap();
    let wait = other.wait_for_news(cursor.address(), SOON, &|| false);
    assert_eq!(wait.unwrap(), Wait::News);
    assert_eq!(cursor.next_block().unwrap().map(falaj::internals::log::DataBlock::first), Some(0));
}

/// A reader that has read a block asks for the offset after it.
#[test]
fn a_block_that_was_read_lies_before_the_end_also_when_its_writer_died_before_the_tail() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    let before = log.committed().unwrap();
    append(&log, 0, &[b"two", b"three"]).unwrap();
    p.page().store(at::TAIL, before.0).unwrap();
    p.page().store(at::APPEND_LOCK, lock_word(0)).unwrap();
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    let mut cursor = reader.cursor_at(0, 0, Check::Full).unwrap();
    let mut read = 0;
    while let Some(block) = cursor.next_block().unwrap() {
        read = block.end();
    }
    assert_eq!(read, 3);
    assert_eq!(reader.end_offset(0).unwrap(), 3);
}

/// The block was read, so it was committed; a flush makes all committed blocks durable.
#[test]
fn a_flush_covers_a_block_that_was_read_although_its_writer_died_before_the_tail() {
    let p = Place::new(1, WriteMode::Mapped);
    let a = TestMember::new(0, 1);
    let b = a.beside(1);
    let (log, other) = (p.open(a), p.open(b));
    append(&log, 0, &[b"one"]).unwrap();
    let before = log.committed().unwrap();
    append(&log, 0, &[b"two"]).unwrap();
    let after = log.committed().unwrap();
    p.page().store(at::TAIL, before.0).unwrap();
    assert_eq!(read_all(&other, 0, 0).0.len(), 2);
    assert_eq!(other.sync().unwrap(), after);
    assert_eq!(read_all(&open_to_read(&p.after_power_cut(), &p.dir).unwrap(), 0, 0).0.len(), 2);
}

fn replace_control(p: &Place) {
    let control = p.dir.join("control");
    p.storage.rename_new(&control, &p.dir.join("away")).unwrap();
    p.storage.open(&control, OpenMode::CreateNew(0o600)).unwrap();
}

/// No process would ever wake it: all others look at the other page.
#[test]
fn a_follower_is_told_when_its_control_page_was_replaced() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    let tail = reader.committed().unwrap();
    replace_control(&p);
    let wait = reader.wait_for_news(tail, SOON, &|| false);
    assert!(matches!(wait, Err(Error::LockFileReplaced { .. })), "{wait:?}");
}

/// Python waits in this way, to check for signals in between.
#[test]
fn a_follower_that_waits_in_short_turns_is_told_as_well() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    let tail = log.committed().unwrap();
    replace_control(&p);
    let turn = Duration::from_millis(40);
    let told = (0..500).find_map(|_| log.wait_for_news(tail, Some(turn), &|| false).err());
    assert!(matches!(told, Some(Error::LockFileReplaced { .. })), "{told:?}");
}

/// In a log of several topics, a topic's next record may lie far behind an address.
#[test]
fn an_address_as_offsets_counts_no_later_record() {
    let p = Place::new(2, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"durable"]).unwrap();
    append(&log, 1, &[b"durable"]).unwrap();
    log.sync().unwrap();
    append(&log, 0, &[b"not yet"]).unwrap();
    let durable = log.durable().unwrap();
    assert_eq!((log.offset_at(0, durable).unwrap(), log.offset_at(1, durable).unwrap()), (1, 1));
    let tail = log.committed().unwrap();
    assert_eq!((log.offset_at(0, tail).unwrap(), log.offset_at(1, tail).unwrap()), (2, 1));
}
