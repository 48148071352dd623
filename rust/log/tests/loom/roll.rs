//! Rolls: a writer makes the next segment, readers continue in it, and no writer continues in the
//! old one.

use std::sync::Arc;

use crate::log::{Broken, Cursor, Log, ONE_A_SEGMENT, Process, Shape};
use crate::world::thread;
use crate::{bounded, every, model, nearly_every};

fn log(broken: Option<Broken>) -> Arc<Log> {
    Arc::new(Log::new(Shape { broken, ..ONE_A_SEGMENT }))
}

/// Append so many records in a thread of its own.
fn writer(log: &Arc<Log>, slot: u16, records: u64) -> thread::JoinHandle<()> {
    let log = Arc::clone(log);
    thread::spawn(move || {
        let who = Process::new(slot);
        for _ in 0..records {
            log.append(&who);
        }
    })
}

/// In a full segment a writer rolls and appends; a reader looks once, without waiting.
fn read_across_a_roll(broken: Option<Broken>) {
    nearly_every(move || {
        let log = log(broken);
        let (_, tail) = log.append(&Process::new(0));
        let mut cursor = Cursor::default();
        log.follow(&mut cursor, 1);
        let writer = Arc::clone(&log);
        let writer = thread::spawn(move || writer.roll_and_append_alone(tail));
        log.read(&mut cursor);
        writer.join().unwrap();
        while log.read(&mut cursor) {}
        assert_eq!(cursor.seen, 2);
    });
}

#[test]
fn a_reader_goes_on_in_the_next_segment() {
    read_across_a_roll(None);
}

#[test]
#[should_panic(expected = "no segment follows")]
fn broken_roll_that_names_its_segment_last_leads_readers_nowhere() {
    read_across_a_roll(Some(Broken::EndBeforeName));
}

#[test]
#[should_panic(expected = "zero below the tail")]
fn broken_tail_before_the_commit_word_shows_a_hole() {
    read_across_a_roll(Some(Broken::TailEarly));
}

#[test]
#[should_panic(expected = "zero below the tail")]
fn broken_reader_that_does_not_look_again_takes_news_for_a_hole() {
    read_across_a_roll(Some(Broken::ZeroIsTheEnd));
}

#[test]
fn a_follower_is_woken_by_a_roll_and_goes_on() {
    bounded(2, || {
        let log = log(None);
        let writer = writer(&log, 0, 2);
        log.follow(&mut Cursor::default(), 2);
        writer.join().unwrap();
    });
}

#[test]
fn a_reader_goes_on_while_the_lock_is_taken_and_given_back() {
    model(|| {
        let log = log(None);
        let writer = writer(&log, 0, 2);
        let mut cursor = Cursor::default();
        while log.read(&mut cursor) {}
        writer.join().unwrap();
        log.follow(&mut cursor, 2);
    });
}

/// Both find the segment full, or one of them finds that it is no longer the last.
#[test]
fn of_two_writers_that_want_to_roll_one_does() {
    model(|| {
        let log = log(None);
        log.append(&Process::new(0));
        let other = writer(&log, 1, 1);
        log.append(&Process::new(0));
        other.join().unwrap();
        log.follow(&mut Cursor::default(), 3);
        assert_eq!(log.is_full_at(), 3, "three segments of one record");
    });
}

/// Another process's helper has allocated more of the segment that is ending.
fn make_room_while_rolling(broken: Option<Broken>) {
    every(move || {
        let log = Arc::new(Log::new(Shape { room: 3, allocated: 2, broken, ..ONE_A_SEGMENT }));
        let writer = Arc::clone(&log);
        let writer = thread::spawn(move || writer.roll(&Process::new(0), 0));
        log.more_room(3);
        writer.join().unwrap();
        assert_eq!(log.is_full_at(), 4, "two segments of two records");
    });
}

#[test]
fn room_made_late_is_no_room_in_the_next_segment() {
    make_room_while_rolling(None);
}

#[test]
#[should_panic(expected = "space in a segment that ended")]
fn broken_room_that_is_stored_and_not_raised_leads_back() {
    make_room_while_rolling(Some(Broken::RoomStored));
}
