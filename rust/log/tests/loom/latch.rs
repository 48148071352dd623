//! The failed-sync state: a failed sync is never believed later, and no record that was seen is
//! lost.

use std::sync::Arc;

use crate::log::{Broken, Cursor, Log, Process, Shape, THREE_A_SEGMENT};
use crate::model;
use crate::world::thread;

fn log(broken: Option<Broken>) -> Arc<Log> {
    Arc::new(Log::new(Shape { failing: 1, broken, ..THREE_A_SEGMENT }))
}

/// Two processes append; both or one of them durably. The first sync fails.
fn fail_a_sync(both: bool, broken: Option<Broken>) {
    model(move || {
        let log = log(broken);
        let other = Arc::clone(&log);
        let other = thread::spawn(move || {
            let who = Process::new(1);
            let (record, end) = other.append(&who);
            if both {
                other.sync_to(&who, end);
                assert!(other.survives() >= record);
            }
        });
        let who = Process::new(0);
        let (record, end) = log.append(&who);
        log.sync_to(&who, end);
        assert!(log.survives() >= record);
        other.join().unwrap();
        log.follow(&mut Cursor::default(), 2);
    });
}

#[test]
fn records_that_a_failed_sync_left_in_doubt_are_saved_before_it_is_reported() {
    fail_a_sync(true, None);
}

#[test]
fn an_append_in_the_middle_of_a_failed_sync_is_in_the_log() {
    fail_a_sync(false, None);
}

#[test]
#[should_panic(expected = "not on the disk")]
fn broken_failed_sync_that_is_tried_again_believes_the_kernel() {
    fail_a_sync(false, Some(Broken::SyncedAgain));
}

#[test]
#[should_panic(expected = "appended in the failed-sync state")]
fn broken_failed_sync_state_that_waits_for_no_append_loses_a_running_one() {
    fail_a_sync(false, Some(Broken::Unsettled));
}

#[test]
#[should_panic(expected = "appended in the failed-sync state")]
fn broken_append_that_does_not_look_at_the_latch_is_lost() {
    fail_a_sync(false, Some(Broken::LatchUnseen));
}

/// Readers are in the superseded segment, at its end or before it.
#[test]
fn a_reader_goes_on_behind_the_cut_with_the_next_record() {
    model(|| {
        let log = log(None);
        let reader = Arc::clone(&log);
        let reader = thread::spawn(move || {
            let mut cursor = Cursor::default();
            while reader.read(&mut cursor) {}
            cursor
        });
        let who = Process::new(0);
        let (_, end) = log.append(&who);
        log.sync_to(&who, end);
        log.append(&who);
        let mut cursor = reader.join().unwrap();
        log.follow(&mut cursor, 2);
    });
}
