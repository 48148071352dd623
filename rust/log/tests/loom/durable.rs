//! The durable end: a process that sees it finds everything before it on disk; one sync serves all.

use std::sync::Arc;

use crate::log::{Broken, Log, ONE_A_SEGMENT, Process, Shape, THREE_A_SEGMENT};
use crate::world::thread;
use crate::{every, model};

/// One process appends and syncs; another looks at the durable end, at any moment.
fn look_at_the_durable_end(shape: Shape, records: u64) {
    every(move || {
        let log = Arc::new(Log::new(shape));
        let writer = Arc::clone(&log);
        let writer = thread::spawn(move || {
            let who = Process::new(0);
            let mut end = 0;
            (0..records).for_each(|_| end = writer.append(&who).1);
            writer.sync_to(&who, end);
            assert_eq!(writer.survives(), records);
        });
        log.survives();
        writer.join().unwrap();
    });
}

#[test]
fn who_sees_the_durable_end_finds_it_on_the_medium() {
    look_at_the_durable_end(THREE_A_SEGMENT, 1);
}

#[test]
fn who_sees_the_durable_end_behind_a_roll_finds_both_segments_and_their_names() {
    look_at_the_durable_end(ONE_A_SEGMENT, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_relaxed_durable_end_promises_what_is_not_there_yet() {
    look_at_the_durable_end(Shape { broken: Some(Broken::DurableRelaxed), ..THREE_A_SEGMENT }, 1);
}

#[test]
#[should_panic]
fn broken_durable_end_before_the_sync_promises_what_is_not_there_yet() {
    look_at_the_durable_end(Shape { broken: Some(Broken::DurableEarly), ..THREE_A_SEGMENT }, 1);
}

#[test]
#[should_panic(expected = "a segment without its name")]
fn broken_sync_without_the_directory_loses_a_segment() {
    look_at_the_durable_end(Shape { broken: Some(Broken::NoDirectorySync), ..ONE_A_SEGMENT }, 2);
}

/// A writer appends while another process syncs.
fn append_while_syncing(broken: Option<Broken>) {
    every(move || {
        let log = Arc::new(Log::new(Shape { broken, ..THREE_A_SEGMENT }));
        let (_, end) = log.append(&Process::new(0));
        let writer = Arc::clone(&log);
        let writer = thread::spawn(move || writer.append(&Process::new(0)));
        log.sync_to(&Process::new(1), end);
        assert!(log.survives() >= 1);
        writer.join().unwrap();
    });
}

#[test]
fn a_sync_promises_no_more_than_what_was_there_when_it_began() {
    append_while_syncing(None);
}

#[test]
#[should_panic(expected = "not on the disk")]
fn broken_sync_that_promises_what_came_meanwhile() {
    append_while_syncing(Some(Broken::DurableTooFar));
}

/// Processes append durably, one record each: all are served, whichever syncs.
fn append_durably_together(processes: u16, broken: Option<Broken>) {
    model(move || {
        let log = Arc::new(Log::new(Shape { broken, ..THREE_A_SEGMENT }));
        let work = |log: &Log, slot| {
            let who = Process::new(slot);
            let (record, end) = log.append(&who);
            log.sync_to(&who, end);
            assert!(log.survives() >= record);
        };
        let others: Vec<_> = (1..processes)
            .map(|slot| (slot, Arc::clone(&log)))
            .map(|(slot, log)| thread::spawn(move || work(&log, slot)))
            .collect();
        work(&log, 0);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(log.survives(), u64::from(processes));
    });
}

#[test]
fn two_that_append_durably_are_both_served_whichever_syncs() {
    append_durably_together(2, None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_sync_lock_that_wakes_nobody_leaves_one_of_the_crowd_asleep() {
    append_durably_together(2, Some(Broken::CrowdAsleep));
}
